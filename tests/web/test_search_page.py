"""The page of a search: what it finds in each list, how much, and where."""

from __future__ import annotations

import pytest

from heedful import Pipeline
from tests.service.support import read_data
from tests.web.support import Browser, browsing, words_of
from tests.web.test_search import SCOPE, store_loop

pytestmark = pytest.mark.both_nightly


@pytest.fixture
def browser(tmp_path):
    with browsing(tmp_path) as browser:
        yield browser.open(browser.api._all)


def store_trace(browser: Browser, task: str) -> None:
    event = {"type": "failure", "text": "exit 1"}
    body = {"task": task, "events": [event], "outcome": "error"}
    read_data(browser.api.post("/v1/episodes", json=body), 202)


def remember_fix(
    browser: Browser, message: str, fix: str, loop: str = "taught"
) -> None:
    """Let a loop fail once and then pass, which teaches a lesson."""
    read_data(browser.api.put(f"/v1/loops/{loop}", json={"task": "Sum"}), 201)
    finding = {"check": "currency", "message": message, "fix": fix}
    for number, findings in enumerate(([finding], []), 1):
        body = {"output": f"{number}", "evaluation": {"findings": findings}}
        read_data(browser.api.put(f"/v1/loops/{loop}/attempts/{number}", json=body))


def test_one_search_finds_loops_lessons_and_traces(browser):
    store_loop(browser, "a", "Bill Ada for the ferry")
    store_loop(browser, "b", "Bill Bob", output="the ferry was late")
    remember_fix(browser, "no currency on the ferry", "write EUR after the amount")
    store_trace(browser, "Book a ferry to Kiel")
    answer = browser.data("/search?text=ferry&project=main")
    assert {loop["id"] for loop in answer["loops"]["rows"]} == {"taught", "b", "a"}
    assert answer["loops"]["number"] == 3
    assert answer["lessons"]["number"] == 1
    assert answer["traces"]["number"] == 1
    page = browser.get("/search?text=ferry&project=main").text
    words = words_of(page)
    assert (
        words.index("Loops task")
        < words.index("Lessons lesson")
        < words.index("Traces run")
    )
    assert '<mark class="hit">ferry</mark> was late' in page
    assert 'Book a <mark class="hit">ferry</mark> to Kiel' in page
    assert "failed first: currency" in words


@pytest.mark.parametrize(
    "miss",
    [
        pytest.param("loops task, answers, findings, id", id="loops"),
        pytest.param(
            "lessons words, error, example, number; only those in use", id="lessons"
        ),
        pytest.param(
            "quarantine text and its error; whole words only",
            id="held texts",
        ),
        pytest.param(
            "traces task, name, id of the newest 1,000; not their steps",
            id="traces",
        ),
        pytest.param("runs name, id of the newest 1,000", id="runs"),
    ],
)
def test_a_search_without_hits_names_each_kind_that_has_none(browser, miss):
    words = words_of(browser.get("/search?text=zebra&project=main").text)
    assert "Nothing has this text." in words
    assert miss in words


def test_a_kind_with_hits_is_not_said_to_have_none(browser):
    store_loop(browser, "a", "Bill Ada for the ferry")
    words = words_of(browser.get("/search?text=ferry&project=main").text)
    assert "1 loop." in words
    assert "loops task, answers" not in words
    assert "Not found in lessons, quarantine, traces, runs" in words


def test_ids_are_found_by_any_part_of_six_characters(browser):
    store_loop(browser, "be1f2960-77aa", "task")
    store_trace(browser, "Book a ferry to Kiel")
    (trace,) = browser.data("/traces?project=main")["episodes"]

    for part in ("1f2960", "60-77aa", "BE1F2960"):
        answer = browser.data(f"/search?text={part}&project=main")
        assert [loop["id"] for loop in answer["loops"]["rows"]] == ["be1f2960-77aa"]
    answer = browser.data(f"/search?text={trace['digest'][20:30]}&project=main")
    assert [row["digest"] for row in answer["traces"]["rows"]] == [trace["digest"]]
    answer = browser.data("/search?text=1f29&project=main")
    assert answer["loops"]["rows"] == [], "few characters are in many ids"


def test_a_lesson_is_found_by_its_number(browser):
    remember_fix(browser, "no currency", "write EUR after the amount")
    for text in ("1", "lesson+1"):
        answer = browser.data(f"/search?text={text}&project=main")
        assert [lesson["id"] for lesson in answer["lessons"]["rows"]] == [1]


def test_a_miss_says_what_to_try_next(browser):
    page = browser.get("/search?text=purple+zebra&project=main").text
    assert "search one of its words: purple, zebra" in words_of(page)
    assert 'href="/ui/search?project=main&amp;text=zebra"' in page
    assert 'href="/ui/recall?project=main&amp;text=purple+zebra"' in page


def test_a_long_memory_key_is_shown_by_its_end_and_whole_as_a_title(browser):
    key = "company.department.billing.invoices.reminders.write_reminder"
    body = {"task": "Bill Ada for the ferry", "memory_key": key}
    read_data(browser.api.put("/v1/loops/keyed", json=body), 201)
    page = browser.get("/search?text=ferry&project=main").text
    assert f'title="{key}">…' in page
    assert "write_reminder</td>" in page
    read_data(browser.api.put("/v1/loops/again", json=body), 201)
    assert f'title="{key}">…' in browser.get("/loops").text


def test_a_check_that_is_found_is_shown_with_its_message(browser):
    remember_fix(browser, "no currency", "write EUR after the amount")
    page = browser.get("/search?text=currency&project=main").text
    hit = '<mark class="hit">currency</mark>'
    assert f"in a finding: {hit} · currency: no currency" in page


def test_a_lesson_counts_where_only_its_example_has_the_text(browser):
    remember_fix(browser, "no currency", "write EUR after the amount")
    # A part of the task's word, which no search by meaning knows.
    answer = browser.data("/search?text=um&project=main")
    assert answer["lessons"]["number"] == 1
    (lesson,) = answer["lessons"]["rows"]
    assert lesson["in_example"]
    page = browser.get("/search?text=um&project=main").text
    assert 'found in its example: S<mark class="hit">um<' in page


def test_words_around_a_hit_keep_their_capitals(browser):
    store_loop(browser, "a", "Bill Bob", output="Ann Lee took\nthe FERRY to Kiel")
    page = browser.get("/search?text=ferry&project=main").text
    assert 'Ann Lee took the <mark class="hit">FERRY</mark> to Kiel' in page


def test_a_key_that_only_recalls_finds_no_trace(browser):
    store_trace(browser, "Book a ferry to Kiel")
    browser.open(browser.api.key("recall"))
    words = words_of(browser.get("/search?text=ferry&project=main").text)
    assert "Kiel" not in words
    assert "traces your key may not see their tasks" in words


def test_a_lesson_says_its_words_and_when_it_applies(browser):
    remember_fix(browser, "no currency", "write EUR after the amount")
    (lesson,) = browser.data("/lessons?project=main")["lessons"]
    assert lesson["text"] == "no currency. write EUR after the amount"
    words = words_of(browser.get("/lessons?project=main").text)
    assert lesson["text"] in words
    assert "check currency" in words
    page = browser.get(f"/lessons/{lesson['id']}?project=main").text
    assert f"<h1>{lesson['text']}</h1>" in page
    assert "when the check currency fails" in words_of(page)


def test_a_search_counts_all_loops_that_it_finds(browser):
    for number in range(12):
        store_loop(browser, f"loop {number}", f"Bill {number} for the ferry")
    loops = browser.data("/search?text=ferry&project=main")["loops"]
    words = words_of(browser.get("/search?text=ferry&project=main").text)

    assert loops["number"] == 12
    assert len(loops["rows"]) == 10
    assert "Loops 10 of 12" in words


def test_a_lesson_that_was_found_by_its_example_shows_the_hit(browser):
    remember_fix(browser, "no currency", "write EUR after the amount")
    (lesson,) = browser.data("/search?text=sum&project=main")["lessons"]["rows"]
    page = browser.get("/search?text=sum&project=main").text
    assert lesson["found"] == "Sum"
    assert 'found in its example: <mark class="hit">Sum</mark>' in page


def test_all_lessons_with_an_example_that_has_the_text_are_found(browser):
    for name in ("amber", "basil", "cedar"):
        remember_fix(browser, f"{name} lacks", f"write {name} after it", loop=name)
    lessons = browser.data("/search?text=Sum&project=main")["lessons"]
    assert lessons["number"] == 3
    assert {row["found"] for row in lessons["rows"]} == {"Sum"}
    # A name of a field of the record is no word of an example.
    assert browser.data("/search?text=rejected&project=main")["lessons"]["number"] == 0


def hold_text(browser):
    """Send a lesson of a tool, which waits in quarantine."""
    lesson = {
        "error_type": "Timeout",
        "text": "the ferry was late",
        "lesson": "take the ferry at noon",
        "source": "a tool",
    }
    key = browser.api.key("write", outside=True)
    read_data(browser.api.post("/v1/reflections", json=lesson, key=key), 201)


def test_held_texts_are_found_by_reviewers_only(browser):
    hold_text(browser)
    address = "/search?text=ferry&project=main"
    waiting = browser.data(address)["waiting"]
    page = browser.get(address).text
    assert waiting["number"] == 1
    assert f"/quarantine/{waiting['rows'][0]['id']}?" in page
    assert 'take the <mark class="hit">ferry</mark> at noon' in page

    of_error = browser.data("/search?text=late&project=main")["waiting"]
    (row,) = of_error["rows"]
    assert row["text"] == "take the ferry at noon"
    assert row["found"] == "the ferry was late"

    browser.open(browser.api.key("recall"))
    assert browser.data(address)["waiting"] is None
    assert "at noon" not in browser.get(address).text


def test_runs_are_found_by_their_pipeline_and_their_id(browser):
    store = browser.api.setup.store
    pipeline = Pipeline("Nightly ferry", store=store, scope=SCOPE, progress=False)
    pipeline.stage(name="load")(lambda state: {"rows": 7})
    run = browser.api.run(pipeline.run({})).run
    for text in ("FERRY", run):
        answer = browser.data("/search", params={"text": text, "project": "main"})
        assert [row["id"] for row in answer["runs"]["rows"]] == [run], text


def test_a_held_text_without_the_words_is_not_found(browser):
    hold_text(browser)
    page = browser.get("/search?text=ferry+harbour&project=main").text
    assert "take the ferry at noon" not in words_of(page)
    assert "quarantine text and its error" in words_of(page)
    assert "not their steps" in words_of(page)


def test_a_trace_is_found_by_its_name_and_by_the_beginning_of_its_id(browser):
    event = {"type": "failure", "text": "exit 1"}
    body = {"task": "Book", "events": [event], "outcome": "error", "id": "Night 7"}
    read_data(browser.api.post("/v1/episodes", json=body), 202)
    (trace,) = browser.data("/search?text=night+7&project=main")["traces"]["rows"]
    begin = trace["digest"][:8]
    traces = browser.data(f"/search?text={begin}&project=main")["traces"]
    assert [row["digest"] for row in traces["rows"]] == [trace["digest"]]
    assert browser.data(f"/search?text={begin[:7]}~&project=main")["traces"] == {
        "rows": [],
        "number": 0,
        "more": False,
    }


def test_a_search_lists_all_lessons_in_use_that_have_the_text(browser):
    for word in ("ferry", "ferryman", "FERRYBOAT"):
        lesson = {
            "error_type": "Late",
            "text": f"the {word} left at noon",
            "lesson": f"Ask the {word} first.",
        }
        read_data(browser.api.post("/v1/reflections", json=lesson), 201)
    lessons = browser.data("/search?text=ferry&project=main")["lessons"]
    assert lessons["number"] == 3
    texts = {row["text"] for row in lessons["rows"]}
    assert texts == {f"Ask the {w} first." for w in ("ferry", "ferryman", "FERRYBOAT")}
    words = words_of(browser.get("/search?q=ferry&project=main").text)
    assert "3 lessons." in words
