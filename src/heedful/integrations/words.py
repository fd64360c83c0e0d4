"""The words in messages, calls and results, whatever their framework.

Adapters compare the words of a request with those that a run knows, and say of a result
whether heedful can read it. A mark stands for an image or another file.
"""

from __future__ import annotations

from collections.abc import Iterator
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
