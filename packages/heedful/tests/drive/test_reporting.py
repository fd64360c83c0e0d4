"""Host (c): attempts that somebody else makes and reports, decided as those of a driver
are.
"""

import asyncio
from typing import Any

import pytest

import heedful
from heedful import errors
from heedful.checks.evaluate import Context
from heedful.drive import journal
from heedful.drive.report import AttemptReport, ReportResult, cancel, open_loop, report
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Again, Done, Policy
from heedful.loop.record import Evaluation, Finding, Usage
from heedful.loop.stop import MaxAttempts, Repeat
from heedful.memory.memory import Memory
from heedful.store import exposures
from heedful.store.records import JournalEntry
from heedful.store.store import Store
from heedful.testing import FixedEmbedder
from tests.drive.support import FOUR, SCOPE, WANTED, reread, session
from tests.engines import rows
from tests.loop.support import evaluated, rules
from tests.tables import cases

pytestmark = pytest.mark.both_nightly
WRONG = evaluated("wrong")
RIGHT = evaluated()
SECRET = "AKIA" + "IOSFODNN7EXAMPLE"


async def open_reported(store: Store, *rules: Any, id: str = "a", **more: Any) -> None:
    policy = Policy((*rules, MaxAttempts(9))) if rules else FOUR
    more.setdefault("policy", policy)
    await open_loop(id, "task", store=store, scope=SCOPE, **more)


async def post_report(
    store: Store,
    number: int,
    output: Any,
    judged: Evaluation | None = WRONG,
    **more: Any,
) -> ReportResult:
    memory = more.pop("memory", None)
    id = more.pop("id", "a")
    return await report(
        store,
        scope=SCOPE,
        id=id,
        number=number,
        attempt_report=AttemptReport(output, evaluation=judged, **more),
        memory=memory,
    )


def mine(loop: heedful.Loop) -> str | None:
    return None


# -- attempts are reported


async def test_the_same_report_again_returns_the_first_verdict(store):
    same: dict[str, Any] = {"output": {"a": [1], "b": 1}, "labels": {"by": "x"}}
    await open_reported(store)
    first = await post_report(store, 1, {"b": 1, "a": [1]}, labels={"by": "x"})
    await post_report(store, 2, "two", RIGHT)
    before = await reread(store)
    again = await post_report(store, 1, **same)
    assert again.new is False
    assert again.verdict == first.verdict
    assert len(again.loop.attempts) == 1
    assert again.loop.best == 1
    others: list[dict[str, Any]] = [
        {"output": {"a": [1], "b": 2}},
        {"labels": {}},
        {"judged": evaluated("else")},
        {"usage": Usage(1)},
        {"digest": "d"},
        {"request": ["words"]},
    ]
    for other in others:
        with pytest.raises(
            errors.AttemptTaken, match="attempt 1 of 'a' was reported with other"
        ):
            await post_report(store, 1, **{**same, **other})
    assert await reread(store) == before


@cases(
    "wrong",
    {
        "a key in a message": Finding("keys", f"it shows {SECRET}"),
        "a password of a check": Finding("password", "hunter2hunter2x9"),
    },
)
async def test_a_report_with_a_secret_is_redacted_and_known_again(store, path, wrong):
    context = {"key": SECRET}
    await open_reported(store, context=context)
    first, again = [
        await post_report(store, 1, f"use {SECRET}", Evaluation((wrong,))) for _ in "ab"
    ]
    assert first.new is True
    assert again.new is False
    assert again.verdict == first.verdict
    assert "[redacted" in str(first.verdict)
    again_opened = await open_loop(
        "a", "task", store=store, scope=SCOPE, policy=FOUR, context=context
    )
    assert not again_opened.created
    content = str(
        [
            rows(path, f"select * from {table}")
            for table in ("loop", "attempt", "decision")
        ]
    )
    assert SECRET not in content
    assert "[redacted" in content


# -- rules, and what comes after them

TEXT = "the answer to the question is that nobody knows what the right number would be"


DIGESTS = [{"output": None, "digest": digest} for digest in ("d", "", "", "d")]


@cases(
    ("reports", "stopped"),
    {
        "digests alone repeat": (DIGESTS, ["repeat"]),
        "a near text repeats": (
            [{"output": TEXT}, {"output": f"{TEXT} at all", "digest": "m"}],
            ["repeat"],
        ),
        "nothing was judged": (
            [{"output": "one", "judged": None}],
            ["unscored"],
        ),
    },
)
async def test_reported_attempts_are_stopped_by_the_rules(store, reports, stopped):
    await open_reported(store, Repeat())
    results = [
        await post_report(store, number, **fields)
        for number, fields in enumerate(reports, 1)
    ]
    assert [isinstance(fields.verdict, Done) for fields in results] == [False] * (
        len(results) - 1
    ) + [True]
    last = results[-1]
    assert rules(last.verdict) == stopped
    loop = await reread(store)
    assert loop.loop.attempts == last.loop.attempts
    with pytest.raises(
        errors.LoopEnded, match=f"loop 'a' was stopped by {stopped[0]}; attempt"
    ):
        await post_report(store, len(reports) + 1, "more")


# -- judged here

seen: list[Context] = []


def unit(candidate: Any, context: Context) -> list[Finding]:
    seen.append(context)
    wanted = context.data["unit"]
    return (
        []
        if wanted in candidate
        else [Finding("unit", f"no {wanted}", fix="name the unit")]
    )


async def test_a_check_judges_a_report_without_an_evaluation(store):
    seen.clear()

    async def post_number(number: int, output: str, judged: Any = None) -> ReportResult:
        return await post_report(
            store, number, output, judged, checks=[unit], request=["unit"]
        )

    await open_reported(store, context={"unit": "kg"})
    first = await post_number(1, "12")
    assert first.loop.attempts[-1].judged_by == ("unit",)
    assert isinstance(first.verdict, Again)
    again = await post_number(1, "12")
    assert again.verdict == first.verdict
    last = await post_number(2, "12 kg", RIGHT)
    assert last.loop.attempts[-1].judged_by == ("unit", "report")
    assert last.verdict == Done(2, passed=True)
    contexts = [
        (context.attempt, context.previous, context.task, context.hint)
        for context in seen
    ]
    assert contexts == [
        (1, None, "task", ""),
        (2, "12", "task", first.verdict.feedback),
    ]


# -- and drivers


async def test_a_driven_loop_answers_known_reports_only(store):
    began = asyncio.Event()
    gate = asyncio.Event()

    async def slow(task: Any, hint: str) -> str:
        began.set()
        await gate.wait()
        return WANTED

    await open_reported(store)
    first = await post_report(store, 1, "one")
    driving = asyncio.create_task(session(store, generate=slow).finish())
    await began.wait()
    assert (await post_report(store, 1, "one")).verdict == first.verdict
    for refused in (post_report(store, 2, "two"), cancel(store, SCOPE, "a", "ada")):
        with pytest.raises(
            errors.LeaseLost, match="driven by another task of this process"
        ):
            await refused
    gate.set()
    result = await driving
    assert result.passed is True
    assert len(result.loop.attempts) == 2
    with pytest.raises(errors.AttemptTaken):
        await post_report(store, 2, WANTED)


async def test_a_loop_with_code_of_its_host_takes_no_report(store):
    await session(store, "no", policy=Policy((mine, MaxAttempts(3)))).step()
    with pytest.raises(errors.Conflict, match="contains user code"):
        await post_report(store, 2, "two")
    with pytest.raises(errors.NotJournalable):
        await post_report(store, 2, {1, 2})


# -- memory


async def test_a_reported_loop_that_improved_teaches(store, path):
    memory = Memory(store, SCOPE, FixedEmbedder())
    await open_reported(store, id="b")
    for number, judged in ((1, WRONG), (2, RIGHT)):
        await post_report(store, number, f"{number} kg", judged, id="b", memory=memory)
    shown_lessons = (await memory.brief("task", "a")).exposures
    await store.write(SCOPE, exposures.remember, (), exposures=shown_lessons)
    await open_reported(store)
    await post_report(store, 1, "12", memory=memory)
    new = [
        (await post_report(store, 2, "12 kg", RIGHT, memory=memory)).new for _ in "ab"
    ]
    assert new == [True, False]
    past = await store.read(SCOPE, exposures.past, "a")
    assert past.ended == 1
    assert past.number == 1
    assert past.exposures == shown_lessons
    (lesson,) = await memory.top()
    assert lesson["state"] == "verified"
    assert lesson["kind"] == "check"
    assert lesson["seen"] == 2
    assert rows(path, "select count(*) from vector") == [(2,)]
    sources = rows(path, "select source from occurrence order by at")
    assert sources == [("loop:b",), ("loop:a",)]
    await open_reported(store, id="c")
    with pytest.raises(errors.InvalidInput, match="memory"):
        await post_report(store, 1, "x", id="c", memory=Memory(store, Scope("other")))


# -- many at once


async def test_a_writer_that_is_always_overtaken_gives_up(store, monkeypatch):
    monkeypatch.setattr(journal, "MAX_WRITE_ROUNDS", 3)
    turns: list[int] = []

    async def slow(turn: journal.Snapshot) -> None:
        turns.append(turn.state.stored.epoch)
        await heedful.override("a", "attempts", by="ada", store=store)
        entry = JournalEntry(id="a", epoch=0, cancelled="bo")
        await turn.journal().write(entry, turn.state.stored.loop)

    await open_reported(store)
    with pytest.raises(
        errors.LeaseLost, match="other processes keep writing to loop 'a'"
    ):
        await journal.retry_on_conflict(store, SCOPE, "a", slow)
    assert turns == [1, 2, 3]
    loop = await reread(store)
    assert len(loop.loop.overrides) == 3
    assert loop.loop.cancelled == ""
