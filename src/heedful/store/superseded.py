"""What a superseded lesson has, beside what took its place, in SQL."""

from __future__ import annotations

import json
from typing import Any

from heedful.store.database import Db


def carry(db: Db, dream: int, subject: int, successor: int) -> None:
    """Give the successor copies of the examples of a lesson that may be recalled.

    Each derives from the one that it copies, so that what a revocation removes it removes twice.
    """
    values: dict[str, Any] = {"dream": dream, "subject": subject, "successor": successor}
    for row in db.named("carried", values).fetchall():
        one = {**values, "example": row["id"]}
        one["copy"] = db.named("copy_example", one).fetchall()[0]["id"]
        for name in ("copy_origin", "copy_lineage", "copy_vector"):
            db.named(name, one)
        before = json.dumps({"state": row["state"]})
        told = {"what": "example", "subject": row["id"], "before": before}
        told |= {"successor": one["copy"], "why": ""}
        db.named("insert_supersession", {**values, **told})


def follow(db: Db, values: dict[str, Any]) -> None:
    """Let what was just learnt of a superseded lesson be recalled with what took its place.

    Of one that is not superseded there is nothing to do.
    `values`: the scope, and its `kind`, `signature` and id as `reflection`.
    """
    name = f"{values['kind']}/{values['signature']}"
    told = {**values, "name": name, "subject": values["reflection"]}
    for row in db.named("became", told).fetchall():
        if row["dream"] is not None:
            carry(db, row["dream"], values["reflection"], row["id"])
