"""The rules of users: lessons, which are edited, exported and retired as others."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace

from heedful.lessons.scope import DAY_SECONDS, Scope
from heedful.lessons.user_rules import (
    MAX_RULE_DAYS,
    RULE_TYPE,
    RuleParts,
    StatedRule,
)
from heedful.store.connection import Db, Row, key_of
from heedful.store.rulings import name_of
from heedful.validation import Fields

# With the index lesson_type, which has no texts that nobody reviewed.
TOLD_RULES_SQL = """
and not unreviewed and state in ('unverified', 'verified')
order by last_seen desc, id desc limit 40
"""
SHOWN_MARK = "shown rules"


def listed(db: Db, scope: Scope) -> list[StatedRule]:
    """Return the rules of a scope in all states, last said first."""
    retirements = db.select(
        "subject, max(at) as at",
        "ruling",
        {**key_of(scope), "action": "retire"},
        "group by subject",
    )
    retired_at = {row["subject"]: row["at"] for row in retirements}
    rules = []
    for row in rule_rows(db, scope, "order by last_seen desc"):
        at = retired_at.get(name_of(row), 0.0) if row["state"] == "retired" else 0.0
        rules.append(replace(_rule_in(row), retired_at=at))
    return rules


def in_force(db: Db, scope: Scope) -> list[StatedRule]:
    """Return the rules that agents are told, last said first."""
    return list(map(_rule_in, rule_rows(db, scope, TOLD_RULES_SQL)))


def rule_rows(db: Db, scope: Scope, end: str) -> list[Row]:
    """Return the rules of a scope as rows of lessons; `end` completes the statement."""
    key = {**key_of(scope), "error_type": RULE_TYPE, "kind": "reflection"}
    return db.select("*", "lesson", key, end)


def _rule_in(row: Row) -> StatedRule:
    """Return the rule of a user that the row of a lesson stores.

    Nobody has read the text of a rule in quarantine, so it is left out; the rule has
    the id of its entry there instead.
    """
    waits = row["state"] == "quarantined"
    data = json.loads(row["data"])
    return StatedRule(
        text="" if waits else row["text"],
        id=row["id"],
        state=row["state"],
        trust=row["trust"],
        seen=row["seen"],
        first_said=row["first_seen"],
        last_said=row["last_seen"],
        is_old=time.time() - row["last_seen"] > MAX_RULE_DAYS * DAY_SECONDS,
        entry=(row["author"] or 0) if waits else 0,
        denied=data.get("denied") is True,
        allowed=data.get("denied") is False,
        parts=RuleParts() if waits else _parts_of(row["text"], data),
        files=data.get("files", {}),
    )


def _parts_of(text: str, data: Fields) -> RuleParts:
    """Return what a rule forbids and wants, as it was read when the user stated it.

    A text that somebody has changed since is read again.
    """
    if data.get("said") == text:
        return RuleParts.read(data)
    from heedful.lessons.rule_parts import parts_of  # it compiles long patterns

    return parts_of(text)


def broken_by(
    db: Db,
    scope: Scope,
    tool: str,
    arguments: Fields | str,
    *,
    rules: Sequence[StatedRule] = (),
) -> list[StatedRule]:
    """Return the user's rules that a call breaks: it does what they forbid.

    `rules` are further ones, such as those of all projects of the user.
    """
    every_rule = (*in_force(db, scope), *rules)
    if not every_rule:
        return []
    from heedful.lessons import rule_calls  # few users state rules

    return rule_calls.broken_rules(every_rule, tool, arguments)
