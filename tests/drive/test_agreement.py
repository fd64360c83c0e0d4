"""The driver decides as `decide` does: the same attempts, best, passed and stopping rules."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.checks.evaluate import Context
from heedful.drive.drive import Run
from heedful.loop.decide import Again, Done, Policy, consume_overrides, decide
from heedful.loop.record import Attempt, Candidate, Evaluation, Goal, Loop, Override, Usage
from heedful.loop.replay import replay
from heedful.loop.stop import MaxAttempts
from heedful.loop.stop import find_near_repeat as near
from heedful.store.sqlite import in_file
from tests.loop import support

TEXTS = ["alpha", "beta gamma delta", "x = 1", "x = 2", "the same words again and again"]
tries = st.lists(st.tuples(st.sampled_from(TEXTS), support.evaluations), min_size=1, max_size=6)


def bounded(policy: Policy, most: int) -> Policy:
    """With its budgets left out, whose seconds are real, and with an end."""
    rules = [r for r in policy.rules if "budget" not in str(getattr(r, "name", ""))]
    return replace(policy, rules=(*rules, MaxAttempts(most)))


def folded(
    made: list[tuple[str, Evaluation]],
    goals: tuple[Goal, ...],
    policy: Policy,
    override: Override | None,
) -> tuple[Loop, Done]:
    loop = Loop("loop", goals, overrides=(override,) if override else ())
    for text, evaluation in made:
        candidate = Candidate.of(text)
        number = len(loop.attempts) + 1
        loop = loop.then(
            Attempt(number, candidate, evaluation, Usage(), near(candidate, loop.attempts))
        )
        verdict = decide(loop, policy)
        loop = consume_overrides(loop, verdict)
        if isinstance(verdict, Done):
            return loop, verdict
    raise AssertionError("it has to end")


@settings(max_examples=40)
@given(
    made=tries,
    goals=support.goals,
    policy=support.with_goals,
    override=st.none() | support.overrides,
    durable=st.booleans(),
)
def test_the_driver_decides_as_the_core_does(made, goals, policy, override, durable):
    policy = bounded(policy, len(made))
    liftable = {n for r in policy.rules for n in str(getattr(r, "name", "")).split("+")}
    if override is not None and (override.rule not in liftable or override.rule == "attempts"):
        override = None
    loop, verdict = folded(made, goals or policy.goals, policy, override)

    def generate(task: Any, hint: str) -> str:
        return str(made[len(seen)][0])

    def evaluate(candidate: Any, context: Context) -> Evaluation:
        seen.append(context)
        judged: Evaluation = made[context.attempt - 1][1]
        return judged

    seen: list[Context] = []

    async def scenario() -> None:
        store = in_file(":memory:") if durable else None
        run = Run[str](
            "task", generate=generate, evaluate=evaluate, goals=goals, policy=policy, store=store
        )
        if override is not None:
            await run.override(override.rule, override.by, override.why, override.decisions)
        result = await run.finish()
        assert result.verdict == verdict
        assert [a.evaluation for a in result.loop.attempts] == [a.evaluation for a in loop.attempts]
        assert [a.repeats for a in result.loop.attempts] == [a.repeats for a in loop.attempts]
        assert [o.used for o in result.loop.overrides] == [o.used for o in loop.overrides]
        assert result.candidate == (made[verdict.best - 1][0] if verdict.best else None)
        assert str(result.explain())
        if override is None:
            again = replay(result.loop, policy)
            assert (again.verdict, again.exact) == (verdict, True)
            assert again.attempts == len(result.loop.attempts)
        if store is not None:
            await store.close()

    asyncio.run(scenario())
    hints = [decide(replace(loop, attempts=loop.attempts[:n]), policy) for n in range(len(seen))]
    told = [h.feedback for h in hints if isinstance(h, Again)]
    assert set(told) <= {context.hint for context in seen}
