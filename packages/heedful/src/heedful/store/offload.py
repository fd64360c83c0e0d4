"""Run long computations in one thread, and let calls that need much memory take turns.

Python runs one thread at a time. A process has a single thread for long computations,
because an event loop would wait longer for its turn among several.

A call that reads much data holds it in memory until it ends. So a service lets few such
calls run at a time: `Turns` says whose turn it is, and a `Store` asks for a turn before
a large read.
"""

import asyncio
import contextvars
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from typing import Literal, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
# "read" for a read that is declared as bulk, "call" for a large body or loop.
TurnKind = Literal["read", "call"]
OFFLOAD_THREAD_NAME = "heedful-long"
# A computation that reads or makes more characters than this is long.
MAX_INLINE_CHARS = 64 * 1024


async def offload(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a long computation in a thread; return its result, or raise its error.

    So the event loop can go on meanwhile. The function sees the context variables of
    the caller.
    """
    context = contextvars.copy_context()
    job = partial(context.run, partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_executor(os.getpid()), job)


@cache
def _executor(process: int) -> ThreadPoolExecutor:
    """Return the thread of this process; a forked child needs one of its own."""
    return ThreadPoolExecutor(1, OFFLOAD_THREAD_NAME)


class _Waiting:
    """A call that waits: its caller, and a future that ends when its turn begins."""

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _TurnQueue:
    """Who has a turn of one kind, and who waits for one.

    A turn goes to the caller whose last turn began the longest ago, so the first call
    of a caller is not behind the second one of another.
    """

    def __init__(self, most: int) -> None:
        self._max_running = most
        self._running: set[str] = set()
        self._waiting: list[_Waiting] = []
        # Caller -> the number of its last turn. One that is neither here nor running
        # had none since somebody last waited.
        self._last_turns: dict[str, int] = {}
        self._turns = 0

    def count_waiting(self, caller: str) -> int:
        """Return how many calls of a caller wait."""
        return sum(waiting.caller == caller for waiting in self._waiting)

    async def acquire(self, caller: str) -> None:
        """Wait until a turn of this caller begins; `release` ends it.

        If the task is cancelled meanwhile, the caller has no turn.
        """
        waiting = _Waiting(caller)
        self._waiting.append(waiting)
        self._begin_turns()
        try:
            await waiting.turn
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:  # the turn began before the task was cancelled
                self.release(caller)
            raise

    def release(self, caller: str) -> None:
        """End the turn of a caller; the turns that it made wait begin."""
        self._running.remove(caller)
        self._begin_turns()

    def _begin_turns(self) -> None:
        """Begin turns while fewer than the maximum run and somebody can have one.

        A caller has one turn at a time. The next turn goes to the caller whose last one
        began the longest ago.
        """
        while len(self._running) < self._max_running:
            may_begin = [
                waiting
                for waiting in self._waiting
                if waiting.caller not in self._running
            ]
            if not may_begin:
                break
            next_call = min(
                may_begin, key=lambda waiting: self._last_turns.get(waiting.caller, 0)
            )
            self._waiting.remove(next_call)
            self._turns += 1
            self._running.add(next_call.caller)
            self._last_turns[next_call.caller] = self._turns
            next_call.turn.set_result(None)

        # Nobody waits, so nobody is to be compared: forget callers, or they grow.
        if not self._waiting:
            self._last_turns = {
                caller: self._last_turns[caller] for caller in self._running
            }


class Turns:
    """Turns to use much memory: `most` at a time, and one for each caller.

    Reads that are short have turns of their own, so that they do not wait for a large
    report that a model judges.
    """

    def __init__(self, most: int) -> None:
        self.queues: dict[TurnKind, _TurnQueue] = {
            "read": _TurnQueue(most),
            "call": _TurnQueue(most),
        }

    @contextmanager
    def call(self, caller: str) -> Iterator[None]:
        """Let the call that the block runs take a turn, by `take_turn`.

        Entering the block takes none. A turn that was taken ends with the block.
        `caller` names who calls, and has one turn of a kind at a time.
        """
        turn = _Turn(self, caller)
        token = _current.set(turn)
        try:
            yield
        finally:
            _current.reset(token)
            turn.end()


class _Turn:
    """The turn of one call, which lasts from `take` to `end`.

    A call has one turn, of the kind that it asked for first. If it could wait for
    another kind, two calls could wait for each other. A part of a call that outlives it
    gets no turn, because nobody would end that.
    """

    def __init__(self, turns: Turns, caller: str) -> None:
        self._turns = turns
        self._caller = caller
        self._ended = False
        self._queue: _TurnQueue | None = None
        self._lock = asyncio.Lock()  # parts of a call may run at the same time

    async def take(self, kind: TurnKind) -> None:
        """Wait until it is the turn of the call, unless it has one.

        `kind` says which turns it waits for: "read" for short reads, or "call".
        """
        async with self._lock:
            if self._queue is not None:
                return
            queue = self._turns.queues[kind]
            await queue.acquire(self._caller)
            self._queue = queue
            # The call ended while this part of it was waiting.
            if self._ended:
                self.end()

    def count_waiting(self, kind: TurnKind) -> int:
        """Return how many calls of the same caller wait for a turn of this kind."""
        return self._turns.queues[kind].count_waiting(self._caller)

    def end(self) -> None:
        """Let the next call have its turn."""
        self._ended = True
        if self._queue is not None:
            self._queue.release(self._caller)
            self._queue = None


_current: contextvars.ContextVar[_Turn | None] = contextvars.ContextVar(
    "heedful_turn", default=None
)


async def take_turn(kind: TurnKind) -> None:
    """Wait for the turn of the current call; do not wait outside of calls."""
    turn = _current.get()
    if turn is not None:
        await turn.take(kind)


def count_waiting(kind: TurnKind) -> int:
    """Return how many calls of the current caller wait for a turn of this kind.

    A call that waits itself is one of them. Outside of calls that take turns, it is 0.
    """
    turn = _current.get()
    if turn is None:
        return 0
    return turn.count_waiting(kind)
