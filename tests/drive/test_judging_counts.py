"""What a critic spends before it gives up counts: no resume makes it free."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import heedful
from heedful import checks
from heedful.errors import MalformedAnswer
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Done
from heedful.loop.record import Goal
from heedful.store import loops
from heedful.testing import ScriptedModel


def judged(judge: ScriptedModel, **options: Any) -> heedful.Run[str]:
    return heedful.Run(
        "t",
        generate=lambda task, hint: "x",
        evaluate=checks.critic("alignment", judge),
        goals=[Goal("alignment", 0.5)],
        policy=heedful.policy("stage, budget.calls=5"),
        id="a",
        **options,
    )


def test_a_budget_of_calls_ends_a_loop_whose_critic_never_answers_well():
    judge = ScriptedModel("junk", forever=True)
    store = heedful.open_store(":memory:")

    async def scenario() -> None:
        for _ in range(3):
            session = judged(
                judge, store=store
            )  # another one each time: it is read out of the store
            with pytest.raises(MalformedAnswer) as caught:
                await session.step()
            assert caught.value.usage is not None
            assert caught.value.usage.calls == 2
        verdict = await judged(judge, store=store).step()
        assert isinstance(verdict, Done)
        assert [stop.rule for stop in verdict.stopped_by] == ["budget"]
        stored = await store.read(Scope(), loops.read, "a")
        assert stored.loop.extra.calls == len(judge.prompts) == 6
        assert stored.loop.extra.tokens > 0
        await store.close()

    asyncio.run(scenario())
