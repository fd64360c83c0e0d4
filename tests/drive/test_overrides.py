"""What a decision that an override, a cancellation or a spent budget brings about rests on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

import heedful
from heedful.drive.drive import Run
from heedful.errors import ModelError
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Again, Done, Policy
from heedful.loop.record import Finding
from heedful.loop.stop import Budget, Echo, MaxAttempts
from heedful.store import loops
from tests.drive.support import Check, Generator
from tests.engines import opened

pytestmark = pytest.mark.both


@pytest.fixture
def store(tmp_path):
    with opened(tmp_path / "a.db") as one:
        yield one


def same(candidate: Any, at: Any) -> list[Finding]:
    return [Finding("c", "the same again", key="same")]


@pytest.mark.parametrize("outside", [True, False])
def test_an_override_of_another_rule_does_not_lift_an_echo_across_loops(store, outside):
    """The counts of the other loops are there when the loop is decided anew."""
    policy = Policy((MaxAttempts(4), Echo(2, across="scope")))

    def loop(id: str) -> Run[str]:
        return Run("t", generate=Generator(id), checks=[same], policy=policy, store=store, id=id)

    async def scenario() -> None:
        await loop("first").finish()
        assert isinstance(await loop("second").step(), Done)
        if outside:
            verdict = await heedful.override("second", "attempts", by="ada", store=store)
        else:
            verdict = await loop("second").override("attempts", "ada")
        assert isinstance(verdict, Done)
        assert [stop.rule for stop in verdict.stopped_by] == ["echo"]
        stored = await store.read(Scope(), loops.read, "second")
        assert [d.standing.echoes for d in stored.decisions] == [{"same": 3}] * 2
        assert [o.used for o in stored.loop.overrides] == [0]
        assert isinstance(await heedful.override("second", "echo", by="ada", store=store), Again)

    asyncio.run(scenario())


async def cancelled(run: Run[str], generate: Generator) -> Done:
    verdict = await run.cancel("grace")
    assert isinstance(verdict, Done)
    return verdict


async def over(run: Run[str], generate: Generator) -> Done:
    generate.answers = (ModelError("no answer"),)
    with pytest.raises(ModelError):
        await run.step()
    verdict = await run.step()
    assert isinstance(verdict, Done)
    return verdict


@pytest.mark.parametrize(("end", "rule"), [(cancelled, "cancelled"), (over, "budget")])
@pytest.mark.parametrize("again", [True, False])
def test_what_ends_a_loop_is_decided_when_it_ends(store, monkeypatch, end, rule, again):
    """An override that expired since the last attempt lifts nothing any more."""
    generate, now = Generator("one"), [time.time()]
    policy = Policy((MaxAttempts(2), Budget(calls=3)))

    def loop() -> Run[str]:
        return Run("t", generate=generate, checks=[Check()], policy=policy, store=store, id="a")

    async def scenario(end: Callable[..., Any]) -> None:
        run = loop()
        await run.override("attempts", "ada", decisions=9, until=now[0] + 10)
        await run.step()
        verdict = await run.step()
        assert isinstance(verdict, Again)
        assert [one.stop.rule for one in verdict.lifted] == ["attempts"]
        monkeypatch.setattr("heedful.drive.drive.time.time", lambda: now[0] + 11)
        ended = await end(loop() if again else run, generate)
        assert [stop.rule for stop in ended.stopped_by] == [rule, "attempts"]
        assert ended.lifted == ()

    asyncio.run(scenario(end))
