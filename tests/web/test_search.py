"""A search for loops finds every language, in tasks, outputs and findings."""

from collections.abc import Mapping

import pytest

from heedful.lessons.lesson import Scope
from heedful.store import loop_texts
from tests.service.support import read_data
from tests.web.support import Browser

pytestmark = pytest.mark.both_nightly
TASKS = {
    "german": "Übersetze den Satz über Äpfel",
    "hindi": "इस वाक्य का अनुवाद करें",
    "japanese": "この文を翻訳してください",
    "arabic": "ترجم هذه الجملة",
    "quoted": 'say "hello" twice',
}


def store_loop(
    browser: Browser,
    id: str,
    task: str,
    output: object = "none",
    message: str = "wrong",
) -> None:
    """Store a loop with one attempt, and a finding with a message about it."""
    read_data(browser.api.put(f"/v1/loops/{id}", json={"task": task}), 201)
    finding = {"check": "ruff", "message": message}
    body = {"output": output, "evaluation": {"findings": [finding]}}
    read_data(browser.api.put(f"/v1/loops/{id}/attempts/1", json=body))


def find(browser: Browser, text: str) -> list[str]:
    """Return the ids of the loops that a search finds."""
    return ids(browser, {"text": text})


def ids(browser: Browser, params: Mapping[str, str]) -> list[str]:
    """Return the ids in the list with these filters."""
    answer = browser.data("/loops", params={**params, "project": "main"})
    return [loop["id"] for loop in answer["loops"]]


@pytest.mark.parametrize(
    ("text", "id"),
    [
        pytest.param("übersetze", "german", id="German in lower case"),
        pytest.param("अनुवाद", "hindi", id="Hindi"),
        pytest.param("翻訳", "japanese", id="Japanese"),
        pytest.param('"hello"', "quoted", id="quotes"),
    ],
)
def test_a_task_is_found_in_its_language(browser: Browser, text: str, id: str):
    for name, task in TASKS.items():
        store_loop(browser, name, task)

    assert find(browser, text) == [id]


def test_outputs_and_findings_are_searched(browser: Browser):
    message = "D103 Missing docstring, größer"
    store_loop(browser, "one", "task", output="a cosmic ray", message=message)
    store_loop(browser, "two", "task", output="select o.customer", message="wrong")

    assert find(browser, "Cosmic Ray") == ["one"]
    assert find(browser, "o.customer") == ["two"]
    assert find(browser, "d103") == ["one"]
    assert find(browser, "Größer") == ["one"]


def test_a_search_continues_with_older_loops(browser: Browser, monkeypatch):
    monkeypatch.setattr(loop_texts, "SEARCH_BATCH_LOOPS", 2)
    monkeypatch.setattr(loop_texts, "MAX_SEARCH_SECONDS", 0.01)
    for number in range(5):
        store_loop(browser, f"loop{number}", "same")

    ids: list[str] = []
    page = browser.data("/loops", params={"text": "same"})
    while page["loops"]:
        ids += [loop["id"] for loop in page["loops"]]
        if not page["next"]:
            break
        page = browser.get(f"/loops.json{page['next']}").json()
    assert ids == [f"loop{number}" for number in reversed(range(5))]


HOSTILE = [
    pytest.param('"', id="a quote"),
    pytest.param("NEAR(one two)", id="NEAR of FTS5"),
    pytest.param("' or 1=1 --", id="SQL"),
    pytest.param("%_%", id="patterns of LIKE"),
    pytest.param("a\0b", id="NUL"),
    pytest.param("x" * 6_000, id="6,000 letters"),
    pytest.param("\\u00e9", id="an escape of JSON"),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_query_is_a_text_and_no_syntax(browser: Browser, text: str):
    store_loop(browser, "plain", "say a")
    store_loop(browser, "same", f"say {text}")
    query = loop_texts.fold(text)

    params = {"text": text, "project": "main"}
    page = browser.get("/loops.json", params=params)

    assert page.status_code == 200
    expected = ["same"]
    if not query:
        expected = ["same", "plain"]
    assert [loop["id"] for loop in page.json()["loops"]] == expected


def test_another_project_finds_nothing(browser: Browser):
    store_loop(browser, "one", "task")
    assert find(browser, "task") == ["one"]

    store = browser.api.setup.store
    for scope in (Scope("acme", "other"), Scope("other", "main")):
        matches = browser.api.run(store.read(scope, loop_texts.search_loops, "task"))
        assert matches == loop_texts.LoopMatches((), oldest=0)


def test_an_id_is_found_by_its_beginning_and_no_digest_by_chance(browser: Browser):
    store_loop(browser, "be1f2960", "task")
    attempt = read_data(browser.api.get("/v1/loops/be1f2960"))["made"][0]

    assert find(browser, "be1f") == ["be1f2960"]
    assert find(browser, "1f29") == []
    assert find(browser, attempt["digest"][:8]) == []


def test_a_hit_shows_where_the_words_were_found(browser: Browser):
    store_loop(browser, "report", "Sum up", "The Disk of db-2 was full")
    store_loop(browser, "disk", "Buy a disk", "none")
    rows = browser.data("/loops?text=disk")["loops"]
    snippets = {row["id"]: row["found"] for row in rows}
    assert snippets["disk"] == ""
    assert "The Disk of db-2 was full" in snippets["report"]
    page = browser.get("/loops?text=disk").text
    assert 'Buy a <mark class="hit">disk</mark>' in page
    assert "/ui/lessons?" in browser.get("/loops?text=nowhere").text


def test_a_hit_in_a_trace_and_in_a_lesson_is_marked_in_the_middle(browser: Browser):
    task = f"{100 * 'long '}the gate was closed{100 * ' later'}"
    events = [{"type": "tool_response", "tool": "sh", "content": "a", "error": "e"}]
    body = {"events": events, "outcome": "error", "task": task}
    read_data(browser.api.post("/v1/episodes", json=body), 202)
    lesson = {"error_type": "Gate", "text": "the gate is shut", "lesson": task}
    read_data(browser.api.post("/v1/reflections", json=lesson), 201)
    for place in ("/work", "/lessons"):
        page = browser.get(f"{place}?text=gate").text
        assert 'the <mark class="hit">gate</mark> was closed later' in page, place


def test_an_id_that_is_typed_into_the_box_of_a_list_opens_its_page(browser: Browser):
    api = browser.api
    store_loop(browser, "be1f2960-77aa", "task")
    store_loop(browser, "report", "sum of be1f2960")
    store_loop(browser, "sum", "count")
    event = {"type": "tool_response", "tool": "sh", "content": "a", "error": "e"}
    read_data(api.post("/v1/episodes", json={"events": [event], "task": "x"}), 202)
    lesson = {"error_type": "Gate", "text": "the gate is shut", "lesson": "open it"}
    read_data(api.post("/v1/reflections", json=lesson), 201)
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
        get = api.run(browser.client.get(f"/ui{path}&project=main"))
        expected = f"/ui{page}?project=main" if page else ""
        assert get.headers.get("location", "") == expected, path
