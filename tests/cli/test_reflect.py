"""`heedful reflect`: traces of any format, each run once; what failed is told and tried again."""

from __future__ import annotations

import asyncio
import json

import pytest

from heedful.lessons.lesson import Scope
from heedful.memory.reflect import file
from heedful.store import episodes
from heedful.traces import messages as traces
from tests.cli.support import following
from tests.memory.reflections import FAILED, GOOD, MENDED, TASK, about
from tests.store.support import opened

MODEL = f"""
import os
from heedful.errors import ModelTimeout, ModelUnavailable

GOOD = {GOOD!r}

def good(messages):
    return GOOD

def late(messages):
    raise ModelTimeout("no answer within 3 s")

def gone(messages):
    raise ModelUnavailable("no key")
"""
CHAT = {
    "messages": [
        {"role": "user", "content": TASK},
        {"role": "assistant", "tool_calls": [
            {"id": "1", "function": {"name": "price", "arguments": '{"item": "pot"}'}}]},
        {"role": "tool", "tool_call_id": "1", "content": "Error: 3 items match\x1b[31m"},
    ],
    "outcome": "failure",
}  # fmt: skip


@pytest.fixture
def heedful_(desk, monkeypatch):
    desk.write("runs.jsonl", b"".join(traces.write([FAILED, MENDED])))
    desk.write("reflectors.py", MODEL)
    return lambda *arguments: desk.invoke(monkeypatch, *arguments)


def test_each_run_is_told_with_the_events_that_prove_it(heedful_):
    done = heedful_("reflect", "runs.jsonl")
    assert done.code == 0
    for part in (
        f"runs.jsonl:run 1  error, 4 events: {TASK}",
        "signal   cause [e3]: fails first here: Error: 3 items match",
        "lesson   price with item “pot” failed with “Error: 3 items match” [e2, e3].",
        "rule     When price (item) fails, fix what it names before you go on;",
        "by rules, importance 0.80; kept, waits in quarantine",
        "runs.jsonl:2  failure, 6 events",
        "known, seen 2 times now",
        "2 episodes: 1 new, 1 known",
    ):
        assert part in done.out
    assert following(done.out) == ["quarantine", "list"]
    assert heedful_(*following(done.out)).code == 0


def test_two_runs_add_nothing(heedful_):
    first = heedful_("reflect", "runs.jsonl", "--json").json
    again = heedful_("reflect", "runs.jsonl", "--json").json
    assert [len(one["stored"]) for one in first["episodes"]] == [2, 2]
    assert [one["again"] for one in again["episodes"]] == [True, True]
    assert [one["stored"] for one in again["episodes"]] == [[], []]
    assert "2 episodes: 0 new, 2 known" in heedful_("reflect", "runs.jsonl").out
    # The same failure, and two rules for it.
    assert [one["seen"] for one in heedful_("lessons", "--json").json["lessons"]] == [2, 1, 1]


def test_a_chat_is_read_and_its_controls_are_not_shown(heedful_, desk):
    desk.write("chat.json", json.dumps(CHAT))
    done = heedful_("reflect", "chat.json", "--trust", "operator")
    assert "price with item “pot” failed with “Error: 3 items match" in done.out
    assert "\x1b" not in done.out


def test_a_model_words_it(heedful_):
    done = heedful_("reflect", "runs.jsonl", "--model", "reflectors:good", "--json")
    assert done.code == 0
    first = done.json["episodes"][0]
    assert first["reflection"]["meta"]["by"] == "reflectors:good"
    assert first["strategy"]["text"] == "Before you call price, name the item in full."
    assert "run 1: reflected on" in done.err


def test_what_failed_is_told_by_doctor_and_tried_again(heedful_):
    done = heedful_("reflect", "runs.jsonl", "--model", "reflectors:late")
    assert done.code == 1
    assert "the model failed, so nothing was kept (no answer within 3 s)" in done.out
    assert "2 episodes: 0 new, 0 known, 2 failed" in done.out
    assert heedful_("lessons", "--json").json["lessons"] == []
    ill = heedful_("doctor")
    assert ill.code == 1
    assert (
        "✗ episodes: 0 reflected on, 0 waiting, 2 failed (the last: ModelTimeout: no ans" in ill.out
    )
    assert heedful_("reflect", "--waiting", "--model", "reflectors:late").code == 1
    done = heedful_("reflect", "--waiting", "--model", "reflectors:good")
    assert done.code == 0
    assert "2 episodes: 1 new, 1 known" in done.out
    assert "✓ episodes: 2 reflected on, 0 waiting, 0 failed" in heedful_("doctor").out
    assert "0 episodes: 0 new" in heedful_("reflect", "--waiting").out


def test_what_another_is_at_work_on_is_told_as_such(heedful_, desk):
    """Or was, until it was killed: that is known after a while."""
    heedful_("reflect", "runs.jsonl", "--no-store")
    with opened(desk.folder / "heedful.db") as store:
        one = file(FAILED, FAILED.digest, "external")
        assert asyncio.run(episodes.admit(store, Scope(), one)) is None
    done = heedful_("reflect", "runs.jsonl")
    assert "another process works on it, or was killed: after some seconds" in done.out
    assert "2 episodes: 1 new, 0 known, 1 left to others" in done.out
    done = heedful_("reflect", "--waiting")
    assert "0 episodes: 0 new, 0 known, 1 left to others" in done.out
    assert "another process works on the rest, or was killed" in done.err
    assert heedful_("reflect", "--waiting", "--json").json["left"] == 1


def test_a_model_that_is_not_there_ends_it(heedful_):
    done = heedful_("reflect", "runs.jsonl", "--model", "reflectors:gone")
    assert (done.code, done.out) == (5, "")
    assert "no key" in done.err


def test_damage_is_told_after_what_is_whole(heedful_, desk):
    whole = b"".join(traces.write([FAILED, about("another")]))
    desk.write("cut.jsonl", whole[:-40])
    done = heedful_("reflect", "cut.jsonl", "runs.jsonl")
    assert done.code == 2
    assert "1 episode: 1 new" in done.out
    assert "cut.jsonl" in done.err
    done = heedful_("reflect", "cut.jsonl", "--json")  # one document, with what is whole
    assert (done.code, len(done.json["episodes"]), done.err) == (2, 1, "")
    assert "cut.jsonl" in done.json["error"]["message"]
    done = heedful_("reflect", "none.jsonl")
    assert (done.code, "none.jsonl" in done.err) == (2, True)


def test_a_file_that_tells_of_no_run_is_told_as_such(heedful_, desk):
    desk.write("other.jsonl", '{"type": "session_meta", "payload": {}}\n')
    done = heedful_("reflect", "other.jsonl", "runs.jsonl")
    assert done.code == 0
    assert "other.jsonl holds no run of an agent" in done.err
    assert "2 episodes" in done.out
