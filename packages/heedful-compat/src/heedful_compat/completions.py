"""One run of a loop as a caller of loop guardrails reports it, and who judges it.

A caller may report the two scores and the bias tags of a run. A model judges what is
missing: the alignment, the drift and the bias tags of the output, and the summary.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from heedful.checks import critic, critique
from heedful.checks.evaluate import Check, Context, evaluated
from heedful.errors import InvalidInput
from heedful.loop import record
from heedful.loop.policies import ALIGNMENT_SCORE, DRIFT_SCORE
from heedful.models.contract import Model
from heedful.redact import redact
from heedful.store.loops import NOTED_FINDING_PREFIX as BIAS_PREFIX
from heedful.validation import (
    Document,
    Fields,
    as_float,
    as_integer,
    check_integer,
    check_sequence,
    check_share,
    require,
)

# What gives the scores that a caller does not report: a function gets the messages.
Judge = Model | Callable[..., Any]
# Each is its name, or has a `tag` and, if known, a `severity`.
BiasTags = Sequence[Fields | str]
BIAS_TAG_FIELDS = ("tag", "severity")
DEFAULT_BIAS_SEVERITY = 0.5  # the severity of a bias tag without one
PESSIMIST_ROLE = "pessimist"
SUMMARY_ROLE = "summary"
BIAS_FIX = "Write that part so that this no longer holds"
JUDGE_FIX = (
    "or configure a judge: set HEEDFUL_JUDGE to a model that passes heedful model "
    "judge, or give GuardedLoops a judge"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One run of a loop, as a caller reports it; None means that a value is missing.

    Scores are in 0..1. Each bias tag is its name, or a mapping with `tag` and, if
    known, `severity` (0..1). `max_reruns` is the loop's own limit from this run on.
    Raises InvalidInput.
    """

    task: str | None = None
    goal: str | None = None
    summary: str | None = None
    output: str | None = None
    alignment_score: float | None = None
    drift_score: float | None = None
    bias_tags: BiasTags | None = None
    max_reruns: int | None = None

    def __post_init__(self) -> None:
        for name in ("task", "goal", "summary", "output"):
            text = getattr(self, name)
            require(text is None or isinstance(text, str), name, text, "a text")

        for name, score in self.scores.items():
            check_share(f"{name}_score", score)

        if self.max_reruns is not None:
            object.__setattr__(self, "max_reruns", as_integer(self.max_reruns))
            check_integer("max_reruns", self.max_reruns, least=0)

        allowed = "a list of names or of objects, each with a tag"
        check_sequence("bias_tags", self.bias_tags or (), (Mapping, str), allowed)
        for bias_tag in self.tags:
            tag = bias_tag.get("tag")
            if not isinstance(tag, str) or not tag.strip():
                raise InvalidInput("tag", tag, "a text that names a bias")
            check_share(f"severity of {tag}", bias_tag["severity"])

    @property
    def scores(self) -> dict[str, float]:
        """The reported scores by name."""
        scores = {ALIGNMENT_SCORE: self.alignment_score, DRIFT_SCORE: self.drift_score}
        return {
            name: as_float(score) for name, score in scores.items() if score is not None
        }

    @property
    def tags(self) -> list[Document]:
        """The bias tags as mappings, each with a severity."""
        tags: list[Document] = []
        for bias_tag in self.bias_tags or ():
            fields = {"tag": bias_tag} if isinstance(bias_tag, str) else bias_tag
            severity = as_float(fields.get("severity", DEFAULT_BIAS_SEVERITY))
            tags.append({**fields, "severity": severity})
        return tags

    @property
    def findings(self) -> tuple[record.Finding, ...]:
        """The bias tags as findings; the last of equal tags counts."""
        findings = {tag["tag"]: bias_finding(tag) for tag in self.tags}
        return tuple(findings.values())

    @property
    def warnings(self) -> list[str]:
        """A line for each field of a bias tag that is not stored."""
        return [
            f"ignored: {name!r} is not a field of a bias tag (tag, severity)"
            for name in dict.fromkeys(chain.from_iterable(self.tags))
            if name not in BIAS_TAG_FIELDS
        ]

    @property
    def evaluation(self) -> record.Evaluation | None:
        """The reported scores and bias tags, without duplicates; None without both."""
        if not self.findings and not self.scores:
            return None
        return record.Evaluation(self.findings, self.scores)

    @property
    def value(self) -> Any:
        """The output or the summary, both in a dict, or None if neither is known."""
        if self.output is None:
            return self.summary
        if self.summary is None:
            return self.output
        return {"output": self.output, "summary": self.summary}

    @property
    def is_empty(self) -> bool:
        """True if no output, no summary, no score and no bias tags were reported."""
        return not self.scores and self.value is None and self.bias_tags is None

    def agrees(self, attempt: record.Attempt) -> bool:
        """Return True if nothing in the completion differs from the stored attempt."""
        value = self.value
        if value is not None:
            digest = record.Candidate.of(value).digest
            if digest != attempt.candidate.digest:
                return False

        reported = self.evaluation or record.Evaluation()
        stored_evaluation = attempt.evaluation or record.Evaluation()
        if not reported.scores.items() <= stored_evaluation.scores.items():
            return False
        if self.bias_tags is None:
            return True

        severities = {finding.key: finding.severity for finding in reported.findings}
        stored_severities = {
            finding.key: finding.severity
            for finding in stored_evaluation.findings
            if finding.key.startswith(BIAS_PREFIX)
        }
        return severities == stored_severities


def bias_finding(bias_tag: Fields) -> record.Finding:
    """Convert a bias tag to a persistent finding of level "warning"."""
    tag = redact(bias_tag["tag"])
    message = f"{tag}: it {critique.BIASES[tag]}" if tag in critique.BIASES else tag
    return record.Finding(
        PESSIMIST_ROLE,
        message,
        fix=BIAS_FIX,
        level="warning",
        severity=float(bias_tag["severity"]),
        key=f"{BIAS_PREFIX}{tag}",
        persistent=True,
    )


def checks_of_missing_scores(
    completion: Completion, judge: Judge | None, goal: str
) -> list[Check]:
    """Return the checks that judge what was not reported; [] if no score is missing.

    Reported bias tags are not judged again. Raises InvalidInput if nothing can judge a
    score.
    """
    roles = [
        name for name in (ALIGNMENT_SCORE, DRIFT_SCORE) if name not in completion.scores
    ]
    if not roles:
        return []
    if judge is None:
        raise _missing_scores_error(roles, JUDGE_FIX)
    if completion.value is None:
        raise _missing_scores_error(roles, "or send a summary or an output to judge")

    if completion.bias_tags is None:
        roles = [*roles, PESSIMIST_ROLE]
    # Only the alignment is judged by the goal.
    goals = {ALIGNMENT_SCORE: goal}
    critics = [critic(role, judge, goal=goals.get(role, "")) for role in roles]

    summary = completion.summary
    output = completion.output

    async def judge_output(candidate: Any, context: Context) -> record.Evaluation:
        """Let the critics judge the output, or the summary if there is no output."""
        text = summary if output is None else output
        return await evaluated(text, context, critics, evaluate=None)

    async def judge_summary(candidate: Any, context: Context) -> record.Evaluation:
        """Judge the summary with the output that it sums up, if that is known."""
        if output is not None:
            context = replace(context, data=output)
        summary_critic = critic(SUMMARY_ROLE, judge)
        return await evaluated(summary, context, [summary_critic], evaluate=None)

    return [judge_output] if summary is None else [judge_output, judge_summary]


def _missing_scores_error(roles: Sequence[str], cure: str) -> InvalidInput:
    """Return the error that names the missing scores and what to do about them."""
    names = [f"{role}_score" for role in roles]
    allowed = f"a number from 0 to 1 (missing: {', '.join(names)}); {cure}"
    return InvalidInput(names[0], None, allowed)
