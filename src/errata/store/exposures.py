"""What loops were shown, and what came of it, in SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

from errata.protocols import Scope
from errata.store.reflections import key_of
from errata.store.statements import statements

if TYPE_CHECKING:
    from errata.memory.proof import Exposure, Outcome

Db = sqlite3.Connection


def expose(
    db: Db, scope: Scope, exposures: Sequence[Exposure], outcome: Outcome | None, now: float
) -> None:
    """Write down what a loop was shown, once, and how it ended."""
    for one in exposures:
        kind, _, signature = str(one.lesson).partition("/")
        values = {
            **key_of(scope),
            "loop": one.loop,
            "kind": kind,
            "signature": signature,
            "shown": one.shown,
            "share": one.share,
            "together": one.together,
            "examples": json.dumps(one.examples),
            "now": now,
        }
        db.execute(statements()["insert_exposure"], values)
