"""What loops used is known as far as they reported it."""

from __future__ import annotations

from tests.service.support import read_data
from tests.web.support import Browser, words_of


def test_calls_are_known_only_of_loops_that_reported_them(browser: Browser):
    for name, usage in (("one", {"calls": 3, "seconds": 2}), ("two", {})):
        path = f"/v1/loops/{name}"
        read_data(browser.api.put(path, json={"task": "t"}), 201)
        body = {"output": "x", "evaluation": {}, "usage": usage}
        read_data(browser.api.put(f"{path}/attempts/1", json=body))

    page = words_of(browser.get("/loops").text)
    assert "3 calls from 1 of 2 2 s time from 1 of 2" in page
    assert "3 calls from 1 of 2" in words_of(browser.get("/home").text)
