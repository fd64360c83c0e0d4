"""Any Python callable as a model."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from heedful.errors import (
    InvalidInput,
    MalformedAnswer,
    ModelError,
    ModelTimeout,
    ModelUnavailable,
    UnknownName,
)
from heedful.loop.record import Usage
from heedful.models.contract import Answer, Message, Model
from heedful.models.function import Function

CHAT = [Message("user", "hello")]


def ask(call: Any, **options: Any) -> Answer:
    return asyncio.run(Function(call).complete(CHAT, **options))


def shout(messages: Sequence[Message]) -> str:
    return messages[-1].content.upper()


async def whisper(messages: Sequence[Message]) -> str:
    return messages[-1].content.lower()


class Echoing:
    async def __call__(self, messages: Sequence[Message]) -> str:
        return "from an object"


def test_a_function_answers():
    answer = ask(shout)
    assert answer.text == "HELLO"
    assert answer.usage.calls == 1
    assert answer.usage.seconds > 0


def test_it_is_a_model_with_a_name():
    model = Function(shout)
    assert isinstance(model, Model)
    assert model.name.endswith("test_function:shout")
    asyncio.run(model.close())


def test_a_coroutine_function_and_an_object_answer():
    assert ask(whisper).text == "hello"
    assert ask(Echoing()).text == "from an object"


def test_a_synchronous_one_does_not_hold_up_the_loop():
    began, go_on = threading.Event(), threading.Event()

    def slow(messages: Any) -> str:
        began.set()
        go_on.wait()
        return "late"

    async def both() -> str:
        task = asyncio.create_task(Function(slow).complete(CHAT))
        while not began.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        go_on.set()
        return (await task).text

    assert asyncio.run(both()) == "late"


def test_it_is_given_what_its_signature_has():
    seen: list[dict[str, Any]] = []

    def some(messages: Any, temperature: float, *, seed: int) -> str:
        seen.append({"temperature": temperature, "seed": seed})
        return "{}"

    def every(messages: Any, **options: Any) -> str:
        seen.append(options)
        return "{}"

    for call in (some, every):
        ask(call, schema={}, max_tokens=5, temperature=0.5, seed=3)
    assert seen[0] == {"temperature": 0.5, "seed": 3}
    assert seen[1] == {"schema": {}, "max_tokens": 5, "temperature": 0.5, "seed": 3}


def test_an_answer_keeps_its_own_usage_and_gets_the_time():
    answer = ask(lambda messages: Answer("x", Usage(calls=2, prompt_tokens=5), "length"))
    assert (answer.usage.calls, answer.usage.prompt_tokens, answer.finish) == (2, 5, "length")
    assert answer.usage.seconds > 0
    assert ask(lambda messages: Answer("x", Usage(calls=1, seconds=9.0))).usage.seconds == 9.0


@pytest.mark.parametrize("value", [None, 3, {"text": "x"}, b"x"])
def test_anything_else_is_malformed(value):
    with pytest.raises(MalformedAnswer, match=f"returned {type(value).__name__}, not str"):
        ask(lambda messages: value)


def test_text_that_is_no_json_is_malformed_where_json_was_asked_for():
    with pytest.raises(MalformedAnswer, match="its answer is not JSON"):
        ask(shout, schema={"type": "object"})
    assert ask(lambda messages: "[1]", schema={"type": "array"}).text == "[1]"


def test_its_exceptions_are_model_errors_with_their_cause():
    def broken(messages: Any) -> str:
        raise KeyError("unit")

    async def broken_too(messages: Any) -> str:
        raise KeyError("unit")

    for call in (broken, broken_too):
        with pytest.raises(ModelError, match="raised KeyError: 'unit'") as error:
            ask(call)
        assert isinstance(error.value.__cause__, KeyError)


def test_one_that_runs_out_of_answers_is_an_error_and_no_hang():
    answers = iter(["only"])
    model = Function(lambda messages: next(answers), timeout=5)
    assert asyncio.run(model.complete(CHAT)).text == "only"
    with pytest.raises(ModelError, match="raised StopIteration") as error:
        asyncio.run(model.complete(CHAT))
    assert type(error.value) is ModelError


def test_its_own_model_errors_pass():
    def away(messages: Any) -> str:
        raise ModelUnavailable("not today")

    with pytest.raises(ModelUnavailable, match="not today"):
        ask(away)


def test_a_time_limit_is_kept():
    def slow(messages: Any) -> str:
        time.sleep(1)
        return "late"

    async def slow_too(messages: Any) -> str:
        await asyncio.sleep(60)
        return "late"

    for call in (slow, slow_too):
        with pytest.raises(ModelTimeout, match=r"within 0\.05 s"):
            asyncio.run(Function(call, timeout=0.05).complete(CHAT))


def test_a_time_out_of_its_own_is_not_ours():
    async def impatient(messages: Any) -> str:
        raise TimeoutError("mine")

    with pytest.raises(ModelError, match="raised TimeoutError: mine") as error:
        asyncio.run(Function(impatient, timeout=60).complete(CHAT))
    assert not isinstance(error.value, ModelTimeout)


def test_an_empty_chat_cannot_be():
    with pytest.raises(InvalidInput):
        asyncio.run(Function(shout).complete([]))


def test_a_schema_that_is_no_plain_data_cannot_be():
    with pytest.raises(InvalidInput, match=r"schema is .* it must be plain data"):
        ask(shout, schema={"enum": {"a", "b"}})


@pytest.fixture
def my_models(tmp_path, monkeypatch):
    source = (
        "def first(messages): return 'first'\n"
        "class Group:\n"
        "    second = staticmethod(lambda messages: 'second')\n"
        "number = 3\n"
    )
    (tmp_path / "my_models.py").write_text(source)
    (tmp_path / "my_broken.py").write_text("1 / 0\n")
    (tmp_path / "my_needy.py").write_text("import my\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("my_models")
def test_a_name_of_a_function():
    assert ask("my_models:first").text == "first"
    assert ask("my_models:Group.second").text == "second"
    assert Function("my_models:first").name == "my_models:first"


@pytest.mark.usefixtures("my_models")
@pytest.mark.parametrize("name", ["my_models:third", "my_models:number", "my_models:Group.x.y"])
def test_a_wrong_name_lists_what_there_is(name):
    with pytest.raises(UnknownName, match="there are: my_models:first, my_models:Group"):
        Function(name)


def test_a_module_that_is_not_there():
    with pytest.raises(UnknownName, match="no module 'nowhere_at_all'"):
        Function("nowhere_at_all.sub:f")


@pytest.mark.usefixtures("my_models")
@pytest.mark.parametrize(
    ("module", "words"),
    [("my_broken", "raised ZeroDivisionError"), ("my_needy", "raised ModuleNotFoundError")],
)
def test_a_module_that_breaks_on_import(module, words):
    with pytest.raises(ModelError, match=words):
        Function(f"{module}:f")


def test_a_builtin_without_a_signature():
    assert Function(dict.fromkeys)._takes == frozenset()
