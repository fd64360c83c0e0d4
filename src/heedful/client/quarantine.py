"""The quarantine of a project over HTTP, as `heedful.Quarantine` has it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from heedful.client import answers
from heedful.memory.trust import Held, Removed

Ask = Callable[..., Awaitable[Any]]


class Quarantine:
    """What waits for a ruling. Who rules is the key, which must be allowed to approve."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def waiting(self, limit: int = 50) -> list[Held]:
        """What waits, the worst by the screen first, then the newest."""
        page = await self._ask("GET", "quarantine", limit=limit)
        return answers.read(list[Held], page["items"])

    async def show(self, id: int) -> Held:
        """An example, waiting or not, and where it comes from. Raises NotFound."""
        return answers.read(Held, await self._ask("GET", "quarantine", id))

    async def release(self, id: int, *, why: str) -> None:
        """Let it be recalled, with the trust of an operator. Raises NotFound, NotQuarantined."""
        await self._ask("POST", "quarantine", id, "release", body={"why": why})

    async def reject(self, id: int, *, why: str) -> None:
        """Retire it: the same text comes back no more. Raises as `release`."""
        await self._ask("POST", "quarantine", id, "reject", body={"why": why})

    async def revoke(self, source: str, *, why: str, dry_run: bool = False) -> Removed:
        """Remove all that rests on `source`; with `dry_run` only count it. Raises NotFound."""
        body = {"source": source, "why": why, "dry_run": dry_run}
        return answers.read(Removed, await self._ask("POST", "quarantine", "revoke", body=body))

    async def log(self, limit: int = 50) -> list[Mapping[str, Any]]:
        """What was ruled on lessons and sources, by whom and why, the newest first."""
        page = await self._ask("GET", "quarantine", "log", limit=limit)
        return list(page["items"])
