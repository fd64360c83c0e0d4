"""Consolidation: find lessons that say the same and may be merged, and lessons that
contradict.

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
from typing import Any, Literal
from zlib import crc32

from heedful.lessons.lesson import Trust
from heedful.lessons.ranking import near_vectors
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
_LESSON_WORD_PATTERN = re.compile(r"[^\W_]+(?:['’]t\b)?")
# Quoted texts; identifiers, paths and calls; and words that are capitalised within a
# sentence.
_PARTICULAR_NAME_PATTERN = re.compile(
    r"[\"“`][^\"”`\n]{1,100}[\"”`]|(?<!\w)'[^'\n]{1,100}'(?!\w)"
    r"|(?:\w+[_./\\:])+\w+|\w+(?=\()|(?<!['’])\b[b-z]\b(?!['’])"
    r"|(?<=[^\s.!?:] )[A-Z]\w[\w’-]*"
)
_HYPHEN_PATTERN = re.compile(r"(?<=[^\W\d_])[-/](?=[^\W\d_])")  # of a word, no operator
# A replacement changes the meaning if both sides have at most this many words; a longer
# one is another phrase. In scripts without spaces, two characters are three words.
_MAX_REPLACEMENT_WORDS = 2
_MAX_DENSE_REPLACEMENT_TOKENS = 6


@lru_cache(8_192)  # each text is compared with many others
def particulars(text: str) -> Mapping[Difference, Sequence[str]]:
    """Return numbers and operators (as "digits"), negations and names of a text, each
    in order.

    >>> particulars("Ask Ada for 'big box' at a_b.c, not twice.")
    {'digits': ['twice'], 'negation': ['not'], 'names': ['ada', 'big box', 'a_b.c']}
    """
    digits: list[str] = []
    negations: list[str] = []
    for token in decisive_tokens(_HYPHEN_PATTERN.sub(" ", text)):
        negates = token[0].isalpha() and not any(c.isdigit() for c in token)
        (negations if negates else digits).append(token.lower())
    said = _lower_words(text)
    names = (
        name.strip("\"“”`' .,;:!?").lower()
        for name in _PARTICULAR_NAME_PATTERN.findall(text)
    )
    digits += [word for word in said if word in _NUMBER_WORDS]
    negations += [word for word in said if word in _NEGATION_WORDS]
    return {
        "digits": digits,
        "negation": negations,
        "names": [*dict.fromkeys(filter(None, names))],
    }


def first_difference(one: str, other: str) -> Difference:
    """Return the first kind of difference between two texts, or "" if they may say the
    same.

    "wording" means that somewhere up to two words replace up to two other words, which
    may change the meaning. Longer replacements and missing words do not count as a
    difference.

    >>> first_difference("Retry 3 times", "Retry 5 times")
    'digits'
    >>> first_difference("Use metres", "Use feet")
    'wording'
    >>> first_difference("Always quote the id of the order.", "Always quote the order id of it.")
    ''
    """
    others = particulars(other)
    for kind, said in particulars(one).items():
        if said != others[kind]:
            return kind
    from difflib import SequenceMatcher  # 0.4 MB, which a memory can do without

    most = (
        _MAX_REPLACEMENT_WORDS
        if one.isascii() and other.isascii()
        else _MAX_DENSE_REPLACEMENT_TOKENS
    )
    matched = SequenceMatcher(
        None, words(one), words(other), autojunk=False
    ).get_opcodes()
    replaced = (
        (i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in matched if tag == "replace"
    )
    return "wording" if any(max(sizes) <= most for sizes in replaced) else ""


def _lower_words(text: str) -> list[str]:
    return [word.lower() for word in _LESSON_WORD_PATTERN.findall(text)]


Mode = Literal["lite", "full"]
Action = Literal["merge", "contradict", "reword"]
DREAM_MODES: tuple[Mode, ...] = ("lite", "full")
# From this cosine of all-MiniLM-L6-v2 on, two lessons with the same particulars say the
# same: of 815 recorded reflections 35 pairs are above 0.95 and all say the same; of the
# 10 pairs from 0.90 to 0.95 three give other reasons.
MIN_MERGE_COSINE = 0.95
MIN_MERGE_WORD_COSINE = 0.9  # without an embedder: the cosine of their sets of words
WORD_VECTOR_DIMENSIONS = 1_024  # of such a set as a vector
LOOKBACK_SECONDS = (
    86_400.0  # seconds: a periodic run merges only lessons seen since then
)
MIN_PERIODIC_IMPORTANCE = 0.6  # the importance that they need
MIN_PERIODIC_LESSONS = 3  # how many of them it needs
PERSON_OUTCOME = (
    "for a person"  # the outcome of a proposal that only a person may carry out
)
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
    quarantine.
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
    useful: float = 1.0
    seen: int = 1
    first_seen: float = 0.0
    last_seen: float = 0.0

    @property
    def name(self) -> str:
        """The kind and the signature, which identify the lesson even after its row is
        deleted.
        """
        return f"{self.kind}/{self.signature}"

    @property
    def evidence(self) -> tuple[Any, ...]:
        """A sort key that puts the best lesson first."""
        figures = -self.useful, -self.seen, -self.importance
        return (
            not self.pinned,
            self.state != "verified",
            *figures,
            self.first_seen,
            self.name,
        )


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed change to the lessons with the ids in `members`.

    After a "merge" the `survivor` replaces the members, and so does the better wording
    after a "reword". "contradict" changes nothing: it lists lessons for a person, and
    `survivor` is 0. `outcome` is "done", "proposed" (a dry run), "for a person", or why
    nothing was done.
    """

    action: Action
    members: tuple[int, ...]
    _: KW_ONLY
    survivor: int = 0
    why: str = ""
    outcome: str = "proposed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DreamPlan:
    """The proposed merges, the contradictions, and how many similar pairs each veto
    forbade.

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
    """Propose merges of lessons that say the same, and list rules that contradict each
    other.

    `vectors` has a vector of length 1 for each lesson; if it is None, words are
    compared. In the mode "full", one lesson of each pair must be important and seen in
    the 24 hours before `now`. The order of the lessons does not matter.
    """
    order = sorted(range(len(lessons)), key=lambda at: lessons[at].name)
    lessons = [lessons[at] for at in order]
    full = mode == "full"
    due = (
        n
        for n in lessons
        if n.importance >= MIN_PERIODIC_IMPORTANCE
        and now - n.last_seen <= LOOKBACK_SECONDS
    )
    chosen = {one.id for one in (due if full else lessons)}
    if len(lessons) < 2:
        return DreamPlan(
            nothing=f"too few lessons: {len(lessons)}, and it takes two to merge"
        )
    if full and len(chosen) < MIN_PERIODIC_LESSONS:
        few = (
            f"too few lessons of importance {MIN_PERIODIC_IMPORTANCE} or more were seen in the last "
            "24 hours"
        )
        return DreamPlan(
            nothing=f"{few}: {len(chosen)}, and a periodic run needs {MIN_PERIODIC_LESSONS}"
        )
    if vectors is None:
        pairs = near_vectors(
            [word_vector(one.text) for one in lessons], MIN_MERGE_WORD_COSINE
        )
    else:
        pairs = near_vectors([vectors[at] for at in order], MIN_MERGE_COSINE)
    near: dict[int, set[int]] = defaultdict(set)
    vetoes: Counter[str] = Counter()
    for a, b in pairs:
        one = lessons[a]
        other = lessons[b]
        if not chosen & {one.id, other.id}:
            continue
        if why := veto(one, other):
            vetoes[why] += 1
        else:
            near[a].add(b)
            near[b].add(a)
    merges = tuple(_merges(lessons, near))
    gone = {id for one in merges for id in one.members}
    found = [(each, {*each.members}) for each in contradictions(lessons)]
    listed = tuple(each for each, ids in found if chosen & ids and not gone & ids)
    nothing = "" if merges else "no two lessons say the same"
    if vetoes and not merges:
        reasons = ", ".join(
            f"{VETO_REASONS[why]} ({n})" for why, n in sorted(vetoes.items())
        )
        nothing = f"all pairs that are near each other were vetoed: {reasons}"
    return DreamPlan(
        merges=merges,
        contradictions=listed,
        vetoes=dict(sorted(vetoes.items())),
        nothing=nothing,
    )


def contradictions(lessons: Iterable[DreamLesson]) -> Iterator[Proposal]:
    """Yield pairs of rules for one failure that differ only in a number or a negation.

    The first member of a pair is the best rule for the failure.
    """
    about: dict[tuple[str | int, ...], list[DreamLesson]] = defaultdict(list)
    for lesson in lessons:
        if lesson.kind in ("check", "strategy"):
            digits, negations, _ = particulars(lesson.text).values()
            said = [
                w for w in _lower_words(lesson.text) if w not in {*digits, *negations}
            ]
            failure = failure_of(lesson.signature, lesson.pattern)
            about[failure, len(digits), *words(" ".join(said))].append(lesson)
    for those in about.values():
        best, *others = sorted(those, key=lambda one: one.evidence)
        ours = particulars(best.text)
        for other in others:
            theirs = particulars(other.text)
            how: Difference = (
                "digits" if ours["digits"] != theirs["digits"] else "negation"
            )
            if how == "digits" or (len(ours[how]) - len(theirs[how])) % 2:
                yield Proposal(
                    "contradict",
                    (best.id, other.id),
                    survivor=0,
                    why=VETO_REASONS[how],
                    outcome=PERSON_OUTCOME,
                )


def veto(one: DreamLesson, other: DreamLesson) -> str:
    """Return the key in `VETO_REASONS` that forbids merging two lessons; "" if they may be
    merged.
    """
    for name in ("kind", "error_type", "trust"):
        if getattr(one, name) != getattr(other, name):
            return name
    if one.held or other.held or one.trust in QUARANTINE_TRUST:
        return "held"
    return (
        "apart" if one.apart or other.apart else first_difference(one.text, other.text)
    )


def word_vector(text: str) -> list[float]:
    """Return a vector of length 1 for the set of words in a text, each word in a place
    by hash.
    """
    places = {
        crc32(word.encode("utf-8", "surrogatepass")) % WORD_VECTOR_DIMENSIONS
        for word in words(text)
    }
    return [
        len(places) ** -0.5 if n in places else 0.0
        for n in range(WORD_VECTOR_DIMENSIONS)
    ]


def _merges(
    lessons: Sequence[DreamLesson], near: Mapping[int, Collection[int]]
) -> Iterator[Proposal]:
    """Yield merges, best survivor first; `near` maps each lesson's index to its similar
    lessons.
    """
    gone: set[int] = set()
    for best in sorted(near, key=lambda at: lessons[at].evidence):
        members = sorted(set(near[best]) - gone, key=lambda at: lessons[at].evidence)
        if best not in gone and members:
            gone |= {best, *members}
            if ids := tuple(lessons[at].id for at in members if not lessons[at].pinned):
                yield Proposal(
                    "merge", ids, survivor=lessons[best].id, why="they say the same"
                )
