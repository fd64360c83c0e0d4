"""An override from outside: whoever answers for a loop lets it go on, without driving it."""

from __future__ import annotations

import time
from dataclasses import replace

from errata.codec import policy_from
from errata.decisions import standing
from errata.errors import OverrideRefused
from errata.journal import Durable
from errata.loop.decide import Again, Done, Policy, Verdict, admit, overridden
from errata.loop.record import Override
from errata.loop.stop import counts_scope, rule_name
from errata.protocols import Entry, Scope, Store, Stored
from errata.reports import reworded
from errata.store import open_store


async def override(
    loop: str,
    rule: str,
    *,
    by: str,
    why: str = "",
    decisions: int = 1,
    until: float | None = None,
    store: Store | str = "errata.db",
    scope: Scope | None = None,
) -> Verdict:
    """Let a stored loop go on past one rule; one that has stopped reopens, and can be resumed.

    `decisions` is how many it lifts, `until` (seconds since 1970) when it expires. The override
    and the new decision are one transaction. Raises OverrideRefused where `Run.override` does, and
    where the loop was stopped by what is the host's own code; NotFound; LeaseLost where another
    process drives the loop just now.
    """
    opened = open_store(store) if isinstance(store, str) else store
    scope = scope or Scope()
    stored = await opened.read(scope, loop)  # NotFound, where claiming would create it
    given, policy = Override(rule, by, why, decisions, until=until), _policy(stored)
    admit(given, _last(stored), policy, time.time())  # refused, it takes the loop from nobody
    journal = Durable(opened, scope, loop, known=True)
    async with journal.at_work():
        stored = await journal.claim(stored.head)
        try:
            policy, was = _policy(stored), _last(stored)  # somebody may have decided in between
            before = replace(stored.loop, improves=policy.improvement, at=time.time())
            if any(map(counts_scope, policy.rules)):
                before = replace(before, echoes=await journal.echoes())
            after, verdict = overridden(before, policy, was, given)
            verdict = reworded(after, verdict)
        except OverrideRefused:
            await journal.commit(Entry(loop, 0, leaves=True))
            raise
        entry = Entry(loop, 0, override=given, leaves=True)
        if isinstance(was, Done):
            worn = standing(before, policy)
            entry = replace(entry, verdict=verdict, standing=worn, decided=before.at)
        await journal.commit(entry)
    return verdict


def _last(stored: Stored) -> Verdict:
    return stored.verdicts[-1] if stored.verdicts else Again()


def _policy(stored: Stored) -> Policy:
    """The policy as it is stored. Raises OverrideRefused where that is not all that stops it."""
    policy = policy_from(stored.head.policy)
    known = {rule_name(rule) for rule in policy.rules} | {"cancelled", "unscored"}
    last = _last(stored)
    stops = [stop.rule for stop in last.stopped_by] if isinstance(last, Done) else []
    own = [f"{rule!r}, a rule" for rule in stops if rule not in known]
    if stops and stored.head.policy.get("min_gain") is None:
        own.append(f"{stops[0]!r} under an improvement")
    if own:
        raise OverrideRefused(
            f"the loop was stopped by {own[0]} that is code of its host; "
            "override it there, with Run.override"
        )
    return policy
