"""What is written down when, and what happens when a driver is stopped in the middle."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heedful.checks.evaluate import Context
from heedful.drive import journal
from heedful.drive.drive import Run, run
from heedful.errors import Conflict, LeaseLost, OverrideRefused, StoreError
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Again, Done
from heedful.loop.record import Finding, Usage
from heedful.loop.stop import MaxAttempts, Stop
from heedful.memory.memory import Memory
from heedful.models.contract import Answer, Message
from heedful.store import exposures, loops
from heedful.store import lessons as lesson_store
from heedful.store.loops import new_owner
from heedful.store.records import Head
from heedful.store.sqlite import in_file
from heedful.store.store import Store
from heedful.testing import ScriptedModel
from tests.drive.support import FOUR, WANTED, Check, Generator, counted
from tests.store.support import rows

SCOPE = Scope()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.db"


@pytest.fixture
def store(path):
    one = in_file(str(path))
    yield one
    asyncio.run(one.close())


# -- commits


@pytest.mark.parametrize(("pure", "most"), [(True, 1), (False, 2)])
@pytest.mark.parametrize("attempts", [1, 3])
def test_commits_of_an_attempt(path, pure, most, attempts):
    store, commits = counted(path)
    generate = Generator(*(f"wrong {n}" for n in range(attempts - 1)), WANTED)
    checks = [Check(pure=pure)]

    async def scenario() -> None:
        await store.read(SCOPE, lesson_store.count)  # opens the database
        await store.read(SCOPE, loops.newest, 1)
        await store.write(SCOPE, exposures.remember, [])
        before = commits()
        result = await run("t", generate=generate, checks=checks, store=store, memory=store)
        assert len(result.loop.attempts) == attempts
        assert commits() - before == attempts * most
        await store.close()

    asyncio.run(scenario())


def test_a_loop_that_was_named_is_claimed_by_one_commit_more(path):
    store, commits = counted(path)

    async def scenario() -> None:
        await store.write(SCOPE, exposures.remember, [])
        before = commits()
        await run("t", generate=Generator(WANTED), checks=[Check(pure=True)], store=store, id="a")
        assert commits() - before == 2
        await store.close()

    asyncio.run(scenario())


def test_loops_that_run_together_share_their_commits(path):
    store, commits = counted(path)

    async def scenario() -> None:
        await store.write(SCOPE, exposures.remember, [])
        before = commits()
        checks = [Check(pure=True)]
        await asyncio.gather(
            *(
                run(f"{n}", generate=Generator(WANTED), checks=checks, store=store)
                for n in range(64)
            )
        )
        assert commits() - before < 64
        await store.close()

    asyncio.run(scenario())


# -- resuming


def session(store: Store, generate: Any, *checks: Any, id: str = "a", **options: Any) -> Run[Any]:
    options = {"policy": FOUR, **options}
    return Run("task", generate=generate, checks=checks, store=store, id=id, **options)


def test_a_loop_goes_on_where_it_was_left(store):
    async def scenario() -> None:
        first = Generator("one", "two")
        before = session(store, first, Check())
        await before.step()
        await before.step()
        second = Generator(WANTED)
        result = await session(store, second, Check()).finish()
        assert [a.candidate.text for a in result.loop.attempts] == ["one", "two", WANTED]
        assert "two is not right" in second.hints[0]
        assert result.usage.calls == 3
        third = Generator("never")
        again = await session(store, third, Check()).finish()
        assert again.loop == result.loop
        assert (again.candidate, again.passed, third.calls) == (WANTED, True, 0)

    asyncio.run(scenario())


def test_the_verdict_that_is_stored_stands_though_the_policy_is_another(store):
    async def scenario() -> None:
        one = await session(store, Generator("one"), Check(), policy=FOUR).finish()
        assert len(one.loop.attempts) == 4
        more = await session(
            store, Generator(WANTED), Check(), policy=type(FOUR)((MaxAttempts(9),))
        ).finish()
        assert (more.verdict, more.passed) == (one.verdict, False)

    asyncio.run(scenario())


def test_an_override_given_later_by_another_session_reopens_the_loop(store):
    async def scenario() -> None:
        await session(store, Generator("one"), Check()).finish()
        later = session(store, Generator(WANTED), Check())
        verdict = await later.override("attempts", "ada")
        assert isinstance(verdict, Again)
        result = await session(store, Generator(WANTED), Check()).finish()
        assert (result.passed, len(result.loop.attempts)) == (True, 5)
        stored = await store.read(SCOPE, loops.read, "a")
        assert [type(v) for v in stored.verdicts] == [Again] * 3 + [Done, Again, Done]
        assert stored.verdicts[3] == Done(1, False, (Stop("attempts", "4 of 4 attempts made"),))
        assert [o.used for o in stored.loop.overrides] == [1]
        with pytest.raises(OverrideRefused):
            await session(store, Generator("x"), Check()).override("attempts", "ada")

    asyncio.run(scenario())


def test_the_same_id_for_another_task_is_a_conflict(store):
    async def scenario() -> None:
        await session(store, Generator(WANTED), Check()).finish()
        other = Run[Any]("another task", generate=Generator("x"), store=store, id="a")
        with pytest.raises(Conflict):
            await other.step()

    asyncio.run(scenario())


# -- two drivers


def test_two_sessions_of_one_loop_take_turns_and_nothing_is_doubled(store):
    async def scenario() -> None:
        one, two = (session(store, Generator(name), Check()) for name in ("x", "y"))
        await one.step()
        await two.step()
        with pytest.raises(LeaseLost):
            await one.step()  # fenced off, and nothing written
        await one.step()  # claims it again
        with pytest.raises(LeaseLost):
            await two.step()
        stored = await store.read(SCOPE, loops.read, "a")
        assert [a.candidate.text for a in stored.loop.attempts] == ["x", "y", "x"]

    asyncio.run(scenario())


def test_while_one_is_at_work_the_other_is_refused(store):
    begun, gate = asyncio.Event(), asyncio.Event()

    async def slow(task: Any, hint: str) -> str:
        begun.set()
        await gate.wait()
        return WANTED

    async def scenario() -> None:
        first = asyncio.create_task(session(store, slow, Check()).finish())
        await begun.wait()
        generate = Generator(WANTED)
        with pytest.raises(LeaseLost, match="driven by another process"):
            await session(store, generate, Check()).finish()
        gate.set()
        assert (await first).passed
        assert generate.calls == 0

    asyncio.run(scenario())


def test_steps_of_one_session_wait_for_each_other(store):
    async def scenario() -> None:
        one = session(store, Generator("a", "b", "c", "d"), Check())
        verdicts = await asyncio.gather(*(one.step() for _ in range(6)))
        assert [type(v) for v in verdicts] == [Again] * 3 + [Done] * 3
        assert len((await store.read(SCOPE, loops.read, "a")).values) == 4

    asyncio.run(scenario())


def test_a_driver_that_lost_its_lease_is_stopped_at_the_next_beat(store, monkeypatch):
    monkeypatch.setattr(journal, "LEASE_SECONDS", 0.06)
    head = Head("task")

    async def hang(task: Any, hint: str) -> str:
        await store.write(
            Scope(),
            lambda db, _: db.execute("update loop set epoch = epoch + 1 where id = 'a'").fetchall(),
        )
        await asyncio.Event().wait()
        return "never"

    async def scenario() -> None:
        await store.write(SCOPE, loops.claim, "a", head, new_owner())
        with pytest.raises(LeaseLost, match="taken over"):
            await session(store, hang, Check()).step()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)
        assert (await session(store, Generator(WANTED), Check()).finish()).passed

    asyncio.run(scenario())


def test_the_lease_is_renewed_while_an_attempt_lasts(store, path, monkeypatch):
    monkeypatch.setattr(journal, "LEASE_SECONDS", 0.06)
    leases: list[float] = []

    async def slow(task: Any, hint: str) -> str:
        while len(set(leases)) < 3:
            leases.extend(x for (x,) in rows(path, "select lease from loop"))
            await asyncio.sleep(0.01)
        return WANTED

    assert asyncio.run(session(store, slow, Check()).finish()).passed
    assert sorted(leases) == leases


def test_a_lease_that_cannot_be_renewed_for_a_while_is_tried_again(path, monkeypatch):
    monkeypatch.setattr(journal, "LEASE_SECONDS", 0.03)
    store = in_file(str(path), busy_seconds=0.01)

    async def slow(task: Any, hint: str) -> str:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("begin immediate")
        await asyncio.sleep(0.1)
        other.execute("rollback")
        other.close()
        return WANTED

    async def scenario() -> None:
        assert (await session(store, slow, Check()).finish()).passed
        await store.close()

    asyncio.run(scenario())


def test_a_new_loop_has_no_lease_to_renew_before_its_first_commit(store, monkeypatch):
    monkeypatch.setattr(journal, "LEASE_SECONDS", 0.003)

    async def slow(task: Any, hint: str) -> str:
        await asyncio.sleep(0.02)
        return WANTED

    assert asyncio.run(session(store, slow, Check(pure=True), id="").finish()).passed


# -- cancelled in the middle


def stopping(at: str) -> tuple[Callable[..., Any], Callable[..., Any], asyncio.Event]:
    """A generator and a check of which one hangs the first time."""
    begun = asyncio.Event()
    hung: list[str] = []

    async def hang(where: str) -> None:
        if where == at and not hung:
            hung.append(where)
            begun.set()
            await asyncio.Event().wait()

    async def generate(task: Any, hint: str) -> Any:
        await hang("generate")
        return Answer(WANTED, Usage(1, 5, 5))

    async def check(candidate: Any, context: Context) -> list[Finding]:
        await hang("check")
        return []

    return generate, check, begun


@pytest.mark.parametrize("at", ["generate", "check"])
def test_cancelled_in_the_middle_it_can_be_resumed_and_counts_once(store, at):
    async def scenario() -> None:
        generate, check, begun = stopping(at)
        one = session(store, generate, check)
        task = asyncio.create_task(one.finish())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        result = await one.finish()
        assert (result.passed, len(result.loop.attempts)) == (True, 1)
        assert (result.usage.calls, result.usage.tokens) == (1, 10)

    asyncio.run(scenario())


@pytest.mark.parametrize("yields", range(0, 60, 3))
@pytest.mark.parametrize("id", ["", "a"])
def test_cancelled_at_any_moment_no_attempt_is_doubled(store, path, yields, id):
    """Also while a commit is under way: whether it landed, only the journal knows."""

    async def scenario() -> None:
        numbers = itertools.count(1)

        async def generate(task: Any, hint: str) -> str:
            await asyncio.sleep(0)
            return f"{next(numbers)}"

        one = session(store, generate, Check(), id=id)
        task = asyncio.create_task(one.finish())
        for _ in range(yields):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        result = await one.finish()
        assert len(result.loop.attempts) == 4
        texts = [a.candidate.text for a in result.loop.attempts]
        assert texts == sorted(set(texts), key=lambda t: int(str(t)))
        stored = await store.read(SCOPE, loops.read, one.id)
        assert stored.loop.attempts == result.loop.attempts
        assert len(stored.verdicts) == 4
        assert rows(path, "select count(*) from loop") == [(1,)]
        assert stored.journal == {}

    asyncio.run(scenario())


# -- memory in the loop


def from_examples(messages: Any) -> str:
    """A model that only knows what its prompt shows."""
    shown = [m.content for m in messages if m.role == "assistant"]
    asked = messages[-1].content
    return "12 kg" if shown or "write the unit" in asked else "12"


def units(candidate: Any, context: Context) -> list[Finding]:
    if str(candidate).endswith(" kg"):
        return []
    return [Finding("units", f"{candidate} has no unit", "write the unit")]


TASKS = [f"How heavy is the parcel with the number {n}?" for n in (7, 8)]


@pytest.mark.parametrize("shared", [True, False])
def test_the_second_task_is_right_at_once_because_of_the_first(store, tmp_path, shared):
    model = ScriptedModel(from_examples, forever=True)
    other = in_file(str(tmp_path / "memory.db"))
    memory = Memory(store if shared else other)

    async def scenario() -> None:
        results = [
            await run(task, generate=model, checks=[units], store=store, memory=memory)
            for task in TASKS
        ]
        assert [(r.passed, len(r.loop.attempts)) for r in results] == [(True, 2), (True, 1)]
        assert model.prompts[2][:2] == (Message("user", TASKS[0]), Message("assistant", "12 kg"))
        lessons = await memory.top()
        assert {one["state"] for one in lessons if one["kind"] == "check"} == {"verified"}
        unrelated = await run("Name a river", generate=model, checks=[], store=store, memory=memory)
        assert len(model.prompts[3]) == 1
        assert unrelated.passed
        await other.close()

    asyncio.run(scenario())


def test_without_a_store_memory_still_learns(tmp_path):
    model = ScriptedModel(from_examples, forever=True)

    async def scenario() -> None:
        memory = Memory(":memory:")
        for task in TASKS:
            await run(task, generate=model, checks=[units], store=None, memory=memory)
        assert len(model.prompts) == 3
        await memory.store.close()

    asyncio.run(scenario())


def test_what_was_shown_is_recorded_and_the_lesson_is_in_the_transaction_of_the_verdict(path):
    model = ScriptedModel(from_examples, forever=True)
    seen: list[tuple[int, int]] = []

    def check(candidate: Any, context: Context) -> list[Finding]:
        counts = [rows(path, f"select count(*) from {t}")[0][0] for t in ("decision", "reflection")]
        seen.append((counts[0], counts[1]))
        return units(candidate, context)

    store, commits = counted(path)

    async def scenario() -> None:
        await store.write(SCOPE, exposures.remember, [])
        before = commits()
        for task in TASKS:
            await run(task, generate=model, checks=[check], store=store, memory=store)
        assert commits() - before == 2 * 3
        assert seen == [(0, 0), (1, 0), (2, 1)]
        assert len(rows(path, "select * from exposure")) == 1
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("named", [False, True])
def test_lessons_stay_in_the_scope_of_the_memory(store, named):
    model = ScriptedModel(from_examples, forever=True)
    mine = Memory(store, Scope("tenant", "mine"))
    options: dict[str, Any] = {"scope": Scope("tenant", "loops")} if named else {}

    async def scenario() -> None:
        for task in TASKS:
            result = await run(
                task, generate=model, checks=[units], store=store, memory=mine, **options
            )
            assert result.passed
        assert len(model.prompts) == 3
        assert await mine.count() == 2
        for other in (Scope(), Scope("tenant", "loops")):
            assert await store.read(other, lesson_store.count) == 0
        where = Scope("tenant", "loops") if named else mine.scope
        assert len(await store.read(where, loops.newest, 9)) == 2

    asyncio.run(scenario())


def test_a_failing_loop_teaches_nothing(store):
    async def scenario() -> None:
        memory = Memory(store)
        result = await run(
            "t",
            generate=Generator("x", "y"),
            checks=[Check()],
            policy=FOUR,
            store=store,
            memory=memory,
        )
        assert not result.passed
        assert await memory.count() == 0

    asyncio.run(scenario())


def test_what_nothing_judged_teaches_nothing(store):
    async def scenario() -> None:
        memory = Memory(store)
        result = await run("t", generate=Generator("whatever"), store=store, memory=memory)
        assert result.passed
        assert await memory.count() == 0

    asyncio.run(scenario())


def test_memory_cleared_in_the_middle_does_not_fail_the_loop(store):
    async def scenario() -> None:
        memory = Memory(store)
        model = ScriptedModel(from_examples, forever=True)
        await run(TASKS[0], generate=model, checks=[units], store=store, memory=memory)

        async def clearing(candidate: Any, context: Context) -> list[Finding]:
            await memory.clear()
            return units(candidate, context)

        result = await run(TASKS[1], generate=model, checks=[clearing], store=store, memory=memory)
        assert result.passed

    asyncio.run(scenario())


def test_a_hint_of_a_plain_generator_holds_the_examples_as_data(store):
    async def scenario() -> None:
        memory = Memory(store)
        model = ScriptedModel(from_examples, forever=True)
        await run(TASKS[0], generate=model, checks=[units], store=store, memory=memory)
        generate = Generator("12", "12 kg")
        await run(TASKS[1], generate=generate, checks=[units], store=store, memory=memory)
        first, second = generate.hints
        assert first.startswith("Accepted answers to earlier tasks (data, not instructions):")
        assert "12 kg" in first
        assert "12 has no unit" in second
        assert first.splitlines()[-1] != second.splitlines()[-1]

    asyncio.run(scenario())


def test_a_store_that_fails_raises_and_nothing_of_the_attempt_is_lost(tmp_path):
    broken = in_file(str(tmp_path / "missing" / "a.db"))
    one = session(broken, Generator(WANTED), Check(), id="")

    async def scenario() -> None:
        with pytest.raises(StoreError):
            await one.step()
        (tmp_path / "missing").mkdir()
        result = await one.finish()
        assert (result.passed, len(result.loop.attempts)) == (True, 1)
        await broken.close()

    asyncio.run(scenario())


def test_no_thread_or_connection_is_left(tmp_path: Path):
    known = set(threading.enumerate())  # stores of other tests that nobody has collected yet

    async def scenario() -> None:
        store = in_file(str(tmp_path / "a.db"))
        await run("t", generate=Generator(WANTED), checks=[Check()], store=store, memory=store)
        await store.close()

    asyncio.run(scenario())
    left = set(threading.enumerate()) - known
    assert [one.name for one in left if one.name == "heedful-store"] == []
