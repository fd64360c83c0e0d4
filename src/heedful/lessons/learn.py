"""Lessons from a finished loop: one for each error that a later attempt corrected.

Evaluations from other systems also give lessons: a conflict, an unverified claim, a
better answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from heedful.errors import InvalidInput
from heedful.lessons import lesson as records
from heedful.lessons.lesson import (
    MAX_EXAMPLE_TEXT_CHARS,
    Cause,
    Example,
    Lesson,
    State,
    Trust,
    clip,
)
from heedful.lessons.signature import signature
from heedful.lessons.trust import (
    TRUST_RAISING_VERIFICATION,
    find_quotations,
    initial_state,
)
from heedful.lessons.words import difference
from heedful.loop import record
from heedful.loop.record import Attempt, Evaluation, Finding, Loop
from heedful.redact import redact
from heedful.validation import check_integer, check_number, check_sequence

# Characters of a change that a lesson's text quotes: a change as short as this is never
# cut.
MAX_QUOTED_CHANGE_CHARS = 100
MIN_QUOTED_OUTPUT_CHARS = (
    3  # characters of an output that a finding may quote without quotation marks
)
_QUOTED_NAME_PATTERN = re.compile(r"""(['"`])([^'"`]+)\1""")
# How many lessons one loop gives: a thousand findings of one check are not a thousand
# lessons.
MAX_LOOP_LESSONS = 20


def learn(
    loop: Loop,
    task: str,
    outputs: bool = True,
    memory_key: str = "",
    checks: Sequence[str] = (),
) -> tuple[Lesson, ...]:
    """Return the lessons of a loop that has ended.

    A verified lesson is made for each error that an earlier attempt had and the
    accepted attempt does not have, and for each goal that an earlier attempt missed and
    the accepted attempt meets with enough gain. Only the `MAX_LOOP_LESSONS` most severe lessons are
    returned. If the first attempt was accepted, the only lesson is an unverified
    example. If `outputs` is false, lessons contain no candidates, and an accepted first
    attempt gives no lesson; an error then counts as corrected even if the candidate did
    not change, because the work can be outside of the candidate.

    With a `memory_key`, the lessons about findings say which rule of this key the loop
    broke; then a loop that did not pass has an unverified lesson for each error, and a
    task or answer that is too long for an example is left out. `checks` are the names
    of the loop's checks.
    """
    last = loop.attempts[-1] if loop.attempts else None
    if last is None:
        return ()
    passed = last.evaluation is not None and last.evaluation.passes(loop.goals)
    texts = task, last.candidate.text or ""
    whole = (
        outputs
        and passed
        and all(0 < len(text) <= MAX_EXAMPLE_TEXT_CHARS for text in texts)
    )
    if not memory_key and not (passed and whole == outputs):
        return ()
    if len(loop.attempts) > 1 or not passed:
        accepted = last if passed else None
        key = (memory_key, tuple(checks))
        found = _findings(loop, last.evaluation if passed else None, outputs)
        found.sort(key=lambda pair: -pair[1].severity)
        return tuple(
            _lesson(loop, *pair, accepted, task, whole, key)
            for pair in found[:MAX_LOOP_LESSONS]
        )
    if not whole:
        return ()
    assert last.evaluation is not None
    name = signature("accepted", "first try")
    scores = dict(last.evaluation.scores)
    example = Example(*texts, after=scores)
    lesson = Lesson(
        "example",
        name,
        error_type="accepted",
        text="Answers that were accepted at the first try.",
        sighting="accepted at the first try",
        loop=loop.id,
        example=example,
        tags=("accepted",),
    )
    return (lesson,)


def _findings(
    loop: Loop, accepted: Evaluation | None, differ: bool
) -> list[tuple[Attempt, Finding]]:
    """Return each error or missed goal that was corrected, with the last attempt that
    had it.

    Without an `accepted` evaluation: each error. With `differ`, equal candidates are
    ignored.
    """
    last = loop.attempts[-1]
    least = record.thousandths(loop.improves.min_gain)
    found: dict[str, tuple[Attempt, Finding]] = {}
    for attempt in loop.attempts:
        evaluation = attempt.evaluation
        same = differ and attempt.candidate.digest == last.candidate.digest
        if evaluation is None or evaluation is accepted or (accepted and same):
            continue
        findings = list(evaluation.errors)
        for goal in evaluation.unmet(loop.goals) if accepted else ():
            score = evaluation.scores[goal.score]
            if (
                accepted
                and goal.margin(accepted.scores[goal.score]) - goal.margin(score)
                >= least
            ):
                message = f"{goal.score} {record.format_score(score)} misses {goal}"
                findings.append(Finding(goal.score, message, key=str(goal)))
        for finding in findings:
            if accepted is None or finding.key not in accepted.keys:
                found[finding.key] = (attempt, finding)
    return list(found.values())


def _lesson(
    loop: Loop,
    rejected: Attempt,
    finding: Finding,
    accepted: Attempt | None,
    task: str,
    outputs: bool,
    key: tuple[str, tuple[str, ...]],
) -> Lesson:
    """Return the lesson of one finding; if it was never corrected, `accepted` is None.

    The text quotes a short change if the finding has no fix, or if `outputs` is false.
    `key` is the memory key with the names of the loop's checks.
    """
    was = rejected.evaluation
    now = accepted.evaluation if accepted else None
    answer = accepted.candidate.text or "" if accepted else ""
    output = rejected.candidate.text or ""
    wrong = clip(finding.message)
    evidence = clip(finding.evidence)
    example = Example(
        task,
        answer,
        rejected=clip(output),
        wrong=wrong,
        before=dict(was.scores) if was else {},
        after=dict(now.scores) if now else {},
        evidence=evidence,
    )
    change = difference(example.rejected, redact(example.accepted)) if accepted else ""
    short = 0 < len(change) <= MAX_QUOTED_CHANGE_CHARS and "\n" not in change
    change = f"Accepted: {change}" if short else ""
    text = clip(f"{finding.message.rstrip('. ')}. {finding.fix or change}".strip())
    if not outputs:
        text = text if change in text else f"{text} {change}"
        example = replace(example, task=clip(task), accepted="", rejected="")
    cause = None
    (memory_key, checks) = key
    if memory_key and was is not None and finding in was.errors:  # not a missed goal
        checks = (finding.check,) if finding.check in checks else checks
        # Another output breaks the same rule, so what the finding quotes from this one
        # is masked.
        name = finding.key
        if MIN_QUOTED_OUTPUT_CHARS <= len(output) <= MAX_QUOTED_CHANGE_CHARS:
            name = re.sub(rf"(?<!\w){re.escape(output)}(?!\w)", "…", name)
        name = _QUOTED_NAME_PATTERN.sub(
            lambda found: "…" if found[2] in output else found[0], name
        )
        rule = signature(finding.check, name).digest
        counts = {"fix": int(bool(finding.fix)), "mended": int(accepted is not None)}
        cause = Cause(
            memory_key=memory_key,
            rule=rule,
            checks=checks,
            severity=finding.severity,
            **counts,
        )
    state: State = "verified" if accepted else "candidate"
    return Lesson(
        "check",
        signature(finding.check, finding.key),
        error_type=finding.check,
        text=text,
        sighting=wrong,
        loop=loop.id,
        example=example,
        state=state,
        tags=(finding.check,),
        cause=cause,
    )


MIN_QUALITY_RISE = 0.1
UNKNOWN_DETAIL = "Unknown"
_JUDGE_ERROR_TYPES = (
    "factual_error",
    "conflict",
    "unverified_claim",
)  # types in the words of a judge
MAX_LISTED_QUERY_CHARS = 200  # characters of a query and of a context in a listing
# For each status of a verification: the type of the error, the key of the reason, the
# start of the lesson, and how many characters of the reason the lesson quotes.
_VERIFICATION_STATUSES = (
    (
        "conflict",
        "conflict",
        "conflict_reason",
        "Detected conflict: ",
        MAX_EXAMPLE_TEXT_CHARS,
    ),
    (
        "unverified",
        "unverified_claim",
        "claim_text",
        "Made unverified claim about: ",
        100,
    ),
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
) -> Lesson | None:
    """Return the lesson of a self-correction by another system, or None if it teaches
    nothing.

    The first of these is the error's type: a result of `verification` with the `status`
    "conflict" (its `conflict_reason` becomes the text) or "unverified" (its
    `claim_text`), the word CONFLICTS in the critique, a quality that rose by more than
    `MIN_QUALITY_RISE`. Empty texts become "Unknown".

    `trust` is the trust of the judge. The default is "measured" if the quality rose by
    more than `MIN_QUALITY_RISE`, else "model". For a factual error, a conflict or a claim the
    default is always "model", because the words may quote a page. If they quote the
    query, the context or another text of `verification`, the trust is "external". A
    lesson is verified only if the quality rose by more than `MIN_QUALITY_RISE` and the trust is
    "operator" or "measured". `source` names the judge, so that its lessons can be
    revoked. Raises InvalidInput.
    """
    texts = {"critique": critique, "query": query, "context": context}
    said, asked, during = (_text(name, text) for name, text in texts.items())
    check_integer("iteration", iteration, least=0)
    if trust is not None:
        records.check_trust(trust)
    before = _quality("before", quality_before)
    after = _quality("after", quality_after)
    rise = after["quality"] - before["quality"] if before and after else 0.0
    risen = record.thousandths(rise) > record.thousandths(MIN_QUALITY_RISE)
    error = _find_error(said, verification, rise if risen else None)
    if error is None:
        return None
    error_type, head, detail, most = error
    text = head + (detail[:most] or UNKNOWN_DETAIL)
    own = {"status", *(reason for _, _, reason, _, _ in _VERIFICATION_STATUSES)}
    others = [str(one[key]) for one in verification or () for key in one.keys() - own]
    if find_quotations((text, detail), others):
        trust = "external"
    about: Any = {"query": asked, "context": during, "evidence": detail, "trust": trust}
    return learn_correction(
        error_type,
        text,
        iteration=iteration,
        before=before,
        after=after,
        source=source,
        **about,
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
) -> Lesson:
    """Return a lesson with this `text` about a correction.

    `before` and `after` are scores such as "quality". `exact` is the signature by which
    callers find the lesson, by default that of the text. `meta` has the first `MAX_LISTED_QUERY_CHARS`
    characters of query and context; the example has all characters. A quotation of
    either has the trust "external".
    """
    known = signature(error_type, text)
    after = {**after, "iteration": float(iteration)}
    example = Example(
        query or text,
        "",
        rejected="",
        wrong=text,
        before=before,
        after=after,
        evidence=evidence[:MAX_EXAMPLE_TEXT_CHARS],
        context=context,
    )
    rise = example.deltas.get("quality", 0.0)
    risen = record.thousandths(rise) > record.thousandths(MIN_QUALITY_RISE)
    trust = trust or (
        "measured" if risen and error_type not in _JUDGE_ERROR_TYPES else "model"
    )
    if find_quotations((text, evidence), (query, context)):
        trust = "external"
    exact = exact or known.exact
    return Lesson(
        "error",
        known,
        error_type=error_type,
        text=text,
        sighting=text,
        example=example,
        state=initial_state(
            trust,
            "verified"
            if trust in TRUST_RAISING_VERIFICATION and risen
            else "candidate",
        ),
        trust=trust,
        tags=("reflection", "self-correction", error_type, f"sig:{exact}"),
        context=context,
        source=records.check_source(source),
        meta={
            "error_signature": exact,
            "original_query": query[:MAX_LISTED_QUERY_CHARS] or UNKNOWN_DETAIL,
            "iteration_count": iteration,
            "quality_improvement": rise,
            "reflection_context": context[:MAX_LISTED_QUERY_CHARS] or UNKNOWN_DETAIL,
        },
    )


def as_entry(text: str, tags: Sequence[str], meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return a lesson as a dict with the field names of earlier stores of
    reflections.
    """
    why = f"Self-correction during: {meta['reflection_context'][:100]}"
    entry = {"content": text, "rationale": why, "category": "reflection"}
    return {**entry, "tags": list(tags), "context": dict(meta)}


def _find_error(
    critique: str, verification: object, rise: float | None
) -> tuple[str, str, str, int] | None:
    """Return the error's type, how its text begins, a detail and its maximal length, or
    None.

    `rise` is the gain in quality, None if it is too small.
    """
    results: Any = () if verification is None else verification
    allowed = "results, each a mapping with a status"
    check_sequence("verification", results, object, f"a sequence of {allowed}")
    found: dict[str, Mapping[str, Any]] = {}  # the first result with each status
    for n, one in enumerate(results):
        if not isinstance(one, Mapping) or not isinstance(one.get("status"), str):
            raise InvalidInput(f"verification[{n}]", one, f"one of {allowed}")
        found.setdefault(one["status"], one)
    for status, error_type, reason, head, most in _VERIFICATION_STATUSES:
        if status in found:
            return error_type, head, _text(reason, found[status].get(reason)), most
    if "CONFLICTS" in critique:
        return "factual_error", "", critique, 200
    if rise is not None:
        return "quality_improvement", f"Quality improved by {rise:.2f}: ", critique, 150
    return None


def _text(field: str, value: object) -> str:
    """Return a text without its secrets; "" for None or a blank text. Raises
    InvalidInput.
    """
    if value is not None and not isinstance(value, str):
        raise InvalidInput(field, value, "a text")
    return redact(value) if value and value.strip() else ""


def _quality(when: str, value: float | None) -> dict[str, float]:
    if value is None:
        return {}
    check_number(f"quality_{when}", value, -record.MAX_SCORE, record.MAX_SCORE)
    return {"quality": float(value)}
