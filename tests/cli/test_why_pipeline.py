"""`heedful why`, `ask` and `runs` of a pipeline's runs; loops, replay and tune beside them."""

import asyncio

import pytest

from heedful import Pipeline
from heedful.errors import StageFailed
from tests.cli.pipelines import MEANS, cites, runs
from tests.cli.support import following


@pytest.fixture
def told(desk, monkeypatch):
    """Calls the command in a folder whose database has runs."""
    runs(desk.folder)
    return lambda *arguments: desk.invoke(monkeypatch, *arguments)


def test_why_a_run(told):
    done = told("why", "forecast-1")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == (
        "run forecast-1 of pipeline forecast went on degraded from insights; 3 stages, 6 attempts"
    )
    rows = {
        line.split()[1]: line.split()[2:] for line in lines if line[:3] in (" 1 ", " 2 ", " 3 ")
    }
    assert rows["load"][:3] == ["passed", "1", "1"]
    assert rows["train"][:4] == ["passed", "hallucination_detection", "2", "2"]
    assert rows["insights"][:5] == ["failed,", "continued", "insight_hallucination", "3", "3"]
    assert "stage 1 (load)" not in done.out  # nothing went wrong there
    assert "stage 2 (train) passed at attempt 2, after 1 retry" in lines
    fix = "verify that the model uses the actual data"
    assert f"    hallucination_detection failed: {MEANS} -> {fix}" in lines
    assert f"    | - hallucination_detection: {MEANS}. {fix}" in lines
    assert lines[-1] == "Next: heedful ask forecast-1 'why was stage 2 retried?'"
    assert told(*following(done.out)).code == 0


def test_why_one_stage_by_its_name_or_number(told):
    named, numbered = told("why", "forecast-1", "train"), told("why", "forecast-1", "2")
    assert named == numbered
    assert '    output: {"mean": 1234.56}' in named.out.splitlines()
    assert "insight_hallucination" not in named.out
    calm = told("why", "forecast-1", "load")
    assert "    not_empty passed" in calm.out.splitlines()
    assert following(calm.out)[-1] == "what happened in stage 1?"
    stage = told("why", "forecast-2", "2", "--json").json
    assert (stage["run"], stage["name"], stage["action"]) == ("forecast-2", "train", "passed")
    assert told("why", "last", "--json").json["run"] == "nightly-1"
    wrong = told("why", "forecast-1", "trian")
    assert wrong.code == 2
    assert "no stage is called 'trian'; there are: load, train, insights" in wrong.err


def test_a_run_is_found_by_its_beginning_and_its_stages_by_their_ids(told):
    assert told("why", "nightly").out == told("why", "nightly-1").out
    assert told("why", "forecast-1/train").out.startswith("loop forecast-1/train: passed")
    several = told("why", "forecast")
    assert several.code == 2
    ids = "forecast-1, forecast-2, forecast/say; give more of the id"
    assert several.err == f"heedful: several loops begin with 'forecast': {ids}\n"


def test_what_is_not_there_is_told_with_what_is_near(told, monkeypatch):
    done = told("why", "forcast-2")
    assert done.code == 3
    assert done.err.startswith("heedful: no loop 'forcast-2' in ")
    assert "heedful.db; there is forecast-2, " in done.err
    assert "heedful loops and heedful runs list them" in told("why", "zzz").err
    loop = told("why", "forecast/say", "2")
    assert loop.code == 2
    assert "loop 'forecast/say' is not a run of a pipeline: it has no stages" in loop.err
    monkeypatch.setenv("HEEDFUL_PROJECT", "other")
    assert "no pipeline has run in this scope" in told("why", "last").err


def test_a_run_that_was_halted_and_one_that_was_interrupted(desk, monkeypatch):
    async def broken() -> None:
        path = str(desk.folder / "heedful.db")
        pipeline = Pipeline("broken", store=path, progress=False, on_exhausted="halt")
        pipeline.stage(name="first", checks=[cites], retries=0)(lambda state: "MAE")
        pipeline.stage(name="second")(lambda state: "never")
        await pipeline.run({}, id="halted")
        other = Pipeline("raises", store=path, progress=False)

        @other.stage
        def falls(state: object) -> None:
            raise ZeroDivisionError("it fell")

        with pytest.raises(StageFailed):
            await other.run({}, id="open")

    asyncio.run(broken())
    halted = desk.invoke(monkeypatch, "why", "halted").out
    assert "run halted of pipeline broken was halted; 2 stages, 1 attempt" in halted
    assert "stage 1 (first) did not pass in 1 attempt; the run was halted" in halted
    assert [line.split()[-5:] for line in halted.splitlines() if line.startswith(" 2 ")] == [
        ["run", "0", "-", "0.0", "0"]
    ]
    told = desk.invoke(monkeypatch, "ask", "halted", "why did it stop?").out
    assert "failed: MAE is cited, and the run has no metrics" in told
    assert "run open of pipeline raises is open" in desk.invoke(monkeypatch, "why", "open").out
    states = [one["state"] for one in desk.invoke(monkeypatch, "runs", "--json").json["runs"]]
    assert states == ["open", "halted"]


def test_ask(told):
    done = told("ask", "forecast-1", "why did the pipeline retry stage 2?")
    assert done.code == 0
    assert done.out.startswith("asked: why stage 2 (train) was retried\n1. [train] stage 2 (train)")
    assert following(done.out) == ["why", "forecast-1", "train"]
    assert told(*following(done.out)).code == 0
    whole = told("ask", "last")
    assert "1. [nightly-1] run nightly-1 of pipeline nightly passed; 1 stage, " in whole.out
    assert following(whole.out) == ["why", "nightly-1", "copy"]
    missing = told("ask", "forecast-1", "why was stage 7 retried?")
    assert missing.code == 0
    assert missing.out.startswith(
        "not in the report: stage 7: the run has 3 stages; what there is:"
    )
    loop = told("ask", "forecast/say", "why?")
    assert loop.code == 2
    assert "heedful why forecast/say explains it, heedful runs lists runs" in loop.err
    assert told("ask", "nothing", "why?").code == 3
    found = told("ask", "forecast-1", "why did it retry stage 2?", "--json").json
    assert (found["run"], found["missing"]) == ("forecast-1", "")
    fact = found["facts"][1]
    assert (fact["number"], fact["stage"], fact["attempt"]) == (2, "train", 1)
    assert fact["cite"] == "[train/attempt 1/hallucination_detection]"


def test_runs(told):
    done = told("runs")
    assert done.code == 0
    listed = told("runs", "--json").json["runs"]
    assert [(one["run"], one["state"], one["passed"]) for one in listed] == [
        ("nightly-1", "passed", "1/1"),
        ("forecast-2", "degraded", "2/3"),
        ("forecast-1", "degraded", "2/3"),
    ]
    assert [(one["attempts"], one["retries"]) for one in listed] == [(1, 0), (6, 3), (6, 3)]
    assert following(done.out) == ["why", "nightly-1"]
    (only,) = told("runs", "forecast", "--limit", "1", "--json").json["runs"]
    assert only["run"] == "forecast-2"
    assert told("runs", "weekly").out == "no run of a pipeline 'weekly'\n"
    assert told("runs", "--limit", "0").code == 2


def test_statistics(told):
    done = told("runs", "forecast", "--stats")
    assert done.code == 0
    rows = {line.split()[0]: line.split()[1:] for line in done.out.splitlines() if line.split()}
    assert rows["runs:"][:3] == ["2;", "6", "retries"]
    assert rows["insight_hallucination"][:4] == ["2", "6", "2", "0"]
    assert rows["train"][:4] == ["2", "2", "2", "2"]
    assert rows["never"][:2] == ["failed:", "not_empty,"]
    counts = told("runs", "forecast", "--stats", "--json").json["stats"]
    assert (counts["runs"], counts["cost"]["attempts"]) == (2, 6)
    assert (counts["checks"][0]["stages"], counts["checks"][0]["recovered"]) == (2, 0)


def test_loops_list_runs_and_replay_leaves_them_out(told):
    loops = {one["id"]: one for one in told("loops", "--json").json["loops"]}
    assert (loops["nightly-1"]["state"], loops["forecast-1"]["state"]) == ("passed", "stopped")
    assert loops["forecast-1"]["stopped_by"] == "degraded"
    recorded = told("replay", "--json").json["recorded"]
    assert recorded["loops"] == len(loops) - 3  # each stage and the other loop, but no run
    for command in ("replay", "tune", "log"):
        assert told(command).code == 0
