"""`grounding`: the numbers, dates, names and comparisons of a text, held against evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from errata.checks.claim import Claim
from errata.checks.evidence import Evidence
from errata.checks.figures import Figures
from errata.checks.said import Said
from errata.checks.standing import Standing
from errata.checks.text import read, require, shorten
from errata.checks.wording import dates_of, names_of, statements
from errata.loop.record import Finding
from errata.protocols import Context

_NAME = "grounding"
Unsupported = Literal["error", "warning"]
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
        text = read(_NAME, candidate)
        if isinstance(text, Finding):
            return [text]
        evidence = indexed(self.evidence, candidate, context)
        if not evidence:
            what = "there is no evidence to hold the text against"
            return [Finding(_NAME, what, "give the evidence", key=f"{_NAME}: no evidence")]
        claims = ground(text, evidence, tolerance=self.tolerance)
        return [self._finding(claim) for claim in claims if claim.verdict != "supported"]

    def _finding(self, claim: Claim) -> Finding:
        wrong = claim.verdict == "contradicted"
        said, where = shorten(claim.text, 120), ", ".join(claim.paths)
        about = f": {claim.why}" if claim.why else ""
        true = f"; the nearest true value is {claim.nearest}" if claim.nearest else ""
        instead = claim.nearest if wrong or claim.kind == "number" else ""
        fix = f"write {instead} for {said}, or" if instead else "correct it, or"
        return Finding(
            _NAME,
            f"{claim.kind} {said} is {claim.verdict}{about}{true}",
            f"{fix} leave {said} out",
            level="error" if wrong else self.unsupported,
            severity=0.6 if wrong else 0.3,
            key=f"{_NAME}: {claim.kind} {claim.text} {where}".rstrip(),
            evidence=f"{where} = {claim.nearest}" if where else "",
            span=claim.span,
        )


def grounding(
    evidence: Any, *, tolerance: float = 0.0, unsupported: Unsupported = "warning"
) -> Grounding:
    """The text says nothing that the evidence contradicts (`ground` says how it is read).

    One finding a claim, with its span, where the evidence says otherwise, and the nearest true
    value: contradicted is an error, not found in the evidence what `unsupported` says. The evidence
    is indexed once; where it is `evidence(candidate, state)`, the state being `Context.data`, at
    each call. Raises InvalidInput for a tolerance outside 0..1 or another level.
    """
    fine = isinstance(tolerance, int | float) and 0 <= tolerance <= 1
    require(fine, "tolerance", tolerance, "a share from 0 to 1")
    require(unsupported in ("error", "warning"), "unsupported", unsupported, "error or warning")
    held = source(evidence)
    return Grounding(held, float(tolerance), unsupported, isinstance(held, Evidence))


def source(evidence: Any) -> Source:
    """Evidence indexed now, or what makes it at each call."""
    return evidence if callable(evidence) else _evidence(evidence)


def indexed(source: Source, candidate: Any, context: Context) -> Evidence:
    """What a source gives for a candidate."""
    return _evidence(source(candidate, context.data)) if callable(source) else source


def _evidence(given: Any) -> Evidence:
    return given if isinstance(given, Evidence) else Evidence(given)
