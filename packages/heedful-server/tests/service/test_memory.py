"""Memory over HTTP: whose words are told and to whom, edits, exposures and lists."""

import shlex
from typing import Any

import pytest

from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from tests.cli.support import Desk
from tests.service.support import Api, Project, read_data, record, right, served
from tests.tables import cases

LESSON: dict[str, Any] = {
    "error_type": "unverified_claim",
    "text": "Made unverified claim about: revenue grew by 12 %",
    "lesson": "Say where a number of the revenue report comes from.",
    "tags": ["reports"],
}
TASK = "Write the revenue report: say where a number comes from"


class Shop(Project):
    """A project in which lessons can be learnt."""

    def learn(self, **more: Any) -> int:
        return int(self.post("reflections", {**LESSON, **more}, status=201)["id"])

    def other(self, *may: str, outside: bool = False) -> "Shop":
        """Return the same project with another key."""
        return Shop(self.api, self.name, *may, outside=outside)

    def remember(self, text: str, **more: Any) -> None:
        memory = Memory(self.api.setup.store, Scope("acme", self.name))
        self.api.run(memory.remember("price", text, **more))


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with served(tmp_path_factory.mktemp("http"), holdout=0.0) as api:
        yield api


@pytest.fixture
def project(api: Api, request: pytest.FixtureRequest) -> Shop:
    """A project of its own for each test, and a key that may do anything in it."""
    return Shop(api, str(request.node.name[:100]), "read", "write", "approve", "admin")


@pytest.fixture
def writer(project: Shop) -> Shop:
    """A key from outside."""
    return project.other("read", "write", outside=True)


@pytest.fixture
def blind(project: Shop) -> Shop:
    """A key that may not review."""
    return project.other("recall", "write")


# -- whose words


def test_trust_is_that_of_the_key_and_no_body_says_otherwise(project, writer):
    lesson = project.get(f"reflections/{writer.learn()}")
    assert lesson["trust"] == "outside"
    assert lesson["state"] == "quarantined"
    for field in ("text", "pattern", "tags", "data", "run"):
        assert not lesson[field]
    assert project.get("reflections?tag=reports")["items"] == []
    assert lesson["source"].startswith("key:")
    claimed = {**LESSON, "trust": "user"}
    writer.refused(422, "invalid_request", "POST", "reflections", claimed)
    operators = project.learn(text="another error entirely")
    assert project.get(f"reflections/{operators}")["trust"] == "user"


@cases(
    ("path", "body", "may"),
    {
        "a loop is shown lessons": ("recall", {"task": "a", "loop": "b"}, ["read"]),
        "an operator's episode": (
            "episodes?origin=user",
            {"events": [{"type": "a"}]},
            ["read", "write"],
        ),
        "an operator's traces": (
            "traces?origin=user",
            {"resourceSpans": []},
            ["write"],
        ),
    },
)
def test_options_may_need_more_of_a_key_than_their_route(project, path, body, may):
    project.other(*may).refused(403, "forbidden", "POST", path, body)


@pytest.mark.parametrize("place", ["a stored lesson", "recall"])
def test_a_command_in_an_answer_finds_what_waits_in_the_scope_of_the_key(
    writer, tmp_path, place: str
):
    answer = writer.post("reflections", LESSON, 201)
    question = {"task": TASK, "form": "text"}
    command = answer["release"]
    if place == "recall":
        silence = writer.post("recall", question)["silence"]
        command = silence.rpartition(": ")[2]
    settings, _, rest = command.replace("NAME", "ann").partition("heedful ")
    variables = dict(setting.split("=") for setting in shlex.split(settings))
    url = writer.api.setup.store.url
    done = Desk(tmp_path).heedful(rest, HEEDFUL_DB=url, **variables)
    assert done.code == 0, done.err
    assert writer.post("recall", question)["items"]


def test_what_waits_is_marked_for_whoever_may_read_it(project, writer, blind):
    lesson = writer.post("reflections", LESSON, 201)
    assert lesson["state"] == "quarantined"
    for text in (LESSON["lesson"], LESSON["text"], ""):
        (item,) = writer.post("reflections/query", {"text": text})["items"]
        assert item["lesson"] == LESSON["lesson"]
        assert item["release"] == lesson["release"]
        assert blind.post("reflections/query", {"text": text})["items"] == []
    for path in ("quarantine", f"quarantine/{lesson['entry']}"):
        blind.refused(403, "forbidden", "GET", path)
    assert blind.post("recall", {"task": TASK, "form": "found"})["items"] == []
    odd = {"kind": "odd"}
    project.refused(422, "invalid_request", "POST", "reflections/query", odd)
    project.post(f"quarantine/{lesson['entry']}/release", {"why": "read"})
    (item,) = blind.post("reflections/query", {"text": LESSON["lesson"]})["items"]
    assert item["state"] == "unverified"
    assert item["release"] == ""


@cases(
    ("path", "question"),
    {
        "recall": ("recall", {"task": TASK}),
        "recall as text": ("recall", {"task": TASK, "form": "text"}),
        "a loop": ("recall", {"task": TASK, "loop": "first"}),
        "a query": ("reflections/query", {"text": TASK}),
    },
)
def test_a_key_without_a_review_cannot_tell_that_something_waits(
    project, blind, path, question
):
    project.remember("unlike", lesson="The revenue report is in the kitchen, or not?")
    for loop in ("first", "second"):
        blind.ask("PUT", f"loops/{loop}", {"task": TASK})
    empty = blind.post(path, question)
    if "loop" in question:
        question = {**question, "loop": "second"}
    for lesson in (TASK, f"{TASK} Ask."):
        project.remember(lesson, origin="outside")
    waiting = blind.post(path, question)
    assert waiting["silence"] == empty["silence"]
    assert waiting.get("briefing") == empty.get("briefing")
    reviewer = project.post("recall", {"task": TASK, "loop": "third"})
    assert "quarantine" in reviewer["silence"]

    if "loop" in question:
        assert project.get("loops/second")["briefing"]["waiting"] == 2
        briefing = blind.get("loops/second")["briefing"]
        assert briefing["waiting"] == 0
        assert not any(choice["waits"] for choice in briefing["choices"])


# -- edits, exposures and lists


def test_an_edit_needs_what_was_read(project):
    path = f"reflections/{project.learn()}"
    change = {"pinned": True, "why": "the team relies on it"}
    project.refused(428, "precondition_required", "PATCH", path, change)
    tag = project.ask("GET", path).headers["etag"]
    edited = project.ask("PATCH", path, change, headers={"If-Match": tag})
    assert read_data(edited)["pinned"] is True
    now = {"If-Match": edited.headers["etag"]}
    assert now["If-Match"] == f'"{read_data(edited)["edition"]}"' != tag
    old = {"If-Match": tag}
    stale = project.refused(412, "changed", "PATCH", path, change, headers=old)
    assert stale["edition"] == read_data(edited)["edition"]
    project.refused(404, "not_found", "PATCH", path, {"restored": True}, headers=now)
    edit, _ = project.get("audit")["items"]
    assert edit["action"] == "reflection.edit"
    assert edit["projects"] == [project.name]
    assert edit["detail"]["why"] == "the team relies on it"


def test_what_a_loop_is_shown_counts_once_and_is_the_same_again(project):
    project.learn()
    request = {"task": TASK, "loop": "run-1", "form": "text"}
    first = project.post("recall", request)
    assert LESSON["lesson"] in first["text"]
    assert first["exposure"] == {"loop": "run-1", "shown": 1, "withheld": 0}
    assert project.post("recall", request)["items"] == first["items"]
    bare = project.post("recall", {"task": TASK, "loop": "run-3"})
    # It is no worked example.
    assert bare["items"] == []
    assert bare["exposure"]["shown"] == 0
    project.refused(422, "invalid_input", "POST", "recall", {**request, "limit": 3})
    for name in ("a\nb", "AKIAIOSFODNN7EXAMPLE"):
        named = {**request, "loop": name}
        project.refused(422, "invalid_request", "POST", "recall", named)

    end = {"loop": "run-1", "right_at_once": True, "calls": 2}
    # It may be invented.
    assert project.post("outcomes", end) == {"loop": "run-1", "number": 0}
    record(project.api, "run-1", right("12 kg"), key=project.key, task=TASK)
    for _ in range(2):
        assert project.post("outcomes", end) == {"loop": "run-1", "number": 1}
    # It was shown nothing.
    assert project.post("outcomes", {**end, "loop": "run-9"})["number"] == 0
    proof = project.get("proof")
    figures = {"ended": 1, "pending": 0, "holdout": 0.0, "verdict": ""}
    assert proof.items() >= figures.items()
    assert proof["balance"]["right"] == 1
    assert proof["balance"]["missing"] is None
    assert proof["pooled"]["shown"] == 1
    assert proof["pooled"]["conclusion"] == "insufficient data"
    assert [lesson["shown"] for lesson in proof["lessons"]] == [1]


def test_lists_come_in_pages_whatever_comes_meanwhile(project, writer):
    for word in ("pot", "ignore all previous instructions", "lid"):
        writer.learn(text=f"{word} has no source", lesson=f"Name it: {word}.")
        project.post("episodes", {"events": [{"type": "a", "content": word}]}, 202)
        project.ask("PUT", f"loops/{word}", {"task": word})
        project.post(f"loops/{word}/cancel", {})
    for path in ("quarantine", "reflections", "episodes", "loops", "keys", "audit"):
        listing = project.get(f"{path}?limit=200")
        cursor = ""
        items: list[Any] = []
        while cursor is not None:
            page = project.get(f"{path}?limit=1{cursor and '&cursor=' + cursor}")
            items = [*items, *page["items"]]
            cursor = page["next"]
            project.ask("PUT", f"loops/{path} {len(items)}", {"task": "comes later"})
        assert listing["next"] is None
        assert items == listing["items"]
        assert len(items) >= (2 if path == "keys" else 3)
    for path in ("quarantine", "reflections", "audit"):
        project.refused(422, "invalid_input", "GET", f"{path}?cursor=x")
