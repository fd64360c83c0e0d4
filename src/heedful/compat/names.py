"""Which attempt of which loop a name stands for: the store knows, the name is never parsed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from heedful.errors import InvalidInput, NotFound
from heedful.protocols import Scope, Store, Stored
from heedful.reporting import LONGEST

MOST = LONGEST + 20  # characters of the name of a rerun
NAME = "loop_id"  # the label of an attempt that says under what name it was reported


@dataclass(frozen=True, slots=True)
class Place:
    """An attempt, by its number, of a loop; `stored` is None where there is no such loop yet."""

    id: str
    number: int
    stored: Stored | None

    @property
    def made(self) -> bool:
        """Whether there is that attempt."""
        return self.stored is not None and self.number <= len(self.stored.loop.attempts)


async def find(store: Store, scope: Scope, name: str) -> Place:
    """The attempt of that name: the first one of the loop of that id, or a rerun of another loop.

    Raises InvalidInput, StoreError.
    """
    if not isinstance(name, str) or not 0 < len(name) <= MOST or not name.isprintable():
        raise InvalidInput("loop_id", name, f"1 to {MOST} printable characters")
    if (stored := await _read(store, scope, name)) is not None:
        return Place(name, 1, stored)
    for end in range(len(name) - 1, 0, -1):
        if name[end] != "_" or (stored := await _read(store, scope, name[:end])) is None:
            continue
        following = len(stored.loop.attempts) + 1
        for number in range(2, following):
            if name_of(stored, number) == name:
                return Place(stored.id, number, stored)
        if following > 1 and await next_name(store, scope, stored) == name:
            return Place(stored.id, following, stored)
    return Place(name, 1, None)


def name_of(stored: Stored, number: int) -> str:
    """The name of an attempt that was made: the one it was reported under, if it was."""
    told = stored.loop.attempts[number - 1].labels.get(NAME)
    return stored.id if number == 1 else told or f"{stored.id}_r{number - 1}"


async def next_name(store: Store, scope: Scope, stored: Stored) -> str:
    """The name of the attempt to come: `ID_r1` of the second, unless a loop has that for its id."""
    number = len(stored.loop.attempts)
    names = (f"{stored.id}{'_' * length}r{number}" for length in count(1))
    while await _read(store, scope, name := next(names)) is not None:
        pass
    return name


async def _read(store: Store, scope: Scope, id: str) -> Stored | None:
    try:
        return await store.read(scope, id)
    except NotFound:
        return None
