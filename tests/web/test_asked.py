"""Recall answers what was meant: words of a lesson, a type, a finding, an action."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from typing import Any
from urllib.parse import quote_plus

import pytest

from heedful.episodes.episode import Episode, Event
from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from heedful.memory.sessions import learn_session
from tests.service.support import read_data
from tests.web.support import Browser, browsing, one_line, words_of

WORDS = "Wait two seconds between two calls of the search API."
LESSON = {
    "error_type": "RateLimit",
    "text": "429 slow down",
    "lesson": WORDS,
}
WRONG = {
    "check": "unit",
    "message": "'12' has no unit",
    "key": "no unit",
    "fix": "kg",
}


@pytest.fixture
def browser(tmp_path):
    with browsing(tmp_path) as browser:
        yield browser.open(browser.api._all)


def ask(browser: Browser, kind: str, text: str) -> dict[str, Any]:
    """Return what recall answers to a question."""
    answer = browser.data(f"/recall?kind={kind}&text={quote_plus(text)}")["answer"]
    return dict(answer)


def learn_unit(
    browser: Browser, name: str = "first", wrong: Mapping[str, Any] = WRONG
) -> None:
    """Let a loop fail with a check and then pass."""
    body = {
        "task": "measure it",
        "policy": "default",
        "memory_key": "k",
    }
    read_data(browser.api.put(f"/v1/loops/{name}", json=body), 201)
    for number, findings in enumerate(([wrong], []), 1):
        report = {
            "output": f"{number} kg",
            "evaluation": {"findings": findings},
        }
        path = f"/v1/loops/{name}/attempts/{number}"
        read_data(browser.api.put(path, json=report))


def calls(*commands: tuple[str, str]) -> list[Event]:
    """Return the events of calls, each a command with its error."""
    events = []
    for number, (command, error) in enumerate(commands):
        name = f"c{number}"
        events += [
            Event("tool_call", tool="Bash", arguments={"command": command}, call=name),
            Event(
                "tool_response",
                tool="Bash",
                content=error or "ok",
                error=error,
                call=name,
            ),
        ]
    return events


def teach_calls(browser: Browser, sessions: int) -> None:
    """Let sessions end in which npm refused an option."""
    memory = Memory(browser.api.setup.store, Scope("acme", "main"))
    refused = "npm error: unknown option '--frozen'"
    events = calls(("npm ci --frozen", refused), ("npm ci", ""))
    for number in range(sessions):
        episode = Episode(
            task="Install",
            events=tuple(events),
            outcome="success",
            session=f"s{number}",
        )
        browser.api.run(learn_session(episode, memory=memory))


@pytest.mark.both_nightly
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(WORDS, "these are the words of lesson 1", id="words of a lesson"),
        pytest.param(
            WORDS[:40], "these are the words of lesson 1", id="a part of its words"
        ),
        pytest.param("RateLimit", "RateLimit is a type of error", id="a type of error"),
        pytest.param(
            "requests.RateLimit: something else",
            "RateLimit is a type of error",
            id="an exception of this type with another text",
        ),
    ],
)
def test_what_is_no_error_leads_to_the_error(
    browser: Browser, text: str, sentence: str
):
    read_data(browser.api.post("/v1/reflections", json=LESSON), 201)
    answer = ask(browser, "error", text)
    assert answer["sentence"].startswith(f"Nothing would be shown: {sentence}")
    (lesson,) = answer["meant"]
    assert ask(browser, "error", lesson["ask"])["count"] == 1

    page = one_line(browser.get(f"/recall?kind=error&text={quote_plus(text)}").text)
    (link,) = re.findall(r'class="button main" href="([^"]*)"', page)
    again = browser.get(unescape(link).removeprefix("/ui")).text
    assert "1 lesson would be shown: this error was seen 1 time" in words_of(again)


@pytest.mark.both_nightly
def test_the_name_of_a_check_leads_to_its_lesson(browser: Browser):
    learn_unit(browser)
    answer = ask(browser, "error", "unit")
    assert answer["sentence"].startswith("Nothing would be shown: unit is a check")
    (lesson,) = answer["meant"]
    assert ask(browser, "error", lesson["ask"])["count"] == 1


@pytest.mark.both_nightly
def test_a_finding_counts_under_every_check_that_found_it(browser: Browser):
    learn_unit(browser)
    learn_unit(browser, name="second", wrong={**WRONG, "key": "other words"})
    learn_unit(browser, name="third", wrong={**WRONG, "key": "other words"})
    answer = ask(browser, "error", WRONG["message"])
    assert answer["count"] == 3
    assert [lesson["seen"] for lesson in answer["lessons"]] == [1, 2]
    assert answer["similar"] == []
    assert answer["sentence"].startswith(
        "2 lessons would be shown: this error was seen 3 times"
    )

    memory = Memory(browser.api.setup.store, Scope("acme", "main"))
    assert browser.api.run(memory.seen(WRONG["message"])).count == 3


def test_a_lesson_has_the_same_state_in_recall_as_in_the_list(browser: Browser):
    memory = Memory(browser.api.setup.store, Scope("acme", "main"))
    browser.api.run(memory.remember("RateLimit", "slow down", lesson="Wait."))
    (lesson,) = ask(browser, "error", "RateLimit: slow down")["lessons"]
    (listed,) = browser.data("/lessons")["lessons"]
    assert lesson["state"] == listed["state"] == "unverified"


def test_a_type_of_which_all_waits_names_the_texts(browser: Browser):
    memory = Memory(browser.api.setup.store, Scope("acme", "main"))
    work = memory.remember(
        "DriverError",
        "it is too old",
        lesson="Update it.",
        trust="outside",
    )
    browser.api.run(work)
    data = browser.data("/recall?kind=error&text=DriverError")
    assert "waits for a review" in data["answer"]["sentence"]
    assert [text["text"] for text in data["waiting"]] == ["Update it."]

    browser.open(browser.api.key("recall"))
    data = browser.data("/recall?kind=error&text=DriverError")
    assert data["waiting"] == []
    assert "DriverError" not in data["answer"]["sentence"]


@pytest.mark.both_nightly
def test_an_action_is_found_as_a_command_and_as_a_trace_has_it(browser: Browser):
    teach_calls(browser, 3)
    spellings = (
        "npm ci --frozen",
        "Bash: npm ci --frozen",
        "Bash(npm ci --frozen)",
        'Bash {"command": "npm ci --frozen"}',
    )
    for spelling in spellings:
        answer = ask(browser, "action", spelling)
        assert answer["sentence"] == "1 warning would be shown before this runs"
    page = words_of(browser.get("/recall?kind=action&text=npm+ci+--frozen").text)
    assert "--frozen with npm failed in 3 sessions and has not worked since" in page


@pytest.mark.both_nightly
def test_an_unknown_action_names_the_nearest_and_one_that_is_known(browser: Browser):
    teach_calls(browser, 3)
    answer = ask(browser, "action", "pnpm install --frozen")
    assert "the command `pnpm install --frozen`" in answer["searched"]
    nearest = answer["nearest"][0]
    assert nearest["history"] == "failed in 3 runs"
    assert nearest["why"] == "this action does not have it"
    assert ask(browser, "action", answer["example"])["failures"]


def test_a_failure_that_is_not_sure_says_why_it_is_not_told(browser: Browser):
    memory = Memory(browser.api.setup.store, Scope("acme", "main"))
    missing = "make: *** No rule to make target 'lint'.  Stop."
    for number, error in enumerate((missing, "", "", "")):
        events = tuple(calls(("make lint", error)))
        episode = Episode(
            task="Lint", events=events, outcome="success", session=f"s{number}"
        )
        browser.api.run(learn_session(episode, memory=memory))
    answer = ask(browser, "action", "make lint")
    assert not answer.get("failures")
    assert "has worked since" in answer["nearest"][0]["why"]
    assert answer["example"] == ""


def test_a_rule_of_a_user_is_a_warning(browser: Browser):
    memory = Memory(browser.api.setup.store, Scope("acme", "main"))
    browser.api.run(memory.user_rules.state("we use pnpm, never npm", by="ann"))
    page = words_of(browser.get("/recall?kind=action&text=npm+install+zod").text)
    assert "1 warning would be shown" in page
    assert "we use pnpm, never npm" in page


@pytest.mark.both_nightly
def test_a_trace_with_the_action_is_named(browser: Browser):
    event = {
        "type": "tool_call",
        "tool": "sh",
        "arguments": {"command": "make zqw-0"},
    }
    run = {
        "task": "Build",
        "events": [event],
        "outcome": "error",
        "id": "run 0",
    }
    read_data(browser.api.post("/v1/episodes", json=run), 202)
    (trace,) = ask(browser, "action", "make zqw-0")["traces"]
    assert trace["name"] == "run 0"
    page = browser.get("/recall?kind=action&text=make+zqw-0").text
    assert f"/ui/traces/{trace['digest'][:32]}" in page
    assert "memory has learnt of no action that failed" in words_of(page)

    browser.open(browser.api.key("recall"))
    assert ask(browser, "action", "make zqw-0")["traces"] == []


def test_without_a_question_the_page_offers_some_that_have_answers(browser: Browser):
    assert browser.data("/recall")["tries"] == []
    learn_unit(browser)
    teach_calls(browser, 3)
    tries = {one["kind"]: one["text"] for one in browser.data("/recall")["tries"]}
    assert set(tries) == {"task", "error", "action"}
    assert tries["task"] == "measure it"
    answer = ask(browser, "error", tries["error"])
    assert answer["count"] == 1, "the error is what a check found"
    assert answer["prompt"]
    assert ask(browser, "action", tries["action"])["failures"]
