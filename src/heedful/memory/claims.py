"""Signals in what agents say against what came back: claims, expectations, unused results. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from heedful.lessons.words import words
from heedful.memory.course import Course, printed, read, text_of, values
from heedful.memory.failures import blamed
from heedful.memory.signal import Signal, shown, signal

MOST_CLAIMS = 40
# The content words of what a claim is about: with fewer, "total" of one thing is that of another.
SUBJECT = 2

_VALUE = r"(?P<value>\d[\d,]{0,24}(?:\.\d{1,12})?|[A-Z][\w'’-]{1,40}(?: [A-Z][\w'’-]{1,40}){0,5})"
_CLAIM = re.compile(
    r"[*\"'`]{0,3}(?: ?[:=] ?| (?:is|was|are|were|equals) (?:now |indeed |about |approximately )?)"
    r"[*\"'`$€£]{0,3}" + _VALUE
)
# What a claim is about stands before it, in the same sentence.
_ABOUT = re.compile(r"[\w'’ -]{1,80}\Z")
_EXPECTS = re.compile(
    r"\b(?:this|that|it|which|we|you|the \w+)(?: now)? (?:should|will)(?: now)?(?: \w+)?"
    r" (?:work|fix|run|pass|succeed|resolve|solve|return|exist|be (?:found|fixed|available|there))"
    r"|\bI expect\b|\b(?:is|are) (?:now )?(?:fixed|installed|available|ready|resolved)\b",
    re.IGNORECASE,
)
# A sentence that begins so asks, or makes sure, and expects nothing.
_OPEN = re.compile(
    r"\b(?:if|once|when|until|whether|ensure|make sure|check|please|assuming|could)\b",
    re.IGNORECASE,
)
_SHOULD = re.compile(r"\bshould (?:be|return|print|equal|give|show|output)[\s:*`\"']{1,5}" + _VALUE)
_TELLING = re.compile(r"[^\W\d_][\w-]{4,40}|\d[\d,.]{1,23}\d")


def claimed(course: Course) -> Iterator[Signal]:
    """What the results of an episode say of what its agents said."""
    yield from _contradicted(course)
    yield from _expected(course)
    yield from _unused(course)


def _claims(text: str) -> Iterator[tuple[str, str, str]]:
    """What a text says of a thing: its subject in content words, the value, and the words."""
    for match in islice(_CLAIM.finditer(text), MOST_CLAIMS):
        before = _ABOUT.search(text[max(0, match.start() - 80) : match.start()])
        about = words(before[0].replace("_", " "))[-3:] if before else []
        if before and len(about) >= SUBJECT:
            yield " ".join(about), match["value"].replace(",", ""), (before[0] + match[0]).strip()


def _contradicted(course: Course) -> Iterator[Signal]:
    """A claim whose subject a later result gives one other value of its kind.

    What a result had said before is no claim of the agent's: then the world has changed. A result
    with several values for a subject speaks of several things.
    """
    made: dict[str, tuple[int, str, str]] = {}
    known: set[tuple[str, str]] = set()
    for at, role in enumerate(course.roles):
        event = course.events[at]
        if role == "result":
            found: dict[str, set[str]] = {}
            for about, value, _ in _claims(read(text_of(event))):
                found.setdefault(about, set()).add(value)
                known.add((about, value))
            for about, others in found.items():
                when, value, said = made.get(about, (at, "", ""))
                other = min(others)
                if value and len(others) == 1 and _differ(value, other):
                    del made[about]
                    what = f"says {shown(said)!r}; a later result has {shown(other)}"
                    yield signal(course, "contradicted", when, (when, at), 0.8, what)
        elif role != "given" and event.type != "tool_call":
            for about, value, said in _claims(read(event.content)):
                if (about, value) not in known:
                    made.setdefault(about, (at, value, said))


def _differ(one: str, other: str) -> bool:
    """Whether two values of one kind, numbers or names, are different."""
    return one != other and one[0].isdigit() == other[0].isdigit()


def _expected(course: Course) -> Iterator[Signal]:
    """What an agent expects of a step, where the result that follows is a failure or another."""
    for at, role in enumerate(course.roles):
        answer = _next_result(course, at)
        if role not in ("said", "act") or answer is None:
            continue
        text = read(course.events[at].content)
        if course.failure[answer]:
            said = _expectation(text)
            what = f"expects {shown(said)!r}; the result is a failure"
        else:
            should = _SHOULD.search(text)
            said = should[0] if should and _differs(should["value"], course, answer) else ""
            what = f"says {shown(said)!r}; the result does not hold it"
        if said:
            yield signal(course, "expectation", at, (at, answer), 0.7, what)


def _expectation(text: str) -> str:
    """The first words that expect something, "" where none do."""
    for match in _EXPECTS.finditer(text):
        begin = max(text.rfind(mark, 0, match.start()) for mark in ".!?\n")
        if not _OPEN.search(text, begin + 1, match.start()):
            return match[0]
    return ""


def _next_result(course: Course, at: int) -> int | None:
    """The result of an act, or that of the act that follows what was said."""
    if course.roles[at] == "said" and at + 1 < len(course.roles):
        at += 1
    return course.result[at] if course.roles[at] == "act" else None


def _differs(value: str, course: Course, answer: int) -> bool:
    text = read(text_of(course.events[answer])).replace(",", "")
    return bool(values(text)) and value.replace(",", "") not in text


def _unused(course: Course) -> Iterator[Signal]:
    """Results of which nothing that the agents say later speaks."""
    last: dict[str, int] = {}
    end = -1
    for at, role in enumerate(course.roles):
        if role in ("said", "act"):
            end = at
            last.update(dict.fromkeys(_telling(course, at), at))
    before: set[str] = set()
    for at, role in enumerate(course.roles):
        telling = _telling(course, at)
        if role == "result" and at < end and not course.failure[at]:
            new = {one for one in telling if one not in before}
            if new and all(last.get(one, -1) <= at for one in new):
                content = printed(read(course.events[at].content))
                what = f"nothing later speaks of this result: {shown(content)}"
                yield signal(course, "unused", blamed(course, at), (at,), 0.3, what)
        before.update(telling)


def _telling(course: Course, at: int) -> list[str]:
    """The words and numbers that tell what an event is about: 1,200.0 is 1200."""
    found = _TELLING.findall(read(text_of(course.events[at])).lower())
    return [one.replace(",", "").removesuffix(".0") for one in found]
