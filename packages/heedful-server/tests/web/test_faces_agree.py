"""Pages, their data, the command line and HTTP say the same of one database."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from heedful import Finding, Pipeline
from heedful.lessons.lesson import Scope
from heedful.store.connection import Db, token
from heedful.store.store import Store
from tests.cli.support import Desk
from tests.service.support import read_data
from tests.web.support import SCOPE, Browser, fill, words_of

LESSON = {
    "error_type": "Bash",
    "text": "npm is not used here",
    "lesson": "Use pnpm.",
    "example": {"task": "test", "rejected": "npm test", "accepted": "pnpm test"},
}


def type_command(desk: Desk, line: str) -> Any:
    done = desk.heedful(
        line,
        HEEDFUL_DB="heedful.db",
        HEEDFUL_TENANT=SCOPE.tenant,
        HEEDFUL_PROJECT=SCOPE.project,
        HEEDFUL_EMBEDDER="none",
    )
    assert done.code == 0, done.err
    return done


def has_rows(output: Any, context: Any) -> Iterator[Finding]:
    if not output:
        yield Finding("rows", "no rows")


def raises(output: Any, context: Any) -> list[Finding]:
    raise KeyError("x")


def pipeline_of(store: Store | str) -> Pipeline:
    """Return a pipeline of three stages: without a check, with one, and with one that
    raises.
    """
    pipeline = Pipeline("p", store=store, scope=SCOPE, progress=False)
    pipeline.stage(name="load")(lambda state: {"rows": 1})
    pipeline.stage(name="count", checks=[has_rows])(lambda state: 2)
    pipeline.stage(name="show", checks=[raises])(lambda state: 3)
    return pipeline


@pytest.mark.both_nightly
def test_what_nothing_judged_has_one_word_on_every_page(browser: Browser):
    browser.api.run(pipeline_of(browser.api.setup.store).run({}))
    loops = browser.data("/loops?text=p:")
    (silent,) = browser.data("/loops?text=p:&state=unchecked")["loops"]
    (raised,) = browser.data("/loops?text=p:&state=not_validated")["loops"]
    (judged,) = browser.data("/loops?text=p:&state=passed")["loops"]
    loop = browser.data(f"/loops/{silent['id']}")
    page = words_of(browser.get(f"/loops/{silent['id']}").text)
    doubted = words_of(browser.get(f"/loops/{raised['id']}").text)

    assert silent["stage"] == loop["stage"] == "load"
    assert silent["state"] == loop["state"] == "unchecked"
    assert raised["stage"] == "show"
    assert judged["stage"] == "count"
    assert loops["totals"] == browser.data("/home")["totals"]
    assert loops["totals"]["unjudged"] == 2
    assert loops["totals"]["passed"]["number"] == loops["totals"]["passed"]["of"] == 1
    assert "Unchecked at attempt 1: nothing judged it" in page
    assert "Passed at the first attempt" not in page
    assert "Not validated at attempt 1: check 'raises' raised" in doubted
    (states,) = [facet for facet in loops["facets"] if facet["name"] == "state"]
    counts = {value["value"]: value["count"] for value in states["values"]}
    assert counts == {"unchecked": 1, "not_validated": 1, "passed": 1}


def test_a_terminal_has_the_same_words_for_what_nothing_judged(tmp_path):
    desk = Desk(tmp_path)
    report = asyncio.run(pipeline_of(str(tmp_path / "heedful.db")).run({}))
    assert report.stage("load").status == "unchecked"
    assert report.stage("show").status == "not_validated"
    listed = type_command(desk, "loops").out
    assert re.search(r"/load +stage +unchecked ", listed)
    assert re.search(r"/show +stage +not validated ", listed)
    rows = type_command(desk, "loops --json").json["loops"]
    states = {str(row["task"]): row["state"] for row in rows}
    assert states["p: load"] == "unchecked"
    assert states["p: show"] == "not_validated"
    run = type_command(desk, "loops runs --json").json["runs"][0]
    assert run["stages"] == {"unchecked": 1, "passed": 1, "not_validated": 1}
    assert "1 unchecked, 1 passed, 1 not" in type_command(desk, "loops runs").out


def test_a_distance_has_the_same_words_on_every_face(browser: Browser, tmp_path):
    delays = iter([0.9, 0.325])

    def too_slow(delay: float) -> Iterator[Finding]:
        yield Finding("slow", "it takes too long", off_by=delay / 0.25 - 1)

    store = browser.api.setup.store
    pipeline = Pipeline("p", store=store, scope=SCOPE, progress=False)
    tune = pipeline.stage(name="tune", checks=[too_slow], retries=1)
    tune(lambda state: next(delays))
    run = browser.api.run(pipeline.run({})).run
    (row,) = browser.data("/loops?text=tune")["loops"]
    desk = Desk(tmp_path)
    why_loop = type_command(desk, f"why {row['id']}").out
    faces = [
        why_loop,
        type_command(desk, f"why {run} --full").out,
        browser.get(f"/loops/{row['id']}").text,
        browser.get(f"/runs/{run}").text,
        browser.api.get(f"/v1/loops/{row['id']}/explain").text,
    ]
    for face in faces:
        assert "260 % off" in face
        assert "30 % off" in face
    assert "slow: it takes too long (260 % off)" in why_loop


def newest_text(db: Db, scope: Scope) -> int:
    """Return the id of the text that was stored last."""
    (row,) = db.select("max(id) as id", "example", {"scope": token(scope)})
    return int(row["id"])


@pytest.mark.both_nightly
def test_a_text_that_nobody_ruled_on_is_not_said_to_be_ruled_on(browser: Browser):
    api = browser.api
    fill(api)
    read_data(api.post("/v1/reflections", json=LESSON), 201)
    waiting = browser.data("/inbox")["queue"][0]["id"]
    example = api.run(api.setup.store.read(SCOPE, newest_text))
    settled = browser.get(f"/inbox/{example}").text
    assert "Released by" not in settled
    assert "This text does not wait" in settled
    browser.do("release", id=str(waiting), why="read")
    assert "Released by" in browser.get(f"/inbox/{waiting}").text


@pytest.mark.both_nightly
def test_the_best_of_failed_attempts_is_not_green(browser: Browser):
    fill(browser.api)
    page = browser.get("/loops/stopped").text
    assert '<details class="step failed" id="attempt-1"' in page
