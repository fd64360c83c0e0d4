"""The recorded calls of agents, from which follows how the rules of users were kept."""

import json

from heedful.lessons.rule_ledger import PastCall, RuleTelling
from heedful.lessons.scope import Scope
from heedful.lessons.user_rules import TELLING_CODES
from heedful.store.connection import Db


def recorded(db: Db, scope: Scope) -> tuple[list[PastCall], list[RuleTelling]]:
    """Return the recorded calls of a scope, oldest first, and what agents were told."""
    calls: dict[object, PastCall] = {}
    tellings = []
    for number, row in enumerate(db.all("recorded_calls", scope)):
        record = json.loads(row["record"])
        code = record["code"]
        if row["type"] == "tool_call":
            # Hooks in two settings report a call twice.
            key = (row["session"], row["call"]) if row["call"] else number
            calls[key] = PastCall(
                session=row["session"],
                id=row["call"],
                tool=record["tool"],
                arguments=record["arguments"] or {},
                at=row["at"],
                ended=bool(row["ended"]),
            )
        elif code in TELLING_CODES:
            tellings.append(
                RuleTelling(
                    session=row["session"],
                    call=row["call"],
                    digests=frozenset(record["content"].split()),
                    code=code,
                    at=row["at"],
                )
            )
    return list(calls.values()), tellings
