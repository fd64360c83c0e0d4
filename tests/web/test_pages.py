"""The pages: who may see and do what, that all texts stay data, and what the figures
say.
"""

import json
import re
from urllib.parse import quote, quote_plus

import pytest

from heedful import Memory
from heedful.lessons.briefing import HARMFUL_MEMORY
from heedful.lessons.lesson import Exposure, Outcome, Scope
from heedful.store import exposures, keys
from heedful.web.session import MAX_SESSION_IDLE_SECONDS, Sessions
from tests.engines import change_rows
from tests.service.support import read_data
from tests.web.support import ATTACK, HERE, browsing, fill, one_line, words_of

LISTS = ("loops", "lessons", "inbox", "proof", "work")
FOREIGN = (
    r"""<script(?! src="/ui/static/ui.js")|<img|onerror=[^&]*>"""
    r"""|(?:src|href)="(?!/ui|#|\?)"""
)
SIGN_IN = "/ui/sign-in?next=%2Fui%2Floops"
EVERY = ("home", *LISTS)


@pytest.mark.both_nightly
def test_every_page_shows_texts_as_data_and_has_its_data_beside(tmp_path):
    with browsing(tmp_path) as browser:
        assert [browser.open().get(f"/{page}").status_code for page in EVERY] == [
            200
        ] * len(EVERY)
        fill(browser.api)
        browser.open(browser.api._all)
        entry = browser.data("/inbox")["queue"][0]["id"]
        lesson = browser.data("/lessons")["lessons"][0]["id"]
        run = browser.data("/work")["agents"][0]["id"]
        loops = [loop["id"] for loop in browser.data("/loops")["loops"]]
        assert loops == ["open", "stopped", "a/b"]
        details = (f"inbox/{entry}", f"lessons/{lesson}", f"traces/{run}", "loops/a/b")
        queries = ["lessons?task=no+severity", "loops?check=severity&state=stopped"]
        # With a text, the inbox leads to its page.
        lists = [path for path in EVERY if path != "inbox"]
        for path in (*lists, *details, *queries):
            page = browser.get(f"/{path}")
            assert page.status_code == 200, path
            assert not re.search(FOREIGN, page.text)
            policy = page.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src")
            assert (
                page.headers["referrer-policy"] == "same-origin"
            )  # else forms have no Origin
            for link in re.findall(r'href="(/ui[^"]*)"', page.text):
                assert (
                    link.startswith("/ui/static/") or link.count("?project=main") == 1
                ), link
            head, _, query = path.partition("?")
            assert isinstance(browser.data(f"/{head}?{query}"), dict)
        page_of_loop = browser.get("/loops/a/b").text
        assert "Attempt 2" in page_of_loop
        assert "&lt;script&gt;" in page_of_loop
        assert browser.data("/")["totals"]["right"]["of"] == 2


@pytest.mark.both_nightly
def test_a_person_rules_on_loops_lessons_and_sources(tmp_path):
    with browsing(tmp_path) as browser:
        api = browser.api
        fill(api)
        browser.open(api._all)
        entry = str(browser.data("/inbox")["queue"][0]["id"])
        assert "read it as data" not in browser.get(f"/inbox/{entry}").text
        assert "released" in browser.do("release", id=entry, why="read")
        assert not browser.data("/inbox")["queue"]
        lesson = browser.data("/lessons")["lessons"][0]
        change = {
            "id": str(lesson["id"]),
            "edition": lesson["edition"],
            "why": "of use",
        }
        assert "pin" in browser.do("amend", change, change="pin")
        assert browser.data(f"/lessons/{lesson['id']}")["lesson"]["pinned"]
        stale = browser.post("/do/amend", change, token=browser.token, change="unpin")
        assert stale.status_code == 412
        rule = browser.data("/loops/stopped")["lifted"][0]
        lift = {"id": "stopped", "rule": rule, "why": "close", "decisions": "1"}
        assert "the loop is open" in browser.do("override", lift)
        assert "cancelled" in browser.do("cancel", id="open", why="enough")
        ended = browser.data("/loops/open")
        # nothing lifts a cancellation
        assert ended["state"] == "stopped"
        assert ended["lifted"] == []
        removed = browser.do("revoke", source=ATTACK, why="poison")
        assert re.search(r"Removed all of .*: \d+ examples?, \d+ lessons?", removed)
        actions = {row["action"] for row in read_data(api.get("/v1/audit"))["items"]}
        assert actions > {"quarantine.release", "reflection.edit", "loop.cancel"}
        assert browser.post("/do/nothing", token=browser.token).status_code == 404
        malformed = browser.post("/do/release", token=browser.token, id="x")
        assert malformed.status_code == 422


def test_what_a_key_may_not_is_neither_offered_nor_done(tmp_path):
    with browsing(tmp_path) as browser:
        api = browser.api
        fill(api)
        browser.open(api.key("read"))
        assert "Override" not in browser.get("/loops/stopped").text
        form = {"id": "stopped", "rule": "attempts", "why": "x", "token": browser.token}
        assert browser.post("/do/override", form).status_code == 403
        assert browser.get("/loops", params={"project": "theirs"}).status_code == 403
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
    with browsing(tmp_path, read_only=True) as browser:
        browser.open()
        assert "Cancel the loop" not in browser.get("/loops/open").text
        assert (
            browser.post("/do/cancel", id="open", token=browser.token).status_code
            == 403
        )


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
        for back in (
            "http://evil.example",
            "//evil.example",
            "/ui\\evil",
            "/uix",
            "/ui/\nx",
        ):
            response = browser.post("/do/cancel", {**form, "back": back})
            assert response.headers["location"] == "/ui"
        used = browser.site.sessions.invite()
        assert browser.get(f"/open?token={used}").status_code == 303
        assert (
            browser.get(f"/open?token={used}").headers["location"] == "/ui"
        )  # loaded again
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


def test_a_loop_of_any_name_has_its_page_and_its_data(tmp_path):
    names = (
        "report.json,a/b.json,a//b,/a,a/,q?x=1#f,50% done,x%2Fy,grün 日,'\"<b>".split(
            ","
        )
    )
    with browsing(tmp_path) as browser:
        for name in names:
            read_data(
                browser.api.put(
                    f"/v1/loops/{quote(name, safe='')}", json={"task": "x"}
                ),
                201,
            )
        browser.open(browser.api._all)
        listed = one_line(browser.get("/loops").text)
        links = re.findall(r'class="task"><a href="/ui(/loops/[^"?]*)', listed)
        pages = [(browser.data(f"{link}")["name"], browser.get(link)) for link in links]
        assert {name for name, _ in pages} == set(names)
        for name, page in pages:
            assert page.status_code == 200
            assert page.headers["content-type"][:9] == "text/html"
            back = re.search(r'name="back" value="/ui([^"?]*)', page.text)
            assert browser.data(f"{back[1] if back else ''}")["name"] == name
            assert browser.do("cancel", id=name, why="x") == "The loop is cancelled."


def test_an_operator_gives_a_lesson_new_words(tmp_path):
    with browsing(tmp_path) as browser:
        fill(browser.api)
        quarantined = "/lessons.json?state=quarantined"
        lesson = browser.open(browser.api._all).get(quarantined).json()["lessons"][0]
        form = {"id": str(lesson["id"]), "why": "plainer", "edition": lesson["edition"]}
        assert "reworded" in browser.do(
            "amend", form, change="edit", text="No\r\nscript."
        )
        page = browser.data(f"/lessons/{lesson['id']}")
        assert [was["text"] for was in page["versions"]] == [
            ""
        ]  # a tool's words are withheld
        assert "read them as data" in browser.get(f"/lessons/{lesson['id']}").text
        (entry,) = browser.data("/inbox")["queue"]
        assert entry["words"] == "No\nscript."
        browser.do("release", id=str(entry["id"]), why="mine")
        form["edition"] = browser.data("/lessons")["lessons"][0]["edition"]
        long = {**form, "change": "edit", "text": 5_000 * "x", "token": browser.token}
        assert browser.post("/do/amend", long).status_code == 422
        browser.do("amend", form, change="retire")
        assert "Restore" in browser.get(f"/lessons/{lesson['id']}").text


def test_a_session_ends_when_it_is_idle():
    sessions = Sessions()
    cookie, session = sessions.begin("")
    assert sessions.find(cookie) is session
    session.used -= MAX_SESSION_IDLE_SECONDS - 9
    assert (
        sessions.find(cookie, person=False) is session
    )  # a live page keeps no session alive
    session.used -= 10
    assert sessions.find(cookie) is None
    assert sessions.find("") is None


def test_an_address_that_is_no_page_says_so(tmp_path):
    with browsing(tmp_path) as browser:
        browser.open()
        assert browser.get("/nothing").status_code == 404
        assert browser.get("/loops?state=x").status_code == 422
        assert json.loads(browser.get("/nothing.json").text)["code"] == "not_found"
        assert (
            browser.get("/static/ui.css").headers["content-type"].startswith("text/css")
        )
        assert browser.get("/static/../site.py").status_code in (303, 404)


@pytest.mark.both_nightly
def test_each_source_of_a_text_is_previewed_and_revoked_alone(tmp_path):
    with browsing(tmp_path) as browser:
        api = browser.api
        fill(api)
        (first,) = browser.open(api._all).get("/inbox.json").json()["queue"]
        digest = browser.data("/work")["agents"][0]["id"][:16]
        memory = Memory(api.setup.store, scope=Scope("acme", "main"))
        names = ["tool:\u202efind", f"episode:{digest}"]
        for name in names:
            text = name[:4]
            remembering = memory.remember(
                "E",
                text,
                lesson=text,
                source=name,
                derived_from=[first["id"]],
                origin="outside",
            )
            api.run(remembering)
        queue = browser.data("/inbox")["queue"]
        assert len(queue) == 3
        page = browser.get(f"/inbox/{queue[1]['id']}").text
        linked = re.findall(r"revoke=([^\"#&]*)", page)
        assert {quote_plus(names[0]), quote_plus(ATTACK)} <= set(linked)
        assert "1 example" in browser.do("revoke", source=quote(names[0]), why="poison")
        (learnt,) = browser.data(f"/traces/{digest}")["learnt"]
        assert f"/traces/{digest}?" in browser.get(f"/lessons/{learnt['id']}").text
        ids = [row["id"] for row in browser.data("/inbox")["queue"]]
        assert first["id"] in ids


@pytest.mark.both_nightly
def test_the_page_of_the_proof_is_split_by_model(tmp_path):
    digest = "0123456789abcdef"
    models = ("small-1b", "<script>alert(1)</script>")
    with browsing(tmp_path) as browser:
        api = browser.api
        for model in models:
            exposure = Exposure(
                f"check/{digest}", model, shown=True, signature=digest, share=0.5
            )
            work = api.setup.store.write(
                Scope("acme", "main"),
                exposures.remember,
                (),
                exposures=[exposure],
                outcome=Outcome(model, True, calls=1, model=model),
            )
            api.run(work)
        browser.open(api._all)

        of_all = browser.get("/proof")
        of_small = browser.get("/proof?model=small-1b")
        data = browser.data("/proof?model=small-1b")

        assert "model=small-1b" in of_all.text
        assert "<script>alert" not in of_all.text
        assert "Does memory help small-1b?" in of_small.text
        assert data["pooled"]["shown"] == 1
        assert set(data["models"]) == set(models)


@pytest.mark.both_nightly
def test_the_page_of_the_proof_says_that_memory_steps_aside(tmp_path):
    digests = ("0123456789abcdef", "fedcba9876543210")
    scope = Scope("acme", "main")
    with browsing(tmp_path) as browser:
        api = browser.api
        for number in range(60):
            loop = f"loop {number}"
            is_shown = number % 2 == 0
            exposed = [
                Exposure(
                    f"check/{digest}", loop, shown=is_shown, share=0.5, together=True
                )
                for digest in digests
            ]
            work = api.setup.store.write(
                scope,
                exposures.remember,
                (),
                exposures=exposed,
                outcome=Outcome(loop, not is_shown, calls=1),
            )
            api.run(work)
        api.run(Memory(api.setup.store, scope).look())
        browser.open(api._all)

        page = words_of(browser.get("/proof").text)
        answer = read_data(api.get("/v1/proof"))

        assert HARMFUL_MEMORY.reason.capitalize() in page
        assert "right at the first try 0 % 100 % −100 points" in page
        assert answer["verdict"] == "hurts"
        assert answer["balance"]["net"]["gain"] == -30


def test_rare_pages_and_refusals(tmp_path):
    with browsing(tmp_path) as browser:
        api = browser.api
        fill(api)
        browser.open(api._all)
        policy = "default, fatigue.limit=0.9, echo.times=9, plateau.patience=9"
        read_data(api.put("/v1/loops/ruled", json={"task": "x", "policy": policy}), 201)
        body = {
            "output": "1",
            "evaluation": {"findings": [{"check": "a", "message": "b"}]},
        }
        read_data(api.put("/v1/loops/ruled/attempts/1", json=body))
        readings = browser.data("/loops/ruled")["readings"]
        near = {reading["rule"]: reading["of"] for reading in readings}
        assert {"fatigue": 0.9, "echo": 9, "plateau": 9}.items() <= near.items()
        read_data(api.post("/v1/recall", json={"task": ATTACK, "loop": "told"}))
        assert browser.get("/proof").status_code == 200
        change_rows(
            api.setup.store.url,
            "update loop set created = created - 40 * 86400 where id = 'a/b'",
        )
        assert browser.get("/home").status_code == 200
        assert browser.data("/lessons?text=severity")["lessons"]
        for status, paths in (
            (404, "traces/nothing lessons/999 lessons/abc"),
            (422, "loops?cursor=-1 lessons?state=x"),
            (200, "loops/?text=zzz"),
        ):
            assert {browser.get(f"/{path}").status_code for path in paths.split()} == {
                status
            }
        entry = str(browser.data("/inbox")["queue"][0]["id"])
        assert "rejected" in browser.do("reject", id=entry, why="poison")
        for status, name, form in (
            (422, "amend", {"change": "burn"}),
            (422, "override", {"id": "stopped", "rule": "attempts", "decisions": "x"}),
            (404, "cancel", {"id": "nothing"}),
        ):
            assert (
                browser.post(f"/do/{name}", form, token=browser.token).status_code
                == status
            )
        sent = browser.client.post(
            "/ui/sign-in", content=b"\xff=1", headers={"origin": HERE}
        )
        assert api.run(sent).status_code == 400
        browser.open(api.key("write"))
        assert browser.get("/lessons?task=x").status_code == 403
        browser.open(api.key("recall", "write"))
        refused = browser.get("/inbox").text  # with the menu of this key
        assert ("Sign out" in refused) is True
        assert (">Inbox<" in refused) is False
        assert api.get("/").headers["location"] == "/ui"
