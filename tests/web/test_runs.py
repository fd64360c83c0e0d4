"""Runs of pipelines in the list of work: where they failed, and how long they took."""

from __future__ import annotations

import pytest

from heedful import Finding, Pipeline
from heedful.lessons.lesson import Scope
from heedful.pages.report import lasted
from heedful.web import work
from tests.web.support import words_of

pytestmark = pytest.mark.both_nightly
SCOPE = Scope("acme", "main")


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


def test_a_run_says_where_and_why_it_failed_and_how_long_it_took(browser):
    store = browser.api.setup.store
    pipeline = Pipeline("load", store=store, scope=SCOPE, progress=False)
    pipeline.stage(name="first", checks=[count_rows])(lambda state: {"rows": 7})
    report = browser.api.run(pipeline.run({}))

    (run,) = browser.data("/work")["pipelines"]
    page = words_of(browser.get("/work").text)
    assert run["state"] == report.status
    assert run["number"] == len(report.stages[0].attempts)
    assert run["where"] == "first"
    assert run["finding"] == "rows: only 7 rows"
    assert run["finding"] in page
    assert "1 run of a pipeline: degraded." in page
    total = lasted(1000 * run["seconds"])
    assert total in page
    own_page = words_of(browser.get(f"/runs/{run['id']}").text)
    assert total in own_page


def test_a_run_without_a_judge_is_not_green(browser):
    store = browser.api.setup.store
    pipeline = Pipeline("load", store=store, scope=SCOPE, progress=False)
    pipeline.stage(name="first")(lambda state: {"rows": 7})
    browser.api.run(pipeline.run({}))
    (run,) = browser.data("/work")["pipelines"]
    assert run["state"] == "passed"
    assert run["status"] == "quiet"
    page = words_of(browser.get(f"/runs/{run['id']}").text)
    assert "No check judged this run: its 1 stage went through unchecked." in page


def run_pipelines(browser, *names: str) -> None:
    """Run a pipeline of each name, with its name as what its first stage reads."""
    for name in names:
        pipeline = Pipeline(
            name, store=browser.api.setup.store, scope=SCOPE, progress=False
        )
        pipeline.stage(name="read")(lambda state, name=name: {"ticket": f"of {name}"})
        pipeline.stage(name="send")(lambda state: {"sent": True})
        browser.api.run(pipeline.run({}))


def test_runs_are_searched_and_go_on(browser, monkeypatch):
    run_pipelines(browser, "mail", "load")
    assert [run["words"] for run in browser.data("/work")["pipelines"]] == [
        "load",
        "mail",
    ]
    (run,) = browser.data("/work?text=MAIL")["pipelines"]
    assert run["words"] == "mail"
    assert "No run fits." in words_of(browser.get("/work?text=zzz").text)

    monkeypatch.setattr(work, "MAX_PIPELINE_RUNS", 1)
    table = browser.data("/work")["tables"][0]
    (older,) = browser.data(table["next"].removeprefix("/ui"))["pipelines"]
    assert older["words"] == "mail"
