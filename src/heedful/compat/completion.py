"""One completion as it is reported: what there is to judge, and who judges what is not told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from heedful.checks import critic
from heedful.checks.roles import BIASES
from heedful.compat.settings import ALIGNMENT, DRIFT
from heedful.compat.told import BIAS
from heedful.errors import InvalidInput
from heedful.evaluate import Check, evaluated
from heedful.loop.record import Attempt, Candidate, Evaluation, Finding
from heedful.memory.arguments import fraction, several, texts
from heedful.protocols import Context, Embedder, Model
from heedful.redact import redacted

SEVERITY = 0.5  # of a bias tag that comes without
PESSIMIST, SUMMARY = "pessimist", "summary"
Judge = Model | Embedder


@dataclass(frozen=True, slots=True)
class Completion:
    """What a caller tells of one run of a loop; None is what it does not tell.

    Scores are in 0..1; a bias tag has its `tag`, and where it is known its `severity` in 0..1.
    Raises InvalidInput.
    """

    task: str | None = None
    goal: str | None = None
    summary: str | None = None
    output: str | None = None
    alignment_score: float | None = None
    drift_score: float | None = None
    bias_tags: Sequence[Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        told = {name: getattr(self, name) for name in ("task", "goal", "summary", "output")}
        texts(**{name: text for name, text in told.items() if text is not None})
        for name, score in self.scores.items():
            fraction(f"{name}_score", score)
        tags = self.bias_tags or ()
        several("bias_tags", tags, Mapping, "a list of objects, each with a tag")
        for one in tags:
            tag = one.get("tag")
            if not isinstance(tag, str) or not tag.strip():
                raise InvalidInput("tag", tag, "the name of a bias, a text")
            fraction(f"severity of {tag}", one.get("severity", SEVERITY))

    @property
    def reports(self) -> bool:
        """Whether it tells anything of what was done."""
        told = (self.summary, self.output, self.alignment_score, self.drift_score, self.bias_tags)
        return any(one is not None for one in told)

    @property
    def scores(self) -> dict[str, float]:
        """The scores that are told."""
        given = {ALIGNMENT: self.alignment_score, DRIFT: self.drift_score}
        return {name: score for name, score in given.items() if score is not None}

    @property
    def missing(self) -> list[str]:
        """The scores that are not."""
        return [name for name in (ALIGNMENT, DRIFT) if name not in self.scores]

    @property
    def evaluation(self) -> Evaluation | None:
        """What is told of scores and of bias tags, each tag once."""
        findings = tuple({one["tag"]: bias(one) for one in self.bias_tags or ()}.values())
        scores = {name: float(score) for name, score in self.scores.items()}
        return Evaluation(findings, scores) if findings or scores else None

    @property
    def value(self) -> Any:
        """The output, the summary, or both; None where neither is told."""
        if self.output is None or self.summary is None:
            return self.summary if self.output is None else self.output
        return {"output": self.output, "summary": self.summary}

    def about(self, task: Any) -> bool:
        """Whether it is about that task, as far as it says what it is about."""
        return self.task is None or redacted(self.task) == task

    def agrees(self, attempt: Attempt) -> bool:
        """Whether all that it tells is what is stored of an attempt."""
        stored = attempt.evaluation or Evaluation()
        told = self.evaluation or Evaluation()
        tags, known = (
            {one.key: one.severity for one in of.findings if one.key.startswith(BIAS)}
            for of in (told, stored)
        )
        return (
            (self.value is None or Candidate.of(self.value).digest == attempt.candidate.digest)
            and told.scores.items() <= stored.scores.items()
            and (self.bias_tags is None or tags == known)
        )


def bias(one: Mapping[str, Any]) -> Finding:
    """A bias tag as a finding: it is told, and counted across attempts."""
    tag = redacted(one["tag"])
    what = f"{tag}: it {BIASES[tag]}" if tag in BIASES else tag
    fix = "Write that part so that this no longer holds"
    severity = float(one.get("severity", SEVERITY))
    return Finding(PESSIMIST, what, fix, "warning", severity, f"{BIAS}{tag}", persistent=True)


@dataclass(frozen=True, slots=True)
class Reflecting:
    """Judges, as a check, what a completion does not tell. Asked once a completion."""

    told: Completion
    critics: Mapping[str, Check]
    name: ClassVar[str] = "reflection"

    async def __call__(self, candidate: Any, at: Context) -> Evaluation:
        """What the critics say; bias tags that are told are not judged. Raises as they do."""
        one = self.told
        own = [check for role, check in self.critics.items() if role != SUMMARY]
        said = await evaluated(one.summary if one.output is None else one.output, at, own, None)
        if SUMMARY in self.critics:
            at = at if one.output is None else replace(at, data=one.output)
            summed = await evaluated(one.summary, at, [self.critics[SUMMARY]], None)
            said = replace(
                said,
                findings=(*said.findings, *summed.findings),
                scores={**said.scores, **summed.scores},
                usage=said.usage + summed.usage,
            )
        return said


def reflecting(
    one: Completion, judge: Judge | None, critics: Mapping[str, Check], goal: str
) -> list[Check]:
    """Who judges what is missing, as a check; nobody where nothing is.

    `critics` are the host's own, by role; for the others `judge` is asked: a Model, or an Embedder,
    which can judge alignment and drift. Raises InvalidInput where nobody can.
    """
    missing = one.missing
    if not missing:
        return []
    if one.value is None:
        raise InvalidInput(f"{missing[0]}_score", None, "told, or a summary or an output to judge")
    also = [PESSIMIST] * (one.bias_tags is None) + [SUMMARY] * (one.summary is not None)
    asked = {role: critics[role] for role in (*missing, *also) if role in critics}
    able = (*missing, *also) if isinstance(judge, Model) else missing if judge is not None else ()
    for role in able:
        about = goal if role == ALIGNMENT else ""
        asked.setdefault(role, critic(role, judge, goal=about))
    for role in missing:
        if role not in asked:
            how = "told: there is no model to judge it; configure one (HEEDFUL_MODEL), or critics"
            raise InvalidInput(f"{role}_score", None, how)
    return [Reflecting(one, asked)]
