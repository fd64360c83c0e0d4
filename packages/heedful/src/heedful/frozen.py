"""Records that every attempt makes: frozen for type checkers, quick to make.

A frozen dataclass sets each field through `object.__setattr__`, which took a fifth of
an attempt. mypy and pyright refuse to change a field of these records, so no check of
it runs in a program; use `dataclasses.replace`, as with any frozen dataclass.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def typed_frozen(
    *, slots: bool = False, kw_only: bool = False, repr: bool = True
) -> Callable[[type[T]], type[T]]:
    """Declare a dataclass that is compared and hashed as a frozen one is.

    A class that inherits from it cannot be a frozen dataclass.
    """
    return dataclass(unsafe_hash=True, slots=slots, kw_only=kw_only, repr=repr)
