"""Many lessons -> fewer, better ones: what says the same, what may not be merged. Pure.

Nothing is merged that differs in kind, error type, trust, a number, a negation, a name or a word
that stands for another one; nor what is pinned, kept apart, asserts something or waits in
quarantine in part. Whether recall is any the worse for it, `worse` tells.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Literal

from heedful.memory.learn import Trust
from heedful.memory.particulars import assertive, difference, opposed
from heedful.memory.trust import HELD
from heedful.memory.words import words

Mode = Literal["lite", "full"]
Action = Literal["merge", "generalise", "retire", "contradict"]
MODES: tuple[Mode, ...] = ("lite", "full")

# From this cosine of all-MiniLM-L6-v2 on two lessons say the same, where their particulars are
# alike: of 815 recorded reflections 35 such pairs lie above 0.95, and say the same; of the 10 from
# 0.90 to 0.95 three give other reasons. Without vectors, the Dice similarity of their words.
SAME = 0.95
SAME_WORDS = 0.9
# From here on a model may find what a group has in common, and from so many lessons on.
ALIKE = 0.85
ALIKE_WORDS = 0.8
GROUP = 3
# The periodic run: what was met in so many seconds, of this importance, and so many of them.
LOOKBACK = 86_400.0
IMPORTANT = 0.6
LEAST = 3
# Retired is proposed for what matters less, was met once, shown never, and is as old (seconds).
UNIMPORTANT = 0.3
OLD = 30 * 86_400.0
# Of what is only told so many are kept, of contradictions before those are left out that a merge
# mends. Pairs are compared in parts of so many numbers.
TOLD = 100
MOST_AGAINST = 1_000
PART = 2**20
ROUNDING = 1e-9
DREAM = "dream"  # the source of what a dream itself wrote
VETOES: Mapping[str, str] = {
    "kind": "they are of two kinds",
    "error_type": "they are about two types of error",
    "trust": "one is trusted more than the other",
    "held": "part of one waits in quarantine",
    "apart": "one is kept apart",
    "pinned": "both are pinned",
    "assertion": "an assertion is named by what it expects",
    "digits": "their numbers differ",
    "negation": "one negates or turns round what the other says",
    "names": "they are about other names",
    "wording": "a word stands for another one",
}


@dataclass(frozen=True, slots=True)
class Lesson:
    """A lesson as a dream sees it; times are in seconds since 1970."""

    id: int
    kind: str
    signature: str
    error_type: str
    text: str
    state: str
    trust: Trust
    importance: float = 0.5
    pinned: bool = False
    apart: bool = False
    held: bool = False
    useful: float = 1.0
    seen: int = 1
    helped: int = 0
    hurt: int = 0
    source: str = ""
    author: int = 0
    first_seen: float = 0.0
    last_seen: float = 0.0
    last_shown: float = 0.0

    @property
    def name(self) -> str:
        """Kind and signature, which outlive its row."""
        return f"{self.kind}/{self.signature}"

    @property
    def evidence(self) -> tuple[Any, ...]:
        """By what the best of several is chosen, the best least: what a dream wrote comes last."""
        return (
            self.source == DREAM,
            not self.pinned,
            self.state != "verified",
            -self.useful,
            self.hurt - self.helped,
            -self.seen,
            -self.importance,
            -len(self.text),
            self.first_seen,
            self.name,
        )


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is to become of lessons, by ids: `members` are superseded by the `survivor`.

    Of "retire" and "contradict" the members are only told of, to a person. The survivor of
    "generalise" has the new `text`; it is 0 until it is written. `outcome` is "done", "proposed"
    (which a dry run ends with), "for a person", or why nothing came of it.
    """

    action: Action
    members: tuple[int, ...]
    survivor: int = 0
    why: str = ""
    outcome: str = "proposed"
    text: str = ""


@dataclass(frozen=True, slots=True)
class Proposed:
    """All that was found: proposals, how many near pairs each veto kept apart, and some of them.

    `vetoed` names pairs of ids with the veto. `groups` may be generalised. `nothing` says why there
    is nothing to do; "" where there is.
    """

    proposals: tuple[Proposal, ...] = ()
    vetoes: Mapping[str, int] = field(default_factory=dict)
    vetoed: tuple[tuple[int, int, str], ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    nothing: str = ""


def propose(
    lessons: Sequence[Lesson],
    vectors: Sequence[Sequence[float]] | None,
    mode: Mode,
    now: float,
    groups: bool = False,
) -> Proposed:
    """What may be merged, retired, and what contradicts; `groups` that may be generalised, too.

    `vectors` are of unit length, one a lesson; without them words are compared. The same for any
    order of the lessons.
    """
    order = sorted(range(len(lessons)), key=lambda at: lessons[at].name)
    lessons = [lessons[at] for at in order]
    vectors = None if vectors is None else [vectors[at] for at in order]
    chosen = {one.id for one in lessons if mode == "lite" or _fresh(one, now)}
    if nothing := _too_few(lessons, chosen, mode):
        return Proposed(retired(lessons, now), nothing=nothing)
    least = SAME_WORDS if vectors is None else SAME
    found = _Found(groups)
    for a, b, score in near_words(lessons) if vectors is None else near_vectors(vectors):
        if chosen & {lessons[a].id, lessons[b].id}:
            found.judge(lessons, a, b, score >= least)
    merges = tuple(_merges(lessons, found.near))
    gone = {id for one in merges for id in one.members}
    against = [one for one in found.against if not gone.intersection(one.members)]
    return Proposed(
        (*merges, *against[:TOLD], *retired(lessons, now)),
        dict(sorted(found.vetoes.items())),
        tuple(found.vetoed),
        tuple(_groups(lessons, found.alike, gone | {one.survivor for one in merges})),
        "" if merges else _none(found.vetoes),
    )


@dataclass(slots=True)
class _Found:
    """What comes of all near pairs: lessons that may be one, and those that are but alike."""

    groups: bool
    near: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    alike: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    vetoes: Counter[str] = field(default_factory=Counter)
    vetoed: list[tuple[int, int, str]] = field(default_factory=list)
    against: list[Proposal] = field(default_factory=list)

    def judge(self, lessons: Sequence[Lesson], a: int, b: int, same: bool) -> None:
        """What comes of one pair, which is near enough to say the same, or but alike."""
        one, other = lessons[a], lessons[b]
        why = veto(one, other)
        if same and why:
            self.vetoes[why] += 1
            if len(self.vetoed) < TOLD:
                self.vetoed.append((one.id, other.id, why))
        elif same:
            self.near[a].add(b)
            self.near[b].add(a)
        turns = why in ("digits", "negation") and len(self.against) < MOST_AGAINST
        if turns and opposed(one.text, other.text):
            self.against.append(_contradiction(one, other, why))
        if (
            self.groups
            and why in ("", "names", "wording")
            and DREAM not in (one.source, other.source)
        ):
            self.alike[a].add(b)
            self.alike[b].add(a)


def _fresh(one: Lesson, now: float) -> bool:
    """Met lately and important; what a dream wrote is no news."""
    return one.source != DREAM and one.importance >= IMPORTANT and now - one.last_seen <= LOOKBACK


def _too_few(lessons: Sequence[Lesson], chosen: Collection[int], mode: Mode) -> str:
    if len(lessons) < 2:
        return f"too few lessons: {len(lessons)}, and it takes two to merge"
    if mode == "full" and len(chosen) < LEAST:
        hours = LOOKBACK / 3600
        return (
            f"too few lessons of importance {IMPORTANT} or more were met in the last {hours:.0f} "
            f"hours: {len(chosen)}, and a periodic run needs {LEAST}"
        )
    return ""


def _none(vetoes: Mapping[str, int]) -> str:
    if not vetoes:
        return "no two lessons say the same"
    told = ", ".join(f"{VETOES[why]} ({n})" for why, n in sorted(vetoes.items()))
    return f"all pairs that are near each other were vetoed: {told}"


def veto(one: Lesson, other: Lesson) -> str:
    """Why two lessons may not become one, a key of `VETOES`; "" where they may."""
    if one.kind != other.kind:
        return "kind"
    if one.error_type != other.error_type:
        return "error_type"
    if one.trust != other.trust:
        return "trust"
    if one.held or other.held or one.trust in HELD:
        return "held"
    if one.apart or other.apart:
        return "apart"
    if one.pinned and other.pinned:
        return "pinned"
    if assertive(one.error_type, one.text) or assertive(other.error_type, other.text):
        return "assertion"
    return difference(one.text, other.text)


def near_vectors(vectors: Sequence[Sequence[float]]) -> Iterator[tuple[int, int, float]]:
    """Pairs of rows with a cosine of at least `ALIKE`, in order: (first, second, cosine)."""
    import numpy as np

    matrix = np.asarray(vectors, dtype="<f4")
    step = max(1, PART // max(1, len(matrix)))
    for start in range(0, len(matrix), step):
        likeness = matrix[start : start + step] @ matrix[start:].T
        rows, columns = np.nonzero(np.triu(likeness, k=1) >= ALIKE)
        for a, b in zip(rows.tolist(), columns.tolist(), strict=True):
            yield start + a, start + b, float(likeness[a, b])


def near_words(lessons: Sequence[Lesson]) -> Iterator[tuple[int, int, float]]:
    """Pairs with a Dice similarity of their sets of words of at least `ALIKE_WORDS`.

    Two sets that near share one of the rarest words of each, of which only a prefix is indexed: of
    n words all but the n·t/(2 − t) commonest and one (Chaudhuri and others, 2006).
    """
    said = [frozenset(words(one.text)) for one in lessons]
    counts = Counter(word for those in said for word in those)
    index: dict[str, list[int]] = defaultdict(list)
    for b, those in enumerate(said):
        rare = sorted(those, key=lambda word: (counts[word], word))
        keep = len(rare) - ceil(len(rare) * ALIKE_WORDS / (2 - ALIKE_WORDS) - ROUNDING) + 1
        for a in sorted({a for word in rare[:keep] for a in index[word]}):
            score = 2 * len(said[a] & those) / (len(said[a]) + len(those))
            if score >= ALIKE_WORDS:
                yield a, b, score
        for word in rare[:keep]:
            index[word].append(b)


def _merges(lessons: Sequence[Lesson], near: Mapping[int, Collection[int]]) -> Iterator[Proposal]:
    """Each best lesson with those near it that are free: all are near the very survivor."""
    for best, members in _stars(lessons, near, set()):
        others = [at for at in members if not lessons[at].pinned]
        if others:
            ids = tuple(lessons[at].id for at in others)
            yield Proposal("merge", ids, lessons[best].id, "they say the same")


def _groups(
    lessons: Sequence[Lesson], alike: Mapping[int, Collection[int]], taken: Collection[int]
) -> Iterator[tuple[int, ...]]:
    free = {at for at, one in enumerate(lessons) if one.id in taken or one.pinned}
    for best, members in _stars(lessons, alike, free):
        if len(members) + 1 >= GROUP:
            yield tuple(lessons[at].id for at in (best, *members))


def _stars(
    lessons: Sequence[Lesson], near: Mapping[int, Collection[int]], gone: set[int]
) -> Iterator[tuple[int, list[int]]]:
    """The best lesson by evidence with all that are near it, then the best of the rest."""
    for best in sorted(near, key=lambda at: lessons[at].evidence):
        if best in gone:
            continue
        members = sorted(set(near[best]) - gone, key=lambda at: lessons[at].evidence)
        if members:
            gone |= {best, *members}
            yield best, members


def _contradiction(one: Lesson, other: Lesson, why: str) -> Proposal:
    told = f"{VETOES[why]}, and all else is the same"
    return Proposal("contradict", (one.id, other.id), 0, told, "for a person")


def retired(lessons: Iterable[Lesson], now: float) -> tuple[Proposal, ...]:
    """One proposal with what may go: of little importance, old, met once and never shown."""
    ids = tuple(
        one.id
        for one in lessons
        if one.importance < UNIMPORTANT
        and not one.pinned
        and one.state != "verified"
        and one.useful <= 1
        and one.seen <= 1
        and not one.last_shown
        and now - one.last_seen > OLD
    )
    age = f"older than {OLD / 86_400:.0f} days"
    why = f"importance below {UNIMPORTANT}, met once, never shown, and {age}"
    return (Proposal("retire", ids, 0, why, "for a person"),) if ids else ()


def worse(
    became: Mapping[str, tuple[int, str]],
    before: Mapping[str, Sequence[str]],
    after: Mapping[str, Sequence[str]],
) -> dict[int, str]:
    """Which proposals make recall worse, by their place, each with a query that says so.

    `before` and `after` have the names of the lessons that each stored query finds, the best first,
    five at most, each once. `became` tells by the name of each member its proposal and what takes
    its place: where a query found the member it must find that, and no further down.
    """
    found: dict[int, str] = {}
    for query, ranked in before.items():
        now = after[query]
        for rank, name in enumerate(ranked):
            at, survivor = became.get(name, (-1, ""))
            if at >= 0 and at not in found and survivor not in now[: rank + 1]:
                found[at] = query
    return found
