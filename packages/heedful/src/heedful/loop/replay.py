"""Replay recorded loops under other policies: decide again on recorded attempts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace

from heedful.display import counted
from heedful.errors import InvalidInput
from heedful.loop.decide import Again, Done, Policy, Verdict, check_types, decide
from heedful.loop.record import NO_USAGE, Loop, Usage
from heedful.loop.stop import Budget, MaxAttempts
from heedful.validation import MAX_SCORE, Document, check_number

# A replay of this policy repeats each loop as it was recorded.
RECORDED_POLICY = Policy((MaxAttempts(10**9),), unscored="again", name="as recorded")


@dataclass(frozen=True)
class RecordedLoop:
    """A recorded loop and, if known, the true quality (0..1) of each attempt.

    If unknown, the quality of an attempt that passes is 1; otherwise it is the share of
    checks that passed, but less than 1, because a goal may still be missed. How an
    open loop (not `ended`) goes on is not known, so no policy is compared on it.
    """

    loop: Loop
    quality: tuple[float, ...] = ()
    ended: bool = True

    def __post_init__(self) -> None:
        count = len(self.loop.attempts)
        if self.quality and len(self.quality) != count:
            allowed = f"one number for each of {count} attempts, or left out"
            raise InvalidInput("quality", self.quality, allowed)

        for value in self.quality:
            check_number("quality", value, low=0, high=1)

    def worth(self, attempt: int | None) -> float:
        """Return the quality of the attempt with this number (from 1); 0 for None."""
        if not attempt:
            return 0.0
        if self.quality:
            return self.quality[attempt - 1]

        evaluation = self.loop.attempts[attempt - 1].evaluation
        if evaluation is None:
            return 0.0
        if evaluation.passes(self.loop.goals):
            return 1.0
        return min(evaluation.met or 0.0, 0.999)

    @property
    def judged(self) -> bool:
        """False if the loop passed although nothing judged its last attempt.

        A check that raised an error judges nothing.
        """
        attempts = self.loop.attempts
        if self.quality or self.worth(len(attempts)) < 1:
            return True
        return not attempts[-1].doubt

    @property
    def oracle(self) -> int:
        """The number of the first attempt of quality 1, or 1 if none has it."""
        for attempt in self.loop.attempts:
            if self.worth(attempt.number) == 1:
                return attempt.number
        return 1

    @property
    def solvable(self) -> bool:
        """True if any attempt has quality 1."""
        return bool(self.loop.attempts) and self.worth(self.oracle) == 1


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a policy does with a recorded loop: how many attempts it makes and which it
    keeps.

    `exact` is False if the record does not show the result, usually because it ends too
    early.
    """

    attempts: int
    kept: int | None
    _: KW_ONLY
    verdict: Verdict
    exact: bool
    usage: Usage


@dataclass(frozen=True, slots=True)
class Figures:
    """What a policy would have cost and solved over recorded loops.

    `solved` counts the loops whose kept attempt has quality 1, `solvable` the loops in
    which any attempt has quality 1. `quality` is the mean over the kept attempts
    (0..1). `oracle` is the sum of `RecordedLoop.oracle`, `regret` the number of
    attempts that the policy makes after the oracle stops. `beyond` counts loops whose
    replay is not exact; their cost and quality are lower bounds. `unscored` counts
    loops that lack a score for a goal of the policy: it cannot judge them.
    """

    policy: str
    loops: int
    _: KW_ONLY
    attempts: int
    usage: Usage
    solved: int
    solvable: int
    quality: float
    oracle: int
    regret: int
    beyond: int
    unscored: int = 0

    @property
    def lost(self) -> int:
        """The number of solvable loops that the policy does not solve."""
        return self.solvable - self.solved

    def plain(self) -> Document:
        """Return JSON data."""
        return {**asdict(self), "lost": self.lost}


def replay(loop: Loop, policy: Policy) -> ReplayResult:
    """Return what `policy` would have done with the attempts, without overrides.

    The result is exact if the policy stops within the recorded attempts. It is not
    exact if the result depends on when calls outside the attempts were made, if a
    budget of seconds would have cut off the last attempt, or if the feedback would have
    named other goals.
    """
    check_types(loop, policy)
    goals = loop.goals or policy.goals
    loop_with_extra = replace(
        loop, improves=policy.improvement, goals=goals, overrides=(), cancelled=""
    )
    if policy is RECORDED_POLICY:
        loop_with_extra = replace(loop_with_extra, ladder=None)
    seen, verdict = _drive_again(replace(loop_with_extra, extra=NO_USAGE), policy)

    # When the calls outside the attempts were made is unknown: at the end, as above, or
    # at the beginning.
    seen_with_extra = seen
    verdict_with_extra = verdict
    if loop.extra != NO_USAGE:
        seen_with_extra, verdict_with_extra = _drive_again(loop_with_extra, policy)
    other_end = len(seen_with_extra.attempts) != len(seen.attempts)

    # A budget may end before the first attempt begins or the last one ends.
    budgets = [rule for rule in policy.rules if isinstance(rule, Budget)]
    limits = [rule.seconds for rule in budgets if rule.seconds]
    too_late = seen_with_extra.usage.seconds > min(limits, default=MAX_SCORE)
    too_early = any(rule(seen_with_extra.upto(0)) for rule in budgets)

    uses_policy_goals = not loop.goals and any(
        attempt.evaluation.unmet(goals)
        for attempt in seen.attempts[:-1]
        if attempt.evaluation
    )

    exact = isinstance(verdict_with_extra, Done) and not (
        other_end or too_late or too_early or uses_policy_goals
    )
    if exact and isinstance(verdict, Again):
        verdict = verdict_with_extra
    return ReplayResult(
        len(seen.attempts), seen.best, verdict=verdict, exact=exact, usage=seen.usage
    )


def _drive_again(loop: Loop, policy: Policy) -> tuple[Loop, Verdict]:
    """Return the loop up to where `policy` stops it, and the last verdict.

    It also ends where the policy wants an attempt of another rung than the recorded
    one.
    """
    seen = loop.upto(0)
    verdict: Verdict = Again(rung=loop.upto(1).rung)
    for attempt in loop.attempts:
        if isinstance(verdict, Done):
            break
        if loop.ladder is not None and attempt.rung != verdict.rung:
            break
        seen = loop.upto(attempt.number)
        verdict = decide(seen, policy)
    return seen, verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopScore:
    """What a policy would have cost and solved on one loop, as in `Figures`."""

    attempts: int
    usage: Usage
    exact: bool
    quality: float
    oracle: int
    solvable: bool
    unscored: bool = False


def compare(
    recorded: Sequence[RecordedLoop], policies: Iterable[Policy]
) -> tuple[Figures, ...]:
    """Return the figures of each policy over all loops, in the order of `policies`."""
    figures = []
    for policy in policies:
        scores = [score(record, policy) for record in recorded]
        figures.append(figures_of(policy, scores))
    return tuple(figures)


def score(record: RecordedLoop, policy: Policy) -> LoopScore:
    """Return what `policy` would have cost and solved on a loop."""
    result = replay(record.loop, policy)
    return LoopScore(
        attempts=result.attempts,
        usage=result.usage,
        exact=result.exact,
        quality=record.worth(result.kept),
        oracle=record.oracle,
        solvable=record.solvable,
        unscored=count_unscored([record], policy) > 0,
    )


def figures_of(policy: Policy, scores: Sequence[LoopScore]) -> Figures:
    """Return the figures of a policy over all loops from its score on each."""
    quality = sum(score.quality for score in scores) / len(scores) if scores else 0.0

    # How the recorded loops ended is known.
    beyond = 0
    if policy is not RECORDED_POLICY:
        beyond = sum(not score.exact for score in scores)

    return Figures(
        policy=policy.name,
        loops=len(scores),
        attempts=sum(score.attempts for score in scores),
        usage=sum((score.usage for score in scores), NO_USAGE),
        solved=sum(score.quality == 1 for score in scores),
        solvable=sum(score.solvable for score in scores),
        quality=quality,
        oracle=sum(score.oracle for score in scores),
        regret=sum(max(0, score.attempts - score.oracle) for score in scores),
        beyond=beyond,
        unscored=sum(score.unscored for score in scores),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparable:
    """Policies that can be compared on recorded loops, and the loops as they judge
    them.

    `notes` says which policies are left out, and why figures may differ from those of
    live runs.
    """

    policies: tuple[Policy, ...]
    loops: tuple[RecordedLoop, ...]
    notes: tuple[str, ...]


def comparable(
    recorded: Sequence[RecordedLoop],
    policies: Sequence[Policy],
    presets: Iterable[Policy] = (),
) -> Comparable:
    """Choose what to compare on recorded loops.

    Without `policies`, those of the `presets` are compared that can judge all loops.
    Open loops are left out, and those that nothing judged: nobody knows whether they
    are correct.
    """
    chosen = list(policies)
    notes: list[str] = []
    not_ended = sum(not record.ended for record in recorded)
    if not_ended:
        recorded = [record for record in recorded if record.ended]
        have = "it has" if not_ended == 1 else "they have"
        notes.append(f"{counted(not_ended, 'open loop')} left out: {have} not ended")
    not_judged = sum(not record.judged for record in recorded)
    if not_judged:
        recorded = [record for record in recorded if record.judged]
        notes.append(
            f"{counted(not_judged, 'loop')} not judged and left out: no check judged "
            "the answer"
        )
    if not chosen:
        for preset in presets:
            unscored = count_unscored(recorded, preset)
            if not unscored:
                chosen.append(preset)
                continue

            lacks = "no scores for its goals are recorded"
            if unscored < len(recorded):
                of_all = f"{unscored:,} of {counted(len(recorded), 'loop')}"
                lacks = f"{of_all} have no scores for its goals"
            notes.append(f"{preset.name} is left out: {lacks}")
    notes += _caveats(recorded, chosen)

    # A loop that was recorded without goals is judged by those of the policies.
    loops = with_policy_goals(recorded, chosen)
    changed = sum(loop is not old for loop, old in zip(loops, recorded, strict=True))
    if changed:
        notes.append(
            f"{counted(changed, 'loop')} without goals: judged by the policies' goals"
        )
    return Comparable(policies=tuple(chosen), loops=tuple(loops), notes=tuple(notes))


def _caveats(
    recorded: Sequence[RecordedLoop], policies: Sequence[Policy]
) -> Iterator[str]:
    """Yield the reasons why the figures may differ from the figures of live runs."""
    for policy in policies:
        unscored = count_unscored(recorded, policy)
        if unscored:
            goals = ", ".join(map(str, policy.goals))
            yield (
                f"{policy.name}: {unscored} of {counted(len(recorded), 'loop')} "
                f"cannot be judged by its goals: {goals}"
            )

    names = [policy.name for policy in policies if policy.counts_scope]
    if names:
        yield (
            f"{', '.join(names)}: the rule echo counts within each loop, not over "
            "earlier loops"
        )


def with_policy_goals(
    recorded: Sequence[RecordedLoop], policies: Sequence[Policy]
) -> list[RecordedLoop]:
    """Return the loops; a loop without goals gets the goals of the policies.

    All policies are then judged by the same goals. If the policies have different
    goals, or scores for these goals are missing in a loop, the loop stays as it is.
    """
    by_goals = {policy.goals: policy for policy in policies if policy.goals}
    if len(by_goals) != 1:
        return list(recorded)

    [(goals, policy)] = by_goals.items()
    judged_alike = []
    for record in recorded:
        if not record.loop.goals and not count_unscored([record], policy):
            record = replace(record, loop=replace(record.loop, goals=goals))
        judged_alike.append(record)

    return judged_alike


def count_unscored(recorded: Sequence[RecordedLoop], policy: Policy) -> int:
    """Count the loops without goals that lack a score for a goal of the policy."""
    count = 0
    for record in recorded:
        if record.loop.goals:
            continue

        evaluations = [attempt.evaluation for attempt in record.loop.attempts]
        if any(judged and judged.unscored(policy.goals) for judged in evaluations):
            count += 1

    return count
