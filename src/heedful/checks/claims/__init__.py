"""`grounding`: the numbers, dates, names and comparisons of a text, held against evidence.

The text is divided into sentences, numbers and the rows that it names (`passage`), each number is
bound to a row and a column of the evidence (`figures`), and what the text says of rows and numbers
is judged (`statements`). A model may judge what these rules leave open.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, get_args, overload

from heedful.checks.claims.evidence import COMMON, Derived, Evidence, Lexicon, Row
from heedful.checks.claims.figures import Claim, Figures, Passage, Verdict
from heedful.checks.claims.statements import (
    Extremes,
    change_claims,
    condition_claims,
    date_claims,
    name_claims,
    statement_claims,
)
from heedful.checks.claims.words import content_stems, parse_number, tokenize
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
    "Derived",
    "Evidence",
    "Grounding",
    "JudgedGrounding",
    "Lexicon",
    "Source",
    "ground",
    "grounding",
    "ungrounded",
]

_NAME = "grounding"
# A number bound to no place is offered a correction within this share of it.
CLOSE = 0.1
# Claims shown to a model, and characters of the sentence of each and of a reason.
MOST = 8
SENTENCE = 400
REASON = 200
# Pieces of evidence shown for a sentence, and characters of a piece.
PIECES = 3
PIECE = 400
VERDICTS = get_args(Verdict)
_SENTENCE = re.compile(r"[^.!?\n。！？]*(?:[.!?](?=\S)[^.!?\n。！？]*)*[.!?\n。！？]*")
_INSTRUCTION = (
    "Each line of the candidate is a claim: its number, the words in question, and the sentence "
    "that they stand in. Judge each by the evidence alone, not by what you know: supported where "
    "the evidence says the same or it follows from it, contradicted where the evidence says "
    "otherwise, not found where the evidence does not tell."
)
Unsupported = Literal["error", "warning"]
# The level and severity of each verdict; None: the level that the caller chooses.
_LEVELS: Mapping[Verdict, tuple[Level | None, float]] = {
    "contradicted": ("error", 0.6),
    "not found": (None, 0.3),
    "supported": ("note", 0.0),
}
Words = Lexicon | Mapping[str, Any]


def ground(
    text: str, evidence: Any, *, tolerance: float = 0.0, lexicon: Words | None = None
) -> tuple[Claim, ...]:
    """Return what a text claims, in order, with what the evidence says of each claim.

    `evidence` is a mapping, a list of rows, a data frame, text (JSON, a Python literal, CSV, "name:
    value" lines or prose) or `Evidence`, which many texts can share. A number is held against the
    rows and columns that the words around it name; it is right if the value rounds to it or lies
    within the relative `tolerance`. `lexicon` has the words of a field. No model is asked.
    Raises InvalidInput.
    """
    index = _index(evidence, lexicon)
    passage = Passage(text, index)
    figures = Figures(passage, tolerance)
    claims = [*figures.claims(), *date_claims(passage), *name_claims(passage)]
    claims += [*change_claims(passage), *condition_claims(passage)]
    claims += Extremes(passage).claims()
    claims += statement_claims(passage, [c for c in claims if c.verdict == "supported"])
    return tuple(sorted(claims, key=lambda claim: claim.span))


def ungrounded(claims: Sequence[Claim]) -> float:
    """Return the share of the numbers, 0..1, that the evidence does not support."""
    numbers = [claim.verdict != "supported" for claim in claims if claim.kind == "number"]
    return sum(numbers) / len(numbers) if numbers else 0.0


def _index(evidence: Any, lexicon: Words | None) -> Evidence:
    if not isinstance(evidence, Evidence):
        return Evidence(evidence, lexicon)
    if lexicon is not None:
        raise InvalidInput("lexicon", lexicon, "left out: Evidence is indexed with its own")
    return evidence


@dataclass(frozen=True, slots=True)
class Source:
    """Evidence, or a function of the candidate and the state (`Context.data`) that returns it."""

    value: Any = field(repr=False)
    lexicon: Words | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not callable(self.value):
            object.__setattr__(self, "value", _index(self.value, self.lexicon))

    @property
    def pure(self) -> bool:
        """True if the evidence is the same at every call."""
        return isinstance(self.value, Evidence)

    def evidence(self, candidate: Any, context: Context) -> Evidence:
        """Return the evidence for a candidate."""
        if isinstance(self.value, Evidence):
            return self.value
        return _index(self.value(candidate, context.data), self.lexicon)


# The check


@dataclass(frozen=True, slots=True)
class Grounding:
    """A check that the evidence supports what a text says; made by `grounding`."""

    source: Source = field(repr=False)
    tolerance: float
    unsupported: Unsupported
    name: ClassVar[str] = _NAME

    @property
    def pure(self) -> bool:
        """True if the same text always has the same findings."""
        return self.source.pure

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        claims = self.claims(candidate, context)
        return [claims] if isinstance(claims, Finding) else list(self.findings(claims[2]))

    def claims(
        self, candidate: Any, context: Context
    ) -> Finding | tuple[str, Evidence, tuple[Claim, ...]]:
        """Return the text of a candidate, the evidence and the claims, or why there are none."""
        text = read(_NAME, candidate)
        if isinstance(text, Finding):
            return text
        evidence = self.source.evidence(candidate, context)
        if not evidence:
            what = "there is no evidence to hold the text against"
            return Finding(_NAME, what, "give the evidence", key=f"{_NAME}: no evidence")
        return text, evidence, ground(text, evidence, tolerance=self.tolerance)

    def findings(self, claims: Iterable[Claim]) -> Iterator[Finding]:
        """Yield what is wrong with claims, and a note on each that a model supports."""
        for claim in claims:
            if claim.verdict != "supported" or claim.judge:
                yield self._finding(claim)

    def _finding(self, claim: Claim) -> Finding:
        level, severity = _LEVELS[claim.verdict]
        text, paths = shorten(claim.text, 120), ", ".join(claim.paths)
        by = f"judged by {claim.judge}" if claim.judge else ""
        nearest = "" if by else claim.nearest
        if level != "error" and claim.kind == "number" and not _is_close(claim.text, nearest):
            nearest = ""  # the nearest number in all of the evidence has nothing to do with it
        what = f"{claim.kind} {text} is {claim.verdict}"
        what += (f": {claim.why}" if claim.why else "") + (f" ({by})" if by else "")
        what += f"; the nearest true value is {nearest}" if nearest else ""
        fix = "correct it, or"
        if nearest and (level == "error" or claim.kind == "number"):
            fix = f"write {nearest} for {text}, or"
            if claim.kind == "comparison":
                fix = f"correct {text}: it is {nearest}, or"
        return Finding(
            _NAME,
            what,
            "" if level == "note" else f"{fix} leave {text} out",
            level=level or self.unsupported,
            severity=severity,
            key=f"{_NAME}: {claim.kind} {claim.text} {paths}".rstrip(),
            evidence=by or (f"{paths} = {claim.nearest}" if paths else ""),
            span=claim.span,
        )


def _is_close(text: str, other: str) -> bool:
    a, b = parse_number(text), parse_number(other)
    return a is not None and b is not None and abs(a - b) <= CLOSE * abs(b)


@dataclass(frozen=True, slots=True, eq=False)
class JudgedGrounding:
    """Grounding with a model that judges the claims that were not found; made by `grounding`."""

    rules: Grounding
    model: Model
    name: ClassVar[str] = _NAME
    pure: ClassVar[bool] = False

    async def __call__(self, candidate: Any, context: Context) -> Evaluation:
        """Return the findings and the cost. Raises MalformedAnswer, ModelError."""
        found = self.rules.claims(candidate, context)
        if isinstance(found, Finding):
            return Evaluation((found,))
        text, evidence, claims = found
        judged, usage = await judge_claims(claims, text, evidence, self.model)
        return Evaluation(tuple(self.rules.findings(judged)), usage=usage)


@overload
def grounding(
    evidence: Any,
    *,
    tolerance: float = ...,
    unsupported: Unsupported = ...,
    lexicon: Words | None = ...,
    judge: None = ...,
) -> Grounding: ...
@overload
def grounding(
    evidence: Any,
    *,
    tolerance: float = ...,
    unsupported: Unsupported = ...,
    lexicon: Words | None = ...,
    judge: Model | str,
) -> JudgedGrounding: ...
def grounding(
    evidence: Any,
    *,
    tolerance: float = 0.0,
    unsupported: Unsupported = "warning",
    lexicon: Words | None = None,
    judge: Model | str | None = None,
) -> Grounding | JudgedGrounding:
    """Check that the evidence contradicts nothing in the text; `ground` says how it is read.

    One finding a claim, with its span, what the evidence says and the nearest true value: a
    contradicted claim is an error, one that is not found has the level `unsupported`. The evidence
    is indexed once; if it is a function `evidence(candidate, state)`, where the state is
    `Context.data`, at each call. `lexicon` is a `Lexicon`, or a mapping of its fields. `judge`, a
    Model or its name, is asked about the first few claims that were not found; its verdicts are
    marked. Raises InvalidInput for a tolerance outside 0..1, another level, a wrong lexicon or
    something that is no Model.
    """
    fine = isinstance(tolerance, int | float) and 0 <= tolerance <= 1
    require(fine, "tolerance", tolerance, "a share from 0 to 1")
    require(unsupported in ("error", "warning"), "unsupported", unsupported, "error or warning")
    rules = Grounding(Source(evidence, lexicon), float(tolerance), unsupported)
    if judge is None:
        return rules
    model = open_judge(judge) if isinstance(judge, str) else judge
    require(isinstance(model, Model), "judge", judge, "a Model or its name")
    return JudgedGrounding(rules, model)


# A model judges


async def judge_claims(
    claims: Sequence[Claim], text: str, evidence: Evidence, model: Model
) -> tuple[list[Claim], Usage]:
    """Ask a model about the first `MOST` claims that were not found; return all, and the cost.

    The model sees the few pieces of evidence that share the rarest words with each claim. It never
    sees a claim with another verdict. Raises MalformedAnswer, ModelError.
    """
    waiting = [n for n, claim in enumerate(claims) if claim.verdict == "not found"][:MOST]
    if not waiting:
        return list(claims), NOTHING
    shown = _show([claims[n] for n in waiting], text, evidence)
    schema = _schema(len(waiting))
    verdicts, usage = await ask_for_json(
        model,
        lambda wrong: judge_messages("grounding", _INSTRUCTION, schema, shown, wrong),
        lambda answer: _read(answer, list(schema["properties"])),
        schema,
        who="judge of grounding",
        max_tokens=64 + 96 * len(waiting),
    )
    judged = list(claims)
    for n, (verdict, reason) in zip(waiting, verdicts, strict=True):
        judged[n] = replace(claims[n], verdict=verdict, why=reason, judge=model.name)
    return judged, usage


def _show(claims: Sequence[Claim], text: str, evidence: Evidence) -> dict[str, str]:
    passage = Passage(text, evidence)
    pieces = Pieces(row for table in evidence.tables.values() for row in table.rows)
    sentences = [_sentence(passage, claim) for claim in claims]
    near = dict.fromkeys(piece for sentence in sentences for piece in pieces.near(sentence))
    lines = [
        f"{n}. {cut_middle(claim.text, SENTENCE)!r} in: {sentence}"
        for n, (claim, sentence) in enumerate(zip(claims, sentences, strict=True), 1)
    ]
    whole = {"evidence": "\n".join(near), "candidate": "\n".join(lines)}
    return {name: cut_middle(plain_text(part), LONGEST) for name, part in whole.items()}


def _sentence(passage: Passage, claim: Claim) -> str:
    """Return the sentence of a claim on one line."""
    at = next(n for n, token in enumerate(passage.tokens) if token.end > claim.span[0])
    first, end = passage.sentence(at)
    whole = passage.text[passage.tokens[first].start : passage.tokens[end - 1].end]
    return cut_middle(" ".join(whole.split()), SENTENCE)


def _schema(claims: int) -> dict[str, Any]:
    """Return the schema of an object with a reason and a verdict for each claim."""
    reason = {"type": "string", "maxLength": REASON}
    keys = {"reason": reason, "verdict": {"type": "string", "enum": list(VERDICTS)}}
    closed = {"type": "object", "additionalProperties": False}
    what = f'an object: "reason" in a few words, "verdict" one of {", ".join(VERDICTS)}'
    named = {
        f"claim {n}": {**closed, "properties": keys, "required": list(keys), "description": what}
        for n in range(1, claims + 1)
    }
    return {**closed, "properties": named, "required": list(named)}


def _read(text: str, names: Sequence[str]) -> list[tuple[Verdict, str]]:
    answer = parse_object(text)
    return [_read_verdict(answer.get(name), name) for name in names]


def _read_verdict(answer: object, name: str) -> tuple[Verdict, str]:
    if not isinstance(answer, Mapping):
        raise InvalidInput(name, answer, "an object with a reason and a verdict")
    verdict: Any = answer.get("verdict")
    require(verdict in VERDICTS, f"verdict of {name}", verdict, f"one of {', '.join(VERDICTS)}")
    reason = answer.get("reason")
    require(isinstance(reason, str), f"reason of {name}", reason, "text")
    return verdict, " ".join(plain_text(reason).split())[:REASON]


class Pieces:
    """Evidence in pieces of text: rows and sentences, found by the words that a sentence shares."""

    def __init__(self, rows: Iterable[Row]) -> None:
        texts = dict.fromkeys(piece[:PIECE] for row in rows for piece in _pieces(row))
        self._texts: list[str] = list(texts)
        self._by_stem: dict[str, list[int]] = defaultdict(list)
        for n, piece in enumerate(self._texts):
            for word in _stems(piece):
                self._by_stem[word].append(n)

    def near(self, sentence: str) -> list[str]:
        """Return the pieces that share the rarest words with a sentence, the nearest first."""
        score: dict[int, float] = defaultdict(float)
        for word in _stems(sentence):
            holding = self._by_stem.get(word, ())
            for n in holding if len(holding) <= COMMON else ():
                score[n] += 1 / len(holding)
        best = sorted(score, key=lambda n: -score[n])[:PIECES]
        return [self._texts[n] for n in best]


def _stems(text: str) -> dict[str, None]:
    return dict.fromkeys(content_stems(token.low for token in tokenize(text)))


def _pieces(row: Row) -> Iterator[str]:
    """Yield the short cells of a row as one piece, each sentence of the long ones as another."""
    short = []
    for path, cell in row.cells.items():
        text, name = " ".join(str(cell).split()), ".".join(path)
        if len(text) <= PIECE:
            short.append(f"{name} = {text}" if name else text)
        else:
            for match in _SENTENCE.finditer(str(cell)):
                if sentence := " ".join(match[0].split()):
                    yield f"{name}: {sentence}" if name else sentence
    if short:
        yield f"{row.path} {' '.join(row.key)}".strip() + ": " + ", ".join(short)
