"""Goals and policy given at a resume count from then on: for the driver, and for all who read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

import heedful
from heedful.drive.drive import Run
from heedful.errors import OverrideRefused
from heedful.lessons.lesson import Scope
from heedful.loop.codec import policy_to, to_document
from heedful.loop.decide import Again, Policy
from heedful.loop.record import Evaluation, Goal, Loop
from heedful.loop.stop import MaxAttempts
from heedful.store import loops
from heedful.store.records import StoredLoop
from heedful.store.sqlite import in_file
from heedful.store.store import Store
from tests.store.support import rows

SCOPE = Scope()
GOAL = Goal("quality", 0.9)
numbers = count()


def session(store: Store, policy: Policy, goals: Sequence[Goal] = (), id: str = "a") -> Run[str]:
    def half(candidate: str, at: Any) -> Evaluation:
        return Evaluation(scores={"quality": 0.5} if at.attempt > 1 else {"quality": 0.4})

    return Run[str](
        "t",
        generate=lambda task, hint: f"answer {next(numbers)}",
        evaluate=half,
        goals=goals,
        policy=policy,
        store=store,
        id=id,
    )


async def read(store: Store, id: str = "a") -> StoredLoop:
    return await store.read(SCOPE, loops.read, id)


def test_an_override_from_outside_knows_the_goals_of_the_resume():
    """Else a loop that misses them all would be found to pass."""

    async def scenario() -> None:
        store = in_file(":memory:")
        await session(store, heedful.policies.stage, [Goal("quality", 0.5)]).step()
        result = await session(store, heedful.policies.stage, [GOAL]).finish()
        assert not result.passed
        stored = await read(store)
        assert stored.loop.goals == (GOAL,)
        assert stored.head.goals == [to_document(GOAL)]
        assert isinstance(await heedful.override("a", "attempts", by="ada", store=store), Again)
        await store.close()

    asyncio.run(scenario())


def test_they_are_stored_with_the_first_decision_on_them():
    async def scenario() -> None:
        store = in_file(":memory:")
        policies = heedful.policies.stage, heedful.policy("stage, attempts.limit=2")
        await session(store, policies[0], [GOAL]).step()
        second = session(store, policies[1], [GOAL])
        assert (await read(store)).head.policy == policy_to(policies[0])
        await second.step()
        assert (await read(store)).head.policy == policy_to(policies[1])
        await session(store, policies[0], [GOAL]).step()  # it has ended: nothing is decided
        stored = await read(store)
        assert stored.head.policy == policy_to(policies[1])
        assert len(stored.decisions) == 2
        await store.close()

    asyncio.run(scenario())


def test_an_override_from_outside_leaves_the_policy_as_it_is():
    def mine(loop: Loop) -> str | None:
        return None

    policy = Policy((mine, MaxAttempts(1)))

    async def scenario() -> None:
        store = in_file(":memory:")
        await session(store, policy, [GOAL]).finish()
        await heedful.override("a", "attempts", by="ada", store=store)
        stored = await read(store)
        assert stored.head.policy == policy_to(policy)
        assert {"rule": "mine", "custom": True} in stored.head.policy["rules"]
        await store.close()

    asyncio.run(scenario())


def test_a_rule_of_the_resume_can_be_lifted_from_outside():
    async def scenario() -> None:
        store = in_file(":memory:")
        await session(store, heedful.policies.stage, [GOAL]).step()
        await session(
            store, heedful.policy("stage, plateau.patience=1, min_gain=0.2"), [GOAL]
        ).step()
        with pytest.raises(OverrideRefused, match="these can: attempts, plateau"):
            await heedful.override("a", "echo", by="ada", store=store)
        assert isinstance(await heedful.override("a", "plateau", by="ada", store=store), Again)
        await store.close()

    asyncio.run(scenario())


def test_one_that_is_refused_as_the_loop_has_passed_meanwhile_leaves_it_free(tmp_path, monkeypatch):
    path = tmp_path / "a.db"

    async def scenario() -> None:
        store = in_file(str(path))
        await session(store, heedful.policies.stage, [GOAL]).step()
        before = await read(store)
        await session(store, heedful.policies.stage, [Goal("quality", 0.5)]).finish()
        now = store.read

        async def late(scope: Scope, work: Any, id: str) -> StoredLoop:
            monkeypatch.setattr(store, "read", now)
            return before

        monkeypatch.setattr(store, "read", late)
        with pytest.raises(OverrideRefused, match="the loop passed"):
            await heedful.override("a", "attempts", by="ada", store=store)
        await store.close()

    asyncio.run(scenario())
    assert rows(path, "select state, lease from loop") == [("passed", 0.0)]
