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
EVENTS = [
    ("user_message", "", ASKED),
    ("tool_call", "find", ARGUMENTS),
    ("tool_response", "find", FAILED),
    ("llm_response", "", ANSWER),
]
USER = {"role": "user", "content": ASKED}
ASSISTANT = {"role": "assistant", "content": ANSWER}


def episodes(*values: Any) -> list[Episode]:
    """Read a file with a value a line."""
    return list(read("\n".join(map(json.dumps, values)).encode()))


def events_of(episode: Episode) -> list[tuple[str, str, Any]]:
    """Return the type, the tool, and the arguments or words of each event."""
    return [
        (event.type, event.tool, event.arguments or event.content or event.error)
        for event in episode.events
    ]


# Each file of the folder is the chat in another dialect.
CHATS = {
    path.stem: json.loads(path.read_text("utf-8"))
    for path in sorted((FOLDER / "chats").glob("*.json"))
}


@cases("value", CHATS)
def test_a_chat_gives_the_same_events_in_every_dialect(value):
    [episode] = episodes(value)
    assert events_of(episode) == EVENTS
    assert episode.events[1].call == episode.events[2].call
    assert episode.task == ASKED


@cases(
    "messages",
    {
        "LangChain": CHATS["LangGraph"]["messages"],
        "AutoGen": CHATS["AutoGen"]["messages"],
        "ShareGPT": CHATS["ShareGPT"]["conversations"],
    },
)
def test_lines_of_messages_are_one_chat(messages):
    [episode] = episodes(*messages)
    assert events_of(episode) == EVENTS


@cases(
    "fields, outcome",
    {
        "our own word": ({"outcome": "timeout"}, "timeout"),
        "a reward": ({"reward": 1}, "success"),
        "AgentDojo": ({"utility": True, "security": True}, "success"),
        "Who&When": ({"is_correct": False}, "failure"),
        "SWE-bench": ({"test_result": {"resolved": False}}, "failure"),
        "Claude Code": ({"subtype": "error_during_execution"}, "error"),
        "an inner reward": ({"reward_info": {"reward": 1.0}}, "success"),
        "a score of an unknown scale": ({"score": 87}, None),
        "a score of its settings": ({"params": {"score": 0.2}}, None),
        "a word and more": ({"outcome": "Passed (3/3)"}, "success"),
        "C": ({"scores": {"match": {"value": "C"}}}, "success"),
        "I": ({"scores": {"match": {"value": "I"}}}, "failure"),
        "N": ({"scores": {"match": {"value": "N"}}}, "failure"),
        "P": ({"scores": {"match": {"value": "P"}}}, "partial"),
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


def request(messages: Sequence[Any], answer: Any) -> Data:
    """Return a line of a proxy's log."""
    response = {"id": f"r{len(messages)}", "choices": [{"message": answer}]}
    return {"request": {"model": "m", "messages": messages}, "response": response}
