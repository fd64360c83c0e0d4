"""What is told is decided in one place: no face reads what the decision is made of."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import heedful
import heedful_agents
import heedful_server.routes

CORE = Path(heedful.__file__).parent
# The rooms that hand candidates to `tell`, or show what it answers.
FACES = (
    CORE / "integrations",
    CORE / "drive",
    CORE / "pipeline",
    Path(heedful_agents.__file__).parent,
    Path(heedful_server.routes.__file__).parent,
)
DECIDING = CORE / "lessons" / "telling.py"
# The facts of a lesson by which it is chosen, and the draws that withhold it.
FACTS = frozenset(
    """
    PROMPT RELATED TOLD_STATES has_ended has_evidence is_pooled
    is_withheld plan_holdout unfit_for useful
    """.split()
)
STATES = frozenset({"quarantined", "retired", "superseded", "unverified", "verified"})
DRAWS = frozenset({"is_pooled", "is_withheld"})
MODULES = [path for face in FACES for path in sorted(face.rglob("*.py"))]


def names_in(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module reads, imports or asks an object for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name


def compared_states(tree: ast.AST) -> Iterator[str]:
    """Yield the states of lessons that a module compares something with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and part.value in STATES:
                    yield str(part.value)


@pytest.mark.parametrize(
    "path", MODULES, ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_no_face_chooses_what_is_told(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert FACTS.isdisjoint(names_in(tree))
    assert not [*compared_states(tree)]


def test_only_the_decision_draws_what_a_lesson_is_withheld_from():
    drawing = set[Path]()
    for path in CORE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = {node.name for node in ast.walk(tree) if isinstance(node, ast.alias)}
        if DRAWS & imported:
            drawing.add(path)
    assert drawing == {DECIDING}


def test_the_decision_imports_records_only():
    tree = ast.parse(DECIDING.read_text(encoding="utf-8"))
    modules = {
        node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("heedful")
    }
    records = {f"heedful.lessons.{name}" for name in ("holdout", "reasons", "scope")}
    # It declares records, too.
    assert modules == records | {"heedful.validation"}
