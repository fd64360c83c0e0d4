"""Models on the network, against a server on this machine that speaks their shapes."""

import asyncio
import sys
from typing import Any

import pytest

from heedful import errors, open_model
from heedful.models.contract import Message, Model
from heedful.models.remote import RemoteModel
from heedful.testing import conformance
from tests import model_promises
from tests.completions import completion
from tests.tables import cases

CHAT = [
    Message("system", "Be brief."),
    Message("user", "One?"),
    Message("assistant", "1"),
    Message("user", "Two?"),
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def failure(message: str, **facts: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error"} | facts}


@pytest.fixture
def endpoint(server) -> RemoteModel:
    return RemoteModel(f"{server.url}/v1#tiny", timeout=30.0)


def ask(model: Model, **options: Any) -> Any:
    return asyncio.run(model.complete(CHAT, **options))


def test_an_endpoint_answers_and_counts(server, endpoint):
    assert isinstance(endpoint, Model)
    assert endpoint.name == f"{server.url}/v1#tiny"
    server.says(completion("2", "length"))
    answer = ask(endpoint, max_tokens=9, temperature=0.5, seed=3)
    assert answer.text == "2"
    assert answer.finish == "length"
    usage = answer.usage
    assert usage.calls == 1
    assert usage.prompt_tokens == 7
    assert usage.completion_tokens == 2
    assert usage.seconds > 0
    (request,) = server.asked
    assert request["path"] == "/v1/chat/completions"
    assert request["body"] == {
        "model": "tiny",
        "messages": [
            {"role": message.role, "content": message.content} for message in CHAT
        ],
        "max_tokens": 9,
        "temperature": 0.5,
        "seed": 3,
        "stream": False,
    }
    asyncio.run(endpoint.close())


@pytest.mark.parametrize("case", model_promises.MODEL, ids=conformance.name)
async def test_an_endpoint_keeps_the_promises_of_a_model(case, server):
    server.says(completion('{"answer": "red"}'))
    await case(lambda: RemoteModel(f"{server.url}#m"))


async def test_an_endpoint_that_is_down_is_a_model_error(server):
    server.says(failure("busy"), status=503)
    with pytest.raises(errors.ModelError):
        await RemoteModel(f"{server.url}#m").complete(CHAT)


@cases(
    "body",
    {
        "no choices": completion("x") | {"choices": []},
        "a page of a proxy": b"<html>a proxy's page</html>",
    },
)
def test_garbage_is_malformed(server, endpoint, body):
    server.says(body)
    with pytest.raises(
        errors.MalformedAnswer, match="did not answer with a completion"
    ):
        ask(endpoint)


LONG = failure("maximum context length is 10 tokens", code="context_length_exceeded")


@cases(
    ("status", "body", "error", "words"),
    {
        "a wrong key": (
            401,
            failure("bad"),
            errors.ModelUnavailable,
            "a wrong one; pass api_key: .*bad",
        ),
        "no such model": (
            404,
            failure("no such model"),
            errors.ModelUnavailable,
            "check its name and the address",
        ),
        "a prompt too long": (
            400,
            LONG,
            errors.PromptTooLong,
            "maximum context length is 10",
        ),
    },
)
def test_a_refusal_has_its_type(server, endpoint, status, body, error, words):
    server.says(body, status=status)
    with pytest.raises(error, match=words) as raised:
        ask(endpoint)
    assert type(raised.value) is error
    assert len(str(raised.value)) < 1000
    assert len(server.asked) == 1


def test_a_key_goes_to_its_own_endpoint_alone(server, endpoint, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    server.says(failure("no"), status=401)
    with pytest.raises(
        errors.ModelUnavailable, match="the key was refused; pass api_key"
    ):
        ask(RemoteModel(f"{server.url}#m", api_key="mine"))
    assert server.asked[0]["headers"]["authorization"] == "Bearer mine"
    server.says(completion("2"))
    ask(endpoint)
    assert "secret" not in str(server.asked)


def test_a_busy_server_is_asked_again(server):
    def reply(request: Any) -> Any:
        server.says(completion("2"))
        return busy

    server.says(failure("busy"), status=503, headers={"retry-after-ms": "1"})
    busy = server.reply(None)
    server.reply = reply
    model = RemoteModel(f"{server.url}#m")
    model.retries = 1
    assert ask(model).text == "2"
    assert len(server.asked) == 2


# -- providers


def test_openai_has_its_own_names_for_things(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    server.says(completion('{"a": 1}') | {"model": "gpt-4.1-mini"})
    answer = ask(open_model("openai:gpt-4.1-mini"), schema=SCHEMA, max_tokens=5)
    assert answer.text == '{"a": 1}'
    assert 0 < answer.usage.cost < 0.001  # 7 and 2 tokens; prices change
    body = server.asked[0]["body"]
    assert body["model"] == "gpt-4.1-mini"
    assert body["max_completion_tokens"] == 5
    assert body["response_format"]["json_schema"]["schema"]["required"] == ["a"]
    server.says(completion("2"))  # a model that takes no temperature, of unknown price
    assert ask(open_model("openai:o3", api_key="mine")).usage.cost == 0
    assert "temperature" not in server.asked[1]["body"]
    assert server.asked[1]["headers"]["authorization"] == "Bearer mine"


def test_anthropic(server, monkeypatch):
    # Each provider needs its own library alone.
    monkeypatch.setitem(sys.modules, "pydantic_ai.models.openai", None)
    monkeypatch.setitem(sys.modules, "pydantic_ai.providers.openai_compatible", None)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    text = {"type": "text", "text": '{"a": 1}'}
    message = {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [text],
    }
    ended = {
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 7, "output_tokens": 2},
    }
    server.says(message | ended)
    answer = ask(
        open_model("anthropic:some-model", api_key="mine"), schema=SCHEMA, max_tokens=5
    )
    assert answer.text == '{"a": 1}'
    assert answer.usage.prompt_tokens == 7
    (request,) = server.asked
    assert request["headers"]["authorization"] == "Bearer mine"
    assert request["body"]["max_tokens"] == 5
    assert request["body"]["model"] == "some-model"
    # A model that is not known to take a schema reads it in words.
    assert '"required"' in str(request["body"]["system"])


def test_google(server, monkeypatch):
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.url)
    content = {"role": "model", "parts": [{"text": '{"a": 1}'}]}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 7, "candidatesTokenCount": 2, "totalTokenCount": 9}
    server.says(
        {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}
    )
    model = open_model("google:gemini-2.5-flash", api_key="mine")
    answer = ask(model, schema=SCHEMA, max_tokens=5)
    assert answer.text == '{"a": 1}'
    assert answer.usage.completion_tokens == 2
    assert server.asked[0]["headers"]["x-goog-api-key"] == "mine"
    assert server.asked[0]["body"]["generationConfig"]["maxOutputTokens"] == 5


@cases(
    ("name", "variable", "module", "extra"),
    {
        "openai": ("openai:gpt-5", "OPENAI_API_KEY", "pydantic_ai.direct", "models"),
        "anthropic": (
            "anthropic:m",
            "ANTHROPIC_API_KEY",
            "pydantic_ai.providers.anthropic",
            "anthropic",
        ),
    },
)
def test_a_missing_key_or_library_is_named(name, variable, module, extra, monkeypatch):
    for key in (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GOOGLE_API_KEY",
        "GEMINI_API_KEY",
    ):
        monkeypatch.delenv(key, raising=False)
    if variable:
        with pytest.raises(
            errors.ModelUnavailable, match=f"or a wrong one; set {variable}"
        ):
            ask(open_model(name))
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        errors.ModelUnavailable, match=rf"install './packages/heedful\[{extra}\]"
    ):
        ask(open_model(name, api_key="mine"))


@pytest.mark.parametrize("name", ["openai:", "m", "http://127.0.0.1"])
def test_a_wrong_name_is_refused(name):
    with pytest.raises(errors.InvalidInput):
        RemoteModel(name)
