"""instructor: a response model with a validator, and its retries."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import instructor
from openai.types.chat import ChatCompletion
from pydantic import BaseModel, field_validator

from bench.peers.contract import Line, Work, serve
from bench.peers.loop import (
    LONG_FAULTS,
    TASK,
    Double,
    check_answer,
    find_fault,
    find_long_fault,
    long_double,
    time_cycles,
)


class Colours(BaseModel):
    """An answer of at most two words."""

    text: str

    @field_validator("text")
    @classmethod
    def check(cls, text: str) -> str:
        """Accept at most two words."""
        fault = find_fault(text)
        if fault:
            raise ValueError(fault)
        return text


class LongColours(BaseModel):
    """An answer of at most two words, with failures of 2 kB."""

    text: str

    @field_validator("text")
    @classmethod
    def check(cls, text: str) -> str:
        """Accept at most two words, and say so in 2 kB."""
        fault = find_long_fault(text)
        if fault:
            raise ValueError(fault)
        return text


def make_completion(text: str, tool: str) -> ChatCompletion:
    """Return an answer of OpenAI's API that calls the tool with a text."""
    function = {"name": tool, "arguments": json.dumps({"text": text})}
    call = {"id": "call", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    return ChatCompletion.model_validate(
        {
            "id": "completion",
            "object": "chat.completion",
            "created": 0,
            "model": "double",
            "choices": [choice],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }
    )


def texts_of(request: dict[str, Any]) -> Iterator[str]:
    """Yield the texts of a request: messages, calls of tools, and the tools."""
    for message in request["messages"]:
        content = message.get("content")
        if content:
            yield content if isinstance(content, str) else json.dumps(content)
        if message.get("tool_calls"):
            yield json.dumps(message["tool_calls"], default=str)
    yield json.dumps(request["tools"])


def patch(double: Double, tool: str) -> Callable[..., Any]:
    """Return instructor's way to ask the double."""
    completions = dict[str, ChatCompletion]()

    def create(**request: Any) -> ChatCompletion:
        text = double.ask(texts_of(request))
        if text not in completions:
            completions[text] = make_completion(text, tool)
        return completions[text]

    return instructor.patch(create=create)  # type: ignore[no-any-return]


def time_loop(work: Work) -> Iterator[Line]:
    """Time loops of two attempts."""
    create = patch(Double(), Colours.__name__)

    def cycle() -> None:
        answer = create(
            model="double",
            response_model=Colours,
            max_retries=1,
            messages=[{"role": "user", "content": TASK}],
        )
        check_answer(answer.text)

    yield from time_cycles(cycle, work.times)


def count_bytes(work: Work) -> Iterator[Line]:
    """Count what is sent for eight long failures."""
    double = long_double()
    answer = patch(double, LongColours.__name__)(
        model="double",
        response_model=LongColours,
        max_retries=LONG_FAULTS,
        messages=[{"role": "user", "content": TASK}],
    )
    check_answer(answer.text)
    yield from double.report()


if __name__ == "__main__":
    serve({"cycle": time_loop, "bytes": count_bytes})
