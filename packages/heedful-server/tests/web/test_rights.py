"""What each page, its data and each form need of a key, on both engines."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from heedful import Memory, Pipeline
from heedful.errors import Forbidden, StoreUnavailable
from heedful.lessons.lesson import Scope
from heedful.memory.dream import consolidate
from heedful.store.episodes import record_failure
from heedful.store.keys import KEY_PERMISSIONS
from heedful_server.jobs import Depth, Work
from heedful_server.web.home import home
from heedful_server.web.session import Session
from heedful_server.web.site import ENDED_EVENT, SitePage, Visit
from heedful_server.web.site_map import PAGES
from tests.service.support import Api, read_data
from tests.tables import cases
from tests.web.support import browsing

MARKER = "zqmarker"  # in all that is stored
SCOPE = Scope("acme", "main")
# What shows the words of tools before a review.
QUARANTINE = "GET /v1/quarantine"
LOOPS = "GET /v1/loops"
# A page -> the route of the API that answers with the same data, or with such data.
ROUTE_OF_PAGE = {
    "/": LOOPS,
    "/home": LOOPS,
    "/loops": LOOPS,
    "/loops/{id:path}": "GET /v1/loops/x",
    "/lessons": "GET /v1/reflections",
    "/lessons/{n:int}": "GET /v1/reflections/1",
    "/inbox": QUARANTINE,
    "/inbox/{n:int}": "GET /v1/quarantine/1",
    "/proof": "GET /v1/proof",
    "/work": LOOPS,
    "/keys": "GET /v1/keys",
    "/runs/{id:path}": LOOPS,
    "/send/{id:path}": LOOPS,
    "/traces/{digest:path}": QUARANTINE,
    "/events": LOOPS,
}
# A form -> the route of the API that does the same, or as much.
ROUTE_OF_ACTION = {
    "override": "POST /v1/loops/x/overrides",
    "cancel": "POST /v1/loops/x/cancel",
    "note": "POST /v1/loops/x/notes",
    "correct": "POST /v1/loops/x/correction",
    "release": "POST /v1/quarantine/1/release",
    "reject": "POST /v1/quarantine/1/reject",
    "undo": "POST /v1/quarantine/1/undo",
    "trust": "POST /v1/quarantine/1/release",
    "revoke": "POST /v1/quarantine/revoke",
    "amend": "PATCH /v1/reflections/1",
    "reflect_now": "POST /v1/episodes",
    "revoke_key": "GET /v1/keys",
}


def store_everything(api: Api) -> Mapping[str, str]:
    """Store data for every page; return the address of each page that needs an id."""
    task = f"write a summary {MARKER}"
    wrong = {"check": "short", "message": f"too long {MARKER}", "fix": MARKER}
    read_data(api.put("/v1/loops/told", json={"task": task}), 201)
    read_data(api.post("/v1/recall", json={"task": task, "loop": "told"}))
    for number, findings in enumerate(([wrong], []), 1):
        report = {"output": f"{MARKER} {number}", "evaluation": {"findings": findings}}
        read_data(api.put(f"/v1/loops/told/attempts/{number}", json=report))
    outcome = {"loop": "told", "right_at_once": False, "calls": 2, "signatures": []}
    read_data(api.post("/v1/outcomes", json=outcome))
    read_data(api.put("/v1/loops/open", json={"task": task}), 201)

    lesson = {"error_type": "E", "text": f"{MARKER} failed", "lesson": MARKER}
    read_data(api.post("/v1/reflections", json=lesson), 201)
    waiting = {"error_type": "F", "text": f"{MARKER} waits", "lesson": MARKER}
    entry = read_data(
        api.post("/v1/reflections", json=waiting, key=api.key("write", outside=True)),
        201,
    )["entry"]

    event = {
        "type": "tool_response",
        "tool": "sh",
        "arguments": {"command": MARKER},
        "content": MARKER,
        "error": MARKER,
    }
    run = {"task": MARKER, "events": [event], "outcome": "error"}
    digest = read_data(api.post("/v1/episodes", json=run), 202)["digest"]

    store = api.setup.store
    pipeline = Pipeline("p", store=store, scope=SCOPE, progress=False)
    pipeline.stage(name="load")(lambda state: {"a": MARKER})
    pipeline_run = api.run(pipeline.run({})).run
    api.run(consolidate(Memory(store, scope=SCOPE)))

    id = read_data(api.get("/v1/reflections?error_type=E"))["items"][0]["id"]
    return {
        "/loops/{id:path}": "/loops/told",
        "/lessons/{n:int}": f"/lessons/{id}",
        "/inbox": f"/inbox/{entry}",  # this opens there
        "/inbox/{n:int}": f"/inbox/{entry}",
        "/runs/{id:path}": f"/runs/{pipeline_run}",
        "/send/{id:path}": f"/send/{pipeline_run}",
        "/traces/{digest:path}": f"/traces/{digest}",
    }


def is_forbidden(api: Api, route: str, key: str) -> bool:
    """Return whether the API refuses a route to a key."""
    method, _, path = route.partition(" ")
    body: dict[str, Any] | None = None if method == "GET" else {}
    return api.request(method, path, key=key, json=body).status_code == 403


def queries_of(address: str) -> tuple[str, ...]:
    """Return the queries with which a page shows most."""
    texts = {"/lessons": ("", "?state=quarantined", "?text=failed", "?task=summary")}
    return texts.get(address, ("",))


@pytest.mark.both_nightly
@pytest.mark.parametrize("may", KEY_PERMISSIONS)
def test_a_page_and_its_data_need_what_the_api_needs(tmp_path, may):
    with browsing(tmp_path) as browser:
        places = store_everything(browser.api)
        key = browser.api.key(may)
        browser.open(key)
        seen_markers = 0
        for page in PAGES:
            refused = is_forbidden(browser.api, ROUTE_OF_PAGE[page.address], key)
            assert refused is not bool(set(page.may) & {may}), page.address
            # A page with an argument needs a place above.
            path = places.get(page.address, page.address)
            assert "{" not in path
            for query in queries_of(page.address):
                for place in (path, f"{path}.json"):
                    answer = browser.get(f"{place}{query}")
                    expected = 403 if refused else 200
                    assert answer.status_code == expected, (page.address, query)
                    seen_markers += MARKER in answer.text
                    if refused:
                        assert MARKER not in answer.text, page.address

        stream = browser.api.run(browser.client.head("/ui/events?project=main"))
        stream_refused = is_forbidden(browser.api, ROUTE_OF_PAGE["/events"], key)
        assert stream.status_code == (403 if stream_refused else 200)
        assert bool(seen_markers) is (may in ("read", "recall"))


@pytest.mark.both_nightly
def test_who_is_not_signed_in_sees_no_page(tmp_path):
    with browsing(tmp_path) as browser:
        places = store_everything(browser.api)
        for page in PAGES:
            path = places.get(page.address, page.address)
            page_answer = browser.get(path)
            assert page_answer.status_code == 303, path
            assert page_answer.headers["location"].startswith("/ui/sign-in")
            data = browser.get(f"{path}.json")
            assert data.status_code == 401, path
            assert MARKER not in page_answer.text + data.text
        assert browser.get("/events").text == ENDED_EVENT
        for action in browser.site._actions:
            assert browser.post(f"/do/{action}").status_code == 401, action


@pytest.mark.both_nightly
@pytest.mark.parametrize("may", KEY_PERMISSIONS)
def test_a_form_needs_what_the_api_needs(tmp_path, may):
    with browsing(tmp_path) as browser:
        store_everything(browser.api)
        key = browser.api.key(may)
        browser.open(key)
        assert set(browser.site._actions) == set(ROUTE_OF_ACTION)
        for name, route in ROUTE_OF_ACTION.items():
            refused = is_forbidden(browser.api, route, key)
            form = {"token": browser.token, "id": "7", "change": "pin", "why": "x"}
            answer = browser.post(f"/do/{name}", form)
            assert (answer.status_code == 403) is refused, name
            assert MARKER not in answer.text


def test_a_page_states_its_permission_and_without_one_nobody_may(tmp_path):
    facts: dict[str, Any] = {"address": "/x", "template": "home", "title": "X"}
    with pytest.raises(TypeError, match="may"):
        SitePage(**facts, make=home)
    with browsing(tmp_path) as browser:
        authorization = f"Bearer {browser.api._all}"
        identified = browser.site._callers.identified(authorization)
        caller: Any = browser.api.run(identified)
        session = Session(authorization="")
        visit = Visit(
            app=browser.api.app, caller=caller, session=session, path="/x", query={}
        )
        assert not visit.may()
        with pytest.raises(Forbidden):
            caller.needs()


def test_the_documentation_says_what_each_page_needs(tmp_path):
    with browsing(tmp_path) as browser:
        actions = {name: may for name, (_, may) in browser.site._actions.items()}
    pages = {page.address: page.may for page in PAGES}
    documented = dict(
        re.findall(r"^\| `/ui(/\S*)` \| (.*) \|$", _page_text(), re.MULTILINE)
    )
    stated = {}
    for address, may in pages.items():
        needs = " or ".join(f"`{name}`" for name in may)
        if needs != "`read` or `recall`":
            stated[re.sub(r":\w+}", "}", address)] = needs
    for name, permission in actions.items():
        if permission != "approve":
            stated[f"/do/{name}"] = f"`{permission}`"
    assert "| every other page | `read` or `recall` |" in _page_text()
    assert "| every other form | `approve` |" in _page_text()
    assert documented == stated


def _page_text() -> str:
    """Return the text of the page about pages."""
    return (Path(__file__).parents[4] / "docs" / "pages.md").read_text("utf-8")


HELD = "zqheld"  # what others chose, in lessons that nobody has reviewed


def store_unreviewed(api: Api) -> str:
    """Store lessons that wait or were rejected, and an episode; return its digest."""
    write_key = api.key("write", outside=True)
    lesson = {
        "error_type": f"{HELD}Type",
        "text": "disk quota exceeded on the volume",
        "lesson": HELD,
        "source": f"{HELD} source",
        "tags": [HELD],
    }
    read_data(api.post("/v1/reflections", json=lesson, key=write_key), 201)
    rejected = {**lesson, "text": "printer is out of paper again", "lesson": f"{HELD}2"}
    entry = read_data(api.post("/v1/reflections", json=rejected, key=write_key), 201)[
        "entry"
    ]
    read_data(api.post(f"/v1/quarantine/{entry}/reject", json={"why": "poison"}))

    # A lesson of an operator, of which somebody else sends another text.
    own_answers = {
        "error_type": "Own",
        "text": "the port is taken",
        "lesson": "choose another",
    }
    read_data(api.post("/v1/reflections", json=own_answers), 201)
    theirs = {**own_answers, "lesson": HELD, "source": f"{HELD} other", "tags": [HELD]}
    read_data(api.post("/v1/reflections", json=theirs, key=write_key))

    event = {
        "type": "tool_response",
        "tool": f"{HELD}tool",
        "content": HELD,
        "error": HELD,
    }
    run = {"task": HELD, "events": [event], "outcome": "error"}
    return str(read_data(api.post("/v1/episodes", json=run), 202)["digest"])


# Questions to the API with which a key may read lessons.
QUESTIONS = (
    ("/v1/seen", {"error_type": "", "text": "disk quota exceeded on the volume"}),
    ("/v1/seen", {"error_type": "", "text": "printer is out of paper again"}),
    ("/v1/seen", {"error_type": "Own", "text": "the port is taken"}),
    ("/v1/before", {"tool": "sh", "arguments": "disk quota"}),
    ("/v1/recall", {"task": "disk quota exceeded", "form": "found"}),
    ("/v1/recall", {"task": "disk quota exceeded", "form": "text"}),
    ("/v1/reflections/query", {"text": "disk quota exceeded"}),
    ("/api/v1/reflections/query", {"query_text": "quota", "min_importance": 0.0}),
)


def answers_of_api(api: Api, key: str) -> dict[str, str]:
    """Return what the API answers to a key on every GET route, and to questions."""
    ids = [row["id"] for row in read_data(api.get("/v1/reflections"))["items"]]
    answers = {}
    for path, operations in api.app.openapi()["paths"].items():
        if "get" not in operations:
            continue
        for id in ids if "{" in path else [0]:
            place = re.sub(r"{\w+}", str(id), path)
            answers[f"GET {place}"] = api.get(place, key=key).text
    for state in ("quarantined", "retired"):
        path = f"/v1/reflections?state={state}"
        answers[path] = api.get(path, key=key).text
    for path, body in QUESTIONS:
        name = f"{path} {json.dumps(body)}"
        answers[name] = api.post(path, json=body, key=key).text
    return answers


@pytest.mark.both_nightly
def test_a_key_that_recalls_gets_nothing_of_what_nobody_reviewed(tmp_path):
    with browsing(tmp_path) as browser:
        api = browser.api
        digest = store_unreviewed(api)
        failure = f"MalformedAnswer: no JSON; it began: {HELD}"
        api.run(api.setup.store.write(SCOPE, record_failure, digest, failure))

        reviewer = api.key("read")
        answers = answers_of_api(api, reviewer)
        assert HELD in answers["GET /v1/reflections"]
        path_of_type = f"/v1/reflections?error_type={HELD}Type"
        assert len(read_data(api.get(path_of_type, key=reviewer))["items"]) == 2

        recaller = api.key("recall")
        for question, text in answers_of_api(api, recaller).items():
            assert HELD not in text, question
        assert read_data(api.get(path_of_type, key=recaller))["items"] == []
        assert read_data(api.get("/v1/episodes", key=recaller))["items"][0][
            "error"
        ] == ("MalformedAnswer")

        ids = [row["id"] for row in read_data(api.get("/v1/reflections"))["items"]]
        browser.open(reviewer)
        assert HELD in browser.get(f"/traces/{digest}").text
        browser.open(recaller)
        assert browser.get(f"/traces/{digest}").status_code == 403
        paths = [page.address for page in PAGES if "{" not in page.address]
        paths += [f"/lessons/{id}" for id in ids]
        paths += ["/lessons?state=quarantined", "/lessons?state=retired"]
        paths += ["/lessons?task=disk+quota", "/lessons?text=disk+quota"]
        for path in paths:
            head, _, query = path.partition("?")
            for place in (head, f"{head}.json"):
                answer = browser.get(f"{place}?{query}")
                assert answer.status_code in (200, 403), path
                assert HELD not in answer.text, path


@cases(
    "place",
    {
        "recall": "/lessons.json?task=disk+quota+exceeded",
        "lessons": "/lessons.json?text=disk+quota+exceeded",
    },
)
def test_a_page_of_a_key_that_recalls_does_not_say_that_something_waits(
    tmp_path, place
):
    with browsing(tmp_path) as browser:
        api = browser.api
        browser.open(api.key("recall"))
        before = browser.get(place).text
        assert "no lesson" in before.lower()
        memory = Memory(api.setup.store, SCOPE)
        api.run(memory.remember("disk", "disk quota exceeded", origin="outside"))
        assert browser.get(place).text == before


def test_a_key_that_approves_gets_nothing_unreviewed_for_an_edit(tmp_path):
    with browsing(tmp_path) as browser:
        api = browser.api
        store_unreviewed(api)
        (lesson,) = read_data(api.get("/v1/reflections?state=quarantined"))["items"]
        etag = {"If-Match": f'"{lesson["edition"]}"'}
        change = {"pinned": True, "why": "x"}
        path = f"/v1/reflections/{lesson['id']}"
        answer = api.patch(path, json=change, headers=etag, key=api.key("approve"))
        assert read_data(answer)["pinned"]
        assert HELD not in answer.text


def test_where_the_store_is_only_the_person_at_this_machine_sees(tmp_path):
    with browsing(tmp_path, work=AwayWork()) as browser:
        pages = {}
        for key in (None, browser.api.key("recall")):
            browser.open(key)
            pages[key is None] = browser.get("/home").text
    assert AwayWork.place in pages[True]
    assert AwayWork.place not in pages[False]
    assert "StoreUnavailable" in pages[False]


class AwayWork(Work):
    """A queue that does not answer, and says where it is."""

    place = "server.example/jobs"

    async def depth(self) -> list[Depth]:
        raise StoreUnavailable(f"{self.place} does not answer")
