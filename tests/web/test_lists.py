"""Lists as instruments: facets with counts, orders and totals."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from heedful.lessons.lesson import Scope
from heedful.store import recent
from tests.service.support import read_data
from tests.web.support import Browser, browsing, words_of

SCOPE = Scope("acme", "main")
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
            body = {"task": f"Do {id}", "memory_key": key, "policy": policy}
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
@pytest.mark.parametrize("query", ["", "?key=sql", "?state=passed&check=columns"])
def test_a_count_of_a_facet_is_the_number_of_loops_behind_its_link(browser, query):
    page = read(browser, query=query)
    assert page["facets"]
    for facet in page["facets"]:
        if facet["name"] == "sort":
            continue
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
def test_facets_count_errors_of_all_attempts_and_who_has_none_comes_last(browser):
    page = read(browser)
    assert counts_of(page, "check") == {
        "columns": 2,
        "runs": 1,
        "severity": 1,
        "polite": 1,
    }
    assert counts_of(page, "key") == {"sql": 3, "triage": 2, "-": 1}
    assert list(counts_of(page, "key"))[-1] == "-"
    assert ids_of(read(browser, query="?check=style")) == []
    assert ids_of(read(browser, query="?key=-")) == ["ticket"]


@both_nightly
def test_totals_are_those_of_the_rows_and_of_home(browser):
    page = read(browser)
    home = browser.data("/home")
    for name in ("calls", "tokens", "cost"):
        rows = sum(loop[name] for loop in page["loops"])
        assert page["totals"][name] == pytest.approx(rows)
    assert page["totals"] == home["totals"]
    assert page["totals"]["loops"] == len(LOOPS)
    words = words_of(browser.get("/loops?state=passed").text)
    assert "4 of 4 loops solved, 2 at the first try" in words
    assert "2 right at the first try 2 solved by a retry" in words


@both_nightly
@pytest.mark.parametrize(
    ("sort", "first"),
    [
        pytest.param("-cost", "sql-2", id="most cost first"),
        pytest.param("changed", "sql-1", id="first change first"),
        pytest.param("-changed", "ticket", id="last change first"),
    ],
)
def test_a_list_has_an_order(browser, sort, first):
    page = read(browser, query=f"?sort={sort}")
    assert ids_of(page)[0] == first
    assert sorted(ids_of(page)) == sorted(loop[0] for loop in LOOPS)


@both_nightly
@pytest.mark.parametrize(
    ("query", "allowed"),
    [
        pytest.param(
            "state=done", "open, passed, unchecked, not_validated, stopped", id="state"
        )
    ],
)
def test_what_no_loop_can_fit_is_refused_with_what_can(browser, query, allowed):
    answer = browser.get(f"/loops?{query}")
    assert answer.status_code == 422
    assert allowed in words_of(answer.text)
    assert browser.get(f"/loops.json?{query}").status_code == 422


@pytest.mark.parametrize("page", ["loops", "work", "lessons"])
def test_a_list_says_what_of_its_address_it_does_not_read(browser, page):
    assert "This page has no filter q." in words_of(browser.get(f"/{page}?q=x").text)
    assert "has no filter" not in browser.get(f"/{page}").text


def test_an_unknown_order_is_refused(browser):
    assert browser.get("/loops?sort=colour").status_code == 422


@both_nightly
def test_a_list_says_of_which_newest_loops_it_is_and_goes_on(browser, monkeypatch):
    monkeypatch.setattr(recent, "MAX_LOOPS_READ", 3)
    page = read(browser, query="?sort=-cost")
    assert set(ids_of(page)) == {"bug-1", "bug-2", "ticket"}
    assert "of the newest 3 loops" in words_of(browser.get("/loops").text)
    older = read(browser, query=page["next"])
    assert set(ids_of(older)) == {"sql-1", "sql-2", "sql-3"}
    assert not older["next"]
    assert "of 3 older loops" in words_of(browser.get(f"/loops{page['next']}").text)
    none = words_of(browser.get("/loops?key=sql").text)
    assert "No loop fits of those that were read" in none
    assert "Older" in none


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
    monkeypatch.setattr("heedful.web.loops.MAX_PAGE_ROWS", 2)
    expected = [["sql-1", "sql-3"], ["bug-1", "sql-2"], ["ticket", "bug-2"]]
    assert read_pages(browser, "") == expected
    assert read_pages(browser, "?sort=-changed") == expected
    assert read_pages(browser, "?check=columns") == [["sql-3", "sql-2"]]
    assert browser.get("/loops?cursor=x").status_code == 422

    # Of two windows of loops, each has its order.
    monkeypatch.setattr(recent, "MAX_LOOPS_READ", 3)
    newer = [["bug-1", "ticket"], ["bug-2"]]
    assert read_pages(browser, "") == [*newer, ["sql-1", "sql-3"], ["sql-2"]]


def read_pages(browser: Browser, query: str) -> list[list[str]]:
    """Return the ids on each page of a list, to its end."""
    page = read(browser, query=query)
    pages = [ids_of(page)]
    while page["cursor"]:
        separator = "&" if query else "?"
        page = read(browser, query=f"{query}{separator}cursor={page['cursor']}")
        pages.append(ids_of(page))
    return pages


def test_a_note_stands_on_its_loop(browser):
    note = "Ask again <b>tomorrow</b>"
    assert browser.do("note", id="sql-2", text=note) == "The note is saved."
    loop = browser.get("/loops/sql-2")
    assert "Ask again &lt;b&gt;tomorrow" in loop.text
    (written,) = read(browser, "/loops/sql-2")["notes"]
    assert written == read_data(browser.api.get("/v1/loops/sql-2"))["notes"][0]
    assert written["text"] == note


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

    (trace,) = read(browser, "/work", "?text=übersetze")["agents"]
    assert trace["words"] == "Übersetze den Satz"
    # A call and its response are one step, as on the page of the trace.
    assert trace["number"] == 1
    assert trace["seconds"] == 4
    assert trace["at"] == 5
    assert read(browser, "/work", "?text=nothing")["agents"] == []
    browser.open(browser.api.key("recall"))
    assert read(browser, "/work", "?text=build")["agents"] == []
