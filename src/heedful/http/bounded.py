"""How long a JSON Schema may judge: the parts of it, however often they refer to each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from heedful.errors import InvalidInput

# Parts of one schema; to look at so many takes a second.
LARGEST = 5_000
DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Python's `re` may need for ever; the check `regex` bounds it, a schema cannot. What is looked at
# more than once for one value takes time that grows with its square, or doubles with each level.
UNBOUNDED = ("patternProperties", "unevaluatedItems", "unevaluatedProperties")
# As these where they are keywords: a property that is called so has an object.
PLAIN = ("pattern", "uniqueItems")
# What lets a reference mean another place than the one that is counted here.
ELSEWHERE = ("$id", "$dynamicRef", "$recursiveRef", "$schema")
TEXT = 64  # characters that take as long as a value


def parts_of(output: Any) -> int:
    """About how many values there are in data, or in a text that may be JSON."""
    if isinstance(output, str):
        return 1 + len(output) // TEXT + sum(map(output.count, ",:[{"))
    return 1 + sum(map(parts_of, _inside(output)))


def parts_of_schema(schema: Any) -> int:
    """How many parts may judge one value: those of a definition wherever a `$ref` names it.

    Raises InvalidInput for more than `LARGEST`, as of what refers to itself, and for what takes a
    time that nobody knows.
    """
    root = schema
    if isinstance(schema, Mapping) and schema.get("$schema") == DIALECT:
        root = {name: value for name, value in schema.items() if name != "$schema"}
    return _Parts(root).of(root)


class _Parts:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[str, int] = {}

    def of(self, one: Any) -> int:
        """The parts of a part of the schema."""
        number = 1 + sum(map(self.of, _inside(one)))
        if isinstance(one, Mapping):
            _refuse(one)
            if isinstance(named := one.get("$ref"), str):
                number += self._referred(named)
        if number > LARGEST:
            raise _wrong("parts", f"over {LARGEST}", f"at most {LARGEST}, references followed")
        return number

    def _referred(self, name: str) -> int:
        if name not in self._known:
            self._known[name] = LARGEST  # while it is being counted: it refers to itself
            self._known[name] = self.of(_at(self._root, name))
        return self._known[name]


def _inside(one: Any) -> Iterable[Any]:
    return one.values() if isinstance(one, Mapping) else one if isinstance(one, list) else ()


def _refuse(one: Mapping[str, Any]) -> None:
    """Nothing, where a part has no keyword that cannot be bounded. Raises InvalidInput."""
    keywords = {name for name in one if not isinstance(one[name], Mapping)}
    for name in (*(n for n in UNBOUNDED if n in one), *keywords.intersection(PLAIN)):
        raise _wrong(name, "given", "left out: it may take for ever; use the check regex")
    for name in keywords.intersection(ELSEWHERE):
        raise _wrong(name, "given", f"left out: the schema is one of {DIALECT}, in one piece")
    if one.get("format") == "regex":
        raise _wrong("format", "regex", "another one: a pattern may take for ever to read")


def _at(root: Any, name: str) -> Any:
    """The part that a reference names, found as RFC 6901 says. Raises InvalidInput."""
    found = root
    try:
        if name[:1] != "#" or name[1:2] not in ("", "/"):
            raise KeyError(name)
        for step in unquote(name[1:]).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            found = found[int(key) if isinstance(found, list) else key]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise _wrong("$ref", name, "a place inside the schema, as #/$defs/name") from error
    return found


def _wrong(what: str, value: str, allowed: str) -> InvalidInput:
    return InvalidInput(f"{what} of check 'json_schema'", value, allowed)
