"""The contracts with several methods (Model, Embedder, Store), and the values they exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from heedful.errors import InvalidInput
from heedful.lessons import Lessons
from heedful.redact import redacted

if TYPE_CHECKING:
    from heedful.decisions import Decision, Known, Standing
    from heedful.loop.decide import Verdict
    from heedful.loop.record import Attempt, Loop, Override
    from heedful.memory.learn import Example, Reflection
    from heedful.memory.proof import Exposure, Outcome

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat; `source` says where its text comes from, and no model is told."""

    role: Role
    content: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """What something cost; every field is ≥ 0 and they add up with `+`.

    `seconds` is wall time spent waiting for the work, `cost` is in the provider's currency.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if not (
            self.calls >= 0
            and self.prompt_tokens >= 0
            and self.completion_tokens >= 0
            and 0 <= self.cost < float("inf")
            and 0 <= self.seconds < float("inf")
        ):
            raise InvalidInput("usage", self, "made of finite numbers of at least 0")

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    def lasting(self, seconds: float) -> Usage:
        """The same with other wall time, in seconds."""
        return Usage(self.calls, self.prompt_tokens, self.completion_tokens, self.cost, seconds)

    def __add__(self, other: Usage) -> Usage:
        if other is NOTHING:
            return self
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost + other.cost,
            self.seconds + other.seconds,
        )


NOTHING = Usage()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered: its text, what it cost, and why it ended.

    `finish` is `"stop"` where the model ended by itself and `"length"` where `max_tokens` cut it.
    """

    text: str
    usage: Usage = field(default_factory=lambda: Usage(calls=1))
    finish: Literal["stop", "length"] = "stop"


@runtime_checkable
class Model(Protocol):
    """A chat model. Adapters live in `heedful.models`, one a file."""

    @property
    def name(self) -> str:
        """The name as a user would write it, for example `embedded` or `openai:gpt-5`."""
        ...

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, Any] | None = None,
        max_tokens: int = 512,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> Answer:
        """Answer the chat; with `schema` (JSON Schema) the text is JSON that was asked to fit it.

        Raises ModelError and its kinds; never returns an error as text.
        """
        ...

    async def close(self) -> None:
        """Release what the model holds; calling it twice is harmless."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into unit vectors of one length."""

    @property
    def name(self) -> str:
        """Names the vectors' space: vectors of two names are never compared."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of every vector."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One vector of Euclidean length 1 a text, in order. Raises ModelError."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """Where a candidate stands: what a check, an evaluator or a generator may want to know.

    `attempt` counts from 1. `hint` is the feedback on the attempt before, "" at the first.
    `previous` is the candidate before this one, None at the first. `data` is the task's own
    context, whatever the caller gave. `temperature` and `seed` are what a sampling generator should
    use now. `examples` are recalled worked examples as chat turns (user: task, assistant: accepted
    output), `advice` recalled lessons without an output. `began` is when the loop did, in seconds
    since 1970.
    """

    task: Any
    attempt: int = 1
    loop_id: str = ""
    hint: str = ""
    previous: Any = None
    data: Any = None
    temperature: float = 0.0
    seed: int = 0
    examples: tuple[Message, ...] = ()
    advice: tuple[Found, ...] = ()
    began: float = 0.0


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
            if value != redacted(value):
                raise InvalidInput(name, value, "a name without a secret: it is stored as it is")


@dataclass(frozen=True, slots=True)
class Head:
    """What is stored when a loop begins: its task, and its goals and policy as plain data.

    `context` is what its checks find as `Context.data` where whoever drives it gives nothing else.
    """

    task: Any
    goals: Sequence[Mapping[str, Any]] = ()
    policy: Mapping[str, Any] = field(default_factory=dict)
    context: Any = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A loop as the store holds it.

    `values` are the candidates of its attempts, in order; `decisions` all of them, oldest first;
    `journal` holds the finished steps of the attempt that is not recorded yet, by key. `epoch`
    fences: it grows with every process that takes the loop over. Times are seconds since 1970.
    """

    id: str
    head: Head
    loop: Loop
    values: tuple[Any, ...]
    decisions: tuple[Decision, ...]
    journal: Mapping[str, Any]
    epoch: int
    created: float
    updated: float

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """All verdicts, oldest first."""
        return tuple(decision.verdict for decision in self.decisions)


@dataclass(frozen=True, slots=True)
class Entry:
    """What one transaction adds to a loop.

    `head` is given for a loop that may not be stored yet. A `verdict` that lifts rules consumes
    their overrides; `standing` is how worn the loop was then, `decided` when that was
    (seconds since 1970; 0: just now). `seen` is the `updated` of the loop that it rests on, where
    nobody drives it. `reflections`, `exposures` and `outcome`
    belong to memory, which keeps `most` lessons (0: all).
    """

    id: str
    epoch: int
    head: Head | None = None
    step: tuple[str, Any] | None = None
    attempt: Attempt | None = None
    value: Any = None
    verdict: Verdict | None = None
    standing: Standing | None = None
    decided: float = 0.0
    seen: float = 0.0
    extra: Usage | None = None
    cancelled: str = ""
    override: Override | None = None
    reflections: Sequence[Reflection] = ()
    exposures: Sequence[Exposure] = ()
    outcome: Outcome | None = None
    most: int = 0


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
class Past:
    """What a store knows of the exposures of one loop.

    `ended` is how many loops with exposures have come to an outcome in the scope, `number` the
    how-many-th of them this loop was, 0 where it has none. `taught`: what it teaches was written by
    `remember`, without its journal.
    """

    exposures: tuple[Exposure, ...] = ()
    ended: int = 0
    number: int = 0
    taught: bool = False


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
class Found:
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


@runtime_checkable
class Store(Lessons, Protocol):
    """Where loops and lessons are kept. Every method is one transaction; all raise StoreError."""

    @property
    def url(self) -> str:
        """The name under which a user opened it."""
        ...

    async def begin(self, scope: Scope, id: str, head: Head) -> tuple[Stored, bool]:
        """The loop, created where it is new, and whether it is; nobody drives it.

        Raises Conflict where it has another task, context, goals or policy.
        """
        ...

    async def known(self, scope: Scope, id: str, window: int) -> Known:
        """The loop for whoever decides it without driving it; echoes as of `echoes`.

        Raises NotFound.
        """
        ...

    async def claim(self, scope: Scope, id: str, head: Head, owner: str) -> Stored:
        """Take the loop over, creating it where it is new. Raises LeaseLost, Conflict."""
        ...

    async def beat(self, scope: Scope, id: str, epoch: int) -> None:
        """Renew the lease. Raises LeaseLost."""
        ...

    async def commit(self, scope: Scope, entry: Entry, owner: str) -> None:
        """Write all of `entry` or nothing. Raises LeaseLost, Conflict.

        With the `owner` "" nobody drives the loop: nothing is written where it is not as it was
        `seen`, and its epoch moves on, so that of all who have read the same state one writes.
        """
        ...

    async def read(self, scope: Scope, id: str) -> Stored:
        """The loop as it stands. Raises NotFound."""
        ...

    async def loops(
        self, scope: Scope, limit: int, prefix: str = "", before: str = ""
    ) -> Sequence[Stored]:
        """The newest loops whose id begins with `prefix`, newest first; or those `before` a loop.

        It is named by its id; where there is none, nothing comes before it.
        """
        ...

    async def echoes(self, scope: Scope, id: str, window: int) -> Mapping[str, int]:
        """In how many attempts of the `window` newest other loops each finding key was seen."""
        ...

    async def close(self) -> None:
        """Release what the store holds; calling it twice is harmless."""
        ...
