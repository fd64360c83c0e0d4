"""Chats of all dialects give the same events, and how their runs ended."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from heedful.episodes.episode import Episode
from heedful.episodes.readers.base import outcome_of
from heedful.episodes.reading import read

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
            {
                "functionResponse": {
                    "id": "c1",
                    "name": "find",
                    "response": FAILED,
                }
            }
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
DIALECTS: list[Any] = [
    pytest.param(chat([CALL]), id="OpenAI"),
    pytest.param({"messages": chat([CALL])}, id="an object"),
    pytest.param({"id": 7, "run": {"messages": chat([CALL])}}, id="an inner object"),
    pytest.param(FUNCTIONS, id="old functions"),
    pytest.param([USER, *RESPONSES], id="items of responses"),
    pytest.param({"input": ASKED, "output": RESPONSES}, id="a response"),
    pytest.param({"messages": ANTHROPIC}, id="Anthropic"),
    pytest.param({"messages": LANGCHAIN}, id="LangGraph"),
    pytest.param(
        [{"type": message["type"], "data": message} for message in LANGCHAIN],
        id="messages_to_dict",
    ),
    pytest.param(
        [
            constructed("HumanMessage", content=ASKED),
            constructed("AIMessage", content="", tool_calls=[LANGCHAIN_CALL]),
            constructed("ToolMessage", content=FAILED, tool_call_id="c1"),
            constructed("AIMessageChunk", content=ANSWER),
        ],
        id="LangChain's serialiser",
    ),
    pytest.param(
        [
            LANGCHAIN[0],
            {"type": "ai", "content": "", "additional_kwargs": {"tool_calls": [CALL]}},
            *LANGCHAIN[2:],
        ],
        id="LangChain's additional_kwargs",
    ),
    pytest.param({"messages": AUTOGEN, "stop_reason": "done"}, id="AutoGen"),
    pytest.param({"chat_history": EARLIER_AUTOGEN}, id="AutoGen 0.2"),
    pytest.param({"conversations": SHAREGPT}, id="ShareGPT"),
    pytest.param(AI_SDK, id="Vercel AI SDK"),
    pytest.param({"messages": UI_MESSAGES}, id="Vercel's messages for pages"),
    pytest.param({"contents": GOOGLE}, id="Google"),
    pytest.param({"messages": BEDROCK}, id="Amazon Bedrock"),
    pytest.param({"messages": json.dumps(chat([CALL]))}, id="JSON in a text"),
    pytest.param({"samples": [{"messages": chat([INSPECT_CALL])}]}, id="Inspect"),
    pytest.param([{"traj": chat([CALL]), "reward": 0.0}], id="tau-bench"),
    pytest.param({"results": [{"dialogue": chat([CALL])}]}, id="any name"),
    pytest.param(
        {
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
        id="tau2-bench",
    ),
]


@pytest.mark.parametrize("value", DIALECTS)
def test_a_chat_gives_the_same_events_in_every_dialect(value: Any) -> None:
    [episode] = episodes(value)
    assert events_of(episode) == EVENTS
    assert episode.events[1].call == episode.events[2].call
    assert episode.task == ASKED


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param(LANGCHAIN, id="LangChain"),
        pytest.param(AUTOGEN, id="AutoGen"),
        pytest.param(SHAREGPT, id="ShareGPT"),
    ],
)
def test_lines_of_messages_are_one_chat(messages: list[Data]) -> None:
    [episode] = episodes(*messages)
    assert events_of(episode) == EVENTS


@pytest.mark.parametrize(
    "mark",
    [
        pytest.param({"is_error": True}, id="is_error"),
        pytest.param({"error": True}, id="error"),
        pytest.param({"error": {"type": "x", "message": "gone"}}, id="an object"),
        pytest.param({"status": "error"}, id="status"),
        pytest.param({"success": False}, id="success"),
        pytest.param({"output": {"type": "error-text", "value": "x"}}, id="a type"),
    ],
)
def test_a_field_says_that_a_result_is_a_failure(mark: Data) -> None:
    [episode] = episodes(chat([CALL], **mark))
    assert FAILED in episode.events[2].error


@pytest.mark.parametrize(
    "mark",
    [
        pytest.param({}, id="no field"),
        pytest.param({"error": None}, id="no error"),
        pytest.param({"status": "success"}, id="a status of success"),
    ],
)
def test_other_results_are_no_failures(mark: Data) -> None:
    [episode] = episodes(chat([CALL], **mark))
    assert episode.events[2].error == ""


def test_the_error_of_a_result_stands_behind_its_words() -> None:
    [episode] = episodes(chat([CALL], error={"type": "timeout", "message": "late"}))
    assert episode.events[2].error == f"{FAILED}\nlate"


def test_what_a_provider_ran_has_its_result_in_the_call() -> None:
    call = {"type": "mcp_call", "id": "m1", "name": "look", "arguments": "{}"}
    [episode] = episodes([USER, {**call, "error": "no server"}])
    assert [event.tool for event in episode.events] == ["", "look", "look"]
    assert episode.events[2].error == "no server"


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        pytest.param({"outcome": "timeout"}, "timeout", id="our own word"),
        pytest.param({"reward": 1}, "success", id="a reward"),
        pytest.param({"reward_info": {"reward": 1.0}}, "success", id="an inner reward"),
        pytest.param({"score": 87}, None, id="a score of an unknown scale"),
        pytest.param({"params": {"score": 0.2}}, None, id="a score of its settings"),
        pytest.param({"outcome": "Passed (3/3)"}, "success", id="a word and more"),
        pytest.param({"scores": {"match": {"value": "C"}}}, "success", id="C"),
        pytest.param({"scores": [1, 0]}, "partial", id="one of two scores"),
        pytest.param({"info": {"exit_status": "submitted"}}, None, id="submitted"),
        pytest.param({"exit_status": "exit_cost"}, "error", id="an exit"),
        pytest.param({"status": "failed"}, "failure", id="a status"),
        pytest.param({"status": "completed"}, None, id="a response that is complete"),
        pytest.param({"error": "ValueError: x"}, "error", id="an error"),
        pytest.param({"eval": {"passed": False}}, "failure", id="an inner object"),
        pytest.param({"error": {"message": "timed out"}}, "timeout", id="a time-out"),
    ],
)
def test_how_a_run_ended(fields: Mapping[str, Any], outcome: str | None) -> None:
    assert outcome_of(fields) == outcome


def test_an_object_beside_chats_that_is_none_is_skipped() -> None:
    trace = read(json.dumps([{"id": 1}, {"messages": [USER]}, {"traj": []}]).encode())
    assert len(list(trace)) == 2
    [skipped] = trace.skipped
    assert "it must be a list of messages" in skipped.reason


def test_what_is_known_of_a_run_is_kept() -> None:
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


def test_requests_that_repeat_a_chat_are_one_episode() -> None:
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


def test_responses_that_name_the_one_before_are_one_episode() -> None:
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


def test_runs_of_langsmith_are_one_trace() -> None:
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
