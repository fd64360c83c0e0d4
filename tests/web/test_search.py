"""A search for loops finds every language, in tasks, outputs and findings."""

import pytest

from tests.service.support import read_data
from tests.web.support import Browser, browsing

pytestmark = pytest.mark.both
TASKS = {
    "german": "Übersetze den Satz über Äpfel",
    "hindi": "इस वाक्य का अनुवाद करें",
    "japanese": "この文を翻訳してください",
    "arabic": "ترجم هذه الجملة",
    "quoted": 'say "hello" twice',
}


@pytest.fixture
def browser(tmp_path):
    with browsing(tmp_path) as browser:
        yield browser.open(browser.api._all)


def store_loop(browser: Browser, id: str, task: str, output: str, message: str) -> None:
    read_data(browser.api.put(f"/v1/loops/{id}", json={"task": task}), 201)
    finding = {"check": "ruff", "message": message}
    body = {"output": output, "evaluation": {"findings": [finding]}}
    read_data(browser.api.put(f"/v1/loops/{id}/attempts/1", json=body))


def find(browser: Browser, text: str) -> list[str]:
    """Return the ids of the loops that a search finds."""
    answer = browser.get("/loops.json", params={"text": text}).json()
    return [loop["id"] for loop in answer["loops"]]


@pytest.mark.parametrize(
    ("text", "id"),
    [
        pytest.param("Übersetze", "german", id="German"),
        pytest.param("übersetze", "german", id="German in lower case"),
        pytest.param("ÄPFEL", "german", id="German in upper case"),
        pytest.param("अनुवाद", "hindi", id="Hindi"),
        pytest.param("翻訳", "japanese", id="Japanese"),
        pytest.param("ترجم", "arabic", id="Arabic"),
        pytest.param('"hello"', "quoted", id="quotes"),
    ],
)
def test_a_task_is_found_in_its_language(browser: Browser, text: str, id: str):
    for name, task in TASKS.items():
        store_loop(browser, name, task, output="none", message="wrong")

    assert find(browser, text) == [id]


def test_outputs_and_findings_are_searched(browser: Browser):
    message = "D103 Missing docstring, größer"
    store_loop(browser, "one", "task", output="a cosmic ray", message=message)
    store_loop(browser, "two", "task", output="select o.customer", message="wrong")

    assert find(browser, "Cosmic Ray") == ["one"]
    assert find(browser, "o.customer") == ["two"]
    assert find(browser, "d103") == ["one"]
    assert find(browser, "Größer") == ["one"]


def test_an_id_is_found_by_its_beginning_and_no_digest_by_chance(browser: Browser):
    store_loop(browser, "be1f2960", "task", output="none", message="wrong")
    attempt = browser.get("/loops/be1f2960.json").json()["made"][0]

    assert find(browser, "be1f") == ["be1f2960"]
    assert find(browser, "1f29") == []
    assert find(browser, attempt["candidate"]["digest"][:8]) == []
