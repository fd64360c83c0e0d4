"""Consolidation: which rules of a memory others have superseded. Pure.

Rules about one failure that differ only in their numbers or in a negation contradict
each other: the newest of them stands. Lessons are never merged because they are alike.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Literal

from heedful.lessons.mistake import Mistake
from heedful.lessons.origin import Origin
from heedful.lessons.words import words
from heedful.loop.stop import decisive_tokens

Difference = Literal["digits", "negation"]
# Numbers in words, and more words that negate than `heedful.loop.stop` has.
_NUMBER_WORDS = frozenset(
    "two three four five six seven eight nine ten hundred half twice".split()
)
_NEGATION_WORDS = frozenset("avoid unless except hardly seldom rarely".split())
# A word, with the end of a negation such as "don't".
_LESSON_WORD_PATTERN = re.compile(r"[^\W_]+(?:['’]t\b)?")
# A hyphen or a slash between letters, which is not an operator: "read-only", "and/or".
_HYPHEN_PATTERN = re.compile(r"(?<=[^\W\d_])[-/](?=[^\W\d_])")


@lru_cache(8_192)  # each text is compared with many others
def particulars(text: str) -> Mapping[Difference, Sequence[str]]:
    """Return a text's digits (numbers and operators) and its negations, in order.

    >>> particulars("Ask Ada for 'big box' at a_b.c, not twice.")
    {'digits': ['twice'], 'negation': ['not']}
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

    return {"digits": digits, "negation": negations}


def _lower_words(text: str) -> list[str]:
    """Return all words of a text in lower case, with their endings."""
    return [word.lower() for word in _LESSON_WORD_PATTERN.findall(text)]


Action = Literal["supersede", "reword", "reflect"]
# The outcome of a proposal that only a person may carry out.
PERSON_OUTCOME = "for a person"
CONTRADICTION_REASONS: Mapping[str, str] = {
    "digits": "their numbers differ",
    "negation": "one negates what the other says",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DreamLesson:
    """A lesson for consolidation; its times are in seconds since 1970.

    If `apart`, its pattern is excluded from groups; if `held`, a part of it is in
    quarantine. It is `mended` if it says what worked in its run. `by` is the author of
    its words. A strategy is about the `failure` with this digest; for other lessons, it
    is "".
    """

    id: int
    kind: str
    signature: str
    error_type: str
    text: str
    state: str
    trust: Origin
    failure: str = ""
    by: str = ""
    importance: float = 0.5
    pinned: bool = False
    apart: bool = False
    held: bool = False
    mended: bool = False
    useful: float = 1.0
    seen: int = 1
    first_seen: float = 0.0
    last_seen: float = 0.0
    mistake: Mistake | None = None

    @property
    def name(self) -> str:
        """The kind and the signature, which name the lesson even when it is deleted."""
        return f"{self.kind}/{self.signature}"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed change to the lessons with the ids in `members`.

    After "supersede" the `survivor` stands in place of the members, and so does the
    better wording after a "reword". After "reflect" the members stay, and the
    `survivor` is the reflection that cites them; its id is below 0 until it is written.
    `outcome` is "done", "proposed" (a dry run), "for a person", or why nothing was
    done.
    """

    action: Action
    members: tuple[int, ...]
    _: KW_ONLY
    survivor: int = 0
    why: str = ""
    outcome: str = "proposed"


def find_superseded(lessons: Iterable[DreamLesson]) -> Iterator[Proposal]:
    """Yield for each rule the newer one about its failure that contradicts it.

    A rule that is pinned is left to a person.
    """
    by_subject: dict[tuple[str | int, ...], list[DreamLesson]] = defaultdict(list)
    for lesson in lessons:
        if lesson.kind in ("check", "strategy"):
            by_subject[_subject(lesson)].append(lesson)

    for rules in by_subject.values():
        newest, *older = sorted(rules, key=_newest_first)
        for rule in older:
            difference = _contradiction(newest.text, rule.text)
            if difference is not None:
                yield Proposal(
                    "supersede",
                    (rule.id,),
                    survivor=newest.id,
                    why=CONTRADICTION_REASONS[difference],
                    outcome=PERSON_OUTCOME if rule.pinned else "proposed",
                )


def _newest_first(lesson: DreamLesson) -> tuple[float, float, int]:
    """Return a sort key that puts the rule first that was seen last."""
    return -lesson.last_seen, -lesson.first_seen, -lesson.id


def _subject(lesson: DreamLesson) -> tuple[str | int, ...]:
    """Return what rules have in common that differ only in a number or a negation.

    It is the failure, how far the rule is trusted, how many numbers the text has, and
    its words without numbers and negations.
    """
    digits, negations = particulars(lesson.text).values()
    masked = {*digits, *negations}
    bare = " ".join(word for word in _lower_words(lesson.text) if word not in masked)
    failure = lesson.failure or lesson.signature
    return failure, lesson.trust, len(digits), *words(bare)


def _contradiction(text: str, other: str) -> Difference | None:
    """Return how two rules about the same subject contradict; None if they do not."""
    ours = particulars(text)
    theirs = particulars(other)
    if ours["digits"] != theirs["digits"]:
        return "digits"

    # Two negations more or less say the same.
    if (len(ours["negation"]) - len(theirs["negation"])) % 2:
        return "negation"
    return None
