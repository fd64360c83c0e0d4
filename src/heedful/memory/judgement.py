"""A judgement: what one look at an episode says of one score, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from heedful.loop.record import Evaluation, Finding, Level
from heedful.loop.record import format_score as figure
from heedful.memory.course import Course, read
from heedful.memory.signal import MOST_EVIDENCE, shown
from heedful.redact import redact

SCORES = ("correctness", "helpfulness", "safety", "completeness", "efficiency")
# Of findings of one kind so many are told one by one; how many there are stands in the reason.
MOST_TOLD = 10
SEVERITY: dict[Level, float] = {"error": 1.0, "warning": 0.5, "note": 0.0}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is said of one of the `SCORES`: 0..1, None where it cannot be told; why, and by whom."""

    score: str
    value: float | None
    why: str
    findings: tuple[Finding, ...] = ()
    evidence: str = ""
    by: str = "code"


def evaluation(judged: Sequence[Judgement]) -> Evaluation:
    """The judgements as one evaluation, each of the five scores with a note that says why.

    Of several on one score the lowest counts. Where one of them cannot tell, there is no score,
    unless another is 0: nothing could raise that.
    """
    scores: dict[str, float] = {}
    findings: list[Finding] = []
    for score in SCORES:
        those = [one for one in judged if one.score == score]
        known = [one.value for one in those if one.value is not None]
        if known and (len(known) == len(those) or not min(known)):
            scores[score] = min(known)
        findings += (found for one in those for found in one.findings)
        findings.append(_note(score, scores.get(score), those))
    return Evaluation(tuple(findings), scores)


def _note(score: str, value: float | None, those: Sequence[Judgement]) -> Finding:
    by = ", ".join(dict.fromkeys(one.by for one in those))
    said = "unscored" if value is None else f"{figure(value)}, judged by {by}"
    why = "; ".join(one.why for one in those) or "nothing was given that judges it"
    evidence = ", ".join(dict.fromkeys(one.evidence for one in those if one.evidence))
    return Finding(score, f"{said}: {why}", "", "note", 0.0, f"{score}: why", False, evidence)


def found(
    seen: Course, score: str, what: str, places: Iterable[int], level: Level, fix: str = ""
) -> Finding:
    """A finding on a score, with the events that prove it."""
    return Finding(score, what, fix, level, SEVERITY[level], evidence=named(seen, places))


def named(seen: Course, places: Iterable[int]) -> str:
    """The ids of events, 20 at most; of those without one, where they stand, from 0."""
    kept = tuple(places)[:MOST_EVIDENCE]
    return ", ".join(shown(seen.events[at].id) or f"event {at}" for at in kept)


def quoted(text: str) -> str:
    """A text as it is told of in a finding: short, on one line and without secrets."""
    return shown(redact(read(text)))
