"""Host (c): attempts that somebody else makes and reports, decided as those of a driver are."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.checks.evaluate import Context
from heedful.drive import journal as outside
from heedful.drive.drive import Run
from heedful.drive.report import AttemptReport, ReportResult, cancel, open_loop, report
from heedful.errors import (
    AttemptTaken,
    CheckFailed,
    Conflict,
    InvalidInput,
    LeaseLost,
    LoopEnded,
    NotFound,
    NotJournalable,
    OutOfOrder,
    OverrideRefused,
)
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Again, Done, Policy
from heedful.loop.record import Evaluation, Finding, Goal, Usage
from heedful.loop.stop import Budget, Echo, MaxAttempts, Plateau, Repeat
from heedful.memory.memory import Memory
from heedful.store import exposures, loops
from heedful.store.records import JournalEntry
from heedful.store.sqlite import BUSY_SECONDS, Connection, File
from heedful.store.store import Store
from heedful.testing import FixedEmbedder
from tests.drive.support import FOUR, WANTED, Check, Generator, counted
from tests.engines import opened, rows
from tests.loop.support import evaluated, rules

pytestmark = pytest.mark.both
SCOPE = Scope()
WRONG, RIGHT = evaluated("wrong"), evaluated()
SECRET = "AKIA" + "IOSFODNN7EXAMPLE"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.db"


@pytest.fixture
def store(path):
    with opened(path) as one:
        yield one


async def begun(store: Store, policy: Policy = FOUR, id: str = "a", **more: Any) -> None:
    await open_loop(store, SCOPE, id, "task", policy=policy, **more)


async def told(
    store: Store, number: int, output: Any, judged: Evaluation | None = WRONG, **more: Any
) -> ReportResult:
    memory = more.pop("memory", None)
    given = AttemptReport(output, evaluation=judged, **more)
    return await report(store, SCOPE, "a", number, given, memory)


async def made(store: Store, *outputs: Any, judged: Evaluation | None = WRONG) -> ReportResult:
    """Attempts from 1 on, all judged the same."""
    answers = [await told(store, n, output, judged) for n, output in enumerate(outputs, 1)]
    return answers[-1]


# -- a loop is opened


def test_a_loop_is_opened_once(store):
    goal = Goal("quality", 0.75)
    same: dict[str, Any] = {"goals": [goal], "policy": FOUR, "context": {"unit": "kg"}}

    async def scenario() -> None:
        first, new = await open_loop(store, SCOPE, "a", {"q": 1}, **same)
        assert new
        assert (first.head.task, first.head.context) == ({"q": 1}, {"unit": "kg"})
        assert (first.loop.goals, first.loop.attempts) == ((goal,), ())
        assert await open_loop(store, SCOPE, "a", {"q": 1}, **same) == (first, False)
        others: list[dict[str, Any]] = [
            {"goals": []},
            {"policy": Policy((MaxAttempts(5),), name="four")},
            {"context": None},
        ]
        for other in others:
            with pytest.raises(Conflict, match="loop 'a' is about another"):
                await open_loop(store, SCOPE, "a", {"q": 1}, **(same | other))
        with pytest.raises(Conflict, match="another task"):
            await open_loop(store, SCOPE, "a", {"q": 2}, **same)
        assert (await open_loop(store, Scope("other"), "a", "x"))[1]

    asyncio.run(scenario())


def mine(loop: heedful.Loop) -> str | None:
    return None


@pytest.mark.parametrize(
    ("id", "policy", "why"),
    [
        ("", FOUR, "id is '' .* 1 to 200 printable"),
        ("x" * 201, FOUR, "1 to 200 printable"),
        ("a\n", FOUR, "1 to 200 printable"),
        (SECRET, FOUR, "without a secret"),
        ("a", Policy((mine, MaxAttempts(3))), "no code of the host"),
    ],
)
def test_what_no_loop_can_be_is_refused(store, id, policy, why):
    with pytest.raises(InvalidInput, match=why.replace(" .* ", ".*")):
        asyncio.run(open_loop(store, SCOPE, id, "task", policy=policy))


def test_the_goals_of_the_policy_are_those_of_a_loop_without_goals(store):
    goal = Goal("quality", 0.75)
    opened_ = asyncio.run(open_loop(store, SCOPE, "a", "t", policy=replace(FOUR, goals=(goal,))))
    assert opened_[0].loop.goals == (goal,)


# -- attempts are reported


def test_attempts_are_decided_until_one_passes(store, path):
    async def scenario() -> None:
        await begun(store)
        first = await told(store, 1, "one", usage=Usage(calls=2))
        assert (first.new, first.attempt, first.evaluated_by) == (True, 1, ["report"])
        assert isinstance(first.verdict, Again)
        assert [one.code for one in first.verdict.reasons] == ["check"]
        assert "check: wrong." in first.verdict.feedback
        second = await told(store, 2, "two", RIGHT)
        assert second.verdict == Done(2, passed=True)
        stored = await store.read(SCOPE, loops.read, "a")
        assert stored.values == ("one", "two")
        assert stored.verdicts == (first.verdict, second.verdict)
        assert stored.loop.usage == Usage(calls=2)
        assert rows(path, "select state, owner, lease, epoch from loop") == [("passed", "", 0, 3)]

    asyncio.run(scenario())


def test_the_same_report_again_gets_the_verdict_that_it_got(store):
    async def scenario() -> None:
        await begun(store)
        first = await told(store, 1, {"b": 1, "a": [1]}, labels={"by": "x"})
        await told(store, 2, "two", RIGHT)
        before = await store.read(SCOPE, loops.read, "a")
        again = await told(store, 1, {"a": [1], "b": 1}, labels={"by": "x"})
        assert again.new is False
        assert (again.verdict, again.attempt, again.loop.best) == (first.verdict, 1, 1)
        assert await store.read(SCOPE, loops.read, "a") == before
        others: list[Awaitable[ReportResult]] = [
            told(store, 1, {"a": [1], "b": 2}, labels={"by": "x"}),
            told(store, 1, {"a": [1], "b": 1}),
            told(store, 1, {"a": [1], "b": 1}, evaluated("else"), labels={"by": "x"}),
            told(store, 1, {"a": [1], "b": 1}, labels={"by": "x"}, usage=Usage(1)),
            told(store, 1, {"a": [1], "b": 1}, labels={"by": "x"}, digest="d"),
            told(store, 1, {"a": [1], "b": 1}, labels={"by": "x"}, request=["words"]),
        ]
        for other in others:
            with pytest.raises(AttemptTaken, match="attempt 1 of 'a' was reported with other"):
                await other
        assert await store.read(SCOPE, loops.read, "a") == before

    asyncio.run(scenario())


@pytest.mark.parametrize("number", [-1, 0, 2, 3])
def test_attempts_come_in_order(store, number):
    async def scenario() -> None:
        await begun(store)
        with pytest.raises(OutOfOrder, match=f"attempt {number} of 'a' is reported, but 1 comes"):
            await told(store, number, "x")
        assert (await store.read(SCOPE, loops.read, "a")).loop.attempts == ()

    asyncio.run(scenario())


def test_of_what_is_not_there_nothing_is_created(store, path):
    async def scenario() -> None:
        with pytest.raises(NotFound, match="no loop 'a'"):
            await told(store, 1, "x")
        with pytest.raises(NotFound, match="no loop 'a'"):
            await cancel(store, SCOPE, "a", "ada")

    asyncio.run(scenario())
    assert rows(path, "select * from loop") == []


def test_a_candidate_that_no_json_holds_is_refused(store):
    async def scenario() -> None:
        await begun(store)
        with pytest.raises(NotJournalable):
            await told(store, 1, {1, 2})

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "wrong", [Finding("keys", f"it shows {SECRET}"), Finding("password", "hunter2hunter2x9")]
)
def test_secrets_are_not_kept_and_no_obstacle(store, path, wrong):
    known: dict[str, Any] = {"policy": FOUR, "context": {"key": SECRET}}

    async def scenario() -> None:
        await open_loop(store, SCOPE, "a", "task", **known)
        first, again = [await told(store, 1, f"use {SECRET}", Evaluation((wrong,))) for _ in "ab"]
        assert (first.new, again.new, again.verdict) == (True, False, first.verdict)
        assert "[redacted" in str(first.verdict)
        assert not (await open_loop(store, SCOPE, "a", "task", **known))[1]

    asyncio.run(scenario())
    kept = str([rows(path, f"select * from {table}") for table in ("loop", "attempt", "decision")])
    assert SECRET not in kept
    assert "[redacted" in kept


# -- rules, and what comes after them


def test_the_rules_of_the_policy_stop_it_and_an_override_reopens_it(store):
    async def scenario() -> None:
        await begun(store, Policy((MaxAttempts(2),)))
        last = await made(store, "one", "two")
        assert rules(last.verdict) == ["attempts"]
        with pytest.raises(LoopEnded, match="loop 'a' was stopped by attempts; attempt 3 comes"):
            await told(store, 3, "three")
        reopened = await heedful.override("a", "attempts", by="ada", store=store)
        assert isinstance(reopened, Again)
        assert (await told(store, 2, "two")).verdict == last.verdict  # as it fell then
        third = await told(store, 3, "three")
        assert rules(third.verdict) == ["attempts"]
        stored = await store.read(SCOPE, loops.read, "a")
        assert [one.used for one in stored.loop.overrides] == [1]
        with pytest.raises(LoopEnded):
            await told(store, 4, "four")

    asyncio.run(scenario())


def test_an_override_given_ahead_is_consumed_by_the_decision_that_needs_it(store):
    async def scenario() -> None:
        await begun(store, Policy((MaxAttempts(1),)))
        await heedful.override("a", "attempts", by="ada", decisions=2, store=store)
        for number in (1, 2):
            verdict = (await told(store, number, str(number))).verdict
            assert isinstance(verdict, Again)
            assert [one.by for one in verdict.lifted] == ["ada"]
        assert rules((await told(store, 3, "3")).verdict) == ["attempts"]
        expired = time.time() - 1
        with pytest.raises(OverrideRefused, match="must lie in the future"):
            await heedful.override("a", "attempts", by="ada", until=expired, store=store)

    asyncio.run(scenario())


def test_near_repeats_are_found_once_and_other_digests_are_other_candidates(store):
    text = "the answer to the question is that nobody knows what the right number would be"

    async def scenario() -> None:
        await begun(store, Policy((Repeat(), MaxAttempts(9))))
        await told(store, 1, text)
        near = await told(store, 2, f"{text} at all", digest="mine")
        assert near.loop.attempts[1].repeats == 1
        assert near.loop.attempts[1].candidate.digest == "mine"
        assert rules(near.verdict) == ["repeat"]
        assert (await store.read(SCOPE, loops.read, "a")).loop.attempts == near.loop.attempts

    asyncio.run(scenario())


def test_digests_alone_tell_repeats_and_nothing_at_all_none(store):
    async def scenario() -> None:
        await begun(store, Policy((Repeat(), MaxAttempts(9))))
        await told(store, 1, None, digest="d")
        await told(store, 2, None)
        await told(store, 3, None)
        last = await told(store, 4, None, digest="d")
        assert rules(last.verdict) == ["repeat"]
        assert [one.candidate.text for one in last.loop.attempts] == [None] * 4

    asyncio.run(scenario())


def test_an_attempt_that_nobody_judged_is_unscored(store):
    async def scenario() -> None:
        await begun(store)
        last = await told(store, 1, "one", None)
        assert rules(last.verdict) == ["unscored"]
        assert last.evaluated_by == []

    asyncio.run(scenario())


def test_echoes_of_other_loops_count_where_a_rule_counts_them(store):
    policy = Policy((Echo(3, across="scope"), MaxAttempts(9)))

    async def scenario() -> None:
        for id in ("b", "c"):
            await begun(store, policy, id)
            await report(store, SCOPE, id, 1, AttemptReport("x", evaluation=WRONG))
        await begun(store, policy)
        last = await told(store, 1, "one")
        assert rules(last.verdict) == ["echo"]
        assert (await store.read(SCOPE, loops.read, "a")).decisions[-1].standing.echoes == {
            "wrong": 3
        }

    asyncio.run(scenario())


def test_a_budget_counts_what_was_reported(store):
    async def scenario() -> None:
        await begun(store, Policy((Budget(calls=3), MaxAttempts(9))))
        await told(store, 1, "one", usage=Usage(calls=2))
        last = await told(store, 2, "two", usage=Usage(calls=1))
        assert rules(last.verdict) == ["budget"]

    asyncio.run(scenario())


# -- cancelled


def test_a_loop_is_cancelled_once(store):
    async def scenario() -> None:
        await begun(store)
        await told(store, 1, "one")
        verdict = await cancel(store, SCOPE, "a", "ada", "the customer left")
        assert isinstance(verdict, Done)
        assert rules(verdict) == ["cancelled"]
        assert verdict.stopped_by[0].detail == "ada: the customer left"
        assert verdict.best == 1
        before = await store.read(SCOPE, loops.read, "a")
        assert await cancel(store, SCOPE, "a", "bo") == verdict
        assert await store.read(SCOPE, loops.read, "a") == before
        with pytest.raises(LoopEnded):
            await told(store, 2, "two")
        assert isinstance(await heedful.override("a", "attempts", by="ada", store=store), Done)

    asyncio.run(scenario())


# -- judged here


def unit(candidate: Any, context: Context) -> list[Finding]:
    seen.append(context)
    wanted = context.data["unit"]
    return [] if wanted in candidate else [Finding("unit", f"no {wanted}", "name the unit")]


seen: list[Context] = []


def test_checks_judge_what_comes_without_an_evaluation(store):
    async def scenario() -> None:
        seen.clear()
        await begun(store, context={"unit": "kg"})
        first = await told(store, 1, "12", None, checks=[unit], request=["unit"])
        assert (first.evaluated_by, first.verdict.__class__) == (["unit"], Again)
        again = await told(store, 1, "12", None, checks=[unit], request=["unit"])
        assert (again.verdict, again.evaluated_by) == (first.verdict, ["unit"])
        last = await told(store, 2, "12 kg", RIGHT, checks=[unit], request=["unit"])
        assert last.evaluated_by == ["unit", "report"]
        assert last.verdict == Done(2, passed=True)
        assert [(one.attempt, one.previous, one.task) for one in seen] == [
            (1, None, "task"),
            (2, "12", "task"),
        ]
        assert isinstance(first.verdict, Again)
        assert seen[1].hint == first.verdict.feedback

    asyncio.run(scenario())


def test_a_check_that_raises_blames_nobody(store):
    check = Check(*[RuntimeError("broken")] * 2)

    async def scenario() -> None:
        await begun(store)
        with pytest.raises(CheckFailed, match="broken"):
            await told(store, 1, WANTED, None, checks=[check])
        assert (await store.read(SCOPE, loops.read, "a")).loop.attempts == ()
        assert (await told(store, 1, WANTED, None, checks=[check])).verdict == Done(1, True)

    asyncio.run(scenario())


def test_what_is_judged_here_is_judged_once_however_often_it_has_to_be_written(store):
    calls: list[int] = []

    async def judge(candidate: Any, context: Context) -> list[Finding]:
        calls.append(1)
        if len(calls) == 1:  # somebody is quicker
            await heedful.override("a", "attempts", by="ada", store=store)
        return []

    async def scenario() -> None:
        await begun(store)
        last = await told(store, 1, "x", None, checks=[judge])
        assert last.verdict == Done(1, passed=True)
        assert len(calls) == 1
        assert len((await store.read(SCOPE, loops.read, "a")).loop.overrides) == 1

    asyncio.run(scenario())


# -- and drivers


def test_while_a_process_drives_it_only_what_is_known_is_answered(store):
    began, gate = asyncio.Event(), asyncio.Event()

    async def slow(task: Any, hint: str) -> str:
        began.set()
        await gate.wait()
        return WANTED

    async def scenario() -> None:
        await begun(store)
        first = await told(store, 1, "one")
        run = Run[str]("task", generate=slow, checks=[Check()], policy=FOUR, store=store, id="a")
        driving = asyncio.create_task(run.finish())
        await began.wait()
        assert (await told(store, 1, "one")).verdict == first.verdict
        for refused in (told(store, 2, "two"), cancel(store, SCOPE, "a", "ada")):
            with pytest.raises(LeaseLost, match="driven by another process"):
                await refused
        gate.set()
        result = await driving
        assert (result.passed, len(result.loop.attempts)) == (True, 2)
        with pytest.raises(AttemptTaken):
            await told(store, 2, WANTED)

    asyncio.run(scenario())


def test_a_driver_finds_the_context_that_the_loop_was_begun_with(store):
    async def scenario() -> None:
        seen.clear()
        await begun(store, context={"unit": "kg"})
        await told(store, 1, "12", None, checks=[unit])
        options: dict[str, Any] = {"policy": FOUR, "store": store, "id": "a"}
        run = Run[str]("task", generate=Generator("13 kg"), checks=[unit], **options)
        result = await run.finish()
        assert (result.passed, len(result.loop.attempts)) == (True, 2)
        assert [one.data for one in seen] == [{"unit": "kg"}] * 2

    asyncio.run(scenario())


def test_a_driver_that_had_let_go_loses_to_a_report(store):
    async def scenario() -> None:
        run = Run[str](
            "task", generate=Generator("no"), checks=[Check()], policy=FOUR, store=store, id="a"
        )
        await run.step()
        assert isinstance((await told(store, 2, "two")).verdict, Again)
        with pytest.raises(LeaseLost):
            await run.step()
        assert (await run.finish()).loop.attempts[1].candidate.text == "two"

    asyncio.run(scenario())


def test_what_a_driver_has_done_meanwhile_is_not_passed_over(store):
    run = Run[str](
        "task", generate=Generator("no"), checks=[Check()], policy=FOUR, store=store, id="a"
    )

    async def judge(candidate: Any, context: Context) -> list[Finding]:
        await run.cancel("ada")
        return []

    async def scenario() -> None:
        await run.step()
        with pytest.raises(LoopEnded, match="was stopped by cancelled"):
            await told(store, 2, "two", None, checks=[judge])
        assert len((await store.read(SCOPE, loops.read, "a")).loop.attempts) == 1

    asyncio.run(scenario())


def test_what_code_of_its_host_decides_is_not_decided_here(store):
    async def scenario() -> None:
        policy = Policy((mine, MaxAttempts(3)))
        run = Run[str](
            "task", generate=Generator("no"), checks=[Check()], policy=policy, store=store, id="a"
        )
        await run.step()
        with pytest.raises(Conflict, match="decided by code of its host"):
            await told(store, 2, "two")

    asyncio.run(scenario())


# -- memory


def test_a_loop_that_improved_teaches_and_tells_what_lessons_are_worth(store, path):
    async def scenario() -> None:
        memory = Memory(store, SCOPE, FixedEmbedder())
        await begun(store, id="b")
        for number, judged in ((1, WRONG), (2, RIGHT)):
            given = AttemptReport(f"{number} kg", evaluation=judged)
            await report(store, SCOPE, "b", number, given, memory)
        shown = (await memory.brief("task", "a")).exposures
        await store.write(SCOPE, exposures.remember, (), exposures=shown)
        await begun(store)
        await told(store, 1, "12", memory=memory)
        past = await store.read(SCOPE, exposures.past, "a")
        assert (past.exposures, past.number) == (shown, 0)
        await told(store, 2, "12 kg", RIGHT, memory=memory)
        past = await store.read(SCOPE, exposures.past, "a")
        assert (past.ended, past.number, past.exposures) == (1, 1, shown)
        assert not (await told(store, 2, "12 kg", RIGHT, memory=memory)).new
        (lesson,) = await memory.top()
        assert (lesson["state"], lesson["kind"], lesson["seen"]) == ("verified", "check", 2)
        found = await memory.recall("task")
        assert sorted(one.example.accepted for one in found) == ["12 kg", "2 kg"]
        assert rows(path, "select count(*) from vector") == [(2,)]
        assert rows(path, "select source from occurrence") == [("loop:b",), ("loop:a",)]

    asyncio.run(scenario())


@pytest.mark.sqlite
def test_what_it_teaches_is_one_transaction_with_what_was_decided(path):
    store, commits = counted(path)

    async def scenario() -> None:
        await begun(store)
        before = commits()
        await told(store, 1, "12", memory=Memory(store, SCOPE))
        await told(store, 2, "12 kg", RIGHT, memory=Memory(store, SCOPE))
        assert commits() - before == 2
        await store.close()

    asyncio.run(scenario())


def test_memory_is_that_of_the_loop(store):
    async def scenario() -> None:
        await begun(store)
        with pytest.raises(InvalidInput, match="memory"):
            await told(store, 1, "x", memory=Memory(store, Scope("other")))

    asyncio.run(scenario())


# -- what it costs


def traced(path: Path) -> tuple[Store, list[str]]:
    """A store, and what its connections are asked, transactions by how they end."""
    asked: list[str] = []
    file = File(str(path), BUSY_SECONDS)

    def listening(connect: Callable[[], Connection]) -> Callable[[], Connection]:
        def opened() -> Connection:
            db = connect()
            db.set_trace_callback(lambda sql: asked.append(sql.partition(" ")[0].lower()))
            return db

        return opened

    for thread in (file.writer, file.reader):
        thread._connect = listening(thread._connect)
    return Store(str(path), file), asked


@pytest.mark.sqlite
def test_a_report_is_one_transaction_that_reads_and_one_that_writes(path):
    store, asked = traced(path)

    async def scenario() -> None:
        await begun(store)
        await store.read(SCOPE, loops.read, "a")
        for number in (1, 2, 3):
            asked.clear()
            await told(store, number, str(number), memory=Memory(store, SCOPE))
            counts = Counter(asked)
            assert (counts["begin"], counts["rollback"], counts["commit"]) == (2, 1, 1)
            assert counts["select"] <= 8, counts
            assert counts["insert"] == 2  # the attempt and its decision
            assert counts["update"] + counts["delete"] <= 3, counts
        asked.clear()
        await told(store, 1, "1")
        assert (asked.count("begin"), asked.count("commit")) == (1, 0)
        await store.close()

    asyncio.run(scenario())


# -- many at once


def test_who_is_always_overtaken_gives_up(store, monkeypatch):
    monkeypatch.setattr(outside, "ROUNDS", 3)
    turns: list[int] = []

    async def slow(turn: outside.Snapshot) -> None:
        turns.append(turn.state.stored.epoch)
        await heedful.override("a", "attempts", by="ada", store=store)
        await turn.commit(JournalEntry("a", 0, cancelled="bo"))

    async def scenario() -> None:
        await begun(store)
        with pytest.raises(LeaseLost, match="others write to loop 'a' all the time"):
            await outside.retry_on_conflict(store, SCOPE, "a", slow)
        assert turns == [1, 2, 3]
        stored = await store.read(SCOPE, loops.read, "a")
        assert (len(stored.loop.overrides), stored.loop.cancelled) == (3, "")

    asyncio.run(scenario())


def test_of_many_reports_of_one_attempt_one_is_kept(store):
    async def scenario() -> None:
        await begun(store, Policy((MaxAttempts(3), Plateau(9))))
        for number in (1, 2, 3):
            outputs = [f"{number}/{n % 4}" for n in range(16)]
            answers = await asyncio.gather(
                *(told(store, number, one) for one in outputs), return_exceptions=True
            )
            kept = [one for one in answers if isinstance(one, ReportResult)]
            assert [type(one) for one in answers if one not in kept] == [AttemptTaken] * 12
            assert (len(kept), sum(one.new for one in kept)) == (4, 1)
            assert len({str(one.verdict) for one in kept}) == 1
        stored = await store.read(SCOPE, loops.read, "a")
        assert [one.attempt for one in stored.decisions] == [1, 2, 3]

    asyncio.run(scenario())
