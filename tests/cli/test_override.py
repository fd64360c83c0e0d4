"""`heedful override` and `heedful log`, and what `heedful why` tells of both."""

import asyncio
import time
from typing import Any

import pytest

import heedful
from heedful import open_store
from heedful.checks import contains
from heedful.drive.drive import Run
from heedful.loop.policies import orchestrator
from heedful.loop.record import Evaluation
from heedful.testing import ScriptedModel
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
    await Run("Say red", generate=ScriptedModel("red"), id="r/passed", **options).finish()
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
