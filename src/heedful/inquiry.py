"""A model asked for JSON, twice at most."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from heedful.errors import InvalidInput, MalformedAnswer
from heedful.protocols import NOTHING, Message, Model, Usage
from heedful.telemetry import complete

WARMER = 0.5  # added to the temperature when asked again: at 0 a model repeats its answer
T = TypeVar("T")


async def asked(
    model: Model,
    messages: Callable[[str], list[Message]],
    read: Callable[[str], T],
    schema: Mapping[str, Any],
    *,
    who: str,
    max_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
) -> tuple[T, Usage]:
    """What `read` makes of the model's answer, and what it cost; asked once more where malformed.

    `messages` is given what was wrong with the last answer, `read` raises InvalidInput. Raises
    MalformedAnswer, ModelError.
    """
    usage, told, why, text = NOTHING, "", "", ""
    for again in (0, 1):
        try:
            answer = await complete(
                model,
                messages(told),
                schema=schema,
                max_tokens=max_tokens,
                temperature=temperature + again * WARMER,
                seed=seed + again,
            )
        except MalformedAnswer as error:  # what it cost is not told: it counts as one call
            why, text = str(error).rpartition("; it began: ")[0], error.answer
            usage, told = usage + Usage(1), "it was not the JSON object asked for"
            continue
        usage, text = usage + answer.usage, answer.text
        try:
            return read(text), usage
        except InvalidInput as error:
            # Without the value: what is shown may have had a hand in that.
            told, why = f"{error.field} must be {error.allowed}", str(error)
        if answer.finish == "length":
            why += f"; it was cut off by max_tokens ({max_tokens}): raise that"
    spent = f"asked {usage.calls} times, {usage.tokens} tokens"
    named = f"{who} of model {model.name!r}"
    raise MalformedAnswer(f"{named} gave no judgement ({spent}): {why}", text, usage)
