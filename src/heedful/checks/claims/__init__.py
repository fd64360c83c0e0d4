"""Compare the numbers, dates, names and comparisons of a text with evidence.

Fixed rules find the row and the column of the evidence for each number, and judge each claim (see
`passage`). If the rules do not find a claim in the evidence, a model may judge it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from math import fsum
from typing import Any, Literal, get_args

from heedful.checks import critique
from heedful.checks.claims.evidence import Evidence, Lexicon, Row
from heedful.checks.claims.passage import Claim, Verdict, claims, sentences
from heedful.checks.claims.words import content_stems, tokenize
from heedful.checks.evaluate import Context
from heedful.checks.text import TextCheck, require, shorten
from heedful.errors import InvalidInput
from heedful.loop.record import NOTHING, Evaluation, Finding, Level, Usage
from heedful.models.call import closed_object, text_schema
from heedful.models.contract import Model
from heedful.sanitize import cut_middle

__all__ = ["Claim", "Evidence", "Lexicon", "ground", "grounding", "index_source"]

_NAME = "grounding"
# The most claims shown to a model, and the most characters of a sentence and of a reason.
MOST = 8
SENTENCE = 400
REASON = 200
# The most pieces of evidence shown for a sentence, and the most characters of a piece.
PIECES = 3
PIECE = 400
_VERDICTS = get_args(Verdict)
_BETWEEN = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_INSTRUCTION = (
    "Each line of the candidate is a claim: its number, the words in question, and their sentence. "
    "Judge each by the evidence alone, not by what you know: supported if the evidence says the "
    "same or implies it, contradicted if the evidence says otherwise, not found if the evidence "
    "does not say."
)
# The level and severity of a verdict; the caller chooses the level of "not found".
_LEVELS: Mapping[Verdict, tuple[Level, float]] = {
    "contradicted": ("error", 0.6),
    "supported": ("note", 0.0),
}
Unsupported = Literal["error", "warning"]
Terms = Lexicon | Mapping[str, Any]


def ground(text: str, evidence: Any, *, lexicon: Terms | None = None) -> tuple[Claim, ...]:
    """Return the claims of a text, in order, each with its verdict according to the evidence.

    `evidence` is a mapping, a list of rows, a data frame, text (JSON, a Python literal, CSV, "name:
    value" lines or prose) or an `Evidence` object, which can be used for many texts. The words
    around a number name its rows and columns; the number is supported if a value in one of these
    cells rounds to it. `lexicon` is the vocabulary of a subject area. No model is asked. Raises
    InvalidInput.
    """
    index = _index(evidence, lexicon)
    every = (claim for sentence in sentences(text, index) for claim in claims(sentence))
    return tuple(sorted(every, key=lambda claim: claim.span))


def _index(evidence: Any, lexicon: Terms | None) -> Evidence:
    if not isinstance(evidence, Evidence):
        return Evidence(evidence, lexicon)
    if lexicon is not None:
        raise InvalidInput("lexicon", lexicon, "left out: this Evidence already has a lexicon")
    return evidence


def index_source(source: Any, lexicon: Terms | None = None) -> Callable[[Any, Any], Evidence]:
    """Return a function `(candidate, state)` that returns `source` as indexed evidence.

    If `source` is itself such a function, its result is indexed at each call. Otherwise the
    evidence is indexed only once.
    """
    if callable(source):
        return lambda candidate, state: _index(source(candidate, state), lexicon)
    index = _index(source, lexicon)
    return lambda candidate, state: index


def grounding(
    evidence: Any,
    *,
    unsupported: Unsupported = "warning",
    lexicon: Terms | None = None,
    judge: Model | str | None = None,
) -> TextCheck:
    """Check the claims of a text against evidence, with the rules of `ground`.

    A contradicted claim is an error. A claim that is not found in the evidence is a finding of the
    level `unsupported`. A finding has the span of the claim and the nearest true value. `evidence`
    may also be a function `(candidate, state)`, where the state is `Context.data`. Its result is
    indexed at each call; other evidence is indexed only once. `lexicon` is a `Lexicon` or a mapping
    of its fields. `judge`, a Model or the name of a model, is asked about the first few claims that
    were not found; findings with its verdicts name the model. Raises InvalidInput for another
    level, a wrong lexicon or a wrong judge.
    """
    require(unsupported in ("error", "warning"), "unsupported", unsupported, "error or warning")
    model = critique.open_judge(judge) if isinstance(judge, str) else judge
    require(model is None or isinstance(model, Model), "judge", judge, "a Model or its name")
    source = index_source(evidence, lexicon)

    def judge_text(text: str, context: Context) -> Any:
        """Return findings or, if there is a model, a coroutine that returns an Evaluation."""
        index = source(text, context.data)
        if not index:
            what = "there is no evidence to compare the text with"
            return [Finding(_NAME, what, "give the evidence", key=f"{_NAME}: no evidence")]
        claims = ground(text, index)
        return _findings(claims, unsupported) if model is None else judged(claims, text, index)

    async def judged(claims: Sequence[Claim], text: str, index: Evidence) -> Evaluation:
        assert model is not None
        every, usage = await _judge(claims, text, index, model)
        return Evaluation(tuple(_findings(every, unsupported)), usage=usage)

    return TextCheck(_NAME, judge_text, model is None and not callable(evidence))


def _findings(claims: Sequence[Claim], unsupported: Level) -> Iterator[Finding]:
    """Yield a finding for each unsupported claim, and a note for each that a model supports."""
    for claim in claims:
        if claim.verdict == "supported" and not claim.judge:
            continue
        text, paths = shorten(claim.text, 120), ", ".join(claim.paths)
        level, severity = _LEVELS.get(claim.verdict, (unsupported, 0.3))
        by = f"judged by {claim.judge}" if claim.judge else ""
        what = f"{claim.kind} {text} is {claim.verdict}: {claim.why}" + (f" ({by})" if by else "")
        fix = "correct it"
        if claim.nearest and not by:
            what += f"; the nearest true value is {claim.nearest}"
            fix = f"write {claim.nearest} for {text}"
            if claim.kind == "comparison":
                fix = f"correct {text}: it is {claim.nearest}"
        yield Finding(
            _NAME,
            what,
            "" if level == "note" else f"{fix}, or leave {text} out",
            level=level,
            severity=severity,
            key=f"{_NAME}: {claim.kind} {claim.text} {paths}".rstrip(),
            evidence=by or (f"{paths} = {claim.nearest}" if paths else ""),
            span=claim.span,
        )


# A model judges


async def _judge(
    claims: Sequence[Claim], text: str, evidence: Evidence, model: Model
) -> tuple[list[Claim], Usage]:
    """Ask a model about the first `MOST` claims that were not found; return all claims and usage.

    For each of these claims, the model sees the evidence that shares the rarest words with the
    sentence of the claim. Raises MalformedAnswer, ModelError.
    """
    judged = list(claims)
    waiting = [n for n, claim in enumerate(claims) if claim.verdict == "not found"][:MOST]
    if not waiting:
        return judged, NOTHING
    shown = _show([claims[n] for n in waiting], text, evidence)
    what = f'an object: "reason" in a few words, "verdict" one of {", ".join(_VERDICTS)}'
    verdict = {"type": "string", "enum": list(_VERDICTS)}
    keys = {"reason": text_schema(REASON), "verdict": verdict}
    entry = closed_object(keys, description=what)
    schema = closed_object({f"claim {n}": entry for n in range(1, len(waiting) + 1)})
    verdicts, usage = await critique.ask_judge(
        model,
        "grounding",
        _INSTRUCTION,
        schema,
        shown,
        lambda answer: [_verdict(answer.get(n), n) for n in schema["properties"]],
        who="judge of grounding",
        max_tokens=64 + 96 * len(waiting),
    )
    for n, (given, reason) in zip(waiting, verdicts, strict=True):
        judged[n] = replace(claims[n], verdict=given, why=reason, judge=model.name)
    return judged, usage


def _show(claims: Sequence[Claim], text: str, evidence: Evidence) -> dict[str, str]:
    """Return the texts to show a model: each claim in its sentence, and the nearest evidence."""
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
    return {
        name: cut_middle(critique.plain_text(part), critique.LONGEST)
        for name, part in shown.items()
    }


def _stems(text: str) -> set[str]:
    return set(content_stems(token.low for token in tokenize(text)))


def _pieces(row: Row) -> Iterator[str]:
    short = []
    for path, cell in row.cells.items():
        text, name = str(cell), ".".join(path)
        if len(text) <= PIECE:
            short.append(f"{name} = {text}" if name else text)
        else:
            yield from (f"{name}: {part}" if name else part for part in _BETWEEN.split(text))
    if short:
        yield f"{row.path} {' '.join(row.key)}".strip() + ": " + ", ".join(short)


def _verdict(answer: object, name: str) -> tuple[Verdict, str]:
    if not isinstance(answer, Mapping):
        raise InvalidInput(name, answer, "an object with a reason and a verdict")
    verdict, reason = answer.get("verdict"), answer.get("reason")
    require(verdict in _VERDICTS, f"verdict of {name}", verdict, f"one of {', '.join(_VERDICTS)}")
    require(isinstance(reason, str), f"reason of {name}", reason, "text")
    return verdict, " ".join(critique.plain_text(reason).split())[:REASON]  # type: ignore[return-value]
