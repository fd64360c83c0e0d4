"""Keys in SQL: who may call a service, for which tenant and projects, and what they may.

The audit in SQL: what was done through a service, by whom; a row is chained to that before.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from heedful.errors import Forbidden, InvalidInput, KeyRefused, NotFound, StoreUnavailable
from heedful.lessons.lesson import Scope
from heedful.redact import redacted, redacted_data
from heedful.store.database import Access, Db, Row

_log = logging.getLogger("heedful")
MAY = ("read", "write", "approve", "admin")
# In seconds: a key that is in use all the time is written down once in so long.
USED_EVERY = 60.0
_TOKEN = re.compile(r"heedful_([0-9a-f]{12})_([0-9a-f]{64})")
# Compared with where there is no such key, so that a guess takes as long as a wrong secret.
_NOBODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is stored, without its secret.

    `projects` is empty for all of the tenant's. `by` made it. Times are seconds since 1970.
    """

    id: str
    tenant: str
    name: str
    projects: tuple[str, ...]
    may: tuple[str, ...]
    by: str
    at: float
    expires: float | None = None
    used: float | None = None
    revoked: float | None = None

    @property
    def shown(self) -> str:
        """How a person recognises it: its beginning."""
        return f"heedful_{self.id}"


class SqlKeys:
    """The keys of a store; every method is one transaction and raises StoreError."""

    def __init__(self, access: Access) -> None:
        self._access: Access = access

    async def create(
        self,
        tenant: str,
        name: str,
        *,
        projects: Sequence[str] = (),
        may: Sequence[str] = ("read", "write"),
        by: str = "",
        expires: float | None = None,
        id: str = "",
    ) -> tuple[Key, str]:
        """A new key, and its text, which is known to nobody afterwards. Raises InvalidInput.

        `id` is one of `new_id`, where it has to be known before.
        The text is "" where the call was made before, and the key is that of then.
        """
        now = time.time()
        _allowed(tenant, name, projects, may, expires, now)
        secret = secrets.token_hex(32)
        held = tuple(one for one in MAY if one in may)
        name = redacted(name)  # which may be anything that is sent
        one = Key(id or new_id(), tenant, name, tuple(projects), held, by, now, expires)
        values = {
            **{field: getattr(one, field) for field in ("id", "tenant", "name", "by", "expires")},
            "hash": _hash(secret),
            "projects": json.dumps(one.projects),
            "may": json.dumps(one.may),
            "now": now,
        }

        def work(db: Db) -> Key:
            db.named("insert_key", values)
            return one

        made = await self._access.write(Scope(tenant), work, ("keys",))
        return made, f"{made.shown}_{secret}" if made.id == one.id else ""

    async def holder(self, token: str) -> Key:
        """Whose key that is. Raises KeyRefused where it is unknown, revoked or expired."""
        parts = _TOKEN.fullmatch(token)
        row = None
        if parts:
            row = await self._access.read(
                Scope(), lambda db: db.named("find_key", {"id": parts[1]}).fetchone()
            )
        given = _hash(parts[2]) if parts else _NOBODY
        same = hmac.compare_digest(given, row["hash"] if row else _NOBODY)
        one, now = (_key(row), time.time()) if row and same else (None, 0.0)
        if one is None or one.revoked is not None or (one.expires or inf) <= now:
            raise KeyRefused("the key is unknown, revoked or expired; heedful key create makes one")
        if (one.used or 0.0) < now - USED_EVERY:
            await self._used(one, now)
        return one

    async def _used(self, one: Key, now: float) -> None:
        """Write down that it is used; where nothing can be written, what only reads goes on."""
        values = {"tenant": one.tenant, "id": one.id, "now": now}

        def work(db: Db) -> None:
            db.named("use_key", values)

        try:
            await self._access.write(Scope(one.tenant), work, ("keys",))
        except StoreUnavailable as error:
            _log.warning("the use of key %s was not written down: %s", one.id, error)

    async def any(self) -> bool:
        """Whether there is a key, of whatever tenant.

        One that was revoked counts: who revokes the last one shuts the service, and opens nothing.
        """
        return bool(
            await self._access.read(Scope(), lambda db: db.named("any_key").fetchone()["n"])
        )

    async def newest(
        self, tenant: str, limit: int, after: tuple[float, str] | None = None
    ) -> list[Key]:
        """The keys of a tenant, newest first, beginning `after` the one made then, with that id."""
        at, id = after or (inf, "")
        values = {"tenant": tenant, "at": at, "id": id, "limit": limit}
        return await self._access.read(
            Scope(tenant), lambda db: [_key(row) for row in db.named("list_keys", values)]
        )

    async def revoke(self, tenant: str, id: str, projects: Sequence[str] = ()) -> Key:
        """Let a key be good for nothing from now on; again changes nothing.

        With `projects` one that is bound to some of them alone. Raises NotFound, Forbidden.
        """
        id = id_of(id)
        values = {"tenant": tenant, "id": id, "now": time.time()}

        def work(db: Db) -> Key:
            rows = db.named("revoke_key", values).fetchall()
            if not rows:
                raise NotFound("key", id, f"the keys of {tenant}")
            one = _key(rows[0])
            if projects and not (one.projects and set(one.projects) <= set(projects)):
                raise Forbidden(f"key {one.shown} is for other projects than {', '.join(projects)}")
            return one

        return await self._access.write(Scope(tenant), work, ("keys",))


def new_id() -> str:
    """The id of a key that is to be made: 12 hex digits."""
    return secrets.token_hex(6)


def id_of(key: str) -> str:
    """The id of a key that is named by it, by how it begins, or as a whole.

    >>> id_of("heedful_0cb7fbdbffce")
    '0cb7fbdbffce'
    """
    parts = _TOKEN.fullmatch(key)
    return parts[1] if parts else key.removeprefix("heedful_")


def _allowed(
    tenant: str,
    name: str,
    projects: Sequence[str],
    may: Sequence[str],
    expires: float | None,
    now: float,
) -> None:
    for project in projects or ("default",):
        Scope(tenant, project)  # raises InvalidInput
    if not name or len(name) > 200 or not name.isprintable():
        raise InvalidInput("name", name, "1 to 200 printable characters")
    if not may or not set(may) <= set(MAY):
        raise InvalidInput("may", list(may), f"at least one of {', '.join(MAY)}")
    if expires is not None and not now < expires < inf:
        raise InvalidInput("expires", expires, "a time that is still to come")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _key(row: Row) -> Key:
    plain: dict[str, Any] = {name: row[name] for name in Key.__slots__}
    lists = {name: tuple(json.loads(plain[name])) for name in ("projects", "may")}
    return Key(**{**plain, **lists})


COLUMNS = ("tenant", "n", "at", "by", "action", "subject", "detail", "previous")


@dataclass(frozen=True, slots=True)
class Verified:
    """What became of looking at every row of a tenant's audit.

    `broken` is the number of the first row that is not what was written, or is missing; 0 where all
    are whole. `head` is the hash of the last row: whoever keeps it elsewhere can see that nobody
    wrote the whole chain anew.
    """

    tenant: str
    rows: int
    head: str
    broken: int = 0
    what: str = ""


def append(
    db: Db, tenant: str, by: str, action: str, subject: str, detail: Mapping[str, Any]
) -> None:
    """Add a row, in the transaction of what it tells of."""
    row = db.named("next_audit", {"tenant": tenant}).fetchall()[0]
    values = {
        "tenant": tenant,
        "n": row["n"],
        "at": time.time(),
        "by": redacted(by),
        "action": action,
        "subject": redacted(subject),
        "detail": json.dumps(redacted_data(dict(detail)), sort_keys=True),
        "previous": row["hash"],
    }
    values["hash"] = _hash_audit(values)
    db.named("insert_audit", values)
    db.named("set_audit_head", values)


class SqlAudit:
    """The audit of a store; every method is one transaction and raises StoreError."""

    def __init__(self, access: Access) -> None:
        self._access: Access = access

    async def newest(self, tenant: str, limit: int, before: int = 0) -> list[dict[str, Any]]:
        """Rows as plain data, the newest first, those `before` a number where one is given."""
        values = {"tenant": tenant, "before": before, "limit": limit}

        def work(db: Db) -> list[dict[str, Any]]:
            rows = [dict(row) for row in db.named("newest_audit", values).fetchall()]
            return [{**row, "detail": json.loads(row["detail"])} for row in rows]

        return await self._access.read(Scope(tenant), work)

    async def verify(self, tenant: str, kept: str = "") -> Verified:
        """Look at every row: whether it is as it was written, and none is missing.

        With `kept`, a `head` of before, also whether its row is among them: one that is not tells
        that the whole chain was written anew.
        """
        return await self._access.apart(Scope(tenant), lambda db: _verify(db, tenant, kept))


def _verify(db: Db, tenant: str, kept: str) -> Verified:
    values = {"tenant": tenant}
    head = db.named("audit_head", values).fetchone()
    end, last = (int(head["n"]), str(head["hash"])) if head else (0, "")
    previous, n, found = "", 0, not kept
    for row in db.named("all_audit", values):
        n += 1
        if row["n"] != n:
            return Verified(tenant, end, last, n, f"row {n} is missing")
        if row["previous"] != previous or row["hash"] != _hash_audit(row):
            return Verified(tenant, end, last, n, f"row {n} is not what was written")
        previous = row["hash"]
        found = found or previous == kept
    if (n, previous) != (end, last):
        return Verified(tenant, end, last, n + 1, f"row {n + 1} is missing")
    if not found:
        return Verified(tenant, end, last, max(end, 1), f"no row has the hash {kept}")
    return Verified(tenant, end, last)


def _hash_audit(row: Row | Mapping[str, Any]) -> str:
    told = json.dumps([row[name] for name in COLUMNS])
    return hashlib.sha256(told.encode()).hexdigest()
