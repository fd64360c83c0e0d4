"""Attempts, driven as an adapter of a framework drives them, without a framework."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from heedful import Done, Memory, policy
from heedful.integrations import Host
from heedful.integrations.attempts import EMPTY_ANSWER, Attempts, misfit_of
from heedful.loop.record import Usage
from heedful.store.sqlite import in_file
from heedful.testing.conformance import CURE as RULE, TASK, severity
from tests.hosts import patient_host


def host_in(folder: Path, **options: Any) -> Host:
    memory = Memory(in_file(str(folder / "memory.db")))
    return patient_host(memory=memory, strict=True, **options)


async def attempts_of(host: Host, id: str = "one", **options: Any) -> Attempts:
    attempts = Attempts(run=host.run(id, TASK), **options)
    await attempts.begin()
    return attempts


async def test_a_rejected_answer_and_its_feedback_stay_until_the_next(
    tmp_path: Path,
) -> None:
    attempts = await attempts_of(host_in(tmp_path, checks=[severity]))
    assert await attempts.judge("")
    assert attempts.rejected == EMPTY_ANSWER
    assert await attempts.judge("high")
    assert attempts.rejected == "high"
    assert RULE in attempts.feedback
    assert not await attempts.judge("P1")
    assert await attempts.end() == Done(3, passed=True)


async def test_usage_is_that_of_each_attempt(tmp_path: Path) -> None:
    attempts = await attempts_of(host_in(tmp_path, checks=[severity]))
    attempts.count(Usage(1, 10, completion_tokens=5))
    attempts.count(Usage(2, 30, completion_tokens=10))
    await attempts.judge("high")
    attempts.count(Usage(3, 60, completion_tokens=15))
    await attempts.judge("P1")
    assert attempts.run.loop
    usages = [attempt.usage for attempt in attempts.run.loop.loop.attempts]
    assert [usage.calls for usage in usages] == [2, 1]
    assert [usage.tokens for usage in usages] == [40, 35]


@pytest.mark.parametrize(
    "limit", [pytest.param(2, id="ended"), pytest.param(3, id="interrupted")]
)
async def test_another_process_goes_on(limit: int, tmp_path: Path) -> None:
    stop = policy(f"attempts.limit={limit}")
    for answer in ("high", "urgent"):
        first = await attempts_of(host_in(tmp_path, checks=[severity], policy=stop))
        await first.judge(answer)
        assert first.early_answer() == ""

    second = await attempts_of(host_in(tmp_path, checks=[severity], policy=stop))
    if limit == 2:
        assert second.early_answer() == "high"
        verdict = await second.end()
        assert verdict
        assert verdict.best == 1
    else:
        assert second.early_answer() == ""
        assert second.rejected == "urgent"
        assert RULE in second.feedback
        assert RULE not in second.recalled
        # Nobody answers again, so the best answer is not accepted.
        assert await second.end() == Done(1, passed=False)


async def test_a_call_that_failed_is_held_back_once(tmp_path: Path) -> None:
    build = {"command": "npm run pads"}
    error = 'Error: Cannot find module "pads"'
    host = host_in(tmp_path)
    for id in ("one", "two"):
        attempts = await attempts_of(host, id)
        assert await attempts.ask("Bash", build, "call-1") == ""
        await attempts.keep("Bash", error, "call-1", failed=True)
        assert await attempts.end() is None

    attempts = await attempts_of(host, "three", hold_back=True)
    assert error in await attempts.ask("Bash", build, "call-1")
    assert attempts.call_advice() == {}
    assert await attempts.ask("Bash", build, "call-2") == ""
    assert await attempts.ask("Bash", build, "call-2") == ""
    await attempts.keep("Bash", "done", "call-2")
    await attempts.end("success")


async def test_a_watched_call_keeps_its_result_or_its_error(tmp_path: Path) -> None:
    host = host_in(tmp_path)
    attempts = await attempts_of(host)

    async def work() -> str:
        return "no such table"

    async def fail() -> str:
        raise KeyError("price")

    async def wait() -> str:
        raise TimeoutError("the user is asked")

    async def watch(call: str, work: Any) -> Any:
        return await attempts.watch(
            "query",
            {"call": call},
            call,
            work=work,
            failed=lambda result: result.startswith("no"),
            others=(TimeoutError,),
        )

    assert await watch("call-1", work) == "no such table"
    with pytest.raises(KeyError):
        await watch("call-2", fail)
    with pytest.raises(TimeoutError):
        await watch("call-3", wait)
    errors = [event["error"] for event in await attempts.run.events() if event["call"]]
    assert list(filter(None, errors)) == ["no such table", "KeyError: 'price'"]
    # A call that waits has no result yet.
    assert attempts.running == {"call-3": "query"}


def result_ids(message: str) -> list[str]:
    """Return the id of the call whose result a message is."""
    kind, _, id = message.partition(" ")
    return [id] if kind == "result" else []


def request_of(attempts: Attempts, messages: Sequence[str]) -> list[str]:
    return attempts.advised(
        messages, task=0, calls=result_ids, message=lambda role, text: f"{role}: {text}"
    )


async def test_a_rejected_answer_stays_where_it_was_in_a_request(
    tmp_path: Path,
) -> None:
    attempts = await attempts_of(host_in(tmp_path, checks=[severity]))
    await attempts.judge("high")
    feedback = f"user: {attempts.feedback}"
    rejected = ["assistant: high", feedback]
    assert request_of(attempts, [TASK, "call a"]) == [TASK, "call a", *rejected]
    later = [TASK, "call a", "result a", "call b", "result b"]
    request = request_of(attempts, later)
    # A call and its result stay together.
    assert request == [*later[:3], *rejected, *later[3:]]
    # A framework may have summarized earlier messages.
    assert request_of(attempts, [TASK]) == [TASK, *rejected]

    await attempts.judge("urgent")
    assert request_of(attempts, later)[-2] == "assistant: urgent"


def test_a_misfit_says_which_part_of_an_answer_has_another_type() -> None:
    assert misfit_of(dict[str, int], '{"price": 3}') == ""
    assert "price" in misfit_of(dict[str, int], '{"price": "three"}')
