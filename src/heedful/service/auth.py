"""Who calls: the key of a request, and what it may. A route names what it needs by a type.

::

    @router.get("/v1/things")
    async def things(caller: Reading, setup: RouteSetup, project: Project = None) -> Things:
        scope = caller.scope(project)
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request, Security
from fastapi.security import HTTPBearer

from heedful.errors import Forbidden, InvalidInput, KeyRefused, TenantMismatch
from heedful.lessons.lesson import Scope
from heedful.service.setup import Setup
from heedful.store import keys
from heedful.store import keys as audit
from heedful.store.keys import MAY, Key
from heedful.store.store import also

May = Literal["read", "write", "approve", "admin"]
KNOWN_FOR = 1.0
KNOWN = 10_000  # keys at a time
Project = Annotated[
    str | None,
    Query(description="The project; by default the first of the key.", max_length=200),
]
"""The project that a request names, as a parameter of a route: `project: Project = None`."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller: the id and the name of the key, its tenant, and what it may do.

    Empty `projects` means all projects of the tenant. `project` is used if a request names none.
    `key` is "" for a caller without a key, on an open service.
    """

    key: str
    name: str
    tenant: str
    projects: tuple[str, ...]
    may: frozenset[str]
    project: str = "default"

    @classmethod
    def holding(cls, key: Key) -> Caller:
        """Return the caller who has this key."""
        first = key.projects[0] if key.projects else "default"
        return cls(key.id, key.name, key.tenant, key.projects, frozenset(key.may), first)

    def scope(self, project: str | None = None, tenant: str | None = None) -> Scope:
        """Return the scope of a request. Raises Forbidden, TenantMismatch, InvalidInput.

        `tenant` is the tenant that the body names; it must be the key's own.
        """
        self.own(tenant)
        project = project or self.project
        if self.projects and project not in self.projects:
            raise Forbidden(
                f"the key is bound to {', '.join(self.projects)}, not to project {project!r}"
            )
        return Scope(self.tenant, project)

    def own(self, tenant: str | None) -> None:
        """Check that a named tenant is the key's own. Raises TenantMismatch."""
        if tenant is not None and tenant != self.tenant:
            raise TenantMismatch(f"the key belongs to another tenant than {tenant!r}")

    @property
    def by(self) -> str:
        """Return the name under which the caller goes on record."""
        return f"{self.name} ({self.key})" if self.key else self.name

    def record(self, action: str, subject: str, **detail: Any) -> None:
        """Write an audit entry in the transaction of the next effect.

        `action` is what a route does, such as `override`; `subject` is what it is done to; `detail`
        is plain data.
        """
        also(lambda db: audit.append(db, self.tenant, self.by, action, subject, detail))

    def needs(self, may: May) -> None:
        """Check that the caller has this permission. Raises Forbidden."""
        if may not in self.may:
            has = ", ".join(one for one in MAY if one in self.may)
            raise Forbidden(f"this needs a key that may {may}; yours may {has}")


class Callers:
    """The callers, identified by the keys that they send.

    The result of a look-up is kept for `KNOWN_FOR` seconds. A key revoked by another process may
    still be accepted for that long.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._known: OrderedDict[bytes, tuple[Key, float]] = OrderedDict()

    async def identified(self, authorization: str | None) -> Caller:
        """Return the caller who sends this header. Raises KeyRefused, StoreError."""
        if authorization:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() != "bearer":
                raise KeyRefused("send the key as Authorization: Bearer heedful_…")
            return Caller.holding(await self._holder(token.strip()))
        if not self._setup.open or await self._setup.store.read(Scope(), keys.any_key):
            raise KeyRefused("no key was sent: Authorization: Bearer heedful_…")
        scope = self._setup.scope
        return Caller("", "local", scope.tenant, (), frozenset(MAY), scope.project)

    async def _holder(self, token: str) -> Key:
        digest = sha256(token.encode()).digest()
        now = time.monotonic()
        one, until = self._known.get(digest, (None, 0.0))
        if one is None or until < now or (one.expires or inf) <= time.time():
            one = await keys.holder(self._setup.store, token)
            self._known[digest] = one, now + KNOWN_FOR
            if len(self._known) > KNOWN:
                self._known.popitem(last=False)
        return one

    def forget(self) -> None:
        """Forget all look-ups, because a key was revoked."""
        self._known.clear()


_bearer = HTTPBearer(
    scheme_name="key", description="`heedful key create` makes one.", auto_error=False
)


async def _caller(request: Request) -> Caller:
    """Return the caller, whom the middleware has identified."""
    found: Caller = request.scope["state"]["caller"]
    names = [name for name, _ in request.query_params.multi_items()]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InvalidInput(twice[0][:100], "given twice", "given once")
    for name in ("tenant", "tenant_id"):
        found.own(request.query_params.get(name))
    return found


class _Needs:
    """A FastAPI dependency: the caller, if the key has the permission."""

    def __init__(self, may: May) -> None:
        self.may: May = may

    async def __call__(
        self, request: Request, _: Annotated[object, Security(_bearer)] = None
    ) -> Caller:
        caller = await _caller(request)
        caller.needs(self.may)
        return caller


Reading = Annotated[Caller, Depends(_Needs("read"))]
"""The caller, who may read; else 403."""
Writing = Annotated[Caller, Depends(_Needs("write"))]
"""The caller, who may write; else 403."""
Approving = Annotated[Caller, Depends(_Needs("approve"))]
"""The caller, who may approve: overrides, and what is done about quarantine; else 403."""
Administering = Annotated[Caller, Depends(_Needs("admin"))]
"""The caller, who may administer: keys and audit; else 403."""
