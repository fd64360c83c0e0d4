"""Loops with several generators: who makes an attempt, what it may spend, and what
memory learns from it.
"""

import time
from dataclasses import replace
from typing import Any

import pytest

import heedful
from heedful import errors
from heedful.drive.generate import Rung
from heedful.drive.run_loop import Run, run
from heedful.loop.decide import Policy
from heedful.loop.record import Usage
from heedful.loop.stop import MaxAttempts
from heedful.models.contract import Answer
from heedful.store import ladders, loops
from heedful.testing import ScriptedModel
from tests.drive.support import SCOPE, WANTED, Check, Generator, reread
from tests.tables import cases

TWICE = Policy((MaxAttempts(2),), name="twice")
TAKE_OVER = replace(TWICE, on_failure="take over")


class Named(ScriptedModel):
    """A scripted model with a name of its own."""

    def __init__(self, name: str, *lines: Any, **options: Any) -> None:
        super().__init__(*lines, **options)
        self.name = name


async def climb(store: Any, *generators: Any, **options: Any) -> heedful.Result[Any]:
    options.setdefault("checks", [Check()])
    options.setdefault("policy", TWICE)
    task = options.pop("task", "t")
    return await run(task, generate=list(generators), store=store, **options)


def rungs(result: heedful.Result[Any]) -> list[int]:
    return [attempt.rung for attempt in result.loop.attempts]


# -- who makes the attempts


async def test_the_next_generator_takes_over_with_the_feedback(any_store):
    small = Generator("one", "two")
    large = Generator(WANTED)
    result = await climb(any_store, small, large)
    assert result.passed
    assert rungs(result) == [1, 1, 2]
    assert "two is not right" in large.hints[0]
    assert small.calls == 2


# -- resuming


@pytest.mark.both_nightly
async def test_a_loop_resumes_on_the_rung_to_which_it_has_climbed(store):
    options: Any = {"checks": [Check()], "policy": TWICE, "store": store, "id": "a"}
    first = Run[Any]("t", generate=[Generator("one", "two"), Generator("x")], **options)
    await first.step()
    await first.step()

    small = Generator("never")
    result = await Run[Any](
        "t", generate=[small, Generator(WANTED)], **options
    ).finish()
    assert small.calls == 0
    assert rungs(result) == [1, 1, 2]
    assert (await reread(store)).loop.ladder is not None


@pytest.mark.both_nightly
async def test_a_loop_cannot_go_on_without_the_generator_that_is_next(store):
    options: Any = {"checks": [Check()], "policy": TWICE, "store": store, "id": "a"}
    first = Run[Any]("t", generate=[Generator("one", "two"), Generator("x")], **options)
    await first.step()
    await first.step()
    with pytest.raises(errors.InvalidInput, match="it is on rung 2"):
        await Run[Any]("t", generate=Generator("one"), **options).step()
    assert len((await reread(store)).loop.attempts) == 2


# -- prices and limits of the day


@pytest.mark.both_nightly
async def test_a_rung_makes_no_more_calls_in_a_day_than_it_may(store):
    large = Generator(WANTED)
    ends = []
    text = ""
    for number in range(3):
        result = await climb(
            store,
            Generator("one", "two"),
            Rung(large, "large", calls=2),
            id=f"loop {number}",
        )
        ends.append([stop.rule for stop in result.stopped_by])
        text = str(result.explain())
    assert large.calls == 2
    assert ends == [[], [], ["attempts", "closed"]]
    assert "closed: rung 2 (large): 2 of 2 calls spent, the limit of 20" in text
    assert text.splitlines()[-2].endswith("(UTC); the loop ended")


@cases(
    "limit",
    {
        "tokens": {"tokens": 150},
        "cost": {"cost": 0.15},
    },
)
async def test_no_attempt_begins_when_the_tokens_or_the_cost_of_a_day_are_spent(
    store, limit
):
    answer = Answer("wrong", Usage(1, 80, completion_tokens=20, cost=0.1))
    large = Named("large", answer, forever=True)
    policy = Policy((MaxAttempts(1, rungs=(1, 9)),))
    result = await climb(store, Generator("one"), Rung(large, **limit), policy=policy)
    assert rungs(result) == [1, 2, 2]
    assert result.stopped_by[-1].rule == "closed"


async def test_a_draft_of_the_caller_spends_no_call_of_a_rung(store):
    rung = Rung(Generator("one"), "small", calls=1)
    await climb(store, rung, Generator(WANTED), initial=WANTED)
    spent = await store.read(SCOPE, ladders.spending, "small", time.time())
    assert spent.calls == 0


# -- rungs that fail


async def test_another_rung_takes_over_from_one_that_fails(any_store):
    result = await climb(
        any_store,
        Generator(RuntimeError("overloaded")),
        Generator(WANTED),
        policy=TAKE_OVER,
    )
    assert result.passed
    assert rungs(result) == [2]
    assert result.loop.extra.calls == 1


async def test_a_loop_ends_with_its_best_attempt_if_the_last_rung_fails(any_store):
    small = Generator("one", "two", WANTED)
    result = await climb(
        any_store, small, Generator(RuntimeError("overloaded")), policy=TAKE_OVER
    )
    assert not result.passed
    assert rungs(result) == [1, 1]
    assert [stop.rule for stop in result.stopped_by] == ["attempts", "closed"]
    assert "overloaded" in result.stopped_by[1].detail


# -- bad input


class NeedsMore:
    def __call__(self, task: str, hint: str, more: str) -> str:
        return task


MODEL = Named("same", "one")


@cases(
    ("generators", "message"),
    {
        "none": ([], "1 to 16 generators"),
        "the same model twice": ([MODEL, MODEL], "generators that differ"),
        "another signature": ([MODEL, NeedsMore()], "a function of a task"),
        "a name": ([MODEL, "large"], "a callable, a Writer or a Model"),
        "two of one name": (
            [Rung(Generator("a"), "x", calls=1), Rung(Generator("b"), "x")],
            "names that differ",
        ),
    },
)
async def test_a_ladder_that_cannot_work_is_refused_before_the_first_call(
    store, generators, message
):
    with pytest.raises(errors.InvalidInput, match=message):
        await climb(store, *generators)
    assert await store.read(SCOPE, loops.newest, 9) == ([], False)


@cases(
    "fields",
    {
        "no calls": {"calls": 0},
        "cost is no number": {"cost": float("nan")},
    },
)
def test_a_rung_with_a_limit_that_makes_no_sense_is_refused(fields):
    with pytest.raises(errors.InvalidInput):
        Rung(MODEL, **fields)


async def test_a_limit_needs_a_name(store):
    rung = Rung(lambda task: "one", calls=2)
    with pytest.raises(errors.InvalidInput, match="limit of a day belongs to it"):
        await climb(store, rung, Generator(WANTED))


@cases(
    "generators",
    {
        "one rung": [Rung(MODEL, calls=2)],
        "two rungs": [Generator("one"), Rung(MODEL, calls=2)],
    },
)
async def test_a_limit_of_the_day_needs_a_store(generators):
    with pytest.raises(errors.InvalidInput, match="counts what a rung spends"):
        await climb(None, *generators)
