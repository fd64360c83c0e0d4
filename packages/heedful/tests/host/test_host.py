"""The core of integrations without any framework, and the hook process called in this
one.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from heedful import Again, Done, Finding, Memory
from heedful.episodes.episode import Event
from heedful.errors import InvalidInput, StoreError
from heedful.integrations import Host
from heedful.integrations.attempts import Attempts, checked_host
from heedful.lessons.telling import Tell
from heedful.models.embedder import MiniLM
from heedful.store.sqlite import in_file
from heedful.testing import FixedEmbedder
from tests.hosts import patient_host

ERROR = 'Error: Cannot find module "pads"'


@dataclass
class Grade:
    level: str


def severity(candidate: Any, _: Any) -> Sequence[Finding]:
    level = candidate["level"] if isinstance(candidate, dict) else candidate
    return (
        []
        if level == "P1"
        else [Finding("severity", "no severity", fix="answer with P1")]
    )


async def test_a_run_is_judged_goes_on_after_its_process_and_keeps_the_best(
    tmp_path: Path,
) -> None:
    store = in_file(str(tmp_path / "a.db"))
    task = "grade it"
    host = patient_host(memory=Memory(store), checks=[severity], strict=True)
    run = host.run("one", task)
    assert not await run.recall()
    assert run.best is None
    assert run.next == 1
    assert isinstance(await run.verdict(Grade("high"), {"prompt_tokens": 3}), Again)
    later = host.run("one")
    assert "answer with P1" in (await later.recall()).text
    assert isinstance(
        await later.verdict(Grade("high")), Again
    )  # the report of the ended process
    assert later.best == Grade("high")
    assert not later.ended
    assert isinstance(await later.verdict({"level": "P1"}, attempt=2), Done)
    assert later.ended
    assert later.usage.prompt_tokens == 3
    assert await later.verdict("P0") == await later.verdict("P0")
    assert later.best == {"level": "P1"}
    third = host.run("one")
    await third.recall()
    assert third.ended
    assert Attempts(run=third).best_as(Grade) == Grade(
        "P1"
    )  # restored from what is stored


def booking(candidate: Any, _: Any) -> Sequence[Finding]:
    is_late = "after" in candidate
    return [Finding("time", "no time", fix="write HH:MM")] if is_late else []


@pytest.mark.parametrize("checks", [[booking], []], ids=["judged", "unjudged"])
@pytest.mark.parametrize(("tell", "is_shown"), [("both", True), ("rules", False)])
async def test_a_host_that_tells_rules_shows_nobody_the_answer_of_another(
    tmp_path: Path, tell: Tell, is_shown: bool, checks: Any
) -> None:
    memory = Memory(in_file(str(tmp_path / "a.db")), holdout=0)
    ana = patient_host(
        memory=memory, checks=[booking], memory_key="table", strict=True
    ).run("ana", "book a table for two guests")
    await ana.recall()
    await ana.verdict("after seven, 555-0147")
    await ana.verdict("19:00, 555-0147")
    await ana.learn(ends="success")

    host = patient_host(
        memory=memory, checks=checks, memory_key="table", tell=tell, strict=True
    )
    advice = await host.run("bo", "book a table for three guests").recall()
    assert ("555-0147" in advice.text) is is_shown
    assert ("write HH:MM" in advice.text) or not checks


async def test_a_host_that_tells_rules_stores_no_output_in_lessons(
    tmp_path: Path,
) -> None:
    memory = Memory(in_file(str(tmp_path / "a.db")))
    host = patient_host(
        memory=memory, checks=[booking], memory_key="table", tell="rules", strict=True
    )
    run = host.run("ana", "book a table")
    await run.recall()
    await run.verdict("after seven, 555-0147")
    assert isinstance(await run.verdict("19:00, 555-0147"), Done)
    lessons = await memory.query("book a table")
    assert [lesson.example.accepted for lesson in lessons] == [""]
    assert "555-0147" not in str(lessons)


def test_a_host_refuses_a_form_that_no_prompt_has() -> None:
    with pytest.raises(InvalidInput, match="one of both, rules, examples"):
        Host(memory=None, tell="rule")  # type: ignore[arg-type]


async def test_without_memory_checks_or_a_store(tmp_path: Path, caplog: Any) -> None:
    bare = Host(memory=None).run("a", "build")
    for lookup in (
        bare.recall(),
        bare.before("sh", "ls"),
        bare.seen("sh", ERROR),
        bare.opening(),
    ):
        assert (await lookup).silence.startswith("there is no memory")
    assert await bare.verdict("x") is None
    assert await bare.learn(ends="success") is None
    assert bare.best is None
    judge = Host(memory=None, checks=[severity])
    unjudged = [
        await judge.run("b", task).verdict("high") is None
        for task in ("grade", "another")
    ]
    assert unjudged == [False, True]
    assert "use a new id" in caplog.text
    (tmp_path / "broken.db").write_bytes(b"no database" * 999)
    memory = Memory(in_file(str(tmp_path / "broken.db")))
    with pytest.raises(StoreError):
        await Host(memory=memory, strict=True).run("c", "grade").recall()
    run = Host(memory=memory, checks=[severity]).run("c", "grade")
    assert not await run.recall()
    assert not await run.before("sh", "ls")
    assert await run.verdict("high") is None
    assert await run.learn(ends="error") is None


class LateEmbedder(MiniLM):
    """An embedder that is loaded in 3 s, and whose calls take `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    async def load(self) -> Any:
        await asyncio.sleep(3)

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        await asyncio.sleep(self.seconds)
        return await FixedEmbedder(MiniLM.dimensions).embed(texts)


async def test_a_late_lookup_says_nothing_and_logs_which_limit_to_raise(
    tmp_path: Path, caplog: Any
) -> None:
    store = in_file(str(tmp_path / "late.db"))
    host = Host(memory=Memory(store, embedder=LateEmbedder(60)), seconds=0.2)
    assert not await host.run("a", "grade it").recall()
    assert (
        "heedful could not recall: it takes more than 0.2 s: Host(seconds=…)"
        in caplog.text
    )


async def test_advice_is_kept_by_call_and_its_outcome_is_counted(
    tmp_path: Path,
) -> None:
    memory = Memory(in_file(str(tmp_path / "a.db")), holdout=0)
    host = patient_host(memory=memory, strict=True)
    first = host.run("one", "build")
    await first.recall()
    await first.before("sh", "npm run pads", "c1")
    await first.seen("sh", ERROR, "c1")
    learned = await first.learn(
        Event("tool_call", tool="sh", arguments={"command": "ls"}), ends="failure"
    )
    assert learned is not None
    assert learned.stored
    second = host.run("two", "build it again")
    for call in ("c1", "c2"):
        advice = await second.before("sh", "npm run pads", call)
        # A failure is told once in a run.
        assert (ERROR.split(": ")[1] in advice.text) == (call == "c1")
        await second.seen("sh", ERROR, call)
    assert list(Attempts(run=second).call_advice()) == ["c1"]
    await second.learn(ends="failure")
    (proof,) = (await memory.prove()).lessons
    assert proof.shown == 1
    assert proof.recurrence.shown == 1.0


@pytest.mark.parametrize(
    ("tool", "name", "warning"),
    [
        pytest.param("query", "sql", "no such column", id="a tool of the agent"),
        pytest.param("web_search", "q", "", id="words from outside wait"),
        pytest.param("bash", "command", "", id="a shell fails for its moment"),
    ],
)
@pytest.mark.parametrize("checks", [(), (severity,)], ids=["unchecked", "checked"])
async def test_what_a_tool_got_wrong_is_in_the_first_prompt_of_the_next_run(
    tmp_path: Path, tool: str, name: str, warning: str, checks: Any
) -> None:
    memory = Memory(in_file(str(tmp_path / "a.db")), holdout=0)
    host = patient_host(memory=memory, strict=True, checks=checks)
    first = host.run("one", "count the orders of Oslo")
    assert not await first.recall()
    error = "no such column: day; columns: id, at"
    for call, value in (("c1", "select day from a"), ("c2", "select at from a")):
        await first.before(tool, {name: value}, call)
        if call == "c1":
            await first.seen(tool, error, call)
        else:
            await first.keep(Event("tool_response", "42", tool=tool, call=call))
    await first.learn(ends="success")
    second = host.run("two", "what does Bergen pay in March?")
    text = (await second.recall()).text
    assert warning in text
    assert bool(warning) is ("no such column" in text)
    if warning:
        assert "select at from a" in text
        assert "no such column" not in (await second.recall()).text  # once in a run


def test_what_is_no_host_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"host is 'heedful\.db'; it must be a Host"):
        checked_host("heedful.db")
