"""What is written down when, and what happens when a driver is stopped in the
middle.
"""

import asyncio
import itertools
from typing import Any

import pytest

from heedful.checks.evaluate import Context
from heedful.drive import journal
from heedful.drive.generate import Rung
from heedful.drive.run_loop import Run, run
from heedful.errors import Conflict, LeaseLost
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Done
from heedful.loop.record import Finding, Usage
from heedful.models.contract import Answer
from heedful.store import exposures, loops
from heedful.store.loops import new_owner
from heedful.store.records import Head
from tests.drive.support import (
    SCOPE,
    WANTED,
    Check,
    Generator,
    open_counted,
    reread,
    session,
)
from tests.store.support import rows

# -- commits


@pytest.mark.parametrize(
    ("pure", "attempts", "id", "commits_allowed"),
    [
        pytest.param(True, 3, "", 3, id="pure checks"),
        pytest.param(False, 3, "", 6, id="other checks"),
        pytest.param(
            True, 1, "a", 2, id="a loop that is named is claimed by one commit more"
        ),
    ],
)
async def test_an_attempt_is_one_commit_with_pure_checks_and_two_without(
    path, pure, attempts, id, commits_allowed
):
    store, commits = open_counted(path)
    answers = ["wrong 1", "wrong 2", WANTED]
    generate = Generator(*answers[-attempts:])
    await store.read(SCOPE, loops.newest, limit=1)  # opens the database
    await store.write(SCOPE, exposures.remember, [])
    before = commits()
    result = await run(
        "t",
        generate=generate,
        checks=[Check(pure=pure)],
        store=store,
        memory=store,
        id=id,
    )
    assert len(result.loop.attempts) == attempts
    assert commits() - before == commits_allowed
    await store.close()


# -- resuming


async def test_a_loop_goes_on_where_it_was_left(store):
    before = session(store, "one", "two")
    await before.step()
    await before.step()
    second = Generator(WANTED)
    result = await session(store, generate=second).finish()
    assert [a.candidate.text for a in result.loop.attempts] == ["one", "two", WANTED]
    assert "two is not right" in second.hints[0]
    assert result.usage.calls == 3
    third = Generator("never")
    again = await session(store, generate=third).finish()
    assert again.loop == result.loop
    assert again.candidate == WANTED
    assert again.passed is True
    assert third.calls == 0
    with pytest.raises(Conflict):
        await Run[Any]("another task", generate=third, store=store, id="a").step()


@pytest.mark.parametrize(
    ("before", "after", "passes"),
    [
        pytest.param({"max_attempts": 1}, {"max_attempts": 2}, True, id="attempts"),
        pytest.param(
            {"policy": "default, budget.calls=1"},
            {"policy": "default, budget.calls=2"},
            True,
            id="a budget",
        ),
        pytest.param(
            {"rung": Rung, "calls": 1}, {"rung": Rung, "calls": 2}, True, id="a day"
        ),
        pytest.param(
            {"max_attempts": 1}, {"max_attempts": 1}, False, id="the same limit"
        ),
        pytest.param({"max_attempts": 2}, {"max_attempts": 1}, False, id="a lower one"),
    ],
)
async def test_a_loop_that_a_limit_stopped_goes_on_under_a_larger_one(
    store, before, after, passes
):
    def begin(*answers: str, **limits: Any) -> Run[Any]:
        generate: Any = Generator(*answers)
        if limits.pop("rung", None):
            generate = Rung(generate, name="only", calls=limits.pop("calls"))
        limits.setdefault("policy", "default")
        return session(store, generate=generate, **limits)

    stopped = await begin("one", "two", **before).finish()
    assert not stopped.passed

    result = await begin(WANTED, **after).finish()
    assert result.passed == passes
    assert result.loop.attempts[: len(stopped.loop.attempts)] == stopped.loop.attempts
    if not passes:
        assert result.loop.attempts == stopped.loop.attempts


async def test_a_loop_that_was_cancelled_stays_so_under_other_limits(store):
    loop = session(store, "one")
    await loop.step()
    await loop.cancel(by="ana")
    result = await session(store, WANTED, policy="default, attempts.limit=9").finish()
    assert result.stopped_by[0].rule == "cancelled"


# -- two drivers


async def test_a_loop_that_has_ended_is_read_by_any_number_of_drivers(store):
    await session(store, WANTED).finish()
    await session(store, "never").finish()
    results = await asyncio.gather(*(session(store, "no").finish() for _ in range(5)))
    assert [result.candidate for result in results] == [WANTED] * 5
    assert not (await store.read(SCOPE, loops.state, "a")).driver


async def test_of_two_drivers_that_open_an_ended_loop_again_one_gets_it(store):
    await session(store, "one", policy="default, attempts.limit=1").finish()
    first = session(store, "two", policy="default, attempts.limit=1")
    second = session(store, "three", policy="default, attempts.limit=1")
    for driver in (first, second):
        assert isinstance(await driver.step(), Done)
    await first.override("attempts", by="ana")
    with pytest.raises(LeaseLost):
        await second.override("attempts", by="bo")
    await first.step()
    texts = [attempt.candidate.text for attempt in (await reread(store)).loop.attempts]
    assert texts == ["one", "two"]


async def test_a_driver_that_lost_its_lease_is_stopped_at_the_next_beat(
    store, monkeypatch
):
    monkeypatch.setattr(journal, "LOOP_LEASE_SECONDS", 0.06)

    async def hang(task: Any, hint: str) -> str:
        say = "update loop set epoch = epoch + 1 where id = 'a'"
        await store.write(Scope(), lambda db, _: db.execute(say).fetchall())
        await asyncio.Event().wait()
        return "never"

    await store.write(SCOPE, loops.claim, "a", Head(task="task"), new_owner())
    with pytest.raises(LeaseLost, match="taken over"):
        await session(store, generate=hang).step()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)
    assert (await session(store, WANTED).finish()).passed


async def test_a_lease_is_renewed_while_an_attempt_lasts(store, path, monkeypatch):
    monkeypatch.setattr(journal, "LOOP_LEASE_SECONDS", 0.06)
    leases: list[float] = []

    async def slow(task: Any, hint: str) -> str:
        while len(set(leases)) < 3:
            leases.extend(x for (x,) in rows(path, "select lease from loop"))
            await asyncio.sleep(0.01)
        return WANTED

    assert (await session(store, generate=slow).finish()).passed
    assert sorted(leases) == leases


# -- cancelled in the middle


@pytest.mark.parametrize(("step", "calls"), [("generate", 2), ("check", 1)])
async def test_an_attempt_that_is_cancelled_can_be_resumed_and_counts_its_calls(
    store, step, calls
):
    hanging = asyncio.Event()

    async def hang(where: str) -> None:
        if where == step and not hanging.is_set():
            hanging.set()
            await asyncio.Event().wait()

    async def generate(task: Any, hint: str) -> Any:
        await hang("generate")
        return Answer(WANTED, Usage(1, 5, completion_tokens=5))

    async def check(candidate: Any, context: Context) -> list[Finding]:
        await hang("check")
        return []

    driver = session(store, generate=generate, checks=[check])
    task = asyncio.create_task(driver.finish())
    await hanging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    result = await driver.finish()
    assert result.passed is True
    assert len(result.loop.attempts) == 1
    assert result.usage.calls == calls
    assert result.usage.tokens == 10


@pytest.mark.parametrize(
    "yields",
    [
        pytest.param(
            turns,
            id=f"after {turns} turns",
            marks=pytest.mark.nightly if turns % 9 else (),
        )
        for turns in range(0, 60, 3)
    ],
)
@pytest.mark.parametrize("id", ["", "a"], ids=["no id", "an id"])
async def test_no_attempt_is_doubled_whenever_the_loop_is_cancelled(
    store, path, yields, id
):
    """Also during a commit, when only the journal knows whether it landed."""
    numbers = itertools.count(1)

    async def generate(task: Any, hint: str) -> str:
        await asyncio.sleep(0)
        return f"{next(numbers)}"

    driver = session(store, generate=generate, id=id)
    task = asyncio.create_task(driver.finish())
    for _ in range(yields):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    result = await driver.finish()
    texts = [int(str(a.candidate.text)) for a in result.loop.attempts]
    assert len(texts) == 4
    assert texts == sorted(set(texts))
    journal_copy = await reread(store, driver.id)
    assert journal_copy.loop.attempts == result.loop.attempts
    assert len(journal_copy.verdicts) == 4
    assert journal_copy.journal == {}
    assert rows(path, "select count(*) from loop") == [(1,)]
