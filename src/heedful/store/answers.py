"""Answers in SQL: what calls with an idempotency key did, and what they were answered."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heedful.errors import LeaseLost
from heedful.protocols import Scope
from heedful.store.database import Access, Db

KEPT = 86_400.0  # seconds
ANSWER = -1


@dataclass(frozen=True, slots=True)
class Call:
    """A call that may come again: whose it is, its idempotency key, a digest of what it asks."""

    tenant: str
    caller: str
    once: str
    digest: str

    @property
    def values(self) -> dict[str, Any]:
        """Itself, as the statements take it."""
        return {name: getattr(self, name) for name in ("tenant", "caller", "once", "digest")}


@dataclass(frozen=True, slots=True)
class Before:
    """What is known of a call that was made before: its effects, in order, and its answer.

    `digest` is "" where it is new. `next` is the number of its next effect.
    """

    digest: str = ""
    effects: tuple[Mapping[str, Any], ...] = ()
    answer: Mapping[str, Any] | None = None
    next: int = 0


class SqlAnswers:
    """The answers of a store; every method is one transaction and raises StoreError."""

    def __init__(self, access: Access) -> None:
        self._access: Access = access

    async def before(self, call: Call) -> Before:
        """What is known of the call."""
        values = {**call.values, "after": time.time() - KEPT}

        def work(db: Db) -> Before:
            rows = db.named("read_answer", values).fetchall()
            if not rows:
                return Before()
            plain = {int(row["n"]): json.loads(row["record"]) for row in rows}
            answer = plain.pop(ANSWER, None)
            next = max(plain, default=-1) + 1
            return Before(rows[0]["digest"], tuple(plain.values()), answer, next)

        return await self._access.read(Scope(call.tenant), work)

    async def keep(self, call: Call, answer: Mapping[str, Any]) -> None:
        """Keep what the call was answered, and forget what is older than a day."""
        now = time.time()

        def work(db: Db) -> None:
            db.named("forget_answers", {"tenant": call.tenant, "before": now - KEPT})
            write(db, call, ANSWER, answer)

        await self._access.write(Scope(call.tenant), work, ("answers",))


def write(db: Db, call: Call, n: int, record: Mapping[str, Any]) -> None:
    """Write down an effect of the call, in its transaction.

    Raises LeaseLost where the same call is being answered elsewhere, which then did it already.
    """
    values = {**call.values, "n": n, "record": json.dumps(record), "now": time.time()}
    if not db.named("insert_answer", {**values, "before": values["now"] - KEPT}).fetchall():
        raise LeaseLost("the same call is being answered just now; ask again")
