"""A loop's page opens with the reason in one sentence, and a matrix of its attempts."""

import json
from typing import Any

import pytest

from heedful.lessons.lesson import Scope
from heedful.web.window import MAX_PAGE_ATTEMPTS
from tests.service.support import Api, read_data
from tests.web.support import ATTACK, Browser, words_of

pytestmark = pytest.mark.both_nightly
LONG_LOOP_ATTEMPTS = 10_000
USAGE = {"calls": 1, "prompt_tokens": 90, "completion_tokens": 10, "cost": 0.002}


def record_loop(
    api: Api, name: str, outputs: list[Any], checks: tuple[str, ...] = ("pytest",)
) -> None:
    """Record a loop whose attempts have these outputs, and fail these checks."""
    body: dict[str, Any] = {
        "task": "sort",
        "goals": ["quality >= 0.8"],
        "policy": "default",
    }
    read_data(api.put(f"/v1/loops/{name}", json=body), 201)
    for number, output in enumerate(outputs, 1):
        findings = [{"check": check, "message": "wrong"} for check in checks]
        evaluation = {"scores": {"quality": 0.1 * number}, "findings": findings}
        body = {"output": output, "evaluation": evaluation, "usage": USAGE}
        read_data(api.put(f"/v1/loops/{name}/attempts/{number}", json=body))


def row_texts(page: dict[str, Any], about: str) -> list[str]:
    """Return the texts of the first row of a matrix that is about something."""
    rows = (row for row in page["matrix"]["rows"] if row["about"] == about)
    return [cell.get("text", "") for cell in next(rows)["cells"]]


def test_a_page_and_its_data_open_with_the_same_sentence(browser: Browser):
    record_loop(browser.api, "four", ["a", "b", "c", "d"])
    page = browser.data("/loops/four")
    assert page["sentence"] == (
        "Stopped after attempt 4: all 4 attempts are made. One more attempt would need "
        "a limit of 5 attempts instead of 4."
    )
    text = words_of(browser.get("/loops/four").text)
    assert page["failed"] == ("pytest, quality failed in all 4 attempts (wrong)")
    assert f"Not solved: {page['failed']}. {page['sentence']}" in text
    assert text.count("a limit of 5 attempts instead of 4") == 1
    answer = read_data(browser.api.get("/v1/loops/four/explain"))
    assert answer["sentence"] == page["sentence"]


def report_failures(browser: Browser, policy: str, *, fix: str = "") -> Any:
    """Report a loop that repeats one failure with evidence; return its data."""
    path = "/v1/loops/failed"
    body = {"task": "sum", "policy": policy}
    read_data(browser.api.put(path, json=body), 201)
    finding = {"check": "grounding", "message": "no cause", "evidence": "a full disk"}
    for number in (1, 2, 3, 4):
        evaluation = {"findings": [{**finding, "fix": fix}]}
        attempt = {"output": f"answer {number}", "evaluation": evaluation}
        read_data(browser.api.put(f"{path}/attempts/{number}", json=attempt))
    return browser.data("/loops/failed")


def test_none_of_equal_attempts_is_called_the_best(browser: Browser):
    data = report_failures(browser, "default")
    page = words_of(browser.get("/loops/failed").text)

    assert data["tied"]
    assert data["best"] == 1
    assert data["matrix"]["best"] is None
    assert "1 best" not in page
    assert "None is better than the others." in page


def answer_cells(browser: Browser) -> Any:
    """Return what each attempt of the loop changed."""
    rows = browser.data("/loops/loop")["matrix"]["rows"]
    (row,) = [row for row in rows if row["about"] == "change"]
    return row["cells"]


def test_a_matrix_has_a_row_for_each_goal_and_check(browser: Browser):
    record_loop(browser.api, "loop", ["a b", "a c", "a c\nd"])
    page = browser.data("/loops/loop")
    names = [row["name"] for row in page["matrix"]["rows"]]
    assert page["matrix"]["columns"] == [1, 2, 3]
    assert names == ["quality ≥ 0.8", "pytest", "answer", "decision"]
    assert row_texts(page, "check") == ["0.1 ✗", "0.2 ✗", "0.3 ✗"]
    assert row_texts(page, "change") == ["begins", "changed", "changed"]
    assert row_texts(page, "decision") == ["again", "again", "again"]


def test_a_matrix_shows_the_first_words_that_an_answer_changed(browser: Browser):
    record_loop(browser.api, "loop", ["it is P1", "it is P2", "new\nit is P2"])
    changes = answer_cells(browser)
    assert changes[0]["new"] == "it is P1"
    assert changes[1]["gone"] == "P1"
    assert changes[1]["new"] == "P2"
    assert changes[2]["gone"] == ""
    assert changes[2]["new"] == "new"


def test_names_of_checks_and_outputs_are_data_in_a_matrix(browser: Browser):
    record_loop(browser.api, "loop", [ATTACK, f"{ATTACK} 2"], checks=(ATTACK,))
    page = browser.get("/loops/loop").text
    assert "<script>alert" not in page
    assert "<img" not in page


def test_a_loop_without_attempts_shows_its_goals_and_no_matrix(browser: Browser):
    body = {"task": "x", "goals": ["quality >= 0.8"]}
    read_data(browser.api.put("/v1/loops/new", json=body), 201)
    page = browser.data("/loops/new")
    assert page["sentence"] == "Open: no attempt has been judged yet."
    assert page["matrix"]["columns"] == []
    assert "Goals: quality ≥ 0.8" in browser.get("/loops/new").text


def fill_long_loop(db: Any, scope: Scope, name: str, best: int) -> None:
    """Write a stopped loop of `LONG_LOOP_ATTEMPTS` attempts into its tables."""
    (row,) = db.select("n", "loop", {"tenant": scope.tenant, "id": name})
    end = {"verdict": "done", "best": best, "passed": False}
    end["stopped_by"] = [
        {"rule": "attempts", "figures": {"count": 10000, "limit": 10000}}
    ]
    for number in range(1, LONG_LOOP_ATTEMPTS + 1):
        record = {"number": number, "candidate": {"digest": f"d{number}"}}
        record["evaluation"] = {"findings": [{"check": "pytest", "message": "wrong"}]}
        values = {
            "n": row["n"],
            "number": number,
            "record": json.dumps(record),
            "value": json.dumps(f"answer {number}"),
        }
        db.execute(
            "insert into attempt (loop, number, record, text, value, created) "
            "values (:n, :number, :record, '', :value, 1)",
            values,
        )
    db.execute(
        "insert into decision (loop, seq, attempt, record, created) "
        "values (:n, 1, :number, :record, 1)",
        {"n": row["n"], "number": LONG_LOOP_ATTEMPTS, "record": json.dumps(end)},
    )
    db.execute("update loop set state = 'stopped' where n = :n", {"n": row["n"]})


def test_a_matrix_of_a_long_loop_has_the_first_the_best_and_the_last(browser: Browser):
    api = browser.api
    read_data(api.put("/v1/loops/long", json={"task": "x"}), 201)
    scope = Scope("acme", "main")
    api.run(api.setup.store.write(scope, fill_long_loop, "long", 7))

    page = browser.data("/loops/long")
    last = range(LONG_LOOP_ATTEMPTS - MAX_PAGE_ATTEMPTS + 1, LONG_LOOP_ATTEMPTS + 1)
    assert page["matrix"]["columns"] == [1, 7, *last]
    assert page["sentence"] == (
        "Stopped after attempt 10000: all 10000 attempts are made."
    )
    # What stood before attempt 7 and before the last ones is not on the page.
    assert row_texts(page, "change") == ["begins", "", "", *9 * ["changed"]]

    html = browser.get("/loops/long").text
    assert "from=9981" in html
    earlier = browser.data("/loops/long?from=20")["matrix"]["columns"]
    assert earlier == [1, 7, *range(20, 30)]
