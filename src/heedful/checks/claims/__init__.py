"""Compare the numbers, dates, names and comparisons of a text with evidence.

No model is asked; fixed rules for English judge each claim, in four steps:

1. `words` finds the words, numbers and dates in a text, and says how well a word
   matches the name of a column.
2. `evidence` indexes evidence of any shape as rows, tables and columns, with the words
   that name them.
3. `passage` splits the text into sentences, binds each number to a row and a column of
   the evidence by the words around it, and judges the claims.
4. `grounding` (here) turns claims that are not supported into findings; `insights` does
   the same for metrics, columns and results that do not exist.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from heedful.checks.claims.evidence import Evidence, Lexicon
from heedful.checks.claims.passage import claims
from heedful.checks.claims.sentence import Claim, sentences
from heedful.checks.evaluate import Context, remade
from heedful.checks.text import TextCheck
from heedful.faults import shorten
from heedful.loop.record import Finding, Level
from heedful.validation import require

__all__ = ["Claim", "Evidence", "Lexicon", "ground", "grounding", "index_source"]

_GROUNDING_CHECK = "grounding"
Unsupported = Literal["error", "warning", "numbers"]
Terms = Lexicon | Mapping[str, Any]


def ground(
    text: str, evidence: Any, *, lexicon: Terms | None = None
) -> tuple[Claim, ...]:
    """Return the claims of a text, in order, each with its verdict according to the
    evidence.

    `evidence` is a mapping, a list of rows, a data frame, text (JSON, a Python literal,
    CSV, "name: value" lines or prose) or an `Evidence`, which can be used for many
    texts. The words around a number name its rows and columns; the number is supported
    if a value in one of these cells rounds to it. `lexicon` is the vocabulary of a
    subject. No model is asked. Raises InvalidInput.
    """
    index = _index_evidence(evidence, lexicon)
    found_claims: list[Claim] = []
    for sentence in sentences(text, index):
        found_claims += claims(sentence)
    return tuple(sorted(found_claims, key=lambda claim: claim.span))


def _index_evidence(evidence: Any, lexicon: Terms | None) -> Evidence:
    """Return evidence of any shape as an index; an index is returned unchanged."""
    return evidence if isinstance(evidence, Evidence) else Evidence(evidence, lexicon)


def index_source(
    source: Any, lexicon: Terms | None = None
) -> Callable[[Any, Any], Evidence]:
    """Return a function `(candidate, state)` that returns the evidence in `source`.

    If `source` is such a function itself, its result is indexed at each call.
    """
    if not callable(source):
        index = _index_evidence(source, lexicon)
        return lambda candidate, state: index

    def index_result(candidate: Any, state: Any) -> Evidence:
        """Call the function, and index its result."""
        return _index_evidence(source(candidate, state), lexicon)

    return index_result


@remade
def grounding(
    evidence: Any, *, unsupported: Unsupported = "numbers", lexicon: Terms | None = None
) -> TextCheck:
    """Check the claims of a text against evidence, with the rules of `ground`.

    A contradicted claim is an error. A claim that is not found in the evidence is a
    finding of the level `unsupported`; with "numbers", a number is an error and any
    other claim a warning. A finding has the span of the claim and the nearest true
    value. `evidence` may also be a function `(candidate, state)`, where
    the state is `Context.data`. Its result is indexed at each call; other evidence is
    indexed only once. `lexicon` is a `Lexicon` or a mapping of its fields. Raises
    InvalidInput for another level or a wrong lexicon.
    """
    require(
        unsupported in ("error", "warning", "numbers"),
        "unsupported",
        unsupported,
        "error, warning or numbers",
    )
    source = index_source(evidence, lexicon)

    def judge(text: str, context: Context) -> Iterator[Finding]:
        """Yield a finding for each claim that the evidence does not support."""
        index = source(text, context.data)
        if not index:
            message = "there is no evidence to compare the text with"
            yield Finding(
                _GROUNDING_CHECK,
                message,
                fix="give the evidence",
                key=f"{_GROUNDING_CHECK}: no evidence",
            )
            return

        for claim in ground(text, index):
            if claim.verdict != "supported":
                yield _claim_finding(claim, unsupported)

    return TextCheck(name=_GROUNDING_CHECK, judge=judge, pure=not callable(evidence))


def _claim_finding(claim: Claim, unsupported: Unsupported) -> Finding:
    """Return the finding about a claim that is contradicted or not found."""
    quoted = shorten(claim.text, 120)
    message = f"{claim.kind} {quoted} is {claim.verdict}: {claim.why}"
    fix = "correct it"
    if claim.nearest:
        message += f"; the nearest true value is {claim.nearest}"
        fix = f"write {claim.nearest} for {quoted}"
        if claim.kind == "comparison":
            fix = f"correct {quoted}: it is {claim.nearest}"

    is_contradicted = claim.verdict == "contradicted"
    levels: dict[Unsupported, Level] = {"error": "error", "warning": "warning"}
    level = levels.get(unsupported, "error" if claim.kind == "number" else "warning")
    severity = 0.3
    if is_contradicted:
        level = "error"
        severity = 0.6

    paths = ", ".join(claim.paths)
    return Finding(
        _GROUNDING_CHECK,
        message,
        fix=f"{fix}, or leave {quoted} out",
        level=level,
        severity=severity,
        key=f"{_GROUNDING_CHECK}: {claim.kind} {claim.text} {paths}".rstrip(),
        evidence=f"{paths} = {claim.nearest}" if paths else "",
        rule=f"write no {claim.kind} that the evidence does not have",
        span=claim.span,
    )
