"""Serve the pages: sign in, find the page of an address, and do what a form asks for.

A page asks the routes of the service as the caller who signed in. So rights, tenants,
limits and the audit are those of the API. An address shows a page as HTML, and with
`.json` at its end the data of the page.

Addresses are found by Starlette's router, files are sent by its FileResponse.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import methodcaller
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from heedful.errors import HeedfulError, InvalidInput, KeyRefused, NotFound, StoreError
from heedful.lessons.commands import quote_words
from heedful.memory import quarantine
from heedful.pages.run_report import STYLE_FILE
from heedful.store import DEFAULT_DATABASE_FILE, keys, shown
from heedful.store.keys import Permission
from heedful.store.offload import offload
from heedful.store.store import Effects
from heedful.validation import Document, Fields
from heedful_server import problems
from heedful_server.auth import Caller, Callers, local
from heedful_server.bodies import read_body
from heedful_server.middleware import Admission, check_local
from heedful_server.problems import Problem, bad_request
from heedful_server.setup import Setup
from heedful_server.web import counts
from heedful_server.web.addresses import (
    SITE_PATH,
    check_host,
    cookie_name,
    cookie_of,
    is_data,
    needs_no_key,
    origin_scheme,
    own_address,
    page_path,
    proxy_scheme,
    raw_path,
)
from heedful_server.web.page_templates import address, page_text
from heedful_server.web.session import Session, Sessions, check_origin, check_token

EVENTS_PATH = "/events"  # below it
STREAM_TYPE = "text/event-stream"
ENDED_EVENT = "event: ended\ndata: {}\n\n"  # the session, or its key, is no more
ASK_LATER_EVENT = "retry: 5000\n\n"  # the browser asks again after 5,000 milliseconds
MAX_FORM_BYTES = 64 * 1024
MAX_FORM_NUMBER = 10**15
STREAM_POLL_SECONDS = 0.3  # between two looks for what changed
MAX_STREAM_SECONDS = 120.0  # until a stream ends; the browser then asks for a new one
MAX_TENANT_STREAMS = 64  # at a time
MAX_STREAMS = 256  # of all tenants
SITE_FILES: Mapping[str, Path] = {
    path.name: path
    for path in (*(Path(__file__).parent / "static").iterdir(), STYLE_FILE)
}
# A page with loops or lessons needs one of these permissions, as in the API. A page
# with words of tools, or of lessons that wait in quarantine, needs the one of
# REVIEWING.
READING: tuple[Permission, ...] = ("read", "recall")
REVIEWING: tuple[Permission, ...] = ("read",)
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


@dataclass(kw_only=True)
class Visit:
    """One request of somebody who signed in, and the routes that it may ask.

    `person` is False if a live page asks by itself, and for HEAD. A page may set
    `following` to the address that opens in its place, and an action to the one that
    opens after it; if it sets none, the page of its form opens again.
    """

    app: ASGIApp
    caller: Caller
    session: Session
    path: str
    query: Mapping[str, str]
    form: Mapping[str, str] = field(default_factory=dict)
    read_only: bool = False
    person: bool = True
    following: str = ""

    @property
    def is_here(self) -> bool:
        """Whether this is the person at this machine, who needs no key."""
        return not self.session.authorization

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] = {},
        headers: Mapping[str, str] = {},
    ) -> Any:
        """Return what a route answers in the visitor's project. Raises Problem."""
        fields = {"project": self.caller.scope.project, **query}
        sent = {
            name: value for name, value in fields.items() if value not in ("", None)
        }

        status, answer = await self.caller.ask(
            self.app, method, path, body=body, query=sent, headers=headers
        )
        if status >= 400:
            raise Problem(
                status,
                answer.get("code", "refused"),
                detail=answer.get("detail", "the service refused this"),
            )
        return answer

    async def get(self, path: str, **query: Any) -> Any:
        """Return what a route of the API answers. Raises Problem."""
        return await self.ask("GET", path, query=query)

    def form_text(self, name: str) -> str:
        """Return a field of the form, "" without it."""
        return self.form.get(name, "")

    def query_text(self, name: str) -> str:
        """Return a part of the query of the address, "" without it."""
        return self.query.get(name, "")

    def query_choice(self, name: str, choices: Collection[str]) -> str:
        """Return a part of the query, "" without it. Raises InvalidInput for others."""
        value = self.query_text(name)
        if value and value not in choices:
            raise InvalidInput(name, value, ", ".join(choices))
        return value

    async def rows(self, statement: str, **values: Any) -> list[Document]:
        """Return the rows of a named statement of `counts.sql` in the project."""
        return await self.caller.read(counts.rows, statement, **values)

    def may(self, *permissions: str) -> bool:
        """Return whether the visitor may do what needs one of these permissions."""
        return bool(set(permissions) & set(self.caller.key.may))

    def link(self, path: str, /, **query: Any) -> str:
        """Return the address of a page in this project, which others can open, too."""
        return address(path, **{"project": self.caller.scope.project, **query})

    def command(self, line: str) -> str:
        """Return a command of heedful with --db, unless the database is the default.

        Returns "" for no command.

        The demo always needs it: without, it makes a database of its own.
        """
        db = self.caller.setup.store.url
        is_demo = line.startswith("heedful demo")
        if (
            not line
            or db == ":memory:"
            or (db == DEFAULT_DATABASE_FILE and not is_demo)
        ):
            return line
        return f"{line} --db {quote_words([shown(db)])}"

    @cached_property
    def page(self) -> str:
        """The address of this page."""
        return self.link(self.path, **self.query)

    def turned(self, **changes: str) -> str:
        """Return the address of the beginning of this list with other filters."""
        query = {name: value for name, value in self.query.items() if name != "cursor"}
        return self.link(self.path, **{**query, **changes})

    @cached_property
    def data(self) -> str:
        """The address of the data of this page."""
        # Browsers send the cookie only to addresses below `/ui`, not to `/ui.json`.
        page = "/home" if self.path == "/" else self.path
        path, _, query = self.link(page, **self.query).partition("?")
        return f"{path}.json?{query}"

    def number(self, name: str, least: int = 0) -> int:
        """Return a whole number of the form, or else of the address; else `least`.

        Raises InvalidInput if it is not a number from `least` to `MAX_FORM_NUMBER`.
        """
        value = (self.form or self.query).get(name) or str(least)
        if not is_number(value) or not least <= int(value) <= MAX_FORM_NUMBER:
            allowed = f"a whole number from {least:,} to {MAX_FORM_NUMBER:,}"
            raise InvalidInput(name, value, allowed)
        return int(value)


@dataclass(frozen=True, kw_only=True)
class SitePage:
    """A page: its address, its template, its title, and `make`, which returns its data.

    A part of the address such as `{id:path}` (any text) or `{n:int}` (a number) is an
    argument of `make`. The key of the visitor needs one of the permissions `may`, for
    the page and for its data.
    """

    address: str
    template: str
    title: str
    make: Callable[..., Awaitable[Document]]
    may: tuple[Permission, ...]


# What a form asks for: it does this, and says what it did.
Action = Callable[[Visit], Awaitable[str]]


class Site:
    """The route `/ui` and below, as an ASGI application.

    With `read_only`, no form changes anything.
    """

    path = SITE_PATH  # for the log and the metrics of the service

    def __init__(
        self,
        app: ASGIApp,
        setup: Setup,
        admission: Admission,
        *,
        pages: Sequence[SitePage],
        actions: Mapping[Permission, Sequence[Action]],
        read_only: bool = False,
    ) -> None:
        self._app = app
        self._setup = setup
        self._admission = admission
        self._read_only = read_only
        self._callers = Callers(setup)
        # A form is sent to an address that ends with the name of its action.
        self._actions = {}
        for permission, permitted in actions.items():
            for action in permitted:
                self._actions[action.__name__] = (action, permission)
        self.sessions = Sessions()
        # Prints an invitation for the person at this machine, if heedful ui runs.
        self.invites: Callable[[str], None] | None = None
        self._streams = Counter[str]()  # those that are open, by tenant
        self._is_stopping = False

        # Only visitors who are signed in reach the pages. The first route that fits
        # answers.
        self._pages = Router(
            [
                Route("/sign-out", self._sign_out, methods=["GET", "POST"]),
                Route(EVENTS_PATH, self._events),
                Route("/{path:path}", self._act, methods=["POST"]),
                *(Route(page.address, self._show_of(page)) for page in pages),
                Route("/{path:path}", self._missing),
            ],
            redirect_slashes=False,
        )
        self._router = Router(
            [
                Route("/static/{name}", self._file),
                Route("/open", self._open),
                Route("/sign-in", self._sign_in, methods=["GET", "POST"]),
            ],
            redirect_slashes=False,
            default=self._admit,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, also with an error as a page."""
        scope["route"] = self
        # `Entrance` answers an unexpected error by this method, so it is a page, too.
        scope["state"]["answer"] = self.answer
        scope["state"]["headers"] = PAGE_HEADERS
        request = Request(scope, receive)
        try:
            check_host(request)
            # The path is decoded after `.json` is taken off, because the id of a loop
            # may end with it, quoted.
            path = unquote(page_path(request))
            # The router gets a scope of its own, because it sets the route, and that of
            # the request is `self`.
            site_scope = {**scope, "path": path, "root_path": "", "path_params": {}}
            await self._router(site_scope, receive, send)

        except (HeedfulError, Problem, HTTPException) as error:
            visit: Visit | None = getattr(request.state, "visit", None)
            if visit is not None and problems.of(error).status == 404:
                near = await visit.rows("near_ids", path=visit.path)
                request.state.near = [row["id"] for row in near]
            await self.answer(error, scope)(scope, receive, send)

    def answer(self, error: BaseException, scope: Scope) -> Response:
        """Return the page, or the data, that says what went wrong with a request."""
        # This logs an error of the service itself; its answer is not sent.
        problems.answer(error, scope)
        problem = problems.of(error)

        # The person at this machine may see what is wrong with the store.
        request = Request(scope)
        visit = getattr(request.state, "visit", None)
        is_here = visit is not None and visit.is_here
        if is_here and isinstance(error, StoreError):
            problem = replace(problem, detail=str(error))

        return self._problem(request, problem, visit)

    async def _file(self, request: Request) -> Response:
        """Send the script, the icon or the style of the pages. Raises NotFound."""
        name = request.path_params["name"]
        if name not in SITE_FILES:
            raise NotFound("file", name, "these pages")
        return FileResponse(SITE_FILES[name], headers={"Cache-Control": "max-age=3600"})

    async def _open(self, request: Request) -> Response:
        """Begin a session for the one-time token in the address of `heedful ui`."""
        check_local(request.headers, with_origin=True)
        # Programs that look at a link before a person does use HEAD.
        if request.method == "HEAD":
            return Response()

        if self.sessions.redeem(request.query_params.get("token", "")):
            return self._enter(request, "", invited=True)
        # The address is loaded again in the session that it began.
        if self.sessions.find(cookie_of(request)):
            return RedirectResponse(SITE_PATH, 303)

        # At most one invitation is unused at a time, so that those who have none cannot
        # fill the terminal.
        if self.invites is not None and not self.sessions.invitations:
            self.invites(self.sessions.invite())
        wrong = "this address was used before, or is that of another heedful ui"
        return await self._sign_in_page(request, wrong, status=401)

    async def _sign_in(self, request: Request) -> Response:
        """Show the page on which a visitor types a key, or begin a session with it.

        Then opens the page that the visitor asked for. Raises Problem.
        """
        form = await self._form_of(request)
        following = form.get("next") or request.query_params.get("next", "")

        if request.method != "POST":
            return await self._sign_in_page(request, "", following=following)

        key = form.get("key", "").strip()
        if not key:
            check_local(request.headers, with_origin=True)
        authorization = f"Bearer {key}" if key else ""
        try:
            caller = await self._callers.identified(authorization)
        except KeyRefused as error:
            wrong = str(error) if key else "type a key, or open what heedful ui printed"
            return await self._sign_in_page(
                request, wrong, following=following, status=401
            )

        with self._admission.caller(caller):
            page = own_address(following)
            return self._enter(request, authorization, caller.key.id, page=page)

    async def _sign_in_page(
        self, request: Request, wrong: str, *, following: str = "", status: int = 200
    ) -> Response:
        """Return the page to sign in; `wrong` says why this failed before, or is ""."""
        facts = {
            "wrong": wrong,
            "here": self.sessions.local,
            # What runs on this machine is no secret there.
            "db": quote_words([shown(self._setup.store.url)]),
            "keys": await self._setup.store.read(self._setup.scope, keys.any_key),
            "next": following,
            "needs_no_key": await needs_no_key(self._callers, request.headers),
        }
        return _html("ui/sign_in.html.j2", None, "Sign in", facts, status=status)

    def _enter(
        self,
        request: Request,
        authorization: str,
        key: str = "",
        *,
        invited: bool = False,
        page: str = SITE_PATH,
    ) -> Response:
        """Begin a session, set its cookie, and send the browser to a page.

        The session that this browser had before ends.
        """
        self.sessions.end(cookie_of(request))

        secure = "https" in (origin_scheme(request), proxy_scheme(request))
        session = Session(
            authorization=authorization, key=key, invited=invited, secure=secure
        )
        response = RedirectResponse(page, 303)
        response.set_cookie(
            cookie_name(request),
            self.sessions.begin(session),
            path=SITE_PATH,
            httponly=True,
            samesite="strict",
            secure=secure,
        )
        return response

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request of somebody who is signed in on to its page, and count it.

        Raises KeyRefused, Problem, Forbidden, StoreError.
        """
        request = Request(scope, receive)
        visit = await self._visit(request)
        request.state.visit = visit
        request.state.caller = visit.caller

        with self._admission.caller(visit.caller):
            # An address with its project can be passed on to others.
            is_page = request.method != "POST" and not is_data(request)
            is_stream = visit.path == EVENTS_PATH
            if is_page and not is_stream and "project" not in visit.query:
                response = RedirectResponse(visit.page, 303)
                await response(scope, receive, send)
                return

            form = await self._form_of(request, visit.session)
            project = visit.query.get("project") or form.get("project", "")
            caller = visit.caller
            if project:
                caller = caller.within(project)
            request.state.visit = replace(visit, caller=caller, form=form)
            await self._pages(scope, receive, send)

    async def _visit(self, request: Request) -> Visit:
        """Return who asks, and for what, in the first project of the key.

        Raises KeyRefused, Problem, StoreError.
        """
        path = request.scope["path"]
        # The script of a live page sends this header when it loads the page again.
        is_live = "heedful-live" in request.headers or path == EVENTS_PATH
        person = not is_live and request.method != "HEAD"
        session = self.sessions.find(cookie_of(request), person)
        if session is None:
            raise KeyRefused("sign in first: the session has ended, or there was none")

        caller = await self._caller_of(session, request.headers)
        if self._read_only:
            may = tuple(name for name in caller.key.may if name in READING)
            caller = replace(caller, key=replace(caller.key, may=may))
        return Visit(
            app=self._app,
            caller=caller,
            session=session,
            path=path,
            query=dict(request.query_params),
            read_only=self._read_only,
            person=person,
        )

    async def _caller_of(self, session: Session, headers: Headers) -> Caller:
        """Return the caller of a session. Raises KeyRefused, Problem, StoreError.

        A visitor who signed in without a key is refused when the store has one.
        """
        if not session.authorization:
            check_local(headers, with_origin=True)
        if session.invited:
            return local(self._setup)
        return await self._callers.identified(session.authorization)

    async def _form_of(
        self, request: Request, session: Session | None = None
    ) -> dict[str, str]:
        """Return the fields of a form that a page of this site sent.

        A field that was sent several times has all its values, with commas. Raises
        Problem.
        """
        if request.method != "POST":
            return {}

        check_origin(request, session)
        body = await read_body(request.scope, request.receive, MAX_FORM_BYTES)
        try:
            fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=100)
        except ValueError as error:
            raise bad_request(f"the form cannot be read: {error}") from error
        # Several ticked boxes with one name send a field each. Browsers end the lines
        # of a text with "\r\n".
        return {
            name: ",".join(values).replace("\r\n", "\n")
            for name, values in fields.items()
        }

    async def _sign_out(self, request: Request) -> Response:
        """End the session of a request. Raises Problem."""
        visit: Visit = request.state.visit
        check_token(visit.session, visit.form)

        self.sessions.end(cookie_of(request))
        response = RedirectResponse(f"{SITE_PATH}/sign-in", 303)
        response.delete_cookie(cookie_name(request), path=SITE_PATH)
        return response

    def _show_of(self, page: SitePage) -> Callable[[Request], Awaitable[Response]]:
        """Return the function that answers requests for a page or its data."""

        async def show(request: Request) -> Response:
            """Return the page as HTML, or its data as JSON."""
            visit: Visit = request.state.visit
            visit.caller.needs(*page.may)
            facts = await page.make(visit, **request.path_params)
            if is_data(request):
                text = await offload(json.dumps, facts, default=methodcaller("plain"))
                return Response(text, media_type="application/json")

            if visit.following:
                return RedirectResponse(visit.following, 303)
            facts |= await _menu_facts(visit)
            template = f"ui/{page.template}.html.j2"
            return await offload(_html, template, visit, title=page.title, facts=facts)

        return show

    async def _missing(self, request: Request) -> Response:
        """Refuse an address without a page, but only to a visitor who is signed in."""
        raise NotFound("page", f"{SITE_PATH}{request.state.visit.path}", "these pages")

    async def _act(self, request: Request) -> Response:
        """Do what a form asks for; then show its page again, with what was done."""
        visit: Visit = request.state.visit
        check_token(visit.session, visit.form)

        name = visit.path.removeprefix("/do/")
        if name not in self._actions:
            raise NotFound("action", name, "these pages")

        action, permission = self._actions[name]
        if self._read_only:
            raise Problem(403, "forbidden", detail="these pages are read-only")
        visit.caller.needs(permission)
        with Effects(actor=visit.caller.actor):
            visit.session.note = await action(visit)
        following = visit.following or own_address(visit.form_text("back"))
        return RedirectResponse(following, 303)

    def end_streams(self) -> None:
        """End the streams of all live pages, because the service stops."""
        self._is_stopping = True

    async def _events(self, request: Request) -> Response:
        """Say, as server-sent events, that something of the project changed."""
        visit: Visit = request.state.visit
        visit.caller.needs(*READING)
        if request.method == "HEAD":
            return Response(media_type=STREAM_TYPE)

        seen_state = await visit.rows("latest")
        changes = self._changes(visit, cookie_of(request), request.headers, seen_state)
        return StreamingResponse(changes, media_type=STREAM_TYPE)

    async def _changes(
        self, visit: Visit, cookie: str, headers: Headers, seen_state: list[Document]
    ) -> AsyncIterator[str]:
        """Yield an event each time something of the visitor's project changed.

        `seen_state` is the state of the project that the page shows. The stream says
        that the session has ended, or that its key was revoked. It ends without a word
        if the store does not answer, if the service stops, or if there are too many
        streams, of all tenants or of the visitor's.
        """
        tenant = visit.caller.key.tenant
        is_full = self._streams.total() >= MAX_STREAMS
        if is_full or self._streams[tenant] >= MAX_TENANT_STREAMS:
            yield ASK_LATER_EVENT
            return

        deadline = time.monotonic() + MAX_STREAM_SECONDS
        self._streams[tenant] += 1
        try:
            # If the stream ends, the browser asks again after 1,000 milliseconds.
            yield "retry: 1000\n\n"

            while time.monotonic() < deadline and not self._is_stopping:
                await asyncio.sleep(STREAM_POLL_SECONDS)
                try:
                    if self.sessions.find(cookie, person=False) is None:
                        raise KeyRefused("the session has ended")
                    await self._caller_of(visit.session, headers)
                    latest = await visit.rows("latest")
                except KeyRefused:
                    yield ENDED_EVENT
                    return
                except StoreError:
                    return

                if latest != seen_state:
                    seen_state = latest
                    yield "event: changed\ndata: {}\n\n"
        finally:
            self._streams -= Counter([tenant])

    def _problem(
        self, request: Request, problem: Problem, visit: Visit | None
    ) -> Response:
        """Return a problem as a page or as data, or ask the visitor to sign in."""
        must_sign_in = problem.status == 401 and request.method == "GET"
        # With a click on a link in a mail or a chat, the browser sends no cookie. It
        # does when this site makes it ask again.
        if must_sign_in and request.headers.get("sec-fetch-site") == "cross-site":
            return Response("", headers={"Refresh": "0"}, media_type="text/html")

        # A browser never asks again for a stream that was answered with an error.
        stream = {401: ENDED_EVENT, 503: ASK_LATER_EVENT}.get(problem.status)
        if stream and raw_path(request) == EVENTS_PATH:
            return Response(stream, media_type=STREAM_TYPE)

        if is_data(request):
            return JSONResponse(
                {"code": problem.code, "detail": problem.detail},
                problem.status,
                headers=problem.headers,
            )

        if must_sign_in:
            path = f"{SITE_PATH}{raw_path(request)}"
            following = f"{path}?{request.url.query}".rstrip("/?")
            sign_in = f"{SITE_PATH}/sign-in"
            if following != SITE_PATH:
                sign_in += "?" + urlencode({"next": following})
            return RedirectResponse(sign_in, 303)

        facts = {
            "code": problem.code,
            "detail": problem.detail,
            "status": problem.status,
            "posted": request.method == "POST",
            "near": getattr(request.state, "near", []),
            "request_id": "",
        }
        if problem.status >= 500:
            facts["request_id"] = request.state.request_id
        page = _html(
            "ui/problem.html.j2",
            visit,
            "Not possible",
            facts,
            status=problem.status,
        )
        page.headers.update(problem.headers)
        return page


def is_number(text: str) -> bool:
    """Return whether a text is a whole number of at most 16 digits.

    `int` alone would also read other digits, signs, spaces and underscores.
    """
    return text.isascii() and text.isdecimal() and len(text) <= 16


async def _menu_facts(visit: Visit) -> Document:
    """Return how many texts wait in the inbox, and whether the store has keys."""
    texts = 0
    if visit.may("read"):
        texts = await visit.caller.read(quarantine.count_waiting)
    has_keys = await visit.caller.read(keys.any_key)
    return {"inbox_texts": texts, "has_keys": has_keys}


def _html(
    template: str,
    visit: Visit | None,
    title: str,
    facts: Fields,
    *,
    status: int = 200,
) -> Response:
    """Return a page as a response, with the note of the session, which is then gone.

    `visit` is None for a visitor who is not signed in.
    """
    notes: dict[str, object] = {"note": "", "undo": {}}
    if visit is not None and visit.person:
        notes = {"note": visit.session.note, "undo": visit.session.undo}
        visit.session.note = ""
        visit.session.undo = {}

    text = page_text(template, visit=visit, title=title, **notes, **facts)
    return Response(text.encode("utf-8", "replace"), status, media_type="text/html")


def page_links(visit: Visit, cursor: object) -> Document:
    """Return the address of the next page of a list, with the filters of this one.

    `cursor` is that of the next page; it is None or 0 on the last page.
    """
    if not cursor:
        return {"next": "", "cursor": ""}
    query = urlencode({**visit.query, "cursor": str(cursor)})
    return {"next": f"?{query}", "cursor": str(cursor)}
