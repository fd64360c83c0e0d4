"""Trust: where a text came from, in which state it starts, and what may raise its trust.

Code stamps trust by the origin of a text, never by what the text says. A text derived from others
has the lowest trust of its sources. Only an operator or a measured outcome raises trust. Texts of
tools and from outside are quarantined until somebody releases them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from heedful.lessons.lesson import ORDER, Example, Reflection, State, Trust, check_trust, clip

Action = Literal["release", "reject"]
RAISING = frozenset(ORDER[:2])
HELD = frozenset(ORDER[3:])
# What quarantine keeps of a lesson's tags: characters of each, and how many.
LONGEST_TAG = 200
TAGS = 20


@dataclass(frozen=True, slots=True)
class Sighting:
    """One occurrence of an error: its exact text, its source, `at` in seconds since 1970."""

    text: str
    source: str
    trust: Trust
    loop: str
    at: float


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where an example comes from: all its sources, the ids of its parents and of its children.

    `sightings` are the newest of its lesson, `rulings` the decisions of operators on it.
    """

    sources: tuple[str, ...] = ()
    parents: tuple[int, ...] = ()
    children: tuple[int, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    rulings: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class QuarantinedLesson:
    """An entry of the quarantine: what was to be learnt, and from whom.

    `id` is that of its row among the examples, `example` None where it is a lesson without one.
    `source` is its own, `seen` counts the sightings of its pattern.
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
    provenance: Provenance = field(default_factory=Provenance)


@dataclass(frozen=True, slots=True)
class RevocationResult:
    """What a revocation removes: the numbers of rows, and of lessons left without examples."""

    examples: int = 0
    lessons: int = 0
    sightings: int = 0
    vectors: int = 0


def lowest_trust(trusts: Iterable[Trust]) -> Trust:
    """Return the lowest of some trusts, which a text derived from all has. Raises InvalidInput.

    >>> lowest_trust(["operator", "tool", "model"])
    'tool'
    """
    trusts = tuple(trusts)
    for trust in trusts:
        check_trust(trust)
    return max(trusts, key=ORDER.index)


def derive_trust(own: Trust, parents: Iterable[Trust], loop: str = "") -> Trust:
    """Return the trust of a text with trust `own` that derives from texts of trust `parents`.

    A text that a `loop` measured stays measured whatever its prompt contained: the outcome raised
    it.
    """
    return own if loop and own == "measured" else lowest_trust((own, *parents))


def initial_state(trust: Trust, state: State = "candidate") -> State:
    """Return the state in which a text is written: quarantined, or `state` if it is trusted."""
    return "quarantined" if trust in HELD else state


def raises_trust(new: Trust, known: Trust) -> bool:
    """Return True if a sighting of trust `new` raises a lesson of trust `known`.

    Only an operator or a measured outcome does, and only where neither of them was the source
    before. The lesson then takes the text, trust, state and sources of the new sighting.
    """
    return new in RAISING and known not in RAISING


def clip_reflection(one: Reflection) -> Reflection:
    """Return the reflection with every text and tag clipped, and only the first `TAGS` tags."""
    example = one.example
    if example is not None:
        values = {part.name: getattr(example, part.name) for part in fields(example)}
        texts: dict[str, Any] = {n: clip(v) for n, v in values.items() if isinstance(v, str)}
        example = replace(example, **texts)
    tags = tuple(clip(tag)[:LONGEST_TAG] for tag in one.tags[:TAGS])
    kind, context = clip(one.error_type), clip(one.context)
    return replace(one, example=example, tags=tags, error_type=kind, context=context)
