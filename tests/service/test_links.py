"""Links of lessons over HTTP: what they say, and what nobody is told."""

import pytest

from tests.service.support import Api, Project, served

MISSING = {"error_type": "ModuleNotFoundError", "text": "no yaml in src/app.py"}
BROKEN = {"error_type": "SyntaxError", "text": "odd indent in src/app.py"}


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with served(tmp_path_factory.mktemp("http")) as api:
        yield api


@pytest.fixture
def project(api: Api, request: pytest.FixtureRequest) -> Project:
    """A project of its own for each test, and a key that may approve in it."""
    return Project(api, str(request.node.name[:100]), "read", "write", "approve")


def remember(project: Project, error: dict[str, str]) -> int:
    """Remember an error; return the id of its lesson."""
    return int(project.post("reflections", error, 201)["id"])


def test_lessons_are_related(project: Project) -> None:
    first = remember(project, MISSING)
    second = remember(project, BROKEN)

    answer = project.get(f"reflections/{first}/related")
    assert answer["lesson"]["links"] == [
        {"kind": "error", "name": "modulenotfounderror"},
        {"kind": "file", "name": "app.py"},
    ]
    [other] = answer["related"]
    assert other["lesson"]["id"] == second
    assert other["lesson"]["state"] == "candidate"
    assert other["shared"] == [{"kind": "file", "name": "app.py"}]
    assert answer["compared"] == 2
    assert answer["silence"] == ""


def test_what_waits_is_linked_for_no_key(project: Project) -> None:
    trusted = remember(project, MISSING)
    writer = Project(project.api, project.name, "read", "write", outside=True)
    waiting = writer.post("reflections", BROKEN, 201)

    recaller = Project(project.api, project.name, "recall")
    for caller in (project, writer, recaller):
        answer = caller.get(f"reflections/{waiting['id']}/related")
        assert answer["lesson"]["links"] == []
        assert answer["lesson"]["text"] == ""
        assert "is linked when it is released" in answer["silence"]
        assert caller.get(f"reflections/{trusted}/related")["related"] == []


def test_links_need_the_permission_to_list_lessons(project: Project) -> None:
    lesson = remember(project, MISSING)
    writer = Project(project.api, project.name, "write")
    writer.refused(403, "forbidden", "GET", f"reflections/{lesson}/related")


def test_bad_requests_say_what_is_wrong(project: Project) -> None:
    project.refused(404, "not_found", "GET", "reflections/999/related")
    project.refused(422, "invalid_request", "GET", "reflections/1/related?limit=0")
