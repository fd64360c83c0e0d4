"""What two texts that say the same have alike: numbers, negations, names, word for word. Pure.

Many lessons -> fewer, better ones: what says the same, what may not be merged. Pure.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache
from math import ceil
from typing import Any, Literal

from heedful.lessons.lesson import Trust
from heedful.lessons.signature import split_assertions
from heedful.lessons.trust import HELD
from heedful.lessons.words import words
from heedful.loop.stop import decisive_tokens

Difference = Literal["", "digits", "negation", "names", "wording"]
# Numbers in words, and what negates beside the negations that every text is read for.
_NUMBERS = frozenset(
    "two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty sixty"
    " hundred thousand million billion half twice triple thrice third fourth".split()
)
_NEGATES = frozenset("avoid unless except hardly seldom rarely".split())
# Words of which one in the place of the other turns a sentence round.
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
# What is read of so many texts is kept, since each is compared with many others.
KEPT = 8_192
_WORD = re.compile(r"[^\W_]+(?:['’]t\b)?")
# Capitalised, but at the beginning of most sentences; a name is whatever else is.
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
# So many words that stand for so many others are other words, not another turn of phrase. Where
# words are not spaced, two characters are three words.
_SPAN = 2
_DENSE = 6
_ASSERTS = re.compile(r"\bassert\b|AssertionError")


@lru_cache(KEPT)
def has_assertion(error_type: str, text: str) -> bool:
    """Whether a text has an assertion in it: what that expects is its name, never merged."""
    said = f"{error_type} {text}"
    return bool(_ASSERTS.search(said)) or any(one for _, one in split_assertions(error_type, text))


@lru_cache(KEPT)
def weights_of(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Its digits and operators, numbers in words behind them; and its negations; each in order."""
    digits: list[str] = []
    negations: list[str] = []
    for token in decisive_tokens(_HYPHEN.sub(" ", text)):
        negates = token[0].isalpha() and not any(c.isdigit() for c in token)
        (negations if negates else digits).append(token.lower())
    said = _said(text)
    digits += [word for word in said if word in _NUMBERS]
    negations += [word for word in said if word in _NEGATES]
    return tuple(digits), tuple(negations)


def has_opposites(one: str, other: str) -> bool:
    """Whether a word of one text stands in the other as its opposite."""
    a, b = _turns(one), _turns(other)
    return any((a[x] > b[x] and b[y] > a[y]) or (b[x] > a[x] and a[y] > b[y]) for x, y in _PAIRS)


@lru_cache(KEPT)
def _turns(text: str) -> Counter[str]:
    return Counter(word for word in _said(text) if word in _TURNING)


def names_of(text: str) -> frozenset[str]:
    """Whom and what a text is about: quoted texts, identifiers, capitalised words."""
    return frozenset(quoted(text)) | frozenset(_names(text))


@lru_cache(KEPT)
def quoted(text: str) -> tuple[str, ...]:
    """What it quotes, in the order in which that first comes."""
    said = ("".join(match).strip(" .,;:!?").lower() for match in _QUOTED.findall(text))
    return tuple(dict.fromkeys(filter(None, said)))


@lru_cache(KEPT)
def _names(text: str) -> tuple[str, ...]:
    """Identifiers and capitalised words, in the order in which they first come."""
    found = []
    for identifier, name in _NAME.findall(_QUOTED.sub(" ", text)):
        name = name.lower().removesuffix("'s").removesuffix("’s")
        found += [identifier.lower()] if identifier else [name] * (name not in _BEGIN)
    return tuple(dict.fromkeys(found))


def first_difference(one: str, other: str) -> Difference:
    """The first of these in which two texts differ; "" where they may say the same.

    "wording": at one place up to two words stand in for up to two others, and what they mean nobody
    can tell. More words are a turn of phrase, and words left out are brevity.

    >>> difference("Retry 3 times", "Retry 5 times"), difference("Use metres", "Use feet")
    ('digits', 'wording')
    >>> difference("Always quote the id of the order.", "Always quote the order id of it.")
    ''
    """
    (digits, negations), (others, other_negations) = weights_of(one), weights_of(other)
    if digits != others:
        return "digits"
    if negations != other_negations or has_opposites(one, other):
        return "negation"
    if not _same_names(one, other):
        return "names"
    return "wording" if _replaced(one, other) else ""


def contradicts(one: str, other: str, least: float = 0.9) -> bool:
    """Whether texts are the same but for negations and opposites, or give other numbers.

    They name the same, and the Dice similarity of all other words is at least `least`. A number
    that only one of them gives is no contradiction.
    """
    a, b = _rest(one), _rest(other)
    if 2 * (a & b).total() < least * (a.total() + b.total()) or names_of(one) != names_of(other):
        return False
    (digits, negations), (others, other_negations) = weights_of(one), weights_of(other)
    if digits != others:
        return len(digits) == len(others)
    return negations != other_negations or has_opposites(one, other)


@lru_cache(KEPT)
def _rest(text: str) -> Counter[str]:
    digits, negations = weights_of(text)
    weighed = {*digits, *negations}
    return Counter(w for w in _said(text) if w not in weighed and w not in _TURNING)


def _same_names(one: str, other: str) -> bool:
    """Whether both quote the same, and have the same names in the same order.

    A name of one may be written as any word in the other.
    """
    names, others = _names(one), _names(other)
    both = set(names) & set(others)
    return (
        quoted(one) == quoted(other)
        and [name for name in names if name in both] == [name for name in others if name in both]
        and _stand(names, other)
        and _stand(others, one)
    )


def names_only(text: str, others: Sequence[str]) -> bool:
    """Whether all that a text names and quotes stands in each of the others."""
    names = (*_names(text), *quoted(text))
    return all(_stand(names, other) for other in others)


def _stand(names: Sequence[str], text: str) -> bool:
    there = f" {' '.join(_said(text))} "
    return all(f" {' '.join(_said(name))} " in there for name in names)


def _said(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _replaced(one: str, other: str) -> bool:
    from heedful.lessons.words import words

    a, b = words(one), words(other)
    most = _SPAN if one.isascii() and other.isascii() else _DENSE
    matched = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return any(
        tag == "replace" and i2 - i1 <= most and j2 - j1 <= most for tag, i1, i2, j1, j2 in matched
    )


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
        (*merges, *against[:TOLD], *propose_retirement(lessons, now)),
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
    if has_assertion(one.error_type, one.text) or has_assertion(other.error_type, other.text):
        return "assertion"
    return first_difference(one.text, other.text)


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


def propose_retirement(lessons: Iterable[Lesson], now: float) -> tuple[Proposal, ...]:
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


def find_regressions(
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
