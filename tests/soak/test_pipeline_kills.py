"""Killed at any moment and resumed, a pipeline's run and its reports are as if nothing had been."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from heedful.checks.evaluate import Context
from heedful.lessons.lesson import Scope
from heedful.loop.record import Finding
from heedful.pipeline import Pipeline
from heedful.store.runs import report_of
from heedful.store.sqlite import shared_store
from tests.conftest import SOAK
from tests.pipeline.support import timeless
from tests.soak.killing import killed_until_done
from tests.store.support import ended, python

KILLS = min(30, 3 * SOAK)
PROGRAM = "from tests.soak.test_pipeline_kills import main; main()"
SECONDS = 0.01
FAILS = {"load": 0, "clean": 1, "train": 2, "say": 3, "publish": 0}
LAST = {"load": 1, "clean": 2, "train": 3, "say": 3, "publish": 1}
# What a page says of time: dates, clocks, and how long it took.
TIMES = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?|[\d.,]+ ?(ms|s|min)\b")


# -- the process that is killed


def pure(output: Any, at: Context) -> Sequence[Finding]:
    """Wrong as often as the stage's name says."""
    if at.attempt > FAILS[at.loop_id.partition("/")[2]]:
        return []
    return [Finding("pure", f"attempt {at.attempt} made {output}"[:90], "go on")]


pure.pure = True  # type: ignore[attr-defined]


def slow(output: Any, at: Context) -> Sequence[Finding]:
    """Takes a while, and warns."""
    time.sleep(SECONDS)
    return [Finding("slow", "it took a while", level="warning")]


def staged(name: str, log: Path) -> Any:
    def stage(state: dict[str, Any], feedback: str | None = None) -> Any:
        time.sleep(SECONDS)
        at = 1 if feedback is None else int(feedback.partition("attempt ")[2][0]) + 1
        state["log"].append([name, at])
        with log.open("a") as out:
            out.write(json.dumps([name, at, feedback]) + "\n")
        return {"at": at, "saw": len(state["log"])}

    return stage


def main() -> None:
    """Run the stages of a folder, or go on with them."""
    logging.getLogger("heedful").addHandler(logging.NullHandler())  # of what fails on purpose
    print("ready", flush=True)
    folder = Path(sys.argv[1])
    made = Pipeline("p", store=str(folder / "a.db"), reports=folder / "reports", progress=False)
    for name in FAILS:
        checks = [pure] if name in ("load", "clean") else [pure, slow]
        made.stage(name=name, checks=checks)(staged(name, folder / "ended.log"))
    report = asyncio.run(made.run({"log": []}, id="r"))
    state = {name: value for name, value in report.state.items() if name != "guardrail_reports"}
    (folder / "state.json").write_text(json.dumps(state))
    print("done", flush=True)


# -- what it leaves


def finished(folder: Path) -> Counter[tuple[str, int]]:
    """How often each attempt of each stage ended; the last line may be torn."""
    lines = (folder / "ended.log").read_text().rpartition("\n")[0].splitlines()
    return Counter((name, at) for name, at, _ in map(json.loads, lines))


def written(folder: Path) -> dict[str, Any]:
    """The reports in the folder, without times."""
    found: dict[str, Any] = {"state": json.loads((folder / "state.json").read_text())}
    for path in sorted((folder / "reports").glob("[!.]*")):  # a file half written is hidden
        text = path.read_text()
        if path.suffix == ".json":
            found[path.name] = timeless(json.loads(text))
        elif path.suffix == ".md":
            found[path.name] = TIMES.sub("…", text)
        else:  # its drawing is to scale
            found[path.name] = re.findall(r"Critical issues|attempt \d", text)
    store = shared_store(str(folder / "a.db"))
    found["stored"] = timeless(asyncio.run(report_of(store, Scope(), "r")))
    return found


@pytest.mark.soak
def test_kill_9_repeats_and_loses_nothing(tmp_path: Path) -> None:
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    ended(python(PROGRAM, quiet, 0))
    once = Counter({(name, at): 1 for name, last in LAST.items() for at in range(1, last + 1)})
    assert finished(quiet) == once
    chance, kills, tries = random.Random(7), 0, 0
    while kills < KILLS:
        folder = tmp_path / f"run {tries}"
        folder.mkdir()
        tries += 1
        here = killed_until_done(PROGRAM, folder, chance=chance, seconds=0.4 + SECONDS * 40)
        kills += here
        counts = finished(folder)
        assert counts.keys() == once.keys()
        assert counts.total() <= once.total() + here  # at most what was in flight
        assert written(folder) == written(quiet)
