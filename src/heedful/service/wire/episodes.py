"""Episodes, as they are sent."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from heedful.lessons.lesson import Remembered
from heedful.memory.reflect import Reflected
from heedful.service.wire.body import Body, Long, Name, Short, example, given, saying
from heedful.store.records import EpisodeState, StoredEpisode
from heedful.traces.episode import Ended

Whole = Annotated[int, Field(ge=0, le=10**15 - 1)]
Amount = Annotated[float, Field(ge=0, lt=1e15)]
Time = Annotated[str, Field(max_length=100, json_schema_extra={"format": "date-time"})]


class GivenEvent(BaseModel):
    """One thing that happened; `at` in seconds since 1970 or ISO 8601."""

    model_config: ClassVar[ConfigDict] = {**Body.model_config}

    type: Annotated[str, Field(min_length=1, max_length=200)]
    content: Long = ""
    agent: Short = ""
    tool: Short = ""
    arguments: dict[str, Any] | Long | None = None
    call: Short = ""
    error: Long = ""
    id: Short = ""
    code: Short = ""
    at: Annotated[float, Field(ge=0, lt=253_402_300_800)] | Time | None = None
    meta: dict[str, Any] = {}


class GivenFault(BaseModel):
    """The error that ended a run."""

    model_config: ClassVar[ConfigDict] = {**Body.model_config}

    category: Name
    message: Long = ""
    context: Long = ""


class GivenUsage(BaseModel):
    """What a run cost."""

    model_config: ClassVar[ConfigDict] = {**Body.model_config}

    calls: Whole = 0
    prompt_tokens: Whole = 0
    completion_tokens: Whole = 0
    cost: Amount = 0.0
    seconds: Amount = 0.0


class NewEpisode(Body):
    """A finished run of any agent; without an `outcome` it is what the last event says.

    Without a `task` that is what the user said first. An episode has at least one event or a fault.
    """

    model_config: ClassVar[ConfigDict] = saying(
        example(
            task="Where is order A-17?",
            outcome="failure",
            events=[
                {"type": "user_message", "content": "Where is order A-17?"},
                {
                    "type": "tool_call",
                    "tool": "find_order",
                    "arguments": {"id": "A17"},
                    "call": "c1",
                },
                {
                    "type": "tool_response",
                    "tool": "find_order",
                    "call": "c1",
                    "error": "no order A17",
                },
                {"type": "llm_response", "content": "There is no such order."},
            ],
        ),
        anyOf=[given("events", minItems=1), given("fault", type="object")],
    )

    events: Annotated[list[GivenEvent], Field(max_length=50_000)] = Field(default_factory=list)
    outcome: Ended | None = None
    task: Long | None = None
    goal: Long = ""
    fault: GivenFault | None = None
    id: Short = ""
    session: Short = ""
    tools: Annotated[list[Short], Field(max_length=1_000)] = Field(default_factory=list)
    usage: GivenUsage = GivenUsage()
    omitted: Whole = 0


class Written(BaseModel):
    """A lesson that was written: its id, 0 where memory is full, and how often it was seen."""

    id: int
    created: bool
    seen: int

    @classmethod
    def of(cls, one: Remembered) -> Written:
        """That answer of a store."""
        return cls(id=one.id, created=one.created, seen=one.seen)


class Taught(BaseModel):
    """What was learnt: the `text`, by whom it was worded, and the rule to follow next time."""

    text: str
    by: str
    strategy: str | None
    importance: float
    quarantined: bool
    known: int
    written: list[Written]

    @classmethod
    def of(cls, one: Reflected) -> Taught:
        """What came of reflecting."""
        rule = one.strategy.text if one.strategy else None
        return cls(
            text=one.text,
            by=one.by,
            strategy=rule,
            importance=one.reflection.importance,
            quarantined=one.quarantined,
            known=one.known,
            written=[Written.of(each) for each in one.stored],
        )


class Taken(BaseModel):
    """An episode that was taken; `taught` is what came of it, where it was waited for."""

    model_config: ClassVar[ConfigDict] = example(digest="0b5c" * 16, state="waiting", taught=None)

    digest: str
    state: EpisodeState
    taught: Taught | None = None


class ShownEpisode(BaseModel):
    """An episode, and what became of it; `error` says why reflecting on it failed."""

    model_config: ClassVar[ConfigDict] = example(
        digest="0b5c" * 16,
        name="run-17",
        session="",
        outcome="failure",
        state="reflected",
        tries=1,
        error="",
        at=1769860800.0,
    )

    digest: str
    name: str
    session: str
    outcome: str
    state: EpisodeState
    tries: int
    error: str
    at: float

    @classmethod
    def of(cls, one: StoredEpisode) -> ShownEpisode:
        """That episode."""
        return cls(**{name: getattr(one, name) for name in cls.model_fields})


class Episodes(BaseModel):
    """A page of episodes, the newest first."""

    items: list[ShownEpisode]
    next: str | None


GivenTrust = Literal["external", "operator"]
