"""The history of a stored loop: its state, its explanation, and its record for a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from heedful.loop.codec import policy_from
from heedful.loop.decide import Policy, State, echoes_before, latest_verdict, state_after
from heedful.loop.explain import Explanation, explain
from heedful.loop.replay import Figures, RecordedLoop
from heedful.loop.stop import MaxAttempts
from heedful.store.records import StoredLoop

# What is replayed to know what the record holds.
WHOLE = Policy((MaxAttempts(10**9),), unscored="again", name="as recorded")


def state_of(stored: StoredLoop) -> State:
    """Return the state of a loop."""
    return state_after(latest_verdict(stored.decisions))


def explained(stored: StoredLoop) -> Explanation:
    """Explain, from the recorded decisions, why the loop went on and why it stopped."""
    policy = policy_from(stored.head.policy)
    recorded = {decision.attempt: decision.verdict for decision in stored.decisions}
    echoes = echoes_before(stored.loop, policy, stored.decisions)
    return explain(replace(stored.loop, echoes=echoes), policy, recorded)


def recorded(found: Sequence[StoredLoop]) -> list[RecordedLoop]:
    """Return the loops that have an attempt to replay, oldest first; `found` has the newest first.

    A pipeline's run is left out, because its stages are loops with attempts of their own.
    """
    loops = [one.loop for one in reversed(found) if one.loop.attempts and one.head.kind != "run"]
    return list(map(RecordedLoop, loops))


def aimed(recorded: Sequence[RecordedLoop], policies: Sequence[Policy]) -> list[RecordedLoop]:
    """Return the loops; give loops with scores but no goals the goals that all policies share.

    This way every policy is judged by the same goals.
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
    """Count the loops without goals that lack a score for a goal of the policy."""
    loops = [one.loop for one in recorded if not one.loop.goals]
    return sum(
        any(a.evaluation is not None and a.evaluation.unscored(policy.goals) for a in loop.attempts)
        for loop in loops
    )


def document(figures: Figures) -> dict[str, Any]:
    """Return the figures of a replay as JSON data."""
    return {**asdict(figures), "lost": figures.lost}
