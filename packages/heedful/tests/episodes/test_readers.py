"""Each file is recognised by the reader of its format, and by no other but chats'."""

import json
from typing import Any

import pytest

from heedful.episodes.reading import read, readers
from tests.episodes.runs import CHAT, CLAUDE, FILES, OWN, document, genai, read_file

ROLLOUT = [
    {"type": "session_meta", "payload": {"id": "c1"}},
    {"type": "event_msg", "payload": {"type": "token_count"}},
]
# The first values of files; each reader adds its own.
SAMPLES: list[tuple[str, list[Any]]] = [
    ("heedful", [OWN]),
    ("chat", [CHAT]),
    ("chat", [{"messages": CHAT}]),
    ("chat", CHAT),
    ("claude-code", CLAUDE),
    ("claude-code", [{"type": "result", "subtype": "success", "is_error": False}]),
    ("codex", ROLLOUT),
    ("swe-agent", [{"trajectory": [{"action": "ls", "observation": "a.py"}]}]),
    ("openhands", [{"action": "run", "args": {"command": "ls"}, "id": 1}]),
    ("openhands", [{"history": [[{"observation": "run", "content": "a.py"}]]}]),
    ("openhands", [{"kind": "ActionEvent", "source": "agent", "tool_name": "sh"}]),
    ("aider", ["\n# aider chat started at 2026-01-02 03:04:05\n\n#### Fix it."]),
    ("junit", ["<?xml version='1.0'?>\n<testsuites><testsuite/></testsuites>"]),
    ("ci-log", ["2026-01-02T03:04:05.1Z ##[group]Run make\n"]),
    ("ci-log", ["\x1b[0KRunning with gitlab-runner 17.0\n"]),
    ("ci-log", ["2026-01-02T03:04:05.1Z 00O section_start:17:step_script\n"]),
    ("react", ["Question: 1?\nAction: add[1]\nObservation: 1"]),
    ("codex-exec", [{"type": "thread.started", "thread_id": "t1"}]),
    ("codex-exec", [{"id": "0", "msg": {"type": "task_started"}}]),
    ("otlp", [document(genai())]),
    ("otlp", [FILES["genai protobuf"]]),
    ("otlp", read_file("spans/console.jsonl")),
    ("otlp", read_file("spans/langfuse export.json")["observations"]),
]


def name_of_sample(value: object) -> str:
    """Return the name of a format, or the beginning of a sample."""
    return value if isinstance(value, str) else repr(value)[:60]


@pytest.mark.parametrize(("source", "sample"), SAMPLES, ids=name_of_sample)
def test_one_reader_recognises_a_file(source, sample):
    matching = [
        reader.source for reader in readers() if any(map(reader.begins, sample))
    ]
    assert matching in ([source], [source, "chat"])


def test_the_error_of_an_event_keeps_its_other_fields():
    error = {"message": "Timeout", "code": 504, "stack_trace": "db.py line 77"}
    run = {"events": [{"type": "error_event", "error": error}], "outcome": "error"}
    [episode] = read(json.dumps(run).encode())
    [event] = episode.events
    assert event.error == "Timeout"
    assert event.code == "504"
    assert event.meta == {"stack_trace": "db.py line 77"}
