"""What was ruled on lessons, by whom and why, in SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from heedful.memory.arguments import decides
from heedful.protocols import Scope
from heedful.redact import redacted_data
from heedful.store.database import Db
from heedful.store.reflections import key_of, storable

NOTHING_MORE: Mapping[str, Any] = MappingProxyType({})


def rule(
    db: Db,
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
    db.named("insert_ruling", values)
