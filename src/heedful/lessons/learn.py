"""What a finished loop teaches: a lesson for each error that a later attempt corrected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from heedful.lessons.lesson import LONGEST, Example, Reflection, clip
from heedful.lessons.signature import signature
from heedful.lessons.words import difference
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

# Characters of a change that a lesson's text quotes: a change as short as this is never cut.
LONGEST_CHANGE = 100
# How many lessons one loop gives: a thousand findings of one check are not a thousand lessons.
MOST = 20


def learn(loop: Loop, task: str, outputs: bool = True) -> tuple[Reflection, ...]:
    """Return what the loop teaches; nothing if its last attempt did not pass.

    There is one verified lesson for each distinct error of an earlier attempt that the accepted
    attempt no longer has, and for each missed goal that is now met by a gain that counts; the
    `MOST` most severe are returned. An accepted first try gives an example that is not verified. A
    change for the worse gives no lesson: nobody knows which part of it did harm, and lessons that
    misled the loop are found by their outcomes (`heedful.lessons.proof`).

    Without `outputs` no candidate is kept: the lesson says what was wrong and how it was corrected.
    Then an accepted first try gives nothing, and the candidate need not differ, because the work
    may lie outside of it.
    """
    last = loop.attempts[-1] if loop.attempts else None
    if last is None or last.evaluation is None or not last.evaluation.passes(loop.goals):
        return ()
    answer = last.candidate.text or ""
    if outputs and not all(0 < len(text) <= LONGEST for text in (task, answer)):
        return ()
    if len(loop.attempts) == 1:
        return (_first_try(loop, task, answer, last.evaluation),) if outputs else ()
    corrected = _corrected_findings(loop, last.evaluation, differ=outputs)
    corrected.sort(key=lambda pair: -pair[1].severity)
    lessons = (_lesson(loop, attempt, found, last, task) for attempt, found in corrected[:MOST])
    return tuple(lessons if outputs else map(_without_outputs, lessons))


def with_vector(
    reflections: Sequence[Reflection], space: str, vector: Sequence[float] | None
) -> tuple[Reflection, ...]:
    """Return the reflections with the vector of their task in an embedding space."""
    if vector is None:
        return tuple(reflections)
    return tuple(replace(one, space=space, vector=vector) for one in reflections)


def _corrected_findings(
    loop: Loop, accepted: Evaluation, differ: bool
) -> list[tuple[Attempt, Finding]]:
    """List each error or missed goal that went away, with the last attempt that had it.

    With `differ`, attempts with the same candidate as the accepted one do not count.
    """
    *earlier, last = loop.attempts
    found: dict[str, tuple[Attempt, Finding]] = {}
    for attempt in earlier:
        evaluation = attempt.evaluation
        if evaluation is None or (differ and attempt.candidate.digest == last.candidate.digest):
            continue
        for finding in (*evaluation.errors, *_reached_goals(loop, evaluation, accepted)):
            if finding.key not in accepted.keys:
                found[finding.key] = (attempt, finding)
    return list(found.values())


def _reached_goals(loop: Loop, before: Evaluation, after: Evaluation) -> Iterator[Finding]:
    """Yield, as findings, the goals missed before whose scores gained at least `min_gain`."""
    least = thousandths(getattr(loop.improves, "min_gain", Improvement().min_gain))
    for goal in before.unmet(loop.goals):
        score = before.scores[goal.score]
        if goal.margin(after.scores[goal.score]) - goal.margin(score) >= least:
            message = f"{goal.score} {format_score(score)} misses {goal}"
            yield Finding(goal.score, message, key=str(goal))


def _lesson(
    loop: Loop, rejected: Attempt, finding: Finding, accepted: Attempt, task: str
) -> Reflection:
    example = Example(
        task,
        accepted.candidate.text or "",
        clip(rejected.candidate.text or ""),
        clip(finding.message),
        dict(rejected.evaluation.scores) if rejected.evaluation else {},
        dict(accepted.evaluation.scores) if accepted.evaluation else {},
        clip(finding.evidence),
    )
    fix = finding.fix or _describe_change(example)
    return Reflection(
        "check",
        signature(finding.check, finding.key),
        finding.check,
        clip(f"{finding.message.rstrip('. ')}. {fix}".strip()),
        clip(finding.message),
        loop.id,
        example,
        "verified",
        tags=(finding.check,),
    )


def _without_outputs(lesson: Reflection) -> Reflection:
    example = lesson.example
    if example is None:
        return lesson
    change = _describe_change(example)
    text = lesson.text if change in lesson.text else f"{lesson.text} {change}"
    bare = replace(example, task=clip(example.task), accepted="", rejected="")
    return replace(lesson, text=text, example=bare)


def _describe_change(example: Example) -> str:
    """Describe what was changed, for a finding without a fix; "" if the change is long."""
    change = str(difference(example.rejected, redact(example.accepted)))
    return f"Accepted: {change}" if 0 < len(change) <= LONGEST_CHANGE and "\n" not in change else ""


def _first_try(loop: Loop, task: str, answer: str, evaluation: Evaluation) -> Reflection:
    return Reflection(
        "example",
        signature("accepted", "first try"),
        "accepted",
        "Answers that were accepted at the first try.",
        "accepted at the first try",
        loop.id,
        Example(task, answer, after=dict(evaluation.scores)),
        tags=("accepted",),
    )
