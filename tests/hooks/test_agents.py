"""Each agent: its events are answered in the shape that its documentation asks for, by
the hook process.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from heedful import Memory
from heedful.integrations import hook
from heedful.integrations.agents import AGENTS, Kind
from heedful.integrations.places import TARGETS
from heedful.store.ownership import prepare_database
from tests.hooks.agent_events import EVENTS, RULE
from tests.hooks.agent_schemas import SCHEMAS
from tests.hooks.support import environment

Send = Callable[..., Any]
CASES = [(name, event) for name, events in EVENTS.items() for event in events]


@pytest.fixture
def send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Send:
    """Answer an event as the hook process does, within this process."""
    home = tmp_path / "home"
    folder = tmp_path / "shop"
    home.mkdir()
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    for name, value in environment(home).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    # Learning in a process of its own takes no part in these answers.
    monkeypatch.setattr(hook, "detach", lambda *_: None)
    monkeypatch.setattr(hook, "_lift_time_limit", lambda niceness: None)

    def send_event(name: str, event: str, settings: Mapping[str, Any] = {}) -> Any:
        monkeypatch.setenv("HEEDFUL_HOOK", json.dumps(dict(settings)) or "{}")
        data = {
            field: _in_folder(value, str(folder))
            for field, value in EVENTS[name][event].items()
        }
        stdin = io.TextIOWrapper(io.BytesIO(json.dumps(data).encode()))
        monkeypatch.setattr("sys.stdin", stdin)
        arguments = [event, "--agent", TARGETS[name].agent, "--strict"]
        assert hook.main(arguments) == 0
        output, errors = capsys.readouterr()
        assert errors == ""
        return json.loads(output) if output else None

    return send_event


def _in_folder(value: Any, folder: str) -> Any:
    """Return a value of an event with the folder of the project in it."""
    if isinstance(value, list) and value == ["/srv/ann/shop"]:
        return [folder]
    return folder if value == "/srv/ann/shop" else value


def kind_of(name: str, event: str) -> Kind:
    return AGENTS[TARGETS[name].agent].events[event]


def event_of(name: str, kind: Kind) -> str:
    """Return the event of a kind that the examples of an agent have."""
    events = AGENTS[TARGETS[name].agent].events.items()
    of_kind = [event for event, other in events if other == kind]
    return next((event for event in of_kind if event in EVENTS[name]), "")


def say_rule(send: Send, name: str) -> None:
    """Let the user of an agent say the rule, at a terminal if that is needed."""
    if not AGENTS[TARGETS[name].agent].gives_typed_line:
        settings = hook.read_settings(Path.cwd())
        memory = Memory(prepare_database(settings["db"], is_followed=True))
        asyncio.run(memory.user_rules.state(RULE, by="ann"))
    send(name, event_of(name, "prompt"))


@pytest.mark.parametrize("name", [name for name in TARGETS if name in EVENTS])
def test_there_is_an_example_of_each_event(name: str) -> None:
    events = set(AGENTS[TARGETS[name].agent].events)
    # VS Code has fewer events than Copilot CLI, whose file it reads.
    missing = {"PostToolUseFailure", "SessionEnd"} if name == "vscode" else set()
    assert set(EVENTS[name]) == events - missing


@pytest.mark.parametrize(("name", "event"), CASES)
def test_each_event_is_answered_in_the_documented_shape(
    name: str, event: str, send: Send
) -> None:
    if kind_of(name, event) != "start":
        say_rule(send, name)
    if kind_of(name, event) == "model":
        assert send(name, "BeforeTool") is None
    answer = send(name, event)

    schema = SCHEMAS[name].get(event)
    if answer is not None:
        assert schema is not None
        jsonschema.validate(answer, schema)
    agent = AGENTS[TARGETS[name].agent]
    kind = kind_of(name, event)
    if kind in ("before", "model") and "before" in agent.takes and not agent.courier:
        assert RULE in json.dumps(answer)


@pytest.mark.parametrize("name", EVENTS)
def test_what_cannot_be_said_before_a_call_is_said_after_it(
    name: str, send: Send
) -> None:
    agent = AGENTS[TARGETS[name].agent]
    say_rule(send, name)
    send(name, event_of(name, "before"))
    after = send(name, event_of(name, "after"))
    is_after = "after" in agent.takes and "before" not in agent.takes
    assert (after is not None and RULE in json.dumps(after)) == is_after


@pytest.mark.parametrize("name", EVENTS)
def test_a_call_is_denied_only_if_the_settings_ask_for_it(
    name: str, send: Send
) -> None:
    say_rule(send, name)
    answer = send(name, event_of(name, "before"), {"deny": True})
    jsonschema.validate(answer, SCHEMAS[name]["deny"])
    assert RULE in json.dumps(answer)


@pytest.mark.parametrize("name", [name for name in EVENTS if event_of(name, "stop")])
def test_a_failing_command_holds_up_the_end_of_a_turn(name: str, send: Send) -> None:
    event = event_of(name, "stop")
    answer = send(name, event, {"stop": ["echo broken; false"]})
    jsonschema.validate(answer, SCHEMAS[name][event])
    assert "broken" in json.dumps(answer)


def test_what_waits_for_the_model_is_told_once(send: Send) -> None:
    say_rule(send, "gemini-cli")
    assert send("gemini-cli", "BeforeModel") is None
    assert send("gemini-cli", "BeforeTool") is None
    request = send("gemini-cli", "BeforeModel")["hookSpecificOutput"]["llm_request"]
    [old, new] = request["messages"]
    assert old == {"role": "user", "content": RULE}
    assert RULE in new["content"]
    assert send("gemini-cli", "BeforeModel") is None


def test_what_waits_for_the_model_does_not_outlive_its_turn(send: Send) -> None:
    say_rule(send, "gemini-cli")
    send("gemini-cli", "BeforeTool")
    send("gemini-cli", "BeforeAgent")
    assert send("gemini-cli", "BeforeModel") is None


def test_a_prompt_that_the_user_did_not_submit_is_no_rule(send: Send) -> None:
    event = dict(EVENTS["qwen-code"]["UserPromptSubmit"])
    del event["submitted_prompt"]
    patched = {**EVENTS["qwen-code"], "UserPromptSubmit": event}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EVENTS, "qwen-code", patched)
        send("qwen-code", "UserPromptSubmit")
    assert send("qwen-code", "PreToolUse") is None
