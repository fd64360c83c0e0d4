"""Answers of the SDKs that their provider did not end as whole."""

import json
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from google.genai.types import GenerateContentResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response

import heedful
from heedful.errors import InvalidInput
from tests.completions import completion
from tests.tables import cases

CITY = {"type": "object", "required": ["city"]}
CALL = '{"city": "Oslo"}'


def chat(finish: str, content: str | None = None, **message: Any) -> ChatCompletion:
    return ChatCompletion.model_validate(completion(content, finish, **message))


def tool_call(name: str = "find", arguments: str = CALL) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": "1", "type": "function", "function": function}


def response(*output: dict[str, Any], reason: str = "") -> Response:
    return Response.model_validate(
        {
            "id": "1",
            "object": "response",
            "created_at": 1,
            "model": "m",
            "output": list(output),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "status": "incomplete" if reason else "completed",
            "incomplete_details": {"reason": reason} if reason else None,
            "usage": {
                "input_tokens": 7,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 2,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 9,
            },
        }
    )


def said(part: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }


def message(reason: str, *content: dict[str, Any]) -> AnthropicMessage:
    return AnthropicMessage.model_validate(
        {
            "id": "1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": list(content),
            "stop_reason": reason,
            "usage": {"input_tokens": 7, "output_tokens": 2},
        }
    )


def google(reason: str, *parts: dict[str, Any]) -> GenerateContentResponse:
    candidate = {"finish_reason": reason, "content": {"parts": list(parts)}}
    return GenerateContentResponse.model_validate(
        {
            "candidates": [candidate],
            "usage_metadata": {"prompt_token_count": 7, "candidates_token_count": 2},
        }
    )


BLOCKED = GenerateContentResponse.model_validate(
    {
        "prompt_feedback": {"block_reason": "PROHIBITED_CONTENT"},
        "usage_metadata": {"prompt_token_count": 9},
    }
)
TEXT = {"type": "text", "text": "Oslo lies"}
OUTPUT_TEXT = {"type": "output_text", "text": "Oslo lies", "annotations": []}
# The answers, and the key of the finding about each.
FAULTS = {
    "OpenAI, cut": (chat("length", content="Oslo lies"), "length"),
    "OpenAI, a refusal": (chat("stop", refusal="I cannot say."), "refusal"),
    "OpenAI, a refusal beside a call": (
        chat("stop", refusal="I cannot say.", tool_calls=[tool_call()]),
        "refusal",
    ),
    "OpenAI, a call": (chat("tool_calls", tool_calls=[tool_call()]), "tool_call"),
    "OpenAI, nothing": (chat("stop"), "empty"),
    "Responses, cut": (
        response(said(OUTPUT_TEXT), reason="max_output_tokens"),
        "length",
    ),
    "Anthropic, cut": (message("max_tokens", TEXT), "length"),
    "Anthropic, a refusal": (message("refusal"), "refusal"),
    "Anthropic, a call": (
        message("tool_use", {"type": "tool_use", "id": "1", "name": "f", "input": {}}),
        "tool_call",
    ),
    "Google, cut": (google("MAX_TOKENS", {"text": "Oslo lies"}), "length"),
    "Google, a prompt that is blocked": (BLOCKED, "refusal"),
    "a text beside its answer": (
        ("Oslo lies", chat("length", content="Oslo lies")),
        "length",
    ),
    "Answer": (heedful.Answer("Oslo", heedful.Usage(1, 9), "refusal"), "refusal"),
}


@cases(("returned", "key"), FAULTS)
async def test_an_answer_that_is_not_whole_never_passes(returned, key):
    result = await heedful.run(
        "Where?", generate=lambda task: returned, max_attempts=1, store=None
    )
    evaluation = result.loop.attempts[0].evaluation
    assert evaluation is not None
    findings = evaluation.errors
    assert not result.passed
    assert findings[0].key == f"answer: {key}"
    assert findings[0].fix
    assert result.usage.tokens >= 9
    assert isinstance(result.candidate, str | None)


async def test_a_schema_judges_the_arguments_of_a_call():
    returned = chat("stop", content="I look.", tool_calls=[tool_call()])
    checks = [heedful.checks.json_schema(CITY)]
    result = await heedful.run(
        "Where?", generate=lambda task: returned, checks=checks, store=None
    )
    assert result.passed
    assert json.loads(str(result.candidate)) == {"city": "Oslo"}


class Interrupted(BaseException):
    """What ends a program, such as Ctrl-C."""


async def test_how_an_answer_ended_survives_the_process(store):
    def check(candidate: str) -> str:
        if not broken:
            return ""
        raise Interrupted

    broken = [True]
    calls = []

    def generate(task: str) -> Any:
        calls.append(task)
        return chat("length", content=f"Oslo {len(calls)}")

    async def drive() -> heedful.Result[Any]:
        return await heedful.run(
            "Where?",
            generate=generate,
            checks=[check],
            max_attempts=1,
            store=store,
            id="a",
        )

    with pytest.raises(Interrupted):
        await drive()
    broken.clear()
    result = await drive()
    assert len(calls) == 1
    assert not result.passed
    evaluation = result.loop.attempts[0].evaluation
    assert evaluation is not None
    assert evaluation.findings[0].key == "answer: length"


def chunk(content: str, finish: str | None = None) -> Any:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    return ChatCompletionChunk.model_validate(
        {
            "id": "1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [choice],
        }
    )


STREAMS = {
    "texts": (["Os", "lo"], 0, True),
    "texts and a usage": (["Os", "lo", heedful.Usage(1, 9)], 9, True),
    "OpenAI, and it is cut": ([chunk("Os"), chunk("lo", "length")], 0, False),
    "JSON of OpenAI": ([chunk("Os").model_dump(), chunk("lo").model_dump()], 0, True),
    "Google": (
        [google("STOP", {"text": "Os"}), google("STOP", {"text": "lo"})],
        9,
        True,
    ),
}


@cases(("parts", "tokens", "passes"), STREAMS)
async def test_the_parts_that_a_function_yields_are_one_text(parts, tokens, passes):
    def generate(task: str) -> Any:
        yield from parts

    async def generate_async(task: str) -> Any:
        for part in parts:
            yield part

    for function in (generate, generate_async, lambda task: iter(parts)):
        result = await heedful.run(
            "Where?", generate=function, max_attempts=1, store=None
        )
        assert result.candidate == "Oslo"
        assert result.usage.tokens == tokens
        assert result.usage.calls == 1
        assert result.passed is passes


async def test_what_is_yielded_and_is_no_text_is_named():
    def generate(task: str) -> Any:
        yield {"city": "Oslo"}

    with pytest.raises(InvalidInput, match=r"what generate yielded.*list"):
        await heedful.run("Where?", generate=generate, store=None)
