"""Proof: does a lesson help? Recurrence, uplift and calls saved, each with an interval.

Recall withholds a lesson with a known probability. The loops that were shown the lesson
are compared with the loops that were not. The intervals stay valid however often
somebody looks, because they come from bets against each possible gain (`Wealth`). A
gain is refuted when a bet against it has won enough. With many lessons, e-BH keeps the
share of false conclusions low.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache
from itertools import chain, product
from math import ceil, exp, fsum, inf, log, log1p, pi, sin
from typing import Literal, TypeVar

from heedful.display import line_text, screen_text
from heedful.loop.ladder import LadderFigures
from heedful.loop.share import percent, points, without
from heedful.notebook import html_form

K = TypeVar("K", bound=tuple[float, *tuple[object, ...]])
# How often each result of a loop occurred: (the probability that the lesson is
# withheld, whether it was shown, the outcome 0..1, where 1 is best).
Cells = Mapping[tuple[float, bool, float], int]
# How often each pair of results occurred: (with, without) on the same task, 0..1.
Pairs = Mapping[tuple[float, float], int]
# A bet has a centre and a stake. The centres m are evenly spread in asin(sqrt(m)). The
# stakes are parts of the largest stake that never leads to debt; small parts have less
# weight. Both were chosen by the widths of the intervals that they give.
BET_CENTRES = tuple(sin((2 * n + 1) * pi / 16) ** 2 for n in range(4))
STAKE_PART_WEIGHTS = {0.9 / 2**n: 1 / (n + 2) for n in range(8)}
BET_GRID = tuple(product(BET_CENTRES, STAKE_PART_WEIGHTS))
# The logarithm of what each bet begins with; all bets together begin with 1.
BET_LOG_WEIGHTS = tuple(
    log(STAKE_PART_WEIGHTS[part] / sum(STAKE_PART_WEIGHTS.values()) / len(BET_CENTRES))
    for _, part in BET_GRID
)


@lru_cache(64)
def stakes(share: float) -> tuple[float, ...]:
    """Return the stake of each bet, for a lesson withheld with probability `share`."""
    # The divisor is the most that a bet of 1 can lose.
    return tuple(part / max(m / (1 - share), (1 - m) / share) for m, part in BET_GRID)


@lru_cache(4_096)
def payoffs(share: float, shown: bool, value: float) -> tuple[float, ...]:
    """Return what the result of one loop adds to the log of each bet's wealth.

    Each bet says that a lesson helps. `value` is the result, 0..1. `share` is the
    probability that the lesson is withheld, and `shown` says whether it was shown.
    """
    # A rare draw weighs more, so that on average a lesson without effect wins nothing.
    weight = 1 / (1 - share) if shown else -1 / share
    bets = zip(BET_GRID, stakes(share), strict=True)
    return tuple(log1p(stake * weight * (value - m)) for (m, _), stake in bets)


@dataclass(frozen=True, slots=True)
class Wealth:
    """What each bet on a gain above 0 has won; wealth is evidence for the gain.

    `logs` are the logarithms of the wealth of each bet. `tosses` say how often the draw
    decided with which stakes.
    """

    logs: tuple[float, ...]
    tosses: tuple[tuple[tuple[float, ...], int], ...]

    @classmethod
    def of(cls, cells: Cells) -> "Wealth":
        """Return what bets on a lesson have won by the results of loops.

        `cells` counts the loops by: the probability that the lesson was withheld,
        whether it was shown, and the result of the loop.
        """
        logs = list(BET_LOG_WEIGHTS)
        tosses: dict[float, int] = {}  # the number of loops by that probability
        # Sorted, because a sum of floats depends on the order.
        for (share, was_shown, value), n in sorted(cells.items()):
            tosses[share] = tosses.get(share, 0) + n
            payoffs_of_bets = payoffs(share, was_shown, value)
            logs = [
                old + n * payoff
                for old, payoff in zip(logs, payoffs_of_bets, strict=True)
            ]

        stakes_tossed = tuple((stakes(share), n) for share, n in tosses.items())
        return cls(tuple(logs), stakes_tossed)

    def at(self, gain: float) -> tuple[float, float]:
        """Return the log of the evidence for a gain above `gain`, and its slope.

        The evidence is the wealth of all bets together, and the slope is by how much
        its log changes per unit of `gain`.
        """
        # Take from each bet what it wins on average if `gain` is the true gain.
        logs = list(self.logs)
        slopes = [0.0] * len(BET_GRID)
        for stakes_of_bets, n in self.tosses:
            for i, stake in enumerate(stakes_of_bets):
                logs[i] -= n * log1p(stake * gain)
                slopes[i] -= n * stake / (1 + stake * gain)

        # The wealth of each bet as a part of the largest, so that nothing overflows.
        largest = max(logs)
        parts = [exp(log_wealth - largest) for log_wealth in logs]
        slope = sum(part * slope for part, slope in zip(parts, slopes, strict=True))
        return largest + log(sum(parts)), slope / sum(parts)

    def least(self, level: float) -> float:
        """Return the smallest gain, -1..1, that the significance `level` leaves open.

        A gain is refuted if the evidence for more than it exceeds 1 / `level`. Newton's
        method finds the gain with just this evidence, from the smallest one upwards.
        """
        gain = -1.0
        needed_log = -log(level)
        for _ in range(100):
            evidence_log, slope = self.at(gain)
            if evidence_log - needed_log < 1e-9 or gain >= 1:
                break
            gain -= (evidence_log - needed_log) / slope
        return min(gain, 1.0)


def mirror(cells: Cells) -> Cells:
    """Return the counts with shown and withheld exchanged; the gain changes sign."""
    return {
        (1 - share, not was_shown, value): n
        for (share, was_shown, value), n in cells.items()
    }


def interval(cells: Cells, low: float, high: float) -> tuple[float, float]:
    """Return the ends of the gain's interval at the significance `low` and `high`."""
    return Wealth.of(cells).least(low), -Wealth.of(mirror(cells)).least(high)


Conclusion = Literal["helps", "hurts", "no difference shown", "insufficient data"]
NO_CONCLUSION: Conclusion = "insufficient data"
# One loop with or without a lesson: (the probability that it is withheld, whether it
# was shown, whether the first attempt passed, whether the error recurred, model calls,
# whether a higher rung was needed: None without a ladder).
Case = tuple[float, bool, bool, bool, int, bool | None]
# How often each case occurred, by lesson; None is memory as a whole.
Cases = Mapping[str | None, Mapping[Case, int]]
# Model calls of a loop count up to this, and so do abandoned loops: intervals need a
# bound.
MAX_COUNTED_CALLS = 10
# How often an interval may miss the true gain at one of its ends: at both, 5 %.
END_ERROR_LEVEL = 0.025
# A conclusion comes from two measures: right at the first try, and the error again.
# Each has half of the level, so that both intervals hold together.
SOURCE_ERROR_LEVEL = END_ERROR_LEVEL / 2
MIN_RELEVANT_UPLIFT = 0.1  # a smaller uplift does not matter
MAX_FORECAST_LOOPS = 10_000  # a forecast of more loops would be far off
# A holdout with which a verdict comes sooner; a larger one hardly helps.
PROOF_HOLDOUT = 0.3


@dataclass(frozen=True, slots=True)
class Effect:
    """The means of a measure in loops with and without a lesson, and the gain from it.

    The true `gain` lies between `low` and `high`. A mean is None without such loops;
    the interval is then as wide as possible. If the holdout has changed, each loop is
    weighted: a loop that had the lesson by 1 divided by the probability of showing it,
    any other loop by 1 divided by the probability of withholding it.
    """

    shown: float | None
    withheld: float | None
    _: KW_ONLY
    gain: float | None
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """What loops with a lesson and loops without it show about the lesson.

    If `lesson` is None, they are about all lessons together. `shown` counts the loops
    with it, and `withheld` those without it. `uplift` compares the share of loops that
    passed at the first attempt. `recurrence` compares the share in which the lesson's
    error occurred again, `calls` the model calls of a loop, and `climbs` the share of
    loops with a ladder that needed a higher rung than the first; their gain is the
    reduction. `climbs` is None without a ladder. The `conclusion` comes from `uplift`
    and `recurrence`. `missing` is about how many more loops with a random draw a
    conclusion needs, if they end as the earlier ones did. It is 0 if there is a
    conclusion, and None without loops of both kinds or if more than 10,000 are missing.
    """

    lesson: str | None
    shown: int
    _: KW_ONLY
    withheld: int
    uplift: Effect
    recurrence: Effect
    calls: Effect
    conclusion: Conclusion
    climbs: Effect | None = None
    missing: int | None = None

    def __str__(self) -> str:
        """Return one sentence for a person.

        It compares loops that were shown the lesson with the others: the shares are in
        percent, the gains and their intervals in percentage points.
        """
        uplift = self.uplift
        counts = f"shown {self.shown}, withheld {self.withheld}"
        if uplift.gain is None:
            return f"{counts}: nothing to compare; {self.conclusion}"

        shown = 100 * (uplift.shown or 0.0)
        # Rounded so that the printed gain is the difference of the printed shares.
        base = without(shown, 100 * (uplift.withheld or 0.0), 100 * uplift.gain)
        recurrence = self.recurrence
        # The gain of a recurrence is its reduction, so the signs are exchanged.
        return (
            f"{counts}: right at the first try {percent(uplift.shown)} against "
            f"{percent(base / 100)}; {points(uplift.gain)} points, between "
            f"{points(uplift.low)} and {points(uplift.high)}; the same error again "
            f"{percent(recurrence.shown)} against "
            f"{percent(recurrence.withheld)}, between {points(-recurrence.high)} and "
            f"{points(-recurrence.low)}; {self.conclusion}"
        )


@dataclass(frozen=True, slots=True)
class Total:
    """The gain in all loops together, None if it is unknown.

    The true gain lies between `low` and `high`.
    """

    gain: float | None
    low: float
    high: float

    @classmethod
    def of(cls, effect: Effect, loops: int) -> "Total":
        """Return the total of an effect that so many loops had."""
        return cls(_scaled(effect.gain, loops), loops * effect.low, loops * effect.high)

    def within(self, least: float, most: float) -> "Total":
        """Return the part of the total that what is counted allows."""
        low = max(least, self.low)
        high = min(most, self.high)
        gain = None if self.gain is None else min(max(self.gain, low), high)
        return Total(gain, low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """What memory as a whole changed in the loops that were shown it.

    `right` counts the loops whose first answer was right. `net` is how many of them
    memory added, and `calls_saved` how many model calls it saved; both are the gain per
    loop times the number of loops. `missing` is about how many more loops with one
    random draw for all lessons a conclusion needs: 0 if there is a conclusion, None
    without loops of both kinds, or if more than 10,000 are missing.
    """

    right: int
    net: Total
    calls_saved: Total
    missing: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """About how many more `loops` a verdict on memory as a whole needs.

    They are loops with lessons that end as the earlier ones did; 0 if the holdout is 0,
    because then none is of use. With a holdout of at least 0.3, it needs `sooner`. On
    the last `of_days` days, `recent` such loops ended.
    """

    loops: int
    sooner: int
    recent: int
    of_days: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSum:
    """The `cost` of so many `loops` together, with or without memory as a whole.

    `share` is the probability that memory was withheld, and `shown` says whether it was
    shown.
    """

    share: float
    shown: bool
    loops: int
    cost: float


@dataclass(frozen=True, slots=True)
class MeanCost:
    """The mean cost of a loop with and without memory, None without such loops.

    Loops are weighted as in `Effect`. There is no interval, because a cost has no upper
    limit.
    """

    shown: float | None
    withheld: float | None


@dataclass(frozen=True, slots=True, repr=False)
class Proof:
    """Memory as a whole, each lesson by name, and how many loops have no outcome.

    `balance` is about memory as a whole, too. `models` has memory as a whole for the
    loops of each model, by its name, which is "" if it is unknown. Each of their
    intervals is valid by itself. `ladders` has what each rung answered and spent in
    loops with several generators. `mean_cost` is None if no loop that is compared has
    a cost. In `coins` loops a draw decided whether memory was shown. `trials` has what
    other memories on trial prove. `forecast` is None with a verdict, without loops of
    both kinds, or if more than 10,000 loops are missing.
    """

    pooled: Comparison
    lessons: tuple[Comparison, ...]
    pending: int
    balance: Balance
    models: Mapping[str, Comparison] = field(default_factory=dict)
    ladders: LadderFigures = LadderFigures()
    mean_cost: MeanCost | None = None
    coins: int = 0
    trials: "tuple[TrialProof, ...]" = ()
    forecast: Forecast | None = None

    _repr_html_ = html_form

    def __repr__(self) -> str:
        return line_text(
            "Proof",
            conclusion=self.pooled.conclusion,
            shown=self.pooled.shown,
            withheld=self.pooled.withheld,
            lessons=len(self.lessons),
        )

    def __str__(self) -> str:
        lines = [f"memory as a whole: {self.pooled}"]
        lines += [f"lesson {lesson.lesson}: {lesson}" for lesson in self.lessons]
        if self.pending:
            lines.append(f"not counted yet: {self.pending} loops without an outcome")
        return screen_text(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class CasesByModel:
    """What loops did with and without lessons, by the name of their model.

    `cases` are those of loops that ended, `pending` counts the loops without an
    outcome. The name is "" for loops whose model is unknown. `costs` has the costs of
    loops with memory as a whole, and of those without.
    """

    cases: Mapping[str, Cases]
    pending: Mapping[str, int]
    costs: Mapping[str, Sequence[CostSum]] = field(default_factory=dict)

    def cases_of(self, model: str = "") -> Cases:
        """Return how often each case occurred in loops of a model, by lesson.

        A case is a loop with or without a lesson, and how it ended. With the name "",
        the counts of all models are added up.
        """
        if model:
            return self.cases.get(model, {})

        sums: defaultdict[str | None, Counter[Case]] = defaultdict(Counter)
        for cases in self.cases.values():
            for lesson, counts in cases.items():
                sums[lesson].update(counts)
        return sums

    def costs_of(self, model: str) -> Sequence[CostSum]:
        """Return the costs of the loops of a model; of all loops without a name."""
        costs = {model: self.costs.get(model, ())} if model else self.costs
        return list(chain.from_iterable(costs.values()))


def mean_cost(costs: Sequence[CostSum]) -> MeanCost | None:
    """Return the mean cost of loops with and without memory; None if no loop has one.

    Loops for which no draw decided whether memory was withheld count only if there are
    no others.
    """
    if not any(cost.cost for cost in costs):
        return None

    cells = Counter[tuple[float, bool, float]]()
    for cost in costs:
        cells[cost.share, cost.shown, cost.cost / cost.loops] += cost.loops
    compared = _drawn(cells)
    return MeanCost(_mean(compared, was_shown=True), _mean(compared, was_shown=False))


def usefulness(comparison: Comparison) -> float:
    """Return the factor of a lesson for ranking, 0.5..1.5: 1 plus half of its effect.

    A lesson that helps or hurts is taken to do so at least as much as the interval of
    its effect allows: by the end closer to 0. Of uplift, that is more first tries that
    pass, and recurrence, the larger effect counts. Without proof the factor is 1.
    """
    proven_effects = {
        "helps": max(comparison.uplift.low, comparison.recurrence.low),
        "hurts": min(comparison.uplift.high, comparison.recurrence.high),
    }
    return 1 + proven_effects.get(comparison.conclusion, 0.0) / 2


def prove(evidence: CasesByModel, model: str = "") -> Proof:
    """Return what loops prove about each lesson and about memory as a whole.

    With a `model`, only its loops count for this, otherwise all. In `models`, memory as
    a whole is compared for each model by itself, whatever `model` is.
    """
    # By name; the loops that named no model come last.
    models = {
        name: compare_pooled(evidence.cases[name])
        for name in sorted(evidence.cases, key=lambda name: (not name, name))
    }
    pending = {model: evidence.pending.get(model, 0)} if model else evidence.pending
    return replace(
        prove_cases(evidence.cases_of(model), sum(pending.values())),
        models=models,
        mean_cost=mean_cost(evidence.costs_of(model)),
    )


def compare_pooled(cases: Cases) -> Comparison:
    """Compare loops with and without memory as a whole."""
    table = _Table.of(None, cases.get(None, {}))
    return table.compare(SOURCE_ERROR_LEVEL, SOURCE_ERROR_LEVEL)


def _weigh(cases: Cases, pooled: Comparison) -> Balance:
    """Return how many right answers and saved calls memory as a whole has brought.

    The sums are over all loops that were shown it. `pooled` compares these loops with
    those that were shown nothing.
    """
    table = _Table.of(None, cases.get(None, {}))  # None is memory as a whole
    right = sum(
        n for (_, is_shown, value), n in table.right.items() if is_shown and value
    )
    right_added = Total.of(pooled.uplift, pooled.shown)
    # Without memory, each loop would have made from none to `MAX_COUNTED_CALLS` calls.
    calls_made = pooled.shown * (pooled.calls.shown or 0.0)
    most_saved = pooled.shown * MAX_COUNTED_CALLS - calls_made
    calls_saved = Total.of(pooled.calls, pooled.shown)
    return Balance(
        right=right,
        # At most, memory made all right answers right, or all wrong ones wrong.
        net=right_added.within(right - pooled.shown, right),
        calls_saved=calls_saved.within(-calls_made, most_saved),
        missing=pooled.missing,
    )


def prove_cases(cases: Cases, pending: int) -> Proof:
    """Return what loops prove about each lesson, and about memory as a whole.

    `cases` counts loops with and without each lesson, and how they ended. `pending` is
    the number of loops without an outcome.

    Each interval is valid at all times at once, with a probability of at least 95 %,
    those of uplift and recurrence together. A lesson helps or hurts if one of these two
    is wholly above or below 0, and the uplift is no relevant loss or gain: repeats of
    one error tell sooner than first tries, which fail for other reasons, too. With many
    lessons these intervals are wider, by the e-BH procedure (R. Wang, A. Ramdas, "False
    discovery rate control with e-values", J. R. Stat. Soc. B 84 (2022) 822-852): at
    most 2.5 % of the lessons said to hurt, or to help, are expected not to. "no
    difference shown" means that the interval of uplift is within `MIN_RELEVANT_UPLIFT`
    of 0. Loops for which no draw decided what they were shown count only if there are
    no others.
    """
    tables, low, high = _tables(cases)
    lessons = tuple(table.compare(low, high) for table in tables)
    pooled = compare_pooled(cases)
    return Proof(
        pooled,
        lessons,
        pending,
        balance=_weigh(cases, pooled),
        # A case begins with the probability of being shown nothing: 0 without a draw.
        coins=sum(n for case, n in cases.get(None, {}).items() if case[0] > 0),
    )


def find_proven(cases: Cases) -> tuple[Comparison, ...]:
    """Return the comparisons of those lessons that are proven to help or to hurt.

    They are as in `prove_cases`, but found faster.
    """
    tables, low, high = _tables(cases)
    # The intervals take most of the time. They can exclude 0, which is the proof, only
    # with this evidence; the small number allows for rounding.
    comparisons = [
        table.compare(low, high)
        for table in tables
        if table.evidence(better=True) >= -log(low) - 1e-6
        or table.evidence(better=False) >= -log(high) - 1e-6
    ]
    return tuple(
        comparison
        for comparison in comparisons
        if comparison.conclusion in ("helps", "hurts")
    )


def hurting(comparisons: Sequence[Comparison]) -> Sequence[Comparison]:
    """Return the comparisons of lessons that hurt."""
    return [
        comparison for comparison in comparisons if comparison.conclusion == "hurts"
    ]


def find_unfit(evidence: CasesByModel) -> Mapping[str, Sequence[Comparison]]:
    """Return, for each model, the comparisons of the lessons that hurt its loops.

    If all loops are of one model, the result is empty: what hurts them is then found
    as what hurts all loops. Loops whose model is unknown are left out.
    """
    return {
        model: hurting(find_proven(cases))
        for model, cases in evidence.cases.items()
        if model and len(evidence.cases) > 1
    }


def _tables(cases: Cases) -> "tuple[list[_Table], float, float]":
    """Return the results of loops for each lesson, and two levels of significance.

    The lessons are sorted by name. The levels are those at which a lesson helps, and at
    which it hurts. They are lower the more lessons are tested, so that few are said to
    help or hurt by chance.
    """
    names = sorted(name for name in cases if name is not None)
    tables = [_Table.of(name, cases[name]) for name in names]
    # Only with loops of both kinds can a lesson be tested.
    tested = [table for table in tables if _difference(table.right) is not None]
    level_of_help = _level([table.evidence(better=True) for table in tested])
    level_of_harm = _level([table.evidence(better=False) for table in tested])
    return tables, level_of_help, level_of_harm


def _level(evidence: Sequence[float]) -> float:
    """Return the level of significance for one lesson of several that are tested.

    `evidence` has the log of the evidence for each lesson. By the e-BH procedure, the
    level depends on how many lessons have enough evidence: so it limits the share of
    false ones among those that are found, and not the chance of a single false one.
    """
    count = max(len(evidence), 1)

    # Rank the lessons by evidence, and find the last rank whose lesson has the evidence
    # that this rank needs. There is a level even if no lesson has enough.
    count_with_enough = 1
    for rank, log_evidence in enumerate(sorted(evidence, reverse=True), 1):
        if log_evidence >= log(count / (SOURCE_ERROR_LEVEL * rank)):
            count_with_enough = rank
    return SOURCE_ERROR_LEVEL * count_with_enough / count


def _drawn(counts: Mapping[K, int]) -> Mapping[K, int]:
    """Return the counts of what a draw decided, or else all counts.

    A key begins with the probability that a lesson is withheld: where no draw decided,
    that is 0.
    """
    return {key: n for key, n in counts.items() if key[0] > 0} or counts


@dataclass(frozen=True, slots=True)
class _Table:
    """The `results` of one lesson: how often each value of each measure occurred.

    The measures are "right", "again", "calls" and "climbs".
    """

    lesson: str | None
    results: Mapping[str, Cells]

    @classmethod
    def of(cls, lesson: str | None, cases: Mapping[Case, int]) -> "_Table":
        """Return how often each value of each measure occurred in a lesson's loops.

        `cases` counts loops with and without the lesson, and how they ended. Those for
        which no draw decided what they were shown count only if there are no others.
        """
        results: defaultdict[str, Counter[tuple[float, bool, float]]]
        results = defaultdict(Counter)
        for case, n in _drawn(cases).items():
            share, was_shown, at_once, recurred, calls_made, climbed = case
            counted_calls = min(max(calls_made, 0), MAX_COUNTED_CALLS)
            values = {
                "right": at_once,
                "again": recurred,
                "calls": counted_calls / MAX_COUNTED_CALLS,
                "climbs": climbed,
            }
            for measure, value in values.items():
                if value is not None:  # without a ladder, a loop cannot climb
                    results[measure][share, was_shown, float(value)] += n
        return cls(lesson, results)

    @property
    def right(self) -> Cells:
        """Whether loops passed at the first attempt."""
        return self.results["right"]

    def evidence(self, better: bool) -> float:
        """Return the log of the evidence that the lesson helps (`better`) or hurts.

        Two measures can show it: more first tries that pass, and fewer errors that come
        again. The one with more evidence counts; a measure with a difference in the
        other direction has none.
        """
        # Mirrored counts have shown and withheld exchanged, so that less is better.
        sources = (self.right, mirror(self.results["again"]))
        sided = sources if better else map(mirror, sources)
        return max(
            (
                Wealth.of(cells).at(0.0)[0]
                for cells in sided
                if (_difference(cells) or 0.0) > 0
            ),
            default=-inf,
        )

    def compare(self, low: float, high: float) -> Comparison:
        """Compare the loops with and without the lesson.

        `low` and `high` are the significance levels of the two ends of the interval of
        the uplift, that is more first tries that pass, and of the recurrence, fewer
        errors that come again. Only these two lead to a conclusion.
        """
        uplift = _effect(self.right, low, high)
        recurrence = _effect(self.results["again"], low, high, fewer=True)
        calls = _effect(self.results["calls"], fewer=True, unit=MAX_COUNTED_CALLS)
        climbs = None
        if self.results["climbs"]:
            climbs = _effect(self.results["climbs"], fewer=True)

        shown_loops = _count_shown(self.right)
        return Comparison(
            self.lesson,
            shown_loops,
            withheld=sum(self.right.values()) - shown_loops,
            uplift=uplift,
            recurrence=recurrence,
            calls=calls,
            conclusion=_conclude(uplift, recurrence),
            climbs=climbs,
            missing=_missing_loops(
                [self.right, mirror(self.results["again"])],
                uplift,
                recurrence,
                low=low,
                high=high,
            ),
        )


def _conclude(uplift: Effect, *others: Effect) -> Conclusion:
    """Return whether a lesson helps or hurts, as the intervals of its effects show.

    The `uplift`, that is more first tries that pass, decides if its interval is wholly
    above or below 0. Another effect decides in the same way, unless the uplift may be a
    relevant change to the contrary: memory that puts one error in the place of another
    does not help.
    """
    for effect in (uplift, *others):
        if effect.low > 0 and uplift.low > -MIN_RELEVANT_UPLIFT:
            return "helps"
        if effect.high < 0 and uplift.high < MIN_RELEVANT_UPLIFT:
            return "hurts"
    if uplift.low > -MIN_RELEVANT_UPLIFT and uplift.high < MIN_RELEVANT_UPLIFT:
        return "no difference shown"
    return NO_CONCLUSION


def _count_shown(cells: Cells) -> int:
    """Return the number of loops that were shown what is compared."""
    return sum(n for (_, was_shown, _), n in cells.items() if was_shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialProof:
    """What a trial proves about the texts of its `source`.

    `shown` and `withheld` count the loops that ended, `pending` those that have not.
    `uplift` compares the mean results of loops, 0..1. In `pairs` tasks, one loop had
    the texts and one had none, so no draw decided. `missing` is about how many more
    loops a conclusion needs, if they end as the earlier ones did: 0 if there is a
    conclusion, None without loops of both kinds, or if more than 10,000 are missing.
    """

    source: str
    shown: int
    withheld: int
    pending: int
    uplift: Effect
    conclusion: Conclusion
    missing: int | None
    pairs: int = 0


def prove_trial(
    source: str, results: Cells, pending: int, pairs: Pairs | None = None
) -> TrialProof:
    """Return whether the texts of a source on trial help loops.

    `results` counts the ended loops with and without the texts, `pending` the others.
    `pairs` counts tasks that were done both with and without the texts; they count only
    if no other loop ended. Loops for which no draw decided count only if there are no
    others. The interval is valid however often one looks, with a probability of at
    least 95 %.
    """
    cells = _drawn(results)
    uplift = _effect(cells)
    shown_loops = _count_shown(cells)
    withheld_loops = sum(cells.values()) - shown_loops
    paired_tasks = 0
    if pairs and not results:
        uplift = compare_pairs(pairs)
        # Each task was done by one loop with the texts, and by one without.
        shown_loops = withheld_loops = paired_tasks = sum(pairs.values())
    return TrialProof(
        source=source,
        shown=shown_loops,
        withheld=withheld_loops,
        pending=pending,
        uplift=uplift,
        conclusion=_conclude(uplift),
        missing=_missing_loops(
            [cells], uplift, low=END_ERROR_LEVEL, high=END_ERROR_LEVEL
        ),
        pairs=paired_tasks,
    )


def compare_pairs(pairs: Pairs) -> Effect:
    """Return the mean gain of tasks that were done twice, with and without some texts.

    A pair has both results, with the texts first. The interval of the gain holds
    whenever one stops, also if tasks depend on each other: a task may rest on what an
    earlier task taught.
    """
    tasks = sum(pairs.values())
    counts = pairs.items()
    mean_with = fsum(n * with_texts for (with_texts, _), n in counts) / tasks
    mean_without = fsum(n * without_texts for (_, without_texts), n in counts) / tasks
    gains = Counter[float]()
    for (with_texts, without_texts), n in counts:
        gains[with_texts - without_texts] += n
    gain = fsum(n * gain for gain, n in gains.items()) / tasks
    # The interval includes the observed gain. Its upper end is found as the lower end
    # of the losses.
    low = min(_least_pair_gain(gains), gain)
    losses = {-gain: n for gain, n in gains.items()}
    high = max(-_least_pair_gain(losses), gain)
    return Effect(mean_with, mean_without, gain=gain, low=low, high=high)


def _least_pair_gain(gains: Mapping[float, int]) -> float:
    """Return the lower end of the interval of the mean gain of pairs.

    `gains` counts the pairs by their gain: the result of a task with some texts less
    that without them. The method is that of `Wealth`: bets on a gain. As both results
    are known, each bet stakes a part of the gain itself, and no draw is weighed.
    """
    stake_parts = tuple(part for _, part in BET_GRID)
    logs = list[float]()
    for log_weight, part in zip(BET_LOG_WEIGHTS, stake_parts, strict=True):
        won = fsum(n * log1p(part * gain) for gain, n in gains.items())
        logs.append(log_weight + won)
    tosses = ((stake_parts, sum(gains.values())),)
    return Wealth(tuple(logs), tosses).least(END_ERROR_LEVEL)


def _missing_loops(
    sources: Sequence[Cells], *effects: Effect, low: float, high: float
) -> int | None:
    """Return about how many more loops like these a conclusion needs.

    It is 0 if the `effects` allow one (see `_conclude`), and None if nothing can be
    compared or the number is too large to tell. `sources` have the results of loops
    behind the effects, in the same order; `low` and `high` are the significance levels
    of the two ends of each interval.
    """
    if effects[0].gain is None:
        return None
    if _conclude(*effects) != NO_CONCLUSION:
        return 0

    # The loops needed to exclude a relevant loss, or gain; for "no difference" both.
    margins = list[float]()
    # Those needed to prove help or harm: one effect, and no relevant uplift against it.
    proofs = list[float]()
    for sided, level in ((sources, low), ([*map(mirror, sources)], high)):
        margin = _loops_until(sided[0], -MIN_RELEVANT_UPLIFT, level)
        margins.append(margin)
        proofs += [max(margin, _loops_until(cells, 0.0, level)) for cells in sided]
    missing = max(1.0, min(*proofs, max(margins)) - sum(sources[0].values()))
    return ceil(missing) if missing <= MAX_FORECAST_LOOPS else None


def _loops_until(cells: Cells, excluded: float, level: float) -> float:
    """Return with how many loops like these a gain of `excluded` would be refuted.

    The number includes the loops so far. It is infinite if their own gain is not above
    `excluded`. It assumes that each further loop adds as much to the log of a bet's
    wealth as the loops so far did on average. The first bet that has won enough for the
    significance `level` decides.
    """
    wealth = Wealth.of(cells)
    # Which part of what is enough each bet has won; not 0, because it divides.
    rates = [1e-9]
    for i, log_weight in enumerate(BET_LOG_WEIGHTS):
        lost = fsum(n * log1p(staked[i] * excluded) for staked, n in wealth.tosses)
        won = wealth.logs[i] - log_weight - lost
        rates.append(won / (-log(level) - log_weight))
    gain = _difference(cells) or 0.0
    return sum(cells.values()) / max(rates) if gain > excluded else inf


def forecast_verdict(
    pooled: Comparison, holdout: float, recent: int, of_days: int
) -> Forecast | None:
    """Return about how many more loops a verdict on memory as a whole needs.

    `pooled` compares the loops so far; the result is None if they allow a conclusion
    already, or if the number is unknown. `holdout` is the share of loops from which
    memory is withheld from now on. If it is 0, more loops are of no use; below
    `PROOF_HOLDOUT`, it is taken for that of the loops so far. `recent` loops ended on
    the last `of_days` days.
    """
    if not pooled.missing:
        return None
    # A loop is worth as much as its draw is even: the share that is withheld times the
    # share that is shown.
    worth = pooled.shown * pooled.withheld / (pooled.shown + pooled.withheld) ** 2
    worth_at_proof_holdout = PROOF_HOLDOUT * (1 - PROOF_HOLDOUT)
    fewer_loops = ceil(pooled.missing * worth / worth_at_proof_holdout)
    sooner = min(pooled.missing, fewer_loops)

    loops = pooled.missing
    if not holdout:
        loops = 0
    elif holdout >= PROOF_HOLDOUT:
        loops = sooner
    return Forecast(
        loops=loops,
        sooner=sooner,
        recent=recent,
        of_days=of_days,
    )


def _effect(
    cells: Cells,
    low: float = END_ERROR_LEVEL,
    high: float = END_ERROR_LEVEL,
    *,
    fewer: bool = False,
    unit: float = 1,
) -> Effect:
    """Return by how much a measure differs in loops with and without a lesson.

    `cells` counts the loops by the value of the measure, 0..1. `low` and `high` are the
    significance levels of the two ends of the interval. With `fewer`, less is better. A
    value of 1 counts as `unit` in the result, such as 10 calls.
    """
    # With shown and withheld exchanged, a reduction becomes a gain.
    better = mirror(cells) if fewer else cells
    gain_low = -1.0
    gain_high = 1.0
    gain = _difference(better)
    if gain is not None:
        gain_low, gain_high = interval(better, low, high)
        # The interval includes the observed gain.
        gain_low = min(gain_low, gain)
        gain_high = max(gain_high, gain)

    return Effect(
        _scaled(_mean(cells, was_shown=True), unit),
        _scaled(_mean(cells, was_shown=False), unit),
        gain=_scaled(gain, unit),
        low=unit * gain_low,
        high=unit * gain_high,
    )


def _scaled(value: float | None, unit: float) -> float | None:
    """Return a value in this unit; None if there is no value."""
    return None if value is None else unit * value


def _difference(cells: Cells) -> float | None:
    """Return the mean result of loops with the lesson less that of loops without it.

    It is None if there are no loops of one kind.
    """
    with_lesson = _mean(cells, was_shown=True)
    without = _mean(cells, was_shown=False)
    if with_lesson is None or without is None:
        return None
    # Rounded, so that equal shares do not differ.
    return round(with_lesson - without, 12)


def _mean(cells: Cells, was_shown: bool) -> float | None:
    """Return the mean result of loops with or without a lesson; None if there are none.

    Each loop is weighted by 1 divided by the probability of what was drawn for it, so
    that the mean stays fair when the probability, the `share`, changes in between.
    """
    weights = []
    weighted_values = []
    for (share, is_shown, value), n in cells.items():
        if is_shown == was_shown:
            probability = 1 - share if was_shown else share
            weight = n / probability
            weights.append(weight)
            weighted_values.append(weight * value)

    total = fsum(weights)
    return fsum(weighted_values) / total if total else None
