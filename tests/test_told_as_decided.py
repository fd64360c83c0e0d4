"""`heedful why` tells each decision as it fell, whatever the stored policy makes of it now."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import heedful
from heedful.cli.app import app


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Any]:
    """Begins or resumes a loop whose answers are never right."""
    store, numbers = heedful.open_store(str(tmp_path / "a.db")), count()

    def session(loop: str, policy: heedful.Policy) -> heedful.Run[str]:
        return heedful.Run(
            "t",
            generate=lambda task, hint: f"bad {next(numbers)}",
            checks=[heedful.checks.contains("good")],
            policy=policy,
            store=store,
            id=loop,
        )

    yield session
    asyncio.run(store.close())


def why(folder: Path, loop: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["why", loop, "--db", str(folder / "a.db"), "--json"])
    document: dict[str, Any] = json.loads(done.stdout)
    words = CliRunner().invoke(app, ["why", loop, "--db", str(folder / "a.db")]).stdout
    for way in [one["words"] for one in document["would_change"]] + [document["otherwise"]]:
        assert f"would have changed it: {way}\n" in words or not way
    return document


def test_a_resumed_loop_is_explained_by_its_last_policy(drive, tmp_path):
    async def scenario() -> None:
        await drive("a", heedful.policies.stage).step()
        more = heedful.policy("stage, attempts.limit=6, budget.calls=5")
        await drive("a", more).finish()

    asyncio.run(scenario())
    told = why(tmp_path, "a")
    decided = [one["decided"] for one in told["attempts"]]
    assert decided == ["again"] * 4 + ["stopped by budget: 5 of 5 calls spent"]
    assert [one["words"] for one in told["would_change"]] == ["budget.calls 6 instead of 5: again"]
    assert told["policy"]["name"] == "stage, attempts.limit=6, budget.calls=5"


def test_a_rule_of_the_host_is_quoted(drive, tmp_path):
    def enough(loop: heedful.Loop) -> str | None:
        return "two are enough" if len(loop.attempts) == 2 else None

    asyncio.run(drive("a", heedful.Policy((enough, heedful.MaxAttempts(9)))).finish())
    told = why(tmp_path, "a")
    assert told["attempts"][1]["decided"] == "stopped by enough: two are enough"
    assert told["otherwise"] == "not known: the policy at hand is not all that stopped it"


def test_an_echo_over_the_scope_is_explained(drive, tmp_path):
    policy = heedful.policy("stage, attempts.limit=9, echo.times=4, echo.across=scope")

    async def scenario() -> None:
        await drive("before", heedful.policies.stage).finish()
        session = drive("a", policy)
        await session.finish()
        await session.override("echo", "ada")
        await session.finish()

    asyncio.run(scenario())
    told = why(tmp_path, "a")
    heard = "stopped by echo: the same finding again: contains 'good' in 5 attempts"
    assert [one["decided"] for one in told["attempts"]] == ["again (echo overridden by ada)", heard]
    assert [one["words"] for one in told["would_change"]] == ["echo.times 6 instead of 4: again"]


HALF = """
from itertools import count
from heedful import Evaluation

numbers = count()

def model(messages):
    return f"answer {next(numbers)}"

def half(candidate, context):
    return Evaluation(scores={"q": 0.5})
"""


def test_every_task_of_a_run_has_the_goals_of_its_policy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "half_right.py").write_text(HALF)
    task = {"task": "t", "checks": [{"name": "half_right:half"}]}
    lines = [json.dumps({"id": id, **task}) for id in ("first", "second")]
    (tmp_path / "tasks.jsonl").write_text("\n".join(lines))
    options = ["--run", "r", "--policy", "stage, q >= 0.9", "--no-memory", "--db", "a.db"]
    done = CliRunner().invoke(app, ["run", "tasks.jsonl", "--model", "half_right:model", *options])
    assert done.exit_code == 1
    for loop in ("r/first", "r/second"):
        given = ["override", loop, "attempts", "--by", "ada", "--db", "a.db", "--json"]
        assert json.loads(CliRunner().invoke(app, given).stdout)["verdict"] == "again"
        assert why(tmp_path, loop)["goals"] == [
            {"score": "q", "threshold": 0.9, "direction": "at_least"}
        ]
