"""Lessons from a finished loop: one for each error that a later attempt corrected.

Evaluations from other systems also give lessons: a conflict, an unverified claim, a better answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from heedful.errors import InvalidInput
from heedful.lessons import lesson as records
from heedful.lessons.lesson import LONGEST, Example, Reflection, Trust, clip
from heedful.lessons.signature import signature
from heedful.lessons.trust import RAISING, initial_state
from heedful.lessons.words import difference
from heedful.loop import record
from heedful.loop.record import Attempt, Evaluation, Finding, Loop
from heedful.redact import redact

# Characters of a change that a lesson's text quotes: a change as short as this is never cut.
LONGEST_CHANGE = 100
# How many lessons one loop gives: a thousand findings of one check are not a thousand lessons.
MOST = 20


def learn(loop: Loop, task: str, outputs: bool = True) -> tuple[Reflection, ...]:
    """Return the lessons of a loop, or none if its last attempt did not pass.

    A verified lesson is made for each error that an earlier attempt had and the accepted attempt
    does not have, and for each goal that an earlier attempt missed and the accepted attempt meets
    with enough gain. Only the `MOST` most severe lessons are returned. If the first attempt was
    accepted, the only lesson is an unverified example. If `outputs` is false, lessons contain no
    candidates, and an accepted first attempt gives no lesson; an error then counts as corrected
    even if the candidate did not change, because the work can be outside of the candidate.
    """
    last = loop.attempts[-1] if loop.attempts else None
    if last is None or last.evaluation is None or not last.evaluation.passes(loop.goals):
        return ()
    answer = last.candidate.text or ""
    if outputs and not all(0 < len(text) <= LONGEST for text in (task, answer)):
        return ()
    if len(loop.attempts) > 1:
        corrected = _corrected_findings(loop, last.evaluation, differ=outputs)
        pairs = sorted(corrected, key=lambda pair: -pair[1].severity)[:MOST]
        return tuple(_lesson(loop, *pair, last, task, outputs) for pair in pairs)
    if not outputs:
        return ()
    first = Reflection(
        "example",
        signature("accepted", "first try"),
        "accepted",
        "Answers that were accepted at the first try.",
        "accepted at the first try",
        loop.id,
        Example(task, answer, after=dict(last.evaluation.scores)),
        tags=("accepted",),
    )
    return (first,)


def _corrected_findings(
    loop: Loop, accepted: Evaluation, differ: bool
) -> list[tuple[Attempt, Finding]]:
    """Return each error or missed goal that was corrected, with the last attempt that had it.

    With `differ`, attempts with the same candidate as the accepted attempt are ignored.
    """
    *earlier, last = loop.attempts
    least = record.thousandths(loop.improves.min_gain)
    found: dict[str, tuple[Attempt, Finding]] = {}
    for attempt in earlier:
        evaluation = attempt.evaluation
        if evaluation is None or (differ and attempt.candidate.digest == last.candidate.digest):
            continue
        findings = list(evaluation.errors)
        for goal in evaluation.unmet(loop.goals):
            score = evaluation.scores[goal.score]
            if goal.margin(accepted.scores[goal.score]) - goal.margin(score) >= least:
                message = f"{goal.score} {record.format_score(score)} misses {goal}"
                findings.append(Finding(goal.score, message, key=str(goal)))
        for finding in findings:
            if finding.key not in accepted.keys:
                found[finding.key] = (attempt, finding)
    return list(found.values())


def _lesson(
    loop: Loop, rejected: Attempt, finding: Finding, accepted: Attempt, task: str, outputs: bool
) -> Reflection:
    """Return the lesson of one corrected finding.

    The text quotes a short change if the finding has no fix, or if `outputs` is false.
    """
    example = Example(
        task,
        accepted.candidate.text or "",
        clip(rejected.candidate.text or ""),
        clip(finding.message),
        dict(rejected.evaluation.scores) if rejected.evaluation else {},
        dict(accepted.evaluation.scores) if accepted.evaluation else {},
        clip(finding.evidence),
    )
    change = difference(example.rejected, redact(example.accepted))
    short = 0 < len(change) <= LONGEST_CHANGE and "\n" not in change
    change = f"Accepted: {change}" if short else ""
    text = clip(f"{finding.message.rstrip('. ')}. {finding.fix or change}".strip())
    if not outputs:
        text = text if change in text else f"{text} {change}"
        example = replace(example, task=clip(task), accepted="", rejected="")
    return Reflection(
        "check",
        signature(finding.check, finding.key),
        finding.check,
        text,
        clip(finding.message),
        loop.id,
        example,
        "verified",
        tags=(finding.check,),
    )


RISE = 0.1
UNKNOWN = "Unknown"
LISTED = 200  # characters of a query and of a context in a listing
# For each status of a verification: the type of the error, the key of the reason, the start of the
# lesson, and how many characters of the reason the lesson quotes.
_STATUSES = (
    ("conflict", "conflict", "conflict_reason", "Detected conflict: ", LONGEST),
    ("unverified", "unverified_claim", "claim_text", "Made unverified claim about: ", 100),
)


def learn_from_evaluation(
    critique: str | None,
    verification: Sequence[Mapping[str, Any]] | None,
    query: str | None,
    context: str | None,
    iteration: int,
    quality_before: float | None,
    quality_after: float | None,
    *,
    trust: Trust | None = None,
    source: str = "",
) -> Reflection | None:
    """Return the lesson of a self-correction by another system, or None if it teaches nothing.

    The first of these signs decides the type of the error: a result of `verification` with the
    `status` "conflict" (its `conflict_reason` becomes the text), a result with the status
    "unverified" (its `claim_text`), the word CONFLICTS in the critique, a quality that rose by more
    than `RISE`. Empty texts become "Unknown".

    `trust` is the trust of the judge. The default is "measured" if the quality rose by more than
    `RISE`, else "model". For a factual error the default is always "model", because only the
    critique reports it. A lesson is verified only if the quality rose by more than `RISE` and the
    trust is "operator" or "measured". `source` names the judge, so that its lessons can be revoked.
    Raises InvalidInput.
    """
    said, asked = _text("critique", critique), _text("query", query)
    during = _text("context", context)
    record.check_integer("iteration", iteration, 0)
    if trust is not None:
        records.check_trust(trust)
    before, after = _quality("before", quality_before), _quality("after", quality_after)
    rise = after["quality"] - before["quality"] if before and after else 0.0
    risen = record.thousandths(rise) > record.thousandths(RISE)
    error = _find_error(said, verification, rise if risen else None)
    if error is None:
        return None
    error_type, head, detail, most = error
    text = head + (detail[:most] or UNKNOWN)
    return learn_correction(
        error_type,
        text,
        iteration,
        before,
        after,
        query=asked,
        context=during,
        evidence=detail,
        trust=trust,
        source=source,
    )


def learn_correction(
    error_type: str,
    text: str,
    iteration: int,
    before: Mapping[str, float],
    after: Mapping[str, float],
    *,
    query: str = "",
    context: str = "",
    evidence: str = "",
    exact: str = "",
    trust: Trust | None = None,
    source: str = "",
) -> Reflection:
    """Return a lesson with this `text` about a correction.

    `before` and `after` are scores such as "quality". `exact` is the signature by which callers
    find the lesson; the default is the signature of the text. `meta` has the first `LISTED`
    characters of query and context; the example has all characters.
    """
    known, after = signature(error_type, text), {**after, "iteration": float(iteration)}
    example = Example(query or text, "", "", text, before, after, evidence[:LONGEST], context)
    rise = example.deltas.get("quality", 0.0)
    risen = record.thousandths(rise) > record.thousandths(RISE)
    trust = trust or ("measured" if risen and error_type != "factual_error" else "model")
    exact = exact or known.exact
    return Reflection(
        "error",
        known,
        error_type,
        text,
        text,
        example=example,
        state=initial_state(trust, "verified" if trust in RAISING and risen else "candidate"),
        trust=trust,
        tags=("reflection", "self-correction", error_type, f"sig:{exact}"),
        context=context,
        source=records.check_source(source),
        meta={
            "error_signature": exact,
            "original_query": query[:LISTED] or UNKNOWN,
            "iteration_count": iteration,
            "quality_improvement": rise,
            "reflection_context": context[:LISTED] or UNKNOWN,
        },
    )


def as_entry(text: str, tags: Sequence[str], meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return a lesson as a dict with the field names of earlier stores of reflections."""
    return {
        "content": text,
        "rationale": f"Self-correction during: {meta['reflection_context'][:100]}",
        "category": "reflection",
        "tags": list(tags),
        "context": dict(meta),
    }


def _find_error(
    critique: str, verification: object, rise: float | None
) -> tuple[str, str, str, int] | None:
    """Return the error's type, the beginning of its text, a detail and the detail's maximal length.

    `rise` is the gain in quality, None if it is too small. Returns None if there is no error.
    """
    results: Any = () if verification is None else verification
    allowed = "results, each a mapping with a status"
    records.check_sequence("verification", results, object, f"a sequence of {allowed}")
    found: dict[str, Mapping[str, Any]] = {}  # the first result with each status
    for n, one in enumerate(results):
        if not isinstance(one, Mapping) or not isinstance(one.get("status"), str):
            raise InvalidInput(f"verification[{n}]", one, f"one of {allowed}")
        found.setdefault(one["status"], one)
    for status, error_type, reason, head, most in _STATUSES:
        if status in found:
            return error_type, head, _text(reason, found[status].get(reason)), most
    if "CONFLICTS" in critique:
        return "factual_error", "", critique, 200
    if rise is not None:
        return "quality_improvement", f"Quality improved by {rise:.2f}: ", critique, 150
    return None


def _text(field: str, value: object) -> str:
    """Return a text without its secrets; "" for None or a blank text. Raises InvalidInput."""
    if value is not None and not isinstance(value, str):
        raise InvalidInput(field, value, "a text")
    return redact(value) if value and value.strip() else ""


def _quality(when: str, value: float | None) -> dict[str, float]:
    if value is None:
        return {}
    record.check_number(f"quality_{when}", value, -record.LARGEST, record.LARGEST)
    return {"quality": float(value)}
