"""Answers of the SDKs that their provider did not end as whole."""

import json
from types import SimpleNamespace as Shape
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from google.genai.types import GenerateContentResponse
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ParsedChatCompletion,
)
from openai.types.responses import Response
from pydantic import BaseModel
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

import heedful
from heedful.errors import InvalidInput
from tests.completions import completion
from tests.tables import cases

CITY = {"type": "object", "required": ["city"]}
CALL = '{"city": "Oslo"}'


def chat(finish: str, content: str | None = None, **message: Any) -> ChatCompletion:
    return ChatCompletion.model_validate(completion(content, finish, **message))


def ended(reason: object) -> ChatCompletion:
    """Return what the SDK reads from a server that sends this reason; "" for none."""
    answer = completion("Oslo lies")
    answer["choices"][0]["finish_reason"] = reason
    if reason == "":
        del answer["choices"][0]["finish_reason"]
    return ChatCompletion.construct(**answer)


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


def message(reason: str | None, *content: dict[str, Any]) -> AnthropicMessage:
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


def google(reason: str | None, *parts: dict[str, Any]) -> GenerateContentResponse:
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
    "OpenAI, without its end": (ended(None), "length"),
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
    "Anthropic, without its end": (message(None, TEXT), "length"),
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


async def test_an_answer_whose_server_sends_no_reasons_is_whole():
    result = await answered(ended(""))
    assert result.passed
    assert result.candidate == "Oslo lies"


async def test_a_usage_beside_a_text_does_not_say_how_the_text_ended():
    usage = Shape(input_tokens=7, output_tokens=2)
    result = await answered(("Oslo", Shape(usage=usage, stop_reason=None)))
    assert result.passed
    assert result.usage.tokens == 9


@cases("content", {"a text": "Oslo", "nothing": None})
async def test_an_answer_without_its_end_and_its_usage_is_cut(content):
    response = completion(content)
    response["choices"][0]["finish_reason"] = None
    del response["usage"]
    result = await answered(ParsedChatCompletion.construct(**response))
    assert first_key(result) == "answer: length"
    assert result.candidate == content


async def test_a_schema_judges_the_arguments_of_a_call():
    returned = chat("stop", content="I look.", tool_calls=[tool_call()])
    checks = [heedful.checks.json_schema(CITY)]
    result = await heedful.run(
        "Where?", generate=lambda task: returned, checks=checks, store=None
    )
    assert result.passed
    assert json.loads(str(result.candidate)) == {"city": "Oslo"}


class Booking(BaseModel):
    """A booking of a day."""

    day: int


class Cancellation(BaseModel):
    """A booking that is cancelled, with the same field."""

    day: int


class Note(BaseModel):
    """A note, with another field."""

    text: str


Calls = tuple[tuple[str, str], ...]


def replaced(answer: Any, **fields: Any) -> Any:
    """Return the answer of an SDK with other fields."""
    return type(answer).model_validate({**answer.model_dump(), **fields})


def calls_of_openai(calls: Calls) -> ChatCompletion:
    tool_calls = [tool_call(name, arguments) for name, arguments in calls]
    return chat("tool_calls", tool_calls=tool_calls)


def calls_of_responses(calls: Calls) -> Any:
    items = [
        {"type": "function_call", "call_id": "1", "name": name, "arguments": text}
        for name, text in calls
    ]
    return replaced(response(), output=items)


def calls_of_anthropic(calls: Calls) -> Any:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": "I book."}]
    for name, text in calls:
        arguments = json.loads(text)
        block = {"type": "tool_use", "id": "1", "name": name, "input": arguments}
        blocks.append(block)
    return replaced(message("tool_use"), content=blocks)


def calls_of_google(calls: Calls) -> Any:
    parts = [
        {"function_call": {"name": name, "args": json.loads(text)}}
        for name, text in calls
    ]
    candidate = {"finish_reason": "STOP", "content": {"parts": parts}}
    return replaced(google("STOP"), candidates=[candidate])


def calls_of_pydantic_ai(calls: Calls) -> ModelResponse:
    return ModelResponse([ToolCallPart(name, text) for name, text in calls])


def calls_of_langchain(calls: Calls) -> Shape:
    return Shape(
        type="ai",
        content="",
        response_metadata={},
        usage_metadata=None,
        tool_calls=[
            {"name": name, "args": json.loads(text), "id": "1", "type": "tool_call"}
            for name, text in calls
        ],
    )


CLIENTS = {
    "OpenAI": calls_of_openai,
    "Responses": calls_of_responses,
    "Anthropic": calls_of_anthropic,
    "Google": calls_of_google,
    "pydantic-ai": calls_of_pydantic_ai,
    "LangChain": calls_of_langchain,
}
FIRST = '{"day": 1}'
SECOND = '{"day": 2}'
BOTH = (("Booking", FIRST), ("Booking", SECOND))


def first_key(result: heedful.Result[Any]) -> str:
    """Return the key of the first finding about the first attempt."""
    evaluation = result.loop.attempts[0].evaluation
    assert evaluation is not None
    return evaluation.errors[0].key


async def answered(returned: Any, **options: Any) -> heedful.Result[Any]:
    """Return the result of one attempt that returns the answer of an SDK."""
    options = {"store": None, "max_attempts": 1} | options
    return await heedful.run("Book.", generate=lambda task: returned, **options)


@cases("client", CLIENTS)
async def test_several_calls_are_the_items_of_a_list(client):
    result = await answered(client(BOTH), output=list[Booking])
    assert result.passed
    assert result.candidate == [Booking(day=1), Booking(day=2)]


@cases("client", CLIENTS)
async def test_several_calls_are_told_where_one_answer_is_wanted(client):
    hints = []

    def generate(task: str, hint: str) -> Any:
        hints.append(hint)
        return client(BOTH[:1] if hint else BOTH)

    result = await heedful.run("Book.", generate=generate, output=Booking, store=None)
    assert result.candidate == Booking(day=1)
    assert result.attempts == 2
    assert f"2 calls, one wanted: Booking({FIRST}), Booking({SECOND})" in hints[1]


@cases("client", CLIENTS)
async def test_the_name_of_a_tool_chooses_the_class_of_a_union(client):
    output = Booking | Cancellation
    for kind in (Booking, Cancellation):
        result = await answered(client(((kind.__name__, FIRST),)), output=output)
        assert result.passed
        assert type(result.candidate) is kind


class PartCancellation(Cancellation):
    """A part of a booking that is cancelled."""


@cases(
    ("tool", "kind"),
    {
        "snake case": ("booking", Booking),
        "snake case of two words": ("part_cancellation", PartCancellation),
        "words before it": ("final_result_Cancellation", Cancellation),
        "the longest name": ("final_result_PartCancellation", PartCancellation),
        "another name": ("respond", Booking),
    },
)
async def test_the_name_of_a_tool_may_be_written_in_another_way(tool, kind):
    output = Booking | Cancellation | PartCancellation
    result = await answered(calls_of_openai(((tool, FIRST),)), output=output)
    assert type(result.candidate) is kind


@cases(
    ("calls", "output", "candidate"),
    {
        "one call of an item": (BOTH[:1], list[Booking], [Booking(day=1)]),
        "one call of the list": (
            (("book", f"[{FIRST}, {SECOND}]"),),
            list[Booking],
            [Booking(day=1), Booking(day=2)],
        ),
        "another name": (
            (("book", FIRST), ("book", SECOND)),
            list[Booking] | None,
            [Booking(day=1), Booking(day=2)],
        ),
        "a list of a union": (
            (("Cancellation", FIRST), ("Booking", SECOND)),
            list[Booking | Cancellation],
            [Cancellation(day=1), Booking(day=2)],
        ),
    },
)
async def test_a_list_is_read_from_calls(calls, output, candidate):
    result = await answered(calls_of_openai(calls), output=output)
    assert result.passed
    assert result.candidate == candidate
    assert list(map(type, result.candidate)) == list(map(type, candidate))


@cases(
    ("calls", "output", "key"),
    {
        "an item that does not fit": (
            (("Booking", FIRST), ("Booking", "{}")),
            list[Booking],
            "output: $[].day missing",
        ),
        "a class that the name does not choose": (
            (("Cancellation", '{"text": "Hello"}'),),
            Cancellation | Note,
            "output: $.day missing",
        ),
        "JSON that breaks off": (
            (("Booking", '{"day": '),),
            Booking,
            "output: breaks off",
        ),
    },
)
async def test_calls_that_do_not_fit_are_refused(calls, output, key):
    result = await answered(calls_of_openai(calls), output=output)
    assert not result.passed
    evaluation = result.loop.attempts[0].evaluation
    assert evaluation is not None
    findings = evaluation.errors
    assert [finding.key for finding in findings] == [key]


@cases(
    ("schema", "passes"),
    {
        "an object": (Booking, False),
        "a list": ({"type": "array", "items": {"required": ["day"]}}, True),
    },
)
async def test_a_schema_judges_the_list_of_several_calls(schema, passes):
    checks = [heedful.checks.json_schema(schema)]
    result = await answered(calls_of_openai(BOTH), checks=checks)
    assert result.passed is passes
    assert json.loads(str(result.candidate)) == [{"day": 1}, {"day": 2}]


async def test_a_class_that_a_name_chose_comes_back_from_the_store(store):
    tasks = []

    def generate(task: str) -> Any:
        tasks.append(task)
        return calls_of_openai((("Cancellation", FIRST),))

    for _ in range(2):
        result = await heedful.run(
            "Book.",
            generate=generate,
            output=Booking | Cancellation,
            store=store,
            id="a",
        )
        assert type(result.candidate) is Cancellation
    assert len(tasks) == 1


async def test_the_calls_of_a_stage_are_its_output(store):
    pipeline = heedful.Pipeline("p", store=store)

    @pipeline.stage(output=list[Booking])
    def bookings(state: Any) -> Any:
        return calls_of_openai(BOTH)

    report = await pipeline.run({}, id="r")
    assert report.stages[0].status == "passed"
    assert report.state["bookings"] == [Booking(day=1), Booking(day=2)]


async def test_a_report_takes_the_call_that_its_check_asks_for(store):
    checks = [heedful.checks.json_schema(Booking)]
    loop = await heedful.open_loop("a", "Book.", checks=checks, store=store)
    verdict = await loop.report(calls_of_openai(BOTH[:1]), checks=checks)
    assert isinstance(verdict, heedful.Done)
    assert verdict.passed


def choices(*texts: str) -> ChatCompletion:
    answer = completion(texts[0])
    answer["choices"] = []
    for number, text in enumerate(texts):
        choice = {
            "index": number,
            "finish_reason": "length" if text.endswith("…") else "stop",
            "message": {"role": "assistant", "content": text},
        }
        answer["choices"].append(choice)
    return ChatCompletion.model_validate(answer)


@cases(
    "usages",
    {
        "alone": (),
        "with a usage": (heedful.Usage(1, 9),),
    },
)
async def test_the_choices_of_an_answer_are_candidates_with_one_usage(usages):
    response = choices("I cannot.", f"{FIRST}…", SECOND)
    returned = (response, *usages) if usages else response
    result = await answered(returned, output=Booking)
    assert result.passed
    assert result.candidate == Booking(day=2)
    assert result.usage.calls == 1
    assert result.usage.tokens == 9


async def test_a_list_beside_the_response_it_was_read_from_is_one_candidate():
    booked = [{"day": 1}, {"day": 2}]
    result = await answered((booked, chat("stop", content=FIRST)))
    assert result.candidate == booked


@cases(
    "returned",
    {
        "OpenAI": replaced(chat("stop", content=FIRST), usage=None),
        "Responses": replaced(
            response(said({**OUTPUT_TEXT, "text": FIRST})), usage=None
        ),
        "pydantic-ai": ModelResponse([TextPart(FIRST)]),
        "LangChain": Shape(
            type="ai", text=FIRST, response_metadata={}, usage_metadata=None
        ),
    },
)
async def test_an_answer_without_usage_is_one_call(returned):
    result = await answered(returned, output=Booking)
    assert result.candidate == Booking(day=1)
    assert result.usage.calls == 1
    assert result.usage.tokens == 0


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


def chunk_of(*choices: dict[str, Any]) -> ChatCompletionChunk:
    return ChatCompletionChunk.model_validate(
        {
            "id": "1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": list(choices),
        }
    )


def chunk(
    content: str | None = None, finish: str | None = None, index: int = 0, **delta: Any
) -> ChatCompletionChunk:
    delta = {"content": content, **delta}
    return chunk_of({"index": index, "delta": delta, "finish_reason": finish})


def call_chunk(arguments: str, name: str | None = None, index: int = 0) -> Any:
    """Return a chunk with a piece of a call; the first piece has its name."""
    call = {"index": index, "function": {"name": name, "arguments": arguments}}
    return chunk(tool_calls=[call])


STREAMS = {
    "texts": (["Os", "lo"], 0, True),
    "texts and a usage": (["Os", "lo", heedful.Usage(1, 9)], 9, True),
    "OpenAI, and it is cut": ([chunk("Os"), chunk("lo", "length")], 0, False),
    "JSON of OpenAI": (
        [chunk("Os").model_dump(), chunk("lo", "stop").model_dump()],
        0,
        True,
    ),
    "OpenAI, without its end": ([chunk("Os"), chunk("lo")], 0, False),
    "Google, without its end": (
        [google(None, {"text": "Os"}), google(None, {"text": "lo"})],
        9,
        False,
    ),
    "texts and an answer": (["Os", heedful.Answer("lo", heedful.Usage(1, 9))], 9, True),
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


CALLED = chunk(finish="tool_calls")
CALL_CHUNKS = [call_chunk("", "Booking"), call_chunk('{"day"'), call_chunk(": 1}")]
TWO_CALLS = [
    chunk("I book."),
    call_chunk("", "Booking", 1),
    call_chunk("", "Booking", 2),
    call_chunk('{"day"', index=1),
    call_chunk('{"day"', index=2),
    call_chunk(": 1}", index=1),
    call_chunk(": 2}", index=2),
    CALLED,
]


@cases(
    "chunks",
    {
        "in pieces": [*CALL_CHUNKS, CALLED],
        "whole": [call_chunk(FIRST, "Booking"), CALLED],
        "after a text": [chunk("I book."), *CALL_CHUNKS, CALLED],
        "after a chunk without a choice": [chunk_of(), *CALL_CHUNKS, CALLED],
        "JSON": [part.model_dump(exclude_none=True) for part in (*CALL_CHUNKS, CALLED)],
        "Google": [
            google(None, {"text": "I book."}),
            calls_of_google(BOTH[:1]),
        ],
    },
)
async def test_a_streamed_call_is_read_like_a_whole_one(chunks):
    result = await answered(iter(chunks), output=Booking)
    assert result.candidate == Booking(day=1)
    result = await answered(iter(chunks), checks=[heedful.checks.contains("day")])
    assert first_key(result) == "answer: tool_call"


async def test_streamed_calls_are_the_items_of_a_list():
    result = await answered(iter(TWO_CALLS), output=list[Booking])
    assert result.candidate == [Booking(day=1), Booking(day=2)]


@cases(
    ("chunks", "key"),
    {
        "without arguments": ([CALL_CHUNKS[0], CALLED], "answer: empty"),
        "half": ([*CALL_CHUNKS[:2], CALLED], "output: breaks off"),
        "whole, and the stream is cut": (CALL_CHUNKS, "answer: length"),
    },
)
async def test_a_streamed_call_that_breaks_off_is_refused(chunks, key):
    result = await answered(iter(chunks), output=Booking)
    assert not result.passed
    assert first_key(result) == key


async def test_a_streamed_refusal_is_told():
    chunks = [chunk(refusal="I cannot "), chunk(refusal="say."), chunk(finish="stop")]
    result = await answered(iter(chunks))
    evaluation = result.loop.attempts[0].evaluation
    assert evaluation is not None
    assert "(I cannot say.)" in evaluation.errors[0].message


async def test_the_choices_of_a_stream_are_candidates():
    chunks = [
        chunk("I "),
        chunk('{"day"', index=1),
        chunk("cannot.", "stop"),
        chunk(": 2}", "stop", index=1),
    ]
    result = await answered(iter(chunks), output=Booking)
    assert result.candidate == Booking(day=2)
    assert result.usage.calls == 1


async def test_a_yielded_answer_that_is_not_whole_is_refused():
    cut = heedful.Answer("lo", heedful.Usage(1, 9), "length")
    result = await answered(iter(["Os", cut]))
    assert first_key(result) == "answer: length"


@cases(
    "part",
    {"data": {"city": "Oslo"}, "an event of Anthropic": Shape(type="message_start")},
)
async def test_what_is_yielded_and_is_no_text_is_named(part):
    def generate(task: str) -> Any:
        yield part

    expected = r"what generate yielded.*get_final_message.*list"
    with pytest.raises(InvalidInput, match=expected):
        await heedful.run("Where?", generate=generate, store=None)
