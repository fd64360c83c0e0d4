"""The contracts that have several methods (Model, Embedder), and the values they exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from errata.errors import InvalidInput

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: Role
    content: str


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

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost + other.cost,
            self.seconds + other.seconds,
        )


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
    """A chat model. Adapters live in `errata.models`, one a file."""

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
    `previous` is the candidate before this one, None at the first. `data` is the task's own context,
    whatever the caller gave. `temperature` and `seed` are what a sampling generator should use now.
    `examples` are recalled worked examples as chat turns (user: task, assistant: accepted output).
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
