"""The house rules of the example: right answers pass, no finding gives the answer away."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.checks.evaluate import Context
from heedful.cli.tasks import read_tasks
from heedful.loop.record import Finding

FOLDER = Path(__file__).parents[1] / "examples" / "house_rules"
FILE = FOLDER / "tasks.jsonl"


def module(name: str) -> ModuleType:
    full = f"house_rules_{name}"
    spec = importlib.util.spec_from_file_location(full, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[full] = made  # dataclasses look their module up
    spec.loader.exec_module(made)
    return made


RULES, MAKE = module("rules"), module("make_tasks")
TASKS: list[dict[str, Any]] = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]


def check_of(task: dict[str, Any]) -> Any:
    given_ = dict(task["checks"][0])
    return getattr(RULES, given_.pop("name").removeprefix("rules:"))(**given_)


CHECKS = [check_of(task) for task in TASKS]
FAMILIES = list(dict.fromkeys(task["context"]["family"] for task in TASKS))
IDS = [task["id"] for task in TASKS]
HOUSES = {check.house.family: check.house for check in CHECKS}


def findings(check: Any, candidate: str, attempt: int = 1) -> list[Finding]:
    return list(check(candidate, Context("a task", attempt=attempt)))


def of_family(family: str) -> list[int]:
    return [n for n, task in enumerate(TASKS) if task["context"]["family"] == family]


def test_the_file_is_what_the_script_makes() -> None:
    assert FILE.read_bytes().decode("utf-8") == MAKE.text()


def test_heedful_reads_the_file_and_no_task_or_answer_comes_twice() -> None:
    tasks = read_tasks(FILE)
    assert [task.id for task in tasks] == IDS
    assert [task.checks[0].expected for task in tasks] == [check.expected for check in CHECKS]  # type: ignore[attr-defined]
    assert len({task["task"] for task in TASKS}) == len(TASKS) == len(set(IDS))
    assert len({check.expected for check in CHECKS}) == len(CHECKS)


@pytest.mark.parametrize(("task", "check"), list(zip(TASKS, CHECKS, strict=True)), ids=IDS)
def test_a_right_answer_passes_and_the_prompt_does_not_hold_it(
    task: dict[str, Any], check: Any
) -> None:
    assert findings(check, check.expected) == []
    assert findings(check, f" \n{check.expected}\t\n") == []
    assert check.expected not in task["task"]
    assert check.pure is True


@pytest.mark.parametrize("check", CHECKS, ids=IDS)
def test_a_wrong_answer_fails_with_a_fix_that_shows_another_value(check: Any) -> None:
    right = check.expected
    for candidate in (f"It is {right}.", f"{right}\n{right}", "", right[1:]):
        (finding,) = findings(check, candidate, 3)
        assert "Example: " in finding.fix
        assert finding.level == "error"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_right_answer_of_another_task_is_a_wrong_value(family: str) -> None:
    members = of_family(family)
    for one, other in zip(members, members[1:] + members[:1], strict=True):
        (finding,) = findings(CHECKS[one], CHECKS[other].expected)
        assert finding.key == f"{family}: value"
        (finding,) = findings(CHECKS[one], f"Sure: {CHECKS[other].expected}")
        assert finding.key == f"{family}: words"
        (finding,) = findings(CHECKS[one], "no idea")
        assert finding.key == f"{family}: form"


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_finding_shows_is_no_answer_of_any_task(family: str) -> None:
    shown = " ".join(HOUSES[family].shown).split()
    for n in of_family(family):
        assert CHECKS[n].expected not in shown


def leaks(check: Any, finding: Finding) -> bool:
    texts = (finding.message, finding.fix, finding.key, finding.evidence)
    return any(check.expected in text for text in texts)


@given(
    check=st.sampled_from(CHECKS),
    before=st.text(max_size=80),
    after=st.text(max_size=80),
    middle=st.sampled_from(["", "answer", "lower", "spaced", "other"]),
    attempt=st.integers(1, 6),
)
def test_no_finding_gives_the_answer_away(
    check: Any, before: str, after: str, middle: str, attempt: int
) -> None:
    right = check.expected
    middles = {"": "", "answer": right, "lower": right.lower(), "spaced": " ".join(right)}
    candidate = before + middles.get(middle, CHECKS[0].expected) + after
    found = findings(check, candidate, attempt)
    assert bool(found) == (candidate.strip() != right)
    assert not any(leaks(check, finding) for finding in found)
