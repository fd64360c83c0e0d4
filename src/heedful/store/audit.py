"""The audit in SQL: what was done through a service, by whom; a row is chained to that before."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heedful.protocols import Scope
from heedful.redact import redacted, redacted_data
from heedful.store.database import Access, Db, Row

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
    values["hash"] = _hash(values)
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
        if row["previous"] != previous or row["hash"] != _hash(row):
            return Verified(tenant, end, last, n, f"row {n} is not what was written")
        previous = row["hash"]
        found = found or previous == kept
    if (n, previous) != (end, last):
        return Verified(tenant, end, last, n + 1, f"row {n + 1} is missing")
    if not found:
        return Verified(tenant, end, last, max(end, 1), f"no row has the hash {kept}")
    return Verified(tenant, end, last)


def _hash(row: Row | Mapping[str, Any]) -> str:
    told = json.dumps([row[name] for name in COLUMNS])
    return hashlib.sha256(told.encode()).hexdigest()
