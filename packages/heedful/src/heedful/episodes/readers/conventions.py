"""What the conventions for spans of agents call the parts of a step. Pure.

The names are in the table beside this module, `conventions.toml`.

Sources: open-telemetry/semantic-conventions (GenAI), Arize-ai/openinference (its
spec/semantic_conventions.md), traceloop/openllmetry, vercel/ai, mlflow/mlflow,
langfuse/langfuse-python, langchain-ai/langsmith-sdk, pydantic/pydantic-ai (Logfire).
"""

import json
import tomllib
from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import Any, Literal

from heedful.episodes.episode import Limits, Origin, is_deep, json_data
from heedful.episodes.messages import text_of
from heedful.episodes.readers.dialects import as_chat_message
from heedful.validation import MAX_DATA_DEPTH, Document, Fields

Attributes = Fields
Kind = Literal["model", "tool", "around", ""]
# Around what a function was given or returned, the first that is not empty counts.
_WRAPPER_NAMES = ("inputs", "input", "input_str", "outputs", "output", "args", "kwargs")
_MESSAGE_NAMES = frozenset({"content", "contents", "parts", "tool_calls"})
# The names of prompts that stand beside messages, or in their place -> their roles.
_PROMPT_ROLES = {"system": "system", "instructions": "system", "prompt": "user"}
_EMPTY: tuple[Any, ...] = (None, "", [], {})


class _Conventions:
    """The table of the conventions.

    `attributes` has the attributes that may hold each field, and `names` those of all
    fields. `kinds` has the kind and the origin of the step of a span, by its word.
    """

    def __init__(self, text: str) -> None:
        table = tomllib.loads(text)
        self.attributes: Mapping[str, Sequence[str]] = table["attributes"]
        self.names = tuple(chain.from_iterable(self.attributes.values()))
        self.kinds = dict[str, tuple[Kind, Origin]]()
        for row in table["kinds"]:
            meaning = (row["kind"], row["origin"])
            for word in row["words"]:
                self.kinds[word] = meaning


@cache
def _conventions() -> _Conventions:
    """Return the table, which is read when the first span is."""
    file = files("heedful.episodes.readers") / "conventions.toml"
    return _Conventions(file.read_text(encoding="utf-8"))


def is_known(name: str) -> bool:
    """Return True if an attribute with this name may hold a field."""
    return name.startswith(_conventions().names)


def is_given(name: str) -> bool:
    """Return True if an attribute with this name may hold what a model was given.

    Those of a span's events may, too.
    """
    attributes = _conventions().attributes
    names = (*attributes["input"], *attributes["instructions"], "gen_ai.event.content")
    return name.startswith(names) or name.endswith("content")


def kind_word(attributes: Attributes) -> str:
    """Return what a span says that it is, in lower case, or else what it names."""
    word = text_of(find(attributes, "kind")).lower().rpartition(".")[2]
    field_words = {"tool": "tool", "model": "llm", "agent": "agent"}
    words = (word for field, word in field_words.items() if find(attributes, field))
    return next(words, word) if word in ("", "span") else word


def kind_of(attributes: Attributes) -> tuple[Kind, Origin]:
    """Return the kind of a span's step, and the origin of the words in it."""
    word = kind_word(attributes)
    kinds = _conventions().kinds
    return kinds.get(word, ("around", "outside")) if word else ("", "")


def find(attributes: Attributes, field: str) -> Any:
    """Return a field of a step, decoded, or None."""
    return next(find_all(attributes, field), None)


def find_all(attributes: Attributes, field: str) -> Iterator[Any]:
    """Yield each value of a field, decoded."""
    for name in _conventions().attributes[field]:
        is_group = name.endswith(".")
        value = (
            _unflatten(attributes, name) if is_group else decoded(attributes.get(name))
        )
        if value not in (None, []):
            yield value


def decoded(value: Any) -> Any:
    """Decode JSON, JSON in it, and a dictionary as Python prints it.

    Other texts stay: an id may be digits.
    """
    while isinstance(value, str) and value[:1] in ('"', "{", "["):
        data = json_data(value)
        if value.startswith("{'") and len(value) <= Limits().content:
            with suppress(ValueError, SyntaxError, TypeError, RecursionError):
                data = json.loads(json.dumps(literal_eval(value)))
        if data == value or is_deep(data, MAX_DATA_DEPTH):
            break
        value = data
    return value


def unwrapped(value: Any) -> Any:
    """Return what a function was given or returned, without the names around it."""
    if not isinstance(value, Mapping) or value.keys().isdisjoint(_WRAPPER_NAMES):
        return value
    if not value.keys() <= {*_WRAPPER_NAMES, "tags", "metadata"}:
        return value

    inner = [value[name] for name in _WRAPPER_NAMES if value.get(name) not in _EMPTY]
    if inner and inner[0] == value.get("args"):
        if len(inner) > 1:
            return value
        inner = inner[0] if isinstance(inner[0], list) and len(inner[0]) == 1 else inner
    return decoded(inner[0]) if inner else None


def messages_in(data: Any, role: str = "") -> Iterator[Fields]:
    """Yield the messages in data, wherever they stand; `role` is that of one without.

    Requests have prompts beside the messages.
    """
    if isinstance(data, list):
        for part in data:
            yield from messages_in(part, role)
    elif isinstance(data, Mapping):
        if role:
            data = {"role": role, **data}
        message = as_chat_message(data)
        if message is not None and _has_words(message):
            yield message
            return
        for name, part in data.items():
            if name in _PROMPT_ROLES and isinstance(part, str):
                yield {"role": _PROMPT_ROLES[name], "content": part}
            yield from messages_in(part)


def _has_words(message: Fields) -> bool:
    """Return True for a message that is said, not for a tool that a prompt offers."""
    is_item = message.get("role") is None
    is_said = is_item or not _MESSAGE_NAMES.isdisjoint(message)
    return is_said and not isinstance(message.get("content"), Mapping)


def _unflatten(attributes: Attributes, prefix: str) -> list[Any]:
    """Return the objects flattened in attributes such as `PREFIX0.message.role`."""
    entries = _nested(
        {
            name.removeprefix(prefix): value
            for name, value in attributes.items()
            if name.startswith(prefix) and name.count(".") < MAX_DATA_DEPTH
        }
    )
    return entries if isinstance(entries, list) else []


def _nested(fields: Fields) -> Any:
    """Return the object of fields such as `a.b`; {"0.message.a": …} is [{"a": …}]."""
    tree: dict[str, object] = {}
    inner_fields: dict[str, Document] = {}
    for name, value in fields.items():
        first, dot, rest = name.partition(".")
        if dot:
            inner_fields.setdefault(first, {})[rest] = value
        else:
            tree[first] = value
    tree |= {name: _nested(inner) for name, inner in inner_fields.items()}

    numbers = [name for name in inner_fields if name.isdecimal() and len(name) < 10]
    if not numbers:
        return tree
    entries = [tree[number] for number in sorted(numbers, key=int)]
    return [_alone(entry) for entry in entries if isinstance(entry, dict)]


def _alone(fields: Document) -> Any:
    """Return the one object in an object, or the object."""
    inner = next(iter(fields.values()))
    return inner if len(fields) == 1 and isinstance(inner, dict) else fields
