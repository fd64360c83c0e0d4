"""Both arms of a demonstration over the same tasks, and how well right examples are followed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from errata.cli.batch import Row, batch
from errata.cli.live import MEMORY, WITHOUT, Screen
from errata.cli.plan import Plan, gold, right_answer
from errata.cli.stats import Estimate, share
from errata.cli.stories import Story, story
from errata.cli.tasks import Task
from errata.generate import Writer
from errata.loop.decide import Policy
from errata.loop.stop import MaxAttempts
from errata.memory.memory import Memory
from errata.protocols import Context, Embedder, Message, Scope, Store

RUNS = {WITHOUT: "without", MEMORY: "with"}
SCOPE = Scope()
ONCE = Policy((MaxAttempts(1),), name="once")


@dataclass(frozen=True)
class Ran:
    """What was run: the rows of both arms in task order, their stories, and the measured gold.

    `follows` says of each family which share was right at once after three right examples.
    `seconds` is the time since this command was started, with what it found done before not redone.
    """

    without: tuple[Row, ...]
    memory: tuple[Row, ...]
    stories: tuple[tuple[Story, Story], ...]
    follows: dict[str, Estimate] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Primed(Writer):
    """A writer that shows the same worked examples before every task."""

    examples: tuple[Message, ...] = ()

    def messages(self, at: Context) -> list[Message]:
        """The prompt for the attempt that `at` describes."""
        return Writer.messages(self, replace(at, examples=self.examples))


@dataclass(frozen=True)
class Lab:
    """Where a plan is run: one file for its loops and its memory, one writer."""

    plan: Plan
    store: Store
    writer: Writer
    embedder: Embedder | None
    screen: Screen

    async def run(self) -> Ran:
        """Both arms, task by task in turn, then the gold; what is stored is not run again."""
        began = time.perf_counter()
        memory = Memory(self.store, SCOPE, self.embedder)
        rows: dict[str, list[Row]] = {WITHOUT: [], MEMORY: []}
        told: list[tuple[Story, Story]] = []
        with self.screen.open([WITHOUT, MEMORY]):
            for task in self.plan.tasks:
                for arm, mind in ((WITHOUT, None), (MEMORY, memory)):
                    self.screen.begin(arm, task.id)
                    row = await self._one(task, run_of(self.plan, RUNS[arm]), mind)
                    self.screen.ended(arm, row)
                    rows[arm].append(row)
                loops = [rows[arm][-1].loop for arm in (WITHOUT, MEMORY)]
                without, with_it = [await story(self.store, SCOPE, loop) for loop in loops]
                told.append((without, with_it))
                self.screen.task(task.id, *told[-1])
        follows = await self._follows() if self.plan.gold else {}
        seconds = time.perf_counter() - began
        return Ran(
            tuple(rows[WITHOUT]), tuple(rows[MEMORY]), tuple(told), follows, round(seconds, 1)
        )

    async def _one(self, task: Task, run: str, memory: Memory | None) -> Row:
        (row,) = await batch(
            [task],
            run=run,
            writer=self.writer,
            store=self.store,
            memory=memory,
            scope=SCOPE,
            policy=None,
        )
        return row

    async def _follows(self) -> dict[str, Estimate]:
        """The share right at once after three right answers, a family at a time."""
        shares = {}
        for name, shown, asked in gold(self.plan.tasks):
            writer = Primed(
                self.writer.model,
                self.writer.system,
                max_tokens=self.writer.max_tokens,
                examples=_turns(shown),
            )
            rows = []
            for task in asked:
                rows += await batch(
                    [replace(task, policy=ONCE)],
                    run=run_of(self.plan, "gold"),
                    writer=writer,
                    store=self.store,
                    memory=None,
                    scope=SCOPE,
                    policy=ONCE,
                )
            shares[name] = share(sum(row.at_once for row in rows), len(rows))
            part = f"{100 * shares[name].value:.0f} % of {len(rows)}"
            self.screen.say(f"three right examples: {name or 'tasks'} {part} right at once")
        return shares


def run_of(plan: Plan, arm: str) -> str:
    """The name of a run: its loops are told apart from those of every other plan."""
    return f"{arm}-{plan.key}"


def _turns(shown: Sequence[Task]) -> tuple[Message, ...]:
    turns: list[Message] = []
    for task in shown:
        turns += [Message("user", task.task), Message("assistant", right_answer(task))]
    return tuple(turns)
