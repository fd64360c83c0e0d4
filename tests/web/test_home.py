"""Home says in one sentence how it goes, and lists what needs a person by its cause."""

from __future__ import annotations

import time
from typing import Any

import pytest

import heedful
from heedful import Pipeline
from heedful.lessons.lesson import Scope
from tests.engines import change_rows
from tests.service.support import read_data
from tests.web.support import Browser, browsing, fill, words_of

DAY = 86_400
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
    site: Browser, name: str, *, message: str = "", check: str = "unit", key: str = ""
) -> None:
    """Store a loop of one attempt; it stops if a check found something."""
    head = {"task": name, "policy": "attempts.limit=1", "memory_key": key}
    read_data(site.api.put(f"/v1/loops/{name}", json=head), 201)
    findings = [{"check": check, "message": message}] if message else []
    attempt = {
        "output": name,
        "evaluation": {"findings": findings},
        "usage": {"calls": 2},
    }
    read_data(site.api.put(f"/v1/loops/{name}/attempts/1", json=attempt))


def needs_about(home: dict[str, Any], words: str) -> list[dict[str, Any]]:
    """Return the rows of what needs a person that are about something."""
    return [need for need in home["needs"] if words in need["about"]]


@pytest.mark.both_nightly
def test_equal_failures_are_one_row_with_their_finding_a_count_and_since(site, file):
    for number in range(7):
        report(site, f"loop-{number}", message=f"no unit in line {number}")
    report(site, "other", message="unknown team 'P9'", check="team")
    change_rows(file, "update loop set updated = updated - 3600 where id = 'loop-2'")

    page, home = read_home(site)

    cause, other = home["needs"]
    assert cause["what"] == "no unit in line 6"
    assert cause["about"] == "check unit"
    assert cause["number"] == 7
    listed = site.data("/loops?cause=" + cause["query"]["cause"])
    assert cause["path"] == "/loops"
    assert len(listed["loops"]) == 7
    assert {row["finding"][:7] for row in listed["loops"]} == {"no unit"}
    assert 3600 <= time.time() - cause["since"] < 3700
    assert other["what"] == "unknown team 'P9'"
    assert [cause["loops"] for cause in home["causes"]] == [7, 1]
    assert "no unit in line 6 check unit 7" in page
    assert "0 of 8 loops solved, 0 at the first try; 2 things need you." in page
    for row in site.data("/loops?check=unit")["loops"]:
        assert row["alike"] == 7
        assert row["since"] == cause["since"]


@pytest.mark.both_nightly
def test_a_cause_that_did_not_come_for_a_week_needs_nobody(site, file):
    report(site, "old", message="no unit")
    change_rows(file, f"update loop set updated = {time.time() - 8 * DAY}")
    _, home = read_home(site)
    assert home["needs"] == []
    assert len(home["causes"]) == 1


@pytest.mark.both_nightly
def test_each_kind_that_needs_a_person_has_its_rows(site, file):
    fill(site.api)
    change_rows(file, FAIL)

    page, home = read_home(site)

    assert [need["path"] for need in home["needs"][:2]] == ["/loops/stopped", "/inbox"]
    (failure,) = needs_about(home, "reflection failed")
    assert failure["what"] == "no model answers"
    assert f"{len(home['needs'])} things need you" in page


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

    _, home = read_home(site)
    (broken,) = needs_about(home, "driver failed")
    assert broken["path"] == "/loops/broken"

    cancelled = site.api.post("/v1/loops/broken/cancel", json={"why": "no need"})
    read_data(cancelled)
    assert needs_about(site.data("/home"), "driver failed") == []


def test_who_has_sessions_only_sees_these_and_no_page_for_beginners(site):
    lesson = {"error_type": "x", "text": "odd"}
    site.api.post("/v1/reflections", json=lesson)

    page = site.get("").text
    assert 'id="begin"' not in page
    assert "heedful demo" not in page
    assert site.get("/.json").json()["lessons"] == 1


def broken_check(output: Any, context: Any) -> None:
    raise OSError("no such file")


@pytest.mark.both_nightly
def test_a_stage_that_a_broken_check_did_not_judge_needs_a_person(tmp_path):
    with browsing(tmp_path) as browser:
        store = browser.api.setup.store
        scope = Scope("acme", "main")
        pipeline = Pipeline("nightly", store=store, scope=scope, progress=False)
        pipeline.stage(name="load", checks=[broken_check])(lambda state: {"a": 1})
        report_of_run = browser.api.run(pipeline.run({}))
        browser.open(browser.api._all)
        home = browser.data("/home")

    (need,) = home["needs"]
    assert "OSError" in need["what"]
    assert need["about"].endswith(f"stage load of run {report_of_run.run}")
    assert need["path"] == f"/runs/{report_of_run.run}"


def test_a_stage_without_a_check_needs_nobody(tmp_path):
    with browsing(tmp_path) as browser:
        pipeline = Pipeline(
            "nightly",
            store=browser.api.setup.store,
            scope=Scope("acme", "main"),
            progress=False,
        )
        pipeline.stage(name="load")(lambda state: {"a": 1})
        browser.api.run(pipeline.run({}))
        browser.open(browser.api._all)
        assert browser.data("/home")["needs"] == []
        # Its stage stands in the list of runs, or in a search.
        assert browser.data("/loops")["loops"] == []
        assert "No loop, but 1 stage of a run." in words_of(browser.get("/loops").text)
        (stage,) = browser.data("/loops?text=load")["loops"]
        assert stage["state"] == "unchecked"
