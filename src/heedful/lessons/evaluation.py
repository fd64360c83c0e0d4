"""What an evaluation from outside teaches: a conflict, an unverified claim, a better answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heedful.errors import InvalidInput
from heedful.lessons.lesson import LONGEST, Example, Reflection, Trust
from heedful.lessons.signature import signature
from heedful.lessons.trust import ORDER, RAISING, check_source, initial_state
from heedful.loop.record import LARGEST, check_number, thousandths
from heedful.redact import redact

RISE = 0.1
UNKNOWN = "Unknown"
LISTED = 200  # characters of a query and of a context in a listing


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
    """The lesson of one self-correction; None where there is nothing to learn.

    Asked in this order: does any result of `verification` have the `status` conflict (its
    `conflict_reason` is told); any unverified (its `claim_text`); does the critique say CONFLICTS;
    did the quality rise above `RISE`. Other statuses teach nothing. What is None or empty is told
    as Unknown. Its example has the query as task, the qualities as scores before and after, the
    iteration beside them, and no accepted output: it is found, and is no example to follow.

    `trust` is that of whoever judged: by default `measured` where the quality rose above `RISE`,
    but for a factual error, which only the critique tells; else `model`, since a reason may quote
    a page; what a tool or a document said is quarantined. Only such a rise verifies, and only what
    an operator or a measurement says. `source` names where it came from, so that it can be revoked.
    Raises InvalidInput, which names the argument.
    """
    said, asked, during = _texts(critique=critique, query=query, context=context)
    _iteration(iteration)
    if trust not in (None, *ORDER):
        raise InvalidInput("trust", trust, f"one of {', '.join(ORDER)}")
    before, after = _quality("before", quality_before), _quality("after", quality_after)
    rise = after["quality"] - before["quality"] if before and after else 0.0
    risen = thousandths(rise) > thousandths(RISE)
    found = _taught(said, _results(verification), rise if risen else None)
    if found is None:
        return None
    error_type, head, told, most = found
    text = head + (told[:most] or UNKNOWN)
    return learn_correction(
        error_type,
        text,
        iteration,
        before,
        after,
        query=asked,
        context=during,
        evidence=told,
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
    """The lesson that is told as `text`, of a correction whose `quality` was before and is after.

    `exact` is the signature it is asked for by, that of the text by default. What else is known of
    it is cut at `LISTED` characters, in its example it is whole.
    """
    known, after = signature(error_type, text), {**after, "iteration": float(iteration)}
    example = Example(query or text, "", "", text, before, after, evidence[:LONGEST], context)
    rise = example.deltas.get("quality", 0.0)
    risen = thousandths(rise) > thousandths(RISE)
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
        source=check_source(source),
        meta={
            "error_signature": exact,
            "original_query": query[:LISTED] or UNKNOWN,
            "iteration_count": iteration,
            "quality_improvement": rise,
            "reflection_context": context[:LISTED] or UNKNOWN,
        },
    )


def as_entry(text: str, tags: Sequence[str], meta: Mapping[str, Any]) -> dict[str, Any]:
    """Such a lesson under the names that a memory of reflections gave it: plain data."""
    return {
        "content": text,
        "rationale": f"Self-correction during: {meta['reflection_context'][:100]}",
        "category": "reflection",
        "tags": list(tags),
        "context": dict(meta),
    }


def _taught(
    critique: str, results: Sequence[Mapping[str, Any]], rise: float | None
) -> tuple[str, str, str, int] | None:
    """The type of the error, how its text begins, what is told, and how much of it, at most."""
    for status, key, error_type, head, most in (
        ("conflict", "conflict_reason", "conflict", "Detected conflict: ", LONGEST),
        ("unverified", "claim_text", "unverified_claim", "Made unverified claim about: ", 100),
    ):
        for one in results:
            if one["status"] == status:
                return error_type, head, _text(key, one.get(key)), most
    if "CONFLICTS" in critique:
        return "factual_error", "", critique, 200
    if rise is not None:
        return "quality_improvement", f"Quality improved by {rise:.2f}: ", critique, 150
    return None


def _texts(**given: object) -> list[str]:
    return [_text(field, value) for field, value in given.items()]


def _text(field: str, value: object) -> str:
    """What was given; "" where that is nothing. Without secrets: it is cut later."""
    if value is not None and not isinstance(value, str):
        raise InvalidInput(field, value, "a text")
    return redact(value) if value and value.strip() else ""


def _iteration(value: int) -> None:
    check_number("iteration", value, 0, LARGEST)
    if not isinstance(value, int):
        raise InvalidInput("iteration", value, "an integer")


def _quality(when: str, value: float | None) -> dict[str, float]:
    if value is None:
        return {}
    check_number(f"quality_{when}", value, -LARGEST, LARGEST)
    return {"quality": float(value)}


def _results(verification: object) -> Sequence[Mapping[str, Any]]:
    results = () if verification is None else verification
    allowed = "results, each a mapping with a status"
    if isinstance(results, str | bytes) or not isinstance(results, Sequence):
        raise InvalidInput("verification", results, f"a sequence of {allowed}")
    for n, one in enumerate(results):
        if not isinstance(one, Mapping) or not isinstance(one.get("status"), str):
            raise InvalidInput(f"verification[{n}]", one, f"one of {allowed}")
    return results
