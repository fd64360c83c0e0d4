"""One completion as it was reported: what there is to judge, what was judged, what critics add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from errata.checks import critic
from errata.checks.roles import BIASES
from errata.compat.settings import ALIGNMENT, DRIFT
from errata.compat.told import BIAS, VALID
from errata.errors import InvalidInput
from errata.evaluate import Check, evaluated
from errata.loop.record import Attempt, Candidate, Evaluation, Finding
from errata.memory.arguments import fraction, several, texts
from errata.protocols import Context, Embedder, Model

SEVERITY = 0.5  # of a bias tag that comes without
ROLES = (ALIGNMENT, DRIFT, "pessimist", "summary")
Judge = Model | Embedder


@dataclass(frozen=True, slots=True)
class Completion:
    """What a caller reports of one loop; None is what it does not say. Raises InvalidInput.

    Scores are in 0..1; a bias tag has its `tag`, and where it is known its `severity` in 0..1.
    """

    task: str | None = None
    goal: str | None = None
    summary: str | None = None
    output: str | None = None
    alignment_score: float | None = None
    drift_score: float | None = None
    bias_tags: Sequence[Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        for name in ("task", "goal", "summary", "output"):
            texts(**{name: getattr(self, name) or ""})
        for name, score in (
            ("alignment_score", self.alignment_score),
            ("drift_score", self.drift_score),
        ):
            if score is not None:
                fraction(name, score)
        several("bias_tags", self.bias_tags or (), Mapping, "a list of objects, each with a tag")
        for one in self.bias_tags or ():
            if not isinstance(one.get("tag"), str) or not one["tag"].strip():
                raise InvalidInput("bias_tags", one, "objects, each with a tag, a text")
            fraction(f"severity of {one['tag']}", one.get("severity", SEVERITY))

    @property
    def reports(self) -> bool:
        """Whether there is anything to judge, or judged."""
        told = (self.summary, self.output, self.alignment_score, self.drift_score, self.bias_tags)
        return any(one is not None for one in told)

    @property
    def scores(self) -> dict[str, float]:
        """The scores that were given."""
        given = {ALIGNMENT: self.alignment_score, DRIFT: self.drift_score}
        return {name: float(score) for name, score in given.items() if score is not None}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The bias tags that were given, each once."""
        found = {one["tag"]: bias(one) for one in self.bias_tags or ()}
        return tuple(found.values())

    @property
    def value(self) -> Any:
        """The candidate: the output, the summary, or both; None where neither is told."""
        if self.output is None or self.summary is None:
            return self.summary if self.output is None else self.output
        return {"output": self.output, "summary": self.summary}

    def candidate(self, name: str) -> Candidate:
        """The candidate of the attempt of that name, by which it is known where it has no text."""
        if self.value is None:
            return Candidate(Candidate.of(name).digest)
        return Candidate.of(self.value)

    def agrees(self, attempt: Attempt, task: Any) -> bool:
        """Whether all that is told here is what is stored."""
        stored = attempt.evaluation or Evaluation()
        tags = {one.key: one.severity for one in stored.findings if one.key.startswith(BIAS)}
        told = {one.key: one.severity for one in self.findings}
        return (
            self.task in (None, task)
            and (self.value is None or self.candidate("").digest == attempt.candidate.digest)
            and self.scores.items() <= stored.scores.items()
            and (self.bias_tags is None or told == tags)
        )


def bias(one: Mapping[str, Any]) -> Finding:
    """A bias tag as a finding: it is told, and counted across attempts."""
    tag = one["tag"]
    what = f"{tag}: it {BIASES[tag]}" if tag in BIASES else tag
    fix = "Write that part so that this no longer holds"
    severity = float(one.get("severity", SEVERITY))
    return Finding("pessimist", what, fix, "warning", severity, f"{BIAS}{tag}", persistent=True)


async def judged(
    one: Completion,
    at: Context,
    judge: Judge | None,
    critics: Mapping[str, Check],
) -> Evaluation:
    """What is given, and for a score that is not what critics say.

    `critics` are the host's own, by role; for the other roles `judge` is asked: a Model, or an
    Embedder, which can judge alignment and drift. Raises InvalidInput where nobody can judge what
    is missing, CheckFailed, ModelError.
    """
    scores, findings = one.scores, one.findings
    missing = [role for role in (ALIGNMENT, DRIFT) if role not in scores]
    if not missing:
        return Evaluation(findings, scores)
    if one.value is None:
        raise InvalidInput(f"{missing[0]}_score", None, "given, or a summary or output to judge")
    able = [*missing, *_more(one)] if isinstance(judge, Model) else missing
    asked = {role: critics[role] for role in ROLES if role in critics}
    for role in able if judge is not None else ():
        asked.setdefault(role, critic(role, judge, goal=(one.goal or "") * (role == ALIGNMENT)))
    if lacking := [role for role in missing if role not in asked]:
        allowed = "given: there is no model to judge it; configure one, or critics"
        raise InvalidInput(f"{lacking[0]}_score", None, allowed)
    wanted = [check for role, check in asked.items() if role in (*missing, *_more(one))]
    said = await evaluated(one.value, at, wanted, None)
    kept = [f for f in said.findings if one.bias_tags is None or not f.key.startswith(BIAS)]
    return replace(said, findings=(*kept, *findings), scores={**said.scores, **scores})


def _more(one: Completion) -> list[str]:
    """What else is judged where critics are asked at all."""
    return ["pessimist"] * (one.bias_tags is None) + ["summary"] * (one.summary is not None)


__all__ = ["VALID", "Completion", "bias", "judged"]
