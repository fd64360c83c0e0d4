"""How near and how worth lessons are: search results as candidates to be told.

A match is related if its vector or its words are near enough to the task. Worth is
proven usefulness, and a little importance and age. A prompt takes only what is nearer
still: a wrong example is worse than none. The thresholds are measured; comments give
the figures.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp2

from heedful.lessons.finding_rules import says_enough
from heedful.lessons.lesson import (
    ANY_LESSON,
    DREAM_AUTHOR,
    EVIDENCE,
    LEAST_TOLD_EVIDENCE,
    Filter,
    Match,
    claimed_importance,
)
from heedful.lessons.render import as_messages, as_text
from heedful.lessons.scope import (
    DAY_SECONDS,
    PROMPT_BUDGET_TOKENS,
    lesson_name,
    told_mark,
)
from heedful.lessons.telling import (
    LessonCandidate,
    Situation,
    Tell,
    Telling,
    TellingBudget,
    tell,
)
from heedful.lessons.words import words
from heedful.models.contract import tokens
from heedful.validation import check_integer


@dataclass(frozen=True, slots=True)
class Threshold:
    """How near a lesson must be to a task: by vectors, or by words without them."""

    cosine: float
    words: float


# An example is related from these values on: a cosine of all-MiniLM-L6-v2, or a share
# of the query's words, rare words weighing more. Of 86 questions with a lesson and 28
# without, this finds 91 % and takes 1 wrongly.
RELATED = Threshold(cosine=0.42, words=0.30)
# Recall, which nobody reads before an agent does, needs this share of the words: of 36
# prompts about other things, 2 have it with one of 330 lessons, and 3 have 0.30. It
# finds the evidence of 0.8 % fewer questions about conversations.
RECALLED_COVERAGE = 0.36
# A prompt takes only what is nearer, or `own`. Without vectors, nearness is the cosine
# of the two sets of words. Measured on the tasks of examples/house_rules. By vectors:
# the nearest task of the same family is at 0.57 or above, 1.7 % of the tasks of other
# families are above 0.45, and none of 100 questions about other things is above 0.37.
# By words: 0.60 or above, 0.01 % above 0.40, and 1 of 400 questions.
PROMPT = Threshold(cosine=0.45, words=0.40)
# A prompt also takes what has this share of the words of a task, rare ones weighing
# more: a long prompt shares few of its words with the short task of a lesson.
PROMPT_COVERAGE = 0.5
# How much importance and age change a rank: up to ±5 %, and up to −5 %. On 782
# questions about conversations recall@5 (0.639) falls to 0.629 with random importance 0
# or 1 (0.606 at twice the strength), and to 0.637 with the real ages of the sessions
# (0.621 at four times the strength). They cost little where they say nothing, and
# decide between near equals.
IMPORTANCE_WEIGHT = 0.10
RECENCY_WEIGHT = 0.05
# Only whole days count, so that the same question gets the same answer.
HALF_LIFE_DAYS = 90


def rank_answers(
    found: Iterable[Match], limit: int, least: float, now: float, every: bool
) -> list[Match]:
    """Return at most `limit` lessons of at least `least` importance, best first.

    The importance is what the author of a lesson claims, if the author claims any. The
    order is by relevance times worth at the time `now`; worth is a factor of proven
    usefulness, importance and age. Lessons that are not related to the question are
    left out, unless `every` lesson that was found is wanted. Each text of a lesson is
    returned once.
    """

    def order(match: Match) -> tuple[float, float, float]:
        claimed = replace(match, importance=claimed_importance(match))
        # Rounded, so that importance and then age decide between near equals.
        value = round(match.relevance * worth(claimed, now), 6)
        return -value, -claimed.importance, -match.at

    matches = [
        match
        for match in found
        if claimed_importance(match) >= least and (every or is_related(match))
    ]
    distinct: dict[tuple[int, str], Match] = {}
    for match in sorted(matches, key=order):
        distinct.setdefault((match.lesson_id, match.lesson), match)
    return list(distinct.values())[:limit]


def has_evidence(match: Match) -> bool:
    """Return True if what a lesson says was shown to hold, or a person confirmed it.

    A failure that was seen in two runs was shown to hold. Otherwise its `evidence` must
    be strong enough, such as a whole run that failed. A lesson from a run in which
    nothing failed does not count, nor one about a call that has worked since.
    """
    if match.evidence == "nothing failed":
        return False
    if match.is_confirmed or match.seen > 1:
        return True
    return EVIDENCE.index(match.evidence) >= EVIDENCE.index(LEAST_TOLD_EVIDENCE)


def worth(match: Match, now: float = 0.0) -> float:
    """Return the factor of usefulness, importance and age for a match's relevance."""
    days = max(0.0, now - match.at) // DAY_SECONDS
    faded = 1 - exp2(-days / HALF_LIFE_DAYS)
    by_importance = 1 + IMPORTANCE_WEIGHT * (match.importance - 0.5)
    by_age = 1 - RECENCY_WEIGHT * faded
    return match.useful * by_importance * by_age


@dataclass(frozen=True, slots=True)
class Likeness:
    """How similar a match is to the task, by which measure, and how similar it must
    be.

    The measure is "words", the share of words, or "cosine".
    """

    measure: str
    value: float
    needed: float

    @classmethod
    def of(cls, match: Match) -> "Likeness":
        """Return the likeness by vectors, or without vectors by words.

        By words, the tasks are alike, or a rule has most of the rare words; an answer
        is for a like task only.
        """
        if match.cosine is None:
            is_rule = not match.example.accepted
            is_covered = is_rule and match.coverage >= PROMPT_COVERAGE
            value = max(match.overlap, match.coverage) if is_covered else match.overlap
            needed = 0.0 if match.own else PROMPT.words
            return cls("words", value, needed)
        needed = 0.0 if match.own else PROMPT.cosine
        return cls("cosine", match.cosine, needed)

    @property
    def nearness(self) -> float:
        """The value, 0 if it is too low for a prompt."""
        return self.value if self.value >= self.needed else 0.0


def is_related(match: Match, coverage: float = RELATED.words) -> bool:
    """Return True if a match is near enough to the task by vectors or by words.

    By words, it has this share of those of the task, its `coverage`.
    """
    return (
        (match.cosine or 0.0) >= RELATED.cosine
        or match.coverage >= coverage
        or Likeness.of(match).nearness > 0
    )


def candidates_for_question(
    found: Iterable[Match], now: float = 0.0, only: Filter = ANY_LESSON
) -> list[LessonCandidate]:
    """Return lessons as candidates for a question, which may be about anything.

    The filter `only` says which lessons the question asks for; if it names a kind, tags
    or an importance, a lesson needs no evidence.
    """
    needs_evidence = not (only.kind or only.importance or only.tags)
    return [
        replace(
            _candidate_of(match, now),
            could_help=is_related(match, RECALLED_COVERAGE),
            near=match.relevance,
            has_evidence=has_evidence(match) or not needs_evidence,
        )
        for match in found
    ]


def candidates_for_prompt(
    found: Sequence[Match], task: str = "", now: float = 0.0, form: Tell = "both"
) -> list[LessonCandidate]:
    """Return lessons as candidates for a prompt about a task, which they must be near.

    With the `form` "rules", the examples that come with rules are left out. A rule that
    broke is near by the words that it shares with the task.
    """
    rules = {match.lesson_id: match.cause for match in found if match.cause}
    task_words = frozenset(words(task))
    candidates: list[LessonCandidate] = []
    for place, match in enumerate(found):
        rule = rules.get(match.lesson_id)
        if match.cause is not None:
            if form == "rules":
                match = replace(match, worked=None)
            candidates.append(_candidate_of_rule(match, task_words, place))
        elif rule is None or not match.refusal:
            candidates.append(_candidate_of(match, now))
        elif match.own and rule.varies:
            # The fix differs from task to task: it is told like an answer of the key.
            candidates.append(replace(_candidate_of(match, now), only_refuses=False))
    # What the asker does not want is a candidate only if it is near.
    return [
        candidate
        for candidate in candidates
        if form in ("both", candidate.form)
        or (candidate.could_help and candidate.lesson not in rules)
    ]


def _candidate_of(match: Match, now: float) -> LessonCandidate:
    """Return a lesson or an answer that a search found by its task as a candidate."""
    likeness = Likeness.of(match)
    verdict = match.example.accepted or match.refusal
    says = f"words {match.lesson}"
    if verdict:
        says = f"verdict {match.example.task}\0{verdict}"
    repeats = {says}
    if not match.example.accepted:
        # It says less than its rule, where that is told.
        repeats.add(f"lesson {match.lesson_id}")
    elif match.own and not Likeness.of(replace(match, own=False)).nearness:
        # It is told for its function only, so not beside a rule that has it.
        repeats.add(f"answer {match.example.digest}")
    return LessonCandidate(
        name=lesson_name(match.kind, match.signature),
        leg="strategy" if match.kind == "strategy" else "likeness",
        record=match,
        lesson=match.lesson_id,
        example=match.id,
        sources=_sources_of(match),
        could_help=likeness.nearness > 0,
        near=likeness.nearness,
        distance=likeness.needed / max(likeness.value, 1e-9),
        is_by_words=match.cosine is None,
        worth=worth(match, now),
        repeats=frozenset(repeats),
        says=frozenset([says]),
        form="examples" if verdict else "rules",
        task=match.example.task.strip(),
        memory_key=match.memory_key,
        state=match.state,
        trust=match.trust,
        release=match.release,
        seen=match.seen,
        unfit_for=match.unfit_for,
        is_gated=match.is_confirmed,
        is_checked=match.verified or match.own,
        is_own=match.own,
        is_account=match.kind == "reflection" and not match.is_correction,
        is_dreamt=match.run is not None and match.run.by == DREAM_AUTHOR,
        only_refuses=match.refusal != "",
        has_ended=match.has_ended,
        helps_before=match.evidence in ("put right", "said"),
        has_evidence=has_evidence(match),
        marks=frozenset([told_mark(match.lesson_id)]),
    )


def _candidate_of_rule(
    match: Match, task_words: frozenset[str], place: int
) -> LessonCandidate:
    """Return a rule that loops broke as a candidate; `place` is that in the search."""
    cause = match.cause
    assert cause is not None
    says = {f"words {match.lesson}", f"lesson {match.lesson_id}"}
    if match.worked is not None:
        says.add(f"answer {match.worked.digest}")
    # A proof sets `useful`: above 1, the rule helps.
    is_trusted = match.is_confirmed or match.useful > 1
    shared_words = task_words.intersection(words(match.lesson))
    return replace(
        _candidate_of(match, 0.0),
        leg="cause",
        could_help=True,
        # Of rules that share equally many words, the first one was broken most.
        near=len(shared_words) + 1 / (place + 1),
        distance=0.0,
        worth=1.0,
        repeats=frozenset([f"words {match.lesson}"]),
        says=frozenset(says),
        form="rules",
        cause=cause,
        is_checked=True,
        is_vague=not (is_trusted or cause.says_fix(match.verified)),
        is_account=False,
        only_refuses=False,
        has_ended=False,
        has_evidence=True,
        says_enough=match.is_confirmed or says_enough(match.lesson),
    )


def _sources_of(match: Match) -> tuple[int, ...]:
    """Return the ids of the examples whose answer or words a match has.

    The words may come from another example: if that is revoked, the loops that were
    shown them must be found, too.
    """
    return (match.id, match.author) if match.author else (match.id,)


def tell_prompt(
    found: Sequence[Match],
    now: float,
    budget: int = PROMPT_BUDGET_TOKENS,
    advice: bool = True,
    seed: int = 0,
) -> Telling:
    """Return what a prompt tells of the results of a search, and why not the rest.

    With `advice`, it is one text between delimiters made of the `seed`, else chat turns
    of worked examples. It has at most `budget` tokens. `now` is in seconds since 1970.
    Raises InvalidInput.
    """
    situation = Situation(
        moment="first attempt",
        form="both" if advice else "examples",
        budget=prompt_budget(budget, advice, seed),
    )
    return tell(situation, candidates_for_prompt(found, now=now))


def prompt_budget(
    size: int = PROMPT_BUDGET_TOKENS, advice: bool = True, seed: int = 0
) -> TellingBudget:
    """Return the budget of a prompt, in tokens.

    With `advice`, lessons are told as one text between delimiters made of the `seed`,
    else as chat turns.
    """
    check_integer("budget", size, least=0)

    def measure(candidates: Sequence[LessonCandidate]) -> int:
        matches = [candidate.record for candidate in candidates]
        turns = as_messages(matches)
        if advice:
            return tokens(as_text(turns, seed, matches))
        return sum(tokens(turn.content) for turn in turns)

    return TellingBudget(size=size, measure=measure)
