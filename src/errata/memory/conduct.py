"""Signals in how agents go about it: invented data, ways round, unseen approval, answers. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from errata.memory.course import Course, read
from errata.memory.failures import told
from errata.memory.signal import Signal, shown, signal

_INVENTED = re.compile(
    r"\b(?:let(?:'|’)?s|we(?:'ll| will| can)?|I(?:'ll| will| can)?) (?:now )?(?:assume|suppose"
    r"|simulate|pretend)\b|\bassum(?:ing|ption of)\b|\b(?:hypothetical|placeholder|mock|dummy"
    r"|simulated|synthetic|made-up|fictional)\b|\b(?:sample|example) (?:data|dataset|values?)\b"
    r"|\bfor (?:demonstration|illustration)\b|\bYOUR_[A-Z_]{2,}",
    re.IGNORECASE,
)
_WORKAROUND = re.compile(
    r"\b(?:manual(?:ly)?|instead|alternative(?:ly)?|simulat\w+|assum\w+|skip(?:ping)?|fall ?back"
    r"|another (?:approach|way|method)|different (?:approach|way|method|source)|work ?around"
    r"|proceed without|without (?:access|the actual))\b",
    re.IGNORECASE,
)
_APPROVES = re.compile(
    r"\b(?:I|we|it|this|that|which|results?|answers?|solutions?|everything|calculations?)\b[^.\n]"
    r"{0,80}\b(?:confirm(?:s|ed)?|verified|validated|agree|correct|accurate|satisfied)\b",
    re.IGNORECASE,
)
_DONE = re.compile(
    r"\b(?:I|we)(?:'ve| have)? (?:\w+ly )?(?:located|reviewed|visited|accessed|checked|examined"
    r"|inspected|looked|searched|watched|listened|opened|downloaded|retrieved|gathered|found)\b"
    r"|\b(?:upon|after) (?:\w+ )?(?:visiting|reviewing|checking|inspecti\w+|verification)\b",
    re.IGNORECASE,
)


def conducted(course: Course) -> Iterator[Signal]:
    """What the agents' own words tell of how they went about it."""
    result: int | None = None  # the last one, and the last event of another agent
    before: int | None = None
    for at, role in enumerate(course.roles):
        if role == "result":
            result = at
        elif role in ("said", "act"):
            yield from _one(course, at, result, before)
            before = at
    yield from answered_from(course)


def _one(course: Course, at: int, result: int | None, before: int | None) -> Iterator[Signal]:
    text = read(course.events[at].content)
    fresh = result is not None and (before is None or result > before)
    proof = (result,) if result is not None and fresh else ()
    failure = course.failure[proof[0]] if proof else ""
    if made_up := _INVENTED.search(text):
        why = ", after a failure" if failure else ""
        words = f"goes on with what is not known to be so{why}: {shown(made_up[0])!r}"
        yield signal(course, "invented", at, (*proof, at), 0.9 if failure else 0.6, words)
    if failure and (other := _WORKAROUND.search(text)):
        words = f"goes another way ({shown(other[0])!r}) after {shown(told(failure))}"
        yield signal(course, "workaround", at, (*proof, at), 0.6, words)
    if course.roles[at] == "act" or fresh:
        return
    if claimed := _DONE.search(text):
        words = f"says {shown(claimed[0])!r}, and no call or result shows it"
        yield signal(course, "undone", at, (at,), 0.5, words)
    other_agent = before is not None and course.events[before].agent != course.events[at].agent
    if before is not None and other_agent and (approved := _APPROVES.search(text)):
        words = f"approves without a check of its own: {shown(approved[0])!r}"
        yield signal(course, "approved", at, (before, at), 0.4, words)


def answered_from(course: Course) -> Iterator[Signal]:
    """Where the values of the last word came up first: what the answer rests on."""
    last = course.answer()
    if last is None or course.outcome == "success":
        return
    origins = course.origins()
    held: dict[int, list[str]] = {}
    for value in sorted(course.values[last]):
        held.setdefault(origins[value], []).append(value)
    counts = Counter({at: len(found) for at, found in held.items()})
    for at in sorted(counts):
        said = ", ".join(map(shown, held[at][:3]))
        rest = f" and {counts[at] - 3} more" if counts[at] > 3 else ""
        words = f"the answer of the failed run rests on it: {said}{rest} came up first here"
        yield signal(course, "answer", at, (at, last), 1.0, words)
