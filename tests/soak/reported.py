"""What must hold of loops that many reported at once, judged from what is stored by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from heedful.loop.codec import verdict_to
from heedful.loop.decide import Again
from heedful.store.records import StoredLoop

# The number of an attempt of a loop -> its output, and the verdict as plain data.
Acknowledged = Mapping[int, tuple[Any, Any]]


def problems(
    stored: StoredLoop, acknowledged: Acknowledged, overrides: int, most: int
) -> Iterator[str]:
    """What does not hold of a loop of `most` attempts, of which so much was acknowledged."""
    yield from _attempts(stored, acknowledged)
    yield from _decisions(stored, most)
    lifted = Counter(
        one.override
        for verdict in stored.verdicts
        if isinstance(verdict, Again)
        for one in verdict.lifted
    )
    used = [one.used for one in stored.loop.overrides]
    if used != [lifted[n] for n in range(len(used))]:
        yield f"overrides were used {used} times, decisions say {dict(lifted)}"
    if any(one.used > one.decisions for one in stored.loop.overrides):
        yield "an override was used too often"
    if len(stored.loop.attempts) > most + sum(used):
        yield f"{len(stored.loop.attempts)} attempts, {most} allowed and {sum(used)} lifted"
    if len(used) != overrides:
        yield f"{len(used)} overrides, {overrides} acknowledged"


def _attempts(stored: StoredLoop, acknowledged: Acknowledged) -> Iterator[str]:
    """Each attempt was acknowledged as it is, and each that was acknowledged is there."""
    if len(acknowledged) != len(stored.loop.attempts):
        yield f"{len(stored.loop.attempts)} attempts, {len(acknowledged)} acknowledged"
    for attempt, value in zip(stored.loop.attempts, stored.values, strict=True):
        output, verdict = acknowledged.get(attempt.number, (None, None))
        first = next(one for one in stored.decisions if one.attempt == attempt.number)
        if output is None or value != output or verdict != verdict_to(first.verdict):
            yield f"attempt {attempt.number} is not the one that was acknowledged"


def _decisions(stored: StoredLoop, most: int) -> Iterator[str]:
    """No attempt came when it was not its turn, no decision let a limit pass."""
    number, at_work = 0, True
    for decision in stored.decisions:
        reported = decision.attempt > number
        if reported and (decision.attempt != number + 1 or not at_work):
            yield f"attempt {decision.attempt} was taken though it was not its turn"
        number, verdict = decision.attempt, decision.verdict
        at_work = isinstance(verdict, Again)
        if isinstance(verdict, Again) and number >= most and not verdict.lifted:
            yield f"after attempt {number} of {most} it went on without an override"
