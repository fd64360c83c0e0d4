"""Calls a check as a host would."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from errata.loop.record import Finding
from errata.protocols import Context

CONTEXT = Context("a task")


def findings(check: Callable[..., Any], candidate: Any) -> list[Finding]:
    answer = check(candidate, CONTEXT)
    if inspect.isawaitable(answer):

        async def waited() -> Any:
            return await answer

        answer = asyncio.run(waited())
    return list(answer)


def keys(check: Callable[..., Any], candidate: Any) -> list[str]:
    return [finding.key for finding in findings(check, candidate)]
