"""Numbers as a loop compares, shows and accepts them, and attributes worked out once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from heedful.errors import InvalidInput

T = TypeVar("T")
LARGEST = 1e12  # of a score or threshold: up to here a float still tells thousandths apart


class lazy(Generic[T]):  # noqa: N801 - used as a decorator
    """An attribute worked out when it is first read. functools' own takes a lock before 3.12."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, record: Any, owner: Any = None) -> T:
        if record is None:
            return self  # type: ignore[return-value]  # help() and the like ask the class
        value = record.__dict__[self._function.__name__] = self._function(record)
        return value


def thousandths(value: float) -> int:
    """A score, threshold or gain as whole thousandths: the only unit in which they are compared.

    >>> thousandths(0.1 + 0.2) == thousandths(0.3)
    True
    """
    return round(value * 1000)


def shown(value: float) -> str:
    """A score or threshold in words, as exactly as it is compared.

    >>> shown(0.7499), shown(1234567.8)
    ('0.75', '1234567.8')
    """
    return f"{round(value * 1000) / 1000:.15g}"


def number(field: str, value: object, low: float, high: float) -> None:
    """Raises InvalidInput where `value` is no number in `low`..`high`; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidInput(field, value, f"a number in {low:g}..{high:g}")
