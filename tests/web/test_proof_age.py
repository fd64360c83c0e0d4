"""In a project with many loops, proof is counted once in a while, or after a ruling."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from heedful.web.lessons import MIN_CACHED_LOOPS
from tests.engines import change_rows
from tests.service.support import read_data
from tests.web.support import words_of

pytestmark = pytest.mark.both_nightly
NUMBERS = (
    "with recursive x (i) as (select {begin} union all select i + 1 from x "
    "where i < {end}) "
)
OUTCOMES = """
insert into outcome (tenant, project, loop, n, right_at_once, calls, signatures, at)
select 'acme', 'main', 'loop ' || i, i, i % 3 <> 0, 1, '[]', {now} from x
"""
EXPOSURES = """
insert into exposure (tenant, project, loop, kind, signature, shown, share, among, at)
select 'acme', 'main', 'loop ' || i, 'error', 's', i % 10 <> 0, 0.1, 1, {now} from x
"""


def end_loops(file: Path, begin: int, end: int) -> None:
    """Store loops that were shown a lesson, or not, and have ended."""
    for statement in (OUTCOMES, EXPOSURES):
        numbers = NUMBERS.format(begin=begin, end=end)
        change_rows(file, numbers + statement.format(now=time.time()))


def test_proof_of_many_loops_is_kept_until_a_ruling_and_says_its_age(browser, file):
    lesson = {"error_type": "E", "text": "write EUR", "lesson": "write EUR"}
    id = read_data(browser.api.post("/v1/reflections", json=lesson), 201)["id"]
    end_loops(file, 1, MIN_CACHED_LOOPS)
    data = browser.data("/proof?project=main")
    wire = read_data(browser.api.get("/v1/proof"))
    assert data["pooled"] | wire["pooled"] == data["pooled"]
    assert data["balance"] == wire["balance"]
    assert "Counted " in words_of(browser.get("/proof").text)

    end_loops(file, MIN_CACHED_LOOPS + 1, MIN_CACHED_LOOPS + 10)
    assert browser.data("/proof?project=main")["ended"] == MIN_CACHED_LOOPS

    path = f"/v1/reflections/{id}"
    edition = browser.api.get(path).headers["etag"]
    body = {"pinned": True, "why": "it is needed"}
    read_data(browser.api.patch(path, json=body, headers={"if-match": edition}))
    assert browser.data("/proof?project=main")["ended"] == MIN_CACHED_LOOPS + 10
