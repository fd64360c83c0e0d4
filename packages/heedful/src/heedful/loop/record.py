"""The records of a loop: goals, findings, evaluations, attempts, overrides and usage.

No record changes; `typed_frozen` says who sees to that. The best attempt, the
improvements and the total cost are computed from the attempts, never stored. Scores are
compared in integer thousandths.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from math import fsum, inf
from typing import TYPE_CHECKING, Any, Literal, get_args

from heedful.errors import InvalidInput
from heedful.loop.finding_key import default_key, distances_in
from heedful.loop.ladder import (
    Climb,
    Ladder,
    RungAttempt,
    add_costs,
    add_overheads,
)
from heedful.validation import (
    MAX_SCORE,
    as_float,
    check_number,
    check_share,
    refuses_unknown_options,
    require,
    typed_frozen,
)

if TYPE_CHECKING:
    lazy = cached_property
else:

    class lazy(cached_property):  # noqa: N801 - as the class that it replaces
        """A `cached_property` without its lock, which in Python 3.11 takes longer than
        most values that are computed here.
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


def thousandths(value: float) -> int:
    """Convert a score, threshold or gain to integer thousandths, the unit of all
    comparisons.

    >>> thousandths(0.1 + 0.2) == thousandths(0.3)
    True
    """
    return round(value * 1000)


def format_score(value: float) -> str:
    """Return a score or threshold as text, rounded to thousandths.

    >>> format_score(0.7499), format_score(1234567.8)
    ('0.75', '1234567.8')
    """
    return f"{round(value * 1000) / 1000:.15g}"


@refuses_unknown_options
@typed_frozen(slots=True)
class Usage:
    """The cost of some work; every field is at least 0, and `+` adds two usages.

    `seconds` is wall time, `cost` is in the provider's currency.
    """

    calls: int = 0
    prompt_tokens: int = 0
    _: KW_ONLY
    completion_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        are_counts = min(self.calls, self.prompt_tokens, self.completion_tokens) >= 0
        if not (are_counts and 0 <= self.cost < inf and 0 <= self.seconds < inf):
            raise InvalidInput("usage", self, "made of finite numbers of at least 0")

    @property
    def tokens(self) -> int:
        """The sum of prompt and completion tokens."""
        return self.prompt_tokens + self.completion_tokens

    def lasting(self, seconds: float) -> Usage:
        """Return a copy of the usage whose wall time is `seconds`."""
        # Not `replace`, which takes three times as long.
        return Usage(
            self.calls,
            self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            cost=self.cost,
            seconds=seconds,
        )

    def __add__(self, other: Usage) -> Usage:
        if other is NO_USAGE:
            return self
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cost=self.cost + other.cost,
            seconds=self.seconds + other.seconds,
        )


NO_USAGE = Usage()
Rank = tuple[float, ...]
OFF_BY_PLACE = 5  # in a Rank, after the errors and goals and before the severities
# The check that finds what is not of the declared type.
OUTPUT_CHECK = "output"
# The check under whose name heedful reports that an answer is none.
ANSWER_CHECK = "answer"
UNJUDGED = "nothing judged it"
# What a loop that passed is if nothing judged it, or if a check raised an error.
DoubtState = Literal["unchecked", "not_validated"]
DOUBT_STATES: tuple[DoubtState, ...] = get_args(DoubtState)
UNJUDGED_ADVICE = "Pass checks, goals or an evaluator."
UNSCORED_MARGIN = -(10**18)  # a margin in thousandths, worse than any score has
Level = Literal["error", "warning", "note"]
Direction = Literal["at_least", "at_most"]
FINDING_LEVELS: tuple[Level, ...] = ("error", "warning", "note")
DEFAULT_SEVERITY = 0.5


def format_off_by(off_by: float) -> str:
    """Return in words how far a measure is from its limit.

    >>> format_off_by(0.025)
    '2.5 % off'
    """
    return f"{round(100 * off_by, 1):.12g} % off"


@refuses_unknown_options
@typed_frozen(slots=True)
class Finding:
    """A fault in a candidate: the check that found it, what is wrong, and how to fix
    it.

    Level "error" requires another attempt; "warning" and "note" do not. `severity` is
    in 0..1. `key` identifies the finding across attempts; the default is the check's
    name and the message without its secrets, times, ids and temporary paths. An
    improvement does not reset the count of a `persistent` finding in the rule `Echo`.
    `span` is the half-open range of the faulty characters in the candidate, None if
    unknown. `rule` says what holds for every answer: memory shows it unchanged to other
    tasks. Without a rule, memory shows the message and the fix, with blanks for the
    particulars of this task. `raised` has the type and the place of the exception that
    refused the candidate; it is "" if a check returned the finding. `off_by` is how far
    a measure is beyond its limit, as a share of the limit, or as the distance if the
    limit is 0; None if nothing was measured. `more` is how many further findings of an
    attempt are not kept: the last one that is has it. `check_id` is the same for all
    functions that the check guards, and memory shows its rules to each of them. Loops
    set it.
    """

    check: str
    message: str
    _: KW_ONLY
    fix: str = ""
    level: Level = "error"
    severity: float = DEFAULT_SEVERITY
    key: str = ""
    persistent: bool = False
    evidence: str = ""
    span: tuple[int, int] | None = None
    rule: str = ""
    raised: str = ""
    off_by: float | None = None
    more: int = 0
    check_id: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        require(
            self.level in FINDING_LEVELS, "level", self.level, "error, warning or note"
        )
        if self.off_by is not None:
            check_number("off_by", as_float(self.off_by), low=0, high=MAX_SCORE)
            object.__setattr__(self, "off_by", float(self.off_by))
        if not isinstance(self.severity, float):
            object.__setattr__(self, "severity", as_float(self.severity))
        check_share("severity", self.severity)
        if not self.key:
            is_measured = self.off_by is not None
            key = default_key(self.check, self.message, is_measured=is_measured)
            object.__setattr__(self, "key", key)


@refuses_unknown_options
@dataclass(frozen=True, slots=True)
class Goal:
    """A threshold for the score named `score`; a score exactly at the threshold meets
    the goal.

    >>> Goal("alignment", 0.75).met(0.75), Goal("drift", 0.25, "at_most").met(0.251)
    (True, False)
    """

    score: str
    threshold: float
    direction: Direction = "at_least"

    def __post_init__(self) -> None:
        check_number(
            f"threshold of {self.score}", self.threshold, -MAX_SCORE, MAX_SCORE
        )
        require(
            self.direction in ("at_least", "at_most"),
            "direction",
            self.direction,
            "at_least or at_most",
        )

    def margin(self, value: float) -> int:
        """Return by how many thousandths `value` meets the goal; negative if it misses
        the goal.
        """
        distance = thousandths(value) - thousandths(self.threshold)
        return distance if self.direction == "at_least" else -distance

    def margin_of(self, evaluation: Evaluation) -> int:
        """Return the margin of the score of an evaluation; a missing one is the worst
        of 0 and 1.
        """
        worst = float(self.direction == "at_most")
        return self.margin(evaluation.scores.get(self.score, worst))

    def met(self, value: float) -> bool:
        """Return True if a score of `value` meets the goal."""
        return self.margin(value) >= 0

    def __str__(self) -> str:
        sign = ">=" if self.direction == "at_least" else "<="
        return f"{self.score} {sign} {format_score(self.threshold)}"


def check_goals(goals: tuple[Goal, ...]) -> None:
    """Raise InvalidInput unless all items are Goals and no two of them contradict each
    other.
    """
    require(
        all(isinstance(goal, Goal) for goal in goals), "goals", goals, "Goal objects"
    )

    for low in goals:
        for high in goals:
            are_bounds = low.direction == "at_least" and high.direction == "at_most"
            exclude_all = thousandths(low.threshold) > thousandths(high.threshold)
            if low.score == high.score and are_bounds and exclude_all:
                raise InvalidInput(
                    f"threshold of {low}",
                    low.threshold,
                    f"at most {format_score(high.threshold)}: another goal is {high}",
                )


@refuses_unknown_options
@typed_frozen()
class Evaluation:
    """The findings and scores of one candidate. A missing score never counts as 0.

    `usage` is the cost of a judging model. If candidates of one attempt have equally
    many errors and unmet goals, the one with the largest `preference` wins. Critics set
    it. `met` is the share (0..1) of tests or checks that passed, None if unknown.
    """

    findings: tuple[Finding, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    _: KW_ONLY
    usage: Usage = NO_USAGE
    preference: float = 0.0
    met: float | None = None

    def __post_init__(self) -> None:
        is_list = isinstance(self.findings, (tuple, list))
        if not is_list or not all(isinstance(item, Finding) for item in self.findings):
            raise InvalidInput("findings", self.findings, "a tuple of Finding")

        # Most scores are a dict, for which the check is faster than for a Mapping.
        if not isinstance(self.scores, (dict, Mapping)):
            raise InvalidInput(
                "scores", self.scores, 'a mapping such as {"quality": 0.8}'
            )

        if self.preference != 0.0:  # nearly always it is
            check_number("preference", self.preference, -MAX_SCORE, MAX_SCORE)
        if self.met is not None:
            check_share("met", self.met)
        if not self.scores:
            return

        for name, value in self.scores.items():
            if not hasattr(value, "__float__") or not abs(value) <= MAX_SCORE:
                raise InvalidInput(
                    f"score {name}",
                    value,
                    "a number within ±1e12; leave it out if unknown",
                )

        # Numbers of numpy become floats.
        if not all(isinstance(value, int | float) for value in self.scores.values()):
            scores = {name: float(score) for name, score in self.scores.items()}
            object.__setattr__(self, "scores", scores)

    @lazy
    def errors(self) -> tuple[Finding, ...]:
        """The findings of level "error"."""
        return tuple(f for f in self.findings if f.level == "error")

    @property
    def misfits_output(self) -> bool:
        """True if the candidate is not of the declared type: no check judged it."""
        return any(error.check == OUTPUT_CHECK for error in self.errors)

    @property
    def raised(self) -> tuple[str, ...]:
        """The types and places of the exceptions that refused the candidate."""
        return tuple(dict.fromkeys(f.raised for f in self.errors if f.raised))

    @property
    def unvalidated(self) -> tuple[Finding, ...]:
        """The warnings about checks that raised an error instead of judging."""
        return tuple(
            f
            for f in self.findings
            if f.level == "warning" and f.key == unvalidated_key(f.check)
        )

    @lazy
    def keys(self) -> frozenset[str]:
        """The keys of all findings except notes."""
        return frozenset(f.key for f in self.findings if f.level != "note")

    @lazy
    def persistent(self) -> frozenset[str]:
        """The keys of all persistent findings except notes."""
        return frozenset(
            f.key for f in self.findings if f.persistent and f.level != "note"
        )

    @lazy
    def severities(self) -> tuple[int, int]:
        """The highest severities of errors and of warnings, in thousandths; 0 without
        any.
        """
        worst = dict.fromkeys(FINDING_LEVELS, 0)
        for finding in self.findings:
            severity = thousandths(finding.severity)
            worst[finding.level] = max(worst[finding.level], severity)
        return worst["error"], worst["warning"]

    @property
    def worst(self) -> float:
        """The highest severity of all findings except notes; 0.0 without findings."""
        return max(self.severities) / 1000

    @lazy
    def distances(self) -> Mapping[Hashable, float]:
        """How far the errors are off, summed by key; see `Finding.off_by`.

        If an error has no `off_by` and no key of its own, its text may tell.
        """
        distances: dict[Hashable, float] = defaultdict(float)
        for error in self.errors:
            if error.off_by is not None:
                distances[error.key] += error.off_by
            elif error.key == default_key(error.check, error.message):
                for key, distance in distances_in(error.message):
                    distances[error.check, key] += distance
        return distances

    def ranks_beside(
        self, other: Evaluation, goals: tuple[Goal, ...]
    ) -> tuple[Rank, Rank]:
        """Return a sort key of this evaluation and one of the other.

        The smaller one belongs to the better evaluation. Their values are whether the
        answer is not of the declared type, so that no check could judge it, the number
        of errors, the number of goals that are missed or unscored, the negated worst
        margin to a goal and the negated sum of margins. If all of these are equal, how
        far the errors are off that both measure follows, and the highest severities of
        errors and of warnings. Margins and severities are in thousandths.
        """
        rank = self._rank(goals)
        other_rank = other._rank(goals)
        if rank == other_rank:
            shared = self.distances.keys() & other.distances.keys()
            rank += self._rank_of_errors(shared)
            other_rank += other._rank_of_errors(shared)
        return rank, other_rank

    def is_better_than(self, other: Evaluation, goals: tuple[Goal, ...]) -> bool:
        """Return True if this evaluation ranks before the other."""
        rank, other_rank = self.ranks_beside(other, goals)
        return rank < other_rank

    @lazy
    def _ranks(self) -> dict[tuple[Goal, ...], Rank]:
        """The ranks that were asked for: each decision ranks all attempts again."""
        return {}

    def _rank(self, goals: tuple[Goal, ...]) -> Rank:
        if goals not in self._ranks:
            scores = self.scores
            margins = [
                g.margin(scores[g.score]) if g.score in scores else UNSCORED_MARGIN
                for g in goals
            ]
            self._ranks[goals] = (
                self.misfits_output,
                sum(1 + error.more for error in self.errors),
                sum(margin < 0 for margin in margins),
                -min(margins, default=0),
                -sum(margins),
            )
        return self._ranks[goals]

    def _rank_of_errors(self, measured: Collection[Hashable]) -> Rank:
        off_by = round(fsum(self.distances[key] for key in measured), 9)
        return off_by, *self.severities

    def unmet(self, goals: tuple[Goal, ...]) -> tuple[Goal, ...]:
        """Return the goals, in order, that a score misses; goals without a score are
        left out.
        """
        scores = self.scores
        return tuple(
            g for g in goals if g.score in scores and not g.met(scores[g.score])
        )

    def unscored(self, goals: tuple[Goal, ...]) -> tuple[Goal, ...]:
        """Return the goals without a score."""
        return tuple(g for g in goals if g.score not in self.scores)

    def passes(self, goals: tuple[Goal, ...]) -> bool:
        """Return True if there is no error and every goal has a score that meets it."""
        return not self.errors and not self.unscored(goals) and not self.unmet(goals)


def as_data(value: Any) -> Any:
    """Return the JSON data of a pydantic object; return any other value unchanged.

    An object with a value that is no JSON is returned unchanged, too.
    """
    dump = (
        None if isinstance(value, (str, type)) else getattr(value, "model_dump", None)
    )
    if dump is None:
        return value
    try:
        return dump(mode="json")
    except ValueError:  # PydanticSerializationError is one
        return value


@typed_frozen(slots=True)
class Candidate:
    """The output of an attempt, stored as a digest and, if available, its text."""

    digest: str
    text: str | None = None

    @classmethod
    def of(cls, value: Any) -> Candidate:
        """Return a candidate for text, JSON data or a pydantic object; for others, use
        `repr`.

        The digest is the first 16 hex digits of the SHA-256 of the text or the
        canonical JSON.
        """
        text = value = as_data(value)
        if not isinstance(value, str):
            try:
                text = json.dumps(
                    value, sort_keys=True, ensure_ascii=False, default=repr
                )
            except (TypeError, ValueError):
                # Keys that cannot be sorted, or a value inside itself.
                text = repr(value)

        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return cls(digest[:16], text)


# What an attempt has whose function raised instead of returning an answer.
NO_CANDIDATE = Candidate("")


def text_of(task: Any) -> str:
    """Return a task as text, by which memory can search for it."""
    return task if isinstance(task, str) else Candidate.of(task).text or ""


@typed_frozen(slots=True)
class Attempt:
    """One attempt of a loop; `number` counts from 1.

    `repeats` is the number of an earlier attempt with nearly the same candidate.
    `labels` name who took part. `greedy` means that the candidate was sampled at
    temperature 0, so the same prompt gives the same answer. For attempts that an
    outside host reports, `report` is the report's id and `reported_as` the host's name
    for the attempt. `judged_by` names the checks and critics of the evaluation;
    "report" means that the host sent the evaluation. `measured` means that the
    evaluation counts as a measurement. `model` names the model that wrote the
    candidate, "" if it is unknown. `rung` is the rung of the loop's ladder that made
    the attempt; without a ladder it is 1. The candidate of a `draft` came from the
    caller of the loop. `deaf` names the function that made the candidate, if there was
    a hint and the function has no parameter for it. `type_name` is the class of a
    stored candidate, "" for text and JSON data. The candidate is the best of so many
    `candidates`; `lost` says what was wrong with some of the others.
    """

    number: int
    candidate: Candidate
    _: KW_ONLY
    evaluation: Evaluation | None = None
    usage: Usage = NO_USAGE
    repeats: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    greedy: bool = False
    report: str = ""
    reported_as: str = ""
    judged_by: tuple[str, ...] = ()
    measured: bool = True
    model: str = ""
    rung: int = 1
    draft: bool = False
    deaf: str = ""
    type_name: str = ""
    candidates: int = 1
    lost: tuple[str, ...] = ()

    @property
    def choice(self) -> str:
        """How many candidates it had, and what was wrong with others; "" for one."""
        if self.candidates == 1:
            return ""
        lost = f" (others: {'; '.join(self.lost)})" if self.lost else ""
        return f"best of {self.candidates}{lost}"

    @property
    def has_candidate(self) -> bool:
        """False if the function raised, and it is unknown which answer it refused."""
        return self.candidate.digest != ""

    def passes(self, goals: tuple[Goal, ...]) -> bool:
        """Return True if its evaluation passes."""
        return self.evaluation is not None and self.evaluation.passes(goals)

    @property
    def unjudged(self) -> bool:
        """True if the attempt has an evaluation, but no check and no score is in it."""
        evaluation = self.evaluation
        if evaluation is None or self.judged_by:
            return False
        is_empty = not evaluation.findings and not evaluation.scores
        return is_empty and evaluation.met is None

    def reports(self, unit: str) -> bool:
        """Return True if the answer itself, without its judges, has cost some of a
        unit of `Usage`.
        """
        judging = self.evaluation.usage if self.evaluation else NO_USAGE
        spent: float = getattr(self.usage, unit)
        judged: float = getattr(judging, unit)
        return spent > judged

    @property
    def doubt(self) -> str:
        """Why its evaluation validates nothing: nothing judged it, or a check raised an
        error; "" if it was judged.
        """
        return UNJUDGED if self.unjudged else self.unvalidated

    @property
    def doubt_state(self) -> str:
        """The state of a loop that passed with this attempt, if there is a doubt.

        "unchecked": there was no check, goal or evaluator. "not_validated": a check
        raised an error. "" if the attempt was judged.
        """
        if self.unjudged:
            return "unchecked"
        return "not_validated" if self.unvalidated else ""

    @property
    def deafness(self) -> str:
        """Why feedback did not reach the function; "" if it did, or there was none."""
        reason = (
            f"{self.deaf} has no parameter for the hint, so feedback reaches it only "
            "through heedful.context().hint"
        )
        return reason if self.deaf else ""

    @property
    def unvalidated(self) -> str:
        """Which check raised an error instead of judging, and the error; "" if none."""
        doubts = self.evaluation.unvalidated if self.evaluation else ()
        return doubts[0].message if doubts else ""


def unvalidated_key(check: str) -> str:
    """Return the key of the finding that reports an error raised by a check."""
    return f"{check}: not validated"


@dataclass(frozen=True, slots=True)
class Override:
    """Permission to continue a loop although `rule` stops it, for a number of
    `decisions`.

    `used` counts the decisions in which the override suspended the rule. `until` is the
    time of expiry, in seconds since 1970; None means never. The override counts on
    `rung` of the loop's ladder only.
    """

    rule: str
    by: str
    _: KW_ONLY
    why: str = ""
    decisions: int = 1
    used: int = 0
    until: float | None = None
    rung: int = 1

    def lifts(self, at: float) -> bool:
        """Return True unless the override is used up or expired at `at` (seconds since
        1970).
        """
        return self.used < self.decisions and (self.until is None or at < self.until)


@refuses_unknown_options
@dataclass(frozen=True, slots=True)
class Improvement:
    """What counts as an improvement over the best attempt so far or over the previous
    attempt.

    Against "best", an attempt improves if it becomes the best, and if the first value
    of `Evaluation.ranks_beside` that differs falls enough: a number of errors or goals
    by 1, a margin or a severity by `min_gain`, how far errors are off by this share of
    itself. Against "previous", an attempt improves if the
    score of any goal gains `min_gain`. A missing previous score counts as 0 for
    "at_least" goals and as 1 for "at_most" goals. Without goals, "previous" compares
    the ranks of the two attempts.
    """

    min_gain: float = 0.05
    against: Literal["best", "previous"] = "best"

    def __post_init__(self) -> None:
        check_number("min_gain", self.min_gain, low=0.001, high=MAX_SCORE)
        require(
            self.against in ("best", "previous"),
            "against",
            self.against,
            "best or previous",
        )

    def __call__(
        self, best: Evaluation, new: Evaluation, goals: tuple[Goal, ...]
    ) -> bool:
        """Return True if `new` improves on `best`, which is the best or the previous
        evaluation.
        """
        least = thousandths(self.min_gain)
        if self.against == "previous" and goals:
            return any(
                goal.margin(new.scores[goal.score]) - goal.margin_of(best) >= least
                for goal in goals
                if goal.score in new.scores
            )

        was, now = best.ranks_beside(new, goals)
        if now >= was:
            return False

        place = next(n for n, value in enumerate(now) if value != was[n])
        gain = was[place] - now[place]
        if place == OFF_BY_PLACE:
            return round(gain - self.min_gain * was[place], 9) >= 0
        return place < OFF_BY_PLACE - 2 or gain >= least


@typed_frozen()
class Loop:
    """One task under self-correction: its goals, attempts and overrides.

    `extra` is the usage of calls without an attempt: those that failed, were cut off or
    ended with their process. `died` counts the last of these, since the last attempt.
    `cancelled` says who
    cancelled the loop or why. `echoes` counts finding keys in earlier loops of the
    scope; the host loads it for `Echo(across="scope")`. `improves` decides what counts
    as an improvement; `decide` sets it from the policy. Overrides that expired before
    `at` (seconds since 1970) do not count. Without a `ladder`, all attempts are made by
    the same generator. `needed` has the numbers of attempts that earlier loops of the
    same memory key needed to pass, newest first; the host loads it for rules that are
    user code.
    """

    id: str
    goals: tuple[Goal, ...] = ()
    _: KW_ONLY
    attempts: tuple[Attempt, ...] = ()
    overrides: tuple[Override, ...] = ()
    extra: Usage = NO_USAGE
    died: int = 0
    cancelled: str = ""
    echoes: Mapping[str, int] = field(default_factory=dict)
    improves: Improvement = Improvement()
    at: float = 0.0
    ladder: Ladder | None = None
    task: str = field(default="", compare=False, repr=False)
    needed: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        numbers = [a.number for a in self.attempts]
        first = 1
        if self.ladder is not None and numbers:
            # The attempts of a later rung, as `of_rung` returns them.
            first = numbers[0]
        if numbers != [*range(first, first + len(numbers))]:
            raise InvalidInput("attempt numbers", numbers, "1, 2, 3 … without gaps")

    def then(self, attempt: Attempt) -> Loop:
        """Return the loop with one more attempt."""
        # Not `replace`, which takes three times as long.
        return Loop(
            self.id,
            self.goals,
            attempts=(*self.attempts, attempt),
            overrides=self.overrides,
            extra=self.extra,
            cancelled=self.cancelled,
            echoes=self.echoes,
            improves=self.improves,
            at=self.at,
            ladder=self.ladder,
            task=self.task,
            needed=self.needed,
        )

    @property
    def is_under_way(self) -> bool:
        """True after an attempt, an override or a call that failed in a process."""
        has_failed = self.extra.calls > self.died
        return has_failed or bool(self.attempts or self.overrides)

    @property
    def judges_itself(self) -> bool:
        """Whether an exception refused an answer, so that the next ones passed it."""
        evaluations = [attempt.evaluation for attempt in self.attempts]
        return any(judged and judged.raised for judged in evaluations)

    @property
    def rung(self) -> int:
        """The rung that made the last attempt, or that makes the first one."""
        if self.attempts:
            return self.attempts[-1].rung
        return 1 if self.ladder is None else self.ladder.start

    @property
    def last_evaluation(self) -> Evaluation | None:
        """The evaluation of the last attempt, if there is one."""
        return self.attempts[-1].evaluation if self.attempts else None

    def of_rung(self) -> Loop:
        """Return the loop with only the attempts since it came to its last rung.

        Their numbers stay the same. The usage of earlier attempts is in `extra`, so the
        sum does not change.
        """
        if self.ladder is None:
            return self

        count = len(self.attempts)
        while count and self.attempts[count - 1].rung == self.rung:
            count -= 1
        if not count:
            return self

        earlier = sum((a.usage for a in self.attempts[:count]), self.extra)
        return replace(self, attempts=self.attempts[count:], extra=earlier)

    def climb(self) -> Climb | None:
        """Return what the attempts cost, by rung; None for a loop without a ladder."""
        if self.ladder is None:
            return None

        attempts = [
            RungAttempt(
                rung=attempt.rung,
                passed=attempt.passes(self.goals),
                **add_costs([attempt.usage]),
            )
            for attempt in self.attempts
            if not attempt.draft
        ]
        # A draft's cost is overhead, not the rung's.
        drafts = [attempt.usage for attempt in self.attempts if attempt.draft]
        return Climb(
            self.id,
            tuple(attempts),
            names=self.ladder.names,
            overhead=add_overheads([self.extra, *drafts]),
        )

    def upto(self, end: int) -> Loop:
        """Return the loop with only its first `end` attempts."""
        ladder = self.ladder and self.ladder.upto(end)
        part = replace(self, attempts=self.attempts[:end], ladder=ladder)
        part.__dict__.update(leaders=self.leaders[:end], improved=self.improved[:end])
        return part

    @lazy
    def usage(self) -> Usage:
        """The usage of all attempts, plus `extra`."""
        return sum((attempt.usage for attempt in self.attempts), self.extra)

    @property
    def unreported(self) -> tuple[str, ...]:
        """Which of "calls" and "tokens" nobody counted, so that they are not 0."""
        calls = self.usage.calls
        is_counted = calls or not any(attempt.report for attempt in self.attempts)
        names = () if is_counted else ("calls",)
        if not self.usage.tokens and (calls or names):
            names = (*names, "tokens")
        return names

    @property
    def usage_text(self) -> str:
        """The usage in words, such as "calls 2, tokens not reported"."""
        usage = self.usage
        parts = []
        for name, count in (("calls", usage.calls), ("tokens", usage.tokens)):
            count_text = "not reported" if name in self.unreported else str(count)
            parts.append(f"{name} {count_text}")
        if usage.cost:
            parts.append(f"cost {usage.cost:.6g}")
        return ", ".join(parts)

    @property
    def model(self) -> str:
        """The model of the first rung, as its attempts name it; "" if none does."""
        names = (attempt.model for attempt in self.attempts if attempt.rung == 1)
        return next(filter(None, names), "")

    @lazy
    def leaders(self) -> tuple[Attempt | None, ...]:
        """For each attempt, the best one up to it; None if no candidate was evaluated.

        An attempt is the best if it is better than the best one before it.
        """
        leaders: list[Attempt | None] = []
        leader: Attempt | None = None
        for attempt in self.attempts:
            if attempt.evaluation is not None and attempt.has_candidate:
                best = leader and leader.evaluation
                if not best or attempt.evaluation.is_better_than(best, self.goals):
                    leader = attempt
            leaders.append(leader)
        return tuple(leaders)

    @property
    def last_improvement(self) -> int:
        """The index (from 0) of the last attempt that improved; 0 if no attempt
        improved.
        """
        improved = self.improved
        return next((n for n in reversed(range(len(improved))) if improved[n]), 0)

    def count_findings(self) -> dict[str, int]:
        """Count, for each finding's key, the attempts with that finding; notes are
        ignored.

        Only attempts since the last improvement count. For persistent findings, all
        attempts count.
        """
        since = self.last_improvement
        counts = Counter("")
        for index, attempt in enumerate(self.attempts):
            evaluation = attempt.evaluation
            if evaluation is not None:
                keys = evaluation.keys if index >= since else evaluation.persistent
                counts.update(keys)

        return counts

    def repeats(self, near: bool = True) -> list[int | None]:
        """Return for each attempt the number of the first with an equal candidate, or
        else None.

        With `near`, an earlier candidate that is nearly the same counts, too. Only the
        candidates of this loop's `attempts` count.
        """
        first: dict[str, int] = {}
        repeated: list[int | None] = []
        for attempt in self.attempts:
            if not attempt.has_candidate:
                repeated.append(None)
                continue
            digest = attempt.candidate.digest
            repeated.append(first.get(digest, attempt.repeats if near else None))
            first.setdefault(digest, attempt.number)

        return repeated

    def describe_repeats(self, numbers: Sequence[int], first: int) -> str:
        """Return in words that these attempts repeat the `first`, exactly or nearly."""
        begin = self.attempts[0].number
        digest = self.attempts[first - begin].candidate.digest
        last = self.attempts[numbers[-1] - begin]
        nearly = "" if last.candidate.digest == digest else "nearly "
        noun, verb = ("attempts", "repeat") if numbers[1:] else ("attempt", "repeats")
        names = " and ".join(map(str, numbers))
        return f"{noun} {names} {nearly}{verb} attempt {first}"

    @property
    def corrected(self) -> Sequence[Finding]:
        """The earlier errors of the checks that the last attempt passes, each once."""
        errors = dict[Hashable, Finding]()
        failing = set[str]()
        for attempt in self.attempts:
            attempt_errors = attempt.evaluation.errors if attempt.evaluation else ()
            errors |= {error.key: error for error in attempt_errors}
            failing = {error.check for error in attempt_errors}
        return [error for error in errors.values() if error.check not in failing]

    @property
    def best(self) -> int | None:
        """The number of the best attempt; None if no candidate was evaluated."""
        leader = self.leaders[-1] if self.attempts else None
        return None if leader is None else leader.number

    @lazy
    def improved(self) -> tuple[bool, ...]:
        """For each attempt, True if it improved the loop; the first evaluated one
        always does.
        """
        answers: list[bool] = []
        before: Evaluation | None = None

        for attempt, leader in zip(self.attempts, self.leaders, strict=True):
            evaluation = attempt.evaluation if attempt.has_candidate else None
            is_beaten = self.improves.against == "best" and leader is not attempt
            if evaluation is None or is_beaten:
                answers.append(False)
                continue

            answers.append(
                before is None or self.improves(before, evaluation, self.goals)
            )
            before = evaluation

        return tuple(answers)
