"""`heedful why`, `loops`, `log`, `override`, `ask` and `runs`: what is stored, for people."""

import asyncio
import time
from typing import Any

import pytest

import heedful
from heedful import Pipeline, open_store
from heedful.checks import contains
from heedful.drive.drive import Run
from heedful.errors import StageFailed
from heedful.loop.policies import orchestrator
from heedful.loop.record import Evaluation
from heedful.testing import ScriptedModel
from tests.cli.pipelines import cites, runs
from tests.cli.support import following, task


def judged(candidate: str, context: heedful.Context) -> Evaluation:
    return Evaluation(scores={"alignment": 0.5, "drift": 0.3})


async def _history(path: str) -> None:
    """Loops that were stopped by attempts and by a budget, that passed, and that are open."""
    store = open_store(path)
    options: dict[str, Any] = {"store": store, "checks": [contains("red")]}
    for id, policy in (("stopped", "default"), ("budget", "default, budget.calls=2")):
        model = ScriptedModel(*"abcdefgh")
        session = Run(
            "Say it", generate=model, policy=heedful.policy(policy), id=f"r/{id}", **options
        )
        await session.finish()
    await Run("Say red", generate=ScriptedModel("blue", "red"), id="r/passed", **options).finish()
    lifted = Run("Say it", generate=ScriptedModel(*"abcdefgh"), id="lifted", **options)
    await lifted.finish()
    await lifted.override("attempts", by="ann", why="it is close")
    await lifted.finish()
    await Run("Say more", generate=ScriptedModel("a"), id="r/open", **options).step()
    await Run(
        "Advise", generate=ScriptedModel(*"abcdefgh"), evaluate=judged, policy=orchestrator,
        store=store, id="advice", labels={"persona": "SAGE"},
    ).finish()  # fmt: skip
    await store.close()


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    path = tmp_path_factory.mktemp("history") / "heedful.db"
    asyncio.run(_history(str(path)))
    return path.read_bytes()


@pytest.fixture
def heedful_(desk, monkeypatch, history):
    """The command in a folder whose database has a history."""
    desk.write("heedful.db", history)
    return lambda *arguments: desk.invoke(monkeypatch, *arguments)


def test_why_a_loop_passed(heedful_):
    done = heedful_("why", "r/p")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[:2] == ["loop r/passed: passed, policy default", "task: Say red"]
    assert lines[3] == "attempt 1: blue"
    assert lines[5] == "  => again"
    assert "  | - contains: 'red' is missing. write 'red' in it" in lines
    assert "  => passed" in lines


def test_why_a_loop_stopped(heedful_):
    done = heedful_("why", "lifted")
    assert done.code == 0
    assert "  => stopped by attempts: 5 of 4 attempts made" in done.out
    assert "  => again (attempts overridden by ann)" in done.out
    assert "override of attempts by ann: it is close" in done.out
    assert "kept: attempt 1" in done.out
    assert "would have changed it: attempts.limit 6 instead of 4: again" in done.out


def test_why_as_json(heedful_):
    document = heedful_("why", "lifted", "--json").json
    assert (document["id"], document["state"], document["task"]) == (
        "lifted",
        "stopped",
        "Say it",
    )
    numbers = [attempt["number"] for attempt in document["attempts"]]
    assert numbers == [1, 2, 3, 4, 5]
    assert [attempt["candidate"] for attempt in document["attempts"]] == [*"abcde"]
    first, last = document["attempts"][0], document["attempts"][-1]
    assert first["evaluation"]["findings"][0]["check"] == "contains"
    assert (first["decided"], last["feedback"]) == ("again", "")
    assert all("'red' is missing" in a["feedback"] for a in document["attempts"][:-1])
    assert [one["verdict"] for one in document["verdicts"]] == [
        *["again"] * 3,
        "done",
        "again",
        "done",
    ]
    assert document["overrides"][0]["by"] == "ann"
    assert document["would_change"] == [
        {
            "words": "attempts.limit 6 instead of 4: again",
            "what": "attempts.limit",
            "outcome": "again",
            "was": 4,
            "to": 6,
        }
    ]
    assert document["policy"]["name"] == "default"


def test_a_stopped_loop_is_open_again(heedful_):
    done = heedful_("override", "r/stopped", "attempts", "--by", "ann", "--why", "it is close")
    assert (done.code, done.err) == (0, "")
    how = "heedful run TASKS --run r --resume continues it"
    said = f"attempts is lifted for 1 decision; loop r/stopped is open; {how}"
    assert done.out.splitlines() == [said, "Next: heedful why r/stopped"]
    told = heedful_(*following(done.out)).out
    assert "loop r/stopped: open" in told
    assert "  => again (attempts overridden by ann)" in told
    assert "override of attempts by ann: it is close (used 1 of 1)" in told


def test_another_rule_may_still_stop_it(heedful_):
    done = heedful_("override", "r/budget", "attempts", "--by", "ann", "--decisions", "2")
    assert done.code == 0
    said = "attempts is lifted for 2 decisions; loop r/budget is still stopped by budget"
    assert done.out.splitlines()[0] == said
    done = heedful_("override", "advice", "attempts", "--by", "ann")
    assert "loop advice is open; resume it where it was driven" in done.out


def test_as_json(heedful_):
    before = time.time()
    done = heedful_(
        *("override", "r/stopped", "attempts", "--by", "ann", "--why", "w", "--decisions", "3"),
        *("--expires", "1.5d", "--json"),
    )
    document = done.json
    lasts = document.pop("until") - before
    assert 1.5 * 86_400 <= lasts <= 1.5 * 86_400 + 60
    triggers, feedback = document.pop("reasons"), document.pop("feedback")
    assert document == {
        "loop": "r/stopped", "rule": "attempts", "by": "ann", "why": "w", "decisions": 3,
        "verdict": "again",
        "lifted": [
            {"rule": "attempts", "detail": "4 of 4 attempts made", "by": "ann", "override": 0}
        ],
    }  # fmt: skip
    assert triggers[0]["reason"] == "contains_failed"
    assert "'red' is missing" in feedback
    (override,) = heedful_("why", "r/stopped", "--json").json["overrides"]
    assert (override["by"], override["decisions"], override["used"]) == ("ann", 3, 1)


def test_a_run_goes_on_after_an_override(desk):
    desk.tasks(task("never"))
    run = ("run", "tasks.jsonl", "--model", "toy:answer", "--policy", "stage")
    assert desk.heedful(*run).code == 1
    calls = len(desk.calls())
    done = desk.heedful("override", "tasks-1/never", "attempts", "--by", "ann")
    assert "heedful run TASKS --run tasks-1 --resume continues it" in done.out
    again = desk.heedful(*run, "--run", "tasks-1", "--resume", "--json")
    assert (again.code, again.json["rows"][0]["attempts"]) == (1, 4)
    assert len(desk.calls()) == calls + 1


def test_the_log_in_words(heedful_):
    heedful_("override", "r/stopped", "attempts", "--by", "ann")
    done = heedful_("log", "r/stopped")
    assert (done.code, done.err) == (0, "")
    told = " ".join(done.out.split())
    for part in (
        "r/stopped again contains_failed 1 0.00 1 ",
        "r/stopped again contains_failed 3 0.30 (+0.15) 3 ",
        "r/stopped stopped attempts: 4 of 4 attempts made 4 0.45 (+0.15) 4 ",
        "r/stopped again contains_failed attempts: ann 4 0.45 (+0.15) 4 ",
    ):
        assert part in told
    assert following(done.out) == ["why", "r/stopped"]


def test_a_line_of_the_log(heedful_):
    first, *_, last = heedful_("log", "advice", "--json").json["decisions"]
    assert 0 < first.pop("at") <= last["at"]
    first.pop("triggers")
    assert first == {
        "loop": "advice", "attempt": 1, "rerun": 0, "decided": "again",
        "reason": "alignment_threshold_not_met", "detail": "Triggered by alignment, drift",
        "spoke": [], "lifted": [], "labels": {"persona": "SAGE"},
        "standing": {"fatigue": 0.0, "change": 0.0, "echoes": {}},
    }  # fmt: skip
    assert (last["decided"], last["reason"], last["rerun"]) == ("stopped", "attempts", 3)
    assert last["standing"]["fatigue"] == 0.45
    assert "drift_threshold_exceeded" in heedful_("log", "advice").out


# Runs of pipelines


@pytest.fixture
def told(desk, monkeypatch):
    """Calls the command in a folder whose database has runs."""
    runs(desk.folder)
    return lambda *arguments: desk.invoke(monkeypatch, *arguments)


def test_a_run_is_found_by_its_beginning_and_its_stages_by_their_ids(told):
    assert told("why", "nightly").out == told("why", "nightly-1").out
    assert told("why", "forecast-1/train").out.startswith("loop forecast-1/train: passed")
    several = told("why", "forecast")
    assert several.code == 2
    ids = "forecast-1, forecast-2, forecast/say; give more of the id"
    assert several.err == f"heedful: several loops begin with 'forecast': {ids}\n"


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
    assert "Halted: a stage did not pass" in halted
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
    row = ["6", "6", "100%", "(61..100)", "2", "0", "0%", "(0..66)"]
    assert rows["insight_hallucination"][:8] == row
    assert rows["train"][:5] == ["2", "2", "0", "4", "2"]
    counts = told("runs", "forecast", "--stats", "--json").json["stats"]
    assert (counts["runs"], counts["cost"]["attempts"]) == (2, 6)
    assert counts["checks"][0]["success"]["value"] == 0.0


def test_loops_list_runs_and_replay_leaves_them_out(told):
    loops = {one["id"]: one for one in told("loops", "--json").json["loops"]}
    assert (loops["nightly-1"]["state"], loops["forecast-1"]["state"]) == ("passed", "stopped")
    assert loops["forecast-1"]["stopped_by"] == "degraded"
    recorded = told("replay", "--json").json["recorded"]
    assert recorded["loops"] == len(loops) - 3  # each stage and the other loop, but no run
    for command in ("replay", "tune", "log"):
        assert told(command).code == 0


def test_why_a_run_or_one_of_its_stages(told):
    done = told("why", "forecast-1")
    assert done.out.splitlines()[0] == (
        "run forecast-1 of pipeline forecast went on degraded from insights; 3 stages, 6 attempts"
    )
    for part in ("### Attempt 2 of train: ✓ passed, kept", "mean 1234.56 against 89.23", "+   "):
        assert part in done.out
    assert following(done.out) == ["ask", "forecast-1"]
    named, numbered = told("why", "forecast-1", "train"), told("why", "forecast-1", "2")
    assert named == numbered
    assert named.out.splitlines()[0] == "stage 2 (train) passed at attempt 2, after 1 retry"
    assert "insights" not in named.out
    stage = told("why", "forecast-2", "2", "--json").json
    assert (stage["run"], stage["name"], stage["action"]) == ("forecast-2", "train", "passed")
    assert told("why", "last", "--json").json["run"] == "nightly-1"
    wrong = told("why", "forecast-1", "trian")
    assert wrong.code == 2
    assert "no stage is called 'trian'; there are: load, train, insights" in wrong.err


def test_what_is_not_there(told, monkeypatch):
    assert "heedful loops and heedful runs list them" in told("why", "zzz").err
    loop = told("why", "forecast/say", "2")
    assert loop.code == 2
    assert "loop 'forecast/say' is not a run of a pipeline: it has no stages" in loop.err
    monkeypatch.setenv("HEEDFUL_PROJECT", "other")
    assert "no pipeline has run in this scope" in told("why", "last").err
