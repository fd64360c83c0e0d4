"""No piece of a secret is left of a text that is masked, sent to a service, or shown to
the hooks of an agent.

Each form of docs/secrets.md is filled in 200 times where a text enters, and once in the
texts that go through a whole service and whole sessions.
`packages/heedful/tests/store/test_planted_secrets.py` plants them in the library.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import heedful
from heedful.errors import GenerateFailed
from heedful.lessons.lesson import Scope
from heedful.loop.record import Finding
from heedful.redact import redact
from heedful_server.jobs import Job, Tools, do
from tests.hooks.homes import Home, make_repository, run_command
from tests.planted import (
    FORMS,
    bundles,
    everything_in,
    find_pieces,
    join,
    pieces,
    values_of,
)
from tests.service.jobs import Handed
from tests.service.support import served
from tests.web.support import Browser

COUNT = 200  # values of a form
TEXTS_OF_A_FORM = 25
BUNDLE_SIZE = 40

DERIVATIONS: Mapping[str, Callable[[str], str]] = {
    "the text": redact,
    "the key of a finding": lambda text: Finding("check", text).key,
    "the key of a measure": lambda text: Finding("check", text, off_by=0.5).key,
    "a signature": lambda text: heedful.signature("Error", text).pattern,
    "an error": lambda text: str(GenerateFailed(text)),
}


@pytest.mark.parametrize("form", FORMS)
def test_no_piece_of_200_values_is_left_where_a_text_enters(form: str) -> None:
    for values in bundles(values_of(form, COUNT), COUNT // TEXTS_OF_A_FORM):
        text = "bad answer: " + "\n".join(value.text for value in values)
        for name, derive in DERIVATIONS.items():
            result = derive(text)
            left = [
                piece
                for value in values
                for secret in value.secrets
                for piece in pieces(secret)
                if piece in result
            ]
            assert left == [], name


def planted_texts() -> Iterator[str]:
    """Yield texts that have a value of each form."""
    values = [value for form in FORMS for value in values_of(form, 1)]
    return map(join, bundles(values, BUNDLE_SIZE))


def pieces_in(outputs: list[str], folder: Path) -> list[str]:
    """Return the pieces of the planted values in outputs, in files and in tables."""
    for path in folder.rglob("*"):
        if path.is_file():
            outputs.append(path.read_bytes().decode("utf-8", "replace"))
        if path.suffix == ".db":
            outputs += everything_in(path)
    everything = "\n".join(dict.fromkeys(outputs))
    assert "[redacted: " in everything
    return find_pieces((v for form in FORMS for v in values_of(form, 1)), everything)


def requests_about(number: int, text: str) -> Iterator[tuple[str, str, Any]]:
    """Yield requests with the text in whatever they are given."""
    finding = {"check": "c", "message": text, "fix": text, "evidence": text}
    wrong = {"evaluation": {"findings": [finding]}}
    right = {"output": {"a": [text]}, "evaluation": {"findings": []}}
    example = {"task": text, "accepted": text, "rejected": text}
    lesson = {"lesson": text, "example": example, "context": text}
    error = {"error_type": "e", "text": f"failed {number} {text}"}
    call = {"tool": "Bash", "call": "1"}
    events = [
        {"type": "tool_call", **call, "arguments": {"command": text}},
        {"type": "tool_response", **call, "content": text, "error": f"Error: {text}"},
        {"type": "user_message", "content": f"Never use {text}"},
    ]
    loop = f"loops/x{number}"
    yield "PUT", loop, {"task": text, "context": text}
    yield "PUT", f"{loop}/attempts/1", {"output": text, **wrong}
    yield "PUT", f"{loop}/attempts/2", right
    yield "GET", loop, None
    yield "PUT", f"loops/y{number}", {"task": {"do": text, "also": [text]}}
    yield "PUT", f"loops/y{number}/attempts/1", {"output": {text: text}, **wrong}
    yield "POST", f"loops/y{number}/notes", {"text": text}
    yield "POST", f"loops/y{number}/cancel", {"why": text}
    yield "POST", "reflections", {**error, **lesson}
    yield "POST", "seen", error
    yield "POST", "recall", {"task": text, "loop": f"x{number}"}
    yield "POST", "before", {"tool": "Bash", "arguments": {"command": text}}
    episode = {"task": text, "outcome": "failure", "events": events}
    yield "POST", "episodes", {**episode, "id": f"e{number}"}
    yield "POST", "traces", {"resourceSpans": [trace_of(number, text)]}
    yield "POST", "episodes", {"events": text, "outcome": text}
    first_value = text.partition("\n\n")[0]
    yield "GET", f"loops/{quote(first_value, safe='')}", None


def trace_of(number: int, text: str) -> dict[str, Any]:
    """Return the spans of a call with the text in all attributes and events."""
    names = ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "x")
    attributes = [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}},
        *({"key": name, "value": {"stringValue": text}} for name in names),
    ]
    message = {"key": "exception.message", "value": {"stringValue": text}}
    raised = {"name": "exception", "timeUnixNano": "1", "attributes": [message]}
    span = {
        "traceId": f"{number + 1:032x}",
        "spanId": f"{number + 1:016x}",
        "name": "execute_tool",
        "startTimeUnixNano": "1",
        "endTimeUnixNano": "2",
        "attributes": attributes,
        "events": [raised],
        "status": {"code": 2, "message": text},
    }
    return {"scopeSpans": [{"spans": [span]}]}


LISTS = ("loops", "reflections", "episodes", "quarantine", "audit", "proof")
PAGES = ("", "/loops", "/lessons", "/inbox", "/proof", "/work", "/loops/x0")


@pytest.mark.sqlite
def test_a_service_stores_logs_and_answers_no_piece(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.WARNING, "httpx")  # the client of this test
    outputs: list[str] = []
    statuses: list[int] = []
    with served(tmp_path, work=(work := Handed())) as api:
        for number, text in enumerate(planted_texts()):
            for method, path, body in requests_about(number, text):
                headers = {"Idempotency-Key": f"{number} {path}"}
                answer = api.request(method, f"/v1/{path}", json=body, headers=headers)
                statuses.append(answer.status_code)
                outputs.append(answer.text)
        for task, scope, arguments in work.jobs:
            api.run(do(Job(task, scope, arguments), Tools(store=api.setup.store), 1))
        api.run(heedful.consolidate(api.setup.memory(Scope("acme", "main"))))
        outputs += [api.get(f"/v1/{name}?limit=100").text for name in LISTS]
        browser = Browser(api).open()
        outputs += [browser.get(page).text for page in PAGES]
        outputs += [caplog.text]
        assert pieces_in(outputs, tmp_path) == []
    assert max(statuses) < 500
    assert statuses.count(200) + statuses.count(201) > len(statuses) / 2


def session_about(number: int, text: str) -> Iterator[dict[str, Any]]:
    """Yield the events of a session with the text in whatever they have."""
    failing = {"tool_name": "Bash", "tool_input": {"command": f"deploy{number} {text}"}}
    fixing = {
        "tool_name": "Bash",
        "tool_input": {"command": f"deploy{number} -f {text}"},
    }
    error = f"Exit code 1\nError: cannot deploy{number} {text}"
    yield {"hook_event_name": "SessionStart", "source": "startup"}
    yield {"hook_event_name": "UserPromptSubmit", "prompt": f"never use {text}"}
    yield {"hook_event_name": "UserPromptSubmit", "prompt": f"please {text}"}
    yield {"hook_event_name": "PreToolUse", "tool_use_id": "1", **failing}
    yield {
        "hook_event_name": "PostToolUseFailure",
        "tool_use_id": "1",
        "error": error,
        **failing,
    }
    yield {"hook_event_name": "PreToolUse", "tool_use_id": "2", **fixing}
    yield {
        "hook_event_name": "PostToolUse",
        "tool_use_id": "2",
        "tool_response": {"stdout": f"ok {text}"},
        **fixing,
    }
    yield {"hook_event_name": "SessionEnd", "reason": "other"}


@pytest.mark.sqlite
def test_hooks_store_log_and_answer_no_piece(tmp_path: Path) -> None:
    home = Home(tmp_path, make_repository(tmp_path))
    outputs = [run_command(home, "hook install --yes")]
    for day in ("monday", "tuesday"):
        for number, text in enumerate(planted_texts()):
            for event in session_about(number, text):
                name = event["hook_event_name"]
                code, answer, errors = home.event(
                    name, session_id=f"{day} {number}", **event
                )
                assert code == 0
                outputs += [answer, errors]
    outputs += [run_command(home, line) for line in ("lessons --json", "rules")]
    assert pieces_in(outputs, tmp_path) == []
