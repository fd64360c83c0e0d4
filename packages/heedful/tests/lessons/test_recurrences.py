"""What recurs: which failures count, as what they count, and what is cited of them."""

from collections.abc import Sequence
from typing import Any

from heedful.lessons import render
from heedful.lessons.dream_proposals import DreamLesson, Recurrence, find_recurrences
from heedful.lessons.links import LessonWords
from heedful.lessons.mistake import Call, Fix, Mistake
from tests.tables import cases

NOW = 1_000_000_000.0


def failure(call: str, cure: str = "") -> Mistake:
    """Return a call that failed, and the one that worked: a tool and its text."""
    fix = Fix(kind="command", calls=(_call(cure),)) if cure else None
    return Mistake(action=_call(call), error="it went wrong", fix=fix)


def _call(words: str) -> Call:
    tool, _, text = words.partition(" ")
    return Call(tool=tool, text=text)


def find(
    texts: Sequence[str | Mistake],
    runs: int = 1,
    runs_of: Sequence[str] = (),
    **fields: Any,
) -> list[Recurrence]:
    """Find what recurs in lessons of these texts, each seen in so many runs.

    `runs_of` names the run of each lesson instead.
    """
    lessons = {}
    words = []
    seen_in = {}
    for id, lesson in enumerate(texts, start=1):
        mistake = lesson if isinstance(lesson, Mistake) else None
        text = render.lesson(lesson) if isinstance(lesson, Mistake) else lesson
        values = {
            "kind": "reflection",
            "signature": f"{id:016x}",
            "state": "unverified",
            "trust": "local",
            "last_seen": NOW,
            **fields,
        }
        lessons[id] = DreamLesson(id=id, text=text, mistake=mistake, **values)
        lesson_words = LessonWords(id=id, text=text, mistake=mistake)
        words.append(lesson_words)
        seen_in[id] = [f"episode:{id}.{run}" for run in range(runs)]
        if runs_of:
            seen_in[id] = [runs_of[id - 1]]
    return find_recurrences(lessons, words, seen_in, NOW)


CURED = [failure(f"Bash git {verb}", f"Bash git {verb} -f") for verb in "abc"]


@cases(
    "texts, fields, things",
    {
        "the program, not its shell": (CURED, {}, ["tool git"]),
        "a tool that is no shell": (
            [failure(f"read {n}.txt", f"read {n}") for n in "abc"],
            {},
            ["tool read"],
        ),
        "what cures is not what fails": (
            [failure(f"Bash git {n}", f"Bash mise {n}") for n in "ab"]
            + [failure("Bash mise run", "Bash mise install")],
            {},
            [],
        ),
        "a strategy without a cure": (
            [failure(f"Bash make {n}") for n in "abc"],
            {"kind": "strategy"},
            [],
        ),
        "without a cure": ([failure(f"Bash git {n}") for n in "abc"], {}, []),
    },
)
def test_failures_with_one_thing_recur(texts, fields, things):
    recurrences = find(texts, **fields)
    patterns = [reflection.signature.pattern for reflection in recurrences]
    assert patterns == [f"recurring: {thing}" for thing in things]


def test_strategies_of_one_run_are_failures_of_their_own():
    texts = [failure(f"Bash make {n}", f"Bash mise {n}") for n in "abcd"]
    runs = ["x", "x", "x", "y"]
    recurrences = find(texts, kind="strategy", mended=True, runs_of=runs)
    [reflection] = recurrences
    assert reflection.why == "4 failures with the tool make in 2 runs"


def test_a_failure_is_not_cited_by_two_reflections_alone():
    calls = [failure(f"Bash git {n} | tail", f"Bash git {n} -q") for n in "abc"]
    [reflection] = find(calls)
    assert reflection.why == "3 failures with the tool git in 3 runs"
