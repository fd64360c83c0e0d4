"""Calls a check as a host would."""

import asyncio
import inspect
import json
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from heedful.checks.evaluate import Context
from heedful.loop.record import Finding
from heedful.models.contract import Message

CONTEXT = Context("a task")


def findings(check: Callable[..., Any], candidate: Any) -> list[Finding]:
    answer = check(candidate, CONTEXT)
    if inspect.isawaitable(answer):

        async def waited() -> Any:
            return await answer

        answer = asyncio.run(waited())
    return list(getattr(answer, "findings", answer))


def judge(messages: Sequence[Message]) -> str:
    """A model that finds aligned what says so of itself."""
    aligned = "\ngood\n" in messages[-1].content
    return json.dumps(
        {"reason": "it says so", "alignment": float(aligned), "confidence": 1}
    )


PAIRS = json.loads(
    files("heedful.checks").joinpath("calibration.json").read_text("utf-8")
)


def wise(messages: Sequence[Message], sure: float = 0.05) -> str:
    """A judge that knows which answers of the shipped pairs are worse, by so much."""
    worse = any(f"\n{pair['worse']}\n" in messages[-1].content for pair in PAIRS) * sure
    tags = [{"tag": "optimism", "severity": worse, "quote": ""}]
    scores = {"alignment": 1 - worse, "drift": worse, "summary_valid": not worse}
    return json.dumps({"reason": "so", "biases": tags, **scores, "confidence": 0.1})


def noisy(messages: Sequence[Message]) -> str:
    """A judge with nearly the same opinion of everything, and no word on summaries."""
    return wise(messages, 0.04).replace("summary_valid", "valid")


def keys(check: Callable[..., Any], candidate: Any) -> list[str]:
    return [finding.key for finding in findings(check, candidate)]
