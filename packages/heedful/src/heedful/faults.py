"""Say in words for users what is wrong with data that does not fit a type.

pydantic finds the faults; its own messages are for those who write Python. Nothing here
repeats them: a fault that `_ALLOWED_FORMS` does not name is told by its kind alone.
"""

import re
from collections.abc import Iterable, Mapping, Sized
from typing import Any

from heedful.errors import InvalidInput
from heedful.redact import redact_start

# A fault as pydantic describes it, such as its `type` and where it is: `loc`.
PydanticFault = Mapping[str, Any]
# A check of a value that is not pydantic's raised an error.
_CHECK_KINDS = ("assertion_error", "value_error")
# In a union, pydantic adds the name of a type to the location, such as `dict[str,any]`,
# which is not a part of the data.
_UNION_TYPE_PATTERN = re.compile(
    r"(function-\w+|dict|list|json-or-python|tagged-union)\[.*\]$"
)
# Kind of fault -> what is allowed instead, with values from the context of the fault.
_ALLOWED_FORMS: Mapping[str, str] = {
    "bool": "true or false",
    "bytes_too_long": "at most {max_length} bytes",
    "bytes_too_short": "at least {min_length} bytes",
    "dataclass": "a JSON object",
    "date": "a date such as 2026-01-31",
    "date_from_datetime": "a date such as 2026-01-31",
    "datetime": "a time such as 2026-01-31T12:00:00Z",
    "datetime_from_date": "a time such as 2026-01-31T12:00:00Z",
    "dict": "a JSON object",
    "enum": "{expected}",
    "extra_forbidden": "left out: no field has this name",
    "finite_number": "a finite number",
    "float": "a number",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "int": "an integer",
    "int_from_float": "an integer",
    "int_parsing_size": "an integer below 2**63",
    "json_invalid": "valid JSON",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "list": "a list",
    "literal_error": "{expected}",
    "mapping": "a JSON object",
    "missing": "given",
    "missing_argument": "given",
    "missing_keyword_only_argument": "given",
    "model": "a JSON object",
    "model_attributes": "a JSON object",
    "multiple_of": "a multiple of {multiple_of}",
    "none_required": "null",
    "set": "a list",
    "string": "a text",
    "string_pattern_mismatch": "a text that matches {pattern}",
    "string_too_long": "a text of at most {max_length} characters",
    "string_too_short": "a text of at least {min_length} characters",
    "string_unicode": "a text in UTF-8",
    "timezone_aware": "a time with its zone",
    "too_long": "at most {max_length} long",
    "too_short": "at least {min_length} long",
    "tuple": "a list",
    "unexpected_keyword_argument": "left out: no field has this name",
    "union_tag_invalid": "an object whose {discriminator} is one of {expected_tags}",
    "union_tag_not_found": "an object with {discriminator}",
    "url": "an address such as https://example.org/path",
    "url_scheme": "an address that begins with {expected_schemes}",
}
NOT_EMPTY = "a text that is not empty"
# Patterns of our own fields, in words.
_PATTERN_FORMS: Mapping[str, str] = {
    r"\S": NOT_EMPTY,
    r"^\P{C}+$": "a text of printable characters",
    "^[0-9a-f]{16}$": "16 digits in hexadecimal",
}


def allowed_value(fault: PydanticFault) -> str:
    """Return what a wrong value must be, such as "an integer"."""
    kind = str(fault["type"])
    if kind in _CHECK_KINDS:
        error = fault["ctx"]["error"]
        return error.allowed if isinstance(error, InvalidInput) else str(error)

    return allowed_form(fault) or f"of another form ({kind})"


def allowed_form(fault: PydanticFault) -> str:
    """Return what a value of the wrong type or form must be; "" if there is no word."""
    kind = str(fault["type"])
    context = fault.get("ctx", {})
    if kind == "string_too_short" and context["min_length"] == 1:
        return NOT_EMPTY
    if kind == "too_short" and context["min_length"] == 1:
        return "not empty"
    if context.get("pattern") in _PATTERN_FORMS:
        return _PATTERN_FORMS[context["pattern"]]

    # Whether a value has another type or is a text of the wrong form is all one.
    allowed = _ALLOWED_FORMS.get(kind) or _ALLOWED_FORMS.get(
        kind.removesuffix("_type").removesuffix("_parsing")
    )
    return "" if allowed is None else allowed.format_map(context)


def fault_text(fault: PydanticFault) -> str:
    """Return what is wrong with a value, without the value and its name.

    What a check of heedful says of a value stays as it is.
    """
    if fault["type"] in _CHECK_KINDS:
        return str(fault["ctx"]["error"])
    return f"it must be {allowed_value(fault)}"


def wrong_value(fault: PydanticFault) -> str:
    """Return a wrong value, and what is wrong with it."""
    return f"{shorten(fault['input'])}; {fault_text(fault)}"


def fault_place(fault: PydanticFault) -> list[str]:
    """Return the names and numbers that lead to a wrong value."""
    return [
        name for name in map(str, fault["loc"]) if not _UNION_TYPE_PATTERN.match(name)
    ]


def fault_line(fault: PydanticFault) -> str:
    """Return which value is wrong, and what is wrong with it."""
    place = "/".join(fault_place(fault)) or "the data"
    return f"{place}: {fault_text(fault)}"


def shorten(value: object, most: int = 80) -> str:
    """Return the `repr` of a value without secrets, shortened to `most` characters.

    >>> shorten("a" * 100, 12)
    "'aaaaaaaaa…'"
    """
    text = repr(value)
    quotation = redact_start(text, most + 1)
    if len(quotation) > most:
        # The quote of a text, or the bracket of a list, ends it.
        quotation = f"{quotation[: most - 2]}…{text[-1]}"
    return quotation


def kind_and_size(value: object) -> str:
    """Return the type of a value and its size, without its content.

    >>> kind_and_size({1, 2})
    'set of 2'
    """
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple):
        shape = (len(value),) if isinstance(value, Sized) else ()
    of_size = " of " if shape else ""
    return f"{type(value).__name__}{of_size}{' × '.join(map(str, shape))}"


def json_path(parts: Iterable[str | int]) -> str:
    """Return the JSON path of a value; `parts` are the keys that lead to it.

    >>> json_path(["lines", 2, "unit price"])
    "$.lines[2]['unit price']"
    """
    path = "$"
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier():
            path += f".{part}"
        else:
            path += f"[{shorten(part, 60)}]"
    return path


def path_kind(path: str) -> str:
    """Return a JSON path without its numbers: a mistake in two items has one key."""
    return re.sub(r"\[[0-9]+\]", "[]", path)


def word_problem(problem: PydanticFault) -> tuple[str, str]:
    """Return what is wrong with a value by a pydantic model, and how to fix it.

    A check of the model itself, and what heedful has no words for, say it in their own.
    """
    if problem["type"] == "missing":
        return "Field required", "add it"

    allowed = allowed_form(problem)
    if not allowed:
        message = redact_start(problem["msg"].removeprefix("Value error, "), 200)
        return f"{message}, it is {shorten(problem['input'])}", message
    return f"it is {shorten(problem['input'])}, not {allowed}", f"make it {allowed}"
