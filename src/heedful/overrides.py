"""An override from outside: whoever answers for a loop lets it go on, without driving it."""

from __future__ import annotations

import time
from dataclasses import replace

from heedful.codec import policy_from
from heedful.decisions import latest
from heedful.entries import decided
from heedful.errors import OverrideRefused
from heedful.loop.decide import Done, Policy, Verdict, overridden
from heedful.loop.record import Override
from heedful.loop.stop import rule_name
from heedful.outside import Turn, settled
from heedful.protocols import Entry, Scope, Store, Stored
from heedful.store import open_store
from heedful.store.runs import reworded


async def override(
    loop: str,
    rule: str,
    *,
    by: str,
    why: str = "",
    decisions: int = 1,
    until: float | None = None,
    store: Store | str = "heedful.db",
    scope: Scope | None = None,
) -> Verdict:
    """Let a stored loop go on past one rule; one that has stopped reopens, and can be resumed.

    `decisions` is how many it lifts, `until` (seconds since 1970) when it expires. The override
    and the new decision are one transaction. Raises OverrideRefused where `Run.override` does, and
    where the loop was stopped by what is the host's own code; NotFound; LeaseLost where another
    process drives the loop just now.
    """
    opened = open_store(store) if isinstance(store, str) else store
    given = Override(rule, by, why, decisions, until=until)

    async def lifted(turn: Turn) -> Verdict:
        stored = turn.known.stored
        was = latest(stored.decisions)
        policy = _policy(stored)
        before = replace(stored.loop, improves=policy.improvement, at=time.time())
        before = replace(before, echoes=turn.known.echoes)
        after, verdict = overridden(before, policy, was, given)
        turn.free()
        verdict = reworded(after, verdict)
        stopped = isinstance(was, Done)
        entry = decided(before, policy, verdict) if stopped else Entry(loop, 0)
        await turn.commit(replace(entry, override=given))
        return verdict

    return await settled(opened, scope or Scope(), loop, lifted)


def _policy(stored: Stored) -> Policy:
    """The policy as it is stored. Raises OverrideRefused where that is not all that stops it."""
    policy = policy_from(stored.head.policy)
    known = {rule_name(rule) for rule in policy.rules} | {"cancelled", "unscored"}
    last = latest(stored.decisions)
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
