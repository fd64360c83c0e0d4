"""What costs a reader, held to ceilings, and habits of this house.

`python -m scripts.budgets` prints each figure of `scripts/reading.py` beside its
ceiling, and every problem; it exits with 1 if there is any. Lines are not counted: a
ceiling on lines is met by packing.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts import reading
from scripts.workspace import ROOT, SOURCES, TESTS

MAX_MODULE_STATEMENTS = 450
# What each figure may be at most: habits per 1,000 statements, and sizes. How many
# statements there may be is in `scripts/weight.py`.
CEILINGS: Mapping[str, Mapping[str, float]] = {
    "packages": {
        "largest module": MAX_MODULE_STATEMENTS,
        "mean line": 39.8,
        "long lines, %": 0,
        "shared constants": 5,
        "shared classes": 2,
        "packed_call": 1.15,
        "packed_keywords": 2.8,
        "many_positions": 0.6,
        "bare_flag": 0.4,
        "wide_assignment": 0,
        "pair_assignment": 0.2,
        "times_bool": 0,
        "any_bag": 1.7,
        "nested_condition": 0,
        "condition_in_call": 2,
        "deep_comprehension": 0.46,
        "walrus": 0.3,
        "lambda_long": 0.18,
        "tuple_compare": 0.1,
        "vague_name": 0.7,
        "noqa": 0.8,
    },
    "tests": {
        "largest module": MAX_MODULE_STATEMENTS,
        "long lines, %": 0,
        "packed_call": 3.55,
        "packed_keywords": 5.5,
        "wide_assignment": 0,
        "pair_assignment": 0.2,
        "tuple_compare": 0.3,
        "vague_name": 1,
        "noqa": 1,
    },
    "lab": {
        "largest module": MAX_MODULE_STATEMENTS,
        "mean line": 39.8,
        "long lines, %": 0.1,
        "packed_call": 1,
        "packed_keywords": 1,
        "many_positions": 0.5,
        "bare_flag": 0.5,
        "wide_assignment": 0,
        "pair_assignment": 0.5,
        "times_bool": 0,
        "any_bag": 0.5,
        "nested_condition": 0,
        "condition_in_call": 1,
        "deep_comprehension": 0.5,
        "walrus": 0.5,
        "lambda_long": 0.5,
        "vague_name": 0.5,
        "noqa": 2,
    },
}
# Lines of the templates of pages that are longer than this: sentences, mostly, and tags
# with an address.
TEMPLATE_LINE_CHARS = 120
MAX_LONG_TEMPLATE_LINES = 140
# What a name of `CEILINGS` stands for.
FOLDERS: Mapping[str, Sequence[Path]] = {
    "packages": SOURCES,
    "tests": TESTS,
    "lab": (ROOT / "lab",),
}
# Their modules are checked for the habits of the house, too.
CHECKED = (
    *SOURCES,
    *(ROOT / name for name in ("examples", "packages/heedful/examples", "lab")),
    ROOT / "scripts",
)
# Names of a layer say nothing about the domain.
VAGUE_CLASS = re.compile(
    r"(Manager|Engine|Service|Handler|Helper|Utils?|V\d+)(?![a-z])"
)
VAGUE_MODULE = re.compile(r"(utils?|helpers?|common|misc)$")
# The outermost rooms turn any failure into an answer for a person or a client.
CATCH_ALL_ROOMS = (
    "packages/heedful/src/heedful/cli/",
    "packages/heedful/src/heedful/integrations/",
    "packages/heedful-agents/src/heedful_agents/",
    "packages/heedful-frameworks/src/heedful_frameworks/",
    "packages/heedful-server/src/heedful_server/",
)
# The mark of the places that call what a user handed over.
CATCH_ALL_MARK = "# user code"


@dataclass(frozen=True)
class Source:
    """A Python file: its path from the root, its text and its tree."""

    path: Path
    text: str
    tree: ast.Module

    @classmethod
    def read(cls, path: Path) -> Source:
        """Return the file at `path`. Raises SyntaxError."""
        text = path.read_text(encoding="utf-8")
        return cls(path.relative_to(ROOT), text, ast.parse(text, filename=str(path)))


def sources(folder: Path) -> list[Source]:
    """Return every Python file below a folder."""
    return [Source.read(path) for path in sorted(folder.rglob("*.py"))]


def catches_all(handler: ast.ExceptHandler) -> bool:
    """Whether it swallows every exception, and neither raises it again nor sets it on a
    future.
    """
    last = handler.body[-1]
    if isinstance(last, ast.Raise) and last.exc is None:
        return False
    if any(".set_exception(" in ast.unparse(statement) for statement in handler.body):
        return False
    caught = handler.type
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(
        kind is None
        or (isinstance(kind, ast.Name) and kind.id in {"Exception", "BaseException"})
        for kind in kinds
    )


def suppresses_all(node: ast.AST) -> bool:
    """Whether it is `suppress(Exception)`."""
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
    name = called.id if isinstance(called, ast.Name) else called
    kinds = {arg.id for arg in node.args if isinstance(arg, ast.Name)}
    return name == "suppress" and bool(kinds & {"Exception", "BaseException"})


def node_problems(
    node: ast.AST, lines: list[str], may_catch_all: bool
) -> Iterator[str]:
    """Yield what is wrong with one node of the tree, its own children apart."""
    match node:
        case ast.ClassDef() if VAGUE_CLASS.search(node.name):
            yield f"class {node.name}: name it by what it is in the domain"
        case ast.ExceptHandler() if catches_all(node) and not may_catch_all:
            if CATCH_ALL_MARK not in lines[node.lineno - 1]:
                yield f"catches every exception; name them or write `{CATCH_ALL_MARK}`"
        case ast.Call() if suppresses_all(node) and not may_catch_all:
            yield "suppresses every exception; name them"


def module_problems(source: Source) -> Iterator[str]:
    """Yield what is wrong with one module, as `path:line: what`."""
    path = source.path.as_posix()
    lines = source.text.splitlines()
    if VAGUE_MODULE.search(source.path.stem):
        yield f"{path}:1: name the module by what is in it"
    for node in ast.walk(source.tree):
        line = getattr(node, "lineno", 1)
        for problem in node_problems(node, lines, path.startswith(CATCH_ALL_ROOMS)):
            yield f"{path}:{line}: {problem}"


def ceiling_problems(
    folder: str, survey: reading.Survey, ceilings: Mapping[str, float]
) -> Iterator[str]:
    """Yield the figures of a folder that are over their ceiling, and where to look."""
    looks = {
        "shared constants": ", ".join(survey.shared["constant"]),
        "shared classes": ", ".join(survey.shared["class"]),
    }
    for habit in reading.HABITS:
        looks[habit] = f"scripts/reading.py --where {habit} {folder}"

    for name, ceiling in ceilings.items():
        figure = survey.figures[name]
        if figure > ceiling:
            look = looks.get(name, f"scripts/reading.py {folder}")
            yield f"{folder}: {name} {figure:,}; at most {ceiling:,} ({look})"


def template_problems(folder: Path, most: int) -> Iterator[str]:
    """Yield whether more lines of templates than `most` are long, and the longest."""
    lines = [
        (len(line), f"{path.name}:{number}")
        for path in sorted(folder.rglob("*.html.j2"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > TEMPLATE_LINE_CHARS
    ]
    if len(lines) > most:
        yield (
            f"{len(lines)} lines of templates have over {TEMPLATE_LINE_CHARS} "
            f"characters; at most {most} (the longest: {max(lines)[1]})"
        )


def main() -> int:
    """Print the figures and every problem; return 1 if there is a problem."""
    problems: list[str] = []
    for folder, ceilings in CEILINGS.items():
        survey = reading.survey(*FOLDERS[folder])
        print(folder)
        for name, figure in survey.figures.items():
            ceiling = ceilings.get(name)
            limit = "" if ceiling is None else f"  at most {ceiling:,}"
            print(f"  {name:<20}{figure:>10,}{limit}")
        problems += ceiling_problems(folder, survey, ceilings)

    problems += template_problems(ROOT / "packages", MAX_LONG_TEMPLATE_LINES)
    checked = [source for folder in CHECKED for source in sources(folder)]
    for source in checked:
        problems += module_problems(source)
    print("\n".join(problems) or f"{len(checked)} modules within the budgets")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
