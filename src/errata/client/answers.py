"""Plain data of the service -> the library's own records."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from errata.codec import verdict_from
from errata.errors import Refused
from errata.loop.decide import Verdict

# The names that fields of records mean, where their modules import them for type checkers alone.
from errata.memory.learn import Example, State, Trust  # noqa: F401
from errata.memory.templates import Merge  # noqa: F401

T = TypeVar("T")


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read(kind: type[T], plain: Any) -> T:
    """The record of that kind; what a newer service tells beyond it is left out.

    Raises Refused for what is no such record: then something else answered.
    """
    try:
        return cast("T", _adapter(cast("Any", kind)).validate_python(plain))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3])
        raise Refused(200, "", f"not the {kind.__name__} that was asked for: {wrong}") from error


def verdict(plain: Mapping[str, Any]) -> Verdict:
    """A verdict from the answer of a report."""
    return verdict_from({"lifted": (), **plain, "verdict": plain["decision"]})
