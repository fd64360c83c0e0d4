"""The pages of loops with several generators."""

import pytest

from heedful.drive.drive import run
from heedful.drive.generate import Rung
from heedful.lessons.lesson import Scope
from heedful.testing import ScriptedModel
from tests.service.support import read_data
from tests.web.support import browsing


def report_ladder(browser, loop: str, *passed: bool) -> None:
    """Report the attempts of a loop, each of another rung."""
    body = {
        "task": "Route it",
        "policy": "default, attempts.limit=1",
        "rungs": ["small", "large"],
        "memory_key": "route",
    }
    read_data(browser.api.put(f"/v1/loops/{loop}", json=body), 201)
    for number, right in enumerate(passed, 1):
        finding = {"check": "queue", "message": "another queue"}
        attempt = {
            "output": f"answer {number}",
            "evaluation": {"findings": [] if right else [finding]},
            "usage": {"calls": 1, "prompt_tokens": 10, "cost": 0.25 * number},
        }
        read_data(browser.api.put(f"/v1/loops/{loop}/attempts/{number}", json=attempt))


@pytest.mark.both_nightly
def test_a_loop_shows_who_made_each_attempt_and_why_it_climbed(tmp_path):
    with browsing(tmp_path) as browser:
        browser.open()
        report_ladder(browser, "climbed", False, True)
        page = browser.get("/loops/climbed").text
        data = browser.data("/loops/climbed")
        assert "rung 1 (small)" in page
        assert "rung 2 (large)" in page
        assert "to rung 2" in page
        assert [attempt["rung"] for attempt in data["tried"]["attempts"]] == [1, 2]
        assert [rung["cost"] for rung in data["rungs"]] == [0.25, 0.5]

        [row] = browser.data("/loops")["loops"]
        [item] = read_data(browser.api.get("/v1/loops"))["items"]
        assert row["rung"] == item["rung"] == "rung 2 (large)"
        assert row["cost"] == item["cost"] == 0.75
        assert "rung 2 (large)" in browser.get("/loops").text


@pytest.mark.both_nightly
def test_a_loop_says_which_rung_has_spent_its_limit(tmp_path):
    with browsing(tmp_path) as browser:
        browser.open()
        store = browser.api.setup.store
        limited = Rung(ScriptedModel("wrong", "wrong"), "small", calls=1)
        for id in ("first", "ended"):
            work = run(
                "t",
                generate=limited,
                checks=[lambda candidate: "not right"],
                policy="default, attempts.limit=1",
                store=store,
                scope=Scope("acme", "main"),
                id=id,
            )
            browser.api.run(work)

        [sentence] = browser.data("/loops/ended")["closed"]
        assert sentence.startswith("rung 1 (small): 1 of 1 calls spent, the limit of")
        assert f"Closed: {sentence}." in browser.get("/loops/ended").text
        assert "Closed:" not in browser.get("/loops/first").text
        explained = read_data(browser.api.get("/v1/loops/ended/explain"))
        assert explained["closed"] == [sentence]
