"""What is written down when a loop is decided: the same for every host. Pure."""

from __future__ import annotations

from dataclasses import replace

from heedful.decisions import standing
from heedful.loop.decide import Policy, Verdict, decide
from heedful.loop.record import Attempt, Loop
from heedful.protocols import Entry


def attempted(loop: Loop, attempt: Attempt, now: float) -> Loop:
    """The loop with one more attempt; where there are overrides, some may have expired by now."""
    loop = loop.then(attempt)
    return replace(loop, at=now) if loop.overrides else loop


def decided(loop: Loop, policy: Policy, verdict: Verdict) -> Entry:
    """That the verdict fell, at the time of the loop; the epoch is its journal's to fill in."""
    worn = standing(loop, policy)
    return Entry(loop.id, 0, verdict=verdict, standing=worn, decided=loop.at)


def cancelled(loop: Loop, policy: Policy, by: str, now: float) -> tuple[Loop, Verdict, Entry]:
    """The loop that somebody ends, its verdict, and what is written down of it."""
    loop = replace(loop, cancelled=by or "cancelled", at=now)
    verdict = decide(loop, policy)
    entry = decided(loop, policy, verdict)
    return loop, verdict, replace(entry, cancelled=loop.cancelled)
