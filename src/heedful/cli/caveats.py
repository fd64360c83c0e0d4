"""What the figures of a replay cannot say, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heedful.cli.output import counted
from heedful.cli.recorded import NOT_PASSED
from heedful.loop.decide import Policy
from heedful.loop.replay import Figures, RecordedLoop
from heedful.loop.stop import All, Echo, Plateau, StopRule, counts_scope
from heedful.store.history import unscored


def caveats(recorded: Sequence[RecordedLoop], policies: Sequence[Policy]) -> Iterator[str]:
    """What of the record makes the figures other than they would have been live."""
    yield from _goals(recorded, policies)
    scoped = [policy.name for policy in policies if any(map(counts_scope, policy.rules))]
    if scoped:
        yield f"{', '.join(scoped)}: echo counts within each loop, not over the loops before it"
    alike = [policy.name for policy in policies if any(map(_compares, policy.rules))]
    evaluations = (a.evaluation for one in recorded for a in one.loop.attempts)
    silent = sum(e is not None and NOT_PASSED in e.findings for e in evaluations)
    if alike and silent:
        why = f"{counted(silent, 'attempt')} with nothing but passed = false"
        yield f"{', '.join(alike)}: {why} count as the same finding each time"


def _goals(recorded: Sequence[RecordedLoop], policies: Sequence[Policy]) -> Iterator[str]:
    loops = counted(len(recorded), "loop")
    bare = any(not one.loop.goals for one in recorded)
    for policy in policies:
        words = ", ".join(map(str, policy.goals))
        own = sum(one.loop.goals not in ((), policy.goals) for one in recorded)
        if lacking := unscored(recorded, policy):
            yield f"{policy.name}: {lacking} of {loops} cannot be judged by its goals: {words}"
        if policy.goals and own:
            yield f"{policy.name}: {own} of {loops} keep goals of their own instead of {words}"
    sets = {policy.goals: policy for policy in policies if policy.goals}
    if bare and len(sets) > 1:
        yield "the policies have different goals: a loop that has none is solved where checks pass"
    for goals, policy in sets.items() if len(sets) == 1 else ():
        told = sum(not one.loop.goals and not unscored([one], policy) for one in recorded)
        if told:
            words = ", ".join(map(str, goals))
            yield f"{told} of {loops} have no goals: they count as if they had been told {words}"


def cannot_tell(figures: Sequence[Figures]) -> Iterator[str]:
    """What the column is, where a policy has any."""
    if any(one.beyond for one in figures):
        yield "cannot tell: the record of so many loops does not say how it would have ended"


def _compares(rule: StopRule) -> bool:
    """Whether the rule, or one inside it, looks for the same finding again."""
    if isinstance(rule, All):
        return any(map(_compares, rule.rules))
    return isinstance(rule, Echo) or (isinstance(rule, Plateau) and rule.novelty)
