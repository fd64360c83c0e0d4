"""Both arms of a demonstration over the same tasks, and how well right examples are followed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain

from errata.cli.batch import Row, ended
from errata.cli.figures import MEMORY, WITHOUT
from errata.cli.live import HEADS, Screen
from errata.cli.plan import MAX_TOKENS, SYSTEM, Plan, gold, right_answer
from errata.cli.stats import Estimate, share
from errata.cli.stories import Story, kinds, story
from errata.cli.tasks import Task
from errata.generate import Writer
from errata.loop import policies
from errata.loop.decide import Policy
from errata.loop.stop import MaxAttempts
from errata.memory.memory import Memory
from errata.protocols import Context, Embedder, Message, Model, Scope, Store

RUNS = {WITHOUT: "without", MEMORY: "with"}
SCOPE = Scope()
ONCE = Policy((MaxAttempts(1),), name="once")


@dataclass(frozen=True)
class Ran:
    """What was run: the rows of both arms in task order, the stories to tell, the measured gold.

    `stories` are of one task each, by kind: the telling one, and the one of the other arm.
    `follows` says of each family which share was right at once after three right examples.
    `seconds` is the time since this command was started, with what it found done before not redone.
    """

    without: tuple[Row, ...]
    memory: tuple[Row, ...]
    stories: dict[str, tuple[Story, Story]]
    follows: dict[str, Estimate] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Watched(Writer):
    """A writer that says which attempt it is asked for, and shows `examples` before every task."""

    asked: Callable[[int], None] = lambda attempt: None
    examples: tuple[Message, ...] = ()

    def messages(self, at: Context) -> list[Message]:
        """The prompt for the attempt that `at` describes."""
        self.asked(at.attempt)
        return Writer.messages(self, replace(at, examples=(*self.examples, *at.examples)))


@dataclass(frozen=True)
class Lab:
    """Where a plan is run: one file for its loops and its memory, one model."""

    plan: Plan
    store: Store
    model: Model
    embedder: Embedder | None
    screen: Screen

    async def run(self) -> Ran:
        """Both arms, task by task in turn, then the gold; what is stored is not run again."""
        began = time.perf_counter()
        writer = Watched(self.model, SYSTEM, max_tokens=MAX_TOKENS, asked=self.screen.asked)
        memories = {WITHOUT: None, MEMORY: Memory(self.store, SCOPE, self.embedder)}
        told: dict[str, tuple[Story, Story]] = {}
        rows = self.screen.rows
        with self.screen:
            for task in self.plan.tasks:
                for arm, memory in memories.items():
                    self.screen.begin(arm, task.id)
                    row = await self._one(task, RUNS[arm], writer, memory=memory)
                    self.screen.ended(arm, row)
                loops = [rows[arm][-1].loop for arm in memories]
                without, with_it = [await story(self.store, SCOPE, loop) for loop in loops]
                self.screen.task(task.id, without, with_it)
                for kind, one, other in kinds(without, with_it):
                    if kind not in told:
                        told[kind] = (one, other)
                        self.screen.tell(HEADS[kind], one, other)
        follows = await self._follows() if self.plan.full else {}
        seconds = round(time.perf_counter() - began, 1)
        return Ran(tuple(rows[WITHOUT]), tuple(rows[MEMORY]), told, follows, seconds)

    async def _one(
        self,
        task: Task,
        run: str,
        writer: Writer,
        policy: Policy = policies.default,
        memory: Memory | None = None,
    ) -> Row:
        options = {"generate": writer, "store": self.store, "memory": memory, "scope": SCOPE}
        return await ended(task, f"{run}-{self.plan.key}", policy, **options)

    async def _follows(self) -> dict[str, Estimate]:
        """The share right at once after three right answers, a family at a time."""
        shares = {}
        for name, shown, asked in gold(self.plan.tasks):
            pairs = [
                (Message("user", task.task), Message("assistant", right_answer(task)))
                for task in shown
            ]
            turns = tuple(chain.from_iterable(pairs))
            writer = Watched(self.model, SYSTEM, max_tokens=MAX_TOKENS, examples=turns)
            once = [replace(task, policy=ONCE) for task in asked]
            rows = [await self._one(task, "gold", writer) for task in once]
            shares[name] = share(sum(row.at_once for row in rows), len(rows))
            part = f"{100 * shares[name].value:.0f} % of {len(rows)}"
            self.screen.say(f"three right examples: {name or 'tasks'} {part} right at once")
        return shares
