"""instructor: a response model with a validator, and its retries."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import instructor
from openai.types.chat import ChatCompletion
from pydantic import BaseModel, field_validator

from bench.peers.contract import serve
from bench.peers.loop import TASK, Double, loop_programs


def answer_model(find: Callable[[str], str]) -> type[BaseModel]:
    """Return the model of an answer; `find` returns what is wrong with one."""

    class Colours(BaseModel):
        text: str

        @field_validator("text")
        @classmethod
        def check(cls, text: str) -> str:
            fault = find(text)
            if fault:
                raise ValueError(fault)
            return text

    return Colours


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


def build(
    double: Double, find: Callable[[str], str], retries: int
) -> Callable[[], object]:
    """Return instructor's way to ask the double for an answer."""
    response_model = answer_model(find)
    completions = dict[str, ChatCompletion]()

    def create(**request: Any) -> ChatCompletion:
        text = double.ask(texts_of(request))
        if text not in completions:
            completions[text] = make_completion(text, response_model.__name__)
        return completions[text]

    patched = instructor.patch(create=create)

    def run() -> object:
        answer = patched(
            model="double",
            response_model=response_model,
            max_retries=retries,
            messages=[{"role": "user", "content": TASK}],
        )
        return answer.text

    return run


if __name__ == "__main__":
    serve(loop_programs(build))
