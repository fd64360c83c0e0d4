"""Home says in one sentence how it goes, lists what needs a person by its cause, and
says how the first loop begins.
"""

import html
import re
import runpy
import time
from typing import Any

import pytest

import heedful
from heedful import Pipeline
from tests.engines import change_rows
from tests.service.support import read_data, record, wrong
from tests.web.support import SCOPE, Browser, browsing, fill, words_of

both_nightly = pytest.mark.both_nightly
WEEK_SECONDS = 7 * 86_400


def stop(browser: Browser, name: str, message: str, check: str = "unit") -> None:
    """Store a loop of one attempt in which a check found something."""
    finding = {"check": check, "message": message}
    record(browser.api, name, wrong(name, finding), policy="attempts.limit=1")


def needs_about(browser: Browser, words: str) -> list[dict[str, Any]]:
    """Return the rows of what needs a person that are about something."""
    needs = browser.data("/home")["needs"]
    return [need for need in needs if words in need["about"]]


@both_nightly
def test_equal_failures_are_one_row_with_their_finding_a_count_and_since(browser, file):
    for number in range(7):
        stop(browser, f"loop-{number}", f"no unit in line {number}")
    stop(browser, "other", "unknown team 'P9'", check="team")
    change_rows(file, "update loop set updated = updated - 3600 where id = 'loop-2'")
    home = browser.data("/home")
    cause, other = home["needs"]
    assert cause["what"] == "no unit in line 6"
    assert cause["about"] == "check unit"
    assert cause["number"] == 7
    assert 3600 <= time.time() - cause["since"] < 3700
    assert other["what"] == "unknown team 'P9'"
    for loops in home["causes"]:
        listed = browser.data(f"/loops?cause={loops['signature']}")
        assert len(listed["loops"]) == listed["totals"]["loops"] == loops["loops"]
    page = words_of(browser.get("/home").text)
    assert "no unit in line 6 check unit 7" in page
    assert "0 of 8 loops solved, 0 at the first try; 2 things need you." in page
    for row in browser.data("/loops?check=unit")["loops"]:
        assert row["alike"] == 7
        assert row["since"] == cause["since"]

    change_rows(file, f"update loop set updated = updated - {WEEK_SECONDS + 9}")
    home = browser.data("/home")
    assert home["needs"] == []
    assert len(home["causes"]) == 2


@both_nightly
def test_each_kind_that_needs_a_person_has_its_rows(browser, file):
    fill(browser.api)
    failed = "update episode set state = 'failed', error = 'no model answers'"
    change_rows(file, failed)
    needs = browser.data("/home")["needs"]
    assert [need["path"] for need in needs[:2]] == ["/loops/stopped", "/inbox"]
    (failure,) = needs_about(browser, "reflection failed")
    assert failure["what"] == "no model answers"
    page = words_of(browser.get("/home").text)
    assert f"{len(needs)} things need you" in page


def judge_offline(candidate: str, context: heedful.Context) -> None:
    raise OSError("the judge is offline")


@both_nightly
def test_an_open_loop_whose_driver_failed_needs_a_person_until_it_ends(browser):
    run = heedful.Run[str](
        "Say red",
        id="broken",
        generate=lambda task: "red",
        checks=[judge_offline],
        store=browser.api.setup.store,
        scope=SCOPE,
    )
    with pytest.raises(heedful.errors.UserCodeError):
        browser.api.run(run.finish())
    (broken,) = needs_about(browser, "driver failed")
    assert broken["path"] == "/loops/broken"
    cancelled = browser.api.post("/v1/loops/broken/cancel", json={"why": "no need"})
    read_data(cancelled)
    assert needs_about(browser, "driver failed") == []
    (cause,) = browser.data("/home")["needs"]
    assert cause["what"] == "cancelled"
    assert cause["path"] == "/loops/broken"


@both_nightly
def test_a_stage_that_a_broken_check_did_not_judge_needs_a_person(browser):
    store = browser.api.setup.store
    pipeline = Pipeline("nightly", store=store, scope=SCOPE, progress=False)
    pipeline.stage(name="free")(lambda state: {"a": 1})
    pipeline.stage(name="load", checks=[judge_offline])(lambda state: {"a": 1})
    run = browser.api.run(pipeline.run({})).run
    # A stage without a check needs nobody.
    (need,) = browser.data("/home")["needs"]
    assert "OSError" in need["what"]
    assert need["about"].endswith(f"stage load of run {run}")
    assert "the last one" not in need["about"]
    assert need["path"] == f"/runs/{run}"
    # Stages stand in the list of runs, or in a search.
    assert "No loop, but 2 stages of runs." in words_of(browser.get("/loops").text)
    (stage,) = browser.data("/loops?text=free")["loops"]
    assert stage["state"] == "unchecked"


# -- the first loop


def test_who_has_lessons_only_sees_these_and_no_page_for_beginners(browser):
    lesson = {"error_type": "x", "text": "odd"}
    read_data(browser.api.post("/v1/reflections", json=lesson), 201)
    page = browser.get("").text
    assert 'id="begin"' not in page
    assert "heedful demo" not in page
    assert browser.get("/.json").json()["lessons"] == 1


@pytest.mark.parametrize("name", ["plain", 'it\'s a "folder" $(x) `y` \\n é'])
def test_six_lines_make_two_loops_in_this_file(tmp_path, monkeypatch, capsys, name):
    folder = tmp_path / name
    folder.mkdir()
    with browsing(folder) as browser:
        browser.open()
        facts = browser.data("/home")["begin"]
        page = browser.get("").text
        assert len(facts["code"].splitlines()) == 6
        assert "--recorded" in facts["recorded"]
        copied = set(map(html.unescape, re.findall(r'data-copy="([^"]*)"', page)))
        assert {facts["code"], facts["recorded"], facts["hook"]} <= copied

        # Somebody saves the lines in another folder, and runs them there.
        monkeypatch.chdir(tmp_path)
        script = tmp_path / "first.py"
        script.write_text(facts["code"], "utf-8")
        runpy.run_path(str(script), run_name="__main__")
        assert capsys.readouterr().out.split() == ["red", "red"]

        second, first = browser.data("/loops")["loops"]
        assert first["task"] == "Say a colour"
        assert [first["attempts"], second["attempts"]] == [2, 1]
        assert first["memory_key"] == second["memory_key"] == "first.answer"
        assert 'id="begin"' not in browser.get("").text


def test_others_are_not_told_the_file(browser):
    browser.open(browser.api.key("read"))
    facts = browser.data("/home")["begin"]
    for name in ("code", "recorded", "projects"):
        assert facts[name] == ""
    assert "/v1/loops/ID" in browser.get("").text
    # Only Home says how to begin; Loops leads there.
    assert "Next: how to begin" in words_of(browser.get("/loops").text)
