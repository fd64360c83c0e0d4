"""Pages, their data, the command line and HTTP say the same of one database."""

import asyncio
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from heedful import Finding, Pipeline
from heedful.lessons.lesson import Exposure, Outcome, Scope
from heedful.store import exposures
from heedful.store.connection import Db, token
from heedful.store.store import Store
from tests.cli.support import Desk
from tests.service.support import read_data
from tests.web.support import Browser, browsing, fill, words_of

SCOPE = Scope("acme", "main")
DIGESTS = ("0" * 15 + "1", "0" * 15 + "2")
Compared = tuple[bool, bool, int]
LESSON = {
    "error_type": "Bash",
    "text": "npm is not used here",
    "lesson": "Use pnpm.",
    "example": {"task": "test", "rejected": "npm test", "accepted": "pnpm test"},
}


async def compare_loops(store: Store, loops: Sequence[Compared]) -> None:
    """Store loops for which one coin decided over two lessons."""
    for number, (is_shown, is_right, calls) in enumerate(loops):
        coins = [
            Exposure(
                f"check/{digest}",
                f"loop {number}",
                shown=is_shown,
                signature=digest,
                share=0.5,
                together=True,
            )
            for digest in DIGESTS
        ]
        errors = frozenset() if is_right else frozenset({DIGESTS[0]})
        end = Outcome(f"loop {number}", is_right, calls=calls, signatures=errors)
        await store.write(SCOPE, exposures.remember, (), exposures=coins, outcome=end)


def signed(value: float) -> str:
    """Return a number rounded to an integer, with its sign."""
    return f"{round(value):+d}".replace("-", "−")


def points(gain: float) -> str:
    """Return a gain of a share in percentage points."""
    return signed(100 * gain)


def may_be_0(effect: Any) -> bool:
    """Return whether the interval of a gain has 0 in it."""
    return bool(effect["low"] <= 0 <= effect["high"])


@contextmanager
def database(loops: Sequence[Compared] = ()) -> Iterator[tuple[Browser, Desk]]:
    """Give a browser and a command line on the same made-up loops."""
    with tempfile.TemporaryDirectory() as folder, browsing(Path(folder)) as browser:
        fill(browser.api)
        asyncio.run(compare_loops(browser.api.setup.store, loops))
        yield browser.open(browser.api._all), Desk(Path(folder))


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


# To shrink would open hundreds of databases.


@pytest.mark.both_nightly
def test_the_page_of_a_lesson_rounds_as_its_proof(tmp_path):
    loops = [(True, number % 3 > 0, 1) for number in range(17)]
    loops += [(False, number % 7 > 3, 2) for number in range(13)]
    with browsing(tmp_path) as browser:
        api = browser.open(browser.api._all).api
        read_data(api.post("/v1/reflections", json=LESSON), 201)
        lesson = browser.data("/lessons")["lessons"][0]
        name = f"{lesson['kind']}/{lesson['signature']}"
        for number, (is_shown, is_right, calls) in enumerate(loops):
            coin = Exposure(name, f"loop {number}", shown=is_shown, share=0.5)
            end = Outcome(f"loop {number}", is_right, calls=calls)
            api.run(
                api.setup.store.write(
                    SCOPE, exposures.remember, (), exposures=[coin], outcome=end
                )
            )

        page = words_of(browser.get(f"/lessons/{lesson['id']}").text)
        uplift = browser.data(f"/lessons/{lesson['id']}")["effect"]["uplift"]

    assert may_be_0(uplift)
    ends = f"({points(uplift['low'])} to {points(uplift['high'])} points)"
    assert f"No difference shown yet at the first try {ends}: " in page
    assert "Of the 17 loops that were shown it" not in page


def has_rows(output: Any, context: Any) -> Iterator[Finding]:
    if not output:
        yield Finding("rows", "no rows")


def raises(output: Any, context: Any) -> list[Finding]:
    raise KeyError("x")


def run_pipeline(store: Store | str) -> Pipeline:
    """Return a pipeline of three stages: without a check, with one, and with one that
    raises.
    """
    pipeline = Pipeline("p", store=store, scope=SCOPE, progress=False)
    pipeline.stage(name="load")(lambda state: {"rows": 1})
    pipeline.stage(name="count", checks=[has_rows])(lambda state: 2)
    pipeline.stage(name="show", checks=[raises])(lambda state: 3)
    return pipeline


@pytest.mark.both_nightly
def test_what_nothing_judged_has_one_word_on_every_page(tmp_path):
    with browsing(tmp_path) as browser:
        api = browser.open(browser.api._all).api
        api.run(run_pipeline(api.setup.store).run({}))
        loops = browser.data("/loops?text=p:")
        home = browser.data("/home")
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
    assert loops["totals"] == home["totals"]
    assert loops["totals"]["unjudged"] == 2
    assert loops["totals"]["passed"]["number"] == loops["totals"]["passed"]["of"] == 1
    assert "Unchecked at attempt 1: nothing judged it" in page
    assert "Not validated at attempt 1: check 'raises' raised" in doubted
    assert "Passed at the first attempt" not in page
    (states,) = [facet for facet in loops["facets"] if facet["name"] == "state"]
    assert {value["value"]: value["count"] for value in states["values"]} == {
        "unchecked": 1,
        "not_validated": 1,
        "passed": 1,
    }


def test_a_terminal_has_the_same_words_for_what_nothing_judged(tmp_path):
    desk = Desk(tmp_path)
    report = asyncio.run(run_pipeline(str(tmp_path / "heedful.db")).run({}))
    listed = type_command(desk, "loops").out
    rows = type_command(desk, "loops --json").json["loops"]
    states = {str(row["task"]): row["state"] for row in rows}
    run = type_command(desk, "loops runs --json").json["runs"][0]
    assert report.stage("load").status == "unchecked"
    assert report.stage("show").status == "not_validated"
    assert re.search(r"/load +stage +unchecked ", listed)
    assert re.search(r"/show +stage +not validated ", listed)
    assert states["p: load"] == "unchecked"
    assert states["p: show"] == "not_validated"
    assert run["stages"] == {"unchecked": 1, "passed": 1, "not_validated": 1}
    assert "1 unchecked, 1 passed, 1 not" in type_command(desk, "runs").out


def test_a_distance_has_the_same_words_on_every_face(tmp_path):
    delays = iter([0.9, 0.325])

    def too_slow(delay: float) -> Iterator[Finding]:
        yield Finding("slow", "it takes too long", off_by=delay / 0.25 - 1)

    with browsing(tmp_path) as browser:
        api = browser.open(browser.api._all).api
        pipeline = Pipeline("p", store=api.setup.store, scope=SCOPE, progress=False)
        pipeline.stage(name="tune", checks=[too_slow], retries=1)(
            lambda state: next(delays)
        )
        report = api.run(pipeline.run({}))
        (row,) = browser.data("/loops?text=tune")["loops"]
        loop = browser.get(f"/loops/{row['id']}").text
        run = browser.get(f"/runs/{report.run}").text
        desk = Desk(tmp_path)
        why_loop = type_command(desk, f"why {row['id']}").out
        why_run = type_command(desk, f"why {report.run} --full").out
        stored = read_data(browser.api.get(f"/v1/loops/{row['id']}/explain"))

    for face in (loop, run, why_loop, why_run, str(stored)):
        assert "260 % off" in face
        assert "30 % off" in face
    assert "slow: it takes too long (260 % off)" in why_loop


def newest_text(db: Db, scope: Scope) -> int:
    """Return the id of the text that was stored last."""
    (row,) = db.select("max(id) as id", "example", {"scope": token(scope)})
    return int(row["id"])


@pytest.mark.both_nightly
def test_a_text_that_nobody_ruled_on_is_not_said_to_be_ruled_on(tmp_path):
    with browsing(tmp_path) as browser:
        api = browser.api
        fill(api)
        browser.open(api._all)
        read_data(api.post("/v1/reflections", json=LESSON), 201)
        waiting = browser.data("/inbox")["queue"][0]["id"]
        example = api.run(api.setup.store.read(SCOPE, newest_text))
        settled = browser.get(f"/inbox/{example}").text
        browser.do("release", id=str(waiting), why="read")
        released = browser.get(f"/inbox/{waiting}").text

    assert "Released by" not in settled
    assert "This text does not wait" in settled
    assert "Released by" in released
