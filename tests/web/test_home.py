"""Home answers three questions: does it work, what needs me, what was saved."""

from __future__ import annotations

import html
import re
import time
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful import Pipeline
from heedful.lessons.lesson import Scope
from heedful.web import figures
from tests.engines import change_rows
from tests.service.support import read_data
from tests.web.support import (
    Browser,
    browsing,
    fill,
    one_line,
    record_loop,
    words_of,
)

DAY = figures.FIGURE_DAY_SECONDS
WRONG = {
    "findings": [
        {
            "check": "unit",
            "message": "no unit",
        },
    ],
}
EPISODE = {
    "events": [
        {
            "type": "tool_response",
            "tool": "sh",
            "content": "x",
            "error": "x",
        },
    ],
    "outcome": "error",
}
FAIL = """
update episode
set state = 'failed',
    error = 'no model answers'
"""


def read_home(site: Browser) -> tuple[str, dict[str, Any]]:
    """Return the words of the page, and its data."""
    page = site.get("/home")
    data = site.get("/home.json")
    return words_of(page.text), data.json()


def report(
    site: Browser,
    file: Path,
    name: str,
    *,
    days: int,
    is_right: bool = True,
) -> None:
    """Store a loop that began so many days ago, right at the first try or later."""
    path = f"/v1/loops/{name}"
    body = {"task": name}
    read_data(site.api.put(path, json=body), 201)
    evaluations: list[Any] = [{}]
    if not is_right:
        evaluations.insert(0, WRONG)

    for number, evaluation in enumerate(evaluations, 1):
        attempt = {
            "output": f"{name} {number}",
            "evaluation": evaluation,
        }
        place = f"{path}/attempts/{number}"
        read_data(site.api.put(place, json=attempt))

    created = time.time() - days * DAY
    change = f"update loop set created = {created}"
    change_rows(file, f"{change} where id = '{name}'")


@pytest.mark.both_nightly
def test_the_last_days_stand_above_all_loops(site, file):
    report(site, file, "old", days=35, is_right=False)
    report(site, file, "older", days=32)
    report(site, file, "first", days=30)
    report(site, file, "second", days=3)
    report(site, file, "third", days=1, is_right=False)

    page, data = read_home(site)

    assert data["recent"]["right"]["number"] == 2
    assert data["recent"]["right"]["of"] == 3
    assert data["right"]["number"] == 3
    assert data["right"]["of"] == 5
    assert "3 of 3 solved in the last 30 days, 1 after a retry" in page
    assert "All loops: 5 of 5 solved, 3 at the first try" in page


@pytest.mark.both_nightly
def test_if_no_loop_began_in_the_last_days_home_shows_all(site, file):
    report(site, file, "old", days=35)
    page, _ = read_home(site)
    assert "1 of 1 solved" in page
    assert "None of them began in the last 30 days." in page


@pytest.mark.both_nightly
def test_loops_that_stopped_lately_need_a_person_and_lead_to_their_list(site, file):
    fill(site.api)
    for name, days in (("lately", 6), ("older", 8)):
        read_data(site.api.put(f"/v1/loops/{name}", json={"task": "t"}), 201)
        read_data(site.api.post(f"/v1/loops/{name}/cancel", json={"why": "enough"}))
        changed = time.time() - days * DAY
        change_rows(file, f"update loop set updated = {changed} where id = '{name}'")

    _, home = read_home(site)
    (link,) = re.findall(
        r'href="/ui(/loops[^"]*)">2 loops stopped unsolved in the last 7 days',
        site.get("/home").text,
    )

    assert home["needs"]["stopped"] == 2
    assert [loop["id"] for loop in home["unsolved"]] == ["stopped", "lately"]
    listed = site.data(html.unescape(link))
    assert [loop["id"] for loop in listed["loops"]] == ["stopped", "lately"]


@pytest.mark.both_nightly
def test_what_needs_a_person_is_one_number_with_its_parts(site, file):
    fill(site.api)
    change_rows(file, FAIL)

    page, home = read_home(site)
    needs = home["needs"]
    number = needs.pop("number")

    assert needs == {
        "texts": home["texts"],
        "stopped": 1,
        "reflections": 1,
        "lessons": 0,
        "jobs": 0,
        "overrides": 0,
        "runs": 0,
        "broken": 0,
    }
    assert number == sum(needs.values())
    assert f"What needs me? {number} things wait" in page
    assert "1 loop stopped unsolved in the last 7 days" in page
    assert "1 reflection failed" in page
    (failure,) = home["failed"]
    assert failure["error"] == "no model answers"


def judge_offline(candidate: str, context: heedful.Context) -> None:
    raise OSError("the judge is offline")


@pytest.mark.both_nightly
def test_an_open_loop_whose_driver_failed_needs_a_person_until_it_ends(site):
    fill(site.api)
    run = heedful.Run[str](
        "Say red",
        id="broken",
        generate=lambda task: "red",
        checks=[judge_offline],
        store=site.api.setup.store,
        scope=Scope("acme", "main"),
    )
    with pytest.raises(heedful.errors.UserCodeError):
        site.api.run(run.finish())

    page, home = read_home(site)
    assert home["needs"]["broken"] == 1
    assert [loop["id"] for loop in home["broken"]] == ["broken"]
    assert "1 open loop whose driver failed" in page

    cancelled = site.api.post("/v1/loops/broken/cancel", json={"why": "no need"})
    read_data(cancelled)
    assert site.data("/home")["needs"]["broken"] == 0


@pytest.mark.both_nightly
def test_equal_errors_are_one_row_with_a_count(site, file):
    for number in range(3):
        episode = {
            **EPISODE,
            "task": f"t {number}",
        }
        path = "/v1/episodes"
        read_data(site.api.post(path, json=episode), 202)
    change_rows(file, FAIL)

    page, home = read_home(site)

    (failure,) = home["failed"]
    assert failure["number"] == 3
    assert "no model answers 3 times" in page


def test_loops_of_one_day_have_no_bars_of_equal_height(site):
    fill(site.api)
    page, _ = read_home(site)
    assert "Loops by" not in page
    assert "How all loops went since " in page


def test_a_day_of_few_ended_loops_is_a_hollow_dot_that_no_line_joins(site, file):
    report(site, file, "alone", days=8, is_right=False)
    for number in range(15):
        report(site, file, f"loop {number}", days=3 - number // 5)

    page = one_line(site.get("/home").text)
    course = site.data("/home")["course"]
    ends = [time.gmtime(course[place]["at"]) for place in (0, -1)]
    days = " to ".join(time.strftime("%Y-%m-%d", end) for end in ends)
    words = words_of(page)
    assert f"Right at the first try, by day {days}" in words
    assert f"Loops by day {days}" in words
    (line,) = re.findall(r'<polyline class="line" points="([^"]*)"', page)
    assert len(line.split()) == 3
    assert page.count('<circle class="dot"') == 3
    assert page.count('<circle class="dot few"') == 1
    assert "Hollow, not joined: fewer than 5 ended loops." in page


def test_few_loops_are_listed_and_have_no_percentages(site):
    fill(site.api)
    page, home = read_home(site)
    section = site.get("/home").text.partition('id="newest"')[2].partition("</ul>")[0]

    assert [row["id"] for row in home["first_loops"]] == ["open", "stopped", "a/b"]
    for row in home["first_loops"]:
        assert f"/ui/loops/{row['id']}" in section
    assert "1 of 2 solved in the last 30 days, 1 after a retry" in page
    assert "1 solved by a retry 1 stopped unsolved 1 open" in page


def test_the_figures_count_what_happened(site):
    fill(site.api)

    _, home = read_home(site)

    assert home["right"]["number"] == 0
    assert home["solved"]["number"] == 1
    assert home["stopped"]["number"] == 1
    (check,) = home["failing"]
    assert check["check"] == "severity"
    assert check["loops"] == 3
    assert check["mended"]["number"] == 1
    (rule,) = home["stopping"]
    assert rule["loops"] == 1
    course = home["course"]
    assert sum(day["loops"] for day in course) == 3
    assert len(home["waiting"]) == 1
    assert len(home["unsolved"]) == 1


@pytest.mark.both_nightly
def test_the_loops_of_a_day_are_drawn_by_how_they_ended(site, file):
    for age in reversed(range(8)):
        report(site, file, f"right {age}", days=age)
    report(site, file, "retried", days=3, is_right=False)
    fill(site.api)

    page = site.get("/home").text
    drawing = page.partition('aria-label="loops, by day"')[2].partition("</figure>")[0]
    day = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 3 * DAY))
    assert f"<title>{day}: 1 right at the first try</title>" in drawing
    assert f"<title>{day}: 1 solved by a retry</title>" in drawing
    legend = words_of(drawing.partition("<figcaption>")[2])
    assert legend == (
        "8 right at the first try 2 solved by a retry 1 stopped unsolved 1 open, or "
        "not judged"
    )


@pytest.mark.both_nightly
def test_solved_loops_are_those_that_passed(site):
    fill(site.api)

    page, home = read_home(site)

    assert home["passed"]["number"] == 1
    assert home["passed"]["of"] == 2
    assert "1 of 2 solved" in page


@pytest.mark.both_nightly
def test_a_reason_counts_the_loops_to_which_it_leads(site):
    policy = {"rules": [{"rule": "attempts", "limit": 2}, {"rule": "repeat"}]}
    for name, outputs in (("one", "ab"), ("both", "aa")):
        path = f"/v1/loops/{name}"
        body = {"task": name, "policy": policy}
        read_data(site.api.put(path, json=body), 201)
        for number, output in enumerate(outputs, 1):
            attempt = {"output": output, "evaluation": WRONG}
            read_data(site.api.put(f"{path}/attempts/{number}", json=attempt))

    page, home = read_home(site)

    counts = {row["rule"]: row["loops"] for row in home["stopping"]}
    assert counts == {"attempts": 2, "repeat": 1}
    assert "all attempts made 2 repeated answer 1" in page
    for rule, number in counts.items():
        listed = site.data(f"/loops?rule={rule}")
        assert len(listed["loops"]) == number
        (facet,) = [facet for facet in listed["facets"] if facet["name"] == "rule"]
        counted = {value["value"]: value["count"] for value in facet["values"]}
        assert counted[rule] == number


def test_home_without_loops_names_what_sessions_taught(site):
    page = site.get("").text
    assert 'id="begin"' in page
    assert "Sessions of agents taught" not in page

    lesson = {"error_type": "x", "text": "odd"}
    site.api.post("/v1/reflections", json=lesson)

    page = site.get("").text
    assert "heedful demo" not in page
    link = r'taught <a href="/ui/lessons[^"]*">1 lesson</a>'
    assert re.search(link, page)
    data = site.get("/.json").json()
    assert data["lessons"] == 1


@pytest.mark.both_nightly
def test_a_total_that_is_known_of_one_loop_is_not_said_of_all(tmp_path):
    with browsing(tmp_path) as browser:
        record_loop(browser.api, "paid", ["a"], passes=True)
        record_loop(browser.api, "free", ["a"], passes=True, usage={"calls": 1})
        browser.open(browser.api._all)
        paths = ("/home", "/loops")
        pages = [words_of(browser.get(path).text) for path in paths]

    for page in pages:
        assert "100 tokens from 1 of 2 $0.0020 cost from 1 of 2" in page


def broken_check(output: Any, context: Any) -> None:
    raise OSError("no such file")


@pytest.mark.both_nightly
def test_a_run_with_a_stage_that_a_broken_check_did_not_judge_needs_a_person(tmp_path):
    with browsing(tmp_path) as browser:
        store = browser.api.setup.store
        scope = Scope("acme", "main")
        pipeline = Pipeline("nightly", store=store, scope=scope, progress=False)
        pipeline.stage(name="load", checks=[broken_check])(lambda state: {"a": 1})
        browser.api.run(pipeline.run({}))
        browser.open(browser.api._all)
        home = browser.data("/home")
        page = words_of(browser.get("/home").text)

    assert home["needs"]["runs"] == 1
    assert home["degraded"][0]["stages"] == ["load"]
    assert "1 run that went on degraded" in page
    assert "Nothing waits" not in page


def test_home_has_the_order_of_the_inbox(site):
    fill(site.api)
    for error, text in (("paper", "Round half up"), ("toner", "Ask"), ("tray", "Ask")):
        body = {"error_type": "ToolError", "text": error, "lesson": text}
        key = site.api.key("write", outside=True)
        read_data(site.api.post("/v1/reflections", json=body, key=key), 201)

    _, home = read_home(site)
    rows = site.data("/inbox")["queue"]
    assert home["waiting"] == rows
    assert [len(row["ids"]) for row in rows] == [2, 1, 1]


def test_a_list_that_is_cut_says_how_many_more_there_are(site: Browser):
    for number in range(7):
        path = f"/v1/loops/stopped-{number}"
        head = {"task": f"task {number}", "policy": "attempts.limit=1"}
        read_data(site.api.put(path, json=head), 201)
        attempt = {"output": "7", "evaluation": WRONG}
        read_data(site.api.put(f"{path}/attempts/1", json=attempt))

    page, data = read_home(site)
    assert len(data["unsolved"]) == 5
    assert "made 2 more loops How all loops went" in page


def test_a_share_of_few_loops_is_two_numbers(site: Browser, file: Path):
    for number in range(4):
        report(site, file, f"{number}", days=0, is_right=False)
    page, _ = read_home(site)
    assert "unit 4 4 of 4" in page
    report(site, file, "fifth", days=0, is_right=False)
    page, _ = read_home(site)
    assert re.search(r"unit 5 100 % \d+ % to 100 %, of 5", page)
