"""Signals in what agents bring in themselves: invented data, and what the answer rests on. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from heedful.memory.course import Course, read
from heedful.memory.signal import Signal, shown, signal

_INVENTED = re.compile(
    r"\b(?:let(?:'|’)?s|we(?:'ll| will| can)?|I(?:'ll| will| can)?) (?:now )?(?:assume|suppose"
    r"|simulate|pretend)\b|\bassum(?:ing|ption of)\b|\b(?:hypothetical|placeholder|mock|dummy"
    r"|simulated|synthetic|made-up|fictional)\b|\b(?:sample|example) (?:data|dataset|values?)\b"
    r"|\bfor (?:demonstration|illustration)\b|\bYOUR_[A-Z_]{2,}",
    re.IGNORECASE,
)
# How many values are shown of those that an answer rests on.
MOST_SHOWN = 3


def brought(course: Course) -> Iterator[Signal]:
    """What agents went on with that nothing outside had told them, and what they answered with."""
    for at, role in enumerate(course.roles):
        if role in ("said", "act") and (found := _INVENTED.search(read(course.events[at].content))):
            words = f"goes on with what is not known to be so: {shown(found[0])!r}"
            yield signal(course, "invented", at, (at,), 0.6, words)
    yield from _answer(course)


def _answer(course: Course) -> Iterator[Signal]:
    """Where the values of the last word came up first, in a run that did not succeed.

    What ended by an error or out of time was not answered.
    """
    last = course.answer
    if last is None or course.outcome not in ("failure", "partial"):
        return
    run = "run" if course.outcome == "partial" else "failed run"
    origins = course.origins()
    held: dict[int, list[str]] = {}
    for value in sorted(course.values[last]):
        held.setdefault(origins[value], []).append(value)
    for at, values in sorted(held.items()):
        said = ", ".join(map(shown, values[:MOST_SHOWN]))
        rest = f" and {len(values) - MOST_SHOWN} more" if len(values) > MOST_SHOWN else ""
        words = f"the answer of the {run} rests on it: {said}{rest} came up first here"
        yield signal(course, "answer", at, (at, last), 1.0, words)
