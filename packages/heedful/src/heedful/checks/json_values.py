"""Read the JSON in a text that a model wrote, wherever it stands.

Models write JSON after their thoughts, in a fence, in a sentence. `read_json` finds all
complete JSON values in one pass over the text, and takes the last one that fits. A
value inside a broken object or list is a part of it, not an answer. An object or list
that the end of the text cuts off is told apart from a broken one. `ask_for_json` asks a
model for an object, at most twice; it also takes the object out of a list or another
object, and reads one with a line break in a text or a comma too many.
"""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from string import ascii_letters, digits
from typing import Any, NamedTuple, TypeVar

from heedful.errors import InvalidInput, MalformedAnswer, ModelError
from heedful.loop.record import NO_USAGE, Usage
from heedful.models.call import RETRY_TEMPERATURE_STEP, complete
from heedful.models.contract import Message, Model, is_capable
from heedful.validation import Document, Fields

T = TypeVar("T")

# A text, which the end may cut off, or a bracket.
_JSON_TOKEN_PATTERN = re.compile(
    r'"(?>[^"\\\x00-\x1f]*(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*)*)["\\]?|[][{}]'
)
_SCALAR = r"-?(?!0\d)\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null"
# What may begin JSON in a sentence: a bracket, a quotation, or a word that is not a
# part of a number such as 12,500 or of a date.
_START_PATTERN = re.compile(
    r'\[|\{(?!\s*[^"}\s])|"[^"\\\x00-\x1f]*"'
    rf"|(?<!\w)(?<!\d[.,:/-])(?:{_SCALAR})(?!\w)(?![.,:/-]\d)"
)
_VALUE_DECODER = json.JSONDecoder()
# A text, or a comma before the end of an object or list.
_LOOSE_JSON_PATTERN = re.compile(
    r'"(?>[^"\\]*(?:\\.[^"\\]*)*)["\\]?|,(?=\s*[]}])', re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value, and its own text."""

    value: Any
    text: str


class Reading(NamedTuple):
    """What was read from a text: a JSON value, or why there is none.

    `around` is the text before and after the value. Without a value, `is_cut` says
    whether the end of the text cut it off, and `error` what is wrong with the text.
    """

    json: Json | None = None
    around: str = ""
    is_cut: bool = False
    error: ValueError | None = None


def read_json(text: str, fits: Callable[[Json], object]) -> Reading:
    """Return the last JSON value in a text that fits, or else the last object or list.

    A text that is JSON as a whole is that value, whether it fits or not. Raises
    RecursionError for a value that is nested too deep.
    """
    try:
        return Reading(Json(json.loads(text), text))
    except ValueError as error:
        whole_error = error

    # What a model thinks is not its answer, and a fence may end after a cut.
    answer = text.rpartition("</think>")[2]
    answer = answer.rstrip().removesuffix("```").rstrip()
    places = _find_places(answer)
    if places.is_cut or answer.lstrip().startswith("<think>"):
        return Reading(is_cut=True)

    refused = Reading(error=whole_error)
    for place in reversed(places.values):
        if place.start < places.broken:
            break
        value_text = answer[place]
        try:
            value = Json(json.loads(value_text), value_text)
        except ValueError as error:
            if refused.json is None:
                refused = Reading(error=error)
            continue

        if fits(value):
            return Reading(value, _text_around(answer, place))
        if refused.json is None and isinstance(value.value, dict | list):
            refused = Reading(value, _text_around(answer, place))

    if refused.json is None and places.broken >= 0:
        return Reading(error=_error_in(answer[places.broken :]))
    return refused


async def ask_for_json(
    model: Model,
    rules: str,
    parts: Sequence[str],
    read: Callable[[Document], T],
    schema: Fields,
    *,
    who: str,
    max_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
) -> tuple[T, Usage]:
    """Ask for a JSON object, at most twice; return `read(object)` and the usage.

    The usage is that of all calls. Only a small model is held to `max_tokens`. The
    system message is `rules`. The user message consists of `parts`; the last part is
    the instruction. `read` raises InvalidInput to refuse an answer. `who` names the
    asker in errors. Raises MalformedAnswer, ModelError.
    """
    # A model that thinks before it answers needs more than its answer has.
    limit = None if is_capable(model) else max_tokens
    usage = NO_USAGE
    complaint = ""
    reason = ""
    text = ""

    for number in range(2):
        turn_parts = list(parts)
        if number > 0:
            correction = f"Your last answer could not be used: {complaint}. Be brief."
            turn_parts.insert(-1, correction)

        messages = [
            Message("system", rules),
            Message("user", "\n\n".join(turn_parts)),
        ]

        try:
            answer = await complete(
                model,
                messages,
                schema=schema,
                max_tokens=limit,
                temperature=temperature + number * RETRY_TEMPERATURE_STEP,
                seed=seed + number,
            )
        except MalformedAnswer as error:
            # If the cost is unknown, it counts as one call.
            usage = usage + (error.usage or Usage(1))
            complaint = "it was not the JSON object asked for"
            reason = error.what
            text = error.answer
            continue
        except ModelError as error:
            error.usage = usage + Usage(1)
            raise

        usage = usage + answer.usage
        text = answer.text
        try:
            return _read_object(text, read), usage
        except InvalidInput as error:
            # The complaint leaves out the value, because the candidate may have
            # dictated it.
            complaint = f"{error.field} must be {error.allowed}"
            reason = str(error)

        if answer.finish == "length":
            reason += "; it was cut off"

    cost = f"asked {usage.calls} times, {usage.tokens} tokens"
    message = f"{who} of model {model.name!r} gave no judgement ({cost}): {reason}"
    raise MalformedAnswer(message, text, usage)


def _read_object(text: str, read: Callable[[Document], T]) -> T:
    """Return `read(object)` for the JSON object in an answer. Raises InvalidInput."""

    def fits(answer: Json) -> bool:
        """Return whether `read` takes a value."""
        with suppress(InvalidInput):
            _read_nested(answer.value, read)
            return True
        return False

    is_cut = False
    refusal: InvalidInput | None = None
    with suppress(RecursionError):
        for form in (text, _strict_json(text)):
            reading = read_json(form, fits)
            is_cut = is_cut or reading.is_cut
            if reading.json is None:
                continue
            try:
                return _read_nested(reading.json.value, read)
            except InvalidInput as error:
                refusal = refusal or error

    if refusal is not None:
        raise refusal
    allowed = "one JSON object and nothing else"
    if is_cut:
        allowed = "complete JSON, and shorter: it breaks off"
    raise InvalidInput("the answer", text, allowed)


def _read_nested(value: Any, read: Callable[[Document], T]) -> T:
    """Return `read(object)` for an object, or for the only one inside of the value.

    Raises InvalidInput, about the outermost object.
    """
    if isinstance(value, dict):
        try:
            return read(value)
        except InvalidInput as error:
            refusal = error
        members = list(value.values())
    else:
        refusal = InvalidInput("the answer", value, "one JSON object and nothing else")
        members = value if isinstance(value, list) else []

    nested = [member for member in members if isinstance(member, dict | list)]
    if len(nested) != 1:
        raise refusal
    try:
        return _read_nested(nested[0], read)
    except InvalidInput:
        raise refusal from None


def _strict_json(text: str) -> str:
    """Return the JSON in an answer without what `json` refuses and models write.

    That is a line break or a tab in a text, and a comma before the end of an object or
    list.
    """
    answer = text.rpartition("</think>")[2]
    start = _START_PATTERN.search(answer)
    if start is None:
        return answer
    return _LOOSE_JSON_PATTERN.sub(_strict_token, answer[start.start() :])


def _strict_token(token: re.Match[str]) -> str:
    """Return a text with its line breaks and tabs escaped, and nothing for a comma."""
    if token[0] == ",":
        return ""
    return token[0].replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def _text_around(text: str, place: slice) -> str:
    """Return what stands before and after a place in a text."""
    return f"{text[: place.start].strip()} … {text[place.stop :].strip()}".strip()


def _error_in(text: str) -> ValueError | None:
    """Return what is wrong with a text that is not JSON."""
    try:
        json.loads(text)
    except ValueError as error:
        return error
    return None


@dataclass(slots=True)
class _Places:
    """The places of complete values in a text, in order.

    `broken` is where the last broken object begins, -1 without any.
    """

    values: list[slice] = field(default_factory=list)
    broken: int = -1
    is_cut: bool = False


def _find_places(text: str) -> _Places:
    """Return the places of the complete JSON values in a text, in linear time."""
    places = _Places()
    last_word = len(text.rstrip(f"{ascii_letters}{digits}+-.\\"))
    skips_broken = True
    position = 0

    while start := _START_PATTERN.search(text, position):
        begin = start.start()
        position = start.end()
        if start[0] not in "{[":
            places.values.append(slice(begin, position))
            if start[0].startswith('"'):
                position = begin + 1
            continue

        try:
            _, position = _VALUE_DECODER.raw_decode(text, begin)
            places.values.append(slice(begin, position))
            continue
        except RecursionError:
            if _find_closing(text, begin) is not None:
                raise
            places.is_cut = True
            break
        except json.JSONDecodeError as error:
            if _is_cut(text, error, last_word):
                places.is_cut = True
                break
            position = max(position, error.pos)

        if "{" in text[begin:position]:
            places.broken = begin
        # A bracket before prose is prose, and so is one that nothing closes.
        if skips_broken and text[begin + 1 : position].strip():
            end = _find_closing(text, begin)
            skips_broken = end is not None
            position = end or position

    return places


def _is_cut(text: str, error: json.JSONDecodeError, last_word: int) -> bool:
    """Return whether broken JSON ends in a text or a word that may go on.

    The `last_word` of the text begins there.
    """
    is_text = error.msg.startswith("Unterminated string")
    # Where a comma is missing, only a number goes on: "1." but not "1 2".
    goes_on = not error.msg.endswith("delimiter") or text[error.pos - 1].isdigit()
    is_word = error.pos >= last_word and (goes_on or error.pos == len(text))
    return is_text or is_word


def _find_closing(text: str, position: int) -> int | None:
    """Return where the bracket at a position is closed, None if nothing closes it."""
    depth = 0
    for token in _JSON_TOKEN_PATTERN.finditer(text, position):
        if token[0] in "{[":
            depth += 1
        elif token[0] in "}]":
            depth -= 1
        if not depth:
            return token.end()
    return None
