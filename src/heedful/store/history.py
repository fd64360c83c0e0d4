"""A stored loop, told: its state, and why it went on and why it stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

from heedful.loop.codec import policy_from
from heedful.loop.decide import Done, Policy, Verdict, echoes_before, latest_verdict
from heedful.loop.explain import Explanation, explain
from heedful.loop.replay import Figures, RecordedLoop
from heedful.loop.stop import MaxAttempts
from heedful.store.records import StoredLoop
from heedful.store.runs import is_run

State = Literal["open", "passed", "stopped"]
# What is replayed to know what the record holds.
WHOLE = Policy((MaxAttempts(10**9),), unscored="again", name="as recorded")


def state_after(verdict: Verdict) -> State:
    """In which state a verdict leaves a loop."""
    if not isinstance(verdict, Done):
        return "open"
    return "passed" if verdict.passed else "stopped"


def state_of(stored: StoredLoop) -> State:
    """In which state a loop is."""
    return state_after(latest_verdict(stored.decisions))


def explained(stored: StoredLoop) -> Explanation:
    """Why it went on and why it stopped, as it was decided."""
    policy = policy_from(stored.head.policy)
    recorded = {decision.attempt: decision.verdict for decision in stored.decisions}
    echoes = echoes_before(stored.loop, policy, stored.decisions)
    return explain(replace(stored.loop, echoes=echoes), policy, recorded)


def recorded(found: Sequence[StoredLoop]) -> list[RecordedLoop]:
    """Those of the loops, the newest first, that have an attempt, the oldest first, to replay.

    The run of a pipeline is none: its stages are, each with its own attempts.
    """
    told = [one.loop for one in reversed(found) if one.loop.attempts and not is_run(one)]
    return list(map(RecordedLoop, told))


def aimed(recorded: Sequence[RecordedLoop], policies: Sequence[Policy]) -> list[RecordedLoop]:
    """The loops, with the goals of the policies where these agree, and a loop has none but scores.

    So that what solves a loop is the same for every policy.
    """
    wanted = {one.goals: one for one in policies if one.goals}
    if len(wanted) != 1:
        return list(recorded)
    ((goals, policy),) = wanted.items()
    return [
        one
        if one.loop.goals or unscored([one], policy)
        else replace(one, loop=replace(one.loop, goals=goals))
        for one in recorded
    ]


def unscored(recorded: Sequence[RecordedLoop], policy: Policy) -> int:
    """How many loops without goals of their own lack a score for those of the policy."""
    loops = [one.loop for one in recorded if not one.loop.goals]
    return sum(
        any(a.evaluation is not None and a.evaluation.unscored(policy.goals) for a in loop.attempts)
        for loop in loops
    )


def document(figures: Figures) -> dict[str, Any]:
    """The figures of a replay as JSON data."""
    return {**asdict(figures), "lost": figures.lost}
