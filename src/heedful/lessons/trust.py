"""How far a text is trusted, in which state it is stored, and what may raise its trust.

The level of trust follows from the origin of a text, never from its content. A text derived from
other texts has their lowest trust. Only an operator or a measured outcome raises trust. Texts from
tools and from outside are quarantined until an operator releases them.
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
    """One occurrence of an error: its text, source and trust; `at` is in seconds since 1970."""

    text: str
    source: str
    trust: Trust
    loop: str
    at: float


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of an example: all its sources, and the ids of its parents and of its children.

    `sightings` are the newest sightings of its lesson. `rulings` are the decisions of operators
    about it.
    """

    sources: tuple[str, ...] = ()
    parents: tuple[int, ...] = ()
    children: tuple[int, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    rulings: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class QuarantinedLesson:
    """An entry in quarantine: the lesson, its example and its source.

    `id` is the id of the example's row. `example` is None if the lesson has no example. `source` is
    the source of this entry, and `seen` counts the sightings of its pattern.
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
    """How many rows a revocation removes; `lessons` counts lessons that lose their last example."""

    examples: int = 0
    lessons: int = 0
    sightings: int = 0
    vectors: int = 0


def lowest_trust(trusts: Iterable[Trust]) -> Trust:
    """Return the lowest of these levels of trust. Raises InvalidInput.

    >>> lowest_trust(["operator", "tool", "model"])
    'tool'
    """
    trusts = tuple(trusts)
    for trust in trusts:
        check_trust(trust)
    return max(trusts, key=ORDER.index)


def derive_trust(own: Trust, parents: Iterable[Trust], loop: str = "") -> Trust:
    """Return the trust of a text with trust `own` that is derived from texts with trust `parents`.

    A text that a `loop` measured stays "measured", because its trust comes from the outcome of the
    loop and not from the texts in the prompt.
    """
    return own if loop and own == "measured" else lowest_trust((own, *parents))


def initial_state(trust: Trust, state: State = "candidate") -> State:
    """Return the state in which a lesson is stored: "quarantined" if untrusted, else `state`."""
    return "quarantined" if trust in HELD else state


def clip_reflection(one: Reflection) -> Reflection:
    """Return the reflection with example, context, error type and the first `TAGS` tags clipped."""
    example = one.example
    if example is not None:
        values = {part.name: getattr(example, part.name) for part in fields(example)}
        texts: dict[str, Any] = {n: clip(v) for n, v in values.items() if isinstance(v, str)}
        example = replace(example, **texts)
    tags = tuple(clip(tag)[:LONGEST_TAG] for tag in one.tags[:TAGS])
    kind, context = clip(one.error_type), clip(one.context)
    return replace(one, example=example, tags=tags, error_type=kind, context=context)
