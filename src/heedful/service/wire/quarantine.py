"""The quarantine and dreams, as they are sent."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from heedful.lessons.lesson import State, Trust
from heedful.lessons.trust import QuarantinedLesson, RevocationResult
from heedful.memory.dream import Dream
from heedful.service.wire.body import Body, Short, example

HELD: dict[str, Any] = {
    "id": 12,
    "kind": "error",
    "error_type": "timeout",
    "signature": "3f0c9a1b2d4e5f60",
    "pattern": "no answer after <number> s",
    "lesson": "Ask for less at a time.",
    "example": None,
    "state": "quarantined",
    "trust": "tool",
    "source": "key:3f0c9a1b2d4e",
    "tags": [],
    "importance": 0.5,
    "seen": 1,
    "at": 1769860800.0,
    "score": 0.1,
    "why": [],
}


class ShownHeld(BaseModel):
    """An entry: what was to be learnt, from whom; the words of a stranger, to be read as such.

    `score` (0..1, the worse the higher) and `why` are what the screen says; they decide nothing.
    """

    model_config: ClassVar[ConfigDict] = example(**HELD)

    id: int
    kind: str
    error_type: str
    signature: str
    pattern: str
    lesson: str
    example: dict[str, Any] | None
    state: State
    trust: Trust
    source: str
    tags: list[str]
    importance: float
    seen: int
    at: float
    score: float
    why: list[str]

    @classmethod
    def of(cls, one: QuarantinedLesson) -> ShownHeld:
        """That entry."""
        plain = asdict(one)
        del plain["provenance"]
        return cls(**plain)


class Waiting(BaseModel):
    """What waits, the worst by the screen first, then the newest."""

    items: list[ShownHeld]
    next: str | None


class ShownSighting(BaseModel):
    """One time that the error was seen."""

    text: str
    source: str
    trust: Trust
    loop: str
    at: float


class ShownRuling(BaseModel):
    """What was done, by whom and why."""

    model_config: ClassVar[ConfigDict] = example(
        action="release",
        subject="error/3f0c9a1b2d4e5f60",
        by="ada (77aa01c2d3e4)",
        why="read and found right",
        record={"example": 12},
        at=1769860800.0,
    )

    action: str
    subject: str
    by: str
    why: str
    record: dict[str, Any]
    at: float


class Came(BaseModel):
    """Where an entry comes from: the sources it rests on, and ids of what lies before and after."""

    sources: list[str]
    parents: list[int]
    children: list[int]
    sightings: list[ShownSighting]
    rulings: list[ShownRuling]


class ShownWhole(ShownHeld):
    """An entry, waiting or not, and where it comes from."""

    model_config: ClassVar[ConfigDict] = example(
        **HELD,
        provenance={"sources": ["key:3f0c9a1b2d4e"], "parents": [], "children": []}
        | {"sightings": [], "rulings": []},
    )

    provenance: Came

    @classmethod
    def of(cls, one: QuarantinedLesson) -> ShownWhole:
        """That entry."""
        return cls(**asdict(one))


class Ruled(BaseModel):
    """What was done with which entry."""

    model_config: ClassVar[ConfigDict] = example(
        id=12, state="candidate", by="ada (77aa01c2d3e4)", why="it is right"
    )

    id: int
    state: State
    by: str
    why: str


class Revocation(Body):
    """A source that nothing is to rest on any more; with `dry_run` it is only counted."""

    model_config: ClassVar[ConfigDict] = example(
        source="episode:0b5c0b5c0b5c0b5c", why="a page that was defaced"
    )

    source: Annotated[str, Field(min_length=1, max_length=500)]
    why: Short = ""
    dry_run: bool = False


class Revoked(BaseModel):
    """What was removed, or would be: rows of each, and lessons that nothing is left of."""

    model_config: ClassVar[ConfigDict] = example(
        source="episode:0b5c0b5c0b5c0b5c",
        revoked=True,
        examples=2,
        lessons=1,
        sightings=2,
        vectors=0,
    )

    source: str
    revoked: bool
    examples: int
    lessons: int
    sightings: int
    vectors: int

    @classmethod
    def of(cls, source: str, revoked: bool, one: RevocationResult) -> Revoked:
        """That count."""
        return cls(source=source, revoked=revoked, **asdict(one))


class Rulings(BaseModel):
    """What was ruled, the newest first."""

    items: list[ShownRuling]


class NewDream(Body):
    """How to consolidate: "lite" looks at all lessons, "full" at those of the last 24 hours."""

    model_config: ClassVar[ConfigDict] = example(mode="lite", dry_run=True)

    mode: Literal["lite", "full"] = "lite"
    dry_run: bool = False


class ShownProposal(BaseModel):
    """What was to become of the `members`, and what did: lessons by their ids."""

    action: str
    members: list[int]
    survivor: int
    text: str
    why: str
    outcome: str


class ShownDream(BaseModel):
    """A consolidation: what it proposed and did, or why `nothing` happened; 0: a dry run."""

    model_config: ClassVar[ConfigDict] = example(
        id=3,
        mode="lite",
        by="ada (77aa01c2d3e4)",
        at=1769860800.0,
        undone=None,
        before=12,
        after=12,
        queries=0,
        proposals=[],
        nothing="no two lessons say the same",
        vetoes={},
    )

    id: int
    mode: str
    by: str
    at: float
    undone: float | None
    before: int
    after: int
    queries: int
    proposals: list[ShownProposal]
    nothing: str
    vetoes: dict[str, int]

    @classmethod
    def of(cls, one: Dream) -> ShownDream:
        """That dream."""
        same = ("id", "mode", "by", "at", "undone", "before", "after", "queries", "nothing")
        names = ShownProposal.model_fields
        told = [ShownProposal(**{n: getattr(p, n) for n in names}) for p in one.proposals]
        plain = {name: getattr(one, name) for name in same}
        return cls(**plain, proposals=told, vetoes=dict(one.vetoes))


class Dreamt(BaseModel):
    """Dreams, the newest first."""

    items: list[ShownDream]
    next: str | None


class RolledBack(BaseModel):
    """How many lessons are back."""

    model_config: ClassVar[ConfigDict] = example(id=3, lessons=2)

    id: int
    lessons: int
