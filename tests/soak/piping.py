"""A pipeline of five stages, some of which are retried; each says in a log that it has ended.

Arguments: the folder of it all, and a seed, which `killed_until_done` gives. Run quietly, it makes
what a run that was killed is compared with.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heedful.checks.evaluate import Context
from heedful.loop.record import Finding
from heedful.pipeline import Pipeline

SECONDS = 0.01
FAILS = {"load": 0, "clean": 1, "train": 2, "say": 3, "publish": 0}
LAST = {"load": 1, "clean": 2, "train": 3, "say": 3, "publish": 1}


def pure(output: Any, at: Context) -> Sequence[Finding]:
    """Wrong as often as the stage's name says."""
    stage = at.loop_id.partition("/")[2]
    if at.attempt > FAILS[stage]:
        return []
    return [Finding("pure", f"attempt {at.attempt} made {output}"[:90], "go on")]


pure.pure = True  # type: ignore[attr-defined]


def slow(output: Any, at: Context) -> Sequence[Finding]:
    """Takes a while, and warns."""
    time.sleep(SECONDS)
    level: Any = "warning"
    return [Finding("slow", "it took a while", level=level)]


def pipeline(folder: Path) -> Pipeline:
    """The stages, over one store and one folder of reports."""
    made = Pipeline("p", store=str(folder / "a.db"), reports=folder / "reports", progress=False)
    for name in FAILS:
        checks = [pure] if name in ("load", "clean") else [pure, slow]
        made.stage(name=name, checks=checks)(_stage(name, folder / "ended.log"))
    return made


def _stage(name: str, log: Path) -> Any:
    def stage(state: dict[str, Any], feedback: str | None = None) -> Any:
        time.sleep(SECONDS)
        at = 1 if feedback is None else int(feedback.partition("attempt ")[2][0]) + 1
        state["log"].append([name, at])
        with log.open("a") as out:
            out.write(json.dumps([name, at, feedback]) + "\n")
        return {"at": at, "saw": len(state["log"])}

    return stage


def main() -> None:
    """Run it, or go on with it."""
    logging.getLogger("heedful").addHandler(logging.NullHandler())  # of what fails on purpose
    print("ready", flush=True)
    folder = Path(sys.argv[1])
    report = asyncio.run(pipeline(folder).run({"log": []}, id="r"))
    state = {name: value for name, value in report.state.items() if name != "guardrail_reports"}
    (folder / "state.json").write_text(json.dumps(state))
    print("done", flush=True)
