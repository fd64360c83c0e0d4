"""Trust: where a text came from, what it begins as, and what may raise it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from errata.errors import InvalidInput

if TYPE_CHECKING:
    from errata.memory.learn import State, Trust

# From a person who answers for it, an outcome of an own loop, a model, a tool, or from outside:
# documents, end users, imports. Each is trusted more than the next.
ORDER: tuple[Trust, ...] = ("operator", "measured", "model", "tool", "external")
RAISING = frozenset(ORDER[:2])
HELD = frozenset(ORDER[3:])


@dataclass(frozen=True, slots=True)
class Quota:
    """What one source that is held back may have in a scope; each number is at least 1.

    So many `entries` wait in quarantine, and so many `sightings` are stored with their text.
    """

    entries: int = 1_000
    sightings: int = 10_000

    def __post_init__(self) -> None:
        for name, value in (("entries", self.entries), ("sightings", self.sightings)):
            if not isinstance(value, int) or value < 1:
                raise InvalidInput(f"quota.{name}", value, "an integer of at least 1")


def lowest(trusts: Iterable[Trust]) -> Trust:
    """The least of them, which is the trust of what derives from all. Raises InvalidInput.

    >>> lowest(["operator", "tool", "model"])
    'tool'
    """
    return max(trusts, key=_place)


def derived(own: Trust, parents: Iterable[Trust], loop: str = "") -> Trust:
    """The trust of a text with that trust of its own, made from `parents`.

    What a `loop` measured keeps it whatever was in its prompt: its own outcome has raised it.
    """
    return own if loop and own == "measured" else lowest((own, *parents))


def begins(trust: Trust, state: State = "candidate") -> State:
    """The state a text of that trust is written in, `state` where nothing holds it back."""
    return "quarantined" if trust in HELD else state


def raises(new: Trust, known: Trust) -> bool:
    """Whether a sighting of trust `new` raises what is known with trust `known`.

    Only an operator or a measured outcome does, and only what neither of them said before: then
    the text, its trust, its state and its sources are those of the new sighting.
    """
    return new in RAISING and known not in RAISING


def _place(trust: Trust) -> int:
    if trust not in ORDER:
        raise InvalidInput("trust", trust, f"one of {', '.join(ORDER)}")
    return ORDER.index(trust)
