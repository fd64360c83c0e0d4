"""One of the processes of `test_limits`: threads that step, override and cancel at
random.

What a loop may spend, its scope and its checks are functions of its id. Every call of
user code is written to a log of this process, and `test_limits` holds the store against
the logs.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from asyncio import wait_for
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import heedful
from heedful import errors
from heedful.checks.evaluate import Context
from heedful.drive import journal
from heedful.drive.run_loop import Run
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
from heedful.store.sqlite import BUSY_TIMEOUT_SECONDS, File
from heedful.store.store import Store

SHIPPED = loops.LOOP_LEASE_SECONDS
# How long a process holds a loop, and how long it believes that it does: as shipped;
# too short, so that loops are taken away from drivers at work; or short, and renewed in
# time.
LEASES = ((SHIPPED, SHIPPED), (0.02, SHIPPED), (0.06, 0.06), (0.02, SHIPPED))
THREADS = 8
STEPS_A_LOOP = 16  # on average; the window of loops moves on with the steps made
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
    lambda n: (
        MaxAttempts(9),
        Budget(calls=16),
        Echo(4),
        Repeat(2),
        Fatigue(0.6),
        Plateau(3),
    ),
)
LIFTABLE = ("attempts", "repeat", "fatigue", "plateau", "echo")
ECHOING = 4  # the rules that count over the scope
SENTENCE = (
    "the quick brown fox jumps over the lazy dog and then it runs into a very dark {} "
    "wood"
)

# The step of a thread; a call that it gave up may go on in a thread of its own.
_step: ContextVar[str] = ContextVar("step")


def policy(id: str) -> Policy:
    round, rules = divmod(int(id.split()[1]), len(RULES))
    return Policy(RULES[rules](round))


def scope(id: str) -> Scope:
    round, rules = divmod(int(id.split()[1]), len(RULES))
    return Scope(
        "soak", f"echo {round // SCOPE_LOOPS}" if rules == ECHOING else "limits"
    )


class Life:
    """One process: how likely it kills itself, its log, and the steps of all
    processes.
    """

    def __init__(
        self, folder: Path, number: int, seed: int, steps: int, deaths: float
    ) -> None:
        self.database = str(folder / "limits.db")
        self.number = number
        self.seed = f"{seed} {number}"
        self.most = steps
        self.deaths = deaths
        flags = os.O_APPEND | os.O_CREAT | os.O_WRONLY
        self._log = os.open(folder / f"{number}.log", flags)
        self._steps = os.open(folder / "steps", flags)

    def die(self, chance: random.Random) -> None:
        if chance.random() < self.deaths:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, kind: str, *what: Any) -> None:
        line = json.dumps([kind, time.time(), *what])
        os.write(self._log, f"{line}\n".encode())
        if kind == "end":
            os.write(self._steps, b".")

    @property
    def steps(self) -> int:
        return os.fstat(self._steps).st_size


class Mortal(Store):
    """A store whose process may be killed right before and right after a
    transaction.
    """

    def __init__(self, life: Life) -> None:
        super().__init__(life.database, File(life.database, BUSY_TIMEOUT_SECONDS))
        self._life = life
        self._chance = random.Random(f"{life.seed} store")

    async def write(self, scope: Scope, work: Any, /, *args: Any, **more: Any) -> Any:
        if work is loops.commit:
            self._life.die(self._chance)
        value = await super().write(scope, work, *args, **more)
        if work in (loops.claim, loops.commit):
            self._life.die(self._chance)
        return value


class Session:
    """A Run of one loop; chance leads its generator and its check, and both log their
    calls.
    """

    def __init__(self, thread: Thread, loop: str) -> None:
        self._thread = thread
        self._life = thread.life
        self._chance = thread.chance
        number = int(loop.split()[1])
        generate: Any = self.blocking if number % 4 == 3 else self.generate
        pure: Any = partial(self.check)
        pure.pure = True
        check = (pure, self.awaited, self.check)[number // len(RULES) % 3]
        self.run = Run[str](
            loop,
            generate=generate,
            checks=[check],
            policy=policy(loop),
            store=thread.store,
            id=loop,
            scope=scope(loop),
        )

    async def generate(self, task: str, hint: str) -> Answer:
        answer = self.blocking(task, hint)
        await asyncio.sleep(self._chance.random() * 0.003)
        return answer

    def blocking(self, task: str, hint: str) -> Answer:
        chance = self._chance
        call = next(self._thread.calls)
        fails = chance.random() < 0.04
        self._life.write(
            "generate", _step.get(), task, heedful.context().attempt, call, fails
        )
        self._life.die(chance)
        if fails:
            raise (RuntimeError("no answer"), errors.ModelError("no answer"))[
                chance.random() < 0.5
            ]
        words = ("oak", "birch", "pine", f"tree{call}", f"tree{call}")
        text = (f"answer {chance.randrange(8)}", SENTENCE.format(chance.choice(words)))
        usage = Usage(
            chance.choice((1, 1, 2)),
            3,
            completion_tokens=chance.randrange(9),
            cost=float(call),
        )
        return Answer(chance.choice(text), usage)

    def check(self, candidate: str, context: Context) -> list[Finding]:
        chance = self._chance
        self._life.write("check", _step.get(), context.task, context.attempt)
        self._life.die(chance)
        luck = chance.random()
        if luck < 0.2:
            raise ValueError("cannot tell")
        if luck < 0.24:
            return [Finding("style", "dull", level="warning")] if luck < 0.22 else []
        keys = chance.sample("abcdefgh", chance.choice((1, 1, 2, 3)))
        return [Finding("c", f"not {k}", key=k, persistent=k == "a") for k in keys]

    async def awaited(self, candidate: str, context: Context) -> list[Finding]:
        await asyncio.sleep(self._chance.random() * 0.003)
        return self.check(candidate, context)


class Thread:
    """One thread: random actions on random loops, each logged before and after."""

    def __init__(self, life: Life, number: int, store: Store) -> None:
        self.life = life
        self.store = store
        self.chance = random.Random(f"{life.seed} {number}")
        # Numbers that no other call has, small enough to be exact as a float.
        self.calls = count((life.number * 1000 + number) * 1_000_000 + 1)
        self._ids = (f"{life.number}.{number}.{n}" for n in count())
        self._kept: dict[str, Session] = {}

    async def live(self) -> None:
        while self.life.steps < self.life.most:
            await self.act()

    async def act(self) -> None:
        do = self.chance.choices(ACTIONS, WEIGHTS)[0]
        step = next(self._ids)
        first = self.life.steps // STEPS_A_LOOP
        window = (
            range(first + 1)
            if self.chance.random() < 0.05
            else range(first, first + WINDOW)
        )
        session = self._session(f"loop {self.chance.choice(window)}")
        _step.set(step)
        run = session.run
        self.life.write("begin", step, do.__name__, run.id)
        try:
            outcome = await do(self, session)
        except (*EXPECTED, *FAILED) as error:
            outcome = type(error).__name__
        self.life.write("end", step, outcome)

    def _session(self, loop: str) -> Session:
        """A session that this thread still has of that loop, or a new one."""
        if loop not in self._kept or self.chance.random() < 0.6:
            self._kept[loop] = Session(self, loop)
        if len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        return self._kept[loop]

    async def step(self, session: Session) -> str:
        """Give up in the middle at times."""
        patience = self.chance.random() * 0.02 if self.chance.random() < 0.04 else None
        return rule_of(await wait_for(session.run.step(), patience))

    async def cancel(self, session: Session) -> str:
        return rule_of(await session.run.cancel(_step.get()))

    async def override(self, session: Session) -> str:
        """Override as the driver, or as an outsider."""
        chance = self.chance
        run = session.run
        rules = [
            name
            for rule in flat(run.policy.rules)
            if (name := rule_name(rule)) in LIFTABLE
        ]
        liftable = LIFTABLE if chance.random() < 0.1 else rules
        rule = chance.choice(liftable)
        by = chance.choice(("ada", "grace"))
        why = _step.get()
        decisions = chance.choice((1, 1, 2, 3))
        until = chance.choice((None, time.time() + 3_600))
        if chance.random() < 0.5:
            verdict = run.override(rule, by, why, decisions=decisions, until=until)
            return rule_of(await verdict)
        lifted = await heedful.override(
            run.id,
            rule,
            by=by,
            why=why,
            decisions=decisions,
            until=until,
            store=self.store,
            scope=scope(run.id),
        )
        return rule_of(lifted)


ACTIONS = (Thread.step, Thread.cancel, Thread.override)
WEIGHTS = (72, 1, 27)


def rule_of(verdict: Verdict) -> str:
    if isinstance(verdict, Again):
        return "lifted" if verdict.lifted else "again"
    return "passed" if verdict.passed else verdict.stopped_by[0].rule


def main() -> None:
    """Act in several threads, each with an event loop of its own, until the steps are
    made.
    """
    folder, number, seed, steps, deaths = sys.argv[1:]
    life = Life(
        folder=Path(folder),
        number=int(number),
        seed=int(seed),
        steps=int(steps),
        deaths=float(deaths),
    )
    store = Mortal(life)
    store_lease, believed_lease = LEASES[life.number % len(LEASES)]
    loops.LOOP_LEASE_SECONDS = store_lease
    journal.LOOP_LEASE_SECONDS = believed_lease  # type: ignore[attr-defined]
    with ThreadPoolExecutor(THREADS) as threads:
        acting = [
            threads.submit(asyncio.run, Thread(life, n, store).live())
            for n in range(THREADS)
        ]
    for task in acting:
        task.result()
    asyncio.run(store.close())
