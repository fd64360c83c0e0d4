"""`grounding`: the numbers, dates, names and comparisons of a text, held against evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, overload

from heedful.checks.asking import opened, unrepeated
from heedful.checks.claim import Claim, Verdict
from heedful.checks.comparing import Comparing
from heedful.checks.evaluate import Context
from heedful.checks.evidence import Evidence
from heedful.checks.figures import Figures
from heedful.checks.judged import judged
from heedful.checks.quantities import number
from heedful.checks.said import Said
from heedful.checks.standing import Standing
from heedful.checks.text import read, require, shorten
from heedful.checks.wording import dates_of, names_of, statements
from heedful.loop.record import Evaluation, Finding, Level
from heedful.models.contract import Model

_NAME = "grounding"
# A number that nothing binds to a place is said to be meant by another one within this share of it.
CLOSE = 0.1
Unsupported = Literal["error", "warning"]
# The level and severity of what is said of a claim; None: what the caller says.
_LEVELS: Mapping[Verdict, tuple[Level | None, float]] = {
    "contradicted": ("error", 0.6),
    "not found": (None, 0.3),
    "supported": ("note", 0.0),
}
Source = Evidence | Callable[[Any, Any], Any]
"""Evidence, or what makes it of the candidate and the state (`Context.data`) at each call."""


def ground(text: str, evidence: Any, *, tolerance: float = 0.0) -> tuple[Claim, ...]:
    """What a text claims, in order, and what the evidence says of each claim. No model is asked.

    `evidence` is a mapping, a list of rows, text (JSON, a Python literal, CSV, "name: value" lines
    or prose) or `Evidence`, which many texts can share. A number is held against the rows and
    columns that the words around it name; it is right where the value rounds to it or lies within
    the relative `tolerance`. Nothing is derived but the difference of two named rows in a named
    column, and the sum and mean of one. Numbers may be words, per cents, scaled ("3k").
    """
    held = _evidence(evidence)
    said = Said(text, held)
    figures = Figures(said, tolerance)
    claims = [*figures.claims(), *dates_of(said), *names_of(said)]
    claims += Standing(said, figures).claims()
    claims += Comparing(said).claims()
    claims += statements(said, [claim for claim in claims if claim.verdict == "supported"])
    return tuple(sorted(claims, key=lambda claim: claim.span))


def ungrounded(claims: Sequence[Claim]) -> float:
    """The share of the numbers, 0..1, that the evidence does not support; 0 without numbers."""
    numbers = [claim.verdict != "supported" for claim in claims if claim.kind == "number"]
    return sum(numbers) / len(numbers) if numbers else 0.0


@dataclass(frozen=True, slots=True)
class Grounding:
    """The text says nothing that the evidence does not bear out; made by `grounding`."""

    evidence: Source = field(repr=False)
    tolerance: float
    unsupported: Unsupported
    pure: bool
    name: ClassVar[str] = _NAME

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        held = self.held(candidate, context)
        return [held] if isinstance(held, Finding) else list(self.findings(held[2]))

    def held(
        self, candidate: Any, context: Context
    ) -> Finding | tuple[str, Evidence, tuple[Claim, ...]]:
        """The text of a candidate, the evidence and the claims, or why there are none."""
        text = read(_NAME, candidate)
        if isinstance(text, Finding):
            return text
        evidence = indexed(self.evidence, candidate, context)
        if not evidence:
            what = "there is no evidence to hold the text against"
            return Finding(_NAME, what, "give the evidence", key=f"{_NAME}: no evidence")
        return text, evidence, ground(text, evidence, tolerance=self.tolerance)

    def findings(self, claims: Iterable[Claim]) -> Iterator[Finding]:
        """What is wrong with claims; that a model bears one out is a note."""
        for claim in claims:
            if claim.verdict != "supported" or claim.judge:
                yield self._finding(claim)

    def _finding(self, claim: Claim) -> Finding:
        level, severity = _LEVELS[claim.verdict]
        said, where = shorten(claim.text, 120), ", ".join(claim.paths)
        true, by = claim.nearest, f"judged by {claim.judge}" if claim.judge else ""
        if level != "error" and claim.kind == "number" and not _close(claim.text, true):
            true = ""  # what lies nearest in all of the evidence has nothing to do with it
        instead = true if (level == "error" or claim.kind == "number") and not by else ""
        told = (f": {claim.why}" * bool(claim.why), f" ({by})" * bool(by))
        nearest = f"; the nearest true value is {true}" if true and not by else ""
        fix = f"write {instead} for {said}, or" if instead else "correct it, or"
        if instead and claim.kind == "comparison":
            fix = f"correct {said}: it is {instead}, or"
        return Finding(
            _NAME,
            f"{claim.kind} {said} is {claim.verdict}{''.join(told)}{nearest}",
            "" if level == "note" else f"{fix} leave {said} out",
            level=level or self.unsupported,
            severity=severity,
            key=f"{_NAME}: {claim.kind} {claim.text} {where}".rstrip(),
            evidence=by or (f"{where} = {true}" if where else ""),
            span=claim.span,
        )


def _close(said: str, true: str) -> bool:
    """Whether a number may be meant by another one: they are less than `CLOSE` apart."""
    a, b = number(said), number(true)
    return a is not None and b is not None and abs(a - b) <= CLOSE * abs(b)


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Grounding whose open claims a model judges; made by `grounding`."""

    rules: Grounding
    model: Model
    name: ClassVar[str] = _NAME
    pure: ClassVar[bool] = False

    async def __call__(self, candidate: Any, context: Context) -> Evaluation:
        """The findings, and what asking cost. Raises MalformedAnswer, ModelError."""
        held = self.rules.held(candidate, context)
        if isinstance(held, Finding):
            return Evaluation((held,))
        text, evidence, claims = held
        found, usage = await unrepeated(
            self, candidate, context, lambda: judged(claims, text, evidence, self.model)
        )
        return Evaluation(tuple(self.rules.findings(found)), usage=usage)


@overload
def grounding(
    evidence: Any, *, tolerance: float = ..., unsupported: Unsupported = ..., judge: None = ...
) -> Grounding: ...
@overload
def grounding(
    evidence: Any, *, tolerance: float = ..., unsupported: Unsupported = ..., judge: Model | str
) -> Judged: ...
def grounding(
    evidence: Any,
    *,
    tolerance: float = 0.0,
    unsupported: Unsupported = "warning",
    judge: Model | str | None = None,
) -> Grounding | Judged:
    """The text says nothing that the evidence contradicts (`ground` says how it is read).

    One finding a claim, with its span, where the evidence says otherwise, and the nearest true
    value: contradicted is an error, not found in the evidence what `unsupported` says. The evidence
    is indexed once; where it is `evidence(candidate, state)`, the state being `Context.data`, at
    each call. `judge`, a Model or its name, is asked about the first few claims that were not
    found; what it says is marked. Raises InvalidInput for a tolerance outside 0..1, another level
    or what is no Model.
    """
    fine = isinstance(tolerance, int | float) and 0 <= tolerance <= 1
    require(fine, "tolerance", tolerance, "a share from 0 to 1")
    require(unsupported in ("error", "warning"), "unsupported", unsupported, "error or warning")
    held = source(evidence)
    rules = Grounding(held, float(tolerance), unsupported, isinstance(held, Evidence))
    if judge is None:
        return rules
    model = opened(judge) if isinstance(judge, str) else judge
    require(isinstance(model, Model), "judge", judge, "a Model or its name")
    return Judged(rules, model)


def source(evidence: Any) -> Source:
    """Evidence indexed now, or what makes it at each call."""
    return evidence if callable(evidence) else _evidence(evidence)


def indexed(source: Source, candidate: Any, context: Context) -> Evidence:
    """What a source gives for a candidate."""
    return _evidence(source(candidate, context.data)) if callable(source) else source


def _evidence(given: Any) -> Evidence:
    return given if isinstance(given, Evidence) else Evidence(given)
