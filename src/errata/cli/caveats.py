"""What the figures of a replay cannot say, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from errata.cli.output import counted
from errata.cli.recorded import NOT_PASSED
from errata.loop.decide import Policy
from errata.loop.replay import Figures, Recorded
from errata.loop.stop import All, Echo, Plateau, StopRule, counts_scope


def caveats(recorded: Sequence[Recorded], policies: Sequence[Policy]) -> Iterator[str]:
    """What of the record makes the figures other than they would have been live."""
    for policy in policies:
        if lacking := unscored(recorded, policy):
            loops = f"{lacking} of {counted(len(recorded), 'loop')}"
            goals = ", ".join(map(str, policy.goals))
            yield f"{policy.name}: {loops} cannot be judged by its goals: {goals}"
    scoped = [policy.name for policy in policies if any(map(counts_scope, policy.rules))]
    if scoped:
        yield f"{', '.join(scoped)}: echo counts within each loop, not over the loops before it"
    alike = [policy.name for policy in policies if any(map(_compares, policy.rules))]
    evaluations = (a.evaluation for one in recorded for a in one.loop.attempts)
    silent = sum(e is not None and NOT_PASSED in e.findings for e in evaluations)
    if alike and silent:
        why = f"{counted(silent, 'attempt')} with nothing but passed = false"
        yield f"{', '.join(alike)}: {why} count as the same finding each time"


def cannot_tell(figures: Sequence[Figures]) -> Iterator[str]:
    """What the column is, where a policy has any."""
    if any(one.beyond for one in figures):
        yield "cannot tell: loops whose record ends where the policy would have gone on"


def unscored(recorded: Sequence[Recorded], policy: Policy) -> int:
    """How many loops without goals of their own lack a score for those of the policy."""
    loops = [one.loop for one in recorded if not one.loop.goals]
    return sum(
        any(a.evaluation is not None and a.evaluation.unscored(policy.goals) for a in loop.attempts)
        for loop in loops
    )


def _compares(rule: StopRule) -> bool:
    """Whether the rule, or one inside it, looks for the same finding again."""
    if isinstance(rule, All):
        return any(map(_compares, rule.rules))
    return isinstance(rule, Echo) or (isinstance(rule, Plateau) and rule.novelty)
