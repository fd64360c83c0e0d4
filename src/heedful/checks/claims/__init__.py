"""`grounding`: the numbers, dates, names and comparisons of a text, held against evidence.

The text is divided into sentences; each number is bound to a row and a column of the evidence
(`passage`), and what the text says of rows and numbers is judged. A model may judge what these
rules leave open.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from math import fsum
from typing import Any, ClassVar, Literal, get_args

from heedful.checks.claims.evidence import Evidence, Lexicon, Row
from heedful.checks.claims.passage import Claim, Verdict, claims, sentences
from heedful.checks.claims.words import content_stems, tokenize
from heedful.checks.critique import (
    LONGEST,
    judge_messages,
    open_judge,
    parse_object,
    plain_text,
)
from heedful.checks.evaluate import Context
from heedful.checks.text import read, require, shorten
from heedful.errors import InvalidInput
from heedful.loop.record import NOTHING, Evaluation, Finding, Level, Usage
from heedful.models.call import ask_for_json
from heedful.models.contract import Model
from heedful.sanitize import cut_middle

__all__ = [
    "Claim",
    "Evidence",
    "Grounding",
    "Lexicon",
    "ground",
    "grounding",
    "index_source",
]

_NAME = "grounding"
# Claims shown to a model, and characters of the sentence of each and of a reason.
MOST = 8
SENTENCE = 400
REASON = 200
# Pieces of evidence shown for a sentence, and characters of a piece.
PIECES = 3
PIECE = 400
_VERDICTS = get_args(Verdict)
_BETWEEN = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_INSTRUCTION = (
    "Each line of the candidate is a claim: its number, the words in question, and the sentence "
    "that they stand in. Judge each by the evidence alone, not by what you know: supported where "
    "the evidence says the same or it follows from it, contradicted where the evidence says "
    "otherwise, not found where the evidence does not tell."
)
# The level and severity of a verdict; what is not found has the level that the caller chooses.
_LEVELS: Mapping[Verdict, tuple[Level, float]] = {
    "contradicted": ("error", 0.6),
    "supported": ("note", 0.0),
}
Unsupported = Literal["error", "warning"]
Terms = Lexicon | Mapping[str, Any]


def ground(text: str, evidence: Any, *, lexicon: Terms | None = None) -> tuple[Claim, ...]:
    """Return what a text claims, in order, with what the evidence says of each claim.

    `evidence` is a mapping, a list of rows, a data frame, text (JSON, a Python literal, CSV, "name:
    value" lines or prose) or `Evidence`, which many texts can share. A number is held against the
    rows and columns that the words around it name; it is right if the value rounds to it. `lexicon`
    has the words of a field. No model is asked. Raises InvalidInput.
    """
    index = _index(evidence, lexicon)
    every = (claim for sentence in sentences(text, index) for claim in claims(sentence))
    return tuple(sorted(every, key=lambda claim: claim.span))


def _index(evidence: Any, lexicon: Terms | None) -> Evidence:
    if not isinstance(evidence, Evidence):
        return Evidence(evidence, lexicon)
    if lexicon is not None:
        raise InvalidInput("lexicon", lexicon, "left out: Evidence is indexed with its own")
    return evidence


def index_source(source: Any, lexicon: Terms | None = None) -> Callable[[Any, Any], Evidence]:
    """Return `f(candidate, state)` that gives indexed evidence, from evidence or such a function.

    Evidence is indexed once, here; what a function returns, at each call.
    """
    if callable(source):
        return lambda candidate, state: _index(source(candidate, state), lexicon)
    index = _index(source, lexicon)
    return lambda candidate, state: index


@dataclass(frozen=True, slots=True, eq=False)
class Grounding:
    """A check that the evidence supports what a text says; made by `grounding`."""

    evidence: Callable[[Any, Any], Evidence] = field(repr=False)
    unsupported: Unsupported
    model: Model | None
    pure: bool
    name: ClassVar[str] = _NAME

    @property
    def is_async(self) -> bool:
        """True if a model is asked: a call then returns a coroutine."""
        return self.model is not None

    def __call__(self, candidate: Any, context: Context) -> Any:
        """Return the findings, or with a model a coroutine that gives an Evaluation."""
        if self.model is not None:
            return self._judged(candidate, context, self.model)
        found = self._claims(candidate, context)
        return [found] if isinstance(found, Finding) else self._findings(found[0])

    async def _judged(self, candidate: Any, context: Context, model: Model) -> Evaluation:
        """Return the findings and the cost. Raises MalformedAnswer, ModelError."""
        found = self._claims(candidate, context)
        if isinstance(found, Finding):
            return Evaluation((found,))
        claims, usage = await judge_claims(*found, model)
        return Evaluation(tuple(self._findings(claims)), usage=usage)

    def _claims(
        self, candidate: Any, context: Context
    ) -> Finding | tuple[tuple[Claim, ...], str, Evidence]:
        """Return the claims, the text and the evidence, or why there are none."""
        text = read(_NAME, candidate)
        if isinstance(text, Finding):
            return text
        evidence = self.evidence(candidate, context.data)
        if not evidence:
            what = "there is no evidence to hold the text against"
            return Finding(_NAME, what, "give the evidence", key=f"{_NAME}: no evidence")
        return ground(text, evidence), text, evidence

    def _findings(self, claims: Sequence[Claim]) -> list[Finding]:
        """Return what is wrong with claims, and a note on each that a model supports."""
        return [self._finding(c) for c in claims if c.verdict != "supported" or c.judge]

    def _finding(self, claim: Claim) -> Finding:
        text, paths = shorten(claim.text, 120), ", ".join(claim.paths)
        level, severity = _LEVELS.get(claim.verdict, (self.unsupported, 0.3))
        by = f"judged by {claim.judge}" if claim.judge else ""
        what = f"{claim.kind} {text} is {claim.verdict}: {claim.why}" + (f" ({by})" if by else "")
        fix = "correct it"
        if claim.nearest and not by:
            what += f"; the nearest true value is {claim.nearest}"
            fix = f"write {claim.nearest} for {text}"
            if claim.kind == "comparison":
                fix = f"correct {text}: it is {claim.nearest}"
        return Finding(
            _NAME,
            what,
            "" if level == "note" else f"{fix}, or leave {text} out",
            level=level,
            severity=severity,
            key=f"{_NAME}: {claim.kind} {claim.text} {paths}".rstrip(),
            evidence=by or (f"{paths} = {claim.nearest}" if paths else ""),
            span=claim.span,
        )


def grounding(
    evidence: Any,
    *,
    unsupported: Unsupported = "warning",
    lexicon: Terms | None = None,
    judge: Model | str | None = None,
) -> Grounding:
    """Check that the evidence contradicts nothing in the text; `ground` says how it is read.

    One finding a claim, with its span, what the evidence says and the nearest true value: a
    contradicted claim is an error, one that is not found has the level `unsupported`. The evidence
    is indexed once; if it is a function `evidence(candidate, state)`, where the state is
    `Context.data`, at each call. `lexicon` is a `Lexicon`, or a mapping of its fields. `judge`, a
    Model or its name, is asked about the first few claims that were not found; its verdicts are
    marked. Raises InvalidInput for another level, a wrong lexicon or something that is no Model.
    """
    require(unsupported in ("error", "warning"), "unsupported", unsupported, "error or warning")
    model = open_judge(judge) if isinstance(judge, str) else judge
    require(model is None or isinstance(model, Model), "judge", judge, "a Model or its name")
    pure = model is None and not callable(evidence)
    return Grounding(index_source(evidence, lexicon), unsupported, model, pure)


# A model judges


async def judge_claims(
    claims: Sequence[Claim], text: str, evidence: Evidence, model: Model
) -> tuple[list[Claim], Usage]:
    """Ask a model about the first `MOST` claims that were not found; return all, and the cost.

    The model sees the few pieces of evidence that share the rarest words with each claim. It never
    sees a claim with another verdict. Raises MalformedAnswer, ModelError.
    """
    judged = list(claims)
    waiting = [n for n, claim in enumerate(claims) if claim.verdict == "not found"][:MOST]
    if not waiting:
        return judged, NOTHING
    shown = _show([claims[n] for n in waiting], text, evidence)
    schema = _schema(len(waiting))
    verdicts, usage = await ask_for_json(
        model,
        lambda wrong: judge_messages("grounding", _INSTRUCTION, schema, shown, wrong),
        lambda answer: [_verdict(parse_object(answer).get(n), n) for n in schema["properties"]],
        schema,
        who="judge of grounding",
        max_tokens=64 + 96 * len(waiting),
    )
    for n, (verdict, reason) in zip(waiting, verdicts, strict=True):
        judged[n] = replace(claims[n], verdict=verdict, why=reason, judge=model.name)
    return judged, usage


def _show(claims: Sequence[Claim], text: str, evidence: Evidence) -> dict[str, str]:
    """Return the claims, each in its sentence, and the pieces of evidence nearest to them."""
    parts = [sentence.span for sentence in sentences(text, evidence)]
    within = [next(part for part in parts if part[1] > claim.span[0]) for claim in claims]
    whole = [cut_middle(" ".join(text[slice(*part)].split()), SENTENCE) for part in within]
    lines = [
        f"{n}. {cut_middle(claim.text, SENTENCE)!r} in: {sentence}"
        for n, (claim, sentence) in enumerate(zip(claims, whole, strict=True), 1)
    ]
    rows = (row for table in evidence.tables.values() for row in table.rows)
    pieces = {piece[:PIECE]: _stems(piece[:PIECE]) for row in rows for piece in _pieces(row)}
    count = Counter(word for stems in pieces.values() for word in stems)
    near = dict[str, None]()
    for sentence in whole:
        words = _stems(sentence)
        score = {piece: fsum(1 / count[w] for w in words & pieces[piece]) for piece in pieces}
        near |= dict.fromkeys(p for p in nlargest(PIECES, score, key=score.__getitem__) if score[p])
    shown = {"evidence": "\n".join(near), "candidate": "\n".join(lines)}
    return {name: cut_middle(plain_text(part), LONGEST) for name, part in shown.items()}


def _stems(text: str) -> set[str]:
    return set(content_stems(token.low for token in tokenize(text)))


def _pieces(row: Row) -> Iterator[str]:
    """Yield the short cells of a row as one piece, each sentence of the long ones as another."""
    short = []
    for path, cell in row.cells.items():
        text, name = str(cell), ".".join(path)
        if len(text) <= PIECE:
            short.append(f"{name} = {text}" if name else text)
        else:
            yield from (f"{name}: {part}" if name else part for part in _BETWEEN.split(text))
    if short:
        yield f"{row.path} {' '.join(row.key)}".strip() + ": " + ", ".join(short)


def _schema(claims: int) -> dict[str, Any]:
    """Return the schema of an object with a reason and a verdict for each claim."""
    reason = {"type": "string", "maxLength": REASON}
    keys = {"reason": reason, "verdict": {"type": "string", "enum": list(_VERDICTS)}}
    closed = {"type": "object", "additionalProperties": False}
    what = f'an object: "reason" in a few words, "verdict" one of {", ".join(_VERDICTS)}'
    answer = {**closed, "properties": keys, "required": list(keys), "description": what}
    named = {f"claim {n}": answer for n in range(1, claims + 1)}
    return {**closed, "properties": named, "required": list(named)}


def _verdict(answer: object, name: str) -> tuple[Verdict, str]:
    if not isinstance(answer, Mapping):
        raise InvalidInput(name, answer, "an object with a reason and a verdict")
    verdict, reason = answer.get("verdict"), answer.get("reason")
    require(verdict in _VERDICTS, f"verdict of {name}", verdict, f"one of {', '.join(_VERDICTS)}")
    require(isinstance(reason, str), f"reason of {name}", reason, "text")
    return verdict, " ".join(plain_text(reason).split())[:REASON]  # type: ignore[return-value]
