"""One of the processes of `test_limits`: threads that step, override, cancel and read at random.

What a loop is allowed, whose it is and how it is checked are functions of its id. Every call of
user code is written to a log of this process, so that what the store says can be held against it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from asyncio import wait_for
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import heedful
from heedful import errors
from heedful.checks.evaluate import Context
from heedful.drive import journal
from heedful.drive.drive import Run
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Again, Policy, Verdict
from heedful.loop.record import Finding, Usage
from heedful.loop.stop import (
    All,
    Budget,
    Echo,
    Fatigue,
    MaxAttempts,
    Plateau,
    Repeat,
    flat,
    rule_name,
)
from heedful.models.contract import Answer
from heedful.store import loops
from heedful.store.sqlite import BUSY_SECONDS, File
from heedful.store.store import Store

SHIPPED = loops.LEASE_SECONDS
THREADS = 8
STEPS_A_LOOP = 16  # on the average: the window of loops moves on with the steps that were made
WINDOW = 40
KEPT = 16  # sessions that a thread comes back to
SCOPE_LOOPS = 20  # that share the counts of `Echo(across="scope")`

EXPECTED = (
    errors.LeaseLost,
    errors.Conflict,
    errors.OverrideRefused,
    errors.NotFound,
    errors.StoreUnavailable,
    TimeoutError,
)
FAILED = (errors.GenerateFailed, errors.CheckFailed, errors.ModelError)

RULES: tuple[Callable[[int], tuple[heedful.StopRule, ...]], ...] = (
    lambda n: (MaxAttempts(2 + n % 4),),
    lambda n: (MaxAttempts(3 + n % 3), Repeat()),
    lambda n: (MaxAttempts(5), Fatigue()),
    lambda n: (MaxAttempts(5), Echo(2 + n % 2)),
    lambda n: (MaxAttempts(5), Echo(9, across="scope")),
    lambda n: (MaxAttempts(5), Plateau(1 + n % 2)),
    lambda n: (MaxAttempts(3), Budget(calls=4 + n % 6)),
    lambda n: (Repeat(2), Budget(tokens=30 + 10 * (n % 5))),
    lambda n: (MaxAttempts(5), All(MaxAttempts(2), Repeat())),
    lambda n: (MaxAttempts(4), Budget(calls=12), Echo(), Repeat(), Fatigue()),
    lambda n: (MaxAttempts(9), Budget(calls=16), Echo(4), Repeat(2), Fatigue(0.6), Plateau(3)),
)
LIFTABLE = ("attempts", "repeat", "fatigue", "plateau", "echo")
ECHOING = 4  # which of them counts over the scope
SENTENCE = "the quick brown fox jumps over the lazy dog and then it runs into a very dark {} wood"


# What a thread is at; a call that it gave up may be under way for longer, in a thread of its own.
_step: ContextVar[str] = ContextVar("step")


def name(number: int) -> str:
    return f"loop {number}"


def policy(id: str) -> Policy:
    number = int(id.split()[1])
    return Policy(RULES[number % len(RULES)](number // len(RULES)))


def scope(id: str) -> Scope:
    number = int(id.split()[1])
    if number % len(RULES) != ECHOING:
        return Scope("soak", "limits")
    return Scope("soak", f"echo {number // len(RULES) // SCOPE_LOOPS}")


def liftable(policy: Policy) -> list[str]:
    return [name for one in flat(policy.rules) if (name := rule_name(one)) in LIFTABLE]


@dataclass(frozen=True)
class Life:
    """One process from its start to its end: what it is to do, and how likely it kills itself."""

    folder: Path
    number: int
    seed: int
    steps: int
    threads: int = THREADS
    deaths: float = 0.0

    @property
    def database(self) -> str:
        return str(self.folder / "limits.db")

    def die(self, chance: random.Random) -> None:
        if chance.random() < self.deaths:
            os.kill(os.getpid(), signal.SIGKILL)


class Log:
    """Lines of this process in a file of its own, and the steps of all processes in one file."""

    def __init__(self, life: Life) -> None:
        flags = os.O_APPEND | os.O_CREAT | os.O_WRONLY
        self._lines = os.open(life.folder / f"{life.number}.log", flags)
        self._steps = os.open(life.folder / "steps", flags)

    def write(self, kind: str, step: str, *what: Any) -> None:
        line = json.dumps([kind, time.time(), step, *what])
        os.write(self._lines, f"{line}\n".encode())

    def stepped(self) -> None:
        os.write(self._steps, b".")

    @property
    def steps(self) -> int:
        return os.fstat(self._steps).st_size

    def close(self) -> None:
        os.close(self._lines)
        os.close(self._steps)


class Mortal(Store):
    """A store whose process may be killed right before and right after a transaction."""

    def __init__(self, life: Life) -> None:
        super().__init__(life.database, File(life.database, BUSY_SECONDS))
        self._life, self._chance = life, random.Random(f"{life.seed} {life.number} store")

    async def write(self, scope: Scope, work: Any, /, *args: Any, **more: Any) -> Any:
        if work is loops.commit:
            self._life.die(self._chance)
        value = await super().write(scope, work, *args, **more)
        if work in (loops.claim, loops.commit):
            self._life.die(self._chance)
        return value


class Session:
    """A Run of one loop whose generator and check are led by chance, and log that they are called.

    `id` is the step it was made for; `fresh` says that its state will be read from the store.
    """

    def __init__(self, at: Thread, id: str, step: str) -> None:
        self._at, self._chance = at, at.chance
        self.id, self.fresh = step, True
        number = int(id.split()[1])
        generate: Any = self.blocking if number % 4 == 3 else self.generate
        check: Any = (pure(self.check), self.awaited, self.check)[number // len(RULES) % 3]
        self.run = Run[str](
            id,
            generate=generate,
            checks=[check],
            policy=policy(id),
            store=at.store,
            id=id,
            scope=scope(id),
            labels={"session": step},
        )

    async def generate(self, task: str, hint: str) -> Answer:
        answer = self.blocking(task, hint)
        await asyncio.sleep(self._chance.random() * 0.003)
        return answer

    def blocking(self, task: str, hint: str) -> Answer:
        chance, call = self._chance, self._at.call()
        fails = chance.random() < 0.04
        self._at.log.write("generate", _step.get(), task, heedful.context().attempt, call, fails)
        self._at.life.die(chance)
        if fails:
            raise (RuntimeError("no answer"), errors.ModelError("no answer"))[chance.random() < 0.5]
        words = ("oak", "birch", "pine", f"tree{call}", f"tree{call}")
        text = (f"answer {chance.randrange(8)}", SENTENCE.format(chance.choice(words)))
        usage = Usage(chance.choice((1, 1, 2)), 3, chance.randrange(9), cost=float(call))
        return Answer(chance.choice(text), usage)

    def check(self, candidate: str, at: Context) -> list[Finding]:
        chance = self._chance
        self._at.log.write("check", _step.get(), at.task, at.attempt)
        self._at.life.die(chance)
        luck = chance.random()
        if luck < 0.2:
            raise ValueError("cannot tell")
        if luck < 0.24:
            return [Finding("style", "dull", level="warning")] if luck < 0.22 else []
        keys = chance.sample("abcdefgh", chance.choice((1, 1, 2, 3)))
        return [Finding("c", f"not {k}", key=k, persistent=k == "a") for k in keys]

    async def awaited(self, candidate: str, at: Context) -> list[Finding]:
        """The same, awaited."""
        await asyncio.sleep(self._chance.random() * 0.003)
        return self.check(candidate, at)


def pure(check: Callable[[str, Context], list[Finding]]) -> Any:
    def asked(candidate: str, at: Context) -> list[Finding]:
        return check(candidate, at)

    asked.pure = True  # type: ignore[attr-defined]
    return asked


class Thread:
    """What one thread does, step by step."""

    def __init__(self, life: Life, number: int, log: Log, store: Store) -> None:
        self.life, self.log, self.store = life, log, store
        self.chance = random.Random(f"{life.seed} {life.number} {number}")
        self._calls = count((life.number * 1000 + number) * 1_000_000 + 1)
        self._steps = (f"{life.number}.{number}.{n}" for n in count())
        self._kept: dict[str, Session] = {}

    def call(self) -> int:
        """A number that no other call has, small enough to be exact as a float."""
        return next(self._calls)

    async def act(self) -> None:
        """One random action on one random loop, written down before and after."""
        do = self.chance.choices(ACTIONS, WEIGHTS)[0]
        step, id = next(self._steps), self._id()
        _step.set(step)
        session = self._session(id, step)
        self.log.write("begin", step, do.__name__, id, session.id, session.fresh)
        try:
            said = await do(self, session)
        except (*EXPECTED, *FAILED) as error:
            said = type(error).__name__
        self.log.write("end", step, said)
        self.log.stepped()

    def _id(self) -> str:
        first = self.log.steps // STEPS_A_LOOP
        if self.chance.random() < 0.05:
            return name(self.chance.randrange(first + 1))
        return name(first + self.chance.randrange(WINDOW))

    def _session(self, id: str, step: str) -> Session:
        """One that this thread still has of that loop, or a new one."""
        kept = self._kept.get(id)
        if kept is None or self.chance.random() < 0.6:
            kept = self._kept[id] = Session(self, id, step)
            if len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
        return kept

    async def step(self, session: Session) -> str:
        """Sometimes given up in the middle."""
        patience = self.chance.random() * 0.02 if self.chance.random() < 0.04 else None
        return told(await self._with(session, wait_for(session.run.step(), patience)))

    async def cancel(self, session: Session) -> str:
        return told(await self._with(session, session.run.cancel(_step.get())))

    async def override(self, session: Session) -> str:
        given = self._override(session.run.policy)
        return told(await self._with(session, session.run.override(why=_step.get(), **given)))

    async def outside(self, session: Session) -> str:
        """By somebody who does not drive the loop."""
        id, given = session.run.id, self._override(session.run.policy)
        where: dict[str, Any] = {"store": self.store, "scope": scope(id)}
        return told(await heedful.override(id, why=_step.get(), **given, **where))

    async def read(self, session: Session) -> str:
        stored = await self.store.read(scope(session.run.id), loops.read, session.run.id)
        assert len(stored.decisions) >= len(stored.loop.attempts)
        return "read"

    async def _with(self, session: Session, verdict: Awaitable[Verdict]) -> Verdict:
        try:
            said = await verdict
        except BaseException:
            session.fresh = True
            raise
        session.fresh = False
        return said

    def _override(self, policy: Policy) -> dict[str, Any]:
        chance = self.chance
        rules = LIFTABLE if chance.random() < 0.1 else liftable(policy)
        return {
            "rule": chance.choice(rules),
            "by": chance.choice(("ada", "grace")),
            "decisions": chance.choice((1, 1, 2, 3)),
            "until": chance.choice((None, time.time() + 3_600)),
        }


ACTIONS = (Thread.step, Thread.cancel, Thread.override, Thread.outside, Thread.read)
WEIGHTS = (66, 1, 12, 13, 8)


def told(verdict: Verdict) -> str:
    if isinstance(verdict, Again):
        return "lifted" if verdict.lifted else "again"
    return "passed" if verdict.passed else verdict.stopped_by[0].rule


async def acting(thread: Thread) -> None:
    while thread.log.steps < thread.life.steps:
        await thread.act()


def lease_seconds(life: int) -> tuple[float, float]:
    """How long a process holds a loop, and how long it believes that it does.

    As shipped; or too short: loops are taken away from drivers that are at work, as from one that
    was suspended; or short, and renewed in time.
    """
    return ((SHIPPED, SHIPPED), (0.02, SHIPPED), (0.06, 0.06), (0.02, SHIPPED))[life % 4]


@contextmanager
def leases(life: Life) -> Iterator[None]:
    """Loops are held for as long as this process is to hold them."""
    own, believed = lease_seconds(life.number)
    loops.LEASE_SECONDS, journal.LEASE_SECONDS = own, believed  # type: ignore[attr-defined]
    try:
        yield
    finally:
        loops.LEASE_SECONDS = journal.LEASE_SECONDS = SHIPPED  # type: ignore[attr-defined]


def live(life: Life) -> None:
    """Act in several threads, each with an event loop of its own, until the steps are made."""
    log, store = Log(life), Mortal(life)

    def target(number: int) -> None:
        thread = Thread(life, number, log, store)
        try:
            asyncio.run(acting(thread))
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    threads = [threading.Thread(target=target, args=(n,)) for n in range(life.threads)]
    with leases(life):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    asyncio.run(store.close())
    log.close()


def main() -> None:
    folder, number, seed, steps, deaths = sys.argv[1:]
    live(Life(Path(folder), int(number), int(seed), int(steps), deaths=float(deaths)))
