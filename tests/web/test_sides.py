"""Two attempts of a loop beside each other: a sentence, and a row for each check."""

from __future__ import annotations

from typing import Any

import pytest

from tests.service.support import read_data
from tests.web.support import Browser, browsing, one_line, words_of

GOAL = {"score": "alignment", "threshold": 0.75}


@pytest.fixture
def browser(tmp_path):
    with browsing(tmp_path) as browser:
        yield browser.open(browser.api._all)


def record_attempts(
    browser: Browser,
    *failing: list[str],
    tokens: tuple[int, ...] = (),
    scores: tuple[float, ...] = (),
) -> None:
    """Record a loop called "pair" whose attempts fail these checks."""
    goals = [GOAL] if scores else []
    body: dict[str, Any] = {"task": "sort", "policy": "thorough", "goals": goals}
    read_data(browser.api.put("/v1/loops/pair", json=body), 201)
    for number, checks in enumerate(failing, 1):
        findings = [{"check": check, "message": f"no {check}"} for check in checks]
        evaluation: dict[str, Any] = {"findings": findings}
        if scores:
            evaluation["scores"] = {"alignment": scores[number - 1]}
        body = {"output": f"answer {number}", "evaluation": evaluation}
        if tokens:
            body["usage"] = {"calls": 1, "prompt_tokens": tokens[number - 1]}
        read_data(browser.api.put(f"/v1/loops/pair/attempts/{number}", json=body))


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        pytest.param(
            ["lint", "types", "tests"],
            ["tests"],
            "Attempt 2 solves lint, types; still fails tests.",
            id="some are solved",
        ),
        pytest.param(
            ["lint", "types"],
            [],
            "Attempt 2 solves all that failed: lint, types.",
            id="all are solved",
        ),
        pytest.param(
            ["lint", "types"],
            ["lint", "types"],
            "Attempt 2 still fails lint, types.",
            id="none is solved",
        ),
        pytest.param(
            ["lint"],
            ["types"],
            "Attempt 2 solves lint; newly fails types.",
            id="another one fails",
        ),
    ],
)
def test_a_sentence_says_what_the_second_attempt_solves(
    browser: Browser, first: list[str], second: list[str], sentence: str
):
    record_attempts(browser, first, second)
    page = words_of(browser.get("/loops/pair?against=1&attempt=2").text)
    assert sentence in page


def test_the_sentence_says_what_the_second_attempt_costs(browser: Browser):
    record_attempts(browser, ["lint"], [], tokens=(100, 200))
    page = words_of(browser.get("/loops/pair?against=1&attempt=2").text)
    assert "failed: lint. It takes twice as many tokens." in page


def test_a_figure_has_what_the_second_attempt_took_more(browser: Browser):
    record_attempts(browser, ["lint"], [], tokens=(100, 203))
    page = words_of(browser.get("/loops/pair?against=1&attempt=2").text)
    assert "tokens 100 203 103 more" in page


def test_a_check_that_both_fail_stands_before_what_is_equal(browser: Browser):
    record_attempts(browser, ["lint", "tests"], ["tests"])
    address = "/loops/pair?against=1&attempt=2"
    rows = browser.data(address)["sides"]["rows"]
    page = browser.get(address).text

    changes = {row["name"]: row["change"] for row in rows}
    assert changes == {"lint": "solved", "tests": "kept"}
    assert '<span class="soft">failed in both' in page
    assert '<span class="badge passed">solved</span>' in page


def test_a_goal_has_a_row_with_both_scores(browser: Browser):
    record_attempts(browser, ["lint"], ["lint"], scores=(0.5, 0.8))
    address = "/loops/pair?against=1&attempt=2"
    goal = browser.data(address)["sides"]["rows"][1]
    page = words_of(browser.get(address).text)

    assert goal["change"] == "solved"
    assert "alignment goal ≥ 0.75 not met 0.5 met 0.8 solved" in page
    assert "Attempt 2 solves alignment; still fails lint." in page


def test_what_is_better_without_being_solved_is_said(browser: Browser):
    body: dict[str, Any] = {"task": "sort", "policy": "thorough", "goals": [GOAL]}
    read_data(browser.api.put("/v1/loops/pair", json=body), 201)
    error = {"check": "lint", "message": "no lint"}
    warning = {"check": "tone", "message": "rude", "level": "warning"}
    for number, score in enumerate((0.42, 0.55), 1):
        findings = [error, warning][: 3 - number]
        evaluation = {"findings": findings, "scores": {"alignment": score}}
        body = {"output": f"answer {number}", "evaluation": evaluation}
        read_data(browser.api.put(f"/v1/loops/pair/attempts/{number}", json=body))

    address = "/loops/pair?against=1&attempt=2"
    rows = browser.data(address)["sides"]["rows"]
    page = words_of(browser.get(address).text)
    changes = {row["name"]: row["change"] for row in rows}
    assert changes == {"lint": "kept", "alignment": "nearer", "tone": "eased"}
    better = "Better: tone warns no more, alignment 0.42 to 0.55."
    assert f"Attempt 2 still fails lint, alignment. {better}" in page
    assert "not met in both, nearer now" in page


def test_what_is_equal_in_both_attempts_is_grey_and_comes_last(browser: Browser):
    record_attempts(browser, ["lint"], ["lint"], [], scores=(0.8, 0.8, 0.9))
    address = "/loops/pair?against=1&attempt=2"
    rows = browser.data(address)["sides"]["rows"]
    page = one_line(browser.get(address).text)

    assert [row["change"] for row in rows] == ["kept", "same"]
    assert '<tr class="soft"><th scope="row">alignment' in page


def test_a_finding_that_an_attempt_repeats_is_said_once(browser: Browser):
    record_attempts(browser, ["lint"], ["lint"], ["lint", "types"])
    page = words_of(browser.get("/loops/pair").text)
    assert page.count("lint as in attempt 1") == 2
    assert "types error no types" in page


def test_the_title_of_two_attempts_names_them(browser: Browser):
    record_attempts(browser, ["lint"], [])
    page = words_of(browser.get("/loops/pair?against=1&attempt=2").text)
    assert "Attempts 1 and 2, loop pair" in page
    assert "passed sort Attempts 1 and 2 Attempt 2 solves all that failed" in page
