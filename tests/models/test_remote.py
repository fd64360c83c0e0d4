"""Models on the network, against a server on this machine that speaks their shapes."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest

from heedful.errors import (
    InvalidInput,
    MalformedAnswer,
    ModelError,
    ModelTimeout,
    ModelUnavailable,
    PromptTooLong,
)
from heedful.models import open_model
from heedful.models.contract import Message, Model
from heedful.models.remote import Remote

CHAT = [
    Message("system", "Be brief."),
    Message("user", "One?"),
    Message("assistant", "1"),
    Message("user", "Two?"),
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def completion(text: str | None, finish: str = "stop") -> dict[str, Any]:
    choice = {
        "index": 0,
        "finish_reason": finish,
        "message": {"role": "assistant", "content": text},
    }
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    facts = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    return facts | {"choices": [choice], "usage": usage}


def failure(message: str, **facts: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error"} | facts}


@pytest.fixture
def endpoint(server) -> Remote:
    return Remote(f"{server.url}/v1#tiny", retries=0, timeout=30.0)


def ask(model: Model, **options: Any) -> Any:
    return asyncio.run(model.complete(CHAT, **options))


def test_it_answers_and_counts(server, endpoint):
    server.says(completion("2"))
    answer = ask(endpoint, max_tokens=9, temperature=0.5, seed=3)
    assert (answer.text, answer.finish) == ("2", "stop")
    usage = answer.usage
    assert (usage.calls, usage.prompt_tokens, usage.completion_tokens) == (1, 7, 2)
    assert usage.seconds > 0

    (asked,) = server.asked
    assert asked["path"] == "/v1/chat/completions"
    assert asked["body"] == {
        "model": "tiny",
        "messages": [{"role": each.role, "content": each.content} for each in CHAT],
        "max_tokens": 9,
        "temperature": 0.5,
        "seed": 3,
        "stream": False,
    }


def test_it_is_a_model(server, endpoint):
    assert isinstance(endpoint, Model)
    assert endpoint.name == f"{server.url}/v1#tiny"
    asyncio.run(endpoint.close())


def test_a_schema_is_passed_as_it_is_and_the_answer_is_json(server, endpoint):
    server.says(completion('{"a": 1}'))
    assert ask(endpoint, schema=SCHEMA).text == '{"a": 1}'
    wanted = server.asked[0]["body"]["response_format"]
    assert wanted["type"] == "json_schema"
    assert wanted["json_schema"]["schema"] == SCHEMA


def test_an_answer_that_is_no_json_where_json_was_asked_for(server, endpoint):
    server.says(completion("Sure! Here is it"))
    with pytest.raises(MalformedAnswer, match="its answer is not JSON") as error:
        ask(endpoint, schema=SCHEMA)
    assert error.value.answer == "Sure! Here is it"


def test_an_answer_that_was_cut(server, endpoint):
    server.says(completion("2, 3,", "length"))
    assert ask(endpoint).finish == "length"


@pytest.mark.parametrize("text", ["", None])
def test_no_text_is_malformed(server, endpoint, text):
    server.says(completion(text))
    with pytest.raises(MalformedAnswer, match=r"answered no text \(stop\)"):
        ask(endpoint)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>a proxy's page</html>",
        b"",
        b"[1, 2]",
        b'{"what": 3}',
        b'"text"',
        b"\xff\xfe",
        json.dumps(completion("x") | {"choices": []}).encode(),
    ],
)
def test_garbage_is_malformed(server, endpoint, body):
    server.says(body)
    with pytest.raises(MalformedAnswer, match="answered something else than a completion"):
        ask(endpoint)


def test_a_text_that_is_too_large_is_malformed(server, endpoint):
    server.says(completion("x" * 1_000_001))
    with pytest.raises(MalformedAnswer, match="1000001 bytes, at most 1000000 are taken"):
        ask(endpoint)


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (401, failure("bad key"), ModelUnavailable, "no key, or a wrong one; pass api_key: .*bad"),
        (403, failure("not yours"), ModelUnavailable, "no key, or a wrong one"),
        (404, failure("no such model"), ModelUnavailable, "check its name and the address"),
        (429, failure("slow down"), ModelUnavailable, "try later"),
        (500, failure("it broke"), ModelError, "failed: .*it broke"),
        (503, failure("busy"), ModelUnavailable, "try later"),
        (400, failure("bad seed"), ModelError, "failed: .*bad seed"),
        (
            400,
            failure("maximum context length is 10 tokens", code="context_length_exceeded"),
            PromptTooLong,
            "maximum context length is 10",
        ),
        (500, b"<html>", ModelError, "failed: .*500"),
    ],
)
def test_a_refusal_has_its_type(server, endpoint, status, body, error, words):
    server.says(body, status=status)
    with pytest.raises(error, match=words) as raised:
        ask(endpoint)
    assert type(raised.value) is error
    assert len(str(raised.value)) < 1000
    assert len(server.asked) == 1


def test_a_key_that_was_given_and_refused(server):
    server.says(failure("no"), status=401)
    model = Remote(f"{server.url}#m", api_key="mine", retries=0)
    with pytest.raises(ModelUnavailable, match="the key was refused; pass api_key"):
        ask(model)
    assert server.asked[0]["headers"]["authorization"] == "Bearer mine"


def test_a_key_for_openai_is_not_sent_elsewhere(server, endpoint, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    server.says(completion("2"))
    ask(endpoint)
    assert "secret" not in str(server.asked)


def test_a_busy_server_is_asked_again(server):
    def reply(asked: Any) -> Any:
        server.says(completion("2"))
        return busy

    server.says(failure("busy"), status=503, headers={"retry-after-ms": "1"})
    busy = server.reply(None)
    server.reply = reply
    assert ask(Remote(f"{server.url}#m", retries=1)).text == "2"
    assert len(server.asked) == 2


def test_a_server_that_never_answers(server):
    server.says(never=True)
    with pytest.raises(ModelTimeout, match=r"no answer within 0\.3 s"):
        ask(Remote(f"{server.url}#m", timeout=0.3))


def test_a_connection_that_breaks(server, endpoint):
    server.says(completion("2"), cut=20)
    with pytest.raises(ModelUnavailable, match="cannot be reached"):
        ask(endpoint)


def test_nobody_there():
    with pytest.raises(ModelUnavailable, match="check the address and that the server runs"):
        ask(Remote("http://127.0.0.1:9/v1#m", retries=0))


def test_one_model_on_several_event_loops_and_many_at_once(server, endpoint):
    server.says(completion("2"))

    async def many() -> list[str]:
        answers = await asyncio.gather(*(endpoint.complete(CHAT) for _ in range(8)))
        return [answer.text for answer in answers]

    assert asyncio.run(many()) == asyncio.run(many()) == ["2"] * 8


def test_cancelling_returns(server, endpoint):
    server.says(never=True)

    async def cancel() -> None:
        task = asyncio.create_task(endpoint.complete(CHAT))
        while not server.asked:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())


def test_openai_has_its_own_names_for_things(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    server.says(completion('{"a": 1}'))
    assert ask(open_model("openai:gpt-4.1-mini"), schema=SCHEMA, max_tokens=5).text == '{"a": 1}'
    body = server.asked[0]["body"]
    assert (body["model"], body["max_completion_tokens"]) == ("gpt-4.1-mini", 5)
    assert body["response_format"]["json_schema"]["schema"]["required"] == ["a"]


def test_what_a_known_model_costs_is_counted(server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    server.says(completion("2") | {"model": "gpt-4.1-mini"})
    known = ask(open_model("openai:gpt-4.1-mini", api_key="mine")).usage.cost
    assert 0 < known < 0.001  # 7 and 2 tokens; prices change
    server.says(completion("2"))
    assert ask(open_model("openai:m", api_key="mine")).usage.cost == 0


def test_a_model_that_takes_no_temperature_is_asked_without(server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    server.says(completion("2"))
    assert ask(open_model("openai:o3", api_key="mine")).text == "2"
    assert "temperature" not in server.asked[0]["body"]
    assert server.asked[0]["headers"]["authorization"] == "Bearer mine"


def test_anthropic(server, monkeypatch):
    # Each provider needs its own library alone.
    monkeypatch.setitem(sys.modules, "pydantic_ai.models.openai", None)
    monkeypatch.setitem(sys.modules, "pydantic_ai.providers.openai_compatible", None)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    text = {"type": "text", "text": '{"a": 1}'}
    message = {"id": "1", "type": "message", "role": "assistant", "model": "m", "content": [text]}
    ended = {"stop_reason": "end_turn", "usage": {"input_tokens": 7, "output_tokens": 2}}
    server.says(message | ended)
    answer = ask(open_model("anthropic:some-model", api_key="mine"), schema=SCHEMA, max_tokens=5)
    assert (answer.text, answer.usage.prompt_tokens) == ('{"a": 1}', 7)
    (asked,) = server.asked
    assert asked["headers"]["authorization"] == "Bearer mine"
    assert (asked["body"]["max_tokens"], asked["body"]["model"]) == (5, "some-model")
    # A model that is not known to take a schema is told it in words.
    assert '"required"' in str(asked["body"]["system"])


def test_google(server, monkeypatch):
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.url)
    content = {"role": "model", "parts": [{"text": '{"a": 1}'}]}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 7, "candidatesTokenCount": 2, "totalTokenCount": 9}
    server.says({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"})
    model = open_model("google:gemini-2.5-flash", api_key="mine")
    answer = ask(model, schema=SCHEMA, max_tokens=5)
    assert (answer.text, answer.usage.completion_tokens) == ('{"a": 1}', 2)
    assert server.asked[0]["headers"]["x-goog-api-key"] == "mine"
    assert server.asked[0]["body"]["generationConfig"]["maxOutputTokens"] == 5


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("anthropic:some-model", "ANTHROPIC_API_KEY"),
        ("google:gemini-2.5-flash", "GOOGLE_API_KEY"),
    ],
)
def test_a_missing_key_is_named(name, variable, monkeypatch):
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    with pytest.raises(ModelUnavailable, match=f"no key, or a wrong one; set {variable}"):
        ask(open_model(name))


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("openai:gpt-5", "pydantic_ai.direct", "models"),
        ("http://127.0.0.1:9/v1#m", "pydantic_ai.models.openai", "models"),
        ("anthropic:some-model", "pydantic_ai.providers.anthropic", "anthropic"),
        ("google:gemini-2.5-flash", "pydantic_ai.providers.google", "google"),
    ],
)
def test_a_missing_library_is_named(name, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModelUnavailable, match=rf"pip install 'heedful\[{extra}\]'"):
        ask(open_model(name, api_key="mine"))


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "openai:"},
        {"name": "m"},
        {"name": "http://127.0.0.1"},
        {"name": "openai:m", "timeout": -1},
        {"name": "openai:m", "retries": -1},
    ],
)
def test_a_setting_that_cannot_be(settings):
    with pytest.raises(InvalidInput):
        Remote(**settings)


@pytest.mark.parametrize("url", ["http://[::1", "http://", "http://127.0.0.1:99999/v1"])
def test_an_address_that_cannot_be(url):
    with pytest.raises(InvalidInput, match="url is "):
        open_model(f"{url}#m")
