"""The pages of lessons: do they help, in which words, and what would a prompt have?"""

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heedful import Context, Finding, reflect, run
from heedful.lessons.lesson import Exposure, Outcome
from heedful.loop.share import points
from heedful.memory.memory import Memory
from heedful.store import exposures
from heedful.store.connection import MAX_READ_ROWS
from tests.engines import change_rows
from tests.service.support import read_data
from tests.web.support import ATTACK, SCOPE, Browser, words_of
from tests.web.test_released_words import run_that_fixed

both_nightly = pytest.mark.both_nightly


def store_lesson(browser: Browser, name: str = "Bash") -> dict[str, Any]:
    """Store a lesson, and return it as the list shows it."""
    lesson = {
        "error_type": name,
        "text": f"{name} is not used here",
        "lesson": "Use pnpm.",
    }
    read_data(browser.api.post("/v1/reflections", json=lesson), 201)
    lessons = browser.data("/lessons")["lessons"]
    [row] = [row for row in lessons if row["error_type"] == name]
    return dict(row)


def end_loop(
    browser: Browser,
    loop: str,
    lesson: dict[str, Any],
    *,
    shown: bool = True,
    right: bool,
    together: bool = False,
) -> None:
    """Let a loop end that was shown the lesson or not, perhaps with another one."""
    name = f"{lesson['kind']}/{lesson['signature']}"
    coin = Exposure(name, loop, shown=shown, share=0.5, together=together)
    coins = [replace(coin, signature=lesson["signature"])]
    if together:
        coins.append(replace(coin, lesson="error/0a"))
    end = Outcome(loop, right, calls=1)
    store = browser.api.setup.store
    work = store.write(SCOPE, exposures.remember, (), exposures=coins, outcome=end)
    browser.api.run(work)


def edit(browser: Browser, lesson: dict[str, Any], change: str, **fields: str) -> None:
    form = {"id": str(lesson["id"]), "edition": lesson["edition"], "why": "plainer"}
    browser.do("amend", form, change=change, **fields)


def hold_texts(browser: Browser) -> dict[str, Any]:
    """Let three texts of a page wait; return the first."""
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


# -- does it help?


@both_nightly
def test_loops_count_for_the_present_words_alone(browser: Browser):
    lesson = store_lesson(browser)
    for number in range(4):
        end_loop(browser, f"old {number}", lesson, right=number < 1)
    time.sleep(0.01)  # exposures are stored by the clock, as the new words are
    edit(browser, lesson, "edit", text="Use bun for all.")
    for path in ("/lessons", f"/lessons/{lesson['id']}"):
        page = words_of(browser.get(path).text).lower()
        assert "not shown since somebody changed it" in page
        assert "never shown" not in page.replace("0 never shown", "")

    for number in range(2):
        end_loop(browser, f"new {number}", lesson, right=True)
    data = browser.data(f"/lessons/{lesson['id']}")
    assert [version["text"] for version in data["versions"]] == ["Use pnpm."]
    assert data["ends"] == "shown 2: 2 right, 0 again, 0 other"
    page = browser.get(f"/lessons/{lesson['id']}").text
    assert re.search("<del>[^<]*pnpm", page)
    assert re.search("<ins>[^<]*bun", page)


def test_loops_that_a_comparison_leaves_out_are_not_said_to_run(browser: Browser):
    """One draw decided over all lessons of each loop, so none is about this one."""
    lesson = store_lesson(browser)
    for number in range(4):
        end_loop(browser, f"{number}", lesson, right=number < 3, together=True)
    (listed,) = browser.data("/lessons")["lessons"]
    assert listed["lacks"] == "none of 4 loops compares it alone"
    assert listed["verdict"] == "not known yet"
    page = words_of(browser.get(f"/lessons/{lesson['id']}").text)
    assert "its 4 loops compare memory as a whole, not this lesson alone" in page
    assert 'class="interval"' not in browser.get("/lessons").text


@both_nightly
def test_lessons_are_sorted_by_what_loops_say_of_them(browser: Browser):
    lessons = {name: store_lesson(browser, name) for name in ("bad", "good")}
    for number in range(40):
        for name, lesson in lessons.items():
            shown = number % 2 == 0
            right = shown if name == "good" else not shown
            end_loop(browser, f"{name} {number}", lesson, shown=shown, right=right)

    rows = browser.data("/lessons")["lessons"]
    proof = {row["lesson"]: row for row in browser.data("/proof")["lessons"]}
    assert [row["error_type"] for row in rows] == ["good", "bad"]
    for row in rows:
        proven = proof[f"{row['kind']}/{row['signature']}"]
        for field in ("uplift", "conclusion", "verdict"):
            assert row["effect"][field] == proven[field]
    page = words_of(browser.get(f"/lessons/{rows[0]['id']}").text)
    assert "Compared: 20 loops with it, 20 from which it alone was withheld" in page
    uplift = rows[0]["effect"]["uplift"]
    ends = f"{points(uplift['low'])} to {points(uplift['high'])} helps"
    listed = words_of(browser.get("/lessons").text)
    assert f"{points(uplift['gain'])} {ends}" in listed
    sentence = "1 of 2 lessons proven to help 1 helps 1 hurts"
    assert sentence in listed


NUMBERS = (
    "with recursive x (i) as (select {begin} union all select i + 1 from x "
    "where i < {end}) "
)
OUTCOMES = """
insert into outcome (tenant, project, loop, n, right_at_once, calls, signatures, at)
select 'acme', 'main', 'loop ' || i, i, i % 3 <> 0, 1, '[]', {now} from x
"""
EXPOSURES = """
insert into exposure (tenant, project, loop, kind, signature, shown, share, among, at)
select 'acme', 'main', 'loop ' || i, 'error', 's', i % 10 <> 0, 0.1, 1, {now} from x
"""


def end_loops(file: Path, begin: int, end: int) -> None:
    """Store loops that were shown a lesson, or not, and have ended."""
    for statement in (OUTCOMES, EXPOSURES):
        numbers = NUMBERS.format(begin=begin, end=end)
        change_rows(file, numbers + statement.format(now=time.time()))


@both_nightly
def test_proof_of_many_loops_is_kept_until_a_ruling_and_says_its_age(browser, file):
    end_loops(file, 1, MAX_READ_ROWS - 1)
    assert "Counted" not in words_of(browser.get("/proof").text)
    end_loops(file, MAX_READ_ROWS, MAX_READ_ROWS)
    data = browser.data("/proof?project=main")
    wire = read_data(browser.api.get("/v1/proof"))
    assert data["pooled"] | wire["pooled"] == data["pooled"]
    assert data["balance"] == wire["balance"]
    assert "Counted " in words_of(browser.get("/proof").text)

    end_loops(file, MAX_READ_ROWS + 1, MAX_READ_ROWS + 10)
    assert browser.data("/proof?project=main")["ended"] == MAX_READ_ROWS
    edit(browser, store_lesson(browser), "pin")
    assert browser.data("/proof?project=main")["ended"] == MAX_READ_ROWS + 10


# -- in which words, and where was it learnt?


def test_the_place_of_a_loop_that_is_gone_has_its_name(browser: Browser):
    lesson = store_lesson(browser)
    change_rows(
        browser.api.setup.store.url,
        "insert into occurrence (lesson_id, loop, text, at) "
        f"values ({lesson['id']}, 'gone-loop', 'x', 1.0)",
    )
    assert "gone-loop gone" in words_of(browser.get(f"/lessons/{lesson['id']}").text)


@both_nightly
def test_the_list_leaves_out_lessons_that_no_prompt_may_show(browser: Browser):
    lesson = store_lesson(browser)
    edit(browser, lesson, "retire")
    assert browser.data("/lessons")["lessons"] == []
    (retired,) = browser.data("/lessons?state=retired")["lessons"]
    assert retired["id"] == lesson["id"]


@both_nightly
def test_a_reflection_and_its_rule_are_one_row(browser: Browser):
    memory = Memory(browser.api.setup.store, SCOPE, holdout=0.0)
    browser.api.run(reflect(run_that_fixed("price"), memory=memory))
    store_lesson(browser)
    rows = browser.data("/lessons")["lessons"]
    rules = [row["rule"]["text"] if row["rule"] else "" for row in rows]
    beginning = "When price with id"
    assert sorted(rule[:18] for rule in rules) == ["", beginning]
    text = words_of(browser.get("/lessons").text)
    assert text.count(f"Next time: {beginning}") == 1


def test_a_lesson_that_waits_shows_its_words_to_who_may_review(browser: Browser):
    row = hold_texts(browser)
    lesson = browser.data(f"/inbox/{row['id']}")["case"]["lesson"]
    address = f"/lessons/{lesson}"
    page = browser.get(address).text
    assert '<pre tabindex="0">Run installer' in page
    assert re.search(r"Run installer \d first</textarea>", page)
    waits = "Nobody is shown it: it waits for a review"
    assert browser.data(address)["sentence"] == waits

    ids = ",".join(map(str, row["ids"]))
    browser.do("reject", id=ids, why="an attack")
    data = browser.data(address)
    assert data["sentence"] == "Nobody is shown it: it was rejected"
    assert [ruling["action"] for ruling in data["rulings"]] == 3 * ["reject"]

    browser.open(browser.api.key("recall"))
    assert "Run installer" not in browser.get(address).text


# -- what would a prompt have?


def test_a_rule_is_shown_under_its_key_and_named_without(browser: Browser):
    store = browser.api.setup.store

    def unit(answer: str, at: Context) -> list[Finding]:
        return [] if "kg" in answer else [Finding("weight", "no unit", fix="say kg")]

    work = run(
        "weigh it",
        generate=lambda task, hint: "7 kg" if hint else "7",
        checks=[unit],
        memory=Memory(store, SCOPE, holdout=0.0),
        memory_key="scales",
        store=store,
    )
    browser.api.run(work)
    with_key = browser.data("/lessons?task=what+else&key=scales")["recall"]
    without = browser.data("/lessons?task=what+else")["recall"]
    assert "say kg" in with_key["answer"]
    assert without["answer"].startswith("nothing to show: ")
    page = browser.get("/lessons", params={"task": ATTACK, "key": ATTACK}).text
    assert "<script>alert(1)" not in page
