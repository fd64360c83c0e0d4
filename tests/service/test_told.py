"""Over HTTP: what a run taught is told, what is kept back says why, and only a key that
may approve says whose words a run has.
"""

from __future__ import annotations

import pytest

from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from heedful.store.keys import KEY_PERMISSIONS
from tests.service.support import Api, Project, problem, read_data

pytestmark = pytest.mark.both_nightly

TASK = "What does the red kettle cost?"
RUN = {
    "events": [
        {"type": "tool_call", "tool": "price", "arguments": {"item": "kettle"}},
        {"type": "tool_response", "error": "Error: no such item"},
        {"type": "tool_call", "tool": "price", "arguments": {"item": "red kettle"}},
        {"type": "tool_response", "content": "41.90"},
    ],
    "outcome": "success",
    "task": TASK,
}
GENERATE = {
    "events": [
        {
            "event_type": "tool_call",
            "tool_name": "price",
            "content": '{"item": "kettle"}',
        },
        {
            "event_type": "tool_response",
            "tool_name": "price",
            "content": "",
            "error": {"message": "Error: no such item", "code": "404"},
        },
    ],
    "outcome": "failure",
    "task_description": TASK,
}


@pytest.fixture
def project(api: Api) -> Project:
    return Project(api, "main", "recall", "write")


def memory_of(api: Api) -> Memory:
    return Memory(api.setup.store, Scope("acme", "main"))


@pytest.mark.parametrize(
    "question",
    [
        pytest.param({"task": TASK}, id="recall"),
        pytest.param({"task": TASK, "form": "text"}, id="recall as text"),
        pytest.param({"task": TASK, "loop": "first"}, id="a loop"),
    ],
)
def test_a_key_without_a_review_cannot_tell_that_something_waits(
    api, project, question
):
    unlike = "The red kettle is in the kitchen, and what does it weigh?"
    api.run(memory_of(api).remember("unlike", "unlike", lesson=unlike))
    empty = project.post("recall", question)
    if "loop" in question:
        question = {**question, "loop": "second"}

    for lesson in (TASK, f"{TASK} Ask."):
        api.run(memory_of(api).remember("price", lesson, origin="outside"))
    waiting = project.post("recall", question)
    assert waiting["silence"] == empty["silence"]
    assert waiting["briefing"] == empty["briefing"]
    reviewer = Project(api, "main", "read", "write")
    answer = reviewer.post("recall", {"task": TASK, "loop": "third"})
    assert "quarantine" in answer["silence"]


def test_a_loop_says_that_something_waits_only_to_who_may_review(api, project):
    api.run(memory_of(api).remember("price", TASK, origin="outside"))
    project.ask("PUT", "loops/first", {"task": TASK})
    project.post("recall", {"task": TASK, "loop": "first"})
    reviewed = Project(api, "main", "read").get("loops/first")["briefing"]
    assert reviewed["waiting"] == 1
    assert [choice["waits"] for choice in reviewed["choices"]] == [True]
    briefing = project.get("loops/first")["briefing"]
    assert briefing["waiting"] == 0
    assert briefing["choices"] == []


def test_a_form_that_has_no_room_for_a_rule_says_so(api, project):
    memory = memory_of(api)
    lesson = f"{TASK} Ask for the colour, too."
    api.run(memory.remember("price", "no price", lesson=lesson))
    answer = project.post("recall", {"task": TASK, "form": "messages"})
    assert answer["messages"] == []
    assert "the loop wants only examples" in answer["silence"]
    answer = project.post("recall", {"task": TASK, "form": "text"})
    assert "Ask for the colour, too." in answer["text"]
    assert answer["silence"] == ""


@pytest.mark.parametrize("may", KEY_PERMISSIONS)
def test_no_body_states_trust(api, may):
    key = api.key(may, "write")
    response = api.post("/v1/episodes", json={**RUN, "trust": "user"}, key=key)
    problem(response, 422, "invalid_request")


def test_the_old_route_names_how_to_state_a_key_from_outside(api):
    key = api.key("recall", "write", outside=True)
    path = "/api/v1/reflections/generate"
    reflection = read_data(api.post(path, json=GENERATE, key=key))
    assert reflection["state"] == "quarantined"
    scope = "HEEDFUL_TENANT=acme HEEDFUL_PROJECT=main"
    source = f"key:{key.split('_')[1]}"
    assert reflection["hint"] == f"{scope} heedful trust {source}"


@pytest.mark.parametrize(
    "may",
    [
        pytest.param(("recall", "write"), id="recall"),
        pytest.param(("read", "write"), id="read"),
    ],
)
def test_an_empty_query_of_the_old_route_lists_what_may_be_told(api, may):
    memory = memory_of(api)
    remembered = api.run(memory.remember("price", "waits", origin="outside"))
    assert remembered.state == "quarantined"
    approver = api.key("read", "write", "approve")
    path = "/api/v1/reflections/generate"
    reflection = read_data(api.post(path, json=GENERATE, key=approver))
    for entry in api.run(memory.quarantine.waiting()):
        if entry.kind != "error":
            api.run(memory.quarantine.release([entry.id], by="ada"))

    records = read_data(
        api.post("/api/v1/reflections/query", json={}, key=api.key(*may))
    )["reflections"]
    ids = {reflection["reflection_id"], reflection["strategy_id"]} - {None}
    assert {record["reflection_id"] for record in records} == ids


NATIVE_QUERY = "/v1/reflections/query"
OLD_QUERY = "/api/v1/reflections/query"


def ask_both(api: Api, key: str, text: str, importance: float) -> list[str]:
    """Return why the two queries have no answer."""
    native = read_data(
        api.post(NATIVE_QUERY, json={"text": text, "importance": importance}, key=key)
    )
    assert native["items"] == []
    old = read_data(
        api.post(
            OLD_QUERY,
            json={"query_text": text, "min_importance": importance},
            key=key,
        )
    )
    assert old["reflections"] == []
    return [native["silence"], old["silence"]]


@pytest.mark.parametrize("text", ["", TASK], ids=["no text", "a text"])
def test_an_empty_query_says_what_keeps_the_nearest_reflection_back(api, text):
    agent = api.key("recall", "write", outside=True)
    reason = "no lesson is about a similar task" if text else "no lesson is stored yet"
    assert ask_both(api, agent, text, 0.5) == [reason, reason]

    reflection = read_data(
        api.post("/api/v1/reflections/generate", json=GENERATE, key=agent)
    )
    # What waits, only who may review is told.
    assert ask_both(api, agent, text, 0.5) == [reason, reason]

    reader = api.key("read")
    for silence in ask_both(api, reader, text, 1.0):
        assert "it does not match the filter" in silence
    answer = read_data(api.post(OLD_QUERY, json={"query_text": text}, key=reader))
    assert answer["reflections"][-1]["reflection_id"] == reflection["reflection_id"]
    assert "silence" not in answer
    assert read_data(api.post(NATIVE_QUERY, json={}, key=reader))["silence"] == ""
