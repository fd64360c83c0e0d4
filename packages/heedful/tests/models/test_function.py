"""Any Python callable as a model."""

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from heedful import errors
from heedful.models.contract import Answer, Message
from heedful.models.function import Function
from tests.tables import cases

CHAT = [Message("user", "hello")]


async def ask(call: Any, **options: Any) -> Answer:
    model = Function(call, timeout=options.pop("timeout", 60))
    return await model.complete(options.pop("chat", CHAT), **options)


def shout(messages: Sequence[Message]) -> str:
    return messages[-1].content.upper()


async def test_a_plain_function_does_not_hold_up_the_event_loop():
    began = threading.Event()
    go_on = threading.Event()

    def slow(messages: Any) -> str:
        began.set()
        go_on.wait()
        return "late"

    task = asyncio.create_task(ask(slow))
    await asyncio.to_thread(began.wait)
    go_on.set()
    assert (await task).text == "late"


async def test_a_function_gets_the_options_of_its_signature():
    seen: list[dict[str, Any]] = []

    def some(messages: Any, temperature: float, *, seed: int) -> str:
        seen.append({"temperature": temperature, "seed": seed})
        return "{}"

    def every(messages: Any, **options: Any) -> str:
        seen.append(options)
        return "{}"

    options: dict[str, Any] = {
        "schema": {},
        "max_tokens": 5,
        "temperature": 0.5,
        "seed": 3,
    }
    for call in (some, every):
        await ask(call, **options)
    assert seen == [{"temperature": 0.5, "seed": 3}, options]


def raising(error: Exception) -> Any:
    def call(messages: Any) -> str:
        raise error

    return call


def slow(messages: Any) -> str:
    time.sleep(0.3)
    return "late"


async def slow_too(messages: Any) -> str:
    await asyncio.Event().wait()
    return "late"


@cases(
    ("call", "options", "error", "words"),
    {
        "no answer": (
            lambda messages: None,
            {},
            errors.MalformedAnswer,
            "returned NoneType, not str",
        ),
        "an error of its own": (
            raising(KeyError("unit")),
            {},
            errors.ModelError,
            "raised KeyError: 'unit'",
        ),
        "a slow coroutine": (
            slow_too,
            {"timeout": 0.05},
            errors.ModelTimeout,
            r"within 0\.05 s",
        ),
        "a schema that is no plain data": (
            shout,
            {"schema": {"enum": {"a"}}},
            errors.InvalidInput,
            "schema is .* plain data",
        ),
    },
)
async def test_a_failure_has_its_type(call, options, error, words):
    with pytest.raises(error, match=words) as raised:
        await ask(call, **options)
    assert type(raised.value) is error
    if "raised" in words:
        assert raised.value.__cause__ is not None


# -- functions by their names


@pytest.fixture
def my_models(tmp_path, monkeypatch):
    source = (
        "def first(messages): return 'first'\n"
        "class Group:\n"
        "    second = staticmethod(lambda messages: 'second')\n"
        "number = 3\n"
    )
    for name, text in (
        ("models", source),
        ("broken", "1 / 0\n"),
        ("needy", "import my\n"),
    ):
        (tmp_path / f"my_{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("my_models")
def test_a_name_without_a_function_is_refused():
    with pytest.raises(errors.UsageError, match="no attribute 'third'"):
        Function("my_models:third")
