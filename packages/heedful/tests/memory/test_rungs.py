"""What the store knows of ladders: who answered, and what it cost."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from heedful.drive.generate import Rung
from heedful.drive.report import open_loop
from heedful.drive.run_loop import run
from heedful.lessons.lesson import Exposure, Scope
from heedful.lessons.proof import MeanCost
from heedful.lessons.scope import DAY_SECONDS
from heedful.loop.decide import Policy
from heedful.loop.record import Evaluation, Finding, Usage
from heedful.loop.stop import MaxAttempts
from heedful.memory.memory import Memory
from heedful.models.contract import Answer
from heedful.store import exposures, ladders
from heedful.testing import ScriptedModel
from tests.tables import cases

pytestmark = pytest.mark.both_nightly

USAGE = Usage(1, 8, completion_tokens=2)


class Named(ScriptedModel):
    """A scripted model with a name of its own, whose answers cost ten tokens."""

    def __init__(self, name: str, *answers: str) -> None:
        super().__init__(*(Answer(text, USAGE) for text in answers))
        self.name = name


def check(candidate: Any) -> str:
    return "" if candidate == "right" else "not right"


async def climb(store: Any, small: Named, large: Named, **options: Any) -> Any:
    generate = [Rung(small, price=0.5), Rung(large, price=2.0)]
    policy = Policy((MaxAttempts(1),), name="once")
    options = {"checks": [check], "policy": policy, "store": store, **options}
    return await run("t", generate=generate, **options)


async def test_figures_have_the_rungs_of_all_memory_keys(store):
    await climb(store, Named("s", "right"), Named("l"), memory_key="a")
    await climb(store, Named("s", "wrong"), Named("l", "right"), memory_key="b")
    figures = await store.read(Scope(), ladders.figures)
    small, large = figures.rungs
    assert figures.tasks == 2
    assert figures.passed == 2
    assert small.model == "s"
    assert small.tasks == 1
    assert small.attempts == 2
    assert small.tokens == 20
    assert small.cost == 10.0
    assert large.model == "l"
    assert large.share == 0.5
    assert large.cost == 20.0


async def test_proof_has_the_figures_and_those_of_one_first_model(store):
    await climb(store, Named("s", "right"), Named("l"))
    await climb(store, Named("other", "wrong"), Named("l", "right"))
    memory = Memory(store)
    assert (await memory.prove()).ladders == await store.read(Scope(), ladders.figures)
    of_model = (await memory.prove("other")).ladders
    assert of_model.tasks == 1
    assert [rung.model for rung in of_model.rungs] == ["other", "l"]


# -- whether memory saves climbs


async def record_loop(store: Any, loop: str, shown: bool) -> None:
    """Record that a loop was shown a lesson, or not."""
    exposure = Exposure("check/a", loop, shown=shown, signature="a", share=0.5)
    await store.write(Scope(), exposures.remember, (), exposures=[exposure])


@cases(
    "rungs, climbs",
    {
        "with a ladder it counts as climbed": (["s", "l"], 1.0),
        "without one it says nothing": ([], None),
    },
)
async def test_a_loop_that_was_given_up(store, monkeypatch, rungs, climbs):
    await open_loop("a", "t", store=store, rungs=rungs)
    await record_loop(store, "a", True)
    later = time.time() + 2 * DAY_SECONDS
    monkeypatch.setattr(exposures, "time", SimpleNamespace(time=lambda: later))
    proof = await Memory(store).prove()
    effect = proof.pooled.climbs
    assert proof.pooled.shown == 1
    assert (effect.shown if effect else None) == climbs
    assert proof.mean_cost is None


@cases(
    "small, large, climbed, cost",
    {
        "the first model is right": (["right"], [], 0.0, 5.0),
        "another one is needed": (["wrong"], ["right"], 1.0, 25.0),
    },
)
async def test_an_ended_loop_says_whether_it_climbed(
    store, small, large, climbed, cost
):
    memory = Memory(store)
    await climb(store, Named("s", "wrong"), Named("l", "right"), memory=memory)
    second = await climb(store, Named("s", *small), Named("l", *large), memory=memory)
    assert second.briefing is not None
    assert second.briefing.exposures
    proof = await memory.prove()
    assert proof.pooled.climbs is not None
    assert proof.pooled.climbs.shown == climbed
    assert proof.mean_cost == MeanCost(cost, None)


async def test_the_cost_of_a_task_is_that_of_proof_and_of_the_loop(store):
    """A draft of the caller belongs to no rung; its judge costs something, too."""

    async def judge(candidate: Any, context: Any) -> Evaluation:
        findings = () if candidate == "right" else (Finding("queue", "wrong"),)
        return Evaluation(findings=findings, usage=Usage(1, 5, cost=0.25))

    memory = Memory(store)
    await record_loop(store, "a", True)
    result = await climb(
        store,
        Named("s", "right"),
        Named("l"),
        checks=(),
        evaluate=judge,
        initial="draft",
        policy=Policy((MaxAttempts(2),)),
        memory=memory,
        memory_key="a",
        id="a",
    )
    proof = await memory.prove()
    assert result.usage.cost == 0.25 + 5.0 + 0.25
    assert proof.mean_cost == MeanCost(result.usage.cost, None)
    assert proof.ladders.overhead.cost == 0.25
