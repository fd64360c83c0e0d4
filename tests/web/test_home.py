"""Home answers three questions: does it work, what needs me, what was saved."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from heedful.web import figures
from heedful.web.weeks import count_weeks
from tests.engines import change_rows
from tests.service.support import read_data
from tests.web.support import Browser, browsing, fill, words_of

DAY = figures.FIGURE_DAY_SECONDS
WRONG = {"findings": [{"check": "unit", "message": "no unit"}]}


def report_loops(browser: Browser, folder: Path, ages: dict[str, tuple[int, bool]]):
    """Store loops with one attempt, begun so many days ago, right at the first try."""
    now = time.time()
    for name, (days, is_right) in ages.items():
        read_data(browser.api.put(f"/v1/loops/{name}", json={"task": name}), 201)
        for number in (1,) if is_right else (1, 2):
            evaluation = {} if is_right or number == 2 else WRONG
            body = {"output": f"{name} {number}", "evaluation": evaluation}
            read_data(browser.api.put(f"/v1/loops/{name}/attempts/{number}", json=body))
        change_rows(
            folder / "heedful.db",
            f"update loop set created = {now - days * DAY} where id = '{name}'",
        )


@pytest.mark.both
def test_the_week_stands_beside_the_week_before_in_whole_days(tmp_path):
    ages = {
        "old": (12, False),
        "older": (9, True),
        "week 1": (7, True),
        "week 2": (3, True),
        "week 3": (1, False),
        "now": (0, True),
    }
    with browsing(tmp_path) as browser:
        browser.open(browser.api._all)
        report_loops(browser, tmp_path, ages)
        page = words_of(browser.get("/home").text)
        weeks = browser.get("/home.json").json()["weeks"]

    shares = {
        name: (one["days"], one["right"]["number"], one["right"]["of"])
        for name, one in weeks.items()
    }
    assert shares == {"today": (1, 1, 1), "week": (7, 2, 3), "before": (7, 1, 2)}
    assert "67 % right at the first try in the last 7 days" in page
    assert "The 7 days before: 50 %" in page
    assert "Today so far: 100 % of 1" in page


def test_a_week_that_was_not_read_as_a_whole_says_how_many_days_it_has():
    now = 20 * DAY + 3_600
    ages = (0.01, 1.5, 2.5, 3.5)  # in days
    loops = [
        {"created": now - age * DAY, "state": "passed", "attempts": 1} for age in ages
    ]
    weeks = count_weeks(loops, limited=True, now=now)
    assert weeks["today"]["days"] == 1
    assert weeks["week"]["days"] == 3
    assert weeks["week"]["from"] == 17 * DAY
    assert weeks["week"]["right"]["of"] == 2
    assert weeks["before"]["days"] == 0


def test_a_day_of_more_loops_than_were_read_has_no_share():
    now = 20 * DAY + 3_600
    loops = [{"created": now - 60, "state": "passed", "attempts": 1}]
    assert count_weeks(loops, limited=True, now=now)["today"]["days"] == 0


@pytest.mark.both
def test_what_needs_a_person_is_one_number_with_its_parts(tmp_path):
    with browsing(tmp_path) as browser:
        fill(browser.api)
        browser.open(browser.api._all)
        change_rows(
            tmp_path / "heedful.db",
            "update episode set state = 'failed', error = 'no model answers'",
        )
        page = words_of(browser.get("/home").text)
        home = browser.get("/home.json").json()

    needs = home["needs"]
    number = needs.pop("number")
    assert needs == {
        "texts": home["texts"],
        "stopped": 1,
        "reflections": 1,
        "lessons": 0,
        "jobs": 0,
        "overrides": 0,
    }
    assert number == sum(needs.values())
    assert f"What needs me? {number} things wait" in page
    assert "1 loop stopped unsolved in 7 days" in page
    assert "1 reflection failed" in page
    assert [row["error"] for row in home["failed"]] == ["no model answers"]


@pytest.mark.both
def test_equal_errors_are_one_row_with_a_count(tmp_path):
    event = {"type": "tool_response", "tool": "sh", "content": "x", "error": "x"}
    with browsing(tmp_path) as browser:
        for number in range(3):
            episode = {"events": [event], "outcome": "error", "task": f"t {number}"}
            read_data(browser.api.post("/v1/episodes", json=episode), 202)
        change_rows(
            tmp_path / "heedful.db",
            "update episode set state = 'failed', error = 'no model answers'",
        )
        browser.open(browser.api._all)
        page = words_of(browser.get("/home").text)
        failed = browser.get("/home.json").json()["failed"]

    assert [row["number"] for row in failed] == [3]
    assert "no model answers 3 times" in page


def test_loops_of_one_day_have_no_bars_that_are_equal_by_construction(tmp_path):
    with browsing(tmp_path) as browser:
        fill(browser.api)
        page = words_of(browser.open(browser.api._all).get("/home").text)
    assert "Loops by" not in page
    assert "Of all 3 loops, since " in page
