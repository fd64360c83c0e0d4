"""The words in messages, calls and results, whatever their framework.

Adapters compare the words of a request with those that a run knows, and say of a result
whether heedful can read it. A mark stands for an image or another file.

A model also reads how each tool describes itself. What stands in the file of the tool's
code, the developer wrote, or the author of a package. What else a tool says it has from
elsewhere, such as from a server.
"""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from typing import Any

from heedful.sanitize import UNREAD_MARK

# Keys whose values say what a part is, and not what it says.
_LABEL_KEYS = frozenset(
    "id call_id tool_call_id toolUseId name tool_name role type status kind part_kind "
    "outcome scope timestamp run_id".split()
)
MAX_LABEL_VALUE_CHARS = 100
# Where a call has its arguments, in which no value is a label.
_ARGUMENT_KEYS = frozenset(("args", "arguments", "input"))
# Keys of an image or a file, and the types of those that have none of these keys.
_FILE_KEYS = frozenset(
    "mime_type mimeType media_type image_url file_id file_data file_url blob bytes "
    "s3Location base64".split()
)
_FILE_TYPES = frozenset("image audio video file document input_image".split())
# The words of JSON Schema, which are no words of anybody.
_SCHEMA_WORDS = frozenset(
    "additionalproperties array boolean default description enum function integer name "
    "null number object parameters properties required strict string title type".split()
)
# Where the tools of frameworks have the function that is called.
_FUNCTION_NAMES = (
    *("__wrapped__", "func", "coroutine", "function"),
    *("_tool_func", "on_invoke_tool"),
)


def words_in(value: Any) -> str:
    """Return the texts in a value, each in a line; a mark stands for a file."""
    return "\n".join(_texts_in(_as_data(value)))


def words_of_result(value: Any) -> str:
    """Return the texts in what a tool returned, as `words_in` does.

    In data of the tool, no value is a label: it may be the name of a package.
    """
    return "\n".join(_texts_in(_as_data(value), inner_labels=frozenset()))


def _as_data(value: Any) -> Any:
    """Return a value as data of JSON."""
    if isinstance(value, str):
        return value

    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, bytes_mode="base64", fallback=repr)


def marked(text: str, value: Any) -> str:
    """Return the text of a result, and below it what else the result says.

    A framework may show the model more than `text`: blocks of other kinds, fields that
    a `repr` leaves out, or a file, for which there is a mark.
    """
    lines = words_of_result(value).splitlines()
    return "\n".join([text, *(line for line in lines if line not in text)])


def foreign_words(tool: Any, description: Any) -> str:
    """Return the words of a tool that do not stand in the file of its code.

    `tool` has the function that is called, or is of the class that does it. If it is
    None, every word is foreign. `description` is all that the model reads of it; a mark
    stands for that of a server whose tools only the provider of the model reads.
    """
    texts = strings_in(description)
    texts = (text for text in texts if text.lower() not in _SCHEMA_WORDS)
    lines = "\n".join(texts).splitlines()
    if not lines:
        kind = tool.get("type") if isinstance(tool, dict) else type(tool).__name__
        return UNREAD_MARK if "mcp" in str(kind).lower() else ""

    functions = (getattr(tool, name, None) for name in _FUNCTION_NAMES)
    code = next(filter(None, functions), type(tool))
    path = None
    with suppress(TypeError):
        path = inspect.getsourcefile(inspect.unwrap(code))
    source = "".join(linecache.getlines(path)) if path else ""
    # A long text is written as several literals, and names of arguments make titles.
    source = _comparable(re.sub(r'"\s+f?"', "", source).replace('\\"', '"'))
    return "\n".join(line for line in lines if _comparable(line) not in source)


def _comparable(text: str) -> str:
    """Return a text in lower case, with blanks for the underlines of names."""
    return text.strip().lower().replace("_", " ")


def strings_in(data: Any) -> Iterator[str]:
    """Yield the texts in data of JSON, and the names in it."""
    if isinstance(data, Mapping):
        data = [*data, *data.values()]
    if isinstance(data, str):
        yield data
    elif isinstance(data, list | tuple):
        for part in data:
            yield from strings_in(part)


def _texts_in(
    data: Any, labels: Set[str] = _LABEL_KEYS, inner_labels: Set[str] = _LABEL_KEYS
) -> Iterator[str]:
    """Yield the texts in data of JSON that are no labels.

    The values of the keys `labels` are, and in data within it those of `inner_labels`.
    """
    if isinstance(data, str) and data:
        yield data
    elif isinstance(data, list):
        for part in data:
            yield from _texts_in(part, labels, inner_labels)
    elif isinstance(data, dict) and not data.get("text") and _names_file(data):
        yield UNREAD_MARK
    elif isinstance(data, dict):
        for key, part in data.items():
            # A name that is no word of code may be a text, too.
            if not str(key).isidentifier():
                yield str(key)
            if key in _ARGUMENT_KEYS:
                yield from _texts_in(part, frozenset(), frozenset())
            elif not (key in labels and _is_label(part)):
                yield from _texts_in(part, inner_labels, inner_labels)


def _is_label(value: Any) -> bool:
    """Return True for a value that can only be a name: one word."""
    if not isinstance(value, str):
        return value is None
    return len(value) <= MAX_LABEL_VALUE_CHARS and len(value.split()) <= 1


def _names_file(data: dict[str, Any]) -> bool:
    """Return True for an image, a file, or a text with the type of its file."""
    return data.get("type") in _FILE_TYPES or any(map(data.get, _FILE_KEYS))
