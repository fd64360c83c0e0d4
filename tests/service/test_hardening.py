"""A check made from a lesson judges attempts that are reported over HTTP."""

from typing import Any

import pytest

from heedful.lessons.lesson import Scope
from heedful.memory.hardening import LessonChecks
from heedful.memory.memory import Memory
from tests.service.support import TENANT, Api, Project, served

KEY = "bug reports"
WRONG = {
    "check": "severity",
    "message": "this is no severity",
    "fix": "Answer with one of P0 to P3",
}


class Triage(Project):
    """A project whose loops rate bugs."""

    def report(
        self, loop: str, number: int, output: str, *findings: Any, **more: Any
    ) -> Any:
        """Report an attempt with what the caller's own judge found."""
        evaluation = {"findings": list(findings), "scores": {}}
        body = {"output": output, "evaluation": evaluation, **more}
        return self.ask("PUT", f"loops/{loop}/attempts/{number}", body).json()

    def begin(self, loop: str) -> None:
        """Begin a loop."""
        body = {"task": f"bug {loop}", "memory_key": KEY}
        assert self.ask("PUT", f"loops/{loop}", body).status_code == 201

    def teach(self, loops: int = 2) -> int:
        """Let loops correct the mistake; return the id of the lesson."""
        for number in range(loops):
            self.begin(f"loop{number}")
            self.report(f"loop{number}", 1, ["high", "very low"][number], WRONG)
            self.report(f"loop{number}", 2, ["P0", "P3"][number])
        [lesson] = self.get("reflections?kind=check")["items"]
        return int(lesson["id"])


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with served(tmp_path_factory.mktemp("http"), holdout=0.0) as api:
        yield api


@pytest.fixture
def project(api: Api, request: pytest.FixtureRequest) -> Triage:
    """A project of its own for each test, and a key that may decide in it."""
    return Triage(api, str(request.node.name[:100]), "read", "write", "approve")


def test_the_check_of_a_lesson_judges_attempts(api: Api, project: Triage) -> None:
    checks = LessonChecks(Memory(api.setup.store, Scope(TENANT, project.name)))
    api.run(checks.accept(project.teach(), by="ada"))

    project.begin("next")
    body = {"output": "medium", "checks": [{"name": "not_empty"}]}
    verdict = project.ask("PUT", "loops/next/attempts/1", body).json()
    assert verdict["decision"] == "again"
    assert WRONG["fix"] in verdict["feedback"]
    [check] = api.run(checks.list())
    assert check.hits == 1
    assert check.false_alarms == 0
