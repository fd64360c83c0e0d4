"""Authenticate requests: the key, its permissions, and the scope in which a route
works.

The bodies of requests are read here, too, because they may name a tenant and a project.

::

    @router.get("/v1/things")
    async def things(caller: Reading) -> Things:
        rows = await caller.read(store.things)
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from inspect import iscoroutine
from math import inf
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

from fastapi import Depends, Query, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import TypeAdapter

from heedful.errors import Forbidden, InvalidInput, KeyRefused, TenantMismatch
from heedful.lessons.lesson import Scope
from heedful.lessons.trust import KEY_SOURCE_PREFIX
from heedful.memory.memory import Memory
from heedful.service.schemas import May
from heedful.service.setup import Setup
from heedful.service.wire import MAX_ROW_ID
from heedful.store import keys
from heedful.store.connection import Actor, Db
from heedful.store.keys import KEY_PERMISSIONS, Key
from heedful.store.store import also

P = ParamSpec("P")
T = TypeVar("T")
MIN_THREAD_BODY_BYTES = 64 * 1024  # bytes of a body that is read in a thread
KEY_CACHE_SECONDS = 1.0  # seconds for which a key is cached
MAX_CACHED_KEYS = 10_000  # cached keys
MCP_SOURCE = "tool:mcp"  # the source of what an MCP client without a key sends
Project = Annotated[
    str | None,
    Query(description="A project; by default the key's first.", max_length=200),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The key of a request, and the scope (tenant and project) in which the request
    works.

    An open service accepts requests without a key; their stand-in key has the id "".
    """

    setup: Setup = field(repr=False)
    key: Key
    scope: Scope
    source: str = ""  # of what a caller without a key writes

    @property
    def memory(self) -> Memory:
        """Return the memory of the scope of the request."""
        return self.setup.memory(self.scope)

    @property
    def actor(self) -> Actor:
        """Return the key as the source of what the request writes; open mode has
        none.
        """
        via = f"{KEY_SOURCE_PREFIX}{self.key.id}" if self.key.id else self.source
        return Actor(via, self.setup.limits.outcomes)

    @property
    def by(self) -> str:
        """Return the name and the id of the key, as the audit log records them."""
        return f"{self.key.name} ({self.key.id})" if self.key.id else self.key.name

    async def read(
        self,
        work: Callable[Concatenate[Db, Scope, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Return the result of `work`, which reads from the store in the scope of the
        request.
        """
        return await self.setup.store.read(self.scope, work, *args, **kwargs)

    async def write(
        self,
        work: Callable[Concatenate[Db, Scope, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Return the result of `work`, which writes to the store in the scope of the
        request.
        """
        return await self.setup.store.write(self.scope, work, *args, **kwargs)

    def within(self, project: str) -> Caller:
        """Return this caller in the scope of `project`. Raises Forbidden,
        InvalidInput.
        """
        if self.key.projects and project not in self.key.projects:
            bound = ", ".join(self.key.projects)
            raise Forbidden(
                f"the key is limited to {bound}; it excludes project {project!r}"
            )
        return replace(self, scope=Scope(self.key.tenant, project))

    def as_tool(self) -> Caller:
        """Return the caller of the tools of a model: they never write as an
        operator.
        """
        may = tuple(one for one in self.key.may if one not in ("approve", "admin"))
        return replace(self, key=replace(self.key, may=may), source=MCP_SOURCE)

    def record(self, action: str, subject: str, **detail: Any) -> None:
        """Write with the next write, in its transaction, that `action` was done to
        `subject`.

        This entry of the audit log also has `detail`, which is JSON data.
        """
        entry = self.by, action, subject, detail, [self.scope.project]
        also(lambda db: keys.append(db, self.key.tenant, *entry))

    def needs(self, *may: May) -> None:
        """Check that the key has one of these permissions. Raises Forbidden."""
        if not set(may) & set(self.key.may):
            has = ", ".join(one for one in KEY_PERMISSIONS if one in self.key.may)
            needed = " or ".join(may)
            raise Forbidden(
                f"this needs a key with the permission {needed}; yours has {has}"
            )


class Callers:
    """Finds the caller of a request by its key, and caches each key for `KEY_CACHE_SECONDS`
    seconds.

    After `heedful key revoke`, a service may accept the key for up to `KEY_CACHE_SECONDS`
    seconds; after the first `heedful key create`, an open service may accept callers
    without a key for as long.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._known: dict[bytes, tuple[Key, float]] = {}
        self._keyless = (
            0,
            0.0,
        )  # until when no key is assumed to exist, if this process makes none

    async def identified(self, authorization: str | None) -> Caller:
        """Return the caller who sent this Authorization header. Raises KeyRefused,
        StoreError.
        """
        setup = self._setup
        if authorization:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() != "bearer":
                raise KeyRefused("send the key as Authorization: Bearer heedful_…")
            digest = sha256(token.strip().encode()).digest()
            now = time.monotonic()
            key, until = self._known.get(digest, (None, 0.0))
            if key is None or until < now or (key.expires or inf) <= time.time():
                key = await keys.holder(setup.store, token.strip())
                if len(self._known) >= MAX_CACHED_KEYS:
                    self._known.clear()
                self._known[digest] = key, now + KEY_CACHE_SECONDS
            scope = Scope(key.tenant, key.projects[0] if key.projects else "default")
            return Caller(setup=setup, key=key, scope=scope)
        made = len(keys.made)
        now = time.monotonic()
        if not setup.open or self._keyless < (made, now):
            if not setup.open or await setup.store.read(Scope(), keys.any_key):
                raise KeyRefused(
                    "no key was sent; send it as Authorization: Bearer heedful_…"
                )
            self._keyless = made, now + KEY_CACHE_SECONDS
        return local(setup)


def local(setup: Setup) -> Caller:
    """Return the caller who sends no key, and works in the scope of `setup`."""
    return Caller(
        setup=setup,
        key=Key(
            id="",
            tenant=setup.scope.tenant,
            name="local",
            projects=(),
            may=KEY_PERMISSIONS,
            by="",
            at=0.0,
        ),
        scope=setup.scope,
    )


BEARER_SCHEME = HTTPBearer(
    scheme_name="key",
    description="A key that `heedful key create` made.",
    auto_error=False,
)


class Route(APIRoute):
    """A route that checks its parameters and sends its answer without FastAPI, in a
    third of time.

    It reads a large body in a thread, so that nobody else waits for it. In the state of
    the request, `plain` is the body as JSON data. It is refused after `CallerDependency`, because
    a caller without permission gets 403 for any body. An answer is not checked again.
    """

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
        else:
            response = await self._answer(Request(scope, receive, send))
            await response(scope, receive, send)

    @cached_property
    def _answer(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return self.get_route_handler()

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that answers a request."""
        function = self.endpoint
        json_of = TypeAdapter(self.response_model)
        field: Any = self.body_field

        def read(request: Request, body: bytes) -> Any:
            state = request.scope["state"]
            state["wrong"] = ()
            try:
                state["plain"] = plain = json.loads(body) if body else None
            except (ValueError, RecursionError) as error:
                found = {
                    "loc": ("body",),
                    "type": "json",
                    "msg": f"it cannot be parsed: {error}",
                }
                state["wrong"] = [found]
                return None
            if plain is None:
                state["wrong"] = [
                    {"loc": ("body",), "type": "missing", "msg": "Field required"}
                ]
                return None
            value, state["wrong"] = field.validate(plain, {}, loc=("body",))
            return value

        async def answer(request: Request) -> Response:
            value = None
            headers = Response()
            del headers.headers["content-length"]
            headers.status_code = self.status_code or 200
            if field is not None:
                body = await request.body()
                large = len(body) > MIN_THREAD_BODY_BYTES
                value = (
                    await asyncio.to_thread(read, request, body)
                    if large
                    else read(request, body)
                )
            wrong: list[Any] = []
            values = await _arguments(self.dependant, request, headers, wrong)
            if wrong := [*wrong, *request.scope["state"].get("wrong", ())]:
                raise RequestValidationError(wrong)
            if field is not None:
                values[field.name] = value
            result = await function(**values)
            if isinstance(result, Response):
                return result
            content = json_of.dump_json(result, by_alias=True, warnings=False)
            response = Response(
                content, headers.status_code, media_type="application/json"
            )
            response.raw_headers.extend(headers.raw_headers)
            return response

        return answer


async def _arguments(
    dependant: Dependant, request: Request, response: Response, wrong: list[Any]
) -> dict[Any, Any]:
    """Return the arguments of a function of a route, but not the body; append what is
    `wrong`.
    """
    values: dict[Any, Any] = {}
    for one in dependant.dependencies:
        known = len(wrong)
        given = await _arguments(one, request, response, wrong)
        if len(wrong) == known:
            made: Any = one.call(**given)  # type: ignore[misc]
            values[one.name] = await made if iscoroutine(made) else made
    parameters: Any = (
        (dependant.path_params, request.path_params),
        (dependant.query_params, request.query_params),
        (dependant.header_params, request.headers),
    )
    for fields, sent in parameters:
        for one in fields:
            if one.alias in sent:  # the functions have the defaults
                where = one.field_info.in_.value, one.alias
                values[one.name], errors = one.validate(sent[one.alias], {}, loc=where)
                wrong += errors
    values |= {
        dependant.request_param_name: request,
        dependant.response_param_name: response,
    }
    values.pop(None, None)
    return values


class CallerDependency:
    """A FastAPI dependency: it returns the caller of a request whose key has a
    permission of `may`.

    It refuses a request that names a tenant or a project for which the key is not
    valid.
    """

    def __init__(self, *may: May) -> None:
        self.may: tuple[May, ...] = may

    async def __call__(self, request: Request, project: Project = None) -> Caller:
        state = request.scope["state"]
        caller: Caller = state["caller"]
        caller.needs(*self.may)
        body = state["plain"] if isinstance(state.get("plain"), dict) else {}
        for named in (request.query_params, body):
            for tenant in (named.get("tenant"), named.get("tenant_id")):
                if tenant not in (None, caller.key.tenant):
                    raise TenantMismatch(
                        f"the key does not belong to tenant {tenant!r}"
                    )
        if isinstance(body.get("project_id"), str):
            project = body["project_id"] or project
        return caller.within(project) if project else caller


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
        """Return the cursor of a list whose rows have integers as ids. Raises
        InvalidInput.
        """
        if self.cursor is None:
            return None
        if not self.cursor.isdecimal() or int(self.cursor) > MAX_ROW_ID:
            raise InvalidInput(
                "cursor", self.cursor, "`next` of the previous page, unchanged"
            )
        return int(self.cursor)


Paged = Annotated[Listing, Depends()]
