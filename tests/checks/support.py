"""Calls a check as a host would."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Sequence
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
    return json.dumps({"reason": "it says so", "alignment": float(aligned), "confidence": 1})


def keys(check: Callable[..., Any], candidate: Any) -> list[str]:
    return [finding.key for finding in findings(check, candidate)]
