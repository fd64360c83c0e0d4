"""`heedful demo --pipeline` as a user runs it, the insights by models that follow a script."""

from __future__ import annotations

import re
import shlex
import signal
import sys

import pytest

from tests.cli.support import ended

MODELS = """
import time

def told(messages):
    task = messages[-1].content
    right = "write 1.75 for" in task
    return f"December has the largest MAE. The overall MAE is {1.75 if right else 1.23}."

def slow(messages):
    time.sleep(60)
"""
DEMO = ("demo", "--pipeline", "--model", "scribes:told")
STAGES = ["load", "features", "split", "train", "insights"]


@pytest.fixture
def room(desk):
    desk.write("scribes.py", MODELS)
    return desk


def test_it_tells_runs_reports_and_what_to_type_next(room):
    done = room.heedful(*DEMO)
    assert done.code == 0, done.err
    assert "stand in for an agent" in done.err
    assert "✗ hallucination_detection: predictions appear hallucinated: the mean of" in done.err
    assert "retrying with feedback" in done.err
    rows = [line.split()[0] for line in done.out.splitlines() if "passed at attempt" in line]
    assert rows[:5] == STAGES
    assert re.search(r"train +passed at attempt 2 +hallucination_detection", done.out)
    assert "lessons learnt; the next run is told at once" in done.out
    assert "insights by the model: passed at attempt 2" in done.out
    assert "✗ grounding: number '1.23' is contradicted" in done.out
    assert "report   out/pipeline/forecast-1.html" in done.out
    shown = [shlex.split(line) for line in done.out.splitlines() if "--db out/pipeline" in line]
    for _, *command in (line[line.index("why") - 1 :] for line in shown if "why" in line):
        why = room.heedful(*command)
        assert why.code == 0, why.err
        assert "36.84 standard deviations" in why.out


def test_the_second_time_it_is_right_at_once(room):
    document = room.heedful(*DEMO, "--json").json
    assert [one["status"] for one in document["runs"]] == ["passed", "passed"]
    assert document["attempts"] == {"now": 7, "first_run": 7}
    assert document["told_at_once"] == []
    assert len(document["files"]) == 6 + 7 + 6
    for name in document["files"]:
        assert (room.folder / name).stat().st_size > 100, name
    again = room.heedful(*DEMO)
    assert "told at once to train, insights" in again.out
    assert "attempts now 5, in forecast-1 7" in again.out
    assert "retrying" not in again.err.partition("a model writes")[0]
    fresh = room.heedful(*DEMO, "--fresh", "--json").json
    assert [one["run"] for one in fresh["runs"]] == ["forecast-1", "forecast-1-model"]


def test_interrupted_it_goes_on(room):
    process = room.start("demo", "--pipeline", "--model", "scribes:slow")
    room.wait_for(lambda: (room.folder / "out/pipeline/forecast-1.html").exists(), process)
    process.send_signal(signal.SIGINT)
    stopped = ended(process)
    assert stopped.code == 130
    assert re.search(r"The same command continues:\n  .*demo --pipeline", stopped.err)
    done = room.heedful(*DEMO)
    assert done.code == 0
    assert "[4/5] train: done before, attempt 2" in done.err
    assert "report   out/pipeline/forecast-1.html" in done.out
    assert "forecast-2" not in done.out


def test_without_the_data_it_says_what_to_install(room, monkeypatch):
    monkeypatch.setitem(sys.modules, "vega_datasets", None)
    done = room.heedful(*DEMO)
    assert done.code == 2, done.err
    assert "needs vega_datasets: pip install 'heedful[demo]'" in done.err
    assert not (room.folder / "out").exists()
