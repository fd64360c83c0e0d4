"""Lists as instruments: facets with counts, orders, totals, and a search."""

from collections.abc import Sequence
from typing import Any

import pytest

from heedful.lessons.lesson import Scope
from heedful.store import recent
from heedful_server.web import loop_texts
from tests.service.support import read_data, record, right, wrong
from tests.tables import cases
from tests.web.support import SCOPE, Browser, words_of

pytestmark = pytest.mark.both_nightly
NOTE = {"check": "style", "message": "long", "level": "note"}
# id, memory key, model, policy, the checks that failed in each attempt, cost of each.
LOOPS: Sequence[tuple[str, str, str, str, Sequence[list[str]], float]] = (
    ("sql-1", "sql", "small", "default", ([],), 0.002),
    ("sql-2", "sql", "large", "default", (["columns"], []), 0.03),
    ("sql-3", "sql", "small", "thorough", (["runs"], ["runs", "columns"], []), 0.001),
    ("bug-1", "triage", "small", "default", 4 * (["severity"],), 0.002),
    ("bug-2", "triage", "", "default", ([],), 0.0),
    ("ticket", "", "small", "default", (["polite"],), 0.001),
)


@pytest.fixture
def loops(browser: Browser) -> Browser:
    """A browser on the loops above."""
    for id, key, model, policy, attempts, cost in LOOPS:
        reports = []
        for number, checks in enumerate(attempts, 1):
            usage = {"calls": 1, "prompt_tokens": 100 * number, "cost": cost}
            reports.append(wrong(f"{id} {number}", *checks, NOTE, usage=usage))
        head = {"task": f"Do {id}", "memory_key": key, "policy": policy}
        if model:
            head["model"] = model
        record(browser.api, id, *reports, **head)
    return browser


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


@pytest.mark.parametrize("query", ["", "?key=sql", "?state=passed&check=columns"])
def test_a_count_of_a_facet_is_the_number_of_loops_behind_its_link(loops, query):
    page = read(loops, query=query)
    assert page["facets"]
    for facet in page["facets"]:
        if facet["name"] == "sort":
            continue
        for value in facet["values"]:
            path = value["link"].removeprefix("/ui").replace("/loops?", "/loops.json?")
            if value["chosen"]:
                # Its link takes the filter off.
                assert value["value"] not in path
                continue
            behind = loops.get(path).json()
            assert len(behind["loops"]) == value["count"], value["value"]
            assert behind["totals"]["loops"] == value["count"]


def test_facets_count_errors_of_all_attempts_and_who_has_none_comes_last(loops):
    page = read(loops)
    checks = {"columns": 2, "runs": 1, "severity": 1, "polite": 1}
    assert counts_of(page, "check") == checks
    assert list(counts_of(page, "key").items())[-1] == ("-", 1)
    assert ids_of(read(loops, query="?check=style")) == []
    assert ids_of(read(loops, query="?key=-")) == ["ticket"]


def test_totals_are_those_of_the_rows_and_of_home(loops):
    page = read(loops)
    for name in ("calls", "tokens", "cost"):
        rows = sum(loop[name] for loop in page["loops"])
        assert page["totals"][name] == pytest.approx(rows)
    home = loops.data("/home")
    assert page["totals"] == home["totals"]
    assert page["totals"]["loops"] == len(LOOPS)
    words = words_of(loops.get("/loops?state=passed").text)
    assert "4 of 4 loops solved, 2 at the first try" in words
    for row in home["keys"]:
        listed = read(loops, query=f"?key={row['key'] or '-'}")["totals"]
        assert listed["loops"] == row["loops"]
        assert listed["calls"] == row["calls"]


@cases(
    ("sort", "first"),
    {
        "most cost first": ("-cost", "sql-2"),
        "first change first": ("changed", "sql-1"),
        "last change first": ("-changed", "ticket"),
    },
)
def test_a_list_has_an_order(loops, sort, first):
    page = read(loops, query=f"?sort={sort}")
    assert ids_of(page)[0] == first
    assert sorted(ids_of(page)) == sorted(loop[0] for loop in LOOPS)


@cases(
    ("query", "words"),
    {
        "a state": ("state=done", "open, failed, passed, unchecked, not_validated"),
        "an order": ("sort=colour", "This did not work"),
        "a cursor": ("cursor=x", "This did not work"),
    },
)
def test_what_no_list_can_be_asked_is_refused_with_what_can(browser, query, words):
    answer = browser.get(f"/loops?{query}")
    assert answer.status_code == 422
    assert words in words_of(answer.text)
    assert browser.get(f"/loops.json?{query}").status_code == 422


@pytest.mark.parametrize("page", ["loops", "work", "lessons"])
def test_a_list_says_what_of_its_address_it_does_not_read(browser, page):
    assert "This page has no filter q." in words_of(browser.get(f"/{page}?q=x").text)
    assert "has no filter" not in browser.get(f"/{page}").text


def test_a_list_says_of_which_newest_loops_it_is_and_goes_on(loops, monkeypatch):
    monkeypatch.setattr(recent, "MAX_READ_ROWS", 3)
    page = read(loops, query="?sort=-cost")
    assert set(ids_of(page)) == {"bug-1", "bug-2", "ticket"}
    assert "of the newest 3 loops" in words_of(loops.get("/loops").text)
    older = read(loops, query=page["next"])
    assert set(ids_of(older)) == {"sql-1", "sql-2", "sql-3"}
    assert not older["next"]
    assert "of 3 older loops" in words_of(loops.get(f"/loops{page['next']}").text)
    none = words_of(loops.get("/loops?key=sql").text)
    assert "No loop fits of those that were read" in none


def read_pages(browser: Browser, query: str) -> list[list[str]]:
    """Return the ids on each page of a list, to its end."""
    page = read(browser, query=query)
    pages = [ids_of(page)]
    while page["cursor"]:
        separator = "&" if query else "?"
        page = read(browser, query=f"{query}{separator}cursor={page['cursor']}")
        pages.append(ids_of(page))
    return pages


def test_the_list_begins_with_the_last_change_and_goes_on_to_the_first(
    loops, monkeypatch
):
    # Two loops changed at the same time: none is left out or shown twice.
    times = {"sql-1": 5000.5, "sql-2": 3000.0, "sql-3": 4000.0}
    times |= {"bug-1": 3000.0, "bug-2": 1000.25, "ticket": 2000.0}

    def change(db: Any, scope: Scope) -> None:
        for id, at in times.items():
            db.execute(
                "update loop set updated = :updated "
                "where project = :project and id = :id",
                {"updated": at, "project": scope.project, "id": id},
            )

    loops.api.run(loops.api.setup.store.write(SCOPE, change))
    monkeypatch.setattr("heedful_server.web.loop_list.MAX_SHOWN_ROWS", 2)
    expected = [["sql-1", "sql-3"], ["bug-1", "sql-2"], ["ticket", "bug-2"]]
    assert read_pages(loops, "") == expected
    assert read_pages(loops, "?sort=-changed") == expected
    assert read_pages(loops, "?check=columns") == [["sql-3", "sql-2"]]

    # Of two windows of loops, each has its order.
    monkeypatch.setattr(recent, "MAX_READ_ROWS", 3)
    newer = [["bug-1", "ticket"], ["bug-2"]]
    assert read_pages(loops, "") == [*newer, ["sql-1", "sql-3"], ["sql-2"]]


def test_a_note_stands_on_its_loop(browser):
    record(browser.api, "noted")
    note = "Ask again <b>tomorrow</b>"
    assert browser.do("note", id="noted", text=note) == "The note is saved."
    assert "Ask again &lt;b&gt;tomorrow" in browser.get("/loops/noted").text
    (written,) = read(browser, "/loops/noted")["notes"]
    assert written == read_data(browser.api.get("/v1/loops/noted"))["notes"][0]
    assert written["text"] == note


# -- a search


def find(browser: Browser, text: str, **filters: str) -> list[str]:
    """Return the ids of the loops that a search finds."""
    params = {"text": text, "project": "main", **filters}
    return ids_of(browser.data("/loops", params=params))


@cases(
    ("text", "id"),
    {
        "German in lower case": ("übersetze", "german"),
        "Hindi": ("अनुवाद", "hindi"),
        "Japanese": ("翻訳", "japanese"),
        "an output": ("Cosmic Ray", "output"),
        "a text inside an output": ("müller", "data"),
        "a number inside an output": ("4217", "data"),
        "a finding": ("d103", "finding"),
        "a hidden word of FTS5": ("NEAR(one two)", "NEAR(one two)"),
        "SQL": ("' or 1=1 --", "' or 1=1 --"),
        "patterns of LIKE": ("%_%", "%_%"),
        "an escape of JSON": ("\\u00e9", "\\u00e9"),
        "the beginning of an id": ("be1f", "be1f2960"),
    },
)
def test_a_search_finds_every_language_and_is_no_syntax(browser, text: str, id: str):
    finding = {"check": "ruff", "message": "D103 Missing docstring"}
    tasks = {
        "german": "Übersetze den Satz über Äpfel",
        "hindi": "इस वाक्य का अनुवाद करें",
        "japanese": "この文を翻訳してください",
    }
    outputs = {"output": "a cosmic ray", "data": {"names": ["Müller"], "n": 4217}}
    for name, task in tasks.items():
        record(browser.api, name, wrong("none"), task=task)
    for name, output in outputs.items():
        record(browser.api, name, right(output))
    record(browser.api, "finding", wrong("none", finding))
    record(browser.api, "be1f2960")
    if id == text:
        record(browser.api, "hostile", task=f"say {text}")
        id = "hostile"
    assert find(browser, text) == [id]
    assert find(browser, "1f29") == []


def test_a_search_is_of_its_project_and_takes_filters_and_changes(browser):
    for name in ("one", "two"):
        record(browser.api, name, wrong("first answer"), task="the same task")
    passes = right("second answer")
    read_data(browser.api.put("/v1/loops/two/attempts/2", json=passes))
    assert find(browser, "second answer") == ["two"]
    assert find(browser, "same task", state="passed") == ["two"]
    assert find(browser, "same task", check="unit") == ["two", "one"]
    store = browser.api.setup.store
    for scope in (Scope("acme", "other"), Scope("other", "main")):
        matches = browser.api.run(store.read(scope, loop_texts.search_loops, "task", 0))
        assert matches == loop_texts.LoopMatches((), oldest=0)


def test_a_search_continues_with_older_loops(browser: Browser, monkeypatch):
    monkeypatch.setattr(loop_texts, "SEARCH_BATCH_LOOPS", 2)
    monkeypatch.setattr(loop_texts, "MAX_SEARCH_SECONDS", 0.01)
    for number in range(5):
        record(browser.api, f"loop{number}", task="same")
    ids: list[str] = []
    address = "?text=same&project=main"
    while address:
        page = read(browser, query=address)
        ids += ids_of(page)
        address = page["next"] if page["loops"] else ""
    assert ids == [f"loop{number}" for number in reversed(range(5))]


def send_trace(browser: Browser, task: str) -> None:
    events = [{"type": "tool_response", "tool": "sh", "content": "a", "error": "e"}]
    body = {"events": events, "outcome": "error", "task": task}
    read_data(browser.api.post("/v1/episodes", json=body), 202)


def store_lesson(browser: Browser, text: str) -> None:
    lesson = {"error_type": "Gate", "text": "the gate is shut", "lesson": text}
    read_data(browser.api.post("/v1/reflections", json=lesson), 201)


def test_a_hit_shows_where_the_words_were_found(browser: Browser):
    record(browser.api, "report", wrong("The Disk of db-2 was full"), task="Sum up")
    record(browser.api, "disk", wrong("none"), task="Buy a disk")
    rows = browser.data("/loops?text=disk")["loops"]
    snippets = {row["id"]: row["found"] for row in rows}
    assert snippets["disk"] == ""
    assert "The Disk of db-2 was full" in snippets["report"]
    page = browser.get("/loops?text=disk").text
    assert 'Buy a <mark class="hit">disk</mark>' in page

    task = f"{100 * 'long '}the gate was closed{100 * ' later'}"
    send_trace(browser, task)
    store_lesson(browser, task)
    for place in ("/work", "/lessons"):
        page = browser.get(f"{place}?text=gate").text
        assert 'the <mark class="hit">gate</mark> was closed later' in page, place


def test_an_id_that_is_typed_into_the_box_of_a_list_opens_its_page(browser: Browser):
    record(browser.api, "be1f2960-77aa", task="task")
    record(browser.api, "report", task="sum of be1f2960")
    record(browser.api, "sum", task="count")
    send_trace(browser, "x")
    store_lesson(browser, "open it")
    digest = browser.data("/work")["agents"][0]["id"]
    pages = {
        "/loops?text=report": "/loops/report",
        "/loops?text=be1f2960": "/loops/be1f2960-77aa",
        "/loops?text=repor": "",
        "/loops?text=sum": "",
        "/work?text=report": "/loops/report",
        "/lessons?text=1": "/lessons/1",
        "/lessons?text=Lesson+1": "/lessons/1",
        "/lessons?text=2": "",
        f"/work?text={digest[:8]}": f"/traces/{digest}",
        f"/work?text={digest[8:16]}": "",
    }
    for path, page in pages.items():
        get = browser.api.run(browser.client.get(f"/ui{path}&project=main"))
        expected = f"/ui{page}?project=main" if page else ""
        assert get.headers.get("location", "") == expected, path
