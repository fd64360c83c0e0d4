"""Consolidation: which lessons say the same and may be merged, and which contradict.

`propose` compares lessons by their vectors. Two similar lessons are merged, unless a
veto forbids it, for example because they differ in kind, trust or meaning.
`first_difference` finds differences that similarity does not show: other numbers,
negations or names, and replaced words. Rules that contradict each other are listed for
a person to decide about.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any, Literal
from zlib import crc32

from heedful.lessons.lesson import Trust
from heedful.lessons.signature import failure_of
from heedful.lessons.trust import QUARANTINE_TRUST
from heedful.lessons.words import words
from heedful.loop.stop import decisive_tokens

Difference = Literal["", "digits", "negation", "names", "wording"]
# Numbers in words, and more words that negate than `heedful.loop.stop` has.
_NUMBER_WORDS = frozenset(
    "two three four five six seven eight nine ten hundred half twice".split()
)
_NEGATION_WORDS = frozenset("avoid unless except hardly seldom rarely".split())
# A word, with the end of a negation such as "don't".
_LESSON_WORD_PATTERN = re.compile(r"[^\W_]+(?:['’]t\b)?")
# What names a particular thing. On the first line quoted texts, on the second
# identifiers and paths ("a_b.c"), calls ("open(") and single letters, on the third
# words that are capitalised within a sentence.
_PARTICULAR_NAME_PATTERN = re.compile(
    r"[\"“`][^\"”`\n]{1,100}[\"”`]|(?<!\w)'[^'\n]{1,100}'(?!\w)"
    r"|(?:\w+[_./\\:])+\w+|\w+(?=\()|(?<!['’])\b[b-z]\b(?!['’])"
    r"|(?<=[^\s.!?:] )[A-Z]\w[\w’-]*"
)
# A hyphen or a slash between letters, which is not an operator: "read-only", "and/or".
_HYPHEN_PATTERN = re.compile(r"(?<=[^\W\d_])[-/](?=[^\W\d_])")
# A replacement changes the meaning if both sides have at most this many words; a longer
# one is another phrase. In scripts without spaces, two characters are three words.
_MAX_REPLACEMENT_WORDS = 2
_MAX_DENSE_REPLACEMENT_TOKENS = 6


@lru_cache(8_192)  # each text is compared with many others
def particulars(text: str) -> Mapping[Difference, Sequence[str]]:
    """Return a text's digits (numbers and operators), negations and names, in order.

    >>> particulars("Ask Ada for 'big box' at a_b.c, not twice.")
    {'digits': ['twice'], 'negation': ['not'], 'names': ['ada', 'big box', 'a_b.c']}
    """
    digits: list[str] = []
    negations: list[str] = []
    for token in decisive_tokens(_HYPHEN_PATTERN.sub(" ", text)):
        if token[0].isalpha() and not any(c.isdigit() for c in token):
            negations.append(token.lower())
        else:
            digits.append(token.lower())

    text_words = _lower_words(text)
    digits += [word for word in text_words if word in _NUMBER_WORDS]
    negations += [word for word in text_words if word in _NEGATION_WORDS]

    matches = _PARTICULAR_NAME_PATTERN.findall(text)
    names = dict.fromkeys(match.strip("\"“”`' .,;:!?").lower() for match in matches)
    names.pop("", None)
    return {"digits": digits, "negation": negations, "names": list(names)}


def first_difference(text: str, other: str) -> Difference:
    """Return the first kind of difference of two texts; "" if they may say the same.

    "wording" means that somewhere up to two words replace up to two other words, which
    may change the meaning. Longer replacements and missing words do not count as a
    difference.

    >>> first_difference("Retry 3 times", "Retry 5 times")
    'digits'
    >>> first_difference("Use metres", "Use feet")
    'wording'
    >>> first_difference("Quote the id of the order.", "Quote the order id of it.")
    ''
    """
    other_particulars = particulars(other)
    for kind, values in particulars(text).items():
        if values != other_particulars[kind]:
            return kind

    from difflib import SequenceMatcher  # 0.4 MB, which a memory can do without

    max_replaced = _MAX_DENSE_REPLACEMENT_TOKENS
    if text.isascii() and other.isascii():
        max_replaced = _MAX_REPLACEMENT_WORDS

    matcher = SequenceMatcher(None, words(text), words(other), autojunk=False)
    for tag, start, end, other_start, other_end in matcher.get_opcodes():
        replaced = max(end - start, other_end - other_start)
        if tag == "replace" and replaced <= max_replaced:
            return "wording"
    return ""


def _lower_words(text: str) -> list[str]:
    """Return all words of a text in lower case, with their endings."""
    return [word.lower() for word in _LESSON_WORD_PATTERN.findall(text)]


Mode = Literal["lite", "full"]
Action = Literal["merge", "contradict", "reword", "reflect"]
DREAM_MODES: tuple[Mode, ...] = ("lite", "full")
# From this cosine of all-MiniLM-L6-v2 on, two lessons with the same particulars say the
# same: of 815 recorded reflections 35 pairs are above 0.95 and all say the same; of the
# 10 pairs from 0.90 to 0.95 three give other reasons.
MIN_MERGE_COSINE = 0.95
# The same without an embedder: the cosine of their sets of words, each as a vector.
MIN_MERGE_WORD_COSINE = 0.9
WORD_VECTOR_DIMENSIONS = 1_024
# A run in the mode "full" merges only lessons that were seen within this time and have
# this importance, and it needs this many of them.
LOOKBACK_SECONDS = 86_400.0
MIN_PERIODIC_IMPORTANCE = 0.6
MIN_PERIODIC_LESSONS = 3
# The outcome of a proposal that only a person may carry out.
PERSON_OUTCOME = "for a person"
COMPARISON_BATCH_NUMBERS = 2**20  # how many numbers are compared at a time
VETO_REASONS: Mapping[str, str] = {
    "kind": "they are of two kinds",
    "error_type": "they are about two types of error",
    "trust": "one is trusted more than the other",
    "held": "part of one waits in quarantine",
    "apart": "one is kept apart",
    "digits": "their numbers differ",
    "negation": "one negates what the other says",
    "names": "they are about other names",
    "wording": "a word replaces another one",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DreamLesson:
    """A lesson for consolidation; its times are in seconds since 1970.

    If `apart`, its pattern is excluded from groups; if `held`, a part of it is in
    quarantine. It is `mended` if it says what worked in its run.
    """

    id: int
    kind: str
    signature: str
    error_type: str
    text: str
    state: str
    trust: Trust
    pattern: str = ""
    importance: float = 0.5
    pinned: bool = False
    apart: bool = False
    held: bool = False
    mended: bool = False
    useful: float = 1.0
    seen: int = 1
    first_seen: float = 0.0
    last_seen: float = 0.0

    @property
    def name(self) -> str:
        """The kind and the signature, which name the lesson even when it is deleted."""
        return f"{self.kind}/{self.signature}"

    @property
    def evidence(self) -> tuple[Any, ...]:
        """A sort key that puts the best lesson first."""
        return (
            not self.pinned,
            self.state != "verified",
            -self.useful,
            -self.seen,
            -self.importance,
            self.first_seen,
            self.name,
        )


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed change to the lessons with the ids in `members`.

    After a "merge" the `survivor` replaces the members, and so does the better wording
    after a "reword". After "reflect" the members stay, and the `survivor` is the
    reflection that cites them; its id is below 0 until it is written. "contradict"
    changes nothing: it lists lessons for a person, and `survivor` is 0. `outcome` is
    "done", "proposed" (a dry run), "for a person", or why nothing was done.
    """

    action: Action
    members: tuple[int, ...]
    _: KW_ONLY
    survivor: int = 0
    why: str = ""
    outcome: str = "proposed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DreamPlan:
    """The proposed merges, the contradictions, and the pairs that each veto forbade.

    `nothing` is the reason why there is nothing to merge, or "".
    """

    merges: tuple[Proposal, ...] = ()
    contradictions: tuple[Proposal, ...] = ()
    vetoes: Mapping[str, int] = field(default_factory=dict)
    nothing: str = ""


def propose(
    lessons: Sequence[DreamLesson],
    vectors: Sequence[Sequence[float]] | None,
    mode: Mode,
    now: float,
) -> DreamPlan:
    """Propose merges of lessons that say the same, and list contradicting rules.

    `vectors` has a vector of length 1 for each lesson; if it is None, words are
    compared. In the mode "full", one lesson of each pair must be important and seen in
    the 24 hours before `now`. The order of the lessons does not matter.
    """
    order = sorted(range(len(lessons)), key=lambda index: lessons[index].name)
    lessons = [lessons[index] for index in order]
    if vectors is not None:
        vectors = [vectors[index] for index in order]

    periodic = mode == "full"
    chosen = {
        lesson.id for lesson in lessons if not periodic or _is_recent(lesson, now)
    }
    nothing = _too_few(len(lessons), len(chosen), periodic)
    if nothing:
        return DreamPlan(nothing=nothing)

    # Which lessons each lesson may be merged with, by index, and why others may not.
    near: dict[int, set[int]] = defaultdict(set)
    vetoes: Counter[str] = Counter()
    for a, b in _similar_pairs(lessons, vectors):
        if chosen.isdisjoint([lessons[a].id, lessons[b].id]):
            continue
        reason = veto(lessons[a], lessons[b])
        if reason:
            vetoes[reason] += 1
        else:
            near[a].add(b)
            near[b].add(a)

    merges = tuple(_propose_merges(lessons, near))
    merged = set(chain.from_iterable(merge.members for merge in merges))
    listed = [
        proposal
        for proposal in contradictions(lessons)
        if not chosen.isdisjoint(proposal.members)
        and merged.isdisjoint(proposal.members)
    ]

    if vetoes and not merges:
        reasons = ", ".join(
            f"{VETO_REASONS[reason]} ({n})" for reason, n in sorted(vetoes.items())
        )
        nothing = f"all pairs that are near each other were vetoed: {reasons}"
    elif not merges:
        nothing = "no two lessons say the same"

    return DreamPlan(
        merges=merges,
        contradictions=tuple(listed),
        vetoes=dict(sorted(vetoes.items())),
        nothing=nothing,
    )


def _is_recent(lesson: DreamLesson, now: float) -> bool:
    """Return True if a periodic run may merge the lesson."""
    recent = now - lesson.last_seen <= LOOKBACK_SECONDS
    return recent and lesson.importance >= MIN_PERIODIC_IMPORTANCE


def _too_few(lessons: int, chosen: int, periodic: bool) -> str:
    """Return why there are too few lessons to merge; "" if there are enough."""
    if lessons < 2:
        return f"too few lessons: {lessons}, and it takes two to merge"
    if periodic and chosen < MIN_PERIODIC_LESSONS:
        return (
            f"too few lessons of importance {MIN_PERIODIC_IMPORTANCE} or more were "
            f"seen in the last 24 hours: {chosen}, and a periodic run needs "
            f"{MIN_PERIODIC_LESSONS}"
        )
    return ""


def _similar_pairs(
    lessons: Sequence[DreamLesson], vectors: Sequence[Sequence[float]] | None
) -> Iterator[tuple[int, int]]:
    """Yield the indexes of similar lessons, by their vectors or else by their words."""
    if vectors is not None:
        return near_vectors(vectors, MIN_MERGE_COSINE)
    word_vectors = [word_vector(lesson.text) for lesson in lessons]
    return near_vectors(word_vectors, MIN_MERGE_WORD_COSINE)


def contradictions(lessons: Iterable[DreamLesson]) -> Iterator[Proposal]:
    """Yield pairs of rules for one failure that differ only in a number or a negation.

    The first member of a pair is the best rule for the failure.
    """
    by_subject: dict[tuple[str | int, ...], list[DreamLesson]] = defaultdict(list)
    for lesson in lessons:
        if lesson.kind in ("check", "strategy"):
            by_subject[_subject(lesson)].append(lesson)

    for rules in by_subject.values():
        best, *others = sorted(rules, key=lambda lesson: lesson.evidence)
        for other in others:
            kind = _contradiction(best.text, other.text)
            if kind:
                yield Proposal(
                    "contradict",
                    (best.id, other.id),
                    why=VETO_REASONS[kind],
                    outcome=PERSON_OUTCOME,
                )


def _subject(lesson: DreamLesson) -> tuple[str | int, ...]:
    """Return what rules have in common that differ only in a number or a negation.

    It is the failure, how many numbers the text has, and its words without numbers and
    negations.
    """
    digits, negations, _ = particulars(lesson.text).values()
    masked = {*digits, *negations}
    bare = " ".join(word for word in _lower_words(lesson.text) if word not in masked)
    return failure_of(lesson.signature, lesson.pattern), len(digits), *words(bare)


def _contradiction(text: str, other: str) -> Difference:
    """Return how two rules about the same subject contradict; "" if they do not."""
    ours = particulars(text)
    theirs = particulars(other)
    if ours["digits"] != theirs["digits"]:
        return "digits"

    # Two negations more or less say the same.
    if (len(ours["negation"]) - len(theirs["negation"])) % 2:
        return "negation"
    return ""


def veto(lesson: DreamLesson, other: DreamLesson) -> str:
    """Return the key in `VETO_REASONS` that forbids a merge; "" if it is allowed."""
    for name in ("kind", "error_type", "trust"):
        if getattr(lesson, name) != getattr(other, name):
            return name

    if lesson.held or other.held or lesson.trust in QUARANTINE_TRUST:
        return "held"
    if lesson.apart or other.apart:
        return "apart"
    return first_difference(lesson.text, other.text)


def near_vectors(
    vectors: Sequence[Sequence[float]], least: float
) -> Iterator[tuple[int, int]]:
    """Yield the places of each pair of vectors with a cosine of at least `least`."""
    import numpy as np

    matrix = np.asarray(vectors, dtype="<f4")
    batch_rows = max(1, COMPARISON_BATCH_NUMBERS // max(1, len(matrix)))
    for start in range(0, len(matrix), batch_rows):
        batch = matrix[start : start + batch_rows]
        cosines = np.triu(batch @ matrix[start:].T, k=1)  # each pair once
        for a, b in np.argwhere(cosines >= least).tolist():
            yield start + a, start + b


def word_vector(text: str) -> list[float]:
    """Return a vector of length 1 for a text's words, each in a place by hash."""
    places = {
        crc32(word.encode("utf-8", "surrogatepass")) % WORD_VECTOR_DIMENSIONS
        for word in words(text)
    }

    vector = [0.0] * WORD_VECTOR_DIMENSIONS
    for place in places:
        vector[place] = len(places) ** -0.5
    return vector


def _propose_merges(
    lessons: Sequence[DreamLesson], near: Mapping[int, Collection[int]]
) -> Iterator[Proposal]:
    """Yield merges, best survivor first; `near` maps a lesson to those it resembles."""

    def evidence(index: int) -> tuple[Any, ...]:
        return lessons[index].evidence

    merged: set[int] = set()
    for best in sorted(near, key=evidence):
        members = sorted(set(near[best]) - merged, key=evidence)
        if best in merged or not members:
            continue

        merged |= {best, *members}
        ids = [lessons[index].id for index in members if not lessons[index].pinned]
        if ids:
            yield Proposal(
                "merge",
                tuple(ids),
                survivor=lessons[best].id,
                why="they say the same",
            )
