"""The house rules of the example: right answers pass, no finding gives the answer
away.
"""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from heedful.checks.evaluate import Context
from heedful.cli.tasks import read_tasks
from heedful.loop.record import Finding

FOLDER = Path(__file__).parents[1] / "examples" / "house_rules"
FILE = FOLDER / "tasks.jsonl"


def load_module(name: str) -> ModuleType:
    full = f"house_rules_{name}"
    spec = importlib.util.spec_from_file_location(full, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[full] = loaded  # dataclasses look their module up
    spec.loader.exec_module(loaded)
    return loaded


RULES = load_module("rules")
MAKE = load_module("make_tasks")
TASKS: list[dict[str, Any]] = [
    json.loads(line) for line in FILE.read_text("utf-8").splitlines()
]


def check_of(task: dict[str, Any]) -> Any:
    arguments = dict(task["checks"][0])
    return getattr(RULES, arguments.pop("name").removeprefix("rules:"))(**arguments)


CHECKS = [check_of(task) for task in TASKS]
FAMILIES = list(dict.fromkeys(task["context"]["family"] for task in TASKS))
IDS = [task["id"] for task in TASKS]


def findings(check: Any, candidate: str, attempt: int = 1) -> list[Finding]:
    return list(check(candidate, Context("a task", attempt=attempt)))


def test_the_file_is_what_the_script_makes_and_heedful_reads_it() -> None:
    assert FILE.read_bytes().decode("utf-8") == MAKE.text()
    tasks = read_tasks(FILE)
    assert [task.id for task in tasks] == IDS
    first_checks: list[Any] = [task.checks[0] for task in tasks]
    assert [check.expected for check in first_checks] == [
        check.expected for check in CHECKS
    ]
    assert len({task["task"] for task in TASKS}) == len(TASKS) == len(set(IDS))
    assert len({check.expected for check in CHECKS}) == len(CHECKS)


def marks_of(id: str) -> Any:
    """Return no mark for the first and the last of a family, else `nightly`."""
    return () if id.endswith(("-01", "-40")) else pytest.mark.nightly


CASES = [
    pytest.param(task, check, id=id, marks=marks_of(id))
    for task, check, id in zip(TASKS, CHECKS, IDS, strict=True)
]


@pytest.mark.parametrize(("task", "check"), CASES)
def test_only_the_right_answer_passes_and_nothing_gives_it_away(
    task: dict[str, Any], check: Any
) -> None:
    right = check.expected
    assert findings(check, right) == findings(check, f" \n{right}\t\n") == []
    assert right not in task["task"]
    assert check.pure is True
    others = [other.expected for other in CHECKS if other is not check]
    around = [
        f"It is {right}.",
        f"{right}\n{right}",
        right.lower() + "!",
        " ".join(right),
    ]
    for attempt, candidate in enumerate((*around, "", right[1:], *others), 1):
        (finding,) = findings(check, candidate, attempt)
        assert finding.level == "error"
        assert attempt < 3 or "Example: " in finding.fix
        texts = (finding.message, finding.fix, finding.key, finding.evidence)
        assert not any(right in text for text in texts)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_wrong_answer_has_the_key_of_its_mistake(family: str) -> None:
    members = [n for n, task in enumerate(TASKS) if task["context"]["family"] == family]
    shown_texts = " ".join(CHECKS[members[0]].house.shown).split()
    for member, other in zip(members, members[1:] + members[:1], strict=True):
        another = CHECKS[other].expected
        wrong = {another: "value", f"Sure: {another}": "words", "no idea": "form"}
        for candidate, mistake in wrong.items():
            (finding,) = findings(CHECKS[member], candidate)
            assert finding.key == f"{family}: {mistake}"
        assert another not in shown_texts
