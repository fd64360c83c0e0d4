"""What a service works with: its store, its model, its checks and its limits."""

from __future__ import annotations

from asyncio import Semaphore
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request

from heedful import policies
from heedful.collecting import Patience
from heedful.compat import LoopGuardrails, Reflections
from heedful.http.metrics import Metrics
from heedful.loop.decide import Policy
from heedful.memory.memory import Memory
from heedful.memory.proof import SHARE
from heedful.protocols import Embedder, Model, Scope
from heedful.store.sqlstore import SqlStore
from heedful.work import Depth, Work

MIB = 1024 * 1024
APART = 2
Check = Callable[..., Any]


class NoWork:
    """Hands nothing over: what waits in the store is found there by a worker."""

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        """Leave it."""

    async def depth(self) -> Sequence[Depth]:
        """Nothing is known of other workers."""
        return ()


@dataclass(frozen=True, slots=True)
class Limits:
    """What one caller, and all together, may ask of a service.

    `body` and `traces` are bytes, after decompression. `rate` is requests a second and key, 0 for
    no limit, with up to `burst` at once. `concurrent` requests are worked on at a time. A request
    has `seconds` to arrive, and `answer` seconds to be answered.
    """

    body: int = 4 * MIB
    traces: int = 16 * MIB
    rate: float = 0.0
    burst: int = 50
    concurrent: int = 256
    seconds: float = 30.0
    answer: float = 300.0


@dataclass(frozen=True, slots=True)
class Setup:
    """All that the routes know of the world; made once, before the application.

    `scope` is that of callers without a key, who are let in only where the service is `open`: it
    listens on loopback alone, and nobody has made a key. `checks` are those that a request may name
    besides the ones that come with heedful, `policy` is that of loops which ask for none.
    `patience` is for traces to end. `turns` are of checks that run in a process of their own,
    `APART` at a time: those that wait for one hold no thread.
    """

    store: SqlStore
    scope: Scope = Scope()
    open: bool = False
    embedder: Embedder | None = None
    model: Model | None = None
    policy: Policy = policies.default
    checks: Mapping[str, Check] = field(default_factory=dict)
    holdout: float = SHARE
    max_entries: int | None = None
    limits: Limits = Limits()
    reflections: Reflections = Reflections()
    guardrails: LoopGuardrails = LoopGuardrails()
    work: Work = field(default_factory=NoWork)
    patience: Patience = Patience()
    metrics: Metrics = field(default_factory=Metrics)
    turns: Semaphore = field(default_factory=lambda: Semaphore(APART))

    def memory(self, scope: Scope) -> Memory:
        """The memory of a scope, with the embedder and the bounds of the service."""
        return Memory(self.store, scope, self.embedder, self.holdout, self.max_entries)


async def setup_of(request: Request) -> Setup:
    """The setup of the application that the request came to. What is not async gets a thread."""
    found: Setup = request.app.state.setup
    return found


Given = Annotated[Setup, Depends(setup_of)]
"""The setup as a parameter of a route: `setup: Given`."""
