"""What critics judge: their roles, the vocabulary of biases, and what their answers say. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from heedful.checks.text import require
from heedful.errors import InvalidInput
from heedful.loop.record import NOTHING, Candidate, Direction, Finding, Level, Usage
from heedful.redact import redact
from heedful.sanitize import sanitize

BIASES: Mapping[str, str] = {
    "overconfidence": "claims more certainty than the evidence it gives supports",
    "optimism": "expects the good outcome and passes over how it could fail",
    "confirmation": "counts what speaks for its conclusion and leaves out what speaks against it",
    "anchoring": "holds on to the first number or idea although later evidence moves it",
    "availability": "takes what comes to mind easily for what is frequent",
    "hindsight": "calls an outcome foreseeable because it is known now",
    "survivorship": "looks only at the cases that lasted or succeeded",
    "generalization": "concludes from a few cases to all",
    "causation": "takes what occurs together for cause and effect",
    "authority": "rests on who says it instead of on why",
    "sunk_cost": "goes on because of what was already spent",
    "false_dilemma": "offers two choices where there are more",
    "framing": "lets the wording decide the impression instead of the facts",
    "sycophancy": "agrees with the reader or flatters against the evidence",
}
"""The bias tags that come with heedful, each with its definition."""

BIAS = "bias"
"""The score of a role with tags: the highest severity, 0 without a tag."""

REASON, QUOTE = 400, 200
"""What is kept of a reason and of a quote, in characters."""

_TAKEN = ("reason", "biases", BIAS, "confidence")


@dataclass(frozen=True, slots=True)
class Role:
    """What a critic is to judge, and what it answers: scores, a verdict, bias tags, or several.

    `instruction` tells the model what to judge and what the ends of each score mean. `scores` says
    of each score, 0..1, which side is good: at_least or at_most. `verdict` names a score that is
    answered with true or false, 1 or 0; false is a finding of level error. `tags` are bias tags and
    their definitions: each that is given is a persistent warning, and the highest severity is the
    score `bias`. Raises InvalidInput.
    """

    name: str
    instruction: str
    scores: Mapping[str, Direction] = field(default_factory=dict)
    verdict: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, text in (("name", self.name), ("instruction", self.instruction)):
            written = isinstance(text, str) and text.strip() != ""
            require(written, f"{what} of a role", text, "text that is not empty")
        require(bool(self.directions), f"scores of role {self.name!r}", self.scores, "given")
        for score, side in (*self.scores.items(), (self.verdict, "at_least")):
            require(score not in _TAKEN, "name of a score", score, f"none of {', '.join(_TAKEN)}")
            sides = ("at_least", "at_most")
            require(side in sides, f"direction of {score!r}", side, "at_least or at_most")

    @property
    def directions(self) -> dict[str, Direction]:
        """Every score it leads to, and which side is good."""
        sides: dict[str, Direction] = dict(self.scores)
        sides |= {self.verdict: "at_least"} if self.verdict else {}
        sides |= {BIAS: "at_most"} if self.tags else {}
        return sides

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of an answer: first the reason, so that the scores follow from it."""
        why = "why you judge so, in one or two sentences; where something is wrong, how to mend it"
        sure = "how sure you are of this judgement, a number from 0 to 1"
        share = {"type": "number", "minimum": 0, "maximum": 1}
        reason = {"type": "string", "maxLength": REASON, "description": why}
        keys: dict[str, Any] = {"reason": reason}
        if self.tags:
            quote = {"type": "string", "maxLength": QUOTE}
            bias = {"tag": {"enum": list(self.tags)}, "severity": share, "quote": quote}
            what = (
                "a list, empty where there is none, of objects with tag, severity (a number from "
            )
            what += "0 to 1) and quote (words of the candidate that show it); the tags are"
            what += "".join(f"\n  {tag}: it {meaning}" for tag, meaning in self.tags.items())
            keys["biases"] = {"type": "array", "items": _object(bias), "description": what}
        keys |= dict.fromkeys(self.scores, share | {"description": "a number from 0 to 1"})
        if self.verdict:
            keys[self.verdict] = {"type": "boolean", "description": "true or false"}
        return _object(keys | {"confidence": share | {"description": sure}})


def _object(keys: dict[str, Any]) -> dict[str, Any]:
    closed = {"required": list(keys), "additionalProperties": False}
    return {"type": "object", "properties": keys, **closed}


ALIGNMENT = Role(
    "alignment",
    "Judge how far the candidate reaches the goal; without a goal, how far it does what the task "
    "asks. alignment is 1 where it does so fully and correctly, 0 where it is wrong or does "
    "something else.",
    {"alignment": "at_least"},
)
DRIFT = Role(
    "drift",
    "Judge how far the candidate has left the task. drift is 0 where all of it serves the task, 1 "
    "where all of it is about something else.",
    {"drift": "at_most"},
)
PESSIMIST = Role(
    "pessimist",
    "Look for biases in how the candidate argues. List only those that a careful reader would "
    "see, each once. severity is near 0 for a slip, 1 where it makes the candidate unusable.",
    tags=BIASES,
)
SUMMARY = Role(
    "summary",
    "The candidate is to be a summary of the work that task and context hold. summary_valid is "
    "true where the work bears out all that it says and nothing that matters is left out.",
    verdict="summary_valid",
)
_RUN = "The candidate is the answer of a run, whose steps the context tells. Judge "
HELPFULNESS = Role(
    "helpfulness",
    _RUN + "how far the answer helps who gave the task: helpfulness is 1 where they can use it as "
    "it is, 0 where it leaves them where they were.",
    {"helpfulness": "at_least"},
)
CORRECTNESS = Role(
    "correctness",
    _RUN + "whether the answer is right: correctness is 1 where all that it says is right and "
    "follows from the steps, 0 where it is wrong.",
    {"correctness": "at_least"},
)
COMPLETENESS = Role(
    "completeness",
    _RUN + "how much of what the task asks was done: completeness is 1 where nothing is missing, 0 "
    "where nothing was done.",
    {"completeness": "at_least"},
)
_ROLES = (ALIGNMENT, DRIFT, PESSIMIST, SUMMARY, HELPFULNESS, CORRECTNESS, COMPLETENESS)
ROLES: Mapping[str, Role] = {one.name: one for one in _ROLES}
"""The roles that come with heedful, by name."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What one critic thinks of a candidate: scores and confidence in 0..1, and findings."""

    role: Role
    scores: Mapping[str, float]
    confidence: float
    findings: tuple[Finding, ...] = ()
    usage: Usage = NOTHING

    @property
    def good(self) -> float:
        """The mean of its scores, those where smaller is better turned round."""
        sides = self.role.directions
        turned = [s if sides[name] == "at_least" else 1 - s for name, s in self.scores.items()]
        return sum(turned) / len(turned)


def plain(value: Any) -> str:
    """A text, or data as JSON, as nothing but text: no controls, role tokens or known secrets."""
    text = Candidate.of(value).text or ""
    return redact(sanitize(text))


def read(role: Role, text: str, shown: str, by: str) -> Opinion:
    """What the answer of the model called `by` says of the candidate that it was `shown`.

    Raises InvalidInput with the field, its value and what it must be.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("the answer", text, "JSON, whole and nothing else") from error
    require(isinstance(answer, dict), "the answer", answer, "a JSON object")
    reason = _line(answer, "reason", REASON)
    require(reason != "", "reason", answer["reason"], "text that is not empty")
    confidence = _number(answer, "confidence")
    scores = {name: _number(answer, name) for name in role.scores}
    if role.verdict:
        verdict = answer.get(role.verdict)
        require(isinstance(verdict, bool), role.verdict, verdict, "true or false")
        scores[role.verdict] = float(verdict)
    biases = tuple(_biases(role, answer, shown)) if role.tags else ()
    if role.tags:
        scores[BIAS] = max((bias.severity for bias in biases), default=0.0)
    opinion = Opinion(role, scores, confidence)
    why = _why(opinion, reason, f"judged by {by}, confidence {confidence:g}")
    return replace(opinion, findings=(why, *biases))


def _why(opinion: Opinion, reason: str, by: str) -> Finding:
    """The reason as a finding, fed back where no bias tag does that and there is what to mend."""
    role, severity = opinion.role, round(1 - opinion.good, 3)
    if role.verdict and not opinion.scores[role.verdict]:
        key = f"{role.name}: not {role.verdict}"
        return Finding(role.name, reason, severity=1.0, key=key, evidence=by)
    level: Level = "warning" if role.scores and severity else "note"
    return Finding(role.name, reason, level=level, severity=severity, evidence=by)


def _biases(role: Role, answer: Mapping[str, Any], shown: str) -> Iterator[Finding]:
    listed = answer.get("biases")
    if not isinstance(listed, list):
        raise InvalidInput("biases", listed, "a list, empty where there is none")
    for bias in listed:
        require(isinstance(bias, dict), "an entry of biases", bias, "an object")
        tag = bias.get("tag")
        known = isinstance(tag, str) and tag in role.tags
        require(known, "tag", tag, f"one of {', '.join(role.tags)}")
        severity = _number(bias, "severity", f" of {tag}")
        quote = _line(bias, "quote", QUOTE, f" of {tag}")
        if quote not in " ".join(shown.split()):
            quote = ""  # what the candidate does not say is no evidence
        what = f"{tag}: it {role.tags[tag]}" + (f", as in “{quote}”" if quote else "")
        fix = "Write that part so that this no longer holds"
        yield Finding(role.name, what, fix, "warning", severity, f"bias: {tag}", True, quote)


def _number(answer: Mapping[str, Any], name: str, of: str = "") -> float:
    value = answer.get(name)
    # true is a number to Python, and NaN is not within.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidInput(name + of, value, "a number from 0 to 1")
    return float(value)


def _line(answer: Mapping[str, Any], name: str, most: int, of: str = "") -> str:
    value = answer.get(name)
    if not isinstance(value, str):
        raise InvalidInput(name + of, value, "text")
    return " ".join(plain(value).split())[:most]
