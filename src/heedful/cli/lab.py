"""A demonstration: which tasks in which order, run in both arms, and what the model can follow."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path

import heedful
from heedful.checks.evaluate import Context
from heedful.cli.batch import Row, ended
from heedful.cli.figures import MEMORY, WITHOUT
from heedful.cli.live import HEADS, Screen
from heedful.cli.stories import Story, kinds, story
from heedful.cli.tasks import Task, read_tasks
from heedful.drive.generate import Writer
from heedful.errors import TaskFileError
from heedful.lessons.lesson import Scope
from heedful.lessons.proof import Estimate, wilson_interval
from heedful.loop import policies
from heedful.loop.decide import Policy
from heedful.loop.stop import MaxAttempts
from heedful.memory.memory import Memory
from heedful.models.contract import Embedder, Message, Model
from heedful.store.store import Store

RUNS = {WITHOUT: "without", MEMORY: "with"}
SCOPE = Scope()
ONCE = Policy((MaxAttempts(1),), name="once")
EXAMPLE = Path("house_rules", "tasks.jsonl")
# What the model is told besides the task: nothing about any rule.
SYSTEM = "Answer with the result only, on one line."
MAX_TOKENS = 48
# 7 tasks of each of 9 families, twice: about 290 calls, 0.85 s each on one core: four minutes.
PER_FAMILY = 7
GOLD_EXAMPLES = 3


@dataclass(frozen=True)
class Plan:
    """The tasks in the order in which both arms get them, and what else shapes the answers.

    `source` is the digest of the task file and of the code of its checks; `by_meaning` says how
    recall compares. A `full` plan has all tasks of the file, and measures the gold.
    """

    model: str
    path: Path
    tasks: tuple[Task, ...]
    source: str
    full: bool = False
    by_meaning: bool = False

    @property
    def key(self) -> str:
        """Tells plans apart whose answers may differ: model, embedder, tasks, checks, settings."""
        parts = [heedful.__version__, self.model, str(self.by_meaning), SYSTEM, str(MAX_TOKENS)]
        parts += [self.source, *(task.id for task in self.tasks)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:6]


def plan(
    path: Path | None, model: str, *, full: bool = False, per_family: int = PER_FAMILY
) -> Plan:
    """Read the tasks and choose. Raises TaskFileError."""
    path = path or example_tasks()
    chosen = in_turn(read_tasks(path), None if full else per_family)
    files = [path, *sorted(path.parent.glob("*.py"))]
    source = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
    return Plan(model, path, tuple(chosen), source, full)


def example_tasks() -> Path:
    """The tasks that come with heedful: in the installed package, else in its checkout."""
    package = Path(heedful.__file__).parent
    places = (package / "_examples" / EXAMPLE, package.parents[1] / "examples" / EXAMPLE)
    for place in places:
        if place.is_file():
            return place
    what = "the example tasks are not there; name a task file with --tasks"
    raise TaskFileError(str(places[0]), 0, what)


def families(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    """The tasks of every family, in their order."""
    found: dict[str, list[Task]] = {}
    for task in tasks:
        found.setdefault(task.family, []).append(task)
    return found


def in_turn(tasks: Sequence[Task], most: int | None) -> list[Task]:
    """The first `most` tasks of every family (None: all), one family after the other in turn."""
    every = [members[:most] for members in families(tasks).values()]
    return [task for task in chain.from_iterable(zip_longest(*every)) if task is not None]


def right_answer(task: Task) -> str:
    """The right answer, for measurement only, from the task's context or a check; "" if unknown.

    No loop reads it: prompts are made of the task's text, and checks have rules of their own.
    """
    given = task.context.get("answer") if isinstance(task.context, Mapping) else None
    answers = [given, *(getattr(check, "expected", None) for check in task.checks)]
    return next((answer for answer in answers if isinstance(answer, str)), "")


def gold(tasks: Sequence[Task]) -> Iterator[tuple[str, list[Task], list[Task]]]:
    """For each family three tasks with right answers, and the tasks to be asked with them.

    Families without right answers or with nothing left to ask are left out. Asked is the second
    half, so that the share is over the tasks for which memory is scored too.
    """
    for name, members in families(tasks).items():
        shown = [task for task in members if right_answer(task)][:GOLD_EXAMPLES]
        asked = [task for task in members[len(members) // 2 :] if task not in shown]
        if len(shown) == GOLD_EXAMPLES and asked:
            yield name, shown, asked


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
class Primed(Writer):
    """A writer that shows the same worked examples before every task."""

    examples: tuple[Message, ...] = ()

    def messages(self, at: Context) -> list[Message]:
        """The prompt for the attempt that `at` describes."""
        return Writer.messages(self, replace(at, examples=self.examples))


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
        writer = Writer(self.model, SYSTEM, max_tokens=MAX_TOKENS)
        # Without a holdout: the arm without memory is what there is to compare with.
        learning = Memory(self.store, SCOPE, self.embedder, holdout=0)
        memories = {WITHOUT: None, MEMORY: learning}
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
            writer = Primed(self.model, SYSTEM, max_tokens=MAX_TOKENS, examples=turns)
            once = [replace(task, policy=ONCE) for task in asked]
            rows = [await self._one(task, "gold", writer) for task in once]
            shares[name] = wilson_interval(sum(row.at_once for row in rows), len(rows))
            part = f"{100 * shares[name].value:.0f} % of {len(rows)}"
            self.screen.say(f"three right examples: {name or 'tasks'} {part} right at once")
        return shares
