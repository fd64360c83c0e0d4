"""The checks of sizes, habits and addresses find what they look for, and no more."""

import ast
import re
from pathlib import Path

import pytest

import heedful
from scripts import addresses, budgets, lock


def problems(source: str, may_catch_all: bool = False) -> list[str]:
    lines = source.splitlines()
    return [
        problem
        for node in ast.walk(ast.parse(source))
        for problem in budgets.node_problems(node, lines, may_catch_all)
    ]


@pytest.mark.parametrize(
    "source",
    [
        "class LoopManager: ...",
        "class EngineV2: ...",
        "class StringUtils: ...",
        "try: ...\nexcept: ...",
        "try: ...\nexcept Exception: ...",
        "try: ...\nexcept (OSError, Exception) as e: ...",
        "with suppress(Exception): ...",
        "with contextlib.suppress(Exception): ...",
    ],
)
def test_a_habit_of_the_house_is_a_problem(source):
    assert len(problems(source)) == 1


def test_the_outermost_rooms_may_catch_all():
    assert problems("try: ...\nexcept Exception: ...", may_catch_all=True) == []


@pytest.fixture
def find_addresses(tmp_path, monkeypatch):
    monkeypatch.setattr(addresses, "ROOT", tmp_path)

    def look(text: str, name: str = "a.py") -> list[str]:
        path: Path = tmp_path / name
        path.write_text(text.replace("~", ""), "utf-8")
        return list(addresses.problems(path))

    return look


# "~" is left out of the text, so that this file names no machine itself.
@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("./opt/x", 0),
        ("src/wo~rk/x", 0),
        ("/usr/bin/python", 0),
        ("framework/x", 0),
        ("https://example.com/ho~me/", 0),
        ("https://example.com/simple", 0),
        ("/ho~me/me/x", 1),
        ('open("/ro~ot/.cache")', 1),
        ("file:///op~t/wheels", 1),
        ("https://pypi~.org/simple", 1),
        ("HTTPS://Files.pythonhosted~.org", 1),
    ],
)
def test_a_machine_or_a_registry_is_found(find_addresses, text, count):
    assert len(find_addresses(text)) == count


def test_a_lock_without_a_hash_or_with_an_address_is_refused():
    assert lock.problems("# x\na==1 \\\n    --hash=sha256:00\n    # via b\n") == []
    assert lock.problems("a==1\n") == ["no hash: a==1"]
    assert lock.problems("--find-links x\n") == ["an option: --find-links x"]
    assert len(lock.problems("a @ file://x \\\n")) == 1


GROUP_HELD = re.compile(r"\)(?:[*+?]|\{[\d,]+\})\+")


def test_no_pattern_repeats_a_group_possessively():
    """Before Python 3.11.5 that matches wrongly (gh-106052); an atomic group says the
    same.
    """
    for path in Path(heedful.__file__).parent.rglob("*.py"):
        assert not GROUP_HELD.search(path.read_text("utf-8")), path
