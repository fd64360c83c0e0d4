"""Overrides, given by the driver or from outside: what reopens, what is refused, what
expires.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.drive.run_loop import Run
from heedful.errors import LeaseLost, OverrideRefused
from heedful.loop.decide import Again, Done, Policy, Verdict, standing_of
from heedful.loop.record import Loop, Override
from heedful.loop.stop import Budget, MaxAttempts
from heedful.store.store import Store
from tests.drive.support import FOUR, Generator, reread, session
from tests.engines import rows
from tests.store.support import ended, python
from tests.tables import cases

TABLES = ("loop", "attempt", "decision", "override", "step")
HOUR = 3600.0


async def override_from_outside(
    store: Store | str, rule: str = "attempts", **options: Any
) -> Verdict:
    options.setdefault("by", "ada")
    return await heedful.override("a", rule, store=store, **options)


async def lift(
    way: str, store: Store, driver: Run[Any], rule: str = "attempts", **more: Any
) -> Any:
    """Override by the driver, or from outside."""
    if way == "outside":
        return await override_from_outside(store, rule, **more)
    more.setdefault("by", "ada")
    return await driver.override(rule, **more)


def read_tables(path: Path) -> list[Any]:
    return [rows(path, f"select * from {table}") for table in TABLES]


both_ways = pytest.mark.parametrize("way", ["driver", "outside"])


# -- a loop that has stopped


@both_ways
async def test_an_override_reopens_a_stopped_loop_for_some_decisions(store, path, way):
    driver = session(store)
    stopped = (await driver.finish()).verdict
    until = time.time() + HOUR
    verdict = await lift(
        way, store, driver, why="it is close", decisions=2, until=until
    )
    assert isinstance(verdict, Again)
    assert "four is not right" in verdict.feedback
    assert [(decision.rule, decision.by) for decision in verdict.lifted] == [
        ("attempts", "ada")
    ]
    loop = await reread(store)
    assert loop.verdicts[3:] == (stopped, verdict)  # the first verdict stays on record
    assert [d.attempt for d in loop.decisions] == [1, 2, 3, 4, 4]
    first, last = loop.decisions[3:]
    assert last.standing == first.standing == standing_of(loop.loop, FOUR)
    assert first.at <= last.at <= time.time()
    reasonings = heedful.reasoning(loop.loop, loop.decisions)
    assert [decision.decided for decision in reasonings] == ["again"] * 3 + [
        "stopped",
        "again",
    ]
    assert rows(path, "select state from loop") == [("open",)]
    later = Generator("no")
    result = await session(store, generate=later).finish()
    assert result.passed is False
    assert len(result.loop.attempts) == 6
    assert later.hints[0] == verdict.feedback
    assert (await reread(store)).loop.overrides == (
        Override(
            "attempts", "ada", why="it is close", decisions=2, used=2, until=until
        ),
    )


# -- refused


@both_ways
@cases(
    ("wrong", "why"),
    {
        "a rule nobody may lift": (
            {"rule": "budget"},
            r"rule 'budget' cannot be overridden; these can: attempts$",
        ),
        "nobody's name": ({"by": " \n"}, r"by is ' \\n'; it must name the actor"),
    },
)
async def test_a_refused_override_leaves_no_trace(store, path, way, wrong, why):
    driver = session(store, policy=Policy((MaxAttempts(1), Budget(calls=99))))
    await driver.finish()
    before = read_tables(path)
    with pytest.raises(OverrideRefused, match=why):
        await lift(way, store, driver, **wrong)
    assert read_tables(path) == before


def mine(loop: Loop) -> str | None:
    return "two are enough" if len(loop.attempts) >= 2 else None


async def test_a_stop_by_code_of_the_host_is_overridden_by_the_host(store, path):
    driver = session(
        store, policy=Policy((heedful.All(MaxAttempts(2), mine), MaxAttempts(3)))
    )
    await driver.finish()
    before = read_tables(path)
    with pytest.raises(
        OverrideRefused, match=r"'attempts\+mine', a rule.* user code.* Run\.override"
    ):
        await override_from_outside(store)
    assert read_tables(path) == before
    assert isinstance(await driver.override("attempts", "ada"), Done | Again)


# -- while a process drives it


HANGING = """
import asyncio, sys
from tests.drive.support import session, reread

async def hang(task, hint):
    if hint:
        print("at work", flush=True)
        await asyncio.Event().wait()
    return "wrong"

asyncio.run(session(sys.argv[1], generate=hang).finish())
"""
RESUMED = """
import asyncio, sys
from tests.drive.support import WANTED, session, reread

print(asyncio.run(session(sys.argv[1], WANTED).finish()).best)
"""


def test_a_loop_can_be_overridden_when_its_process_is_gone_and_not_before(store, path):
    other = python(HANGING, path)
    assert other.stdout is not None
    assert other.stdout.readline() == "at work\n"
    before = read_tables(path)
    with pytest.raises(LeaseLost, match="driven by another process"):
        asyncio.run(override_from_outside(store))
    assert read_tables(path) == before
    other.kill()
    other.communicate()
    assert isinstance(asyncio.run(override_from_outside(store)), Again)
    (override,) = asyncio.run(reread(store)).loop.overrides
    assert override.used == 0
    assert ended(python(RESUMED, path)) == "2\n"  # though this process lives
