"""Chats of all dialects give the same events, and how their runs ended."""

import json
from collections.abc import Sequence
from typing import Any

from heedful.episodes.episode import Episode
from heedful.episodes.readers.base import outcome_of
from heedful.episodes.reading import read
from tests.episodes.runs import FOLDER
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


# Each file of the folder is the chat in another dialect.
CHATS = {
    path.stem: json.loads(path.read_text("utf-8"))
    for path in sorted((FOLDER / "chats").glob("*.json"))
}
LANGCHAIN = CHATS["LangGraph"]["messages"]
RESPONSES = CHATS["a response"]["output"]


@cases("value", CHATS)
def test_a_chat_gives_the_same_events_in_every_dialect(value):
    [episode] = episodes(value)
    assert events_of(episode) == EVENTS
    assert episode.events[1].call == episode.events[2].call
    assert episode.task == ASKED


@cases(
    "messages",
    {
        "LangChain": LANGCHAIN,
        "AutoGen": CHATS["AutoGen"]["messages"],
        "ShareGPT": CHATS["ShareGPT"]["conversations"],
    },
)
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
