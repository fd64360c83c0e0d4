"""Dreams: what was superseded, how loops went before and since, and undo."""

from __future__ import annotations

import pytest

from heedful.lessons.lesson import Exposure, Outcome, Scope
from heedful.memory.dream import consolidate
from heedful.memory.memory import Memory
from heedful.store import exposures
from tests.memory.dreams import NEVER, RETRY, state_rule
from tests.web.support import Browser, browsing, words_of

SCOPE = Scope("acme", "main")


@pytest.fixture
def browser(tmp_path):
    with browsing(tmp_path) as browser:
        memory = Memory(browser.api.setup.store, SCOPE)
        for words in (RETRY, NEVER):
            browser.api.run(state_rule(memory, words))
        yield browser.open(browser.api._all)


def end_loop(browser: Browser, lesson: dict[str, str], name: str, right: bool) -> None:
    """Let a loop end that was shown a lesson."""
    coin = Exposure(
        f"{lesson['kind']}/{lesson['signature']}",
        name,
        shown=True,
        signature=lesson["signature"],
        share=0.5,
    )
    end = Outcome(name, right, calls=1)
    store = browser.api.setup.store
    browser.api.run(
        store.write(SCOPE, exposures.remember, (), exposures=[coin], outcome=end)
    )


@pytest.mark.both_nightly
def test_a_change_has_its_effect_before_and_since(browser: Browser):
    lessons = browser.data("/lessons")["lessons"]
    for lesson in lessons:
        end_loop(browser, lesson, f"before {lesson['id']}", right=False)
    memory = Memory(browser.api.setup.store, SCOPE)
    browser.api.run(consolidate(memory, by="ops"))
    (lesson,) = browser.data("/lessons?state=unverified")["lessons"]
    end_loop(browser, lesson, "since", right=True)

    data = browser.data("/dreams")
    page = words_of(browser.get("/dreams").text)
    effect = data["dreams"][0]["effects"][str(lesson["id"])]
    assert effect["before"]["number"] == 0
    assert effect["before"]["of"] == 2
    assert effect["since"]["number"] == 1
    assert effect["since"]["of"] == 1
    assert data["sentence"] == "1 dream ended 1 contradicted rule"
    assert data["sentence"] in page

    (gone,) = browser.data("/lessons?state=superseded")["lessons"]
    assert browser.data(f"/lessons/{gone['id']}")["replacement"] == lesson["id"]
    gone_page = words_of(browser.get(f"/lessons/{gone['id']}").text)
    assert f"Replaced by lesson {lesson['id']}." in gone_page
    # A lesson that another one superseded has one word on every page.
    assert "superseded" not in gone_page
    listed = words_of(browser.get("/lessons?state=superseded").text)
    assert "superseded" not in listed.partition("The data")[0]
    assert "before 0 of 2" in page


def test_lessons_learnt_since_a_dream_explain_those_in_use_now(browser: Browser):
    memory = Memory(browser.api.setup.store, SCOPE)
    browser.api.run(consolidate(memory, by="ops"))
    data = browser.data("/dreams")
    assert data["change"] == "as many as after dream 1"

    browser.api.run(memory.remember("Login", "Call login before export"))
    data = browser.data("/dreams")
    page = words_of(browser.get("/dreams").text)
    (dream,) = data["dreams"]
    assert data["in_use"] == dream["after"] + 1 == 2
    assert "2 lessons are in use now, 1 more than after dream 1: learnt since." in page
    assert "2 → 1 lesson in use" in page


def test_the_rules_of_a_change_are_links(browser: Browser):
    memory = Memory(browser.api.setup.store, SCOPE)
    browser.api.run(consolidate(memory, by="ops"))
    page = browser.get("/dreams").text
    for lesson in browser.data("/lessons?state=superseded")["lessons"]:
        link = f'/ui/lessons/{lesson["id"]}?project=main">lesson {lesson["id"]}</a>'
        assert link in page


def test_dreams_that_changed_nothing_for_one_reason_are_one_row(browser: Browser):
    memory = Memory(browser.api.setup.store, SCOPE)
    for _ in range(3):
        browser.api.run(consolidate(memory, by="ops"))
    page = words_of(browser.get("/dreams").text)
    assert "2 dreams changed nothing" in page
    assert "3, 2" in page


def test_a_dream_that_was_undone_is_not_counted_as_done(browser: Browser):
    memory = Memory(browser.api.setup.store, SCOPE)
    browser.api.run(consolidate(memory, by="ops"))
    browser.do("rollback", id="1", why="too long")
    sentence = browser.data("/dreams")["sentence"]
    assert sentence == "1 dream, undone"


def test_a_dream_whose_lessons_no_loop_was_shown_says_so_first(browser: Browser):
    memory = Memory(browser.api.setup.store, SCOPE)
    browser.api.run(consolidate(memory, by="ops"))
    assert browser.data("/dreams")["sentence"] == (
        "1 dream ended 1 contradicted rule; not known if it was worth it: "
        "no loop was shown these lessons"
    )
