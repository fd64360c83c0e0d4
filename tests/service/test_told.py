"""Over HTTP: what a run taught is told, what is kept back says why, and only a key that
may approve says whose words a run has.
"""

from __future__ import annotations

import pytest

from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from tests.service.support import Api, Project, read_data
from tests.tables import cases

pytestmark = pytest.mark.both_nightly

TASK = "What does the red kettle cost?"
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


@cases(
    "question",
    {
        "recall": {"task": TASK},
        "recall as text": {"task": TASK, "form": "text"},
        "a loop": {"task": TASK, "loop": "first"},
    },
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
            OLD_QUERY, json={"query_text": text, "min_importance": importance}, key=key
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
