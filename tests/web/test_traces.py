"""Traces say why a reflection failed or taught nothing, and what to do next."""

from __future__ import annotations

import pytest

from heedful import Episode, Event, Memory, Scope, reflect
from heedful.memory.sessions import learn_session
from tests.engines import change_rows
from tests.episodes.runs import ROOT, document, span
from tests.service.support import PROJECT, TENANT, read_data
from tests.web.support import Browser, words_of

EVENT = {"type": "tool_response", "tool": "sh", "content": "x", "error": "x"}
FAIL = "update episode set state = 'failed', error = '{error}' where name = '{name}'"


def fail_reflections(browser: Browser, errors: dict[str, str]) -> None:
    """Store episodes by their names, on which reflections failed with these errors."""
    for name, error in errors.items():
        body = {"events": [EVENT], "outcome": "error", "id": name}
        read_data(browser.api.post("/v1/episodes", json=body), 202)
        statement = FAIL.format(error=error, name=name)
        change_rows(browser.api.setup.store.url, statement)


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        pytest.param(
            "ModelUnavailable: no model answers",
            "Next: set a model if none is set, then heedful worker --once",
            id="no model",
        ),
        pytest.param("away: x", "Next: heedful worker --once", id="another error"),
    ],
)
def test_a_trace_has_the_command_that_reflects_again(
    browser: Browser, error: str, cure: str
):
    fail_reflections(browser, {"a": error})
    (row,) = browser.data("/work")["agents"]
    page = words_of(browser.get(f"/traces/{row['id']}").text)
    assert cure in page


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(
            "error = 'the words left out the cause'",
            "It taught no lesson: the words left out the cause.",
            id="its record says why",
        ),
        pytest.param(
            "name = '', record = '{}'",
            "Its lessons are gone: their source was revoked.",
            id="revoked",
        ),
        pytest.param(
            "tries = 1",
            "No lesson is stored: it taught none, or they are gone since.",
            id="removed",
        ),
    ],
)
def test_a_trace_that_taught_nothing_says_why(browser: Browser, change: str, why: str):
    fail_reflections(browser, {"a": ""})
    statement = f"update episode set state = 'reflected', {change}"
    change_rows(browser.api.setup.store.url, statement)
    (row,) = browser.data("/work")["agents"]
    page = words_of(browser.get(f"/traces/{row['id']}").text)
    assert why in page


def test_what_failed_stands_above_the_list_with_what_put_it_right(browser: Browser):
    events = (
        Event("tool_call", tool="find", arguments={"order": "A17"}),
        Event("tool_response", tool="find", error="no order A17; an id has a dash"),
        Event("tool_call", tool="find", arguments={"order": "A-17"}),
        Event("tool_response", "left on Monday", tool="find"),
    )
    memory = Memory(browser.api.setup.store, Scope(TENANT, PROJECT))
    for task in ("Where is A17?", "Where is my order A17?"):
        run = Episode(events, "success", task=task)
        browser.api.run(reflect(run, memory=memory))
    [failure] = browser.data("/work")["failures"]
    assert failure["error"] == "no order A17; an id has a dash"
    assert failure["fixed_by"] == "the same call with order “A-17”"
    assert failure["runs"] == 2
    assert failure["told"] == "will be"
    assert "the same call with order" in words_of(browser.get("/work").text)


def learn(browser: Browser, session: str, task: str, parts: int) -> None:
    """Learn a session of a coding agent several times while it grows."""
    memory = Memory(browser.api.setup.store, Scope(TENANT, PROJECT))
    events = [Event("user_message", task)]
    for number in range(parts):
        command = {"command": f"pip install x{number}"}
        events += [
            Event("tool_call", tool="Bash", arguments=command),
            Event("tool_response", tool="Bash", error=f"externally managed {number}"),
        ]
        run = Episode(tuple(events), "success", task=task, session=session)
        browser.api.run(learn_session(run, memory=memory))


@pytest.mark.both_nightly
def test_a_session_is_one_row_with_its_prompt(browser: Browser):
    learn(browser, "5f3a-1", "Fix the cart", parts=3)
    learn(browser, "5f3a-2", "Add a button", parts=1)
    button, cart = browser.data("/work")["agents"]
    assert button["words"] == "Add a button"
    assert button["parts"] == 1
    assert cart["parts"] == 3
    assert cart["words"] == "Fix the cart"
    assert browser.data("/traces/5f3a-1")["digest"] == cart["id"]
    (match,) = browser.data("/work?text=BUTTON")["agents"]
    assert match["id"] == button["id"]
    browser.open(browser.api.key("recall"))
    assert "Add a button" not in browser.get("/work").text


def test_the_list_says_how_many_spans_were_not_understood(browser: Browser):
    assert "not understood" not in words_of(browser.get("/work").text)
    unknown = span(ROOT, "", "GET /", (0, 1), {"http.request.method": "GET"})
    read_data(browser.api.post("/v1/traces", json=document([unknown])))
    page = words_of(browser.get("/work").text)
    assert "Of 1 span, 1 not understood, last" in page
