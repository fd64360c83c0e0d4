"""Lessons listed page by page, and edited by a person, in SQL."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from heedful.errors import Changed, NotFound
from heedful.lessons import Change, Wanted
from heedful.memory.arguments import LARGEST
from heedful.protocols import Scope
from heedful.store import exposures as shown
from heedful.store import grouping, size
from heedful.store.database import Db, Row
from heedful.store.reflections import key_of

FLAGS = ("pinned", "apart")
# What a lesson says, and what may be done about it: not how often it was seen or shown.
EDITED = ("text", "tags", "state", "trust", "importance", "meta", *FLAGS)


def listed(db: Db, scope: Scope, wanted: Wanted, limit: int) -> list[Mapping[str, Any]]:
    """Lessons as plain data, the newest first, without words that are held back."""
    values = {
        **key_of(scope),
        "kind": wanted.kind,
        "error_type": wanted.error_type,
        "state": wanted.state,
        "tag": wanted.tag,
        "before": wanted.before,
        "limit": limit,
    }
    return list(map(_plain, db.named("list_reflections", values).fetchall()))


def one(db: Db, scope: Scope, id: int) -> Mapping[str, Any]:
    """The lesson of that id. Raises NotFound."""
    for found in listed(db, scope, Wanted(before=min(id, LARGEST - 1) + 1), 1):
        if found["id"] == id:
            return found
    raise NotFound("lesson", str(id), f"the memory of {scope.tenant}/{scope.project}")


def amend(
    db: Db, scope: Scope, id: int, edition: str, change: Change, by: str, why: str, now: float
) -> Mapping[str, Any]:
    """Change a lesson that is still of that edition, on record. Raises NotFound, Changed."""
    found = one(db, scope, id)
    if found["edition"] != edition:
        raise Changed("lesson", str(id), found["edition"])
    if change.pinned is not None:
        size.pin(db, scope, id, change.pinned, by, why, now)
    if change.apart is not None:
        grouping.set_apart(db, scope, [found["signature"]], change.apart, by, why, now)
    if change.restored:
        shown.restore(db, scope, id, by, why, now)
    return one(db, scope, id)


def _plain(row: Row) -> Mapping[str, Any]:
    told = {**dict(row), **{name: json.loads(row[name]) for name in ("tags", "meta")}}
    told |= {name: bool(row[name]) for name in FLAGS}
    said = json.dumps([told[name] for name in EDITED], sort_keys=True)
    return {**told, "edition": hashlib.sha256(said.encode("ascii")).hexdigest()[:16]}
