"""The parts of the child process that can run in this one."""

from __future__ import annotations

import builtins
import sys
from contextlib import nullcontext
from typing import Any

import pytest

from heedful.checks import _child
from heedful.checks.program import plan_tests


class Told(list[dict[str, Any]]):
    def __call__(self, **fields: Any) -> None:
        self.append(fields)


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch):
    monkeypatch.setitem(sys.modules, "program", None)


def loaded(source: str) -> tuple[dict[str, Any] | None, Told]:
    told = Told()
    return _child.load(source, told), told


def ran(names: dict[str, Any], tests: str, entry: str | None = None) -> Told:
    told = Told()
    space = _child.visible(names, entry, dict(vars(builtins)))
    _child.run_tests(plan_tests(tests, entry).code, space, told)
    return told


def test_a_program_that_does_not_load_is_told():
    assert loaded("def (")[0] is None
    (told,) = loaded("x =\n")[1]
    assert (told["broken"], told["message"]) == ("syntax", "invalid syntax (line 1: 'x =')")
    (told,) = loaded("raise SystemExit(0)")[1]
    assert (told["broken"], told["type"]) == ("load", "SystemExit")
    assert told["trace"][0].startswith("program.py:1 in <module>")


def test_an_assertion_of_the_tests_is_told_from_one_of_the_program():
    names, _ = loaded("def f():\n    assert False, 'mine'\n")
    assert names is not None
    inner = ran(names, "assert f()")[1]
    assert (inner["type"], inner["message"], "sides" in inner) == ("AssertionError", "mine", False)
    own = ran({"f": 7}, "assert not f, 'why'")[1]
    assert (own["source"], own["sides"], own["message"]) == ("assert not f", {"f": "7"}, "why")


def test_builtins_of_the_program_are_hidden_but_for_the_one_that_is_tested():
    fresh = dict(vars(builtins))
    names = {"sum": 1, "len": 2, "g": 3, "__doc__": None}
    assert set(_child.visible(names, None, fresh)) >= {"sum", "len", "g"}
    space = _child.visible(names, "sum", fresh)
    assert (space["sum"], space["g"]) == (1, 3)
    assert "len" not in space
    assert "__doc__" not in space


@pytest.mark.parametrize("event", ["os.fork", "os.killpg", "subprocess.Popen", "open"])
def test_processes_are_refused_and_files_are_not(event):
    refused = pytest.raises(PermissionError, match="may not") if event != "open" else nullcontext()
    with refused:
        _child.refuse(event, ())
