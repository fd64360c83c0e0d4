"""Trust: where a text came from, what it begins as, and what may raise it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from heedful.errors import InvalidInput
from heedful.redact import redacted

if TYPE_CHECKING:
    from heedful.memory.learn import Example, Reflection, State, Trust

Action = Literal["release", "reject"]

# From a person who answers for it, an outcome of an own loop, a model, a tool, or from outside:
# documents, end users, imports. Each is trusted more than the next.
ORDER: tuple[Trust, ...] = ("operator", "measured", "model", "tool", "external")
RAISING = frozenset(ORDER[:2])
HELD = frozenset(ORDER[3:])
# What is kept of what is held back: characters of each text and each tag, and how many tags.
LONGEST = 4_000
LONGEST_TAG = 200
TAGS = 20


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


@dataclass(frozen=True, slots=True)
class Sighting:
    """One time that an error was seen: its exact text, where from, `at` in seconds since 1970."""

    text: str
    source: str
    trust: Trust
    loop: str
    at: float


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where an example comes from: every source that it rests on, and ids it derives from.

    `children` derive from it. `sightings` are the newest of its lesson, `rulings` those on it.
    """

    sources: tuple[str, ...] = ()
    parents: tuple[int, ...] = ()
    children: tuple[int, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    rulings: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """An entry of the quarantine: what was to be learnt, and from whom.

    `id` is that of its row among the examples, `example` None where it is a lesson without one.
    `source` is its own, `seen` counts the sightings of its pattern. `score` (0..1, the worse the
    higher) and `why` are what the screen says of its texts; they decide nothing.
    """

    id: int
    kind: str
    error_type: str
    signature: str
    pattern: str
    lesson: str
    example: Example | None
    state: State
    trust: Trust
    source: str
    tags: tuple[str, ...]
    importance: float
    seen: int
    at: float
    score: float = 0.0
    why: tuple[str, ...] = ()
    provenance: Provenance = field(default_factory=Provenance)

    @property
    def texts(self) -> tuple[str, ...]:
        """All of its own words."""
        one = self.example
        return (self.lesson, *filter(None, _texts(one))) if one else (self.lesson,)


@dataclass(frozen=True, slots=True)
class Removed:
    """What a revocation removes: rows of each, and lessons that nothing is left of."""

    examples: int = 0
    lessons: int = 0
    sightings: int = 0
    vectors: int = 0


def _texts(one: Example) -> tuple[str, ...]:
    return one.task, one.accepted, one.rejected, one.wrong, one.evidence, one.context


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


def bounded(one: Reflection) -> Reflection:
    """The reflection with the first `LONGEST` characters of every text, and of its tags the first.

    Without secrets first: half of one is not recognised.
    """
    example = one.example
    if example is not None:
        told = {part.name: getattr(example, part.name) for part in fields(example)}
        short: dict[str, Any] = {n: kept(text) for n, text in told.items() if isinstance(text, str)}
        example = replace(example, **short)
    tags = tuple(kept(tag)[:LONGEST_TAG] for tag in one.tags[:TAGS])
    kind, context = kept(one.error_type), kept(one.context)
    return replace(one, example=example, tags=tags, error_type=kind, context=context)


def kept(text: str) -> str:
    """What is kept of a text that is held back."""
    return redacted(text)[:LONGEST]


def _place(trust: Trust) -> int:
    if trust not in ORDER:
        raise InvalidInput("trust", trust, f"one of {', '.join(ORDER)}")
    return ORDER.index(trust)
