"""Which call worked after another had failed, and what made the difference."""

from itertools import chain
from typing import Any, NamedTuple

import pytest

from heedful import Episode, Event
from heedful.episodes.course import Course, call_failed, call_worked, course
from heedful.episodes.fixes import (
    CallIndex,
    Correction,
    FoundFix,
    find_corrections,
    find_fix,
    was_dropped,
    was_meant,
    was_wanted,
)
from tests.linear import assert_linear
from tests.tables import cases

BROKEN = "Error: no such thing"


def call(tool: str, arguments: Any) -> Event:
    return Event("tool_call", tool=tool, arguments=arguments)


def step(tool: str, arguments: Any, result: str = "ok") -> tuple[Event, Event]:
    """Return a call and its result."""
    return call(tool, arguments), Event("tool_response", result, tool=tool)


def user(text: str) -> tuple[Event]:
    return (Event("user_message", text),)


class Retry(NamedTuple):
    """The calls that failed, what was done between, and the call that worked."""

    tries: tuple[int, ...]
    between: tuple[int, ...]
    works: int


def find_fixes(run: Course) -> list[FoundFix]:
    """Return what put the failed calls of a run right, tool by tool."""
    index = CallIndex(run)
    fixes: list[FoundFix] = []
    for failed in chain.from_iterable(index.by_tool.values()):
        if call_failed(run, failed) and not any(failed in fix.tries for fix in fixes):
            fixes += filter(None, [find_fix(run, failed, index)])
    return [fix for fix in fixes if not was_wanted(run, fix.tries[-1], fix.works)]


def retries_of(*steps: tuple[Event, ...], task: str = "") -> list[Retry]:
    events = [event for parts in steps for event in parts]
    run = course(Episode(tuple(events), "success", task=task))
    return [Retry(fix.tries, fix.steps, fix.works) for fix in find_fixes(run)]


MADE = step("make", {"target": "site"}, "Error: no key 'pages.toml'")
WORKS = step("make", {"target": "site"})
SHAPES = {
    "an argument with nothing in common": (
        [
            step("ship", {"box": "b7", "day": "tomorrow"}, "Error: day is no date"),
            step("ship", {"box": "b7", "day": "2031-02-01"}),
        ],
        Retry(tries=(0,), between=(), works=2),
    ),
    "a value that another call showed": (
        [
            step("play", {"song": "blue"}, BROKEN),
            step("catalog", {"about": "blue"}, '{"id": "s-4471"}'),
            step("play", {"song": "s-4471"}),
        ],
        Retry(tries=(0,), between=(2,), works=4),
    ),
    "the wrong value in the form that the error shows": (
        [
            step("open", {"ticket": "42"}, "Error: ids look like 'T-1001'"),
            step("open", {"ticket": "T-42"}),
        ],
        Retry(tries=(0,), between=(), works=2),
    ),
    "a value that the error shows": (
        [
            step("open", {"ticket": "42"}, "Error: no such ticket; use 57"),
            step("open", {"ticket": "57"}),
        ],
        Retry(tries=(0,), between=(), works=2),
    ),
    "another tool for the same thing": (
        [
            step("play", {"song": "blue-moon.ogg"}, BROKEN),
            step("weather", {"city": "Rome"}, "sunny"),
            step("convert", {"song": "blue-moon.ogg"}),
        ],
        Retry(tries=(0,), between=(), works=4),
    ),
    "another program for one that a shell does not find": (
        [
            step("sh", "yarn test", "bash: yarn: command not found"),
            step("sh", "pnpm test"),
        ],
        Retry(tries=(0,), between=(), works=2),
    ),
    "a wait": (
        [MADE, step("rest", {"wait_s": 9}), step("sleep", {"s": 9}), WORKS],
        Retry(tries=(0,), between=(4,), works=6),
    ),
    "a wait of the time that the error gives": (
        [
            step("shop", {"id": 5}, "Error: closed, versuchen Sie es in 7 Minuten"),
            step("ruhen", {"minuten": 7}),
            step("shop", {"id": 5}),
        ],
        Retry(tries=(0,), between=(2,), works=4),
    ),
    "a step about what the error names": (
        [MADE, step("paint", {"wall": 2}), step("put", {"at": "pages.toml"}), WORKS],
        Retry(tries=(0,), between=(4,), works=6),
    ),
    "a look changes nothing": (
        [MADE, step("read", {"path": "pages.toml"}), step("login", {}), WORKS],
        Retry(tries=(0,), between=(4,), works=6),
    ),
    "a failure that passed by itself": (
        [
            step("invite", {"band": "Larks"}, "Error: 503 Service Unavailable"),
            step("paint", {"band": "Larks"}),
            step("invite", {"band": "Larks"}),
        ],
        Retry(tries=(0,), between=(), works=4),
    ),
    "the user put it right": (
        [MADE, step("paint", {"wall": 2}), user("It is repaired, go on."), WORKS],
        Retry(tries=(0,), between=(), works=5),
    ),
    "an edit that the user rejected is left out": (
        [
            step("sh", "make", "Error: pages.toml: no title"),
            step("edit", {"path": "pages.toml", "new": ""}, "Rejected by the user."),
            step("edit", {"path": "pages.toml", "new": "title = 1"}),
            step("sh", "make"),
        ],
        Retry(tries=(0,), between=(4,), works=6),
    ),
    "a file that is written with cat": (
        [
            step("sh", "go build", "Error: main.go: unused strings"),
            step("sh", "cat > main.go <<'EOF'\npackage main\nEOF"),
            step("sh", "go build"),
        ],
        Retry(tries=(0,), between=(2,), works=4),
    ),
    "two edits of one file belong together": (
        [
            step("sh", "pytest money", "Error: to_cents(2.675) is 267"),
            step("edit", {"file": "src/a.py", "new": "def to_cents(x): Decimal(x)"}),
            step("edit", {"file": "src/a.py", "new": "import decimal"}),
            step("edit", {"file": "src/b.py", "new": "pass"}),
            step("sh", "pytest money"),
        ],
        Retry(tries=(0,), between=(2, 4), works=8),
    ),
}


@cases("steps, expected", SHAPES)
def test_what_made_the_difference_is_found(steps, expected):
    assert retries_of(*steps) == [expected]


NO_RETRIES = {
    "the wrong value inside a longer one that the error does not show": (
        [
            step("open", {"path": "src"}, "Error: src is a directory"),
            step("open", {"path": "src/app.py"}),
        ],
        "",
    ),
    "a look whose errors are thrown away is no other way": (
        [
            step("lint", "notes/plan.md", BROKEN),
            step("sh", "cat notes/plan.md 2>/dev/null", "plan"),
        ],
        "",
    ),
    "another command of the same program": (
        [
            step("sh", "git -C /srv/app gc --auto", BROKEN),
            step("sh", "ls /srv", "reflog.txt"),
            step("sh", "git show HEAD:reflog.txt"),
        ],
        "",
    ),
    "the user changed his mind": (
        [
            step("book", {"hotel": "Oakwood", "city": "Ghent"}, BROKEN),
            user("Then take the Kantklos."),
            step("book", {"hotel": "Kantklos", "city": "Ghent"}),
        ],
        "Book the hotel Oakwood in Ghent.",
    ),
    "the task asked for both": (
        [
            step("enter", {"door": "north", "card": "expired"}, BROKEN),
            step("enter", {"door": "north", "card": "valid"}),
        ],
        "Try the door with an expired card and a valid one.",
    ),
    "a call that the user did not allow has not failed": (
        [
            step("pay", {"order": 7}, "The user did not allow this call."),
            step("pay", {"order": 7}),
        ],
        "",
    ),
}


@cases("steps, task", NO_RETRIES)
def test_what_has_nothing_to_do_with_the_failure_is_no_retry(steps, task):
    assert retries_of(*steps, task=task) == []


ANSWER = Event("llm_response", "It is 12.", agent="writer")
OTHER_ANSWER = Event("llm_response", "It is 12000.", agent="writer")
REMARK = Event("error_event", "The table is in thousands.", agent="checker")


def corrections_of(*events: Event, outcome: Any = "success") -> list[Correction]:
    return list(find_corrections(course(Episode(events, outcome))))


def test_an_answer_that_was_accepted_after_a_remark_is_found():
    expected = Correction(answer=0, remark=1, accepted=2)
    assert corrections_of(ANSWER, REMARK, OTHER_ANSWER) == [expected]


@cases(
    "events",
    {
        "no new answer": [ANSWER, REMARK],
        "the agent stayed with its answer": [ANSWER, REMARK, ANSWER],
        "a wish of the user": [
            ANSWER,
            Event("user_message", "Shorter, please."),
            OTHER_ANSWER,
        ],
    },
)
def test_not_every_second_answer_is_a_correction(events):
    assert corrections_of(*events) == []


def test_an_answer_of_a_failed_run_was_not_accepted():
    assert corrections_of(ANSWER, REMARK, OTHER_ANSWER, outcome="failure") == []


REFUSALS = {
    "unwanted": ("The user doesn't want to take this action.", True),
    "cancelled": ('{"error": "cancelled by user"}', True),
    "stopped": ("Exit code 137\n[Request interrupted by user]", True),
    "not approved": ("Not approved by the human reviewer.", True),
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
    "it is tried again": (
        [user("The port is 5433."), step("connect", {"to": "shop"}, BROKEN)],
        False,
    ),
}


@cases("later, expected", DROPPED)
def test_a_failure_is_dropped_if_the_user_asks_for_something_else(later, expected):
    events = [*step("connect", {"to": "shop"}, BROKEN)]
    for parts in later:
        events += parts
    assert was_dropped(course(Episode(tuple(events), "partial")), 0) == expected


WANTED = {
    "a test first": ("Write the test first and watch it fail.", True),
    "a refusal": ("Check that the door rejects old cards.", True),
    "perhaps absent": ("Make the box unless it exists.", True),
    "in French": ("Vérifie que la porte refuse la carte.", True),
    "a failure to be mended": ("Check why the build fails.", False),
}


@cases("task, expected", WANTED)
def test_a_failure_is_wanted_only_if_the_task_asks_for_it(task, expected):
    events = step("box", {"id": 7}, "Error: box 7 not found")
    run = course(Episode(events, "success", task=task))
    assert was_meant(run, 0) == expected


@cases(
    "words, expected",
    {
        "as it should": ("It fails, as it should.", True),
        "not as expected": ("That did not work as expected.", False),
        "after a part": ("It is 12:30; it broke as planned.", True),
    },
)
def test_the_agent_may_say_that_a_failure_was_wanted(words, expected):
    answer = Event("llm_response", words)
    run = course(Episode((*step("box", {"id": 7}, BROKEN), answer), "success"))
    assert was_meant(run, 0) == expected


@pytest.mark.parametrize("piece", ["; ", ": it ", ";\n", "not ", "as it "])
def test_whether_a_failure_was_wanted_takes_linear_time(piece):
    def read(text):
        answer = Event("llm_response", text)
        run = course(Episode((*step("box", {"id": 7}, BROKEN), answer), "success"))
        assert not was_meant(run, 0)

    assert_linear(read, piece, length=2_000, runs=3)
