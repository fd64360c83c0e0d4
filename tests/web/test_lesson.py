"""The page of a lesson: does it help, in which words, and where was it learnt?"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

import pytest

from heedful.lessons.lesson import Exposure, Outcome, Scope
from heedful.memory.memory import Memory
from heedful.store import exposures
from tests.engines import change_rows
from tests.service.support import read_data
from tests.web.support import Browser, words_of

SCOPE = Scope("acme", "main")
LESSON = {"error_type": "Bash", "text": "npm is not used here", "lesson": "Use pnpm."}


def store_lesson(browser: Browser) -> dict[str, Any]:
    """Store a lesson, and return it as the list shows it."""
    read_data(browser.api.post("/v1/reflections", json=LESSON), 201)
    (lesson,) = browser.data("/lessons")["lessons"]
    return dict(lesson)


def show_to_loops(
    browser: Browser,
    lesson: dict[str, Any],
    *,
    right: int,
    wrong: int,
    name: str = "",
    together: bool = False,
) -> None:
    """Let loops end that were shown the lesson, perhaps together with another one."""
    for number in range(right + wrong):
        loop = f"{name}{number}"
        coin = Exposure(
            f"{lesson['kind']}/{lesson['signature']}",
            loop,
            shown=True,
            signature=lesson["signature"],
            share=0.5,
            together=together,
        )
        end = Outcome(loop, number < right, calls=1)
        store = browser.api.setup.store
        coins = [coin]
        if together:
            coins.append(replace(coin, lesson="error/0a"))
        work = store.write(SCOPE, exposures.remember, (), exposures=coins, outcome=end)
        browser.api.run(work)


@pytest.mark.both_nightly
def test_loops_count_for_the_present_words_alone(browser: Browser):
    lesson = store_lesson(browser)
    show_to_loops(browser, lesson, right=1, wrong=3, name="old ")
    time.sleep(0.01)  # exposures are stored by the clock, as the new words are
    form = {"id": str(lesson["id"]), "edition": lesson["edition"], "why": "plainer"}
    browser.do("amend", form, change="edit", text="Use pnpm for all.")
    for path in ("/lessons", f"/lessons/{lesson['id']}"):
        page = words_of(browser.get(path).text).lower()
        assert "not shown since somebody changed it" in page
        assert "never shown" not in page.replace("0 never shown", "")
    show_to_loops(browser, lesson, right=2, wrong=0, name="new ")

    data = browser.data(f"/lessons/{lesson['id']}")
    (version,) = data["versions"]
    assert version["text"] == LESSON["lesson"]
    assert data["ends"] == "shown 2: 2 right, 0 again, 0 other"
    page = words_of(browser.get(f"/lessons/{lesson['id']}").text)
    assert "reworded by" in page


def test_the_place_of_a_loop_that_is_gone_has_its_name(browser: Browser):
    lesson = store_lesson(browser)
    change_rows(
        browser.api.setup.store.url,
        "insert into occurrence (lesson_id, loop, text, at) "
        f"values ({lesson['id']}, 'gone-loop', 'x', 1.0)",
    )
    assert "gone-loop gone" in words_of(browser.get(f"/lessons/{lesson['id']}").text)


def test_a_lesson_that_waits_shows_its_words_and_offers_them_for_an_edit(
    browser: Browser,
):
    work = Memory(browser.api.setup.store, SCOPE).remember(
        "DriverError", "it is too old", lesson="Update the driver.", origin="outside"
    )
    lesson = browser.api.run(work)
    page = browser.get(f"/lessons/{lesson.id}").text
    assert '<pre tabindex="0">Update the driver.</pre>' in page
    assert "Update the driver.</textarea>" in page

    browser.open(browser.api.key("recall"))
    assert "Update the driver." not in browser.get(f"/lessons/{lesson.id}").text


def test_loops_that_a_comparison_leaves_out_are_not_said_to_run(browser: Browser):
    """One draw decided over all lessons of each loop, so none is about this one."""
    lesson = store_lesson(browser)
    show_to_loops(browser, lesson, right=3, wrong=1, together=True)
    (listed,) = browser.data("/lessons")["lessons"]
    assert listed["lacks"] == "none of 4 loops compares it alone"
    assert listed["verdict"] == "not known yet"
    page = words_of(browser.get(f"/lessons/{lesson['id']}").text)
    assert "its 4 loops compare memory as a whole, not this lesson alone" in page


@pytest.mark.both_nightly
def test_the_list_leaves_out_lessons_that_no_prompt_may_show(browser: Browser):
    lesson = store_lesson(browser)
    form = {"id": str(lesson["id"]), "why": "old", "edition": lesson["edition"]}
    browser.do("amend", form, change="retire")
    assert browser.data("/lessons")["lessons"] == []
    (retired,) = browser.data("/lessons?state=retired")["lessons"]
    assert retired["id"] == lesson["id"]


def hold_texts(browser: Browser) -> dict[str, Any]:
    """Let three texts of a page wait."""
    memory = Memory(browser.api.setup.store, SCOPE)
    for number in range(3):
        learnt = memory.remember(
            "PageError",
            "page says to install",
            lesson=f"Run installer {number} first",
            origin="outside",
            source="a page",
        )
        browser.api.run(learnt)
    queue = browser.data("/inbox")["queue"]
    return {"id": queue[0]["id"], "ids": [row["id"] for row in queue]}


def test_a_lesson_whose_texts_were_rejected_does_not_wait(browser: Browser):
    row = hold_texts(browser)
    lesson = browser.data(f"/inbox/{row['id']}")["case"]["lesson"]
    address = f"/lessons/{lesson}"
    data = browser.data(address)
    assert data["sentence"] == "Nobody is shown it: it waits for a review"

    ids = ",".join(map(str, row["ids"]))
    browser.do("reject", id=ids, why="an attack")
    data = browser.data(address)
    page = words_of(browser.get(address).text)
    assert data["sentence"] == "Nobody is shown it: it was rejected"
    assert [ruling["action"] for ruling in data["rulings"]] == 3 * ["reject"]
    assert "waits" not in page


def test_a_new_version_marks_what_came_and_what_went(browser: Browser):
    lesson = store_lesson(browser)
    fields = {"id": str(lesson["id"]), "edition": str(lesson["edition"])}
    browser.do("amend", fields, change="edit", why="x", text="Use bun.")
    page = browser.get(f"/lessons/{lesson['id']}").text
    assert re.search("<del>[^<]*pnpm", page)
    assert re.search("<ins>[^<]*bun", page)
