"""What is a cancellation of a loop, and what is not: only one from outside."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

import heedful
from heedful.checks.evaluate import Context
from heedful.errors import GenerateFailed
from heedful.loop.record import Evaluation, Finding
from heedful.models.function import Function
from tests.drive.support import WANTED, session
from tests.tables import cases

Work = Callable[[], Awaitable[None]]


async def lose_a_source() -> None:
    """Ask two sources at once, and go on although one of them fails."""

    async def fail() -> None:
        raise OSError("the source is down")

    with suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(1))
            group.create_task(fail())


def loop_with(place: str, work: Work, store: Any = None) -> Callable[[], Any]:
    """A loop whose function in one place does some work, as `call` does everywhere."""

    async def call(where: str) -> None:
        if where == place:
            await work()

    async def generate(task: Any, hint: str) -> str:
        await call("generate")
        return WANTED if place == "generate" else "wrong"

    async def write(messages: Any) -> str:
        await call("model")
        return WANTED

    async def revise(task: Any, candidate: Any, findings: Any) -> str:
        await call("revise")
        return WANTED

    async def check(candidate: Any, context: Context) -> list[Finding]:
        await call("check")
        return [] if candidate == WANTED else [Finding("check", "wrong")]

    async def evaluate(candidate: Any, context: Context) -> Evaluation:
        await call("evaluate")
        return Evaluation()

    return session(
        store,
        generate=Function(write) if place == "model" else generate,
        revise=revise if place != "model" else None,
        checks=[check],
        evaluate=evaluate,
    ).finish


def stage_with(place: str, work: Work, store: Any = None) -> Callable[[], Any]:
    """A run of a pipeline whose stage, or its check, does some work."""
    pipeline = heedful.Pipeline("letters", store=store, progress=False)

    async def check(output: str) -> bool:
        if place == "check of a stage":
            await work()
        return True

    @pipeline.stage(checks=[check])
    async def write(state: dict[str, Any]) -> str:
        if place == "stage":
            await work()
        return WANTED

    return lambda: pipeline.run({})


LOOP_PLACES = ("generate", "model", "revise", "check", "evaluate")
PLACES = {
    **dict.fromkeys(LOOP_PLACES, loop_with),
    **dict.fromkeys(("stage", "check of a stage"), stage_with),
}
EVERYWHERE = pytest.mark.parametrize("place", PLACES)


@EVERYWHERE
async def test_a_failed_task_group_that_the_caller_caught_is_no_cancellation(place):
    result = await PLACES[place](place, lose_a_source)()
    assert getattr(result, "status", "passed") == "passed"


async def test_a_task_group_that_failed_before_the_loop_is_no_cancellation():
    await lose_a_source()
    result = await loop_with("generate", lose_a_source)()
    assert result.passed is True


async def test_a_failed_task_group_that_nobody_caught_is_a_fault_of_the_function():
    async def generate(task: Any, hint: str) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(int, None))  # type: ignore[arg-type]

    with pytest.raises(GenerateFailed, match="ExceptionGroup"):
        await session(None, generate=generate).finish()


def swallow(error: BaseException) -> None:
    """Go on, as some clients do after any exception."""


def replace_it(error: BaseException) -> None:
    """Raise another exception, as other clients do."""
    raise ConnectionError("the request failed") from error


def let_through(error: BaseException) -> None:
    raise error


@cases("react", {"let through": let_through, "swallowed": swallow, "other": replace_it})
@EVERYWHERE
async def test_a_cancellation_from_outside_ends_the_loop_at_each_await(place, react):
    began = asyncio.Event()
    calls: list[str] = []

    async def hang() -> None:
        calls.append(place)
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            react(error)

    task = asyncio.create_task(PLACES[place](place, hang)())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert calls == [place]


async def test_a_time_limit_ends_an_attempt_that_swallows_its_cancellation():
    async def generate(task: Any, hint: str) -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return WANTED

    with pytest.raises(heedful.errors.ModelTimeout):
        await session(None, generate=generate, timeout=0.01).finish()


@cases(
    "scores",
    {
        "all malformed": (None, None),
        "one of two": (0.9, None),
        "the first of two": (None, 0.9),
        "one of three": (0.9, 0.9, None),
    },
)
async def test_a_judge_that_fails_leaves_a_stage_not_validated(scores):
    def judge(score: float | None) -> Callable[[Any], str]:
        answer = f'{{"reason": "fine", "alignment": {score}, "confidence": 1}}'
        return lambda messages: "no idea" if score is None else answer

    panel = [heedful.checks.critic("alignment", judge(score)) for score in scores]
    pipeline = heedful.Pipeline("letters", store=None, progress=False)

    @pipeline.stage(checks=[heedful.checks.critics(panel)])
    def write(state: dict[str, Any]) -> str:
        return WANTED

    report = await pipeline.run({})
    assert report.stages[0].status == "not_validated"


HANGING = """
import threading
import heedful

def hang(*_):
    threading.Event().wait()

def ask(task, hint):
    return hang() if {where!r} == "generate" else "an answer"

try:
    heedful.run_sync(
        heedful.run("t", generate=ask, checks=[hang], timeout=0.05, store=None)
    )
except heedful.errors.HeedfulError as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize("where", ["generate", "check"])
def test_a_process_ends_although_a_function_that_was_cut_off_goes_on(where):
    process = subprocess.run(
        [sys.executable, "-c", HANGING.format(where=where)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert process.stdout == "ModelTimeout\n"
