"""Trust: where a text came from, in which state it starts, and what may raise its trust.

Code stamps trust by the origin of a text, never by what the text says. A text derived from others
has the lowest trust of its sources. Only an operator or a measured outcome raises trust. Texts of
tools and from outside are quarantined until somebody releases them.

The second half checks what a caller hands to memory: an InvalidInput names the argument, its value
and what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from typing import Any, Literal

from heedful.errors import InvalidInput
from heedful.lessons.lesson import Example, Reflection, State, Trust, clip
from heedful.loop.record import LARGEST_INTEGER, check_integer, check_share

Action = Literal["release", "reject"]
# Each is trusted more than the next. An operator answers for the text, "measured" is an outcome of
# an own loop, "external" is a document, an end user or an import.
ORDER: tuple[Trust, ...] = ("operator", "measured", "model", "tool", "external")
RAISING = frozenset(ORDER[:2])
HELD = frozenset(ORDER[3:])
# What quarantine keeps of a lesson's tags: characters of each, and how many.
LONGEST_TAG = 200
TAGS = 20


@dataclass(frozen=True, slots=True)
class Quota:
    """How much one quarantined source may have in a scope: each limit is at least 1.

    `entries` limits what waits in quarantine, `sightings` how many are stored with their text.
    """

    entries: int = 1_000
    sightings: int = 10_000

    def __post_init__(self) -> None:
        for name, value in (("entries", self.entries), ("sightings", self.sightings)):
            if not isinstance(value, int) or value < 1:
                raise InvalidInput(f"quota.{name}", value, "an integer of at least 1")


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
        if trust not in ORDER:
            raise InvalidInput("trust", trust, f"one of {', '.join(ORDER)}")
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


LONGEST_SOURCE = 500  # characters
_TEXTS = ("task", "accepted", "rejected", "wrong", "evidence", "context")


def check_id(id: object) -> None:
    """Raise InvalidInput unless a store could hold this id."""
    if isinstance(id, bool) or not isinstance(id, int) or abs(id) > LARGEST_INTEGER:
        raise InvalidInput("id", id, "an id, an integer below 2**63")


def check_texts(**arguments: object) -> None:
    """Raise InvalidInput unless every argument is a text."""
    for name, value in arguments.items():
        if not isinstance(value, str):
            raise InvalidInput(name, value, "a text")


def check_sequence(field: str, values: object, kind: type, allowed: str) -> None:
    """Raise InvalidInput unless `values` is a sequence of that kind; a text is not one."""
    text = isinstance(values, str | bytes)
    if text or not isinstance(values, Sequence) or not all(isinstance(v, kind) for v in values):
        raise InvalidInput(field, values, allowed)


def check_source(source: str) -> str:
    """Return the name of a source. Raises InvalidInput."""
    if not isinstance(source, str) or len(source) > LONGEST_SOURCE:
        allowed = f"a name of at most {LONGEST_SOURCE} characters"
        raise InvalidInput("source", source, allowed)
    return source


def check_actor(by: object, why: object) -> None:
    """Raise InvalidInput unless somebody answers for a decision."""
    if not isinstance(by, str) or not by.strip():
        raise InvalidInput("by", by, "the name of who decides")
    check_texts(why=why)


def check_digests(digests: Sequence[object]) -> None:
    """Raise InvalidInput unless there is a digest, and all are texts."""
    if not digests or not all(isinstance(digest, str) for digest in digests):
        raise InvalidInput("digests", digests, "signatures of lessons, at least one")


def check_bounds(holdout: object, max_entries: object, quota: object) -> None:
    """Raise InvalidInput for bounds that no memory can have."""
    if not isinstance(holdout, int | float) or not 0 <= holdout < 1:
        raise InvalidInput("holdout", holdout, "a share of at least 0 and below 1")
    if max_entries is not None:
        check_integer("max_entries", max_entries, 1, ", or None")
    if quota is not None and not isinstance(quota, Quota):
        raise InvalidInput("quota", quota, "a Quota, or None")


def check_prune(unused_for: object, keep: object, by: object) -> None:
    """Raise InvalidInput unless it is said what to prune, and who answers for it."""
    check_actor(by, "")
    if unused_for is None and keep is None:
        raise InvalidInput("prune", None, "given unused_for, keep, or both")
    if unused_for is not None and not (
        isinstance(unused_for, int | float) and 0 < unused_for < float("inf")
    ):
        raise InvalidInput("unused_for", unused_for, "a number of seconds above 0")
    if keep is not None:
        check_integer("keep", keep, 0)


def check_memory(
    text: str,
    trust: str,
    importance: object,
    tags: object,
    example: Example | None,
    parents: object,
    pinned: object,
) -> None:
    """Raise InvalidInput for arguments of `Memory.remember` that cannot be stored."""
    if not text.strip():
        raise InvalidInput("text", text, "the text of an error")
    if trust not in ORDER:
        raise InvalidInput("trust", trust, f"one of {', '.join(ORDER)}")
    check_share("importance", importance)
    check_sequence("tags", tags, str, "a sequence of tags, each a text")
    check_sequence("derived_from", parents, int, "ids of examples of this scope")
    if not isinstance(pinned, bool) or (pinned and trust != "operator"):
        raise InvalidInput("pinned", pinned, "False unless trust is operator")
    if example is not None:
        _check_example(example)


def _check_example(example: Example) -> None:
    try:
        values = {f"example.{name}": getattr(example, name) for name in _TEXTS}
        scores = {"before": example.before, "after": example.after}
    except AttributeError:
        raise InvalidInput("example", example, "an Example, or None") from None
    check_texts(**values)
    for when, named in scores.items():
        if not isinstance(named, Mapping):
            raise InvalidInput(f"example.{when}", named, "a mapping of scores")
        for name, value in named.items():
            if not isinstance(value, int | float) or not isfinite(value):
                raise InvalidInput(f"example.{when}[{name!r}]", value, "a finite number")
