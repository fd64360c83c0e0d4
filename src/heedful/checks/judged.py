"""A model judges what the rules of grounding leave open; what it says is marked with its name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from heedful.checks.asking import LONGEST, chat
from heedful.checks.claim import Claim, Verdict
from heedful.checks.evidence import Evidence
from heedful.checks.pieces import Pieces
from heedful.checks.roles import plain
from heedful.checks.said import Said
from heedful.checks.text import require
from heedful.errors import InvalidInput
from heedful.loop.record import NOTHING, Usage
from heedful.models.call import ask_for_json
from heedful.models.contract import Model
from heedful.sanitize import cut_middle

# Claims that a model is shown, and characters of the sentence of one and of a reason.
MOST = 8
SENTENCE = 400
REASON = 200
VERDICTS = get_args(Verdict)
_INSTRUCTION = (
    "Each line of the candidate is a claim: its number, the words in question, and the sentence "
    "that they stand in. Judge each by the evidence alone, not by what you know: supported where "
    "the evidence says the same or it follows from it, contradicted where the evidence says "
    "otherwise, not found where the evidence does not tell."
)


async def judged(
    claims: Sequence[Claim], text: str, evidence: Evidence, model: Model
) -> tuple[list[Claim], Usage]:
    """The claims, the first `MOST` that were not found with the verdict of a model, and its cost.

    It is shown the few pieces of evidence that share the rarest words with each of them. No claim
    with another verdict is put to it. Raises MalformedAnswer, ModelError.
    """
    waiting = [n for n, claim in enumerate(claims) if claim.verdict == "not found"][:MOST]
    if not waiting:
        return list(claims), NOTHING
    shown = _shown([claims[n] for n in waiting], text, evidence)
    schema = _schema(len(waiting))
    verdicts, usage = await ask_for_json(
        model,
        lambda wrong: chat("grounding", _INSTRUCTION, schema, shown, wrong),
        lambda answer: _read(answer, list(schema["properties"])),
        schema,
        who="judge of grounding",
        max_tokens=64 + 96 * len(waiting),
    )
    found = list(claims)
    for n, (verdict, reason) in zip(waiting, verdicts, strict=True):
        found[n] = replace(claims[n], verdict=verdict, why=reason, judge=model.name)
    return found, usage


def _shown(claims: Sequence[Claim], text: str, evidence: Evidence) -> dict[str, str]:
    said = Said(text, evidence)
    pieces = Pieces(row for table in evidence.tables.values() for row in table.rows)
    sentences = [_sentence(said, claim) for claim in claims]
    near = dict.fromkeys(piece for one in sentences for piece in pieces.near(one))
    lines = [
        f"{n}. {cut_middle(claim.text, SENTENCE)!r} in: {sentence}"
        for n, (claim, sentence) in enumerate(zip(claims, sentences, strict=True), 1)
    ]
    whole = {"evidence": "\n".join(near), "candidate": "\n".join(lines)}
    return {name: cut_middle(plain(one), LONGEST) for name, one in whole.items()}


def _sentence(said: Said, claim: Claim) -> str:
    """The sentence of a claim, on one line."""
    at = next(n for n, token in enumerate(said.tokens) if token.end > claim.span[0])
    first, end = said.sentence(at)
    whole = said.text[said.tokens[first].start : said.tokens[end - 1].end]
    return cut_middle(" ".join(whole.split()), SENTENCE)


def _schema(claims: int) -> dict[str, Any]:
    """An object with a reason and a verdict for each claim."""
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
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("the answer", text, "JSON, whole and nothing else") from error
    require(isinstance(answer, dict), "the answer", answer, "a JSON object")
    return [_verdict(answer, name) for name in names]


def _verdict(answer: Mapping[str, Any], name: str) -> tuple[Verdict, str]:
    one = answer.get(name)
    if not isinstance(one, dict):
        raise InvalidInput(name, one, "an object with a reason and a verdict")
    verdict: Any = one.get("verdict")
    require(verdict in VERDICTS, f"verdict of {name}", verdict, f"one of {', '.join(VERDICTS)}")
    reason = one.get("reason")
    require(isinstance(reason, str), f"reason of {name}", reason, "text")
    return verdict, " ".join(plain(reason).split())[:REASON]
