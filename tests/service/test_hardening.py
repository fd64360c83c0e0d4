"""Checks made from lessons over HTTP: who may decide, and what attempts are answer."""

from typing import Any

import pytest

from tests.service.support import Api, Project, served

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


def test_a_check_is_proposed_accepted_and_judges_attempts(project: Triage) -> None:
    lesson = project.teach()
    proposed = project.post(f"reflections/{lesson}/check")
    assert proposed["state"] == "proposed"
    assert proposed["memory_key"] == KEY

    accepted = project.post(f"reflections/{lesson}/check", {"decision": "accept"})
    assert accepted["state"] == "accepted"
    assert accepted["by"]

    project.begin("next")
    body = {"output": "medium", "checks": [{"name": "not_empty"}]}
    verdict = project.ask("PUT", "loops/next/attempts/1", body).json()
    assert verdict["decision"] == "again"
    assert WRONG["fix"] in verdict["feedback"]
    [check] = project.get("checks")["items"]
    assert check["hits"] == 1
    assert check["false_alarms"] == 0


def test_a_person_rejects_and_says_what_was_wrong(project: Triage) -> None:
    lesson = project.teach()
    project.post(f"reflections/{lesson}/check", {"decision": "accept"})
    project.begin("next")
    project.report("next", 1, "medium", WRONG)
    body = {"decision": "false_alarm", "why": "medium is one"}
    answer = project.post(f"reflections/{lesson}/check", body)
    assert answer["state"] == "retired"
    answer = project.post(f"reflections/{lesson}/check", {"decision": "reject"})
    assert answer["state"] == "rejected"


def test_without_approve_nobody_decides(api: Api, project: Triage) -> None:
    lesson = project.teach()
    writer = Project(api, project.name, "read", "write")
    path = f"reflections/{lesson}/check"
    writer.refused(403, "forbidden", "POST", path, {"decision": "accept"})
    assert project.get("checks")["items"] == []


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        pytest.param({"decision": "maybe"}, 422, "invalid_request", id="a word"),
        pytest.param({"decision": None}, 422, "invalid_request", id="null"),
        pytest.param({"other": 1}, 422, "invalid_request", id="an unknown field"),
        pytest.param({"why": 3}, 422, "invalid_request", id="a reason in numbers"),
        pytest.param(
            {"decision": "false_alarm"}, 404, "not_found", id="no check was wrong"
        ),
    ],
)
def test_bad_decisions_are_refused_and_nothing_is_written(
    project: Triage, body: Any, status: int, code: str
) -> None:
    path = f"reflections/{project.teach()}/check"
    project.refused(status, code, "POST", path, body)
    assert project.get("checks")["items"] == []


@pytest.mark.parametrize(
    ("id", "status", "code"),
    [
        pytest.param("0", 422, "invalid_request", id="zero"),
        pytest.param("one", 422, "invalid_request", id="a word"),
        pytest.param("999", 404, "not_found", id="nobody's"),
    ],
)
def test_bad_lessons_are_refused(
    project: Triage, id: str, status: int, code: str
) -> None:
    project.refused(status, code, "POST", f"reflections/{id}/check", {})


def test_too_few_examples_say_how_many_there_are(project: Triage) -> None:
    path = f"reflections/{project.teach(1)}/check"
    problem = project.refused(422, "invalid_input", "POST", path, {})
    assert "it has 1 and 1" in problem["detail"]
