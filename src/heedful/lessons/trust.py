"""Trust: where a text came from, what it begins as, and what may raise it. Pure.

What memory is given, looked at: an error names the argument, its value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from typing import Any, Literal

from heedful.errors import InvalidInput
from heedful.lessons.lesson import Example, Reflection, State, Trust
from heedful.redact import redact

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
    """What a revocation removes: rows of each, and lessons that nothing is left of."""

    examples: int = 0
    lessons: int = 0
    sightings: int = 0
    vectors: int = 0


def lowest_trust(trusts: Iterable[Trust]) -> Trust:
    """The least of them, which is the trust of what derives from all. Raises InvalidInput.

    >>> lowest(["operator", "tool", "model"])
    'tool'
    """
    return max(trusts, key=_place)


def derive_trust(own: Trust, parents: Iterable[Trust], loop: str = "") -> Trust:
    """The trust of a text with that trust of its own, made from `parents`.

    What a `loop` measured keeps it whatever was in its prompt: its own outcome has raised it.
    """
    return own if loop and own == "measured" else lowest_trust((own, *parents))


def initial_state(trust: Trust, state: State = "candidate") -> State:
    """The state a text of that trust is written in, `state` where nothing holds it back."""
    return "quarantined" if trust in HELD else state


def raises_trust(new: Trust, known: Trust) -> bool:
    """Whether a sighting of trust `new` raises what is known with trust `known`.

    Only an operator or a measured outcome does, and only what neither of them said before: then
    the text, its trust, its state and its sources are those of the new sighting.
    """
    return new in RAISING and known not in RAISING


def clip_reflection(one: Reflection) -> Reflection:
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
    return redact(text)[:LONGEST]


def _place(trust: Trust) -> int:
    if trust not in ORDER:
        raise InvalidInput("trust", trust, f"one of {', '.join(ORDER)}")
    return ORDER.index(trust)


LARGEST = 2**63 - 1  # the largest integer that a store holds
LONGEST_SOURCE = 500  # characters


def integer(field: str, value: object, least: int = 1, other: str = "") -> None:
    """Raises InvalidInput where `value` is no integer of at least `least` that a store holds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
        allowed = f"an integer of at least {least} and below 2**63{other}"
        raise InvalidInput(field, value, allowed)


def check_id(id: object) -> None:
    """Raises InvalidInput for what is no id that a store could hold."""
    if isinstance(id, bool) or not isinstance(id, int) or abs(id) > LARGEST:
        raise InvalidInput("id", id, "an id, an integer below 2**63")


def fraction(field: str, value: object) -> None:
    """Raises InvalidInput where `value` is no number in 0..1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidInput(field, value, "a number of 0 to 1")


def check_texts(**given: object) -> None:
    """Raises InvalidInput for what is no text."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise InvalidInput(name, value, "a text")


def check_bounds(holdout: object, max_entries: object, quota: object) -> None:
    """Raises InvalidInput for what no memory can be bound by."""
    if not isinstance(holdout, int | float) or not 0 <= holdout < 1:
        raise InvalidInput("holdout", holdout, "a share of at least 0 and below 1")
    if max_entries is not None:
        integer("max_entries", max_entries, 1, ", or None")
    if quota is not None and not isinstance(quota, Quota):
        raise InvalidInput("quota", quota, "a Quota, or None")


def check_prune(unused_for: object, keep: object, by: object) -> None:
    """Raises InvalidInput where nothing says what to prune, or nobody answers for it."""
    check_actor(by, "")
    if unused_for is None and keep is None:
        raise InvalidInput("prune", None, "given unused_for, keep, or both")
    if unused_for is not None and not (
        isinstance(unused_for, int | float) and 0 < unused_for < float("inf")
    ):
        raise InvalidInput("unused_for", unused_for, "a number of seconds above 0")
    if keep is not None:
        integer("keep", keep, 0)


def check_digests(digests: Sequence[object]) -> None:
    """Raises InvalidInput where there is none, or one that is no text."""
    if not digests or not all(isinstance(one, str) for one in digests):
        raise InvalidInput("digests", digests, "signatures of lessons, at least one")


def check_actor(by: object, why: object) -> None:
    """Raises InvalidInput where nobody answers for it."""
    if not isinstance(by, str) or not by.strip():
        raise InvalidInput("by", by, "the name of who decides")
    check_texts(why=why)


def check_source(source: str) -> str:
    """The name of a source. Raises InvalidInput."""
    if not isinstance(source, str) or len(source) > LONGEST_SOURCE:
        allowed = f"a name of at most {LONGEST_SOURCE} characters"
        raise InvalidInput("source", source, allowed)
    return source


def check_sequence(field: str, values: object, kind: type, allowed: str) -> None:
    """Raises InvalidInput where `values` is no sequence of that kind; a text is none."""
    if (
        not isinstance(values, Sequence)
        or isinstance(values, str | bytes)
        or not all(isinstance(one, kind) for one in values)
    ):
        raise InvalidInput(field, values, allowed)


def check_memory(
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
    check_sequence("tags", tags, str, "a sequence of tags, each a text")
    check_sequence("derived_from", parents, int, "ids of examples of this scope")
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
    check_texts(**given)
    for when, those in scores.items():
        if not isinstance(those, Mapping):
            raise InvalidInput(f"example.{when}", those, "a mapping of scores")
        for name, value in those.items():
            if not isinstance(value, int | float) or not isfinite(value):
                raise InvalidInput(f"example.{when}[{name!r}]", value, "a finite number")
