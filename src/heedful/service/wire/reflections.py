"""Lessons, as they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from heedful.lessons.lesson import Example as Pair
from heedful.lessons.lesson import State, Trust
from heedful.service.wire.body import Body, Long, Name, Short, Tags, example, given, saying

Kind = Literal["check", "error", "example", "reflection", "strategy"]
Share = Annotated[float, Field(ge=0, le=1)]
ONE: dict[str, Any] = {
    "id": 7,
    "kind": "error",
    "signature": "3f0c9a1b2d4e5f60",
    "pattern": "Made unverified claim about: <quoted>",
    "error_type": "unverified_claim",
    "text": "Say where a number comes from.",
    "tags": ["reports"],
    "state": "candidate",
    "trust": "operator",
    "importance": 0.5,
    "useful": 1.0,
    "seen": 3,
    "helped": 1,
    "hurt": 0,
    "source": "key:3f0c9a1b2d4e",
    "pinned": False,
    "apart": False,
    "first_seen": 1769860800.0,
    "last_seen": 1769860900.0,
    "last_shown": 0.0,
    "meta": {},
    "edition": "9f2c4e5a6b7c8d90",
}


class GivenExample(BaseModel):
    """A task, the output that was rejected, what was wrong with it, and the one accepted."""

    model_config: ClassVar[ConfigDict] = {**Body.model_config}

    task: Annotated[str, Field(min_length=1, max_length=4_000)]
    accepted: Annotated[str, Field(max_length=4_000)] = ""
    rejected: Annotated[str, Field(max_length=4_000)] = ""
    wrong: Annotated[str, Field(max_length=4_000)] = ""

    def value(self, context: str) -> Pair:
        """As the library has it."""
        return Pair(self.task, self.accepted, self.rejected, self.wrong, context=context)


class NewReflection(Body):
    """An error that was seen, and what it teaches.

    Its trust is that of the key: of one that may approve an operator's, of any other a tool's, and
    then it waits in quarantine. `source` names where the text came from, so that it can be revoked;
    it is the key where nothing is said.
    """

    model_config: ClassVar[ConfigDict] = example(
        error_type="unverified_claim",
        text="Made unverified claim about: revenue grew by 12 %",
        lesson="Say where a number comes from.",
        tags=["reports"],
    )

    error_type: Name
    text: Annotated[str, Field(min_length=1, max_length=100_000)]
    lesson: Annotated[str, Field(max_length=4_000)] = ""
    example: GivenExample | None = None
    tags: Tags = Field(default_factory=list)
    importance: Share = 0.5
    source: Annotated[str, Field(max_length=500)] = ""
    context: Long = ""


class MadeReflection(BaseModel):
    """The lesson, whether it is new, and how often its pattern was seen.

    All is 0 where memory is full of lessons that are worth more.
    """

    model_config: ClassVar[ConfigDict] = example(id=7, created=True, seen=1)

    id: int
    created: bool
    seen: int


class ShownReflection(BaseModel):
    """A lesson. Of one that a tool or a document said the words are held back, here and elsewhere.

    `edition` is its entity tag. Times are in seconds since 1970.
    """

    model_config: ClassVar[ConfigDict] = example(**ONE)

    id: int
    kind: str
    signature: str
    pattern: str
    error_type: str
    text: str
    tags: list[str]
    state: State
    trust: Trust
    importance: float
    useful: float
    seen: int
    helped: int
    hurt: int
    source: str
    pinned: bool
    apart: bool
    first_seen: float
    last_seen: float
    last_shown: float
    meta: dict[str, Any]
    edition: str

    @classmethod
    def of(cls, one: Mapping[str, Any]) -> ShownReflection:
        """That lesson, as a store tells it."""
        return cls(**{name: one[name] for name in cls.model_fields})


class Reflections(BaseModel):
    """A page of lessons, the newest first."""

    items: list[ShownReflection]
    next: str | None


class EditReflection(Body):
    """What to change of a lesson, at least one of these; `why` goes on record.

    `pinned` keeps it from eviction and pruning, `apart` its pattern from groups; `restored` brings
    back one that a proof retired.
    """

    model_config: ClassVar[ConfigDict] = saying(
        example(pinned=True, why="the team relies on it"),
        anyOf=[given(name, type="boolean") for name in ("pinned", "apart", "restored")],
    )

    pinned: bool | None = None
    apart: bool | None = None
    restored: Literal[True] | None = None
    why: Short = ""

    @model_validator(mode="after")
    def _says_something(self) -> EditReflection:
        if (self.pinned, self.apart, self.restored) == (None, None, None):
            raise ValueError("give pinned, apart or restored")
        return self


class Question(Body):
    """An error, to be asked whether it is known."""

    model_config: ClassVar[ConfigDict] = example(
        error_type="unverified_claim", text="Made unverified claim about: costs fell by 3 %"
    )

    error_type: Name
    text: Annotated[str, Field(min_length=1, max_length=100_000)]


class KnownLesson(BaseModel):
    """A lesson of the pattern that was asked for, or of one that evidence has merged with it."""

    id: int
    kind: str
    signature: str
    error_type: str
    text: str
    tags: list[str]
    state: State
    trust: Trust
    seen: int


class Known(BaseModel):
    """How often the error was seen, and what it taught; `why` it counts as one with others.

    `signature` is that of the error, by which an outcome names it.
    """

    model_config: ClassVar[ConfigDict] = example(
        signature="3f0c9a1b2d4e5f60",
        count=3,
        lessons=[{name: ONE[name] for name in KnownLesson.model_fields}],
        why=[],
    )

    signature: str
    count: int
    lessons: list[KnownLesson]
    why: list[str]
