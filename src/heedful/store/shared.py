"""The rules that a team shares, in a store: which it may share, and which it follows.

A rule that comes from the file of a repository has the source `shared:DIGEST TRUST`. So
a rule that is gone from the file, or that the file trusts less, is revoked alone.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.lessons.lesson import Lesson
from heedful.lessons.lesson_check import LessonCheck
from heedful.lessons.scope import Scope
from heedful.store import hardened, lessons, quarantine
from heedful.store.connection import Db, resumable, token

SHARED_SOURCE_PREFIX = "shared:"
# The lesson of a rule about an error is told when the error comes, not before.
ERROR_META = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedRules:
    """What following a file changed: rules that are new, known, gone and that wait."""

    new: int = 0
    known: int = 0
    gone: int = 0
    waiting: int = 0


def reviewed(db: Db, scope: Scope, taken: bool = False) -> list[Mapping[str, Any]]:
    """Return the lessons that may be shared, as data.

    A person wrote or released them, or evidence verified them. `rule` is that of their
    check of calls, {} without one. With `taken`, includes the rules of the file.
    """
    rows = db.all("reviewed_lessons", scope, taken=taken)
    return [
        {
            **dict(row),
            "meta": json.loads(row["meta"]),
            "rule": json.loads(row["rule"] or "{}"),
        }
        for row in rows
        if taken or not row["source"].startswith(SHARED_SOURCE_PREFIX)
    ]


def opening(db: Db, scope: Scope, limit: int) -> dict[int, str]:
    """Return the followed rules that are about no error: their texts by id."""
    rows = db.all("opening_rules", scope, limit=limit)
    return {row["id"]: row["text"] for row in rows}


@resumable(result=FollowedRules)
def follow(
    db: Db,
    scope: Scope,
    rules: Sequence[Lesson],
    checks: Sequence[str],
    *,
    by: str,
    why: str,
) -> FollowedRules:
    """Store the rules of a file in the place of those that it had before.

    Each rule has a check: the words that it forbids in calls, or "". `by` approved the
    file. Raises InvalidInput.
    """
    rows = db.run("shared_sources", {"scope": token(scope)}).fetchall()
    followed = {row["source"] for row in rows}
    sources = {rule.source for rule in rules}

    gone = sorted(followed - sources)
    for source in gone:
        quarantine.revoke(db, scope, source, by=by, why=why, dry_run=False)

    new = 0
    waiting = 0
    for rule, words in zip(rules, checks, strict=True):
        if rule.source in followed:
            continue
        new += 1
        (answer,) = lessons.upsert(db, scope, [rule], time.time())
        if answer.entry:
            waiting += 1
        elif words and hardened.read(db, scope, answer.id) is None:
            check = LessonCheck(
                lesson=answer.id,
                kind="call",
                rule={"words": words},
                about=f"this call has {words!r}",
                state="accepted",
            )
            hardened.settle(db, scope, check, by=by, why=why)
    return FollowedRules(
        new=new, known=len(rules) - new, gone=len(gone), waiting=waiting
    )
