"""Chats of all dialects give the same events, and how their runs ended."""

import json
from collections.abc import Sequence
from typing import Any

from heedful.episodes.episode import Episode
from heedful.episodes.readers.base import outcome_of
from heedful.episodes.reading import read
from tests.tables import cases

Data = dict[str, Any]

ASKED = "Where is order A17?"
FAILED = "no order A17"
ANSWER = "It left on Monday."
ARGUMENTS = {"id": "A17"}
TEXT = json.dumps(ARGUMENTS)
EVENTS = [
    ("user_message", "", ASKED),
    ("tool_call", "find", ARGUMENTS),
    ("tool_response", "find", FAILED),
    ("llm_response", "", ANSWER),
]
USER = {"role": "user", "content": ASKED}
ASSISTANT = {"role": "assistant", "content": ANSWER}
FUNCTION = {"name": "find", "arguments": TEXT}
CALL = {"id": "c1", "type": "function", "function": FUNCTION}


def episodes(*values: Any) -> list[Episode]:
    """Read a file with a value a line."""
    return list(read("\n".join(map(json.dumps, values)).encode()))


def events_of(episode: Episode) -> list[tuple[str, str, Any]]:
    """Return the type, the tool, and the arguments or words of each event."""
    return [
        (event.type, event.tool, event.arguments or event.content or event.error)
        for event in episode.events
    ]


def chat(calls: Sequence[Any], **result: Any) -> list[Data]:
    """Return a chat of OpenAI with these calls, and what the result has beside it."""
    message = {"role": "tool", "tool_call_id": "c1", "content": FAILED, **result}
    return [USER, {"role": "assistant", "tool_calls": calls}, message, ASSISTANT]


def constructed(name: str, **fields: Any) -> Data:
    """Return a message of LangChain as its serialiser writes it."""
    path = ["langchain", "schema", "messages", name]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": fields}


LANGCHAIN_CALL = {"name": "find", "args": ARGUMENTS, "id": "c1", "type": "tool_call"}
LANGCHAIN: list[Data] = [
    {"type": "human", "content": ASKED},
    {"type": "ai", "content": "", "tool_calls": [LANGCHAIN_CALL]},
    {"type": "tool", "content": FAILED, "tool_call_id": "c1", "status": "error"},
    {"type": "ai", "content": ANSWER, "tool_calls": []},
]
RESPONSES: list[Data] = [
    {"type": "function_call", "id": "fc_1", "call_id": "c1", **FUNCTION},
    {"type": "function_call_output", "call_id": "c1", "output": FAILED},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": ANSWER}],
    },
]
ANTHROPIC: list[Data] = [
    USER,
    {
        "role": "assistant",
        "content": [
            {"type": "tool_use", "id": "c1", "name": "find", "input": ARGUMENTS}
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "c1",
                "is_error": True,
                "content": [{"type": "text", "text": FAILED}],
            }
        ],
    },
    ASSISTANT,
]
AUTOGEN: list[Data] = [
    {"source": "user", "type": "TextMessage", "content": ASKED},
    {
        "source": "desk",
        "type": "ToolCallRequestEvent",
        "content": [{"id": "c1", **FUNCTION}],
    },
    {
        "source": "desk",
        "type": "ToolCallExecutionEvent",
        "content": [{"call_id": "c1", "content": FAILED, "is_error": True}],
    },
    {"source": "desk", "type": "ToolCallSummaryMessage", "content": FAILED},
    {"source": "desk", "type": "TextMessage", "content": ANSWER},
]
EARLIER_AUTOGEN: list[Data] = [
    {"role": "assistant", "name": "user_proxy", "content": ASKED},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {
        "role": "tool",
        "content": FAILED,
        "tool_responses": [{"tool_call_id": "c1", "content": FAILED}],
    },
    {"role": "user", "name": "desk", "content": ANSWER},
]
SHAREGPT: list[Data] = [
    {"from": "human", "value": ASKED},
    {"from": "function_call", "value": json.dumps(FUNCTION)},
    {"from": "observation", "value": FAILED},
    {"from": "gpt", "value": ANSWER},
]
FUNCTIONS: list[Data] = [
    USER,
    {"role": "assistant", "content": None, "function_call": FUNCTION},
    {"role": "function", "name": "find", "content": FAILED},
    ASSISTANT,
]
AI_SDK: list[Data] = [
    USER,
    {
        "role": "assistant",
        "content": [
            {
                "type": "tool-call",
                "toolCallId": "c1",
                "toolName": "find",
                "input": ARGUMENTS,
            }
        ],
    },
    {
        "role": "tool",
        "content": [{"type": "tool-result", "toolCallId": "c1", "output": FAILED}],
    },
    ASSISTANT,
]
UI_MESSAGES: list[Data] = [
    {"id": "m1", "role": "user", "parts": [{"type": "text", "text": ASKED}]},
    {
        "id": "m2",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {
                "type": "tool-find",
                "toolCallId": "c1",
                "state": "output-error",
                "input": ARGUMENTS,
                "errorText": FAILED,
            },
            {"type": "text", "text": ANSWER},
        ],
    },
]
GOOGLE: list[Data] = [
    {"role": "user", "parts": [{"text": ASKED}]},
    {
        "role": "model",
        "parts": [{"functionCall": {"id": "c1", "name": "find", "args": ARGUMENTS}}],
    },
    {
        "role": "user",
        "parts": [
            {"functionResponse": {"id": "c1", "name": "find", "response": FAILED}}
        ],
    },
    {"role": "model", "parts": [{"text": ANSWER}]},
]
BEDROCK: list[Data] = [
    {"role": "user", "content": [{"text": ASKED}]},
    {
        "role": "assistant",
        "content": [
            {"toolUse": {"toolUseId": "c1", "name": "find", "input": ARGUMENTS}}
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "toolResult": {
                    "toolUseId": "c1",
                    "content": [{"text": FAILED}],
                    "status": "error",
                }
            }
        ],
    },
    {"role": "assistant", "content": [{"text": ANSWER}]},
]
CHATS: dict[str, list[Data]] = {
    "langchain": LANGCHAIN,
    "responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "autogen": AUTOGEN,
    "earlier autogen": EARLIER_AUTOGEN,
    "sharegpt": SHAREGPT,
    "functions": FUNCTIONS,
    "ai sdk": AI_SDK,
    "ui messages": UI_MESSAGES,
    "google": GOOGLE,
    "bedrock": BEDROCK,
}
INSPECT_CALL = {"id": "c1", "function": "find", "arguments": ARGUMENTS}
DIALECTS = {
    "OpenAI": chat([CALL]),
    "an object": {"messages": chat([CALL])},
    "an inner object": {"id": 7, "run": {"messages": chat([CALL])}},
    "old functions": FUNCTIONS,
    "items of responses": [USER, *RESPONSES],
    "a response": {"input": ASKED, "output": RESPONSES},
    "Anthropic": {"messages": ANTHROPIC},
    "LangGraph": {"messages": LANGCHAIN},
    "messages_to_dict": [
        {"type": message["type"], "data": message} for message in LANGCHAIN
    ],
    "LangChain's serialiser": [
        constructed("HumanMessage", content=ASKED),
        constructed("AIMessage", content="", tool_calls=[LANGCHAIN_CALL]),
        constructed("ToolMessage", content=FAILED, tool_call_id="c1"),
        constructed("AIMessageChunk", content=ANSWER),
    ],
    "LangChain's additional_kwargs": [
        LANGCHAIN[0],
        {"type": "ai", "content": "", "additional_kwargs": {"tool_calls": [CALL]}},
        *LANGCHAIN[2:],
    ],
    "AutoGen": {"messages": AUTOGEN, "stop_reason": "done"},
    "AutoGen 0.2": {"chat_history": EARLIER_AUTOGEN},
    "ShareGPT": {"conversations": SHAREGPT},
    "Vercel AI SDK": AI_SDK,
    "Vercel's messages for pages": {"messages": UI_MESSAGES},
    "Google": {"contents": GOOGLE},
    "Amazon Bedrock": {"messages": BEDROCK},
    "JSON in a text": {"messages": json.dumps(chat([CALL]))},
    "Inspect": {"samples": [{"messages": chat([INSPECT_CALL])}]},
    "tau-bench": [{"traj": chat([CALL]), "reward": 0.0}],
    "any name": {"results": [{"dialogue": chat([CALL])}]},
    "tau2-bench": {
        "tasks": [{"id": "0"}],
        "simulations": [
            {
                "messages": [
                    USER,
                    {
                        "role": "assistant",
                        "tool_calls": [
                            {"id": "c1", "name": "find", "arguments": ARGUMENTS}
                        ],
                    },
                    {"role": "tool", "id": "c1", "content": FAILED, "error": True},
                    ASSISTANT,
                ]
            }
        ],
    },
}


@cases("value", DIALECTS)
def test_a_chat_gives_the_same_events_in_every_dialect(value):
    [episode] = episodes(value)
    assert events_of(episode) == EVENTS
    assert episode.events[1].call == episode.events[2].call
    assert episode.task == ASKED


@cases("messages", {"LangChain": LANGCHAIN, "AutoGen": AUTOGEN, "ShareGPT": SHAREGPT})
def test_lines_of_messages_are_one_chat(messages):
    [episode] = episodes(*messages)
    assert events_of(episode) == EVENTS


@cases(
    "mark",
    {
        "is_error": {"is_error": True},
        "error": {"error": True},
        "an object": {"error": {"type": "x", "message": "gone"}},
        "status": {"status": "error"},
        "success": {"success": False},
        "a type": {"output": {"type": "error-text", "value": "x"}},
    },
)
def test_a_field_says_that_a_result_is_a_failure(mark):
    [episode] = episodes(chat([CALL], **mark))
    assert FAILED in episode.events[2].error


@cases(
    "mark",
    {
        "no field": {},
        "no error": {"error": None},
        "a status of success": {"status": "success"},
    },
)
def test_other_results_are_no_failures(mark):
    [episode] = episodes(chat([CALL], **mark))
    assert episode.events[2].error == ""


def test_the_error_of_a_result_stands_behind_its_words():
    [episode] = episodes(chat([CALL], error={"type": "timeout", "message": "late"}))
    assert episode.events[2].error == f"{FAILED}\nlate"


def test_what_a_provider_ran_has_its_result_in_the_call():
    call = {"type": "mcp_call", "id": "m1", "name": "look", "arguments": "{}"}
    [episode] = episodes([USER, {**call, "error": "no server"}])
    assert [event.tool for event in episode.events] == ["", "look", "look"]
    assert episode.events[2].error == "no server"


@cases(
    "fields, outcome",
    {
        "our own word": ({"outcome": "timeout"}, "timeout"),
        "a reward": ({"reward": 1}, "success"),
        "an inner reward": ({"reward_info": {"reward": 1.0}}, "success"),
        "a score of an unknown scale": ({"score": 87}, None),
        "a score of its settings": ({"params": {"score": 0.2}}, None),
        "a word and more": ({"outcome": "Passed (3/3)"}, "success"),
        "C": ({"scores": {"match": {"value": "C"}}}, "success"),
        "one of two scores": ({"scores": [1, 0]}, "partial"),
        "submitted": ({"info": {"exit_status": "submitted"}}, None),
        "an exit": ({"exit_status": "exit_cost"}, "error"),
        "a status": ({"status": "failed"}, "failure"),
        "a response that is complete": ({"status": "completed"}, None),
        "an error": ({"error": "ValueError: x"}, "error"),
        "an inner object": ({"eval": {"passed": False}}, "failure"),
        "a time-out": ({"error": {"message": "timed out"}}, "timeout"),
    },
)
def test_how_a_run_ended(fields, outcome):
    assert outcome_of(fields) == outcome


def test_an_object_beside_chats_that_is_none_is_skipped():
    trace = read(json.dumps([{"id": 1}, {"messages": [USER]}, {"traj": []}]).encode())
    assert len(list(trace)) == 2
    [skipped] = trace.skipped
    assert "it must be a list of messages" in skipped.reason


def test_what_is_known_of_a_run_is_kept():
    sample = {
        "id": "s1",
        "epoch": 2,
        "task": "Find it.",
        "tools": [{"name": "find"}],
        "messages": [USER],
        "error": {"message": "boom", "type": "sandbox"},
    }
    [episode] = episodes(sample)
    assert episode.id == "s1/2"
    assert episode.task == "Find it."
    assert episode.tools == ("find",)
    assert episode.outcome == "error"
    assert episode.fault is not None
    assert episode.fault.message == "boom"


# Logs of requests


def request(messages: Sequence[Any], answer: Any) -> Data:
    """Return a line of a proxy's log."""
    response = {"id": f"r{len(messages)}", "choices": [{"message": answer}]}
    return {"request": {"model": "m", "messages": messages}, "response": response}


def test_requests_that_repeat_a_chat_are_one_episode():
    messages = chat([CALL])
    other = {"role": "user", "content": "And A18?"}
    log = (
        request(messages[:1], messages[1]),
        request([other], ASSISTANT),
        request(messages[:3], messages[3]),
    )
    first, second = episodes(*log)
    assert events_of(first) == EVENTS
    assert [event.content for event in second.events] == ["And A18?", ANSWER]


def test_responses_that_name_the_one_before_are_one_episode():
    call, result, answer = RESPONSES
    log: list[Data] = [
        {
            "request": {"instructions": "Be brief.", "input": ASKED},
            "response": {"id": "r1", "output": [call]},
        },
        {
            "request": {"previous_response_id": "r1", "input": [result]},
            "response": {"id": "r2", "output": [answer]},
        },
    ]
    [episode] = episodes(*log)
    assert events_of(episode) == [("system_event", "", "Be brief."), *EVENTS]


def test_runs_of_langsmith_are_one_trace():
    messages = [LANGCHAIN[0]]
    answer = {"generations": [[{"message": LANGCHAIN[1]}]]}
    tool = {"name": "find", "run_type": "tool", "inputs": {"input": TEXT}}
    model = {"id": "m", "name": "Chat", "run_type": "llm", "outputs": answer}
    model["inputs"] = {"messages": [messages]}
    tree = {
        "id": "r",
        "name": "LangGraph",
        "run_type": "chain",
        "inputs": {"messages": messages},
        "outputs": {"output": ANSWER},
        "child_runs": [model, {**tool, "error": FAILED}],
    }
    [episode] = episodes(tree)
    assert events_of(episode) == EVENTS
    assert episode.events[2].error == FAILED
