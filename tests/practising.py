"""A practice of a task that no attempt solves."""

from __future__ import annotations

from typing import Any

import heedful


def _reject(candidate: str) -> str:
    return "not good"


async def practise_in_vain(memory: heedful.Memory, **options: Any) -> None:
    """Ask for a task, and practise it; `options` are those of the function."""

    @heedful.self_correcting(
        checks=[_reject],
        memory=memory,
        scope=memory.scope,
        store=memory.store,
        practice=True,
        on_exhausted="best",
        **options,
    )
    async def answer(task: str) -> str:
        return "text"

    await answer("a hard task")
    await memory.practice(answer)
