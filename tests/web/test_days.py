"""Home draws no day as empty whose loops it has not read."""

import pytest

from heedful.web import figures
from tests.engines import change_rows
from tests.service.support import read_data
from tests.web.support import browsing

DAY = figures.FIGURE_DAY_SECONDS
LOOPS_A_DAY = 4


@pytest.mark.both
def test_days_that_were_not_read_wholly_are_not_drawn(tmp_path, monkeypatch):
    with browsing(tmp_path) as browser:
        browser.open(browser.api._all)
        for number in range(10 * LOOPS_A_DAY):
            body = {"task": f"task {number}"}
            read_data(browser.api.put(f"/v1/loops/{number:02}", json=body), 201)
        today = browser.get("/loops.json").json()["loops"][0]["created"] // DAY
        first = (today - 9) * DAY
        change_rows(
            tmp_path / "heedful.db",
            f"update loop set created = {first} + (n - (select min(n) from loop)) "
            f"* {DAY / LOOPS_A_DAY}",
        )
        monkeypatch.setattr(figures, "MAX_FIGURE_LOOPS", 30)
        home = browser.get("/home.json").json()
        page = browser.get("/home").text

    assert home["by"] == "day"
    assert [day["loops"] for day in home["course"]] == 7 * [LOOPS_A_DAY]
    assert "The charts begin with the first day that was read as a whole" in page


@pytest.mark.both
def test_a_day_of_more_loops_than_are_read_is_at_least_so_many(tmp_path, monkeypatch):
    with browsing(tmp_path) as browser:
        browser.open(browser.api._all)
        for number in range(6):
            read_data(browser.api.put(f"/v1/loops/{number}", json={"task": "t"}), 201)
            cancel = {"why": "enough"}
            read_data(browser.api.post(f"/v1/loops/{number}/cancel", json=cancel))
        monkeypatch.setattr(figures, "MAX_FIGURE_LOOPS", 5)
        page = browser.get("/home").text

    assert '<b class="figure">at least 5</b>' in page
