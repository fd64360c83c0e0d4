"""Loops that learn into a memory, and are told what it has."""

from typing import Any

import heedful
from heedful.memory.memory import Memory


async def run_loop(
    memory: Memory, task: str, generate: Any, checks: Any = (), **options: Any
) -> heedful.Result[Any]:
    """Run a loop in the store of its memory."""
    options = {"store": memory.store, **options}
    return await heedful.run(
        task, generate=generate, checks=checks, memory=memory, **options
    )
