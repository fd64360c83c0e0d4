"""What only CrewAI has: crews of several tasks, guardrails of a task, objects."""

from __future__ import annotations

from typing import Any

import pytest
from crewai.hooks.dispatch import HookAborted

from heedful import Done, policy, run_sync
from heedful.integrations import verdict_of
from heedful.integrations.attempts import ID_KEY
from heedful.store import episodes, loops
from heedful.testing.conformance import CURE as RULE, TASK
from heedful_frameworks.crewai import watch
from tests.integrations.double_crewai import Scripted, crew_of, shell_task
from tests.integrations.doubles import (
    PAGES,
    Call,
    Driven,
    ModelDown,
    Say,
    Ticket,
    Turn,
    grade,
)
from tests.integrations.test_hosts import host_that_judges, memory_in
from tests.tables import cases


class TextOnly(Scripted):
    """A model that knows no calls of tools of its provider."""

    @classmethod
    def of(cls, model: Any) -> Any:
        """Return a model with the script of another one."""
        copy = cls(model="scripted")
        copy._script = model._script
        copy._driven = model._driven
        return copy

    def supports_function_calling(self) -> bool:
        return False


class Silent(TextOnly):
    """A model that does not say what it uses."""

    def supports_function_calling(self) -> bool:
        return True

    def _track_token_usage_internal(self, usage: Any) -> None:
        pass


WRONG_THEN_RIGHT: list[Turn] = [Call("ls"), Say("high"), Say("P1")]


def test_usage_is_that_of_each_attempt(tmp_path: Any) -> None:
    memory = memory_in(tmp_path)
    driven = Driven()
    task = watch(shell_task(TASK, WRONG_THEN_RIGHT, driven), host_that_judges(memory))
    result = crew_of(task).kickoff(inputs={ID_KEY: "one"})
    assert str(result) == "P1"
    assert verdict_of(result) == Done(2, passed=True)
    assert driven.commands == ["ls"]
    stored_loop = run_sync(memory.store.read(memory.scope, loops.read, "one"))
    usages = [attempt.usage for attempt in stored_loop.loop.attempts]
    assert [usage.calls for usage in usages] == [2, 1]
    assert [usage.tokens for usage in usages] == [30, 15]


def test_tasks_of_a_crew_have_runs_of_their_own(tmp_path: Any) -> None:
    host = host_that_judges(memory_in(tmp_path))
    first = Driven()
    second = Driven()
    third = Driven()
    result = crew_of(
        watch(shell_task(TASK, [Say("high"), Say("P1")], first), host),
        shell_task("Say it aloud", [Say("high")], second),
        watch(shell_task("Grade it again", [Say("P2")], third), host),
    ).kickoff(inputs={ID_KEY: "one"})
    outputs = result.tasks_output
    assert [output.raw for output in outputs] == ["P1", "high", "P2"]
    assert verdict_of(outputs[0]) == Done(2, passed=True)
    assert verdict_of(outputs[1]) is None
    assert verdict_of(result) == Done(1, passed=True)
    assert RULE not in second.prompts[0]


def test_a_guardrail_of_the_task_comes_first() -> None:
    def is_short(output: Any):
        return (True, output.raw) if len(output.raw) < 5 else (False, "too long")

    driven = Driven()
    script = [Say("very high"), Say("high"), Say("P1")]
    task = shell_task(TASK, script, driven, guardrail=is_short)
    result = crew_of(watch(task, host_that_judges(None))).kickoff()
    assert verdict_of(result) == Done(2, passed=True)
    assert "too long" in driven.prompts[1]
    assert RULE in driven.prompts[2]


def test_an_object_is_judged_as_data() -> None:
    script = [Say('{"severity": "high"}'), Say('{"severity": "P2"}')]
    host = host_that_judges(
        None,
        checks=[grade],
        policy=policy("attempts.limit=3"),
    )
    task = shell_task(TASK, script, Driven(), output_pydantic=Ticket)
    result = crew_of(watch(task, host)).kickoff()
    assert result.pydantic == Ticket(severity="P2")
    assert verdict_of(result) == Done(2, passed=True)


async def test_a_run_that_fails_is_over(tmp_path: Any) -> None:
    memory = memory_in(tmp_path)
    script: list[Turn] = [Say("high"), ModelDown("503")]
    task = watch(shell_task(TASK, script, Driven()), host_that_judges(memory))
    with pytest.raises(ModelDown):
        await crew_of(task).kickoff_async(inputs={ID_KEY: "one"})
    assert not await memory.store.read(memory.scope, episodes.session_events, "one")


@cases("limit", {"calls": "calls=3", "tokens": "tokens=45"})
def test_a_model_that_writes_its_calls_as_text_ends_with_its_budget(limit: str) -> None:
    driven = Driven()
    lines = 'Thought: I look.\nAction: shell\nAction Input: {{"command": "{}"}}'
    script = [Say(lines.format(number)) for number in range(30)]
    host = host_that_judges(None, policy=f"default, budget.{limit}")
    task = watch(shell_task(TASK, script, driven), host)
    assert task.agent is not None
    task.agent.llm = TextOnly.of(task.agent.llm)
    result = crew_of(task).kickoff()
    assert len(driven.prompts) == 3
    assert driven.commands == ["0", "1"]
    verdict = verdict_of(result)
    assert verdict is not None
    assert verdict.stopped_by[0].rule == "budget"


def test_a_model_that_reports_no_tokens_is_refused() -> None:
    host = host_that_judges(None, policy="default, budget.tokens=45")
    task = watch(shell_task(TASK, PAGES, Driven()), host)
    assert task.agent is not None
    task.agent.llm = Silent.of(task.agent.llm)
    with pytest.raises(HookAborted, match="reports no tokens"):
        crew_of(task).kickoff()
