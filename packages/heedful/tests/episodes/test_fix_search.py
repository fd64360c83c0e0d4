"""Which call worked after another had failed, and what made the difference."""

from itertools import chain
from pathlib import Path
from typing import Any

from heedful import Episode, Event
from heedful.episodes.course import Course, call_failed, call_worked, course
from heedful.episodes.fix_search import (
    CallIndex,
    Correction,
    FoundFix,
    find_correction,
    find_fix,
    was_dropped,
    was_wanted,
)
from tests.tables import cases, read_run, read_samples

BROKEN = "Error: no such thing"


def call(tool: str, arguments: Any) -> Event:
    return Event("tool_call", tool=tool, arguments=arguments)


def step(tool: str, arguments: Any, result: str = "ok") -> tuple[Event, Event]:
    """Return a call and its result."""
    return call(tool, arguments), Event("tool_response", result, tool=tool)


def user(text: str) -> tuple[Event]:
    return (Event("user_message", text),)


def find_fixes(run: Course) -> list[FoundFix]:
    """Return what put the failed calls of a run right, tool by tool."""
    index = CallIndex(run)
    fixes: list[FoundFix] = []
    for failed in chain.from_iterable(index.by_tool.values()):
        known = {call for fix in fixes for call in fix.failed_calls}
        if call_failed(run, failed) and failed not in known:
            fixes += filter(None, [find_fix(run, failed, index)])
    return [f for f in fixes if not was_wanted(run, f.failed_calls[-1], f.working_call)]


# Runs, and of each the failed tries, the steps between, and the call that worked.
RUNS = read_samples(Path(__file__).parent / "fixes.txt")


@cases("content, expected", RUNS)
def test_what_made_the_difference_is_found(content, expected):
    fixes = [
        f"tries {list(fix.failed_calls)}, steps {list(fix.needed_steps)}, "
        f"works {fix.working_call}"
        for fix in find_fixes(course(read_run(content)))
    ]
    assert "\n".join(fixes) == expected


ANSWER = Event("llm_response", "It is 12.", agent="writer")
OTHER_ANSWER = Event("llm_response", "It is 12000.", agent="writer")
REMARK = Event("error_event", "The table is in thousands.", agent="checker")
REPLY = Event("llm_response", "The table is in thousands.", agent="checker")


def correction_of(*events: Event, outcome: Any = "success") -> Correction | None:
    return find_correction(course(Episode(events, outcome)))


@cases("remark", {"an error": REMARK, "an answer of another agent": REPLY})
def test_an_answer_that_was_accepted_after_a_remark_is_found(remark):
    expected = Correction(answer=0, remark=1, accepted=2)
    assert correction_of(ANSWER, remark, OTHER_ANSWER) == expected


@cases(
    "events",
    {
        "no new answer": [ANSWER, REMARK],
        "the agent stayed with its answer": [ANSWER, REMARK, ANSWER],
        "a wish of the user": [ANSWER, *user("Shorter, please."), OTHER_ANSWER],
    },
)
def test_not_every_second_answer_is_a_correction(events):
    assert correction_of(*events) is None


def test_an_answer_of_a_failed_run_was_not_accepted():
    assert correction_of(ANSWER, REMARK, OTHER_ANSWER, outcome="failure") is None


REFUSALS = {
    "unwanted": ("The user doesn't want to take this action.", True),
    "cancelled": ('{"error": "cancelled by user"}', True),
    "stopped": ("Exit code 137\n[Request interrupted by user]", True),
    "not approved": ("Tool execution was not approved.", True),
    "an account": ("Access denied for user 'bo'@'db'", False),
    "another deed": ("The file was changed by the user.", False),
}


@cases("result, expected", REFUSALS)
def test_a_call_that_a_person_refused_neither_failed_nor_worked(result, expected):
    run = course(Episode(step("pay", {"order": 7}, result), "success"))
    is_refused = not call_failed(run, 0) and not call_worked(run, 0)
    assert is_refused == expected


DROPPED = {
    "the user asks for another": ([user("Then book a table.")], True),
    "the agent goes on": ([step("tell", {"who": "Ann"})], False),
    "tried again": ([user("It is 5."), step("connect", {"to": "shop"}, BROKEN)], False),
}


@cases("later, expected", DROPPED)
def test_a_failure_is_dropped_if_the_user_asks_for_something_else(later, expected):
    events = (*step("connect", {"to": "shop"}, BROKEN), *chain.from_iterable(later))
    assert was_dropped(course(Episode(events, "partial")), 0) == expected
