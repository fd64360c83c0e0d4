"""A trace is shown as steps: a call with its response, how long it took, failures."""

from typing import Any

import pytest

from heedful.web.steps import steps_of
from tests.service.support import read_data
from tests.web.support import ATTACK, browsing, words_of


def call(tool: str, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_call", "tool": tool, "arguments": {"x": 1}, **fields}


def response(tool: str, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_response", "tool": tool, "content": "done", **fields}


@pytest.mark.parametrize(
    ("events", "numbers"),
    [
        pytest.param(
            [call("sh"), response("sh")], [[1, 2]], id="a response after its call"
        ),
        pytest.param(
            [
                call("a", call="1"),
                call("b", call="2"),
                response("b", call="2"),
                response("a", call="1"),
            ],
            [[1, 4], [2, 3]],
            id="two calls at a time, by their ids",
        ),
        pytest.param(
            [call("a"), response("b")], [[1], [2]], id="a response of another tool"
        ),
        pytest.param(
            [call("a"), response("a"), response("a")],
            [[1, 2], [3]],
            id="a second response",
        ),
        pytest.param([response("a")], [[1]], id="a response without a call"),
        pytest.param(
            [{"type": "llm_call"}, {"type": "llm_response", "content": "hi"}],
            [[1, 2]],
            id="a model's answer",
        ),
        pytest.param([], [], id="no event"),
    ],
)
def test_a_response_is_in_the_step_of_its_call(
    events: list[dict[str, Any]], numbers: list[list[int]]
):
    assert [step["numbers"] for step in steps_of(events)] == numbers


def test_a_step_fails_with_its_response_and_is_suspect_by_a_sign():
    events = [call("a"), response("a", error="no"), call("b")]
    first, second = steps_of(events, suspects=[3])
    assert first["failed"]
    assert not first["suspect"]
    assert second["suspect"]
    assert not second["failed"]


@pytest.mark.both_nightly
def test_failures_of_a_trace_are_open_and_other_steps_are_folded(tmp_path):
    with browsing(tmp_path) as browser:
        browser.open(browser.api._all)
        events = [
            call("read"),
            response("read"),
            call("write", arguments=ATTACK),
            response("write", error=ATTACK, content=ATTACK),
        ]
        body = {"events": events, "outcome": "error"}
        read_data(browser.api.post("/v1/episodes", json=body), 202)
        episode = browser.data("/work")["agents"][0]
        assert episode["where"] == "step 2 write"
        assert episode["finding"] == ATTACK[:200]
        digest = episode["id"]
        facts = browser.data(f"/traces/{digest}")
        assert [step["numbers"] for step in facts["steps"]] == [[1, 2], [3, 4]]
        assert facts["failed"] == 1

        page = browser.get(f"/traces/{digest}").text
        folded, opened = page.split("<details")[1:3]
        assert " open>" not in folded.partition("<summary")[0]
        assert " open>" in opened.partition("<summary")[0]
        assert "<script>alert" not in page
        for number in range(1, 5):
            assert page.count(f'id="e{number}"') == 1
        assert '<a href="#t2">step 2</a>' in page


@pytest.mark.parametrize(
    ("later", "words"),
    [
        pytest.param("sh", "step 1 sh, then recovered", id="it worked later"),
        pytest.param("ls", "step 1 sh", id="it did not"),
    ],
)
def test_a_run_recovered_only_if_what_failed_worked_later(tmp_path, later, words):
    with browsing(tmp_path) as browser:
        browser.open(browser.api._all)
        events = [call("sh"), response("sh", error="no"), call(later), response(later)]
        body = {"events": events, "outcome": "success"}
        read_data(browser.api.post("/v1/episodes", json=body), 202)
        [row] = browser.data("/work")["agents"]
        assert words in words_of(browser.get("/work").text)
        # What ended with a failed step is not marked as right.
        assert (row["status"] == "passed") == (later == "sh")
