"""Calls that repeat in a run: what is noted, what does not run, what ends the run."""

from collections.abc import Sequence
from typing import Any

import pytest

from heedful.errors import InvalidInput
from heedful.integrations.attempts import Attempts
from heedful.integrations.host import Host
from tests.tables import cases

NUMBER = {"id": "A-1"}


def run_of(**options: Any) -> Attempts:
    host = Host(memory=None, strict=True, **options)
    return Attempts(run=host.run("one", "do it"))


def make_turn(
    run: Attempts, calls: Sequence[tuple[str, str]], turn: str, failed: bool = False
) -> str:
    """Make parallel calls, whose results come in reverse order; return what is seen.

    "." stands for a call, "n" for a noted one, "h" for one that did not run, and "!"
    for the end of the run.
    """
    if run.closing():
        return "!"

    seen = ""
    open_calls: list[tuple[str, str]] = []
    for number, (tool, result) in enumerate(calls):
        id = f"{turn}-{number}"
        if run.repeats.hold(tool, NUMBER, id):
            seen += "h"
        else:
            open_calls.append((id, result))
    for id, result in reversed(open_calls):
        seen += "n" if run.repeats.note(id, result, failed=failed) else "."
    return seen


def play(
    run: Attempts, turns: Sequence[Sequence[tuple[str, str]]], failed: bool = False
) -> str:
    played = [make_turn(run, calls, str(n), failed) for n, calls in enumerate(turns)]
    return " ".join(played)


LOOK = [("look", "no order A-1")]
READ = [("read", "old")]
WRITE = [("write", "refused")]
TEST = [("test", "failed")]
BOTH = [("read", "old"), ("write", "refused")]
TWICE = [("look", "none"), ("look", "none")]


@cases(
    ("turns", "seen"),
    {
        "one call": ([LOOK] * 7, ". . n . h h !"),
        "two calls in turn": ([READ, WRITE] * 5, ". . . . n n . . h h"),
        "three calls": ([READ, WRITE, TEST] * 5, ". . . . . . n n n . . . h h !"),
        "two calls in one turn": ([BOTH] * 6, ".. .. .n .. hh hh"),
        "equal calls in one turn": ([TWICE] * 4, ".. .n hh hh"),
        "held again": (
            [*[LOOK] * 5, READ, *[LOOK] * 6, READ],
            ". . n . h . . . n . h h !",
        ),
        "interrupted row": ([*[LOOK] * 4, READ, *[LOOK] * 4], ". . n . . . . n ."),
    },
)
def test_calls_of_a_run(turns: Sequence[Any], seen: str) -> None:
    assert play(run_of(), turns) == seen


def test_a_poll_may_repeat() -> None:
    job = [("job", "running")]
    run = run_of(polls=["job"])
    assert play(run, [job] * 8) == ". . . . . . . ."
    waits = [[("wait", "ok")], job]
    assert play(run, waits * 8).replace(" ", "") == "." * 16


def test_polls_are_a_list_of_names() -> None:
    with pytest.raises(InvalidInput, match=r"polls is .job"):
        Host(memory=None, polls="job")


def test_the_end_is_a_sentence_about_the_call_or_the_last_text() -> None:
    run = run_of()
    play(run, [LOOK] * 6)
    sentence = 'look {"id": "A-1"} kept giving the same: no order A-1'
    assert run.closing() == f"The run ended: {sentence}"
    assert run.closing(["I look for it.", ""]) == "I look for it."
    assert run.done is not None
    assert run.done.stopped_by[0].rule == "repeat"
    assert run.done.stopped_by[0].detail == sentence


@pytest.mark.parametrize(("calls", "ends"), [(2, False), (3, True)])
def test_a_limit_of_the_framework_ends_a_run_that_repeats(
    calls: int, ends: bool
) -> None:
    run = run_of()
    play(run, [LOOK] * calls)
    assert bool(run.closing(at_limit=True)) is ends
