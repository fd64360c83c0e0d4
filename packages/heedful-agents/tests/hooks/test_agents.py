"""Each agent: its events are answered in the shape that its documentation asks for, by
the hook process.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from heedful import Memory
from heedful.store.projects import prepare_database
from heedful_agents import hook
from heedful_agents.agents import AGENTS, Kind
from tests.hooks.agent_events import EVENTS, FOLDER, RULE, TYPED_LINE_AGENTS
from tests.hooks.agent_schemas import SCHEMAS
from tests.hooks.support import as_user, call_hook

CASES = [(name, event) for name, events in EVENTS.items() for event in events]


@dataclass(frozen=True, kw_only=True)
class Shop:
    """A project with the hooks of an agent, and the home of its user."""

    folder: Path
    home: Path

    def send(self, name: str, event: str, settings: Mapping[str, Any] = {}) -> Any:
        """Answer an event of an agent as the hook process does, within this process.

        Learning takes no part in these answers.
        """
        data = json.dumps(EVENTS[name][event]).replace(FOLDER, str(self.folder))
        done = call_hook(
            self.folder,
            self.home,
            [event, "--agent", name, "--strict"],
            data.encode(),
            {"HEEDFUL_HOOK": json.dumps(dict(settings))},
            start_work=lambda *_: None,
        )
        assert done.code == 0
        assert done.err == ""
        return json.loads(done.out) if done.out else None

    def say_rule(self, name: str) -> None:
        """Let the user of an agent say the rule, at a terminal if that is needed."""
        if name not in TYPED_LINE_AGENTS:
            with as_user(self.folder, self.home):
                settings = hook.read_settings(self.folder)
                memory = Memory(prepare_database(settings["db"]))
                asyncio.run(memory.user_rules.state(RULE, by="ann"))
        self.send(name, event_of(name, "prompt"))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    folder = tmp_path / "shop"
    home = tmp_path / "home"
    home.mkdir()
    (folder / ".git").mkdir(parents=True)
    return Shop(folder=folder, home=home)


def kind_of(name: str, event: str) -> Kind:
    return AGENTS[name].events[event]


def event_of(name: str, kind: Kind) -> str:
    """Return the event of a kind that the examples of an agent have."""
    events = AGENTS[name].events.items()
    of_kind = [event for event, other in events if other == kind]
    return next((event for event in of_kind if event in EVENTS[name]), "")


@pytest.mark.parametrize(("name", "event"), CASES)
def test_each_event_is_answered_in_the_documented_shape(
    name: str, event: str, shop: Shop
) -> None:
    if kind_of(name, event) != "start":
        shop.say_rule(name)
    answer = shop.send(name, event)

    schema = SCHEMAS[name].get(event)
    if answer is not None:
        assert schema is not None
        jsonschema.validate(answer, schema)
    agent = AGENTS[name]
    kind = kind_of(name, event)
    if kind == "before" and kind in agent.takes and kind not in agent.later:
        assert RULE in json.dumps(answer)


@pytest.mark.parametrize("name", EVENTS)
def test_what_cannot_be_said_before_a_call_is_said_after_it(
    name: str, shop: Shop
) -> None:
    agent = AGENTS[name]
    shop.say_rule(name)
    shop.send(name, event_of(name, "before"))
    after = shop.send(name, event_of(name, "after"))
    is_told_before = "before" in agent.takes and "before" not in agent.later
    is_after = "after" in agent.takes and not is_told_before
    assert (after is not None and RULE in json.dumps(after)) == is_after


@pytest.mark.parametrize("name", EVENTS)
def test_a_call_is_denied_only_if_the_settings_ask_for_it(
    name: str, shop: Shop
) -> None:
    shop.say_rule(name)
    answer = shop.send(name, event_of(name, "before"), {"deny": True})
    jsonschema.validate(answer, SCHEMAS[name]["deny"])
    assert RULE in json.dumps(answer)


@pytest.mark.parametrize("name", [name for name in EVENTS if event_of(name, "stop")])
def test_a_failing_command_holds_up_the_end_of_a_turn(name: str, shop: Shop) -> None:
    event = event_of(name, "stop")
    answer = shop.send(name, event, {"stop": ["echo broken; false"]})
    jsonschema.validate(answer, SCHEMAS[name][event])
    assert "broken" in json.dumps(answer)


def test_a_prompt_that_the_user_did_not_submit_is_no_rule(shop: Shop) -> None:
    event = dict(EVENTS["qwen-code"]["UserPromptSubmit"])
    del event["submitted_prompt"]
    patched = {**EVENTS["qwen-code"], "UserPromptSubmit": event}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EVENTS, "qwen-code", patched)
        shop.send("qwen-code", "UserPromptSubmit")
    assert shop.send("qwen-code", "PreToolUse") is None
