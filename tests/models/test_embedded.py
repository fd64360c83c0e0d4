"""The embedded model, really running: the smoke model in its own process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from heedful import errors
from heedful.models.contract import Message, Model
from heedful.models.embedded import Embedded

GREETING = [Message("user", "Say hello.")]
STORY = [Message("user", "Write a very long story about a river.")]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "grown": {"type": "boolean"}},
    "required": ["name", "grown"],
    "additionalProperties": False,
}


@asynccontextmanager
async def fresh(**settings: Any) -> AsyncIterator[Embedded]:
    """A fresh model, closed at the end."""
    model = Embedded("embedded:smollm2", **settings)
    try:
        yield model
    finally:
        await model.close()


async def started(model: Embedded) -> int:
    """The process, once the model has answered something."""
    await model.complete(GREETING, max_tokens=1)
    assert model.pid is not None
    return model.pid


async def gone(pid: int) -> None:
    """Return when the process is no more."""
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        await asyncio.sleep(0.02)


pytestmark = pytest.mark.usefixtures("smollm2")


async def test_the_same_call_gives_the_same_answer_and_is_counted():
    calls = [(0.0, 1), (1.5, 1), (1.5, 1), (1.5, 2), (0.0, 1)]
    async with fresh() as model:
        assert isinstance(model, Model)
        assert model.name == "embedded:smollm2"
        assert model.pid is None  # nothing is started before the first call
        answers = [
            await model.complete(GREETING, max_tokens=8, temperature=t, seed=s) for t, s in calls
        ]
    cold, warm, same, other, again = (answer.text for answer in answers)
    assert (warm, cold) == (same, again)  # whatever came before
    assert len({cold, warm, other}) == 3
    async with fresh() as model:
        assert (await model.complete(GREETING, max_tokens=8, seed=1)).text == cold
    usage = answers[0].usage
    assert (answers[0].finish, usage.calls, usage.completion_tokens) == ("length", 1, 8)
    assert usage.prompt_tokens > 10
    assert usage.seconds > 0


async def test_a_schema_is_kept_or_refused():
    async with fresh() as model:
        with pytest.raises(errors.InvalidInput, match="schema"):
            await model.complete(GREETING, schema={"enum": {"a", "b"}})
        with pytest.raises(errors.ModelError, match=r"refused the request: .*unrecognized type"):
            await model.complete(GREETING, schema={"type": "strange"})
        with pytest.raises(errors.MalformedAnswer, match="cut off by max_tokens") as failure:
            await model.complete(STORY, schema=PERSON, max_tokens=3)
        assert failure.value.answer.startswith("{")
        answer = await model.complete(STORY, schema=PERSON, max_tokens=200)
    person = json.loads(answer.text)
    assert set(person) == {"name", "grown"}
    assert isinstance(person["grown"], bool)
    assert answer.finish == "stop"


async def test_a_prompt_that_does_not_fit_says_both_numbers():
    async with fresh(context=8192) as model:  # more than it was trained on
        with pytest.raises(errors.PromptTooLong, match=r"has 3\d\d\d tokens .* holds 2048"):
            await model.complete([Message("user", "x " * 3000)])
        odd = [Message("user", "a \ud800 b")]  # text that no tokenizer takes is replaced
        assert (await model.complete(odd, max_tokens=2)).text


@pytest.mark.parametrize("setting", [{"threads": 0}, {"context": 10}, {"timeout": 0}])
def test_a_setting_that_cannot_be(setting):
    with pytest.raises(errors.InvalidInput):
        Embedded("embedded:smollm2", **setting)


async def test_a_cancelled_call_returns_and_the_next_one_works():
    prompt = [Message("user", "many words in a row " * 300)]  # it is still being read
    async with fresh() as model:
        await started(model)
        task = asyncio.create_task(model.complete(prompt, max_tokens=2000, temperature=1.0))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await model.complete(GREETING, max_tokens=2)).text


async def test_a_call_that_waits_in_line_can_be_cancelled():
    async with fresh() as model:
        running = asyncio.create_task(model.complete(GREETING, max_tokens=20))
        waiting = asyncio.create_task(model.complete(STORY, max_tokens=2000))
        last = asyncio.create_task(model.complete(GREETING, max_tokens=20))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await running).text == (await last).text


async def test_a_time_limit_is_kept():
    async with fresh(timeout=0.2) as model:
        with pytest.raises(errors.ModelTimeout, match=r"no answer within 0\.2 s"):
            await model.complete(STORY, max_tokens=2000, temperature=1.0)


async def test_a_child_that_dies_is_an_error_and_the_next_call_starts_another():
    async with fresh() as model:
        before = await started(model)
        os.kill(before, signal.SIGINT)  # a Ctrl-C is not for the child
        assert await started(model) == before
        task = asyncio.create_task(model.complete(STORY, max_tokens=2000, temperature=1.0))
        await asyncio.sleep(0.1)
        os.kill(before, signal.SIGKILL)
        with pytest.raises(errors.ModelUnavailable, match="killed by signal 9; its last"):
            await task
        after = await started(model)
    assert before != after


def test_no_orphan_is_left_when_the_parent_is_killed_while_it_answers():
    script = (
        "import asyncio\n"
        "from heedful.models.embedded import Embedded\n"
        "from heedful.models.contract import Message\n"
        "model = Embedded('embedded:smollm2')\n"
        "async def main():\n"
        "    await model.complete([Message('user', 'Hi')], max_tokens=1)\n"
        "    print(model.pid, flush=True)\n"
        "    story = [Message('user', 'Write a very long story.')]\n"
        "    await model.complete(story, max_tokens=2000, temperature=1.0)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.2)
        parent.kill()
    asyncio.run(asyncio.wait_for(gone(pid), 5))


def test_a_fork_has_its_own_process_and_forgetting_to_close_leaves_none():
    script = (
        "import asyncio, os\n"
        "from heedful.models.embedded import Embedded\n"
        "from heedful.models.contract import Message\n"
        "model = Embedded('embedded:smollm2', timeout=30)\n"
        "def ask():\n"
        "    asyncio.run(model.complete([Message('user', 'Hi')], max_tokens=1))\n"
        "    return model.pid\n"
        "ours = ask()\n"
        "if os.fork() == 0:\n"
        "    theirs = ask()\n"
        "    asyncio.run(model.close())\n"
        "    raise SystemExit(3 if theirs == ours else 0)\n"
        "_, status = os.wait()\n"
        "print(os.waitstatus_to_exitcode(status), ours == ask(), ours)\n"
    )
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    status, same, pid = done.stdout.split()
    assert (status, same) == ("0", "True")
    asyncio.run(gone(int(pid)))


def test_several_event_loops_share_one_model(smollm2):
    model = Embedded(f"embedded:{smollm2}")  # a file of the user
    texts: list[str] = []

    def ask() -> None:
        texts.append(asyncio.run(model.complete(GREETING, max_tokens=4)).text)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ask()
    asyncio.run(model.close())
    assert len(set(texts)) == 1
    assert len(texts) == 3


def test_closing_ends_what_is_under_way_and_what_waits():
    async def ask() -> list[BaseException]:
        model = Embedded("embedded:smollm2")
        pid = await started(model)
        calls = [model.complete(STORY, max_tokens=2000, temperature=1.0) for _ in range(2)]
        tasks = [asyncio.create_task(call) for call in calls]
        await asyncio.sleep(0.1)
        await model.close()
        await model.close()
        await gone(pid)
        tasks.append(asyncio.create_task(model.complete(GREETING)))
        return await asyncio.gather(*tasks, return_exceptions=True)  # type: ignore[return-value]

    for error in asyncio.run(ask()):
        assert isinstance(error, errors.ModelUnavailable)
        assert "was closed" in str(error)


@pytest.mark.parametrize("path", ["/nowhere/model.gguf", "x" * 300 + ".gguf", "nul\0.gguf"])
def test_a_file_that_is_not_there(path):
    with pytest.raises(errors.InvalidInput, match=r"a \.gguf file that exists"):
        Embedded(f"embedded:{path}")


async def test_a_file_that_is_no_model_ends_the_process(tmp_path):
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"no model " * 1000)
    model = Embedded(f"embedded:{path}")
    with pytest.raises(errors.ModelUnavailable, match=r"the process of model .* ended"):
        await model.complete(GREETING)
    await model.close()


async def test_without_xllamacpp_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    async with fresh() as model:
        with pytest.raises(errors.ModelUnavailable, match=r"pip install 'heedful\[embedded\]'"):
            await model.complete(GREETING)


def listening(pid: int) -> tuple[set[str], set[str]]:
    """The sockets that a process holds: listening on TCP, and in the file system."""
    proc = Path(f"/proc/{pid}")
    held = {os.readlink(fd) for fd in (proc / "fd").iterdir()}
    tcp = [line.split() for line in (proc / "net/tcp").read_text("ascii").splitlines()[1:]]
    unix = [line.split() for line in (proc / "net/unix").read_text("ascii").splitlines()[1:]]
    ports = {f"socket:[{line[9]}]" for line in tcp if line[3] == "0A"}
    named = {line[7] for line in unix if len(line) > 7 and f"socket:[{line[6]}]" in held}
    return ports & held, {path for path in named if Path(path).exists()}


async def test_nobody_else_can_reach_the_native_server():
    async with fresh() as model:
        pid = await started(model)
        if sys.platform == "linux":  # elsewhere there is no such place to look
            assert listening(pid) == (set(), set())
