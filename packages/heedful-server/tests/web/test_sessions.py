"""Who is let in to the pages, how often, from where, and until when."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx

from heedful.lessons.lesson import Scope
from heedful.store import keys
from heedful_server.setup import RequestLimits
from heedful_server.web import site
from heedful_server.web.session import (
    MAX_KEY_SESSIONS,
    MAX_SESSION_IDLE_SECONDS,
    Session,
    Sessions,
)
from tests.engines import change_rows, opened
from tests.service.running import WAITING
from tests.service.support import problem
from tests.tables import cases
from tests.web.support import HERE, Browser, browsing, fill

CODE = "misdirected_request"
FORM_TYPE = {"content-type": "application/x-www-form-urlencoded"}


def sign_in(browser: Browser, key: str, **headers: str) -> httpx.Response:
    """Send the form of the sign-in page, without cookies."""
    sent = {"origin": HERE, "host": "localhost", **headers}
    request = httpx.AsyncClient(
        transport=httpx.ASGITransport(app=browser.api.app), base_url=HERE
    ).post("/ui/sign-in", data={"key": key}, headers=sent)
    return browser.api.run(request)


class Stream(NamedTuple):
    """The stream of a live page: its whole answer, and its parts that nobody took."""

    answer: asyncio.Task[httpx.Response]
    parts: asyncio.Queue[bytes]

    async def wait_for_part(self) -> None:
        await asyncio.wait_for(self.parts.get(), WAITING)

    async def read(self) -> str:
        """Return all that the stream said, when it has ended."""
        return (await asyncio.wait_for(self.answer, WAITING)).text


async def begin_stream(browser: Browser) -> Stream:
    """Return the stream of a live page when its first part has arrived.

    Then it waits until it looks for changes again.
    """
    parts = asyncio.Queue[bytes]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        """Answer as the service does; keep the parts of the body."""

        async def send_part(message: Any) -> None:
            await send(message)
            if message.get("body"):
                parts.put_nowait(message["body"])

        await browser.api.app(scope, receive, send_part)

    cookies = browser.client.cookies
    transport = httpx.ASGITransport(app=app)
    client = httpx.AsyncClient(transport=transport, base_url=HERE, cookies=cookies)
    asking = asyncio.create_task(client.get("/ui/events?project=main"))
    stream = Stream(asking, parts)
    await stream.wait_for_part()
    return stream


def remove_keys(browser: Browser) -> None:
    """Make the service one that nobody has made a key for."""
    change_rows(browser.api.setup.store.url, "delete from key")


@cases(
    "header",
    {
        "X-Forwarded-For": {"X-Forwarded-For": "192.0.2.7"},
        "Forwarded": {"Forwarded": "for=192.0.2.7"},
        "Via": {"Via": "1.1 proxy"},
        "X-Real-IP": {"X-Real-IP": "192.0.2.7"},
        "X-Forwarded-Host": {"X-Forwarded-Host": "heedful.test"},
        "X-Forwarded-Proto": {"X-Forwarded-Proto": "https"},
        "Host": {"host": "heedful.test"},
    },
)
def test_without_a_key_nobody_comes_through_a_proxy(tmp_path, header):
    with browsing(tmp_path, open=True) as browser:
        remove_keys(browser)
        api = browser.api
        host = header.get("host", "localhost")
        same_origin = {"host": "localhost", "origin": f"http://{host}"}
        if "X-Forwarded-Proto" in header:
            same_origin["origin"] = "https://localhost"

        problem(api.get("/v1/loops", key="", headers=header), 421, CODE)
        signing_in = sign_in(browser, "", **(same_origin | header))
        assert signing_in.status_code == 421
        assert "set-cookie" not in signing_in.headers

        token = browser.site.sessions.invite()
        assert browser.get(f"/open?token={token}", headers=header).status_code == 421
        # The token is not used up.
        assert browser.get(f"/open?token={token}").status_code == 303
        assert browser.get("/loops").status_code == 200
        for path in ("/loops?project=main", "/loops.json", "/events?project=main"):
            assert browser.get(path, headers=header).status_code == 421, path
        form = {"token": browser.token, "id": "x", "why": "x"}
        acting = browser.client.post(
            "/ui/do/cancel", data=form, headers=same_origin | header
        )
        assert api.run(acting).status_code == 421


def test_the_first_key_ends_the_sessions_of_who_signed_in_without_one(tmp_path):
    with browsing(tmp_path, open=True) as browser:
        api = browser.api
        remove_keys(browser)
        invited = Browser(api)
        invited.site = browser.site
        invited.open()
        assert browser.post("/sign-in", key="").status_code == 303
        assert browser.get("/loops.json").status_code == 200

        async def read_stream() -> str:
            """Return what a live page's stream says that ends by itself."""
            stream = await begin_stream(browser)
            await keys.create(api.setup.store, "acme", "tests", may=["read"])
            return await stream.read()

        assert "event: ended" in api.run(read_stream())
        # A page that was away meanwhile hears it when it asks again.
        assert browser.get("/events?project=main").text == site.ENDED_EVENT
        problem(api.get("/v1/loops", key=""), 401, "key_refused")
        for address in ("/loops", "/inbox"):
            answer = browser.get(address)
            assert answer.status_code == 303
            assert answer.headers["location"].startswith("/ui/sign-in")
            assert browser.get(f"{address}.json").status_code == 401
        form = {"token": browser.token, "id": "x", "why": "x"}
        assert browser.post("/do/cancel", form).status_code == 401
        # Only the person whom `heedful ui` invited stays signed in.
        assert invited.get("/loops.json").status_code == 200


def test_a_used_address_of_heedful_ui_brings_one_fresh_one(tmp_path):
    with browsing(tmp_path) as browser:
        printed = list[str]()
        browser.site.invites = printed.append
        token = browser.site.sessions.invite()
        assert 'type="password"' in browser.get("/sign-in").text
        remove_keys(browser)
        page = browser.get("/sign-in").text
        assert 'type="password"' not in page
        assert page.count("<li>") == 3
        assert "a fresh one appears in the terminal" in page
        file = browser.api.setup.store.url
        assert f'data-copy="heedful ui --db {file}"' in page

        assert browser.get(f"/open?token={token}").status_code == 303
        assert printed == []
        browser.client.cookies.clear()
        for _ in range(3):
            assert browser.get(f"/open?token={token}").status_code == 401
        (fresh,) = printed
        assert browser.get(f"/open?token={fresh}").status_code == 303


def test_a_service_that_stops_ends_the_streams_of_live_pages(browser):
    async def read_stream() -> str:
        """Return what a live page's stream says until the service stops."""
        stream = await begin_stream(browser)
        browser.site.end_streams()
        return await stream.read()

    assert browser.api.run(read_stream()) == "retry: 1000\n\n"


def test_heedful_ui_opens_on_this_machine(tmp_path):
    file = str(tmp_path / "heedful.db")
    with opened(file) as store:
        assert not asyncio.run(store.read(Scope(), keys.any_key))
    command = [sys.executable, "-m", "heedful.cli", "ui", "--no-browser", "--port", "0"]
    env = {**os.environ, "HEEDFUL_DB": file}
    with subprocess.Popen(
        command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        with httpx.Client(follow_redirects=True, trust_env=False) as client:
            assert client.head(url).status_code == 200  # a program looks at the link
            page = client.get(url)
            strange = client.get(url, headers={"X-Forwarded-For": "192.0.2.7"})
        process.terminate()
        process.wait(WAITING)
    assert page.status_code == 200
    assert "No loop was recorded" in page.text
    assert strange.status_code == 421


STRICT = RequestLimits(rate=0.001, burst=4)


def test_a_page_its_data_and_its_forms_count_as_one_request_each(tmp_path):
    with browsing(tmp_path, limits=STRICT) as browser:
        api = browser.api
        key = api.key("read", "write")
        browser.open(key)
        # Home asks three routes of the API.
        assert browser.get("/home?project=main").status_code == 200
        assert browser.get("/home.json").status_code == 200
        assert browser.get("/lessons?project=main").status_code == 200
        refused = browser.get("/home?project=main")
        assert refused.status_code == 429
        # So does the redirect to the address with its project.
        redirect = browser.client.get("/ui/home")
        assert api.run(redirect).status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        assert browser.get("/home.json").status_code == 429
        assert browser.get("/nothing.json").status_code == 429
        assert browser.post("/do/cancel", id="x").status_code == 429
        assert browser.get("/events?project=main").status_code == 429
        assert browser.post("/sign-in", key=key).status_code == 429
        problem(api.get("/v1/loops", key=key), 429, "too_many_requests")
        # Another key has a rate of its own.
        browser.open(api.key("read"))
        assert browser.get("/home").status_code == 200


async def slow_form(
    gate: asyncio.Event, came: asyncio.Semaphore
) -> AsyncIterator[bytes]:
    """Send the beginning of a form, and its end when the gate opens."""
    yield b"key=heed"
    came.release()
    await gate.wait()
    yield b"ful"


def test_slow_sign_ins_are_cut(tmp_path):
    with browsing(tmp_path, limits=RequestLimits(answer=1.0)) as browser:
        visitor = Browser(browser.api)
        visitor.site = browser.site
        visitor.open(browser.api._all)

        async def scenario() -> tuple[int, list[httpx.Response]]:
            came = asyncio.Semaphore(0)
            never = asyncio.Event()
            sending = [
                asyncio.create_task(
                    browser.client.post(
                        "/ui/sign-in",
                        content=slow_form(never, came),
                        headers={**FORM_TYPE, "origin": HERE},
                    )
                )
                for _ in range(5)
            ]
            for _ in sending:
                await came.acquire()
            page = await visitor.client.get("/ui/loops.json")
            return page.status_code, await asyncio.gather(*sending)

        page, answers = browser.api.run(scenario())
    assert page == 200
    assert {answer.status_code for answer in answers} == {504}


def visit_as(browser: Browser, tenant: str) -> Browser:
    """Return another browser at the same pages, signed in with a key of a tenant."""
    visitor = Browser(browser.api)
    visitor.site = browser.site
    return visitor.open(browser.api.key("read", tenant=tenant))


@cases(
    ("limit", "other_tenant"),
    {
        "of a tenant": ("MAX_TENANT_STREAMS", "acme"),
        "of all tenants": ("MAX_STREAMS", "other"),
    },
)
def test_no_more_pages_are_kept_up_to_date_than_the_limit(
    tmp_path, monkeypatch, limit, other_tenant
):
    monkeypatch.setattr(site, limit, 1)
    with browsing(tmp_path) as browser:
        first = visit_as(browser, "acme")
        second = visit_as(browser, other_tenant)

        async def ask_beside_another() -> str:
            """Return the stream of a page that opens beside another."""
            stream = await begin_stream(first)
            answer = await second.client.get("/ui/events?project=main")
            browser.site.end_streams()
            await stream.read()
            return answer.text

        assert browser.api.run(ask_beside_another()) == site.ASK_LATER_EVENT


def test_the_pages_of_a_tenant_take_no_stream_of_another(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "MAX_TENANT_STREAMS", 1)
    with browsing(tmp_path) as browser:
        first = visit_as(browser, "acme")
        second = visit_as(browser, "other")

        async def read_both() -> list[str]:
            """Return what two streams say that are open at the same time."""
            streams = [await begin_stream(first), await begin_stream(second)]
            browser.site.end_streams()
            return [await stream.read() for stream in streams]

        assert browser.api.run(read_both()) == ["retry: 1000\n\n"] * 2


def test_a_page_that_is_closed_leaves_its_stream_to_another(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "MAX_TENANT_STREAMS", 1)
    with browsing(tmp_path) as browser:
        visitor = visit_as(browser, "acme")

        async def close_and_open() -> str:
            """Return what a stream says that begins after another was closed."""
            first = await begin_stream(visitor)
            first.answer.cancel()
            await asyncio.gather(first.answer, return_exceptions=True)
            second = await begin_stream(visitor)
            browser.site.end_streams()
            return await second.read()

        assert browser.api.run(close_and_open()) == "retry: 1000\n\n"


def test_ten_thousand_sign_ins_end_no_session_of_another_key():
    sessions = Sessions()
    session = Session(authorization="Bearer mine", key="mine")
    mine = sessions.begin(session)
    person = sessions.begin(Session(authorization=""))
    for _ in range(10_050):
        sessions.begin(Session(authorization="Bearer theirs", key="theirs"))
    assert sessions.find(mine) is session
    assert sessions.find(person) is not None
    assert len(sessions._sessions) == MAX_KEY_SESSIONS + 2


def test_the_session_that_was_not_used_for_the_longest_time_ends():
    sessions = Sessions()
    cookies = [
        sessions.begin(Session(authorization="", key="a"))
        for _ in range(MAX_KEY_SESSIONS)
    ]
    sessions.find(cookies[0])
    sessions.find(cookies[1], person=False)
    sessions.begin(Session(authorization="", key="a"))
    assert sessions.find(cookies[0]) is not None
    assert sessions.find(cookies[1]) is None
    assert sessions.find(cookies[2]) is not None


def test_sessions_that_nobody_uses_leave_nothing_behind():
    sessions = Sessions()
    for number in range(5):
        session = Session(authorization="Bearer secret", key=f"key {number}")
        sessions.begin(session)
        session.used -= MAX_SESSION_IDLE_SECONDS + 1
    cookie = sessions.begin(Session(authorization="", key="new"))
    assert len(sessions._sessions) == 1
    sessions.end(cookie)
    sessions.end(cookie)
    assert not sessions._sessions


def test_signing_in_again_ends_the_session_of_this_browser(tmp_path):
    with browsing(tmp_path) as browser:
        browser.open(browser.api._all)
        old = dict(browser.client.cookies)
        browser.open(browser.api.key("read"))
        assert browser.get("/loops.json").status_code == 200
        browser.client.cookies.clear()
        browser.client.cookies.update(old)
        assert browser.get("/loops.json").status_code == 401


def test_a_note_is_shown_to_its_own_session_once(tmp_path):
    with browsing(tmp_path) as browser:
        api = browser.api
        fill(api)
        other = Browser(api)
        other.site = browser.site
        other.open(api._all)
        browser.open(api._all)
        form = {"token": browser.token, "id": "open", "why": "x", "back": "/ui/loops"}
        assert browser.post("/do/cancel", form).status_code == 303

        note = "The loop is cancelled."
        assert note not in other.get("/loops").text
        live = {"heedful-live": "1"}
        assert note not in browser.get("/loops?project=main", headers=live).text
        api.run(browser.client.head("/ui/loops?project=main"))
        assert note in browser.get("/loops").text
        assert note not in browser.get("/loops").text

        # What the old session was told is not told to the next one of this browser.
        assert "cancelled" in browser.get("/loops/open").text
        form["token"] = browser.token
        assert browser.post("/do/cancel", form).status_code == 303
        browser.open(api.key("read"))
        assert note not in browser.get("/loops").text


def test_head_changes_nothing(tmp_path):
    with browsing(tmp_path) as browser:
        api = browser.api
        token = browser.site.sessions.invite()
        looked = api.run(browser.client.head(f"/ui/open?token={token}"))
        assert looked.status_code == 200
        assert "set-cookie" not in looked.headers
        assert browser.get(f"/open?token={token}").status_code == 303

        (session,) = browser.site.sessions._sessions.values()
        session.used -= 100
        used = session.used
        for path in ("/loops?project=main", "/loops.json", "/events?project=main"):
            assert api.run(browser.client.head(f"/ui{path}")).status_code == 200
        assert session.used == used
        assert (
            api.run(browser.client.head("/ui/sign-out?project=main")).status_code == 403
        )
        assert browser.get("/loops").status_code == 200


PROXY_HOST = "heedful.test"
HTTPS_ORIGIN = f"https://{PROXY_HOST}"
HTTP_ORIGIN = f"http://{PROXY_HOST}"
SAYS_HTTPS = {"x-forwarded-proto": "https"}


@cases(
    ("headers", "status", "secure"),
    {
        "a silent TLS proxy": ({"origin": HTTPS_ORIGIN}, 303, True),
        "a TLS proxy": ({"origin": HTTPS_ORIGIN, **SAYS_HTTPS}, 303, True),
        "a page over http, the proxy over https": (
            {"origin": HTTP_ORIGIN, **SAYS_HTTPS},
            403,
            False,
        ),
        "no TLS": ({"origin": HTTP_ORIGIN}, 303, False),
    },
)
def test_behind_a_tls_proxy_the_cookie_is_for_https_alone(
    tmp_path, headers, status, secure
):
    with browsing(tmp_path) as browser:
        answer = sign_in(browser, browser.api._all, host=PROXY_HOST, **headers)
        assert answer.status_code == status
        assert ("Secure" in answer.headers.get("set-cookie", "")) is secure


@cases(
    ("begun", "sent", "status"),
    {
        "https, as the session": (HTTPS_ORIGIN, HTTPS_ORIGIN, 303),
        "http to a session of https": (HTTPS_ORIGIN, HTTP_ORIGIN, 403),
        "http, as the session": (HTTP_ORIGIN, HTTP_ORIGIN, 303),
        "https to a session of http": (HTTP_ORIGIN, HTTPS_ORIGIN, 403),
    },
)
def test_a_form_has_the_scheme_of_its_session(tmp_path, begun, sent, status):
    with browsing(tmp_path) as browser:
        entered = sign_in(browser, browser.api._all, host=PROXY_HOST, origin=begun)
        cookie = entered.headers["set-cookie"].partition(";")[0]
        headers = {"host": PROXY_HOST, "cookie": cookie, "origin": sent}
        (session,) = browser.site.sessions._sessions.values()
        leaving = browser.client.post(
            "/ui/sign-out", data={"token": session.token}, headers=headers
        )
        assert browser.api.run(leaving).status_code == status


def test_a_page_hears_of_changes(tmp_path):
    with browsing(tmp_path) as browser:
        browser.open()

        form = {"token": browser.token}

        async def listen() -> str:
            """Return what a live page hears until its session ends."""
            stream = await begin_stream(browser)
            response = await browser.api.ask("PUT", "/v1/loops/new", json={"task": "x"})
            assert response.status_code == 201
            await stream.wait_for_part()
            headers = {"origin": HERE}
            await browser.client.post("/ui/sign-out", data=form, headers=headers)
            return await stream.read()

        assert "event: changed\ndata: {}\n\n" in browser.api.run(listen())

        # How long the stream was open is not the time of a request.
        counts = browser.api.get("/metrics").text.splitlines()
        pages = 'method="GET",route="/ui"'
        answered = sum(
            float(line.split()[-1])
            for line in counts
            if line.startswith("heedful_requests_total{" + pages)
        )
        assert f"heedful_request_seconds_count{{{pages}}} {answered - 1}" in counts


def test_a_stream_ends_when_its_key_is_revoked(tmp_path):
    with browsing(tmp_path) as browser:
        api = browser.api
        key = api.key("read")
        browser.open(key)

        async def listen() -> str:
            """Revoke the key while a page listens; return all that it hears."""
            stream = await begin_stream(browser)
            scope = Scope("acme")
            await api.setup.store.write(scope, keys.revoke, keys.id_of(key), "ops")
            browser.site._callers._cached.clear()  # a key is known for a second
            await api.ask("PUT", "/v1/loops/new", json={"task": "x"})
            return await stream.read()

        assert api.run(listen()) == f"retry: 1000\n\n{site.ENDED_EVENT}"
