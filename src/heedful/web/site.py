"""Serve the pages: sign in, find the page of an address, and carry out what a form asks
for.

A page asks the routes of the service as the caller who signed in. So rights, tenants,
limits and the audit are those of the API. Each page is HTML, and at the same address
with `.json` its data.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from hmac import compare_digest
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import (
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.types import ASGIApp, Receive, Scope, Send

from heedful.errors import HeedfulError, InvalidInput, KeyRefused, NotFound, StoreError
from heedful.integrations.mcp import ask
from heedful.pages.report import STYLE_FILE
from heedful.service import problems
from heedful.service.auth import Caller, Callers, local
from heedful.service.middleware import LOOPBACK_HOSTS
from heedful.service.problems import Problem
from heedful.service.setup import Setup
from heedful.store.store import Effects
from heedful.web.render import address, page_text

SITE_PATH = "/ui"
COOKIE_NAME = "heedful_ui"
MAX_IDLE_SECONDS = 1_800.0  # seconds without a request until a session ends
MAX_SESSIONS = 10_000  # at a time; the least recently used ends
MAX_FORM_BYTES = 64 * 1024  # bytes of a form
STREAM_POLL_SECONDS = 0.3  # seconds between two looks for what changed
MAX_STREAM_SECONDS = (
    120.0  # seconds of a stream of changes; the browser then asks again
)
MAX_STREAMS = 64  # at a time
# A page runs only the script and the style of this site, and sends forms only to it.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Frame-Options": "DENY",
    # without a referrer, browsers send forms with Origin: null
    "Referrer-Policy": "same-origin",
}
FILE_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
Document = dict[str, Any]


@dataclass(kw_only=True)
class Session:
    """Somebody who signed in: the header of the key, "" for this machine, and the CSRF
    token.
    """

    authorization: str
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    used: float = field(default_factory=time.monotonic)
    note: str = ""  # what the last form did, shown once


class Sessions:
    """The sessions of this process, by the digest of their cookie, and the one-time
    tokens.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[bytes, Session] = OrderedDict()
        self._once: set[bytes] = set()
        self.local: bool = False  # it has invited the person at this machine

    def begin(self, authorization: str) -> tuple[str, Session]:
        """Return the cookie and the record of a new session."""
        cookie = secrets.token_urlsafe(32)
        session = Session(authorization=authorization)
        self._held[_digest(cookie)] = session
        if len(self._held) > MAX_SESSIONS:
            self._held.popitem(last=False)
        return cookie, session

    def find(self, cookie: str, person: bool = True) -> Session | None:
        """Return the session of a cookie, unless it ended or was idle too long.

        What a live page asks for by itself, without a `person`, does not keep a session
        alive.
        """
        now = time.monotonic()
        held = self._held.pop(_digest(cookie), None)
        if held is None or now > held.used + MAX_IDLE_SECONDS:
            return None
        held.used = now if person else held.used
        self._held[_digest(cookie)] = held
        return held

    def end(self, cookie: str) -> None:
        """End the session of a cookie."""
        self._held.pop(_digest(cookie), None)

    def invite(self) -> str:
        """Return a token that opens one session of this machine, once."""
        token = secrets.token_urlsafe(32)
        self._once.add(_digest(token))
        self.local = True
        return token

    def redeem(self, token: str) -> bool:
        """Return whether a token is valid, and forget it."""
        known = _digest(token) in self._once
        self._once.discard(_digest(token))
        return known


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


@dataclass(kw_only=True)
class Visit:
    """One request of somebody who signed in, and the routes of the service that it may
    ask.
    """

    app: ASGIApp
    caller: Caller
    session: Session
    path: str
    query: Mapping[str, str]
    form: Mapping[str, str] = field(default_factory=dict)
    read_only: bool = False

    async def ask(
        self, method: str, path: str, body: Any = None, **options: Any
    ) -> Any:
        """Return the answer of a route of the API in the visitor's project. Raises
        Problem.
        """
        asked = {
            k: v for k, v in options.pop("query", {}).items() if v not in ("", None)
        }
        query = urlencode({"project": self.caller.scope.project, **asked})
        status, answer = await ask(
            self.app,
            caller=self.caller,
            method=method,
            path=path,
            body=body,
            query=query,
            **options,
        )
        if status >= 400:
            detail = answer.get("detail", "the service refused this")
            raise Problem(
                status=status, code=answer.get("code", "refused"), detail=detail
            )
        return answer

    async def get(self, path: str, **query: Any) -> Any:
        """Return what a route of the API answers. Raises Problem."""
        return await self.ask("GET", path, query=query)

    def may(self, *names: str) -> bool:
        """Return whether the key of the visitor has one of these permissions."""
        changes = {"write", "approve", "admin"} & set(names)
        return bool(set(names) & set(self.caller.key.may)) and not (
            self.read_only and changes
        )

    def link(self, path: str, /, **query: Any) -> str:
        """Return the address of a page in this project, which whoever gets the link
        sees, too.
        """
        return address(path, **{"project": self.caller.scope.project, **query})

    def needs(self, *names: str) -> None:
        """Raise Problem if the key of the visitor has none of these permissions."""
        if not self.may(*names):
            raise Problem(
                status=403,
                code="forbidden",
                detail=f"the key may not see this: it needs {' or '.join(names)}",
            )

    @cached_property
    def page(self) -> str:
        """The address of this page."""
        return self.link(self.path, **self.query)

    @cached_property
    def newest(self) -> str:
        """The address of the beginning of the list on this page."""
        return self.link(
            self.path, **{k: v for k, v in self.query.items() if k != "cursor"}
        )

    @cached_property
    def data(self) -> str:
        """The address of the data of this page."""
        path, _, query = self.page.partition("?")
        return f"{path}.json?{query}"

    def number(
        self, name: str, default: int = 0, most: int = 10**15, least: int = 0
    ) -> int:
        """Return a whole number of the form, or else of the address. Raises
        InvalidInput.
        """
        value = (self.form or self.query).get(name) or str(default)
        if not (re.fullmatch("[0-9]{1,16}", value) and least <= int(value) <= most):
            raise InvalidInput(
                name, value, f"a whole number from {least:,} to {most:,}"
            )
        return int(value)


class SitePage(NamedTuple):
    """A page: its address with `{id}`, its template, its title and what makes its
    data.
    """

    pattern: re.Pattern[str]
    template: str
    title: str
    make: Callable[..., Awaitable[Document]]


SITE_PAGES: list[SitePage] = []
SITE_ACTIONS: dict[str, tuple[tuple[str, ...], Callable[[Visit], Awaitable[str]]]] = {}


def page(address: str, template: str, title: str) -> Callable[[Any], Any]:
    """Decorate a function that makes the data of a page.

    `{id}` in the address is an argument of any text, `{n}` of digits.
    """
    kinds = {"n": "[0-9]{1,15}"}
    parts = (
        rf"(?P<{one[1:-1]}>{kinds.get(one[1:-1], '.+')})" if one[:1] == "{" else one
        for one in re.split(r"(\{\w+\})", address)
    )
    pattern = re.compile("".join(parts))

    def decorate(make: Any) -> Any:
        SITE_PAGES.append(
            SitePage(
                pattern=pattern,
                template=f"ui/{template}.html.j2",
                title=title,
                make=make,
            )
        )
        return make

    return decorate


def action(*may: str) -> Callable[[Any], Any]:
    """Decorate a function that does what a form asks for, and says what it did.

    The key of the visitor needs one of the permissions `may`.
    """

    def decorate(do: Any) -> Any:
        SITE_ACTIONS[do.__name__] = may, do
        return do

    return decorate


class Site:
    """The route `/ui` and below, as an ASGI application.

    With `read_only`, no form changes anything.
    """

    path: str = SITE_PATH  # for the log and the metrics of the service

    def __init__(self, app: ASGIApp, setup: Setup, read_only: bool = False) -> None:
        self._app = app
        self._setup = setup
        self._read_only = read_only
        self._callers = Callers(setup)
        self._streams = 0
        self.sessions: Sessions = Sessions()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        scope["route"] = self
        request = Request(scope, receive)
        try:
            answer = await self._answer(request)
        except (HeedfulError, Problem) as error:
            problems.answer(error, scope)  # logs what is the service's own
            problem = problems.of(error)
            if self.sessions.local and isinstance(error, StoreError):
                problem = Problem(
                    status=problem.status, code=problem.code, detail=str(error)
                )
            answer = self._problem(request, problem)
        for name, value in PAGE_HEADERS.items():
            answer.headers.setdefault(name, value)
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = _path(request)
        if re.fullmatch(r"/\w+/", path):  # the id of a loop may end with a slash
            path = path[:-1]
        _check_host(request)
        if path.startswith("/static/"):
            return asset(path.removeprefix("/static/"))
        if path == "/open":
            return self._open(request)
        form = await self._form(request) if request.method == "POST" else {}
        if path == "/sign-in":
            return await self._sign_in(request, form)
        person = path != "/events" and "heedful-live" not in request.headers
        session = self.sessions.find(request.cookies.get(_cookie(request), ""), person)
        if session is None:
            # No cookie comes with the click on a link in a mail or a chat. The browser
            # asks again.
            if (
                request.headers.get("sec-fetch-site") == "cross-site"
                and request.method == "GET"
            ):
                return Response("", headers={"Refresh": "0"}, media_type="text/html")
            raise KeyRefused("sign in first: the session has ended, or there was none")
        caller = await self._caller(request, session)
        if path == "/sign-out":
            self._check_token(session, form)
            return self._leave(request)
        project = str(request.query_params.get("project") or form.get("project", ""))
        caller = caller.within(project) if project else caller
        request.scope["state"]["caller"] = caller
        data = path.endswith(".json")
        path = unquote(path.removesuffix(".json") or "/" if data else path)
        visit = Visit(
            app=self._app,
            caller=caller,
            session=session,
            path=path,
            query=dict(request.query_params),
            form=form,
        )
        visit.read_only = self._read_only
        request.scope["state"]["visit"] = visit
        if path == "/events":
            return self._events(visit)
        if request.method == "POST":
            self._check_token(session, form)
            return await self._act(visit)
        return await self._show(visit, data)

    async def _form(self, request: Request) -> dict[str, str]:
        """Return the fields of a form that a page of this site sent. Raises Problem."""
        origin = request.headers.get("origin", "")
        if not origin or urlsplit(origin).netloc != request.headers.get("host", ""):
            raise Problem(
                status=403,
                code="other_origin",
                detail="the form is not from a page of this site",
            )
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MAX_FORM_BYTES:
                raise Problem(
                    status=413,
                    code="body_too_large",
                    detail=f"a form may have at most {MAX_FORM_BYTES} bytes",
                )
        try:
            return dict(
                parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100)
            )
        except ValueError as error:
            raise Problem(
                status=400,
                code="bad_request",
                detail=f"the form cannot be read: {error}",
            ) from error

    @staticmethod
    def _check_token(session: Session, form: Mapping[str, str]) -> None:
        if not compare_digest(session.token.encode(), form.get("token", "").encode()):
            raise Problem(
                status=403,
                code="forged",
                detail="the form has no valid token; load the page again",
            )

    async def _caller(self, request: Request, session: Session) -> Caller:
        if session.authorization:
            return await self._callers.identified(session.authorization)
        if _host(request) not in LOOPBACK_HOSTS:
            raise Problem(
                status=421,
                code="misdirected_request",
                detail="this session is for this machine only",
            )
        return local(self._setup)

    def _open(self, request: Request) -> Response:
        """Begin a session for the one-time token in the address that `heedful ui`
        opened.
        """
        if not self.sessions.redeem(request.query_params.get("token", "")):
            if self.sessions.find(request.cookies.get(_cookie(request), "")):
                return RedirectResponse(SITE_PATH, 303)  # loaded again
            wrong = (
                "this address was used before, or heedful ui has ended; run heedful "
                "ui again"
            )
            facts = {"wrong": wrong, "here": self.sessions.local}
            return self._html(
                "ui/sign_in.html.j2",
                visit=None,
                title="Sign in",
                facts=facts,
                status=401,
            )
        return self._enter(request, "")

    async def _sign_in(self, request: Request, form: Mapping[str, str]) -> Response:
        facts: Document = {"wrong": "", "here": self.sessions.local}
        facts["next"] = form.get("next") or request.query_params.get("next", "")
        if request.method != "POST":
            return self._html("ui/sign_in.html.j2", None, "Sign in", facts)
        key = form.get("key", "").strip()
        try:
            await self._callers.identified(f"Bearer {key}" if key else None)
        except KeyRefused as error:
            facts["wrong"] = (
                str(error) if key else "type a key, or open what heedful ui printed"
            )
            return self._html(
                "ui/sign_in.html.j2",
                visit=None,
                title="Sign in",
                facts=facts,
                status=401,
            )
        if not key and _host(request) not in LOOPBACK_HOSTS:
            raise Problem(
                status=421,
                code="misdirected_request",
                detail="without a key, sign in on this machine",
            )
        return self._enter(request, f"Bearer {key}" if key else "", _own(facts["next"]))

    def _enter(
        self, request: Request, authorization: str, page: str = SITE_PATH
    ) -> Response:
        cookie, _ = self.sessions.begin(authorization)
        made = RedirectResponse(page, 303)
        rights: Document = {"httponly": True, "samesite": "strict", "path": SITE_PATH}
        rights["secure"] = request.url.scheme == "https"
        made.set_cookie(_cookie(request), cookie, **rights)
        return made

    def _leave(self, request: Request) -> Response:
        self.sessions.end(request.cookies.get(_cookie(request), ""))
        made = RedirectResponse(f"{SITE_PATH}/sign-in", 303)
        made.delete_cookie(_cookie(request), path=SITE_PATH)
        return made

    async def _act(self, visit: Visit) -> Response:
        """Do what a form asks for; then show the page of the form again, with what was
        done.
        """
        name = visit.path.removeprefix("/do/")
        if name not in SITE_ACTIONS:
            raise NotFound("action", name, "these pages")
        may, do = SITE_ACTIONS[name]
        if not visit.may(*may):
            why = (
                "these pages are read-only"
                if visit.read_only
                else f"it needs {' or '.join(may)}"
            )
            raise Problem(
                status=403, code="forbidden", detail=f"the key may not do this: {why}"
            )
        with Effects(actor=visit.caller.actor):
            visit.session.note = await do(visit)
        return RedirectResponse(_own(visit.form.get("back", "")), 303)

    async def _show(self, visit: Visit, data: bool) -> Response:
        for one in SITE_PAGES:
            if found := one.pattern.fullmatch(visit.path):
                if not data and "project" not in visit.query:
                    return RedirectResponse(visit.page, 303)
                made = await one.make(visit, **found.groupdict())
                if data:
                    text = json.dumps(made, default=methodcaller("plain"))
                    return Response(text, media_type="application/json")
                return self._html(one.template, visit, one.title, made)
        raise NotFound("page", visit.path, "these pages")

    def _events(self, visit: Visit) -> Response:
        """Say, as server-sent events, that something of the project changed."""
        if self._streams >= MAX_STREAMS:
            raise Problem(
                status=503,
                code="busy",
                detail="too many pages are live; this one stays as it is",
            )
        return StreamingResponse(self._changes(visit), media_type="text/event-stream")

    async def _changes(self, visit: Visit) -> AsyncIterator[str]:
        from heedful.web.figures import latest

        self._streams += 1
        try:
            ends = time.monotonic() + MAX_STREAM_SECONDS
            known = await visit.caller.read(latest)
            yield "retry: 1000\n\n"
            while time.monotonic() < ends:
                await asyncio.sleep(STREAM_POLL_SECONDS)
                if (now := await visit.caller.read(latest)) != known:
                    known = now
                    yield "event: changed\ndata: {}\n\n"
        finally:
            self._streams -= 1

    def _problem(self, request: Request, problem: Problem) -> Response:
        if _path(request).endswith(".json"):
            return JSONResponse(
                {"code": problem.code, "detail": problem.detail}, problem.status
            )
        if problem.status == 401 and request.method == "GET":
            asked = {
                "next": f"{SITE_PATH}{_path(request)}?{request.url.query}".rstrip("/?")
            }
            query = f"?{urlencode(asked)}" if asked["next"] != SITE_PATH else ""
            return RedirectResponse(f"{SITE_PATH}/sign-in{query}", 303)
        facts: Document = {
            "code": problem.code,
            "detail": problem.detail,
            "status": problem.status,
        }
        facts["posted"] = request.method == "POST"
        visit = request.scope["state"].get("visit")
        return self._html(
            "ui/problem.html.j2",
            visit,
            title="Not possible",
            facts=facts,
            status=problem.status,
        )

    @staticmethod
    def _html(
        template: str,
        visit: Visit | None,
        title: str,
        facts: Mapping[str, Any],
        status: int = 200,
    ) -> Response:
        note = ""
        data = dict(facts)
        if visit is not None:
            note = visit.session.note
            visit.session.note = ""
        text = page_text(template, visit=visit, title=title, note=note, **data)
        return Response(text.encode("utf-8", "replace"), status, media_type="text/html")


def _path(request: Request) -> str:
    """Return the path of a request below `/ui` as it was sent, before it is decoded."""
    raw: bytes = request.scope["raw_path"]
    return raw.decode("latin-1").partition("?")[0].removeprefix(SITE_PATH) or "/"


def _own(address: str) -> str:
    """Return an address of this site; for any other address, that of the home page."""
    return (
        address
        if re.fullmatch(rf"{SITE_PATH}(?:[/?#][^\\\s]*)?", address)
        else SITE_PATH
    )


def _cookie(request: Request) -> str:
    """Return the name of the cookie. Browsers send a cookie to all ports of a
    machine.
    """
    port = re.search(r":(\d+)$", request.headers.get("host", ""))
    return f"{COOKIE_NAME}_{port[1]}" if port else COOKIE_NAME


def _host(request: Request) -> str:
    host = request.headers.get("host", "")
    return (host if host.endswith("]") else host.rpartition(":")[0] or host).lower()


def _check_host(request: Request) -> None:
    """Refuse a request whose Host header no browser sends for this address. Raises
    Problem.
    """
    if not re.fullmatch(r"[\w.\-\[\]:]+", request.headers.get("host", ""), re.ASCII):
        raise Problem(
            status=400,
            code="bad_request",
            detail="the request has no valid Host header",
        )


@cache
def assets() -> Mapping[str, bytes]:
    """Return the files of the site, by name."""
    files = [*(Path(__file__).parent / "static").iterdir(), STYLE_FILE]
    return {one.name: one.read_bytes() for one in files if one.is_file()}


def asset(name: str) -> Response:
    """Return a file of the site. Raises NotFound."""
    if name not in assets():
        raise NotFound("file", name, "these pages")
    kind = FILE_TYPES.get(name.rpartition(".")[2], "text/plain")
    return Response(
        assets()[name], media_type=kind, headers={"Cache-Control": "max-age=3600"}
    )


def cursor_links(visit: Visit, following: str | None) -> Document:
    """Return the address of the next page of a list, with the filters of this one."""
    if not following:
        return {"next": ""}
    return {"next": f"?{urlencode({**visit.query, 'cursor': following})}"}
