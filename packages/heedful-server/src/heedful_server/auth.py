"""Find out who calls, what they may do, and in which tenant and project.

A request passes three doors. `Callers` finds its key (401 without a valid one) before
the body is read. `Route` reads the body. `CallerDependency` compares the permission
that the route needs with those of the key, and the tenant and the project that query
and body name with those of the key (403). Faults of the body itself are reported last,
so a caller without permission learns nothing from any body.

::

    @router.get("/v1/things")
    async def things(caller: Reading) -> Things:
        rows = await caller.read(store.things)
"""

import json
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from http import HTTPStatus
from inspect import iscoroutinefunction, signature
from math import inf
from typing import Annotated, Any, ClassVar, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.models import HTTPBearer, SecurityBase as SecurityScheme
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope as ScopeOfRequest

from heedful.errors import (
    Forbidden,
    InvalidInput,
    KeyRefused,
    TenantMismatch,
    UnknownName,
)
from heedful.lessons.lesson import Scope
from heedful.lessons.origin import KEY_SOURCE_PREFIX, Origin, origin_of
from heedful.memory.memory import Memory
from heedful.store import keys
from heedful.store.connection import Actor, Db
from heedful.store.keys import KEY_PERMISSIONS, Key, Permission
from heedful.store.offload import MAX_INLINE_CHARS, offload
from heedful.store.store import Effects, also
from heedful.validation import MAX_INTEGER, Document
from heedful.wire import ANSWERED_SCOPE
from heedful_server.problems import Problem, of_unreadable_json
from heedful_server.schemas import TOO_DEEP, not_too_deep
from heedful_server.setup import MAX_CACHE_SECONDS, MAX_REMEMBERED_CALLERS, Setup

P = ParamSpec("P")
T = TypeVar("T")
MCP_SOURCE = "agent:mcp"  # the source of what an MCP client without a key sends
Project = Annotated[
    str | None,
    Query(description="A project; by default the key's first.", max_length=200),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The key of a request, and the scope (tenant and project) in which it works.

    An open service accepts requests without a key; their stand-in key has the id "".
    """

    setup: Setup = field(repr=False)
    key: Key
    scope: Scope
    # The source of what a caller without a key writes; a key is its own source.
    source: str = ""

    @property
    def memory(self) -> Memory:
        """Return the memory of the scope of the request."""
        return self.setup.memory(self.scope)

    @property
    def actor(self) -> Actor:
        """Return the source of what the request writes; open mode has none."""
        source = f"{KEY_SOURCE_PREFIX}{self.key.id}" if self.key.id else self.source
        return Actor(source, self.setup.limits.outcomes)

    async def origin(self) -> Origin:
        """Return the origin of what the caller writes: "outside" if nobody stated it.

        A key that an operator created is stated, unless he created it as from outside.
        """
        if not self.actor.via or (self.key.id and not self.key.outside):
            return "local"  # the answer to every report waits for this
        return origin_of(
            self.actor.via.split(), await self.memory.quarantine.believed()
        )

    @property
    def by(self) -> str:
        """Return the name and the id of the key, as the audit log records them."""
        if not self.key.id:
            return self.key.name
        return f"{self.key.name} ({self.key.id})"

    async def read(
        self,
        work: Callable[Concatenate[Db, Scope, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Return the result of `work`, which reads from the store in this scope."""
        return await self.setup.store.read(self.scope, work, *args, **kwargs)

    async def write(
        self,
        work: Callable[Concatenate[Db, Scope, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Return the result of `work`, which writes to the store in this scope."""
        return await self.setup.store.write(self.scope, work, *args, **kwargs)

    async def ask(
        self,
        app: ASGIApp,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] = {},
        headers: Mapping[str, str] = {},
    ) -> tuple[int, Any]:
        """Call a route of the service `app` in this process, without a connection.

        Return the status and the JSON data of the answer. The caller was admitted
        before, so its key and its limits are not checked again; the permission that the
        route needs is.
        """
        content = b""
        if body is not None:
            content = json.dumps(body).encode()
        fields = {"content-type": "application/json", **headers}
        scope: dict[str, object] = {
            "type": "http",
            "http_version": "1.1",
            "scheme": "http",
            "method": method,
            "path": path,
            "root_path": "",
            "query_string": urlencode(query).encode(),
            "headers": Headers(fields).raw,
            "state": {"caller": self},
        }

        with Effects(actor=self.actor):
            start, answer = await collect(app, scope, receive_of(content, _client_gone))
        return start["status"], json.loads(answer)

    def within(self, project: str) -> "Caller":
        """Return this caller in another project. Raises Forbidden, InvalidInput."""
        if self.key.projects and project not in self.key.projects:
            raise Forbidden(
                f"the key is limited to {', '.join(self.key.projects)}; "
                f"it excludes project {project!r}"
            )
        return replace(self, scope=Scope(self.key.tenant, project))

    def as_tool(self) -> "Caller":
        """Return the caller of a model's tools.

        They never write as an operator, and read no words that wait for a review.
        """
        may: tuple[Permission, ...] = ()
        if "write" in self.key.may:
            may += ("write",)
        if {"read", "recall"} & set(self.key.may):
            may += ("recall",)
        return replace(self, key=replace(self.key, may=may), source=MCP_SOURCE)

    def record(self, action: str, subject: str, **detail: Any) -> None:
        """Write to the audit log, with the next write, that `action` was done.

        It was done to `subject`, such as the id of a loop; the entry also has `detail`,
        which is JSON data.
        """

        def append(db: Db) -> None:
            keys.append(
                db,
                self.key.tenant,
                by=self.by,
                action=action,
                subject=subject,
                detail=detail,
                projects=[self.scope.project],
            )

        also(append)

    def needs(self, *may: Permission) -> None:
        """Check that the key has one of these permissions. Raises Forbidden."""
        if not set(may).isdisjoint(self.key.may):
            return

        granted = [name for name in KEY_PERMISSIONS if name in self.key.may]
        raise Forbidden(
            f"this needs a key with the permission {' or '.join(may)}; "
            f"yours has {', '.join(granted)}"
        )


def receive_of(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives this body, and then what `receive` does."""
    bodies = [body]

    async def receive_body() -> Message:
        """Return the body the first time, then what the client sends."""
        if not bodies:
            return await receive()
        return {"type": "http.request", "body": bodies.pop(), "more_body": False}

    return receive_body


async def _client_gone() -> Message:
    """Say that the client sends nothing more, and waits for nothing."""
    return {"type": "http.disconnect"}


async def collect(
    app: ASGIApp, scope: ScopeOfRequest, receive: Receive
) -> tuple[Message, bytes]:
    """Return the head and the whole body of the answer of an application."""
    messages: list[Message] = []

    async def hold(message: Message) -> None:
        """Keep a message of the answer instead of sending it."""
        messages.append(message)

    await app(scope, receive, hold)

    start, *parts = messages
    return start, b"".join(part.get("body", b"") for part in parts)


class Callers:
    """Finds the caller of a request, and caches each key for `MAX_CACHE_SECONDS`.

    For this time, a service may still accept a key that `heedful key revoke` has
    revoked.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        # The digest of a key -> the key, and until when it is cached.
        self._cached: dict[bytes, tuple[Key, float]] = {}

    async def identified(self, authorization: str | None) -> Caller:
        """Return who sent this Authorization header. Raises KeyRefused, StoreError."""
        if not authorization:
            store = self._setup.store
            if not self._setup.open or await store.read(Scope(), keys.any_key):
                raise KeyRefused(
                    "no key was sent; send it as Authorization: Bearer heedful_…"
                )
            return local(self._setup)

        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise KeyRefused("send the key as Authorization: Bearer heedful_…")

        key = await self._find_key(token.strip())
        project = key.projects[0] if key.projects else "default"
        return Caller(setup=self._setup, key=key, scope=Scope(key.tenant, project))

    async def _find_key(self, token: str) -> Key:
        """Return the key with this secret token. Raises KeyRefused, StoreError."""
        digest = sha256(token.encode()).digest()
        now = time.monotonic()
        key, until = self._cached.get(digest, (None, 0.0))
        if key is not None and now <= until and time.time() < (key.expires or inf):
            return key

        key = await keys.holder(self._setup.store, token)
        if len(self._cached) >= MAX_REMEMBERED_CALLERS:
            self._cached.clear()
        self._cached[digest] = key, now + MAX_CACHE_SECONDS
        return key


def local(setup: Setup) -> Caller:
    """Return the caller who sends no key, and works in the scope of `setup`."""
    key = Key(
        id="",
        tenant=setup.scope.tenant,
        name="local",
        projects=(),
        may=KEY_PERMISSIONS,
        by="",
        at=0.0,
    )
    return Caller(setup=setup, key=key, scope=setup.scope)


class JsonRequest(Request):
    """A request whose JSON is parsed once, for its body and for its caller.

    FastAPI parses a body before it asks a dependency, but a caller without permission
    gets 403 for any body. So text that is not JSON raises nothing here: it reads as
    None, and `unreadable` says why.
    """

    unreadable: Problem | None = None

    async def json(self) -> Any:
        """Return the body as JSON data, which is also kept in the state as `plain`."""
        body = await self.body()
        self.state.plain = None
        try:
            if len(body) > MAX_INLINE_CHARS:
                self.state.plain = await offload(_parse_body, body)
            else:
                self.state.plain = _parse_body(body)
        except Problem as problem:
            self.unreadable = problem
        return self.state.plain


def _parse_body(body: bytes) -> Any:
    """Return the JSON data of a body. Raises Problem."""
    try:
        return not_too_deep(json.loads(body))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise of_unreadable_json(error) from error
    except (RecursionError, ValueError) as error:
        # How deep the parser itself goes depends on the calls that led here.
        detail = f"body: {TOO_DEEP}"
        raise Problem(422, "invalid_request", detail=detail) from error


class Route(APIRoute):
    """A route that reads its body as JsonRequest describes.

    It refuses a query parameter that it does not have: a misspelt one would be ignored.
    A lenient one ignores it.
    """

    is_lenient: ClassVar[bool] = False

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler, called with a JsonRequest."""
        handler = super().get_route_handler()
        # These name the caller; all routes compare them with the key.
        names = sorted({*_query_names(self.dependant), "tenant", "tenant_id"})
        is_direct = self._is_direct()

        async def handle(request: Request) -> Response:
            """Handle a request; if its body is not JSON, say only that."""
            for name in request.query_params:
                if name not in names and not self.is_lenient:
                    raise UnknownName("query parameter", name, names)

            json_request = JsonRequest(request.scope, request.receive)
            if is_direct and not request.query_params:
                answer = await self._answer_directly(json_request)
                if answer is not None:
                    return answer
                json_request.unreadable = None

            try:
                return await handler(json_request)
            except RequestValidationError as error:
                problem = json_request.unreadable
                if problem is None:
                    raise
                if self.is_lenient:
                    # Earlier systems answer so to all that they cannot use.
                    problem = replace(problem, status=422)
                raise problem from error

        return handle

    def _is_direct(self) -> bool:
        """Return True if the route takes only a path, a body and a caller."""
        dependant = self.dependant
        names = {
            dependant.response_param_name,
            *(field.name for field in dependant.path_params),
            *(field.name for field in dependant.body_params[:1]),
            *(inner.name for inner in dependant.dependencies),
        }
        return (
            self.response_model is Document
            and iscoroutinefunction(self.endpoint)
            and signature(self.endpoint).parameters.keys() <= names
            and all(
                isinstance(inner.call, CallerDependency)
                for inner in dependant.dependencies
            )
        )

    async def _answer_directly(self, request: JsonRequest) -> Response | None:
        """Answer without FastAPI's solver, which takes 8 % of the CPU of a report.

        Returns None if a value is wrong, which the solver says.
        """
        dependant = self.dependant
        arguments: dict[str, object] = {}
        sent = [
            *[
                (part, request.path_params[part.alias])
                for part in dependant.path_params
            ],
            *[(part, await request.json()) for part in dependant.body_params],
        ]
        for parameter, value in sent:
            arguments[parameter.name], faults = parameter.validate(value)
            if faults or request.unreadable:
                return None

        for inner in dependant.dependencies:
            if isinstance(inner.call, CallerDependency):
                arguments[str(inner.name)] = await inner.call(request)
        answer = Response(
            status_code=self.status_code or HTTPStatus.OK, media_type="application/json"
        )
        if dependant.response_param_name:
            arguments[dependant.response_param_name] = answer

        content = await self.endpoint(**arguments)
        if isinstance(content, Response):
            return content
        if self.response_field is not None:
            content = self.response_field.serialize_json(content)
        answer.body = content
        answer.headers["content-length"] = str(len(answer.body))
        return answer


def api_router(tag: str, prefix: str = "/v1") -> APIRouter:
    """Return an empty group of routes of the API, which are `Route`s."""
    return APIRouter(prefix=prefix, tags=[tag], route_class=Route)


def _query_names(dependant: Dependant) -> Iterator[str]:
    """Yield the query parameters of a route, and those of what it depends on."""
    for parameter in dependant.query_params:
        yield parameter.alias
    for inner in dependant.dependencies:
        yield from _query_names(inner)


class CallerDependency(SecurityBase):
    """A FastAPI dependency that returns the caller, who needs a permission of `may`.

    It refuses a request that names a tenant or a project for which the key is not
    valid. In the description of the API it is the scheme of keys; `Entrance` has
    compared the key before.
    """

    def __init__(self, *may: Permission) -> None:
        self.may: tuple[Permission, ...] = may
        self.scheme_name = "key"
        self.model: SecurityScheme = HTTPBearer(
            description="A key that `heedful key create` made."
        )

    async def __call__(self, request: Request, project: Project = None) -> Caller:
        state = request.scope["state"]
        caller: Caller = state["caller"]
        caller.needs(*self.may)

        body = state.get("plain")
        if not isinstance(body, dict):
            body = {}

        for fields in (request.query_params, body):
            for tenant in (fields.get("tenant"), fields.get("tenant_id")):
                if tenant not in (None, caller.key.tenant):
                    raise TenantMismatch(
                        f"the key does not belong to tenant {tenant!r}"
                    )

        if isinstance(body.get("project_id"), str):
            project = body["project_id"] or project
        if project:
            caller = caller.within(project)
        ANSWERED_SCOPE.set(caller.scope)
        return caller


# Types of the parameter `caller` of a route; 403 if the key lacks the permission.
Reading = Annotated[Caller, Depends(CallerDependency("read", "recall"))]
Reviewing = Annotated[Caller, Depends(CallerDependency("read"))]
Writing = Annotated[Caller, Depends(CallerDependency("write"))]
Approving = Annotated[Caller, Depends(CallerDependency("approve"))]
Administering = Annotated[Caller, Depends(CallerDependency("admin"))]

Limit = Annotated[int, Query(ge=1, le=200, description="The largest number of rows.")]
Cursor = Annotated[
    str | None, Query(max_length=1000, description="`next` of the previous page.")
]


@dataclass(frozen=True)
class Listing:
    """The query parameters that select a page of a list."""

    limit: Limit = 50
    cursor: Cursor = None

    @property
    def id(self) -> int | None:
        """Return the cursor of a list whose ids are integers. Raises InvalidInput."""
        if self.cursor is None:
            return None
        if not self.cursor.isdecimal() or int(self.cursor) > MAX_INTEGER:
            raise InvalidInput(
                "cursor", self.cursor, "`next` of the previous page, unchanged"
            )
        return int(self.cursor)


Paged = Annotated[Listing, Depends()]
