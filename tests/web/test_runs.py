"""The list of runs: their stages, why they failed, and how long they took."""

from __future__ import annotations

import re

import pytest

from heedful import Finding, Pipeline
from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from heedful.pages.report import lasted
from heedful.testing import ScriptedModel
from tests.web.support import browsing, words_of

pytestmark = pytest.mark.both_nightly
SCOPE = Scope("acme", "main")


@pytest.fixture
def browser(tmp_path):
    with browsing(tmp_path) as browser:
        yield browser.open(browser.api._all)


def test_runs_show_their_stages_and_are_filtered_by_pipeline(browser):
    store = browser.api.setup.store
    for name in ("load", "report"):
        assert 'aria-label="by pipeline"' not in browser.get("/runs").text
        pipeline = Pipeline(name, store=store, scope=SCOPE, progress=False)
        pipeline.stage(name="first")(lambda state: {"a": 1})
        pipeline.stage(name="second")(lambda state: {"b": 1})
        browser.api.run(pipeline.run({}))

    page = browser.data("/runs?pipeline=load")
    (run,) = page["runs"]
    assert run["attempts"] == 2
    assert [stage["name"] for stage in run["stages"]] == ["first", "second"]
    assert sum(stage["part"] for stage in run["stages"]) == pytest.approx(1)
    drawn = browser.get("/runs?pipeline=load").text
    assert drawn.count('fill="url(#stage-hatch)"') == 3  # two stages and the legend
    assert drawn.count('id="stage-hatch"') == 1
    assert {row["pipeline"]: row["runs"] for row in page["pipelines"]} == {
        "load": 1,
        "report": 1,
    }


def test_a_run_shows_what_each_stage_was_given(browser):
    store = browser.api.setup.store
    pipeline = Pipeline("mail", store=store, scope=SCOPE, progress=False)
    pipeline.stage(name="read")(lambda state: "a late parcel")
    answer = pipeline.stage(name="answer", model=ScriptedModel("Sorry."))
    answer(lambda state: "Answer this: " + "please " * 600)
    pipeline.stage(name="send")(lambda state: None)
    run = browser.api.run(pipeline.run({})).run

    page = words_of(browser.get(f"/runs/{run}").text)
    assert "Input: the state with which the run began; it is not stored." in page
    assert "Input: a prompt of 4,213 characters" in page
    assert " … and 1,213 characters" in page
    assert "Input: the state, with 6 characters from answer" in page


def test_the_loop_of_a_run_is_the_page_of_the_run(browser):
    store = browser.api.setup.store
    pipeline = Pipeline("load", store=store, scope=SCOPE, progress=False)
    pipeline.stage(name="first")(lambda state: {"a": 1})
    run = browser.api.run(pipeline.run({})).run

    answer = browser.get(f"/loops/{run}")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/ui/runs/{run}?project=main"
    assert browser.data(f"/loops/{run}") == browser.data(f"/runs/{run}")
    assert browser.get(f"/loops/{run}/first").status_code == 200


def count_rows(state: dict[str, int]) -> list[Finding]:
    """Find that there are too few rows."""
    return [Finding("rows", f"only {state['rows']} rows")]


def test_a_run_that_failed_says_why_and_how_long_it_took(browser):
    store = browser.api.setup.store
    pipeline = Pipeline("load", store=store, scope=SCOPE, progress=False)
    pipeline.stage(name="first", checks=[count_rows])(lambda state: {"rows": 7})
    browser.api.run(pipeline.run({}))

    (run,) = browser.data("/runs")["runs"]
    page = words_of(browser.get("/runs").text)
    assert run["reason"] == "first failed by rows: only 7 rows"
    assert run["reason"] in page
    assert run["wall"] >= 0
    total = lasted(1000 * run["seconds"])
    assert total in page
    own_page = words_of(browser.get(f"/runs/{run['id']}").text)
    assert f"{total} in attempts" in own_page


def test_a_run_leads_to_the_lesson_with_its_error(browser):
    store = browser.api.setup.store
    counts = iter((7, 70))

    def enough(state: dict[str, int]) -> list[Finding]:
        return count_rows(state) if state["rows"] < 9 else []

    pipeline = Pipeline(
        "load", store=store, scope=SCOPE, memory=Memory(store, SCOPE), progress=False
    )
    pipeline.stage(name="first", checks=[enough])(lambda state: {"rows": next(counts)})
    browser.api.run(pipeline.run({}))

    (run,) = browser.data("/runs")["runs"]
    page = browser.get(f"/runs/{run['id']}").text
    assert re.search(r'href="/ui/lessons/1[^"]*">lesson 1</a>', page)


def test_a_run_that_passed_without_a_judge_is_called_alike_in_both_places(browser):
    store = browser.api.setup.store
    pipeline = Pipeline("load", store=store, scope=SCOPE, progress=False)
    pipeline.stage(name="first")(lambda state: {"rows": 7})
    browser.api.run(pipeline.run({}))
    assert "? passed, 1 unchecked" in words_of(browser.get("/runs").text)
    (run,) = browser.data("/runs")["runs"]
    page = words_of(browser.get(f"/runs/{run['id']}").text)
    assert "? passed, 1 unchecked" in page


def test_a_run_names_the_one_stage_that_has_no_check(browser):
    store = browser.api.setup.store
    pipeline = Pipeline("load", store=store, scope=SCOPE, progress=False)
    pipeline.stage(name="first")(lambda state: {"rows": 7})
    pipeline.stage(name="second", checks=[lambda state: []])(lambda state: {"b": 1})
    browser.api.run(pipeline.run({}))
    page = browser.get("/runs").text
    assert "? passed, 1 unchecked" in words_of(page)
    assert 'title="unchecked: first"' in page


def test_the_parts_of_a_run_are_seen_and_fill_its_bar(browser):
    store = browser.api.setup.store
    pipeline = Pipeline("load", store=store, scope=SCOPE, progress=False)
    pipeline.stage(name="short")(lambda state: {"rows": 7})
    pipeline.stage(name="long")(lambda state: {"sum": sum(range(3_000_000))})
    browser.api.run(pipeline.run({}))

    (run,) = browser.data("/runs")["runs"]
    parts = [stage["part"] for stage in run["stages"]]
    assert sum(parts) == pytest.approx(1.0)
    assert min(parts) > 0.05


def run_pipelines(browser, *names: str) -> None:
    """Run a pipeline of each name, with its name as what its first stage reads."""
    for name in names:
        pipeline = Pipeline(
            name, store=browser.api.setup.store, scope=SCOPE, progress=False
        )
        pipeline.stage(name="read")(lambda state, name=name: {"ticket": f"of {name}"})
        pipeline.stage(name="send")(lambda state: {"sent": True})
        browser.api.run(pipeline.run({}))


def test_runs_are_searched_and_sorted(browser):
    run_pipelines(browser, "mail", "load")
    assert [run["pipeline"] for run in browser.data("/runs")["runs"]] == [
        "load",
        "mail",
    ]
    oldest_first = browser.data("/runs?sort=began")["runs"]
    assert [run["pipeline"] for run in oldest_first] == ["mail", "load"]
    by_time = [run["seconds"] for run in browser.data("/runs?sort=-time")["runs"]]
    assert by_time == sorted(by_time, reverse=True)
    (run,) = browser.data("/runs?text=MAIL")["runs"]
    assert run["pipeline"] == "mail"
    assert "No run has these words." in words_of(browser.get("/runs?text=zzz").text)


def test_the_loops_of_stages_are_found_by_their_names(browser):
    run_pipelines(browser, "mail", "load")
    for stage in ("read", "send"):
        page = words_of(browser.get(f"/loops?text={stage}").text)
        for name in ("mail", "load"):
            assert f"{name}: {stage}" in page
