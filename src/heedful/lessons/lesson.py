"""TODO"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from heedful.errors import InvalidInput

pass
from heedful.redact import redact


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose memory and loops: a tenant and one of its projects. Nothing crosses a scope."""

    tenant: str = "default"
    project: str = "default"

    def __post_init__(self) -> None:
        for name in ("tenant", "project"):
            value = getattr(self, name)
            if not value or len(value) > 200 or not value.isprintable():
                raise InvalidInput(name, value, "1 to 200 printable characters")
            if value != redact(value):
                raise InvalidInput(name, value, "a name without a secret: it is stored as it is")


@dataclass(frozen=True, slots=True)
class Remembered:
    """The answer of an upsert: the lesson's id, whether it is new, and how often it was seen.

    `seen` counts this very pattern; what a group of patterns comes to says `seen()`. All is 0 where
    a new lesson is not kept: memory is full of lessons that are worth more or pinned.
    """

    id: int
    created: bool
    seen: int


@dataclass(frozen=True, slots=True)
class Filter:
    """Which lessons a search may bring; a field that is left alone lets all through.

    `tags`: the lesson has any of them, or all with `match`. `importance` is the least, 0..1;
    `since` is the earliest time it was stored, in seconds since 1970. Raises InvalidInput.
    """

    tags: tuple[str, ...] = ()
    match: Literal["any", "all"] = "any"
    kind: str = ""
    error_type: str = ""
    importance: float = 0.0
    since: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.tags, str) or not all(isinstance(t, str) and t for t in self.tags):
            raise InvalidInput("tags", self.tags, "a sequence of tags, each a text")
        if self.match not in ("any", "all"):
            raise InvalidInput("match", self.match, "any or all")
        if self.kind not in ("", *KINDS):
            raise InvalidInput("kind", self.kind, f"one of {', '.join(KINDS)}")
        if not isinstance(self.error_type, str):
            raise InvalidInput("error_type", self.error_type, "the type of an error, a text")
        if not isinstance(self.importance, int | float) or not 0 <= self.importance <= 1:
            raise InvalidInput("importance", self.importance, "a number of 0 to 1")
        if not isinstance(self.since, int | float) or not 0 <= self.since < float("inf"):
            raise InvalidInput("since", self.since, "a time in seconds since 1970")


KINDS = ("check", "error", "example", "reflection", "strategy")
ANY = Filter()


@dataclass(frozen=True, slots=True)
class Match:
    """An example that a search brought, or a lesson without one: its text is then the task.

    How near it is: `cosine` of the vectors (-1..1, None where there are none), `keyword`, its BM25
    as a share of the best (0..1, None where full text did not find it), `coverage`, the share of
    the words looked for that it has, the rare ones weighing more (0..1), and `overlap`, the cosine
    of the two word sets (0..1, filled by `rank`). `seen` counts the sightings of its lesson, whose
    words are `lesson` and whose pattern has the digest `signature`; `at` is when the example was
    stored, in seconds since 1970; `useful` is the factor that the proof gives its rank.
    """

    id: int
    reflection: int
    example: Example
    kind: str
    verified: bool
    seen: int
    importance: float
    at: float
    cosine: float | None = None
    keyword: float | None = None
    coverage: float = 0.0
    overlap: float = 0.0
    error_type: str = ""
    lesson: str = ""
    tags: tuple[str, ...] = ()
    signature: str = ""
    useful: float = 1.0


@dataclass(frozen=True, slots=True)
class LessonFilter:
    """Which lessons to list; a field that is left alone lets all through.

    Those with an id below `before`, so that the last id of a page asks for the next.
    """

    kind: str = ""
    error_type: str = ""
    tag: str = ""
    state: str = ""
    before: int = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Change:
    """What a person changes of a lesson: None and False leave it as it is.

    `pinned` keeps it from eviction and pruning, `apart` its pattern from groups, `restored` brings
    it back where a proof retired it.
    """

    pinned: bool | None = None
    apart: bool | None = None
    restored: bool = False
