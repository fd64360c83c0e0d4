"""Plain functions and async ones: the decorator, run_sync, interrupts."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import heedful
from heedful.drive.portal import run_sync, self_correcting
from heedful.errors import InvalidInput, NotPassed, UsageError
from heedful.loop.record import Finding
from tests.drive.support import FOUR, WANTED, Check
from tests.store.support import ended, python

corrected = self_correcting(checks=[Check()], store=None)


@corrected
def plainly(task: str, hint: str, punctuation: str = "", *, loud: bool = False) -> str:
    """Says it."""
    return WANTED if hint else f"{task}{punctuation}{loud}"


def test_a_function_keeps_its_name_and_its_arguments():
    assert plainly("a", "!", loud=True) == plainly(task="a", loud=True) == WANTED
    assert plainly.__name__ == "plainly"
    assert plainly.__doc__ == "Says it."
    with pytest.raises(TypeError, match="'task'"):
        plainly()
    seen = []

    @corrected
    def function(task: str, hint: str, *rest: int, **named: int) -> str:
        seen.append((task, rest, named))
        return WANTED if hint else "no"

    function("t", 1, 2, key=3)
    assert seen == [("t", (1, 2), {"key": 3})] * 2


def test_an_exhausted_loop_raises_with_the_result_or_returns_the_best():
    def call(on_exhausted: Any) -> Any:
        answers = iter(["abcdef", "abcde", "abcdef", "abcdefg"])
        letters = self_correcting(
            checks=[lambda c, context: [Finding("c", x) for x in c]],
            policy=FOUR,
            store=None,
            on_exhausted=on_exhausted,
        )
        return letters(lambda task, hint: next(answers))("t")

    assert call("best") == "abcde"
    with pytest.raises(
        NotPassed, match=r"after 4 .*attempts: all 4.* a; b; c and 2 more"
    ) as caught:
        call("raise")
    assert caught.value.result.wrong == tuple("abcde")
    assert caught.value.result.candidate == "abcde"
    assert caught.value.result.best == 2
    with pytest.raises(InvalidInput, match="on_exhausted"):
        call("hope")


def test_run_sync_gives_the_result_or_the_error():
    async def answer() -> int:
        return 5

    async def fail() -> None:
        raise KeyError("x")

    async def leave() -> None:
        raise SystemExit(3)

    assert run_sync(answer()) == 5
    with pytest.raises(KeyError):
        run_sync(fail())
    with pytest.raises(SystemExit):
        run_sync(leave())
    assert run_sync(answer()) == 5  # the loop survived

    async def many() -> Any:
        yield 5

    with pytest.raises(UsageError, match="type async_generator, not a coroutine"):
        run_sync(many())


def test_run_sync_works_from_many_threads_and_nests_without_starving():
    """More callers than a default pool has threads, each waiting for a loop of its own
    inside.
    """

    def inner(task: str, hint: str) -> str:
        return WANTED if hint else "no"

    wrapped = corrected(inner)

    @corrected
    def outer(task: str, hint: str) -> str:
        return wrapped(task)

    with ThreadPoolExecutor(40) as pool:
        assert list(pool.map(outer, ["t"] * 40)) == [WANTED] * 40


CLEANING = """
import asyncio, os, signal
from heedful.drive.portal import run_sync

async def working(fails):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.05)
        print("cleaned", flush=True)
        if fails:
            raise ValueError("while cleaning")

def interrupt():
    for fails in (False, True):
        try:
            run_sync(working(fails))
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    print(run_sync(asyncio.sleep(0, 7)))

async def cell():
    interrupt()

"""


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("interrupt()", id="without an event loop"),
        pytest.param(
            "asyncio.new_event_loop().run_until_complete(cell())", id="in an event loop"
        ),
    ],
)
def test_an_interrupt_waits_until_the_coroutine_has_cleaned_up(call):
    lines = ended(python(CLEANING + call)).splitlines()
    assert lines == ["cleaned", "interrupted"] * 2 + ["7"]


TRUE: Any = True
MISTAKES = [
    pytest.param(
        lambda: heedful.run("t", generate=lambda: "a", store=None),
        "must be a function of a task, or of a task and a hint",
        id="generate takes no task",
    ),
    pytest.param(
        lambda: heedful.run("t", generate=lambda task: "a", memory=TRUE),
        "memory is True; it must be a path such as heedful.db, or a Memory",
        id="memory is no path",
    ),
]


@pytest.mark.parametrize(("begin", "message"), MISTAKES)
def test_a_wrong_argument_is_named_by_the_name_that_the_caller_wrote(begin, message):
    with pytest.raises(InvalidInput) as raised:
        run_sync(begin())
    assert message in str(raised.value)
