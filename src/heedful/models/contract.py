"""The protocols of models and embedders, their values, and an estimate of tokens."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict, runtime_checkable

from heedful.loop.record import Usage

Role = Literal["system", "user", "assistant"]
# Called with the name of the weights, the bytes done, the total bytes and the current
# step.
Progress = Callable[[str, int, int, str], None]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat.

    `source` names the origin of the text and is not sent to the model.
    """

    role: Role
    content: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer's text, its usage, and how it ended.

    `finish` is "length" if `max_tokens` cut it off.
    """

    text: str
    usage: Usage = Usage(calls=1)
    finish: Literal["stop", "length"] = "stop"


@dataclass(frozen=True, slots=True)
class UsageNames:
    """Where an SDK keeps the usage of an answer, and the names of its counts.

    The counts of a field are added.
    """

    path: str
    prompt: tuple[str, ...]
    completion: tuple[str, ...]


# The SDKs of OpenAI and LiteLLM, of Anthropic, and of Google.
_USAGE_NAMES = (
    UsageNames("usage", ("prompt_tokens",), ("completion_tokens",)),
    UsageNames(
        "usage",
        ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
        ("output_tokens",),
    ),
    UsageNames(
        "usage_metadata",
        ("prompt_token_count",),
        ("candidates_token_count", "thoughts_token_count"),
    ),
)
# Where their texts are, or the objects that the SDK has parsed; a list stands for its
# first item.
_ANSWER_TEXT_PATHS = (
    "choices.message.parsed",
    "choices.message.content",
    "output_parsed",
    "output_text",
    "parsed",
    "text",
)


def _part(value: Any, path: str) -> Any:
    """Return the end of a path of attributes or keys; None if it is missing."""
    for step in path.split("."):
        if isinstance(value, list):
            value = next(iter(value), None)
        if isinstance(value, Mapping):
            value = value.get(step)
        else:
            value = getattr(value, step, None)

    return value


def _sum_of(value: Any, names: Sequence[str]) -> int:
    return sum(_part(value, name) or 0 for name in names)


def usage_of(value: Any) -> Usage | None:
    """Return the usage in the answer of an SDK, or in its usage object.

    None is returned for other values.
    """
    if isinstance(value, Usage):
        return value

    for names in _USAGE_NAMES:
        for usage in (_part(value, names.path), value):
            if isinstance(_part(usage, names.prompt[0]), int):
                return Usage(
                    1,
                    _sum_of(usage, names.prompt),
                    completion_tokens=_sum_of(usage, names.completion),
                    cost=float(_part(usage, "cost") or 0),
                )

    return None


def answer_of(value: Any) -> Answer | None:
    """Return the answer of an SDK of OpenAI, LiteLLM, Anthropic or Google.

    It is read by its shape. Its text may be an object that the SDK has parsed. Returns
    None for another shape (JSON data).
    """
    if isinstance(value, Answer):
        return value
    if isinstance(value, str | Mapping):
        return None

    usage = usage_of(value)
    if usage is None:
        return None

    for path in _ANSWER_TEXT_PATHS:
        text = _part(value, path)
        if text is not None:
            return Answer(text, usage)

    blocks = _part(value, "content")
    if isinstance(blocks, list):  # Anthropic
        texts = [_part(block, "text") or "" for block in blocks]
        return Answer("".join(texts), usage)

    return None


class Options(TypedDict, total=False):
    """The options of `Model.complete`; `check_request` gives adapters its defaults."""

    schema: Mapping[str, Any] | None
    max_tokens: int
    temperature: float
    seed: int


@runtime_checkable
class Model(Protocol):
    """A chat model; the adapters are the modules of `heedful.models`."""

    @property
    def name(self) -> str:
        """The name of the model, for example `embedded` or `openai:gpt-5`."""

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, Any] | None = None,
        max_tokens: int = 512,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> Answer:
        """Answer the chat, in JSON if there is a `schema` (a JSON Schema).

        Raises ModelError.
        """

    async def close(self) -> None:
        """Release the model's resources; a second call does nothing."""


@runtime_checkable
class Embedder(Protocol):
    """An embedder converts texts to unit vectors of equal dimension."""

    @property
    def name(self) -> str:
        """The name of the vector space.

        Vectors of different spaces are never compared.
        """

    @property
    def dimensions(self) -> int:
        """The number of components of each vector."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector of Euclidean length 1 for each text, in order.

        Raises ModelError.
        """


# The estimate divided by the true count of the tokenizer of Qwen2.5, lowest to highest,
# for texts of 600 characters: English talk 1.04-1.25, Markdown 1.08-1.48, Python
# 1.10-1.58 (2.5 with lines of dashes), JSON 1.07-1.35, logs 1.00-1.54, Chinese
# 0.97-1.45, Japanese 1.05-1.63, Arabic 1.87-2.31, Russian 2.18-2.98, emoji 1.28-1.73,
# text with emoji 0.95-1.10, numbers 1.00. Less in Hindi (0.88), Georgian and Armenian
# (0.86), hexadecimal ids (0.87), lists of foreign names (0.7), random letters (0.3). A
# larger vocabulary (o200k) has fewer tokens in nearly all of these, more in emoji
# (0.74).
_TOKEN_ESTIMATE_PATTERN = re.compile(
    r"[A-Z]?[a-z]{1,6}|[A-Z]{1,3}"  # words; rare and long ones are made of several
    # a space goes with the word after it, but with no digit
    r"|[ ](?=\d)|[^\S\n]{2,}|\n+"
    r"|\S"  # a digit, a mark, a character outside ASCII
)


def tokens(text: str) -> int:
    """Estimate the number of tokens in `text`, without a tokenizer.

    For English the estimate is 15 % too high.

    >>> tokens("It weighs 12.5 kg."), tokens("重量是12.5公斤"), tokens("👍")
    (9, 9, 2)
    """
    count = len(_TOKEN_ESTIMATE_PATTERN.findall(text))
    if not text.isascii():
        count += sum(character > "\uffff" for character in text)  # as emoji have two
    return count
