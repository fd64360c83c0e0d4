"""The page of a loop shows what each attempt changed, wherever the change stands."""

import re
from html import unescape
from typing import Any

import pytest

from tests.service.support import read_data
from tests.web.support import Browser

pytestmark = pytest.mark.both_nightly
LINES = [f"line {number} of an answer: value {number * 7}" for number in range(1, 303)]


def report_outputs(browser: Browser, *outputs: Any, findings: Any = ()) -> None:
    """Store a loop whose attempts have these outputs, all of them wrong."""
    policy = {"rules": [{"rule": "attempts", "limit": 60}]}
    body = {"task": "begin", "policy": policy}
    read_data(browser.api.put("/v1/loops/changes", json=body), 201)
    wrong = [{"check": "severity", "message": "none"}, *findings]
    for number, output in enumerate(outputs, 1):
        attempt = {"output": output, "evaluation": {"findings": wrong}}
        read_data(browser.api.put(f"/v1/loops/changes/attempts/{number}", json=attempt))


def attempt_of(browser: Browser, number: int) -> str:
    """Return the HTML of an attempt on the page of the loop."""
    page = browser.get("/loops/changes").text
    begin = page.index(f'id="attempt-{number}"')
    end = page.find(f'id="attempt-{number + 1}"', begin)
    return page[begin : end if end > 0 else page.index("<aside", begin)]


def changed(html: str, tag: str) -> list[str]:
    """Return the texts of all elements with this tag."""
    return [
        unescape(text) for text in re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    ]


def test_a_change_of_the_last_line_is_marked_and_what_is_unchanged_is_folded(browser):
    old = "\n".join(LINES)
    report_outputs(browser, old, old.replace("value 2114", "value 9999"))
    second = attempt_of(browser, 2)

    assert changed(second, "del") == ["2114"]
    assert changed(second, "ins") == ["9999"]
    assert "… 300 unchanged lines …" in second
    assert "line 301 of an answer" in second
    assert "line 5 of an answer" not in second


def test_an_answer_that_is_repeated_is_one_line(browser):
    report_outputs(browser, "severity P1", "severity P2", "severity P1")
    third = attempt_of(browser, 3)

    assert "The same answer as" in third
    assert 'href="#attempt-1"' in third
    assert "output of attempt 3" not in third


def test_a_faulty_place_is_not_folded(browser):
    old = "\n".join(LINES)
    place = old.index("value 700")
    fault = {"check": "high", "message": "too high", "span": [place, place + 9]}
    report_outputs(
        browser, old, old.replace("value 2114", "value 9999"), findings=[fault]
    )
    second = attempt_of(browser, 2)

    assert "high: too high" in second
    assert "value 700</mark>" in second


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        pytest.param(
            "\n".join(f"{number} {number % 7}" for number in range(6_000)),
            "\n".join(f"{number} {number % 5}" for number in range(6_000)),
            "too many to compare; the old ones stand first",
            id="too many changed lines are shown whole",
        ),
        pytest.param(
            "x" * 1_000_000,
            "x" * 999_999 + "y",
            "(digest ",
            id="a change in what is not read",
        ),
    ],
)
def test_a_bound_of_the_comparison_is_said(browser, old: str, new: str, words: str):
    report_outputs(browser, old, new)
    second = attempt_of(browser, 2)

    assert words in second
    assert len(second) < 200_000


@pytest.mark.parametrize(
    ("output", "span", "marked"),
    [
        pytest.param("a long answer", [2, 6], "long", id="a word"),
        pytest.param("a long answer", [4, 6], "ng", id="a part of a word"),
    ],
)
def test_a_fault_is_marked_where_the_check_saw_it(
    browser: Browser, output: str, span: list[int], marked: str
):
    fault = {"check": "high", "message": "too high", "span": span}
    report_outputs(browser, output, findings=[fault])
    mark = f'<mark title="high: too high">{marked}</mark>'
    assert mark in attempt_of(browser, 1)
