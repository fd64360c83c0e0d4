"""A signal: what a mistake leaves behind in an episode, and the events that prove it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from heedful.loop.feedback import clean
from heedful.memory.course import Course

Kind = Literal[
    "answer",
    "argument",
    "cause",
    "contradicted",
    "expectation",
    "invented",
    "repeated",
    "retry",
    "timeout",
    "unknown_tool",
    "unused",
]
# What is shown of a text, in characters, and how many events prove one signal.
SHOWN = 120
MOST_EVIDENCE = 20


@dataclass(frozen=True, slots=True)
class Signal:
    """What speaks for an event being where things went wrong; `str()` says it in words.

    `at` is the position of the decisive event among the events, from 0, `id` its id or ""; what
    proves it stands at `evidence`, the nearest 20 events at most, with `evidence_ids`. `strength`
    is 0..1: how sure the pattern is, not how bad the mistake was.
    """

    kind: Kind
    at: int
    evidence: tuple[int, ...]
    strength: float
    words: str
    id: str = ""
    evidence_ids: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"event {self.id or self.at}: {self.words}"


def signal(
    course: Course, kind: Kind, at: int, evidence: Sequence[int], strength: float, words: str
) -> Signal:
    """A signal with the ids of its events."""
    kept = tuple(evidence[:MOST_EVIDENCE])
    ids = tuple(course.events[one].id for one in kept)
    return Signal(kind, at, kept, strength, words, course.events[at].id, ids)


def shown(text: str) -> str:
    """What is shown of a text: one line, as data."""
    return clean(text, SHOWN)
