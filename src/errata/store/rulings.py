"""What was ruled on lessons, by whom and why, in SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from errata.memory.arguments import decides
from errata.protocols import Scope
from errata.redact import redacted_data
from errata.store.reflections import key_of, storable
from errata.store.statements import statements

NOTHING_MORE: Mapping[str, Any] = MappingProxyType({})


def rule(
    db: sqlite3.Connection,
    scope: Scope,
    action: str,
    subject: str,
    by: str,
    why: str,
    now: float,
    record: Mapping[str, Any] = NOTHING_MORE,
) -> None:
    """Put on record what was done to what; `record` is plain data. Raises InvalidInput.

    The subject is a lesson by `kind/signature`, so that the ruling outlives it, or a digest.
    """
    decides(by, why)
    values = {
        **key_of(scope),
        "action": action,
        "subject": storable(subject),
        "by": storable(by),
        "why": storable(why),
        "record": json.dumps(redacted_data(dict(record))),
        "now": now,
    }
    db.execute(statements()["insert_ruling"], values)
