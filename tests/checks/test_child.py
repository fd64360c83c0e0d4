"""The parts of the child process that can run in this one."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import pytest

from errata.checks import _child


class Told(list[dict[str, Any]]):
    def __call__(self, **fields: Any) -> None:
        self.append(fields)


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch):
    monkeypatch.setitem(sys.modules, "program", None)


def loaded(source: str) -> tuple[dict[str, Any] | None, Told]:
    told = Told()
    _child.remember_source(_child.PROGRAM, source)
    return _child.load(source, told, repr), told


def ran(names: dict[str, Any], *sources: str, entry: str | None = None) -> Told:
    told = Told()
    space = _child.visible(names, entry, dict(vars(builtins)))
    steps = [(group, compile(s, _child.TESTS, "exec")) for group, s in enumerate(sources)]
    _child.run_steps(steps, space, told, repr)
    return told


def test_a_program_that_loads_gives_its_names():
    names, told = loaded("def f(): return 1\n")
    assert names is not None
    assert names["f"]() == 1
    assert told == []


def test_a_program_that_does_not_load_is_told():
    assert loaded("def (")[0] is None
    (told,) = loaded("x =\n")[1]
    assert (told["broken"], told["at"], told["text"]) == ("syntax", 1, "x =")
    (told,) = loaded("raise SystemExit(0)")[1]
    assert (told["broken"], told["type"]) == ("load", "SystemExit")
    assert told["trace"] == ["program.py:1 in <module>: raise SystemExit(0)"]


def test_steps_are_told_one_by_one_and_groups_are_apart():
    told = ran({"f": lambda: 1}, "x = f()", "y = x", "assert y == 1")
    assert [t["step"] for t in told if "step" in t] == [0, 1, 2]
    (failed,) = [t for t in told if "failed" in t]
    assert (failed["failed"], failed["type"], failed["asserted"]) == (2, "NameError", False)


def test_an_assertion_of_the_tests_is_told_from_one_of_the_program():
    names, _ = loaded("def f():\n    assert False, 'mine'\n")
    assert names is not None
    inner = ran(names, "f()")[1]
    assert (inner["asserted"], inner["line"], inner["message"]) == (False, 1, "mine")
    own = ran(names, "assert not f")[1]
    assert (own["asserted"], own["sides"]) == (True, {})


def test_builtins_of_the_program_are_hidden_but_for_the_one_that_is_tested():
    fresh = dict(vars(builtins))
    names = {"sum": 1, "len": 2, "g": 3, "__doc__": None}
    assert set(_child.visible(names, None, fresh)) >= {"sum", "len", "g"}
    space = _child.visible(names, "sum", fresh)
    assert (space["sum"], space["candidate"], space["g"]) == (1, 1, 3)
    assert "len" not in space
    assert "__doc__" not in space


def test_a_message_that_cannot_be_shown_is_told_as_such():
    class BadError(Exception):
        def __str__(self) -> str:
            raise KeyError

    assert _child.said(BadError()) == "(its message cannot be shown: KeyError)"
    assert _child.said(ValueError("x")) == "x"


def test_values_are_shown_in_bounded_length():
    shown = _child.shower()
    assert len(shown(list(range(10**6)))) < 200
    assert len(shown("x" * 10**6)) < 200
