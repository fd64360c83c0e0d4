"""Over HTTP: what a run taught is told, what is kept back says why, and only a key that
may approve says whose words a run has.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from heedful.errors import ModelUnavailable
from heedful.lessons.lesson import Scope
from heedful.lessons.trust import own_trust
from heedful.memory.memory import Memory
from heedful.models.contract import Model
from heedful.models.function import Function
from heedful.service.jobs import TASKS, Tools
from heedful.store.exposures import rulings
from heedful.store.keys import KEY_PERMISSIONS
from heedful.testing import ScriptedModel
from tests.service.support import Api, Project, problem, read_data

pytestmark = pytest.mark.both

TASK = "What does the red kettle cost?"
RULE = (
    "When price `kettle` fails with “Error: no such item”, call price `red kettle` "
    "instead."
)
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
            "content": "",
            "metadata": {"arguments": {"item": "kettle"}},
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


def reflect_on(api: Api, digest: str, model: Model | None = None) -> None:
    """Do the job that reflects on a run."""
    tools = Tools(store=api.setup.store, model=model)
    work: Any = TASKS["reflect"].run(tools, Scope("acme", "main"), digest=digest)
    api.run(work)


def memory_of(api: Api) -> Memory:
    return Memory(api.setup.store, Scope("acme", "main"))


@pytest.mark.parametrize("outcome", ["success", "partial", "failure"])
def test_a_run_that_mended_itself_is_told_once_its_words_are_stated(
    api, project, outcome
):
    sent = project.post("episodes", {**RUN, "outcome": outcome}, 202)
    assert "send trust=operator with a key that may approve" in sent["hint"]
    assert "heedful trust set tool:price measured --waiting" in sent["hint"]
    assert "heedful trust set user operator --waiting" in sent["hint"]
    reflect_on(api, sent["digest"])

    silent = project.post("recall", {"task": TASK})
    assert silent["items"] == []
    assert "it waits in quarantine with the trust" in silent["silence"]
    assert "heedful quarantine release" in silent["silence"]
    assert "no such item" not in str(silent)

    memory = memory_of(api)
    [key] = [name for name in sent["hint"].split() if name.startswith("key:")]
    for source in ("tool:price", "user", key):
        api.run(memory.set_trust(source, own_trust(source), by="ada", waiting=True))
    answer = project.post("recall", {"task": TASK, "form": "text"})
    assert answer["items"][0]["lesson"] == RULE
    assert RULE in answer["text"]
    assert answer["silence"] == ""


ANSWER = {
    "reflection": "The price of the kettle failed with Error: no such item, and the "
    "price of the red kettle was 41.90.",
    "strategy": "When price of the kettle answers no such item, call price with the "
    "red kettle.",
}
EMPTY_ANSWER = {"reflection": "Be careful.", "strategy": "Check your work."}


def state_trust_of(api: Api, hint: str) -> None:
    """State the trust of all sources that the hint names, as its commands do."""
    memory = memory_of(api)
    [key] = [name for name in hint.split() if name.startswith("key:")]
    for source in ("tool:price", "user", key):
        api.run(memory.set_trust(source, own_trust(source), by="ada", waiting=True))


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(None, id="before the reflection"),
        pytest.param(ANSWER, id="while the model answers"),
        pytest.param(EMPTY_ANSWER, id="while the model writes what is refused"),
    ],
)
def test_trust_that_is_stated_before_the_lesson_is_stored_counts(api, project, answer):
    sent = project.post("episodes", RUN, 202)
    if answer is None:
        state_trust_of(api, sent["hint"])
        reflect_on(api, sent["digest"])
    else:
        memory = memory_of(api)
        [key] = [name for name in sent["hint"].split() if name.startswith("key:")]

        async def answer_late(messages: Any) -> str:
            for source in ("tool:price", "user", key):
                level = own_trust(source)
                await memory.set_trust(source, level, by="ada", waiting=True)
            return json.dumps(answer)

        reflect_on(api, sent["digest"], Function(answer_late))

    recalled = project.post("recall", {"task": TASK, "form": "text"})
    assert recalled["silence"] == ""
    assert "red kettle" in recalled["text"]


@pytest.mark.parametrize(
    "order",
    [
        pytest.param("reflect vouch state", id="before the tool is stated"),
        pytest.param("reflect state vouch", id="after the tool is stated"),
        pytest.param("vouch state reflect", id="before the reflection"),
        pytest.param("state vouch reflect", id="after the tool, before the reflection"),
    ],
)
def test_a_run_that_is_sent_again_as_the_operators_is_trusted(api, project, order):
    sent = project.post("episodes", RUN, 202)
    approver = api.key("write", "approve", projects=[project.name])
    path = "/v1/episodes?trust=operator"
    for step in order.split():
        if step == "reflect":
            reflect_on(api, sent["digest"])
        elif step == "vouch":
            for _ in range(2):
                again = api.post(path, json=RUN, key=approver).json()
                assert "heedful trust set user" not in again["hint"]
        else:
            released_ids = api.run(
                memory_of(api).set_trust("tool:price", "measured", by="b", waiting=True)
            )
            assert bool(released_ids) == (order == "reflect vouch state")

    recalled = project.post("recall", {"task": TASK, "form": "text"})
    assert recalled["silence"] == ""
    assert RULE in recalled["text"]
    stated = api.run(memory_of(api).stated_trust())
    assert stated[f"episode:{sent['digest'][:16]}"] == "operator"
    rows = api.run(memory_of(api).store.read(Scope("acme", "main"), rulings, 9))
    assert [row for row in rows if row["action"] == "trust"]


def test_the_rules_lesson_is_stored_before_a_model_is_asked(api, project):
    sent = project.post("episodes", RUN, 202)
    state_trust_of(api, sent["hint"])
    down = ScriptedModel(ModelUnavailable("no answer"), forever=True)
    with pytest.raises(ModelUnavailable):
        reflect_on(api, sent["digest"], down)
    assert len(down.prompts) == 1
    assert RULE in project.post("recall", {"task": TASK, "form": "text"})["text"]

    good = ScriptedModel(json.dumps(ANSWER))
    reflect_on(api, sent["digest"], good)
    assert len(good.prompts) == 1
    [lesson] = project.post("recall", {"task": TASK})["items"]
    assert lesson["lesson"] == ANSWER["strategy"]


def test_a_form_that_has_no_room_for_a_rule_says_so(api, project):
    memory = memory_of(api)
    lesson = f"{TASK} Ask for the colour, too."
    api.run(memory.remember("price", "no price", lesson=lesson))
    answer = project.post("recall", {"task": TASK, "form": "messages"})
    assert answer["messages"] == []
    assert "only examples are asked for" in answer["silence"]
    answer = project.post("recall", {"task": TASK, "form": "text"})
    assert "Ask for the colour, too." in answer["text"]
    assert answer["silence"] == ""


def test_a_loop_that_is_told_nothing_says_why(project):
    answer = project.post("recall", {"task": TASK, "loop": "loop-1"})
    assert "no lesson is about a similar task" in answer["silence"]


@pytest.mark.parametrize("may", KEY_PERMISSIONS)
@pytest.mark.parametrize("path", ["episodes", "traces"])
def test_only_a_key_that_may_approve_states_trust(api, may, path):
    body = RUN if path == "episodes" else {"resourceSpans": []}
    key = api.key(may, *({"write"} if may == "approve" else ()))
    response = api.post(f"/v1/{path}?trust=operator", json=body, key=key)
    if may == "approve":
        assert response.status_code in (200, 202)
    else:
        problem(response, 403, "forbidden")
        assert api.run(memory_of(api).stated_trust()) == {}


@pytest.mark.parametrize("may", KEY_PERMISSIONS)
def test_no_body_states_trust(api, may):
    key = api.key(may, "write")
    response = api.post("/v1/episodes", json={**RUN, "trust": "operator"}, key=key)
    problem(response, 422, "invalid_request")


def test_the_old_route_names_how_to_state_trust(api):
    key = api.key("recall", "write")
    path = "/api/v1/reflections/generate"
    reflection = read_data(api.post(path, json=GENERATE, key=key))
    assert reflection["state"] == "quarantined"
    assert "send trust=operator with a key that may approve" in reflection["hint"]
    assert "heedful trust set tool:price measured --waiting" in reflection["hint"]
    assert "heedful trust set key:" in reflection["hint"]


@pytest.mark.parametrize(
    "may",
    [
        pytest.param(("recall", "write"), id="recall"),
        pytest.param(("read", "write"), id="read"),
    ],
)
def test_an_empty_query_of_the_old_route_lists_what_may_be_told(api, may):
    memory = memory_of(api)
    remembered = api.run(memory.remember("price", "waits", trust="tool"))
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
    ids = {reflection["reflection_id"], reflection["strategy_id"]}
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
    agent = api.key("recall", "write")
    reason = "no lesson is about a similar task" if text else "no lesson is stored yet"
    assert ask_both(api, agent, text, 0.5) == [reason, reason]

    reflection = read_data(
        api.post("/api/v1/reflections/generate", json=GENERATE, key=agent)
    )
    for silence in ask_both(api, agent, text, 0.5):
        assert "it waits in quarantine with the trust tool" in silence
        assert "heedful quarantine release" in silence
        assert "no such item" not in silence

    reader = api.key("read")
    for silence in ask_both(api, reader, text, 1.0):
        assert "and at least 1 is asked for" in silence
    answer = read_data(api.post(OLD_QUERY, json={"query_text": text}, key=reader))
    assert answer["reflections"][-1]["reflection_id"] == reflection["reflection_id"]
    assert "silence" not in answer
    assert read_data(api.post(NATIVE_QUERY, json={}, key=reader))["silence"] == ""


def test_lessons_that_are_no_reflections_are_named_as_such(api):
    api.run(memory_of(api).remember("price", "no price"))
    [answer] = [read_data(api.post(OLD_QUERY, json={}, key=api.key("read")))]
    assert answer["reflections"] == []
    assert "of the kind error, and reflection or strategy is asked" in answer["silence"]
