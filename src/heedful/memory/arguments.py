"""What memory is given, looked at: an error names the argument, its value and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from heedful.errors import InvalidInput
from heedful.memory.trust import ORDER, Quota

if TYPE_CHECKING:
    from heedful.memory.learn import Example

LARGEST = 2**63 - 1  # the largest integer that a store holds
LONGEST_SOURCE = 500  # characters


def integer(field: str, value: object, least: int = 1, other: str = "") -> None:
    """Raises InvalidInput where `value` is no integer of at least `least` that a store holds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
        allowed = f"an integer of at least {least} and below 2**63{other}"
        raise InvalidInput(field, value, allowed)


def numbered(id: object) -> None:
    """Raises InvalidInput for what is no id that a store could hold."""
    if isinstance(id, bool) or not isinstance(id, int) or abs(id) > LARGEST:
        raise InvalidInput("id", id, "an id, an integer below 2**63")


def fraction(field: str, value: object) -> None:
    """Raises InvalidInput where `value` is no number in 0..1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidInput(field, value, "a number of 0 to 1")


def texts(**given: object) -> None:
    """Raises InvalidInput for what is no text."""
    for field, value in given.items():
        if not isinstance(value, str):
            raise InvalidInput(field, value, "a text")


def bounds(holdout: object, max_entries: object, quota: object) -> None:
    """Raises InvalidInput for what no memory can be bound by."""
    if not isinstance(holdout, int | float) or not 0 <= holdout < 1:
        raise InvalidInput("holdout", holdout, "a share of at least 0 and below 1")
    if max_entries is not None:
        integer("max_entries", max_entries, 1, ", or None")
    if quota is not None and not isinstance(quota, Quota):
        raise InvalidInput("quota", quota, "a Quota, or None")


def pruned(unused_for: object, keep: object, by: object) -> None:
    """Raises InvalidInput where nothing says what to prune, or nobody answers for it."""
    decides(by, "")
    if unused_for is None and keep is None:
        raise InvalidInput("prune", None, "given unused_for, keep, or both")
    if unused_for is not None and not (
        isinstance(unused_for, int | float) and 0 < unused_for < float("inf")
    ):
        raise InvalidInput("unused_for", unused_for, "a number of seconds above 0")
    if keep is not None:
        integer("keep", keep, 0)


def signatures(digests: Sequence[object]) -> None:
    """Raises InvalidInput where there is none, or one that is no text."""
    if not digests or not all(isinstance(one, str) for one in digests):
        raise InvalidInput("digests", digests, "signatures of lessons, at least one")


def decides(by: object, why: object) -> None:
    """Raises InvalidInput where nobody answers for it."""
    if not isinstance(by, str) or not by.strip():
        raise InvalidInput("by", by, "the name of who decides")
    texts(why=why)


def named(source: str) -> str:
    """The name of a source. Raises InvalidInput."""
    if not isinstance(source, str) or len(source) > LONGEST_SOURCE:
        allowed = f"a name of at most {LONGEST_SOURCE} characters"
        raise InvalidInput("source", source, allowed)
    return source


def several(field: str, values: object, kind: type, allowed: str) -> None:
    """Raises InvalidInput where `values` is no sequence of that kind; a text is none."""
    if (
        not isinstance(values, Sequence)
        or isinstance(values, str | bytes)
        or not all(isinstance(one, kind) for one in values)
    ):
        raise InvalidInput(field, values, allowed)


def remembered(
    text: str,
    trust: str,
    importance: object,
    tags: object,
    example: Example | None,
    parents: object,
    pinned: object,
) -> None:
    """Raises InvalidInput for what cannot be remembered."""
    if not text.strip():
        raise InvalidInput("text", text, "the text of an error")
    if trust not in ORDER:
        raise InvalidInput("trust", trust, f"one of {', '.join(ORDER)}")
    fraction("importance", importance)
    several("tags", tags, str, "a sequence of tags, each a text")
    several("derived_from", parents, int, "ids of examples of this scope")
    if not isinstance(pinned, bool) or (pinned and trust != "operator"):
        raise InvalidInput("pinned", pinned, "False but for an operator")
    if example is not None:
        _example(example)


def _example(one: Example) -> None:
    told = ("task", "accepted", "rejected", "wrong", "evidence", "context")
    try:
        given = {f"example.{name}": getattr(one, name) for name in told}
        scores = {"before": one.before, "after": one.after}
    except AttributeError:
        raise InvalidInput("example", one, "an Example, or None") from None
    texts(**given)
    for when, those in scores.items():
        if not isinstance(those, Mapping):
            raise InvalidInput(f"example.{when}", those, "a mapping of scores")
        for name, value in those.items():
            if not isinstance(value, int | float) or not isfinite(value):
                raise InvalidInput(f"example.{when}[{name!r}]", value, "a finite number")
