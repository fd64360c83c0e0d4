"""The pages: who may see and do what, texts that stay data, and what is an error."""

import json
import logging
import re
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from starlette.routing import Route

from heedful import Memory
from heedful.lessons.briefing import HARMFUL_MEMORY
from heedful.lessons.lesson import Outcome, Scope
from heedful.store import keys
from heedful.store.episodes import record_failure
from heedful.validation import Document
from heedful_server.web.menu import MENU
from heedful_server.web.session import MAX_SESSION_IDLE_SECONDS, Session, Sessions
from heedful_server.web.site import READING, Site, SitePage, Visit
from heedful_server.web.site_map import PAGES
from tests.engines import change_rows
from tests.service.support import read_data, record, wrong
from tests.tables import cases
from tests.web.support import (
    ATTACK,
    HERE,
    SCOPE,
    Browser,
    browsing,
    end_loop,
    fill,
    words_of,
)

both_nightly = pytest.mark.both_nightly
LISTS = ("home", "loops", "lessons", "inbox", "proof", "work")
FOREIGN = (
    r"""<script(?! src="/ui/static/ui.js")|<img|onerror=[^&]*>"""
    r"""|(?:src|href)="(?!/ui|#|\?)"""
)
SIGN_IN = "/ui/sign-in?next=%2Fui%2Floops"


@pytest.fixture
def filled(browser: Browser) -> Browser:
    """A browser on loops, lessons and texts with markup."""
    fill(browser.api)
    return browser


@both_nightly
def test_every_page_shows_texts_as_data_and_has_its_data_beside(browser):
    for path in LISTS:
        assert browser.get(f"/{path}").status_code == 200, path
    fill(browser.api)
    entry = browser.data("/inbox")["queue"][0]["id"]
    lesson = browser.data("/lessons")["lessons"][0]["id"]
    trace = browser.data("/work")["agents"][0]["id"]
    loops = [loop["id"] for loop in browser.data("/loops")["loops"]]
    assert loops == ["open", "stopped", "a/b"]
    details = [f"inbox/{entry}", f"lessons/{lesson}", f"traces/{trace}", "loops/a/b"]
    queries = ["lessons?task=no+severity", "loops?check=severity&state=stopped"]
    # With a text, the inbox leads to its page.
    lists = [path for path in LISTS if path != "inbox"]
    for path in (*lists, *details, *queries):
        page = browser.get(f"/{path}")
        assert page.status_code == 200, path
        assert not re.search(FOREIGN, page.text)
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src")
        # Else forms have no Origin.
        assert page.headers["referrer-policy"] == "same-origin"
        for link in re.findall(r'href="(/ui[^"]*)"', page.text):
            is_static = link.startswith("/ui/static/")
            assert is_static or link.count("?project=main") == 1, link
        head, _, query = path.partition("?")
        assert isinstance(browser.data(f"/{head}?{query}"), dict)
    page_of_loop = browser.get("/loops/a/b").text
    assert "Attempt 2" in page_of_loop
    assert "&lt;script&gt;" in page_of_loop
    assert browser.data("/")["totals"]["right"]["of"] == 2


@both_nightly
def test_a_person_rules_on_loops_lessons_and_sources(filled):
    entry = str(filled.data("/inbox")["queue"][0]["id"])
    assert "released" in filled.do("release", id=entry, why="read")
    assert not filled.data("/inbox")["queue"]
    lesson = filled.data("/lessons")["lessons"][0]
    change = {"id": str(lesson["id"]), "edition": lesson["edition"], "why": "of use"}
    assert "pin" in filled.do("amend", change, change="pin")
    assert filled.data(f"/lessons/{lesson['id']}")["lesson"]["pinned"]
    stale = filled.post("/do/amend", change, token=filled.token, change="unpin")
    assert stale.status_code == 412
    rule = filled.data("/loops/stopped")["lifted"][0]
    lift = {"id": "stopped", "rule": rule, "why": "close", "decisions": "1"}
    assert "the loop is open" in filled.do("override", lift)
    assert "cancelled" in filled.do("cancel", id="open", why="enough")
    ended = filled.data("/loops/open")
    # Nothing lifts a cancellation.
    assert ended["state"] == "stopped"
    assert ended["lifted"] == []
    removed = filled.do("revoke", source=ATTACK, why="poison")
    assert re.search(r"Removed all of .*: \d+ examples?, \d+ lessons?", removed)
    log = read_data(filled.api.get("/v1/audit"))["items"]
    actions = {row["action"] for row in log}
    assert actions > {"quarantine.release", "reflection.edit", "loop.cancel"}


@cases(
    ("status", "path", "form"),
    {
        "an unknown form": (404, "nothing", {}),
        "no id": (422, "release", {"id": "x"}),
        "an unknown change": (422, "amend", {"change": "burn"}),
        "a number in words": (
            422,
            "override",
            {"id": "stopped", "rule": "attempts", "decisions": "x"},
        ),
        "an unknown loop": (404, "cancel", {"id": "nothing"}),
        "an unknown trace": (422, "reflect_now", {"digest": "x"}),
        "another project": (403, "cancel", {"id": "open", "project": "theirs"}),
    },
)
def test_a_form_that_cannot_be_followed_is_refused(filled, status, path, form):
    form = {"why": "x", **form}
    answer = filled.post(f"/do/{path}", form, token=filled.token)
    assert answer.status_code == status


def test_what_a_key_may_not_is_neither_offered_nor_done(tmp_path):
    with browsing(tmp_path) as browser:
        api = browser.api
        fill(api)
        browser.open(api.key("read"))
        assert "Override" not in browser.get("/loops/stopped").text
        browser.open(api.key("read", tenant="other", projects=()))
        assert browser.data("/loops")["loops"] == []
        assert browser.get("/loops/a/b").status_code == 404
        token = browser.token
        revoked = keys.id_of(key := api.key("read"))
        browser.open(key)
        api.run(api.setup.store.write(Scope("acme"), keys.revoke, revoked, "ops"))
        browser.site._callers._cached.clear()  # a key is known for a second
        assert browser.get("/loops").headers["location"] == SIGN_IN
        assert browser.post("/do/cancel", id="open", token=token).status_code == 401
        browser.open(api.key("recall", "write"))
        assert ">Inbox<" not in browser.get("/inbox").text
    with browsing(tmp_path, read_only=True) as browser:
        browser.open()
        assert "Cancel the loop" not in browser.get("/loops/open").text
        refused = browser.post("/do/cancel", id="open", token=browser.token)
        assert refused.status_code == 403


def test_forged_requests_are_refused(tmp_path):
    with browsing(tmp_path) as browser:
        fill(browser.api)
        assert browser.get("/loops").headers["location"] == SIGN_IN
        assert browser.get("/loops.json").status_code == 401
        assert browser.post("/sign-in", key="heedful_no_such").status_code == 401
        browser.open()
        form = {"id": "open", "why": "x", "token": browser.token}
        for status, changes in (
            (403, {"token": ""}),
            (403, {"token": "x"}),
            (413, {"why": "x" * 70_000}),
        ):
            response = browser.post("/do/cancel", {**form, **changes})
            assert response.status_code == status, changes
        for status, host, origin in (
            (403, "localhost", "http://evil.example"),
            (403, "localhost", ""),
            (403, "localhost", "null"),
            (421, "evil.example", "http://evil.example"),
            (400, "a b", "http://a b"),
        ):
            response = browser.post("/do/cancel", form, host=host, origin=origin)
            assert response.status_code == status, (host, origin)
        assert browser.data("/loops/open")["state"] == "open"
        for back in ("http://evil.example", "//evil.example", "/ui\\evil", "/ui/\nx"):
            response = browser.post("/do/cancel", {**form, "back": back})
            assert response.headers["location"] == "/ui"
        used = browser.site.sessions.invite()
        assert browser.get(f"/open?token={used}").status_code == 303
        loaded_again = browser.get(f"/open?token={used}")
        assert loaded_again.headers["location"] == "/ui"
        # Cookies are for all ports.
        other = browser.post(
            "/sign-in", origin=f"{HERE}:81", host="localhost:81", key=browser.api._all
        )
        assert other.headers["set-cookie"].startswith("heedful_ui_81=")
        assert browser.post("/sign-out", token=browser.token).status_code == 303
        assert browser.get("/loops").headers["location"] == SIGN_IN
        assert "his address was used before" in browser.get(f"/open?token={used}").text
        # No cookie comes with a click on a link in a mail: the browser asks again from
        # here.
        mail = browser.get("/loops", headers={"sec-fetch-site": "cross-site"})
        assert mail.status_code == 200
        assert mail.headers["refresh"] == "0"
        for wish, page in (("/ui/loops?state=open",) * 2, ("//evil.example", "/ui")):
            entered = browser.post("/sign-in", key=browser.api._all, next=wish)
            assert entered.headers["location"] == page
        headers = {"origin": HERE}
        sent = browser.client.post("/ui/sign-in", content=b"\xff=1", headers=headers)
        assert browser.api.run(sent).status_code == 400
        assert browser.api.get("/").headers["location"] == "/ui"


def test_a_session_ends_when_it_is_idle():
    sessions = Sessions()
    session = Session(authorization="")
    cookie = sessions.begin(session)
    assert sessions.find(cookie) is session
    session.used -= MAX_SESSION_IDLE_SECONDS - 9
    # A live page keeps no session alive.
    assert sessions.find(cookie, person=False) is session
    session.used -= 10
    assert sessions.find(cookie) is None
    assert sessions.find("") is None


# -- addresses and the menu


def test_a_loop_of_any_name_has_its_page_and_its_data(browser):
    names = "report.json,a/b.json,a//b,/a,a/,q?x=1#f,50% done,x%2Fy,grün 日,'\"<b>"
    for name in names.split(","):
        record(browser.api, quote(name, safe=""))
    listed = " ".join(browser.get("/loops").text.split()).replace("> <", "><")
    links = re.findall(r'class="task"><a href="/ui(/loops/[^"?]*)', listed)
    pages = {browser.data(link)["name"]: browser.get(link) for link in links}
    assert set(pages) == set(names.split(","))
    for name, page in pages.items():
        assert page.status_code == 200
        assert page.headers["content-type"][:9] == "text/html"
        back = re.search(r'name="back" value="/ui([^"?]*)', page.text)
        assert browser.data(f"{back[1] if back else ''}")["name"] == name
        assert browser.do("cancel", id=name, why="x") == "The loop is cancelled."


@both_nightly
def test_the_beginning_of_an_id_leads_to_its_loop(browser):
    ids = [f"{short:f<32}" for short in ("0cb7fbdb", "0cb7fb00")]
    for id in ids:
        record(browser.api, id)
    assert browser.data("/loops/0cb7fbdb")["name"] == ids[0]
    ambiguous = browser.get("/loops/0cb7fb")
    assert ambiguous.status_code == 422
    assert all(id in ambiguous.text for id in ids)
    assert browser.get("/loops/0cb7fbd0").status_code == 404
    data = browser.get(".json?project=main").json()
    assert data == browser.data("/home?project=main")


def test_every_page_is_in_the_menu_once_and_marked_there(filled):
    addresses = [page.address for page in PAGES]
    addresses.remove("/send/{id:path}")  # a file to send, without a menu
    for address in addresses:
        pages = [page for page in MENU if page.holds(address.partition("/{")[0])]
        assert len(pages) == 1, address
    for page in MENU:
        header = filled.get(page.address).text.partition("</header>")[0]
        current = re.findall(r'aria-current="page">([^<]*)<', header)
        if page.address != "/inbox":  # it leads to the first text
            assert current == [page.name]
    assert "Inbox 1 Proof" in words_of(filled.get("/lessons").text)


def test_keys_and_the_audit_are_those_of_the_api(browser):
    api = browser.api
    key = api.key("recall")
    data = browser.data("/keys")
    assert data["keys"] == read_data(api.get("/v1/keys"))["items"]
    assert data["audit"] == read_data(api.get("/v1/audit"))["items"]
    page = browser.get("/keys").text
    assert key.rpartition("_")[2] not in page, "the secret"
    newest = data["keys"][0]["id"]
    form = page.partition(f'id="revoke-{newest}"')[2].partition("</form>")[0]
    assert 'type="checkbox" required' in form
    note = browser.do("revoke_key", id=newest)
    assert f"quarantine revoke key:{newest}" in note
    assert browser.data("/keys")["keys"][0]["revoked"]
    assert browser.data("/keys")["audit"][0]["action"] == "key.revoke"
    assert f'id="revoke-{newest}"' not in browser.get("/keys").text

    other = api.key("read", projects=("other",)).split("_")[1]
    refused = browser.post("/do/revoke_key", token=browser.token, id=other)
    assert refused.status_code == 404


# -- errors


@cases(
    ("path", "status", "words"),
    {
        "a run": ("/runs/nope", 404, "No run 'nope' Open Runs and traces"),
        "a trace": ("/traces/nope", 404, "No trace 'nope' Open Runs and traces"),
        "a loop": ("/loops/nope", 404, "No loop 'nope' Open Loops"),
        "a lesson": ("/lessons/99", 404, "Open Lessons"),
        "no number of a lesson": ("/lessons/abc", 404, ""),
        "a wrong filter": ("/loops?state=x", 422, "Open Loops"),
        "no page": ("/nothing", 404, ""),
        "a file of the code": ("/static/..%2fsite.py", 404, ""),
    },
)
def test_an_error_is_named_and_leads_on(browser, path: str, status: int, words: str):
    answer = browser.get(path)
    assert answer.status_code == status
    page = words_of(answer.text)
    for part in words.split(" Open "):
        assert part in page


def test_what_is_not_found_leads_to_a_similar_id(filled):
    page = filled.get("/loops/stopper").text
    assert 'href="/ui/loops/stopped?project=main"' in page
    assert "similar id" not in filled.get("/runs/stopper").text
    assert "similar id" not in filled.get("/loops/other").text
    assert json.loads(filled.get("/nothing.json").text)["code"] == "not_found"


async def fail(visit: Visit) -> Document:
    """Fail as a page with a defect does."""
    raise RuntimeError("a secret thing inside")


def test_a_page_with_a_defect_answers_with_a_page_and_an_id_of_the_log(
    browser: Browser, caplog: pytest.LogCaptureFixture
):
    app = browser.api.app
    broken = SitePage(
        address="/broken", template="home", title="Broken", make=fail, may=READING
    )
    site = Site(app, app.state.setup, app.state.admission, pages=(broken,), actions={})
    site.sessions = browser.site.sessions
    app.routes.insert(0, Route("/ui/broken{rest:path}", site))
    with caplog.at_level(logging.ERROR, logger="heedful.http"):
        answer = browser.get("/broken?project=main")
    assert answer.status_code == 500
    assert answer.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    request_id = answer.headers["x-request-id"]
    assert f"under this id: {request_id}" in words_of(answer.text)
    assert "a secret thing inside" not in answer.text
    assert f"id={request_id}" in caplog.text
    assert "RuntimeError: a secret thing inside" in caplog.text
    data = browser.get("/broken.json?project=main")
    assert data.status_code == 500
    assert data.json()["code"] == "internal_error"


# -- lessons and their proof


def test_an_operator_gives_a_lesson_new_words(filled):
    quarantined = "/lessons.json?state=quarantined"
    lesson = filled.get(quarantined).json()["lessons"][0]
    form = {"id": str(lesson["id"]), "why": "plainer", "edition": lesson["edition"]}
    note = filled.do("amend", form, change="edit", text="No\r\nscript.")
    assert "reworded" in note
    page = filled.data(f"/lessons/{lesson['id']}")
    # A tool's words are withheld.
    assert [was["text"] for was in page["versions"]] == [""]
    assert "read them as data" in filled.get(f"/lessons/{lesson['id']}").text
    (entry,) = filled.data("/inbox")["queue"]
    assert entry["words"] == "No\nscript."
    filled.do("release", id=str(entry["id"]), why="mine")
    form["edition"] = filled.data("/lessons")["lessons"][0]["edition"]
    long = {**form, "change": "edit", "text": 5_000 * "x", "token": filled.token}
    assert filled.post("/do/amend", long).status_code == 422
    filled.do("amend", form, change="retire")
    assert "Restore" in filled.get(f"/lessons/{lesson['id']}").text


@both_nightly
def test_each_source_of_a_text_is_previewed_and_revoked_alone(filled):
    api = filled.api
    (first,) = filled.data("/inbox")["queue"]
    digest = filled.data("/work")["agents"][0]["id"][:16]
    memory = Memory(api.setup.store, scope=SCOPE)
    names = ["tool:\u202efind", f"episode:{digest}"]
    for name in names:
        derived: Any = {"source": name, "derived_from": [first["id"]]}
        text = name[:4]
        work = memory.remember("E", text, lesson=text, origin="outside", **derived)
        api.run(work)
    queue = filled.data("/inbox")["queue"]
    assert len(queue) == 3
    page = filled.get(f"/inbox/{queue[1]['id']}").text
    linked = re.findall(r"revoke=([^\"#&]*)", page)
    assert {quote_plus(names[0]), quote_plus(ATTACK)} <= set(linked)
    assert "1 example" in filled.do("revoke", source=quote(names[0]), why="poison")
    (learnt,) = filled.data(f"/traces/{digest}")["learnt"]
    assert f"/traces/{digest}?" in filled.get(f"/lessons/{learnt['id']}").text
    assert first["id"] in [row["id"] for row in filled.data("/inbox")["queue"]]


def test_a_reflection_that_failed_is_asked_for_again(filled):
    digest = filled.data("/work")["agents"][0]["id"]
    failure = "ModelUnavailable: away"
    filled.api.run(filled.api.setup.store.write(SCOPE, record_failure, digest, failure))
    assert failure in filled.get("/home").text
    assert "reflects on it next" in filled.do("reflect_now", digest=digest)


@both_nightly
def test_the_page_of_the_proof_is_split_by_model_and_says_what_loops_cost(browser):
    assert "mean cost of a loop" not in browser.get("/proof").text
    models = ("small-1b", "<script>alert(1)</script>")
    more: Any = {"calls": 1, "climbed": False, "cost": 2.0}
    told = Outcome("a", True, model=models[0], **more)
    untold = Outcome("b", False, model=models[1], **more, signatures=frozenset())
    for outcome, is_shown in ((told, True), (untold, False)):
        browser.api.run(end_loop(browser.api.setup.store, outcome, is_shown))
    of_all = browser.get("/proof").text
    data = browser.data("/proof?model=small-1b")
    assert "model=small-1b" in of_all
    assert "<script>alert" not in of_all
    assert "Does memory help small-1b?" in browser.get("/proof?model=small-1b").text
    assert data["pooled"]["shown"] == 1
    assert set(data["models"]) == set(models)
    assert "mean cost of a loop $2.00 $2.00" in words_of(of_all)


@both_nightly
def test_the_page_of_the_proof_says_that_memory_steps_aside(browser):
    store = browser.api.setup.store
    for number in range(60):
        is_shown = number % 2 == 0
        outcome = Outcome(f"loop {number}", not is_shown, calls=1)
        browser.api.run(end_loop(store, outcome, is_shown))
    browser.api.run(Memory(store, SCOPE).look())
    page = words_of(browser.get("/proof").text)
    answer = read_data(browser.api.get("/v1/proof"))
    assert HARMFUL_MEMORY.words.capitalize() in page
    assert "right at the first try 0 % 100 % −100 points" in page
    assert answer["verdict"] == "hurts"
    assert answer["balance"]["net"]["gain"] == -30


def test_pages_that_are_seldom_needed(filled):
    policy = "default, fatigue.limit=0.9, echo.times=9, plateau.patience=9"
    record(filled.api, "ruled", wrong("1"), policy=policy)
    readings = filled.data("/loops/ruled")["readings"]
    near = {reading["rule"]: reading["of"] for reading in readings}
    assert {"fatigue": 0.9, "echo": 9, "plateau": 9}.items() <= near.items()
    change = "update loop set created = created - 40 * 86400 where id = 'a/b'"
    change_rows(filled.api.setup.store.url, change)
    assert filled.get("/home").status_code == 200
    assert filled.data("/lessons?text=severity")["lessons"]
    assert filled.get("/loops/?text=zzz").status_code == 200
    style = filled.get("/static/ui.css")
    assert style.headers["content-type"].startswith("text/css")
