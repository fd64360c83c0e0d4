"""The words in messages, calls and results, whatever their framework.

Adapters compare the words of a request with those that a run knows, and say of a result
whether heedful can read it. A mark stands for an image or another file.

A model also reads how each tool describes itself. Where the developer wrote the code of
a tool, the developer wrote the words, too. An installed package says on its own what
stands in its source; what else its tools say it has from elsewhere, such as from a
server.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from heedful.sanitize import UNREAD_MARK

# Keys whose values say what a part is, and not what it says.
_LABEL_KEYS = frozenset(
    "id call_id tool_call_id toolUseId name tool_name role type status kind part_kind "
    "outcome scope timestamp run_id".split()
)
MAX_LABEL_VALUE_CHARS = 100
# Keys of an image or a file, and the types of those that have none of these keys.
_FILE_KEYS = frozenset(
    "mime_type mimeType media_type image_url file_id file_data file_url blob bytes "
    "s3Location base64".split()
)
_FILE_TYPES = frozenset("image audio video file document input_image".split())
# The folders of installed packages.
_PACKAGE_FOLDERS = frozenset({"site-packages", "dist-packages"})


def words_in(value: Any) -> str:
    """Return the texts in a value, each in a line; a mark stands for a file."""
    if isinstance(value, str):
        return value

    from pydantic_core import to_jsonable_python

    data = to_jsonable_python(value, bytes_mode="base64", fallback=repr)
    return "\n".join(_texts_in(data))


def marked(text: str, value: Any) -> str:
    """Return the text of a result, and below it what else the result says.

    A framework may show the model more than `text`: blocks of other kinds, fields that
    a `repr` leaves out, or a file, for which there is a mark.
    """
    others = [line for line in words_in(value).splitlines() if line not in text]
    return "\n".join([text, *others])


def foreign_words(code: Any, description: Any) -> str:
    """Return the words of a tool that neither its developer nor a package wrote.

    `code` is the function or the class of the tool, `description` all that the model
    reads of it. Of code without a source, every word is foreign.
    """
    while isinstance(code, partial):
        code = code.func

    path = None
    with suppress(TypeError, ValueError):
        path = inspect.getsourcefile(inspect.unwrap(code))
    if path and _PACKAGE_FOLDERS.isdisjoint(Path(path).parts):
        return ""

    source = _source_text(path) if path else ""
    lines = "\n".join(_description_texts(description)).splitlines()
    return "\n".join(line for line in lines if line.strip() not in source)


def unread_mark(tool: Any) -> str:
    """Return a mark for a server whose tools the provider reads, and "" for others."""
    kind = type(tool).__name__
    if isinstance(tool, dict):
        kind = str(tool.get("type"))
    return UNREAD_MARK if "mcp" in kind.lower() else ""


@lru_cache(maxsize=256)
def _source_text(path: str) -> str:
    """Return the text of a source file, "" if it cannot be read."""
    with suppress(OSError, UnicodeError):
        return Path(path).read_text("utf-8")
    return ""


def _description_texts(data: Any) -> Iterator[str]:
    """Yield the texts in a description of a tool, and the names of its arguments."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, list | tuple):
        for part in data:
            yield from _description_texts(part)
    elif isinstance(data, dict):
        yield from _description_texts(list(data.get("properties") or ()))
        for key, part in data.items():
            # The types of a schema are no words of anybody.
            if key != "type":
                yield from _description_texts(part)


def _texts_in(data: Any) -> Iterator[str]:
    """Yield the texts in data of JSON."""
    if isinstance(data, str) and data:
        yield data
    elif isinstance(data, list):
        for part in data:
            yield from _texts_in(part)
    elif isinstance(data, dict) and not data.get("text") and _names_file(data):
        yield UNREAD_MARK
    elif isinstance(data, dict):
        for key, part in data.items():
            if not (key in _LABEL_KEYS and _is_label(part)):
                yield from _texts_in(part)


def _is_label(value: Any) -> bool:
    """Return True for a value that can only be a name: one word."""
    if not isinstance(value, str):
        return value is None
    return len(value) <= MAX_LABEL_VALUE_CHARS and len(value.split()) <= 1


def _names_file(data: dict[str, Any]) -> bool:
    """Return True for an image, a file, or a text with the type of its file."""
    return data.get("type") in _FILE_TYPES or any(map(data.get, _FILE_KEYS))
