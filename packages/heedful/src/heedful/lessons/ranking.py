"""Which lessons fit a task: rank the search results, and choose for a prompt.

A match is related if its vector or its words are near enough to the task. Related
matches are ranked by relevance times worth, where worth is proven usefulness, and a
little importance and age. A prompt takes only what is nearer still, at most three
lessons and at most one that is not verified, within a budget of tokens: a wrong
example is worse than none. The thresholds are measured; comments give the figures.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import exp2

from heedful.lessons.lesson import (
    ANY_LESSON,
    EVIDENCE,
    LEAST_TOLD_EVIDENCE,
    Filter,
    Lesson,
    Match,
)
from heedful.lessons.render import as_messages, as_text
from heedful.lessons.scope import (
    DAY_SECONDS,
    MAX_PROMPT_LESSONS,
    PROMPT_BUDGET_TOKENS,
)
from heedful.lessons.words import overlap, words
from heedful.models.contract import tokens
from heedful.validation import check_integer


@dataclass(frozen=True, slots=True)
class Threshold:
    """How near a lesson must be to a task: by vectors, or by words without them."""

    cosine: float
    words: float


# An example is related from these values on: a cosine of all-MiniLM-L6-v2, or a share
# of the query's words, rare words weighing more. Of 86 questions with a lesson and 28
# without, 0.42 or 0.30 finds 91 % and takes 1 wrongly; 0.30 of the words alone finds 83
# % and takes none wrongly. Of 200 questions about other things, 8 % share 0.30 of their
# words with one of 370 lessons.
RELATED = Threshold(cosine=0.42, words=0.30)
# A prompt takes only what is nearer, or `own`. Without vectors, nearness is the cosine
# of the two sets of words. Measured on the tasks of examples/house_rules. By vectors:
# the nearest task of the same family is at 0.57 or above, 1.7 % of the tasks of other
# families are above 0.45, and none of 100 questions about other things is above 0.37.
# By words: 0.60 or above, 0.01 % above 0.40, and 1 of 400 questions.
PROMPT = Threshold(cosine=0.45, words=0.40)
# How much importance and age change a rank: up to ±5 %, and up to −5 %. On 782
# questions about conversations recall@5 (0.639) falls to 0.629 with random importance 0
# or 1 (0.606 at twice the strength), and to 0.637 with the real ages of the sessions
# (0.621 at four times the strength). They cost little where they say nothing, and
# decide between near equals.
IMPORTANCE_WEIGHT = 0.10
RECENCY_WEIGHT = 0.05
# Only whole days count, so that the same question gets the same answer.
HALF_LIFE_DAYS = 90


# A failure has two lessons, what happened and what to do: if those of several failures
# are near, the words decide. One common word is of the domain of the tasks.
MAX_NEAR_LESSONS = 2
MIN_SHARED_WORDS = 2


def rank(
    task: str, found: Iterable[Match], limit: int, now: float = 0.0
) -> list[Match]:
    """Return at most `limit` matches that are related to the task, best first.

    The order is by `relevance` times `worth` at the time `now`, in seconds since 1970;
    with `now` 0, age does not count. Among equals, verified ones, those seen more
    often, and newer ones win. Of matches that tell the same, the best is returned.
    """
    related = [match for match in keep_fitting(task, found) if is_related(match)]
    related.sort(key=lambda match: _sort_key(match.relevance, match, now))

    distinct: dict[tuple[str, str], Match] = {}
    for match in related:
        # An example tells a task and the verdict on it; without one, the words tell.
        verdict = match.example.accepted or match.refusal
        told = (match.example.task, verdict) if verdict else ("", match.lesson)
        distinct.setdefault(told, match)
    return list(distinct.values())[:limit]


def rank_answers(
    text: str, found: Iterable[Match], limit: int, least: float, now: float, every: bool
) -> list[Match]:
    """Return at most `limit` lessons of at least `least` importance, best first.

    The importance is what the author of a lesson claims, if the author claims any. The
    order is by relevance times worth at the time `now`; worth is a factor of proven
    usefulness, importance and age. Lessons that are not related to `text` are left out,
    unless `every` lesson that was found is wanted. Each text of a lesson is returned
    once.
    """

    def order(match: Match) -> tuple[float, float, float]:
        claimed = replace(match, importance=claimed_importance(match))
        # Rounded, so that importance and then age decide between near equals.
        value = round(match.relevance * worth(claimed, now), 6)
        return -value, -claimed.importance, -match.at

    matches = [match for match in found if claimed_importance(match) >= least]
    if not every:
        matches = rank(text, matches, len(matches), now)

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
    if match.evidence == "nothing failed" or match.has_ended:
        return False
    if match.is_confirmed or match.seen > 1:
        return True
    return EVIDENCE.index(match.evidence) >= EVIDENCE.index(LEAST_TOLD_EVIDENCE)


def is_account(match: Match) -> bool:
    """Return True for a reflection on a run: it says what happened, not what to do.

    People read it. Prompts get the strategy of the run, if it has one.
    """
    is_of_run = match.run is not None and not match.is_correction
    return match.kind == "reflection" and is_of_run


def keep_evident(found: Iterable[Match], only: Filter = ANY_LESSON) -> list[Match]:
    """Drop lessons of runs without evidence, unless `only` selects lessons."""
    if only.kind or only.importance or only.tags:
        return list(found)
    return [match for match in found if has_evidence(match)]


def claimed_importance(lesson: Lesson | Match) -> float:
    """Return the importance that a lesson's author claims, by default heedful's own."""
    if lesson.run is not None and lesson.run.rated is not None:
        return lesson.run.rated
    return lesson.importance


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
        """Return the likeness by vectors, or without vectors by words."""
        if match.cosine is None:
            needed = 0.0 if match.own else PROMPT.words
            return cls("words", match.overlap, needed)
        needed = 0.0 if match.own else PROMPT.cosine
        return cls("cosine", match.cosine, needed)

    @property
    def nearness(self) -> float:
        """The value, 0 if it is too low for a prompt."""
        return self.value if self.value >= self.needed else 0.0


def with_overlap(task: str, found: Iterable[Match]) -> Iterator[Match]:
    """Yield the matches, rules with their likeness to the task as `overlap`.

    A rule, a match with a `cause`, was found by its key and not by words, so nobody has
    compared its words with the task yet.
    """
    task_words = frozenset(words(task))
    for match in found:
        if match.cause is not None:
            match_words = frozenset(words(match.example.task))
            match = replace(match, overlap=overlap(task_words, match_words))
        yield match


def keep_fitting(task: str, found: Iterable[Match]) -> Iterator[Match]:
    """Yield the matches without those lessons of runs that do not fit the task.

    If the tasks of many earlier runs are near, they are all alike, and likeness does
    not tell which lesson helps. Then a lesson of a run is left out if it shares fewer
    than two words with the task, unless the two tasks differ in numbers only. A word
    that most of the near lessons have does not count as shared.
    """
    task_words = frozenset(words(task))
    words_without_figures = _without_figures(task)
    matches = list(found)
    near = [m for m in matches if _is_of_run(m) and Likeness.of(m).nearness]
    words_by_lesson = {m.lesson_id: frozenset(words(m.lesson)) for m in near}
    counts = Counter(chain.from_iterable(words_by_lesson.values()))
    rare_words = {
        word for word in task_words if counts[word] * 2 <= len(words_by_lesson)
    }
    is_crowded = len(words_by_lesson) > MAX_NEAR_LESSONS
    for match in matches:
        if not is_crowded or not _is_of_run(match):
            yield match
            continue

        shared = rare_words.intersection(words(match.lesson))
        differs_in_figures_only = words_without_figures == _without_figures(
            match.example.task
        )
        if differs_in_figures_only or len(shared) >= MIN_SHARED_WORDS:
            yield match


def _without_figures(task: str) -> list[str]:
    """Return the words of a task that have no digit."""
    return [word for word in words(task) if not any(map(str.isdigit, word))]


def _is_of_run(match: Match) -> bool:
    """Return True for a lesson of a run that is neither an answer nor a person's."""
    return match.is_from_run and not (match.example.accepted or match.is_correction)


def is_related(match: Match) -> bool:
    """Return True if a match is near enough to the task by vectors or by words."""
    return (
        (match.cosine or 0.0) >= RELATED.cosine
        or match.coverage >= RELATED.words
        or Likeness.of(match).nearness > 0
    )


def _sort_key(fit: float, match: Match, now: float) -> tuple[float, bool, int, int]:
    """Return a sort key that puts the match that fits best, and is worth most, first.

    Among equals, it puts verified ones first, then those seen more often, then newer.
    """
    rank_value = round(fit * worth(match, now), 6)
    return -rank_value, not match.verified, -match.seen, -match.id


def choose(
    ranked: Sequence[Match],
    *,
    budget: int = PROMPT_BUDGET_TOKENS,
    now: float = 0.0,
    advice: bool = False,
    seed: int = 0,
    rules: Sequence[Match] = (),
) -> list[Match]:
    """Return the matches to put into a prompt: rules, then the nearest lessons.

    As many of the `rules`, which earlier loops of the same kind broke, are included as
    fit into `budget` tokens; several rules from one answer show it once. Of `ranked`,
    at most `MAX_PROMPT_LESSONS` follow, and at most one that is not verified; examples
    that are `own` count as verified. Left out are matches that are not near enough to
    the task or wait in quarantine, reflections on a run and, without `advice`, lessons
    without an accepted output. Nothing is cut: what would exceed the budget is left
    out whole, and the next one is tried. The tokens are those of `as_text` with this
    `seed` if `advice` is wanted, else those of chat turns. `now` is as in `rank`.
    Raises InvalidInput.
    """
    check_integer("budget", budget, least=0)
    near = [
        match
        for match in ranked
        if match.state != "quarantined"
        and Likeness.of(match).nearness
        and not is_account(match)
        and (advice or match.example.accepted)
    ]
    near.sort(key=lambda m: _sort_key(Likeness.of(m).nearness, m, now))

    chosen: list[Match] = []
    has_doubtful = False
    for match in (*_with_each_answer_once(rules), *near):
        is_doubtful = not (match.cause or match.verified or match.own)
        # Only rules have a cause; they come first, and are not counted.
        chosen_lessons = [other for other in chosen if not other.cause]
        is_full = len(chosen_lessons) == MAX_PROMPT_LESSONS
        if is_full or (is_doubtful and has_doubtful):
            continue
        if _prompt_tokens([*chosen, match], advice, seed) > budget:
            continue

        chosen.append(match)
        has_doubtful = has_doubtful or is_doubtful

    return chosen


def _with_each_answer_once(rules: Sequence[Match]) -> Iterator[Match]:
    """Yield the rules; of several from one answer, only the first has it."""
    digests = set[str]()
    for rule in rules:
        digest = rule.worked.digest if rule.worked else ""
        yield replace(rule, worked=None) if digest in digests else rule
        digests.add(digest)


def _prompt_tokens(chosen: Sequence[Match], advice: bool, seed: int) -> int:
    """Return how many tokens the chosen lessons take: as one text, or as chat turns."""
    turns = as_messages(chosen)
    if advice:
        return tokens(as_text(turns, seed, chosen))
    return sum(tokens(turn.content) for turn in turns)
