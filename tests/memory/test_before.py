"""What is known before an action, and about an error in whatever form it comes."""

import pytest

from heedful import Episode, Event, Memory
from heedful.errors import InvalidInput
from heedful.lessons.lesson import Scope
from heedful.memory.reflect import reflect

pytestmark = pytest.mark.both
BAD = Event("tool_response", "error: unrecognized subcommand 'bun'")
OK = Event("tool_response", "3 passed")


def call(command):
    return Event("tool_call", tool="Bash", arguments={"command": command})


async def run(memory, *events, task="t"):
    return await reflect(Episode(events, task=task), memory=memory)


async def release(memory, how="release"):
    if waiting := [one.id for one in await memory.quarantine.waiting()]:
        await getattr(memory.quarantine, how)(waiting, by="ada")


async def test_a_failure_is_told_with_what_mended_it_once_it_is_released(memory):
    made = await run(
        memory, call("git pull"), OK, call("rtk bun test"), BAD, call("bun test"), OK
    )
    held = await memory.before("Bash", "rtk bun test")
    assert held.failures == ()
    assert held.release == made.release
    await release(memory)
    (known,) = (await memory.before("shell", {"cmd": "rtk bun test"})).failures
    assert known.what == made.text
    assert known.fix == made.strategy.text
    assert known.runs == 1
    assert known.whole is True
    assert known.state == "after Bash: git pull"
    assert not await memory.before("Bash", "bun test")
    assert not await Memory(memory.store, Scope("other")).before("Bash", "rtk bun test")


async def test_nothing_is_told_after_the_action_has_worked(memory):
    await run(
        memory, call("make lint"), BAD, call("make fix"), OK, call("make lint"), OK
    )
    await release(memory)
    assert not await memory.before("Bash", "make lint")
    await run(memory, call("rtk bun test"), BAD)
    await release(memory)
    assert await memory.before("Bash", "rtk bun test")
    await run(memory, call("rtk bun test"), OK, call("other"), BAD)
    assert not await memory.before("Bash", "rtk bun test")


async def test_a_part_of_an_action_is_told_after_three_runs(memory):
    for name in "abc":
        assert not await memory.before("Bash", "rtk bun lint")
        await run(memory, call(f"rtk bun {name}"), BAD)
        await release(memory)
    (known,) = (await memory.before("Bash", "rtk bun lint")).failures
    assert known.runs == 3
    assert known.whole is False


@pytest.mark.parametrize("how", ["revoke", "clear", "reject"])
async def test_nothing_is_told_of_what_is_gone(memory, how):
    made = await run(memory, call("rtk bun test"), BAD)
    if how == "reject":
        await release(memory, how)
    elif how == "clear":
        await memory.clear()
    else:
        await release(memory)
        await memory.quarantine.revoke(made.lesson.source, by="ada")
    found = await memory.before("Bash", "rtk bun test")
    assert found.failures == ()
    assert found.waiting == ()


async def test_bad_arguments_are_refused(memory):
    for tool, arguments, field in [(7, "ls", "tool"), ("Bash", 7, "arguments")]:
        with pytest.raises(InvalidInput) as caught:
            await memory.before(tool, arguments)
        assert caught.value.field == field


TRACE = "Traceback (most recent call last):\n  File x\n    f()\nKeyError: 'a'\n"
BUILD = "npm ERR! missing script: build"


@pytest.mark.parametrize(
    ("asked", "lessons"),
    [
        (("KeyError", "'a'"), ["get"]),
        (("KeyError: 'a'",), ["get"]),
        (("Bash", "KeyError: 'a'"), ["get"]),
        ((TRACE,), ["get"]),
        (("'a'",), []),
        (("NameError", "'a'"), []),
        (("npm", BUILD), ["bundle"]),
        (("Bash", BUILD), ["bundle"]),
        ((BUILD,), ["bundle"]),
        ((f"> build\nnpm ERR! code 1\n{BUILD}\n{TRACE}",), ["get", "bundle"]),
        (("ModuleNotFoundError: No module named 'x'",), ["pip"]),
        (("ImportError", "No module named 'x'"), []),
        (("error: unrecognized subcommand 'bun'",), ["", ""]),
        (("all is well",), []),
    ],
)
async def test_an_error_is_found_under_its_type_its_tool_or_none(
    memory, asked, lessons
):
    await memory.remember("KeyError", "'a'", lesson="get")
    await memory.remember("npm", BUILD, lesson="bundle")
    text = TRACE.replace("KeyError: 'a'", "ModuleNotFoundError: No module named 'x'")
    await memory.remember("ModuleNotFoundError", text, lesson="pip")
    await run(memory, call("rtk bun test"), BAD, call("bun test"), OK)
    found = await memory.seen(*asked)
    assert [one["text"] for one in found.lessons] == lessons
    assert found.count == len({*lessons})
    assert bool(found.release) == ("" in lessons)
