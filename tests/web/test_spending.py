"""What the last seven whole days used stands beside the seven days before."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from heedful.web.periods import day_text
from heedful.web.weeks import MIN_COMPARED_LOOPS, compare_weeks
from tests.engines import change_rows
from tests.service.support import read_data
from tests.web.support import Browser, words_of

DAY = 86_400
TODAY = 40
DAY_OF_LOOPS = {
    "loops": 10,
    "calls": 20,
    "tokens": 900,
    "cost": 0.5,
    "with_tokens": 10,
    "with_cost": 10,
}


def changes_of(days: dict[int, Any], first: int = 0) -> dict[str, str]:
    """Return the change of each figure that is compared."""
    compared = compare_weeks(days, first=first, today=TODAY)
    return {row["name"]: row["change"] for row in compared["changes"]}


def test_each_figure_is_compared_with_the_week_before():
    days: dict[int, Any] = dict.fromkeys(range(26, 40), DAY_OF_LOOPS)
    days[39] = {**DAY_OF_LOOPS, "calls": 34, "cost": 0.15}
    changes = changes_of(days)
    assert list(changes) == ["cost", "calls", "tokens", "loops"]
    assert changes["loops"] == "→ the same"
    assert changes["calls"] == "↑ up 10 %"
    assert changes["cost"] == "↓ down 10 %"


def test_today_is_not_over_and_counts_for_neither_week():
    days = dict.fromkeys(range(26, 40), DAY_OF_LOOPS)
    assert changes_of({**days, TODAY: DAY_OF_LOOPS}) == changes_of(days)


@pytest.mark.parametrize(
    ("name", "reports"),
    [
        pytest.param("cost", {"with_cost": 9}, id="too few loops reported a cost"),
        pytest.param("tokens", {"tokens": 0}, id="no loop reported tokens"),
    ],
)
def test_what_most_loops_did_not_report_is_not_compared(name, reports):
    partly_reported = DAY_OF_LOOPS | reports
    days = dict.fromkeys(range(26, 33), partly_reported)
    days |= dict.fromkeys(range(33, 40), DAY_OF_LOOPS)
    assert changes_of(days).keys() == {"loops", "calls", "tokens", "cost"} - {name}
    assert compare_weeks(days, first=0, today=TODAY)["unknown"] == [name]


def test_a_week_that_was_not_counted_as_a_whole_is_not_compared():
    days = dict.fromkeys(range(27, 40), DAY_OF_LOOPS)
    assert changes_of(days, first=27) == {}


def store_loops(browser: Browser, file: Path, number: int, *, days_ago: int) -> None:
    """Store loops with a call each that began some days ago."""
    for place in range(number):
        path = f"/v1/loops/{days_ago} {place}"
        read_data(browser.api.put(path, json={"task": "t"}), 201)
        body = {"output": "x", "evaluation": {}, "usage": {"calls": days_ago}}
        read_data(browser.api.put(f"{path}/attempts/1", json=body))
    created = time.time() - days_ago * DAY
    change_rows(
        file, f"update loop set created = {created} where id like '{days_ago} %'"
    )


@pytest.mark.both_nightly
def test_spend_and_projects_say_what_changed(browser, file):
    store_loops(browser, file, MIN_COMPARED_LOOPS, days_ago=8)
    store_loops(browser, file, MIN_COMPARED_LOOPS, days_ago=2)
    spending = browser.data("/spend?project=main")["spending"]
    changes = {row["name"]: row["change"] for row in spending["changes"]}
    assert changes == {"loops": "→ the same", "calls": "↓ down 75 %"}
    page = words_of(browser.get("/spend").text)
    begin = spending["from"]
    week, before = (
        f"{day_text(first)[5:]} to {day_text(first + 6 * DAY)[5:]}"
        for first in (begin, begin - 7 * DAY)
    )
    assert f"figure {week} {before} change" in page
    assert "calls 40 160 ↓ down 75 %" in page
    assert (
        "Not compared: cost and tokens, which some loops of these weeks did not report."
        in page
    )
    assert "calls ↓ down 75 %" in words_of(browser.get("/projects").text)


def test_of_a_few_loops_no_change_is_said(browser, file):
    store_loops(browser, file, 3, days_ago=9)
    store_loops(browser, file, 2, days_ago=2)
    silence = "2 loops, and 3 in the week before; each week needs 20"
    assert silence in words_of(browser.get("/spend").text).lower()
    assert "against the 7 before" not in words_of(browser.get("/projects").text)


def test_days_that_were_asked_for_have_no_comparison(browser, file):
    store_loops(browser, file, 2, days_ago=2)
    assert browser.data("/spend?from=2026-01-01&project=main")["spending"] is None


def test_calls_are_known_only_of_loops_that_reported_them(browser: Browser):
    for name, usage in (("one", {"calls": 3, "seconds": 2}), ("two", {})):
        path = f"/v1/loops/{name}"
        read_data(browser.api.put(path, json={"task": "t"}), 201)
        body = {"output": "x", "evaluation": {}, "usage": usage}
        read_data(browser.api.put(f"{path}/attempts/1", json=body))

    for address in ("/loops", "/spend"):
        page = words_of(browser.get(address).text)
        assert "3 calls from 1 of 2 2 s time from 1 of 2" in page, address
    assert "3 calls from 1 of 2" in words_of(browser.get("/home").text)


def test_a_cost_of_few_loops_says_of_how_many_it_is(browser: Browser):
    for number, cost in enumerate((0.5, None, None)):
        path = f"/v1/loops/{number}"
        read_data(browser.api.put(path, json={"task": "x"}), 201)
        usage = {"calls": 1, "seconds": 1.0}
        if cost:
            usage["cost"] = cost
        body = {"output": "a", "usage": usage, "evaluation": {}}
        read_data(browser.api.put(f"{path}/attempts/1", json=body))
    page = words_of(browser.get("/spend").text)
    words = "3 loops 3 calls $0.50 cost from 1 of 3 3 s time"
    assert words in page
