"""What each decision of a loop rested on: a reading of what is recorded, never a second copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from heedful.loop.decide import Again, Lifted, Policy, Trigger, Verdict, triggers
from heedful.loop.measure import thousandths
from heedful.loop.record import Loop
from heedful.loop.stop import Echo, Fatigue, Stop, flat

if TYPE_CHECKING:
    from heedful.memory.proof import Exposure
    from heedful.protocols import Stored


@dataclass(frozen=True, slots=True)
class Standing:
    """How worn a loop was at a decision.

    `fatigue` is the level (0..1) and `change` what the last attempt added to it; `echoes` counts,
    for each finding of the last attempt, the attempts that had it.
    """

    fatigue: float = 0.0
    change: float = 0.0
    echoes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict as it was recorded, after how many attempts.

    `at` is when it was recorded and `decided` when it was made, in seconds since 1970.
    """

    attempt: int
    verdict: Verdict
    standing: Standing = Standing()
    at: float = 0.0
    decided: float = 0.0


@dataclass(frozen=True, slots=True)
class Known:
    """What a decision rests on that is made without driving the loop, read as one state.

    `driver` is who drives it just now, "" for nobody. `echoes` counts finding keys in other loops
    of the scope where a rule of its policy counts them, `exposures` are what it was shown.
    """

    stored: Stored
    driver: str = ""
    echoes: Mapping[str, int] = field(default_factory=dict)
    exposures: tuple[Exposure, ...] = ()


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Why one decision fell as it did.

    `reason` is a code: the first trigger's where the loop goes on, the rule's name where it stops,
    "passed" where it passed. `spoke` holds every rule that spoke, `lifted` those of them that were
    overridden. `rerun` is 0 for the first try. `labels` are those of the attempt.
    """

    loop: str
    attempt: int
    decided: str
    reason: str
    detail: str
    triggers: tuple[Trigger, ...]
    spoke: tuple[Stop, ...]
    lifted: tuple[Lifted, ...]
    standing: Standing
    labels: Mapping[str, str]
    at: float

    @property
    def rerun(self) -> int:
        """How many attempts there were after the first try."""
        return max(0, self.attempt - 1)


def latest(decisions: Sequence[Decision]) -> Verdict:
    """The newest verdict; of a loop about which nothing was decided, that it goes on."""
    return decisions[-1].verdict if decisions else Again()


def standing(loop: Loop, policy: Policy) -> Standing:
    """How worn the loop is under the policy's own fatigue and echo, or the shipped ones."""
    if loop.improves != policy.improvement:
        loop = replace(loop, improves=policy.improvement)
    rules = list(flat(policy.rules))
    tired = next((rule for rule in rules if isinstance(rule, Fatigue)), Fatigue())
    echo = next((rule for rule in rules if isinstance(rule, Echo)), Echo())
    level = tired.level(loop)
    before = tired.level(replace(loop, attempts=loop.attempts[:-1]))
    change = (thousandths(level) - thousandths(before)) / 1000
    return Standing(level, change, echo.counts(loop))


def echoing(loop: Loop) -> dict[str, int]:
    """Finding key -> in how many attempts of the loop it echoes.

    Counted since the last improvement, a persistent finding since the start: what was mended does
    not echo. Notes do not count.
    """
    since = max((n for n, better in enumerate(loop.improved) if better), default=0)
    counts: dict[str, int] = {}
    for index, attempt in enumerate(loop.attempts):
        findings = attempt.evaluation.findings if attempt.evaluation else ()
        counted = [f for f in findings if f.level != "note" and (f.persistent or index >= since)]
        for key in {finding.key for finding in counted}:
            counts[key] = counts.get(key, 0) + 1
    return counts


def echoes_before(loop: Loop, policy: Policy, decisions: Iterable[Decision]) -> Mapping[str, int]:
    """What the echo of the policy counted in the loops before, as its decisions say."""
    rules = (rule for rule in flat(policy.rules) if isinstance(rule, Echo))
    echo = next(rules, Echo())
    if echo.across == "loop":
        return {}
    loop = replace(loop, echoes={}, improves=policy.improvement)
    before: dict[str, int] = {}
    for decision in decisions:
        here = echo.counts(loop.upto(decision.attempt))
        for key, count in decision.standing.echoes.items():
            before[key] = max(0, count - here.get(key, 0))
    return before


def reasoning(loop: Loop, decisions: Iterable[Decision]) -> tuple[Reasoning, ...]:
    """What the recorded decisions of a loop rested on, oldest first."""
    return tuple(_reasoning(loop, decision) for decision in decisions)


def _reasoning(loop: Loop, decision: Decision) -> Reasoning:
    verdict = decision.verdict
    last = loop.attempts[decision.attempt - 1] if decision.attempt else None
    evaluation = last.evaluation if last else None
    found = triggers(evaluation, loop.goals) if evaluation else ()
    stops = () if isinstance(verdict, Again) else verdict.stopped_by
    if stops:
        decided, reason, detail = "stopped", stops[0].rule, "; ".join(stop.detail for stop in stops)
    elif isinstance(verdict, Again):
        decided, reason = "again", found[0].reason if found else ""
        detail = f"Triggered by {', '.join(dict.fromkeys(t.code for t in found))}" if found else ""
    else:
        decided, reason, detail = "passed", "passed", ""
    return Reasoning(
        loop.id,
        decision.attempt,
        decided,
        reason,
        detail,
        found,
        (*stops, *(one.stop for one in verdict.lifted)),
        verdict.lifted,
        decision.standing,
        last.labels if last else {},
        decision.at,
    )
