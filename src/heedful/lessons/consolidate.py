"""Consolidation: which lessons say the same and may become one, and which must not.

`propose` compares lessons by their vectors or words. A pair that is near enough is merged, unless a
veto holds it apart: another kind, trust or scope of meaning. `first_difference` finds differences
that likeness does not see: numbers, negations, names, and one word in the place of another.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil
from typing import Any, Literal

from heedful.lessons.lesson import Trust
from heedful.lessons.signature import split_assertions
from heedful.lessons.trust import HELD
from heedful.lessons.words import words
from heedful.loop.stop import decisive_tokens

Difference = Literal["", "digits", "negation", "names", "wording"]
# Numbers in words, and words that negate beside those of `heedful.loop.stop`.
_NUMBERS = frozenset(
    "two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty sixty"
    " hundred thousand million billion half twice triple thrice third fourth".split()
)
_NEGATES = frozenset("avoid unless except hardly seldom rarely".split())
# Pairs of words that reverse a sentence when one replaces the other.
_PAIRS = tuple(
    tuple(pair.split("/"))
    for pair in (
        "before/after above/below less/more fewer/more least/most max/min maximum/minimum"
        " maximise/minimise maximize/minimize increase/decrease increment/decrement"
        " ascending/descending odd/even left/right true/false yes/no include/exclude"
        " included/excluded inclusive/exclusive enable/disable enabled/disabled allow/deny"
        " allow/forbid allowed/denied allowed/forbidden greater/smaller greater/less"
        " larger/smaller higher/lower upper/lower uppercase/lowercase add/remove"
        " positive/negative earlier/later older/younger inside/outside all/any all/none"
        " all/some first/last start/end open/close always/sometimes always/never with/without"
    ).split()
)
_TURNING = frozenset(word for pair in _PAIRS for word in pair)
# How many texts are cached: each is compared with many others.
CACHED = 8_192
_WORD = re.compile(r"[^\W_]+(?:['’]t\b)?")
# Words that are capitalised at the start of sentences; other capitalised words are names.
_BEGIN = frozenset(
    "a an the i i'm i've i'd i'll in on at to if my it its this that these those then there"
    " when where while instead however moving upon additionally finally therefore by for as we"
    " you he she they his her their our your and but or so also next first since because after"
    " before with from what who which why how once given all any each no not never do don't"
    " always is was be of".split()
)
_QUOTED = re.compile(r"[\"“`]([^\"”`\n]{1,100})[\"”`]|(?<!\w)'([^'\n]{1,100})'(?!\w)")
_NAME = re.compile(
    r"((?:\w+[_./\\:])+\w+|\w+(?=\()|\b[b-z]\b(?!['’]))"  # identifiers, paths, calls, variables
    r"|\b([A-Z][\w'’-]*)"
)
_HYPHEN = re.compile(r"(?<=[^\W\d_])[-/](?=[^\W\d_])")  # of a word, no operator
# At most so many words that replace at most so many others change the meaning; more are another
# turn of phrase. Where words are not spaced, two characters are three words.
_SPAN = 2
_DENSE = 6
_ASSERTS = re.compile(r"\bassert\b|AssertionError")


@lru_cache(CACHED)
def has_assertion(error_type: str, text: str) -> bool:
    """Return True if a text has an assertion, whose expectation is its name: it is never merged."""
    said = f"{error_type} {text}"
    return bool(_ASSERTS.search(said)) or any(one for _, one in split_assertions(error_type, text))


@lru_cache(CACHED)
def weights_of(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a text's digits, operators and then numbers in words; and its negations; in order."""
    digits: list[str] = []
    negations: list[str] = []
    for token in decisive_tokens(_HYPHEN.sub(" ", text)):
        negates = token[0].isalpha() and not any(c.isdigit() for c in token)
        (negations if negates else digits).append(token.lower())
    said = _lower_words(text)
    digits += [word for word in said if word in _NUMBERS]
    negations += [word for word in said if word in _NEGATES]
    return tuple(digits), tuple(negations)


def has_opposites(one: str, other: str) -> bool:
    """Return True if the other text has the opposite of a word of the first."""
    a, b = _turns(one), _turns(other)
    return any((a[x] > b[x] and b[y] > a[y]) or (b[x] > a[x] and a[y] > b[y]) for x, y in _PAIRS)


@lru_cache(CACHED)
def _turns(text: str) -> Counter[str]:
    return Counter(word for word in _lower_words(text) if word in _TURNING)


def names_of(text: str) -> frozenset[str]:
    """Return what a text is about: its quoted texts, identifiers and capitalised words."""
    return frozenset(quoted(text)) | frozenset(_names(text))


@lru_cache(CACHED)
def quoted(text: str) -> tuple[str, ...]:
    """Return what a text quotes, in order of first occurrence."""
    said = ("".join(match).strip(" .,;:!?").lower() for match in _QUOTED.findall(text))
    return tuple(dict.fromkeys(filter(None, said)))


@lru_cache(CACHED)
def _names(text: str) -> tuple[str, ...]:
    """Return identifiers and capitalised words, in order of first occurrence."""
    found = []
    for identifier, name in _NAME.findall(_QUOTED.sub(" ", text)):
        name = name.lower().removesuffix("'s").removesuffix("’s")
        found += [identifier.lower()] if identifier else [name] * (name not in _BEGIN)
    return tuple(dict.fromkeys(found))


def first_difference(one: str, other: str) -> Difference:
    """Return the first kind of difference between two texts; "" if they may say the same.

    "wording" means that at one place up to two words replace up to two others: nobody can tell what
    they mean. More words are a turn of phrase, and words left out are brevity.

    >>> first_difference("Retry 3 times", "Retry 5 times")
    'digits'
    >>> first_difference("Use metres", "Use feet")
    'wording'
    >>> first_difference("Always quote the id of the order.", "Always quote the order id of it.")
    ''
    """
    (digits, negations), (others, other_negations) = weights_of(one), weights_of(other)
    if digits != others:
        return "digits"
    if negations != other_negations or has_opposites(one, other):
        return "negation"
    if not _same_names(one, other):
        return "names"
    return "wording" if _words_replaced(one, other) else ""


def contradicts(one: str, other: str, least: float = 0.9) -> bool:
    """Return True if two texts differ only in negations, opposites or numbers.

    They name the same things, and the Dice similarity of all other words is at least `least`. A
    number that only one of them gives is not a contradiction.
    """
    a, b = _rest(one), _rest(other)
    if 2 * (a & b).total() < least * (a.total() + b.total()) or names_of(one) != names_of(other):
        return False
    (digits, negations), (others, other_negations) = weights_of(one), weights_of(other)
    if digits != others:
        return len(digits) == len(others)
    return negations != other_negations or has_opposites(one, other)


@lru_cache(CACHED)
def _rest(text: str) -> Counter[str]:
    digits, negations = weights_of(text)
    weighed = {*digits, *negations}
    return Counter(w for w in _lower_words(text) if w not in weighed and w not in _TURNING)


def _same_names(one: str, other: str) -> bool:
    """Return True if both quote the same, and have the same names in the same order.

    A name of one may be any word of the other.
    """
    names, others = _names(one), _names(other)
    both = set(names) & set(others)
    return (
        quoted(one) == quoted(other)
        and [name for name in names if name in both] == [name for name in others if name in both]
        and _has_names(names, other)
        and _has_names(others, one)
    )


def names_only(text: str, others: Sequence[str]) -> bool:
    """Return True if each of the others has all that a text names and quotes."""
    names = (*_names(text), *quoted(text))
    return all(_has_names(names, other) for other in others)


def _has_names(names: Sequence[str], text: str) -> bool:
    there = f" {' '.join(_lower_words(text))} "
    return all(f" {' '.join(_lower_words(name))} " in there for name in names)


def _lower_words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _words_replaced(one: str, other: str) -> bool:
    a, b = words(one), words(other)
    most = _SPAN if one.isascii() and other.isascii() else _DENSE
    from difflib import SequenceMatcher  # 0.4 MB, which a memory can do without

    matched = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return any(
        tag == "replace" and i2 - i1 <= most and j2 - j1 <= most for tag, i1, i2, j1, j2 in matched
    )


Mode = Literal["lite", "full"]
Action = Literal["merge", "generalise", "retire", "contradict"]
MODES: tuple[Mode, ...] = ("lite", "full")
# From this cosine of all-MiniLM-L6-v2 on, two lessons with the same particulars say the same: of
# 815 recorded reflections 35 pairs are above 0.95 and all say the same; of the 10 pairs from 0.90
# to 0.95 three give other reasons. Without vectors, the Dice similarity of their words.
SAME = 0.95
SAME_WORDS = 0.9
# From here on, and for groups of at least this size, a model may find what they have in common.
ALIKE = 0.85
ALIKE_WORDS = 0.8
GROUP = 3
# A periodic run looks at lessons seen in the last `LOOKBACK` seconds, of this importance, and needs
# at least so many of them.
LOOKBACK = 86_400.0
IMPORTANT = 0.6
LEAST = 3
# Retirement is proposed for lessons less important, seen once, never shown, and older (seconds).
UNIMPORTANT = 0.3
OLD = 30 * 86_400.0
# How many vetoed pairs and contradictions are reported; how many contradictions are collected
# before those that a merge resolves are dropped; how many numbers are compared at a time.
REPORTED = 100
MOST_AGAINST = 1_000
PART = 2**20
ROUNDING = 1e-9
DREAM = "dream"  # the source of texts that consolidation wrote
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
    """A lesson as consolidation reads it; times are in seconds since 1970."""

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
        """Kind and signature, by which the lesson is still named when its row is gone."""
        return f"{self.kind}/{self.signature}"

    @property
    def evidence(self) -> tuple[Any, ...]:
        """A sort key with the best lesson first; texts that consolidation wrote come last."""
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
    """A proposed change of lessons, by their ids: the `survivor` supersedes the `members`.

    "retire" and "contradict" only report their members to a person. The survivor of "generalise"
    has the new `text`; its id is 0 until it is written. `outcome` is "done", "proposed" (after a
    dry run), "for a person", or the reason why nothing was done.
    """

    action: Action
    members: tuple[int, ...]
    survivor: int = 0
    why: str = ""
    outcome: str = "proposed"
    text: str = ""


@dataclass(frozen=True, slots=True)
class Proposed:
    """What consolidation found: proposals, how many near pairs each veto held apart, some of them.

    `vetoed` lists pairs of ids with their veto. `groups` may be generalised. `nothing` is the
    reason why there is nothing to do, or "".
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
    """Propose merges and retirements and report contradictions; with `groups`, generalisations.

    `vectors` have length 1, one for each lesson; without them words are compared. The order of the
    lessons does not matter.
    """
    order = sorted(range(len(lessons)), key=lambda at: lessons[at].name)
    lessons = [lessons[at] for at in order]
    vectors = None if vectors is None else [vectors[at] for at in order]
    chosen = {one.id for one in lessons if mode == "lite" or _fresh(one, now)}
    if nothing := _too_few(lessons, chosen, mode):
        return Proposed(propose_retirement(lessons, now), nothing=nothing)
    least = SAME_WORDS if vectors is None else SAME
    found = _Found(groups)
    for a, b, score in near_words(lessons) if vectors is None else near_vectors(vectors):
        if chosen & {lessons[a].id, lessons[b].id}:
            found.judge(lessons, a, b, score >= least)
    merges = tuple(_merges(lessons, found.near))
    gone = {id for one in merges for id in one.members}
    against = [one for one in found.against if not gone.intersection(one.members)]
    return Proposed(
        (*merges, *against[:REPORTED], *propose_retirement(lessons, now)),
        dict(sorted(found.vetoes.items())),
        tuple(found.vetoed),
        tuple(_groups(lessons, found.alike, gone | {one.survivor for one in merges})),
        "" if merges else _none(found.vetoes),
    )


@dataclass(slots=True)
class _Found:
    """The near pairs: lessons that may become one, lessons that are only alike, and vetoes."""

    groups: bool
    near: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    alike: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    vetoes: Counter[str] = field(default_factory=Counter)
    vetoed: list[tuple[int, int, str]] = field(default_factory=list)
    against: list[Proposal] = field(default_factory=list)

    def judge(self, lessons: Sequence[Lesson], a: int, b: int, same: bool) -> None:
        """Sort a pair, which is near enough to say the same or only alike."""
        one, other = lessons[a], lessons[b]
        why = veto(one, other)
        if same and why:
            self.vetoes[why] += 1
            if len(self.vetoed) < REPORTED:
                self.vetoed.append((one.id, other.id, why))
        elif same:
            self.near[a].add(b)
            self.near[b].add(a)
        turns = why in ("digits", "negation") and len(self.against) < MOST_AGAINST
        if turns and contradicts(one.text, other.text):
            self.against.append(_contradiction(one, other, why))
        if (
            self.groups
            and why in ("", "names", "wording")
            and DREAM not in (one.source, other.source)
        ):
            self.alike[a].add(b)
            self.alike[b].add(a)


def _fresh(one: Lesson, now: float) -> bool:
    """Return True for lessons seen lately and important, except those that consolidation wrote."""
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
    """Return why two lessons may not become one, a key of `VETOES`; "" if they may."""
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
    if has_assertion(one.error_type, one.text) or has_assertion(other.error_type, other.text):
        return "assertion"
    return first_difference(one.text, other.text)


def near_vectors(vectors: Sequence[Sequence[float]]) -> Iterator[tuple[int, int, float]]:
    """Yield pairs of rows with a cosine of at least `ALIKE`, in order: (first, second, cosine)."""
    import numpy as np

    matrix = np.asarray(vectors, dtype="<f4")
    step = max(1, PART // max(1, len(matrix)))
    for start in range(0, len(matrix), step):
        likeness = matrix[start : start + step] @ matrix[start:].T
        rows, columns = np.nonzero(np.triu(likeness, k=1) >= ALIKE)
        for a, b in zip(rows.tolist(), columns.tolist(), strict=True):
            yield start + a, start + b, float(likeness[a, b])


def near_words(lessons: Sequence[Lesson]) -> Iterator[tuple[int, int, float]]:
    """Yield pairs whose sets of words have a Dice similarity of at least `ALIKE_WORDS`.

    Two such sets share one of the rarest words of each, so only a prefix of n words is indexed: all
    but the n·t/(2 − t) commonest, and one more (Chaudhuri and others, 2006).
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
    """Merge each best lesson with those near it that are free: all are near the survivor itself."""
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
    """Yield the best lesson by evidence with all that are near it, then the best of the rest."""
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


def propose_retirement(lessons: Iterable[Lesson], now: float) -> tuple[Proposal, ...]:
    """Propose to retire lessons of little importance that are old, seen once and never shown."""
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


def find_regressions(
    became: Mapping[str, tuple[int, str]],
    before: Mapping[str, Sequence[str]],
    after: Mapping[str, Sequence[str]],
) -> dict[int, str]:
    """Return the proposals that make recall worse, by index, each with a query that shows it.

    `before` and `after` hold the names of the lessons that each stored query finds, best first, at
    most five, each once. `became` maps the name of each member to its proposal and its survivor: a
    query that found the member must find the survivor, and no further down.
    """
    found: dict[int, str] = {}
    for query, ranked in before.items():
        now = after[query]
        for rank, name in enumerate(ranked):
            at, survivor = became.get(name, (-1, ""))
            if at >= 0 and at not in found and survivor not in now[: rank + 1]:
                found[at] = query
    return found
