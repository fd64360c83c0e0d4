"""Lists as instruments: facets with counts, orders, totals, and days."""

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from heedful.lessons.lesson import Lesson, Scope
from heedful.lessons.signature import signature
from heedful.store import lessons
from heedful.web import figures
from tests.engines import change_rows
from tests.service.support import read_data
from tests.web.support import Browser, browsing, words_of

SCOPE = Scope("acme", "main")
DAY_SECONDS = 86_400
# id, memory key, model, policy, the checks that failed in each attempt, cost of each.
LOOPS: Sequence[tuple[str, str, str, str, Sequence[list[str]], float]] = (
    ("sql-1", "sql", "small", "default", ([],), 0.002),
    ("sql-2", "sql", "large", "default", (["columns"], []), 0.03),
    ("sql-3", "sql", "small", "thorough", (["runs"], ["runs", "columns"], []), 0.001),
    ("bug-1", "triage", "small", "default", 5 * (["severity"],), 0.002),
    ("bug-2", "triage", "", "default", ([],), 0.0),
    ("ticket", "", "small", "default", (["polite"],), 0.001),
)
both_nightly = pytest.mark.both_nightly


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """A browser on the loops above, signed in with a key that may all."""
    with browsing(tmp_path) as browser:
        browser.open(browser.api._all)
        for id, key, model, policy, attempts, cost in LOOPS:
            body = {
                "task": f"Do {id}",
                "memory_key": key,
                "policy": policy,
            }
            if model:
                body["model"] = model
            read_data(browser.api.put(f"/v1/loops/{id}", json=body), 201)
            for number, checks in enumerate(attempts, 1):
                answer = report(browser, id, number, checks, cost)
                if answer["decision"] != "again":
                    break
        yield browser


def report(
    browser: Browser, id: str, number: int, checks: list[str], cost: float
) -> Any:
    """Report an attempt that failed these checks; return the verdict."""
    findings = [{"check": check, "message": "wrong"} for check in checks]
    findings.append({"check": "style", "message": "long", "level": "note"})
    usage = {
        "calls": 1,
        "prompt_tokens": 100 * number,
        "completion_tokens": 10,
        "cost": cost,
        "seconds": 1.5,
    }
    body = {
        "output": f"{id} {number}",
        "evaluation": {"findings": findings},
        "usage": usage,
    }
    return read_data(browser.api.put(f"/v1/loops/{id}/attempts/{number}", json=body))


def read(browser: Browser, path: str = "/loops", query: str = "") -> Any:
    """Return the data of a page."""
    return browser.get(f"{path}.json{query}").json()


def ids_of(page: Any) -> list[str]:
    """Return the ids of the loops in a list."""
    return [loop["id"] for loop in page["loops"]]


def counts_of(page: Any, name: str) -> dict[str, int]:
    """Return the counts of a facet."""
    for facet in page["facets"]:
        if facet["name"] == name:
            return {value["value"]: value["count"] for value in facet["values"]}
    return {}


@both_nightly
@pytest.mark.parametrize("query", ["", "?key=sql", "?state=passed&model=small"])
def test_a_count_of_a_facet_is_the_number_of_loops_behind_its_link(browser, query):
    page = read(browser, query=query)
    assert page["facets"]
    for facet in page["facets"]:
        for value in facet["values"]:
            path = value["link"].removeprefix("/ui").replace("/loops?", "/loops.json?")
            behind = browser.get(path).json()
            expected = value["count"]
            if value["chosen"]:
                # Its link takes the filter off.
                assert value["value"] not in path
                continue
            assert len(behind["loops"]) == expected, (facet["name"], value["value"])
            assert behind["totals"]["loops"] == expected


@both_nightly
def test_facets_count_errors_of_all_attempts_and_the_rule_that_stopped(browser):
    page = read(browser)
    assert counts_of(page, "check") == {
        "columns": 2,
        "runs": 1,
        "severity": 1,
        "polite": 1,
    }
    assert counts_of(page, "key") == {"sql": 3, "triage": 2, "-": 1}
    assert counts_of(page, "model") == {"small": 4, "large": 1, "-": 1}
    assert counts_of(page, "policy") == {"default": 5, "thorough": 1}
    # The loops without a value come last, even if no other value is as frequent.
    keys = counts_of(read(browser, query="?model=small&policy=default"), "key")
    assert list(keys)[-1] == "-"
    (rule,) = counts_of(page, "rule")
    assert ids_of(read(browser, query=f"?rule={rule}")) == ["bug-1"]
    assert ids_of(read(browser, query="?check=style")) == []
    assert ids_of(read(browser, query="?key=-")) == ["ticket"]


@both_nightly
def test_totals_are_those_of_the_rows_and_of_home(browser):
    page = read(browser)
    home = browser.data("/home")
    for name in ("calls", "tokens", "cost"):
        rows = sum(loop[name] for loop in page["loops"])
        assert page["totals"][name] == pytest.approx(rows)
        assert page["totals"][name] == pytest.approx(home[name])
    assert page["totals"]["loops"] == home["loops"] == len(LOOPS)
    assert page["totals"]["right"] == home["right"]["number"]
    words = words_of(browser.get("/loops?state=passed").text)
    assert "4 loops of 6" in words
    right = home["right"]["number"]
    parts = f"{right} right at the first try {4 - right} solved by a retry"
    assert parts in words
    assert "state passed ×" in words


@both_nightly
@pytest.mark.parametrize(
    ("sort", "first"),
    [
        pytest.param("-cost", "sql-2", id="most cost first"),
        pytest.param("cost", "bug-2", id="least cost first"),
        pytest.param("-attempts", "bug-1", id="most attempts first"),
        pytest.param("-changed", "ticket", id="last change first"),
        pytest.param("-unsolved", "bug-1", id="unsolved first"),
    ],
)
def test_a_list_is_sorted_by_a_column(browser, sort, first):
    page = read(browser, query=f"?sort={sort}")
    assert ids_of(page)[0] == first
    assert sorted(ids_of(page)) == sorted(loop[0] for loop in LOOPS)
    html = browser.get(f"/loops?sort={sort}").text
    order = "descending" if sort[0] == "-" else "ascending"
    assert f'aria-sort="{order}"' in html


@both_nightly
@pytest.mark.parametrize(
    ("query", "allowed"),
    [
        pytest.param(
            "state=done",
            "open, passed, unchecked, not_validated, stopped",
            id="state",
        ),
    ],
)
def test_what_no_loop_can_fit_is_refused_with_what_can(browser, query, allowed):
    answer = browser.get(f"/loops?{query}")
    assert answer.status_code == 422
    assert allowed in words_of(answer.text)
    assert browser.get(f"/loops.json?{query}").status_code == 422


@pytest.mark.parametrize("page", ["loops", "runs", "traces"])
def test_a_list_says_what_of_its_address_it_does_not_read(browser, page):
    assert "This page has no filter q." in words_of(browser.get(f"/{page}?q=x").text)
    assert "has no filter" not in browser.get(f"/{page}").text


def test_an_unknown_order_is_refused(browser):
    assert browser.get("/loops?sort=colour").status_code == 422
    assert browser.get("/lessons?sort=colour").status_code == 422


@both_nightly
def test_orders_and_totals_say_of_which_newest_loops_they_are(browser, monkeypatch):
    monkeypatch.setattr(figures, "MAX_FIGURE_LOOPS", 3)
    page = read(browser, query="?sort=-cost")
    assert set(ids_of(page)) == {"bug-1", "bug-2", "ticket"}
    assert page["window"] == 3
    words = words_of(browser.get("/loops?sort=-cost").text)
    assert "3 loops of the newest 3" in words
    assert "Only the newest 3 are sorted" in words
    assert len(read(browser)["loops"]) == len(LOOPS)


@both_nightly
def test_a_loop_that_was_retried_says_what_failed_before_it_passed(browser):
    words = words_of(browser.get("/loops?state=passed").text)
    assert "columns failed first sql-2 ✓ passed 2" in words
    assert "$0.060" in words


def change_times(browser: Browser, times: dict[str, float]) -> None:
    """Let loops have changed last at these times."""
    store = browser.api.setup.store

    def change(db: Any, scope: Scope) -> None:
        for id, updated in times.items():
            db.execute(
                "update loop set updated = :updated "
                "where project = :project and id = :id",
                {"updated": updated, "project": scope.project, "id": id},
            )

    browser.api.run(store.write(SCOPE, change))


@both_nightly
def test_the_list_begins_with_the_last_change_and_goes_on_to_the_first(
    browser, monkeypatch
):
    # Two loops changed at the same time: none is left out or shown twice.
    times = {"sql-1": 5000.5, "sql-2": 3000.0, "sql-3": 4000.0}
    times |= {"bug-1": 3000.0, "bug-2": 1000.25, "ticket": 2000.0}
    change_times(browser, times)
    monkeypatch.setattr("heedful.web.loops.MAX_LIST_ROWS", 2)
    monkeypatch.setattr(figures, "MAX_FIGURE_LOOPS", 3)
    expected = [["sql-1", "sql-3"], ["bug-1", "sql-2"], ["ticket", "bug-2"]]
    assert read_pages(browser, "") == expected
    assert read_pages(browser, "?sort=-changed") == expected

    monkeypatch.setattr(figures, "SEARCH_WINDOWS", (1, 2, 10))
    assert read_pages(browser, "?check=columns")[0] == ["sql-3", "sql-2"]
    monkeypatch.setattr(figures, "SEARCH_WINDOWS", (1,))
    pages = read_pages(browser, "?check=columns")
    assert [id for page in pages for id in page] == ["sql-3", "sql-2"]

    html = browser.get("/loops").text
    assert 'aria-sort="descending"><a' in html
    assert "changed <span" in html
    assert browser.get("/loops?cursor=x").status_code == 422


@both_nightly
def test_a_search_lists_what_began_last_first_and_say_so(browser):
    change_times(browser, {"sql-1": 5000.0, "sql-2": 3000.0, "sql-3": 4000.0})
    for query in ("?text=sql-", "?key=sql&sort=-began"):
        assert ids_of(read(browser, query=query)) == ["sql-3", "sql-2", "sql-1"]
        assert "began <span" in browser.get(f"/loops{query}").text


@both_nightly
def test_pages_of_an_order_follow_each_other(browser, monkeypatch):
    monkeypatch.setattr("heedful.web.loops.MAX_LIST_ROWS", 4)
    first = read(browser, query="?sort=-cost")
    second = read(browser, query=first["next"])
    assert len(first["loops"]) == 4
    assert len(second["loops"]) == 2
    assert not second["next"]
    assert set(ids_of(first)).isdisjoint(ids_of(second))


def test_two_long_memory_keys_with_the_same_end_are_told_apart(browser):
    for folder in ("with", "without"):
        key = f"changelog.commits.{folder}_a_hint.commit_line"
        body = {"task": "x", "memory_key": key}
        read_data(browser.api.put(f"/v1/loops/{folder}", json=body), 201)
    page = browser.get("/loops").text
    assert "<span>…g.commits.with_a_hint.commit_line</span>" in page
    assert "<span>…ommits.without_a_hint.commit_line</span>" in page


@both_nightly
def test_a_loop_that_changed_is_counted_again(browser):
    before = read(browser)["totals"]
    report(browser, "ticket", 2, [], 0.5)
    after = read(browser)["totals"]
    assert after["passed"] == before["passed"] + 1
    assert after["cost"] == pytest.approx(before["cost"] + 0.5)


@both_nightly
@pytest.mark.parametrize(
    "query",
    [
        pytest.param("", id="all loops"),
        pytest.param("?check=columns", id="a check of old loops"),
        pytest.param("?rule=echo", id="a rule of an old loop"),
        pytest.param("?check=polite", id="a check of the newest loop"),
        pytest.param("?key=sql&check=runs", id="a key and a check"),
        pytest.param("?text=sql&check=columns", id="a text and a check"),
    ],
)
def test_a_search_that_looks_at_few_loops_first_finds_the_same(
    browser, monkeypatch, query
):
    monkeypatch.setattr("heedful.web.loops.MAX_LIST_ROWS", 2)
    monkeypatch.setattr(figures, "SEARCH_WINDOWS", (figures.MAX_SEARCHED_LOOPS,))
    pages = read_pages(browser, query)

    monkeypatch.setattr(figures, "SEARCH_WINDOWS", (1, figures.MAX_SEARCHED_LOOPS))
    assert read_pages(browser, query) == pages


def read_pages(browser: Browser, query: str) -> list[list[str]]:
    """Return the ids on each page of a list, to its end."""
    page = read(browser, query=query)
    pages = [ids_of(page)]
    while page["cursor"]:
        separator = "&" if query else "?"
        page = read(browser, query=f"{query}{separator}cursor={page['cursor']}")
        pages.append(ids_of(page))
    return pages


@both_nightly
def test_all_projects_are_listed_in_order(browser):
    setup = browser.api.setup
    lesson = Lesson(
        "error",
        signature("E", "no unit"),
        error_type="E",
        text="Name the unit.",
        sighting="no unit",
    )
    places = [Scope("acme", name) for name in ("zebra", "Alpha", "beta", "\u00e9mile")]
    for scope in [*places, Scope("other", "hidden")]:
        browser.api.run(setup.store.write(scope, lessons.upsert, [lesson], time.time()))

    scopes = browser.api.run(setup.store.read(SCOPE, lessons.projects))
    names = [scope.project for scope in scopes]
    assert names == ["Alpha", "beta", "main", "zebra", "\u00e9mile"]


@both_nightly
def test_a_search_narrows_facets_and_totals(browser):
    page = read(browser, query="?text=sql-")
    assert page["totals"]["loops"] == 3
    assert counts_of(page, "model") == {"small": 2, "large": 1}


def test_notes_are_a_facet_and_a_mark(browser):
    note = "Ask again <b>tomorrow</b>"
    assert browser.do("note", id="sql-2", text=note) == "The note is saved."
    page = read(browser)
    assert counts_of(page, "notes") == {"with": 1}
    assert ids_of(read(browser, query="?notes=with")) == ["sql-2"]
    assert "1 note" in browser.get("/loops?notes=with").text
    loop = browser.get("/loops/sql-2")
    assert "Ask again &lt;b&gt;tomorrow" in loop.text
    (written,) = read(browser, "/loops/sql-2")["notes"]
    assert written == read_data(browser.api.get("/v1/loops/sql-2"))["notes"][0]
    assert written["text"] == note


def test_who_may_not_write_is_offered_no_note(browser):
    browser.open(browser.api.key("read"))
    assert "Write a note" not in browser.get("/loops/sql-2").text


@both_nightly
def test_traces_are_found_by_their_task_and_say_how_long_they_took(browser):
    for task in ("Übersetze den Satz", "Fix the build"):
        events = [
            {
                "type": "tool_call",
                "tool": "sh",
                "arguments": {"command": task},
                "at": 5,
            },
            {"type": "tool_response", "tool": "sh", "content": "x", "at": 9},
        ]
        body = {"events": events, "outcome": "error", "task": task}
        read_data(browser.api.post("/v1/episodes", json=body), 202)

    (trace,) = read(browser, "/traces", "?text=übersetze")["episodes"]
    assert trace["task"] == "Übersetze den Satz"
    # A call and its response are one step, as on the page of the trace.
    assert trace["steps"] == 1
    assert trace["seconds"] == 4
    assert trace["lessons"] == 0
    assert trace["began"] == 5
    assert read(browser, "/traces", "?text=nothing")["episodes"] == []
    browser.open(browser.api.key("recall"))
    assert browser.get("/traces?text=build").status_code == 403


def test_the_rows_of_loops_have_the_hour_of_today_and_the_date_before(browser):
    change_rows(browser.api.setup.store.url, "update loop set updated = 0 where n = 1")
    page = browser.get("/loops").text
    assert re.search(r' title="20[^"]*">\d\d:\d\d UTC</time>', page)
    assert '">1970-01-01</time>' in page
    assert page.count('class="stopped"') == 1
