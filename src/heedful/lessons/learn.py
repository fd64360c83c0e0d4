"""The lessons of a loop: only steps that changed the result."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from heedful.lessons.lesson import Signature
from heedful.lessons.words import Difference
from heedful.loop.record import (
    Attempt,
    Evaluation,
    Finding,
    Improvement,
    Loop,
    format_score,
    thousandths,
)
from heedful.redact import redact

Trust = Literal["operator", "measured", "model", "tool", "external"]
State = Literal["candidate", "verified", "quarantined", "retired", "superseded"]
# What is kept of one text of an example, in characters; a longer one is no use in a prompt.
LONGEST = 4_000
# What was changed is told in the text of a lesson where it is so short that nothing of it is cut.
TOLD = 100
# How many lessons one loop gives: what a check says a thousand times is not a thousand lessons.
MOST = 20


@dataclass(frozen=True, slots=True)
class Example:
    """A task, the output that was rejected, what was wrong with it, and the one accepted.

    `rejected` and `wrong` are empty where the first try was accepted. `before` and `after` are the
    scores of the two outputs, `evidence` is what the check rests on, `context` what stood around.
    """

    task: str
    accepted: str
    rejected: str = ""
    wrong: str = ""
    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)
    evidence: str = ""
    context: str = ""

    @property
    def deltas(self) -> dict[str, float]:
        """After minus before for each score that both have, in thousandths."""
        both = self.before.keys() & self.after.keys()
        gains = {
            name: thousandths(self.after[name]) - thousandths(self.before[name]) for name in both
        }
        return {name: gains[name] / 1000 for name in sorted(gains)}

    @property
    def difference(self) -> Difference | None:
        """The smallest change from the rejected to the accepted output; None where none was."""
        from heedful.lessons.words import difference

        return difference(self.rejected, self.accepted) if self.rejected else None

    @property
    def digest(self) -> str:
        """Tells examples of one reflection apart: over the task and the accepted output."""
        text = f"{self.task}\0{self.accepted}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Reflection:
    """A lesson as it is written: its signature, text, trust and state, and one example.

    `kind` is "check" for a finding that was mended and "example" for an accepted first try, "error"
    for what was remembered by hand, "reflection" and "strategy" for what an episode taught.
    `sighting` is the exact text of this occurrence. `context` is found by its words, too. `vector`
    belongs to the example's task, or without one to the text, and to the space named `space`.
    `source` names where the text came from, `parents` the examples that it derives from, `meta` is
    what else is known of it, as JSON data.
    """

    kind: str
    signature: Signature
    error_type: str
    text: str
    sighting: str
    loop: str = ""
    example: Example | None = None
    state: State = "candidate"
    trust: Trust = "measured"
    importance: float = 0.5
    tags: tuple[str, ...] = ()
    space: str = ""
    vector: Sequence[float] | None = None
    context: str = ""
    source: str = ""
    parents: tuple[int, ...] = ()
    pinned: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict)


def learn(loop: Loop, task: str, outputs: bool = True) -> tuple[Reflection, ...]:
    """What the loop teaches; empty where its last attempt did not pass.

    Without `outputs` no candidate is kept, and no accepted first try: what was wrong, and what
    mended it. Nor is it asked whether the candidate changed: what was done may lie outside of it.

    One verified lesson for each distinct error of an earlier attempt that the accepted one no
    longer has, and for each goal that was missed and is met now by a gain that counts; the `MOST`
    most severe of them. An accepted first try is kept as an example that nothing verified. Of a
    change for the worse nothing is kept but the loop: which part of it did harm is not known, an
    error that came with it and was mended is a lesson by itself, and where the lessons that were
    shown are to blame, the outcome of the loop says so (`heedful.lessons.proof`).
    """
    last = loop.attempts[-1] if loop.attempts else None
    if last is None or last.evaluation is None or not last.evaluation.passes(loop.goals):
        return ()
    if outputs and (last.candidate.text is None or not _fits(task, last.candidate.text)):
        return ()
    if len(loop.attempts) == 1:
        return (_accepted(loop, last, task),) if outputs else ()
    found = _mended(loop, last.evaluation, outputs)
    mended = sorted(found, key=lambda one: -one[1].severity)[:MOST]
    made = (_lesson(loop, rejected, finding, last, task) for rejected, finding in mended)
    return tuple(made) if outputs else tuple(map(_without_outputs, made))


def _without_outputs(one: Reflection) -> Reflection:
    if one.example is None:
        return one
    changed = _changed(one.example)
    text = one.text if changed in one.text else f"{one.text} {changed}"
    task = _kept(one.example.task)
    return replace(
        one, text=text, example=replace(one.example, task=task, accepted="", rejected="")
    )


def _fits(*texts: str) -> bool:
    return all(0 < len(text) <= LONGEST for text in texts)


def _mended(loop: Loop, accepted: Evaluation, differ: bool) -> list[tuple[Attempt, Finding]]:
    """Each error or missed goal that went away, with the last attempt that had it.

    `differ`: only where the candidate is another one now.
    """
    *earlier, last = loop.attempts
    found: dict[str, tuple[Attempt, Finding]] = {}
    for attempt in earlier:
        if attempt.evaluation is None:
            continue
        if differ and attempt.candidate.digest == last.candidate.digest:
            continue
        for finding in (*attempt.evaluation.errors, *_missed(loop, attempt.evaluation, accepted)):
            if finding.key not in accepted.keys:
                found[finding.key] = (attempt, finding)
    return list(found.values())


def _missed(loop: Loop, before: Evaluation, after: Evaluation) -> Iterator[Finding]:
    """As findings, the goals missed before whose scores have gained at least `min_gain`."""
    least = thousandths(getattr(loop.improves, "min_gain", Improvement().min_gain))
    for goal in before.unmet(loop.goals):
        score = before.scores[goal.score]
        if goal.margin(after.scores[goal.score]) - goal.margin(score) >= least:
            yield Finding(
                goal.score, f"{goal.score} {format_score(score)} misses {goal}", key=str(goal)
            )


def _lesson(
    loop: Loop, rejected: Attempt, finding: Finding, accepted: Attempt, task: str
) -> Reflection:
    from heedful.lessons.signature import signature  # whose patterns a store has no need of

    example = Example(
        task,
        accepted.candidate.text or "",
        _kept(rejected.candidate.text or ""),
        _kept(finding.message),
        dict(rejected.evaluation.scores) if rejected.evaluation else {},
        dict(accepted.evaluation.scores) if accepted.evaluation else {},
        _kept(finding.evidence),
    )
    return Reflection(
        "check",
        signature(finding.check, finding.key),
        finding.check,
        _kept(f"{finding.message.rstrip('. ')}. {finding.fix or _changed(example)}".strip()),
        _kept(finding.message),
        loop.id,
        example,
        "verified",
        tags=(finding.check,),
    )


def _kept(text: str) -> str:
    """Its first `LONGEST` characters. Without secrets first: half of one is not recognised."""
    return redact(text)[:LONGEST]


def _changed(example: Example) -> str:
    """What was changed, for a finding that does not say how to mend it; "" where it is long."""
    from heedful.lessons.words import difference

    told = str(difference(example.rejected, redact(example.accepted)))
    return f"Accepted: {told}" if 0 < len(told) <= TOLD and "\n" not in told else ""


def _accepted(loop: Loop, attempt: Attempt, task: str) -> Reflection:
    from heedful.lessons.signature import signature

    return Reflection(
        "example",
        signature("accepted", "first try"),
        "accepted",
        "Answers that were accepted at the first try.",
        "accepted at the first try",
        loop.id,
        Example(task, attempt.candidate.text or "", after=dict(attempt.evaluation.scores))
        if attempt.evaluation
        else None,
        tags=("accepted",),
    )


def with_vector(
    reflections: Sequence[Reflection], space: str, vector: Sequence[float] | None
) -> tuple[Reflection, ...]:
    """The same reflections with the place of their task in an embedding space."""
    if vector is None:
        return tuple(reflections)
    return tuple(replace(one, space=space, vector=vector) for one in reflections)
