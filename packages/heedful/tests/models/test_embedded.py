"""The embedded model, really running: the smoke model in its own process."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from heedful import errors
from heedful.models.contract import Message, Model
from heedful.models.embedded import EmbeddedModel
from tests.tables import cases

GREETING = [Message("user", "Say hello.")]
STORY = [Message("user", "Write a very long story about a river.")]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "grown": {"type": "boolean"}},
    "required": ["name", "grown"],
    "additionalProperties": False,
}


@asynccontextmanager
async def fresh(**settings: Any) -> AsyncIterator[EmbeddedModel]:
    """A fresh model, closed at the end."""
    model = EmbeddedModel("embedded:smollm2", **settings)
    try:
        yield model
    finally:
        await model.close()


async def started(model: EmbeddedModel) -> int:
    """The process, once the model has answered something."""
    await model.complete(GREETING, max_tokens=1)
    assert model.pid is not None
    return model.pid


async def gone(pid: int) -> None:
    """Return when the process is no more."""
    with suppress(ProcessLookupError):
        while True:
            os.kill(pid, 0)
            await asyncio.sleep(0.02)


pytestmark = pytest.mark.usefixtures("smollm2")


async def test_the_same_call_gives_the_same_answer_is_counted_and_listens_nowhere():
    calls = [(0.0, 1), (1.5, 1), (1.5, 1), (1.5, 2), (0.0, 1)]
    async with fresh() as model:
        assert isinstance(model, Model)
        assert model.name == "embedded:smollm2"
        assert model.pid is None  # nothing is started before the first call
        answers = [
            await model.complete(GREETING, max_tokens=8, temperature=t, seed=s)
            for t, s in calls
        ]
        if sys.platform == "linux":  # elsewhere there is no such place to look
            assert listening(await started(model)) == (set(), set())
    cold, warm, same, other, again = (answer.text for answer in answers)
    # whatever came before
    assert warm == same
    assert cold == again
    assert len({cold, warm, other}) == 3
    usage = answers[0].usage
    assert answers[0].finish == "length"
    assert usage.calls == 1
    assert usage.completion_tokens == 8
    assert usage.prompt_tokens > 10
    assert usage.seconds > 0


async def test_a_schema_is_kept_or_refused():
    async with fresh() as model:
        with pytest.raises(errors.InvalidInput, match="schema"):
            await model.complete(GREETING, schema={"enum": {"a", "b"}})
        with pytest.raises(
            errors.ModelError, match=r"refused the request: .*unrecognized type"
        ):
            await model.complete(GREETING, schema={"type": "strange"})
        cut = await model.complete(STORY, schema=PERSON, max_tokens=3)
        assert cut.finish == "length"
        assert cut.text.startswith("{")
        answer = await model.complete(STORY, schema=PERSON, max_tokens=200)
    person = json.loads(answer.text)
    assert set(person) == {"name", "grown"}
    assert isinstance(person["grown"], bool)
    assert answer.finish == "stop"


async def test_a_prompt_that_does_not_fit_says_both_numbers():
    """The model was trained on 2048 tokens."""
    async with fresh(context=8192) as model:
        with pytest.raises(
            errors.PromptTooLong, match=r"has 3\d\d\d tokens .* holds 2048"
        ):
            await model.complete([Message("user", "x " * 3000)])
        odd = [
            Message("user", "a \ud800 b")
        ]  # text that no tokenizer takes is replaced
        assert (await model.complete(odd, max_tokens=2)).text


@cases(
    ("name", "settings", "error", "words"),
    {
        "no threads": ("smollm2", {"threads": 0}, errors.InvalidInput, "threads"),
        "no time": ("smollm2", {"timeout": 0}, errors.InvalidInput, "timeout"),
        "no such file": (
            "/nowhere/model.gguf",
            {},
            errors.InvalidInput,
            r"an existing \.gguf file",
        ),
        "a model of somebody else": (
            "gpt-5",
            {},
            errors.UnknownName,
            "embedded:smollm2",
        ),
    },
)
def test_a_name_or_a_setting_that_cannot_be(name, settings, error, words):
    with pytest.raises(error, match=words):
        EmbeddedModel(f"embedded:{name}", **settings)


async def test_a_call_can_be_cancelled_at_work_and_in_line_and_the_next_one_works():
    prompt = [Message("user", "many words in a row " * 300)]  # it is still being read
    calls = ((GREETING, 20), (STORY, 2000), (GREETING, 20))
    async with fresh() as model:
        await started(model)
        task = asyncio.create_task(
            model.complete(prompt, max_tokens=2000, temperature=1.0)
        )
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await model.complete(GREETING, max_tokens=2)).text
        tasks = [
            asyncio.create_task(model.complete(messages, max_tokens=n))
            for messages, n in calls
        ]
        await asyncio.sleep(0)
        tasks[1].cancel()
        _, cancelled, _ = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(cancelled, asyncio.CancelledError)
    assert tasks[0].result().text == tasks[2].result().text


async def test_a_child_that_dies_is_an_error_and_the_next_call_starts_another():
    async with fresh() as model:
        before = await started(model)
        os.kill(before, signal.SIGINT)  # a Ctrl-C is not for the child
        assert await started(model) == before
        task = asyncio.create_task(
            model.complete(STORY, max_tokens=2000, temperature=1.0)
        )
        await asyncio.sleep(0.1)
        os.kill(before, signal.SIGKILL)
        with pytest.raises(
            errors.ModelUnavailable, match="killed by signal 9; the end"
        ):
            await task
        after = await started(model)
    assert before != after


def test_no_orphan_is_left_when_the_parent_is_killed_while_it_answers():
    script = (
        "import asyncio\n"
        "from heedful.models.embedded import EmbeddedModel\n"
        "from heedful.models.contract import Message\n"
        "model = EmbeddedModel('embedded:smollm2')\n"
        "async def main():\n"
        "    await model.complete([Message('user', 'Hi')], max_tokens=1)\n"
        "    print(model.pid, flush=True)\n"
        "    story = [Message('user', 'Write a very long story.')]\n"
        "    await model.complete(story, max_tokens=2000, temperature=1.0)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.2)
        parent.kill()
    asyncio.run(asyncio.wait_for(gone(pid), 5))


def test_closing_ends_what_is_under_way_and_what_waits():
    async def ask() -> list[BaseException]:
        model = EmbeddedModel("embedded:smollm2")
        pid = await started(model)
        calls = [
            model.complete(STORY, max_tokens=2000, temperature=1.0) for _ in range(2)
        ]
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


async def test_a_file_that_is_no_model_ends_the_process(tmp_path):
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"no model " * 1000)
    model = EmbeddedModel(f"embedded:{path}")
    with pytest.raises(errors.ModelUnavailable, match=r"the process of model .* ended"):
        await model.complete(GREETING)
    await model.close()


async def test_without_xllamacpp_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    async with fresh() as model:
        with pytest.raises(
            errors.ModelUnavailable, match=r"install './packages/heedful\[embedded\]"
        ):
            await model.complete(GREETING)


def listening(pid: int) -> tuple[set[str], set[str]]:
    """The sockets that a process holds: listening on TCP, and in the file system."""
    proc = Path(f"/proc/{pid}")
    descriptors = {os.readlink(fd) for fd in (proc / "fd").iterdir()}
    tcp = [
        line.split() for line in (proc / "net/tcp").read_text("ascii").splitlines()[1:]
    ]
    unix = [
        line.split() for line in (proc / "net/unix").read_text("ascii").splitlines()[1:]
    ]
    ports = {f"socket:[{line[9]}]" for line in tcp if line[3] == "0A"}
    paths = {
        line[7]
        for line in unix
        if len(line) > 7 and f"socket:[{line[6]}]" in descriptors
    }
    return ports & descriptors, {path for path in paths if Path(path).exists()}
