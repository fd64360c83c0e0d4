"""The records of memory: what is written down of an error, and what a search brings back.

A `Reflection` is one lesson as it is written, with one `Example`. Its `Signature` names the error:
lessons with the same pattern are one lesson with several examples. A `Match` is an example that a
search found. Everything belongs to a `Scope`. The `check_` functions raise InvalidInput for what a
caller hands to memory; the error names the argument, its value and what is allowed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

from heedful.errors import InvalidInput
from heedful.lessons.words import Difference, difference
from heedful.loop.record import (
    LARGEST,
    LARGEST_INTEGER,
    check_integer,
    check_number,
    check_share,
    thousandths,
)
from heedful.redact import redact

Trust = Literal["operator", "measured", "model", "tool", "external"]
State = Literal["candidate", "verified", "quarantined", "retired", "superseded"]
# Each is trusted more than the next. An operator answers for the text, "measured" is an outcome of
# an own loop, "external" is a document, an end user or an import.
ORDER: tuple[Trust, ...] = ("operator", "measured", "model", "tool", "external")
KINDS = ("check", "error", "example", "reflection", "strategy")
# Characters kept of one text of an example: a longer one does not fit into a prompt.
LONGEST = 4_000


def clip(text: str) -> str:
    """The first `LONGEST` characters of a text without its secrets.

    Secrets are redacted first: half of one would not be recognised.
    """
    return redact(text)[:LONGEST]


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose memory and loops: a tenant and one of its projects. Nothing crosses a scope."""

    tenant: str = "default"
    project: str = "default"

    def __post_init__(self) -> None:
        for name in ("tenant", "project"):
            value = getattr(self, name)
            if not value or len(value) > 200 or not value.isprintable():
                raise InvalidInput(name, value, "1 to 200 printable characters")
            if value != redact(value):
                raise InvalidInput(name, value, "a name without a secret: it is stored as it is")


@dataclass(frozen=True, slots=True)
class Signature:
    """The name of an error.

    `exact` is the first 16 hex digits of SHA-256 over `type:text`, lower-cased and stripped;
    `pattern` is the text with its particulars masked; `digest` is the first 16 hex digits of
    SHA-256 over type and pattern.
    """

    exact: str
    pattern: str
    digest: str
    error_type: str = field(default="", compare=False)


def short_digest(text: str) -> str:
    """The first 16 hex digits of SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def digest_of(error_type: str, pattern: str) -> str:
    """The digest of a pattern, which is the identity of its lesson."""
    return short_digest(f"{error_type}\0{pattern}")


@dataclass(frozen=True, slots=True)
class Example:
    """A task, its rejected output, what was wrong with that, and the accepted output.

    `rejected` and `wrong` are empty where the first try was accepted. `before` and `after` are the
    scores of the two outputs, `evidence` is what the check rests on, `context` surrounded the task.
    """

    task: str
    accepted: str
    rejected: str = ""
    wrong: str = ""
    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)
    evidence: str = ""
    context: str = ""

    @property
    def deltas(self) -> dict[str, float]:
        """After minus before, exact to thousandths, for each score that both outputs have."""
        before, after = self.before, self.after
        names = sorted(before.keys() & after.keys())
        return {n: (thousandths(after[n]) - thousandths(before[n])) / 1000 for n in names}

    @property
    def difference(self) -> Difference | None:
        """The smallest change from the rejected to the accepted output; None without a rejected."""
        return difference(self.rejected, self.accepted) if self.rejected else None

    @property
    def digest(self) -> str:
        """The digest of task and accepted output, which tells examples of one lesson apart."""
        return short_digest(f"{self.task}\0{self.accepted}")


@dataclass(frozen=True, slots=True)
class Reflection:
    """A lesson as it is written: its signature, text, trust and state, and one example.

    `kind` is "check" for a finding that was corrected, "example" for an accepted first try, "error"
    for an error that a caller remembered, "reflection" and "strategy" for lessons of an episode.
    `sighting` is the exact text of this occurrence. A search also reads `context`. `vector` is the
    embedding of the example's task, or of the text without an example, in the space `space`.
    `source` names where the text came from, `parents` are the ids of examples that it derives from,
    `meta` holds further facts as JSON data.
    """

    kind: str
    signature: Signature
    error_type: str
    text: str
    sighting: str
    loop: str = ""
    example: Example | None = None
    state: State = "candidate"
    trust: Trust = "measured"
    importance: float = 0.5
    tags: tuple[str, ...] = ()
    space: str = ""
    vector: Sequence[float] | None = None
    context: str = ""
    source: str = ""
    parents: tuple[int, ...] = ()
    pinned: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Remembered:
    """The answer of an upsert: the lesson's id, whether it is new, and how often it was seen.

    `seen` counts this pattern only; `Memory.seen` counts its whole group. All three are 0 if a new
    lesson was not kept because memory is full of lessons that are pinned or worth more.
    """

    id: int
    created: bool
    seen: int


@dataclass(frozen=True, slots=True)
class Filter:
    """Which lessons a search may bring; a field left at its default allows all.

    A lesson needs any of `tags`, or all of them with `match="all"`. `importance` is the minimum,
    0..1; `since` is the earliest time of storage, in seconds since 1970. Raises InvalidInput.
    """

    tags: tuple[str, ...] = ()
    match: Literal["any", "all"] = "any"
    kind: str = ""
    error_type: str = ""
    importance: float = 0.0
    since: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.tags, str) or not all(isinstance(t, str) and t for t in self.tags):
            raise InvalidInput("tags", self.tags, "a sequence of tags, each a text")
        if self.match not in ("any", "all"):
            raise InvalidInput("match", self.match, "any or all")
        if self.kind not in ("", *KINDS):
            raise InvalidInput("kind", self.kind, f"one of {', '.join(KINDS)}")
        if not isinstance(self.error_type, str):
            raise InvalidInput("error_type", self.error_type, "the type of an error, a text")
        check_share("importance", self.importance)
        check_number("since", self.since, 0, LARGEST)


ANY = Filter()


@dataclass(frozen=True, slots=True)
class Match:
    """An example that a search found, or a lesson without one: then its text stands as the task.

    `cosine` is that of the vectors (-1..1, None without vectors); `keyword` is its BM25 as a share
    of the best (0..1, None if full text did not find it); `coverage` is the share of the query's
    words that it has, rare words weighing more (0..1); `overlap` is the cosine of the two sets of
    words (0..1, set by `rank`). `seen` counts the sightings of its lesson, `lesson` is the lesson's
    text and `signature` the digest of its pattern. `at` is when the example was stored, in seconds
    since 1970. `useful` is the factor by which proven usefulness changes its rank.
    """

    id: int
    reflection: int
    example: Example
    kind: str
    verified: bool
    seen: int
    importance: float
    at: float
    cosine: float | None = None
    keyword: float | None = None
    coverage: float = 0.0
    overlap: float = 0.0
    error_type: str = ""
    lesson: str = ""
    tags: tuple[str, ...] = ()
    signature: str = ""
    useful: float = 1.0


@dataclass(frozen=True, slots=True)
class LessonFilter:
    """Which lessons a listing shows; a field left at its default allows all.

    Only lessons with an id below `before` are listed: pass the last id of a page to get the next.
    """

    kind: str = ""
    error_type: str = ""
    tag: str = ""
    state: str = ""
    before: int = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Change:
    """What an operator changes of a lesson; None and False leave a field as it is.

    `pinned` protects the lesson from eviction and pruning, `apart` keeps its pattern out of groups,
    `restored` brings it back after a proof retired it.
    """

    pinned: bool | None = None
    apart: bool | None = None
    restored: bool = False


LessonName = str | int
SHARE = 0.10  # the default probability of withholding a lesson


@dataclass(frozen=True, slots=True)
class Exposure:
    """Recall ranked a lesson into the prompt of a loop, and it was shown or withheld.

    `signature` is the digest of the lesson's error. `share` is the probability of withholding it, 0
    if the holdout was off. With `together`, one coin decided over all lessons of the loop.
    `examples` are the ids of its examples in the prompt.
    """

    lesson: LessonName
    loop: str
    shown: bool
    signature: str = ""
    share: float = SHARE
    together: bool = False
    examples: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a loop ended or was abandoned: whether its first attempt passed, and its model calls.

    `signatures` are the digests of the errors of its attempts.
    """

    loop: str
    right_at_once: bool
    calls: int
    signatures: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Past:
    """What a store knows of the exposures of one loop.

    `ended` counts the loops of the scope with exposures and an outcome; `number` is this loop's
    position among them, 0 if it has no outcome. `taught` is true if `remember` wrote its lessons,
    not its journal.
    """

    exposures: tuple[Exposure, ...] = ()
    ended: int = 0
    number: int = 0
    taught: bool = False


@dataclass(frozen=True, slots=True)
class Quota:
    """How much one quarantined source may have in a scope: each limit is at least 1.

    `entries` limits what waits in quarantine, `sightings` how many are stored with their text.
    """

    entries: int = 1_000
    sightings: int = 10_000

    def __post_init__(self) -> None:
        for name, value in (("entries", self.entries), ("sightings", self.sightings)):
            check_integer(f"quota.{name}", value)


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


def check_trust(trust: object) -> None:
    """Raise InvalidInput unless this is a level of trust."""
    if trust not in ORDER:
        raise InvalidInput("trust", trust, f"one of {', '.join(ORDER)}")


def check_sequence(field: str, values: object, kind: type, allowed: str) -> None:
    """Raise InvalidInput unless `values` is a sequence of `kind`; str and bytes are not allowed."""
    text = isinstance(values, str | bytes)
    if text or not isinstance(values, Sequence) or not all(isinstance(v, kind) for v in values):
        raise InvalidInput(field, values, allowed)


def check_source(source: str) -> str:
    """Return the name of a source. Raises InvalidInput."""
    if not isinstance(source, str) or len(source) > LONGEST_SOURCE:
        raise InvalidInput("source", source, f"a name of at most {LONGEST_SOURCE} characters")
    return source


def check_actor(by: object, why: object) -> None:
    """Raise InvalidInput unless somebody answers for a decision."""
    if not isinstance(by, str) or not by.strip():
        raise InvalidInput("by", by, "the name of who decides")
    check_texts(why=why)


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
    check_trust(trust)
    check_share("importance", importance)
    check_sequence("tags", tags, str, "a sequence of tags, each a text")
    check_sequence("derived_from", parents, int, "ids of examples of this scope")
    if not isinstance(pinned, bool) or (pinned and trust != "operator"):
        raise InvalidInput("pinned", pinned, "False unless trust is operator")
    if example is None:
        return
    if not isinstance(example, Example):
        raise InvalidInput("example", example, "an Example, or None")
    check_texts(**{f"example.{name}": getattr(example, name) for name in _TEXTS})
    for when, scores in (("before", example.before), ("after", example.after)):
        if not isinstance(scores, Mapping):
            raise InvalidInput(f"example.{when}", scores, "a mapping of scores")
        for name, value in scores.items():
            if not isinstance(value, int | float) or not isfinite(value):
                raise InvalidInput(f"example.{when}[{name!r}]", value, "a finite number")
