"""What memory says at the first attempt of a stage is repeated at its retries."""

from __future__ import annotations

from typing import Any

from heedful import Pipeline
from heedful.drive.portal import run_sync
from heedful.loop.record import Finding
from heedful.memory.memory import Memory

SAID: list[str] = []


def stage(state: Any, feedback: str | None = None) -> list[str]:
    """Obeys what it is told at this attempt, and remembers nothing."""
    SAID.append(feedback or "")
    return [word for word in ("alpha", "beta") if word in (feedback or "")]


def wants(word: str) -> Any:
    def check(output: list[str], context: Any) -> list[Finding]:
        return [] if word in output else [Finding("words", f"there is no {word}", f"say {word}")]

    return check


def test_what_memory_told_is_not_forgotten_at_a_retry(tmp_path):
    SAID.clear()
    memory = Memory(str(tmp_path / "a.db"), holdout=0)

    def ran(*words: str) -> list[int]:
        made = Pipeline("p", memory=memory, store=memory.store, progress=False)
        made.stage(checks=[wants(word) for word in words])(stage)
        report = run_sync(made.run({}))
        assert report.passed
        return [len(one.attempts) for one in report.stages]

    try:
        assert ran("alpha") == [2]
        assert ran("alpha") == [1]
        assert ran("alpha", "beta") == [2]
    finally:
        run_sync(memory.store.close())
    last = SAID[-1].splitlines()
    assert last[0] == "GUARDRAIL FEEDBACK - Critical issues detected in stage:"
    assert last[1] == "- words: there is no beta. say beta"
    assert last[-1] == "Please address these issues and regenerate the output."
    assert any("there is no alpha" in line for line in last[2:-1])
    assert "GUARDRAIL" not in SAID[-2]
