"""`heedful demo`: the same tasks with and without memory on a real small model, then a
report.
"""

from __future__ import annotations

import asyncio
import hashlib
import json as jsonlib
import os
import platform
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import heedful
from heedful.cli.databases import opened_store
from heedful.cli.printing import fetched, print_json, say, show
from heedful.cli.resources import embedder_of, opened_model
from heedful.cli.run import TaskDriver, TaskResult, examples_folder
from heedful.cli.settings import Settings
from heedful.cli.tasks import Task, read_tasks
from heedful.drive.generate import Writer
from heedful.errors import ModelError
from heedful.lessons.lesson import Scope
from heedful.loop import policies
from heedful.memory import trial
from heedful.memory.memory import Memory
from heedful.models import weights
from heedful.models.contract import Embedder, Model
from heedful.models.embedded import available_cores
from heedful.models.weights import Weights
from heedful.store import lessons as lesson_store, shown
from heedful.store.store import Store

from .figures import (
    ALL,
    MEMORY,
    RUNS,
    WITHOUT,
    Measured,
    Ran,
    comparisons,
    print_summary,
    word_compared,
)
from .report import NoPictures, draw, page
from .stories import HEADS, LEGEND, Screen, Story, kinds, story

RESULT = "result.json"
PICTURE = "learning_curve.png"
REPORT = "report.html"
# The arm with memory is the default project: its pages and commands need no name;
# the other arm has a project of its own, so that no figure mixes them.
SCOPES = {WITHOUT: Scope(project="without-memory"), MEMORY: Scope()}
SOURCE = "heedful demo"  # whose pairs of loops the proof of the default project has
# The system prompt says nothing about any rule.
SYSTEM = "Answer with the result only, on one line."
MAX_TOKENS = 48
# 4 tasks of each of 9 families, twice. In the recording, these took 387 s, one call at
# a time: three minutes and a quarter on two cores. The interval of their gain begins at
# 23 points; with 3 tasks of each family, at 7.
PER_FAMILY = 4
TOP = 10


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The tasks in the order of both arms, and what else shapes the answers.

    `source` is the digest of the task file and of the code of its checks; `by_meaning`
    says how recall compares. A `full` plan has all tasks of the file.
    """

    model: str
    path: Path
    tasks: tuple[Task, ...]
    source: str
    full: bool = False
    by_meaning: bool = False

    @property
    def key(self) -> str:
        """A digest that differs for plans whose answers may differ."""
        parts = [
            heedful.__version__,
            self.model,
            str(self.by_meaning),
            SYSTEM,
            str(MAX_TOKENS),
            self.source,
            *(scope.project for scope in SCOPES.values()),
            *(task.id for task in self.tasks),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:6]


def plan(
    path: Path | None, model: str, *, full: bool = False, per_family: int = PER_FAMILY
) -> Plan:
    """Read the tasks and choose. Raises LineError."""
    path = path or examples_folder() / "house_rules" / "tasks.jsonl"
    chosen = in_turn(read_tasks(path), None if full else per_family)
    if not full:
        chosen = with_early_repeat(chosen)
    files = [path, *sorted(path.parent.glob("*.py"))]
    source = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
    return Plan(model=model, path=path, tasks=tuple(chosen), source=source, full=full)


def families(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    """Group the tasks by family, in their order."""
    members: dict[str, list[Task]] = {}
    for task in tasks:
        members.setdefault(task.family, []).append(task)
    return members


def in_turn(tasks: Sequence[Task], most: int | None) -> list[Task]:
    """Return the first `most` tasks of each family (None: all), the families in
    turn.
    """
    groups = [members[:most] for members in families(tasks).values()]
    longest = max(map(len, groups), default=0)
    chosen = []
    for place in range(longest):
        chosen += [group[place] for group in groups if place < len(group)]
    return chosen


def with_early_repeat(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks with the second one of the first family in the second place.

    Memory can help there for the first time: who looks on need not wait for a task of
    each family.
    """
    others = tasks[1:]
    again = [task for task in others if task.family == tasks[0].family][:1]
    return [*tasks[:1], *again, *(task for task in others if task not in again)]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A loop that has ended: its row and its story."""

    row: TaskResult
    story: Story


@dataclass(kw_only=True)
class Ledger:
    """The loops that have ended, shown in the order of the tasks.

    `ids` are those of the tasks, `line_ids` of those whose lines are printed. `first`
    has the first stories of each kind; `shown` counts the tasks that have ended.
    """

    ids: tuple[str, ...]
    line_ids: frozenset[str]
    screen: Screen
    loops: dict[str, dict[str, Ended]] = field(
        default_factory=lambda: {arm: {} for arm in RUNS}
    )
    first: dict[str, tuple[Story, Story]] = field(default_factory=dict)
    shown: int = 0

    def begin(self, arm: str, id: str) -> None:
        """Show which task an arm runs."""
        self.screen.arm(arm, self._ended_rows(arm), id)

    def end(self, arm: str, ended: Ended) -> None:
        """Keep a loop; show the tasks of which both loops have ended now."""
        self.loops[arm][ended.row.id] = ended
        self.screen.arm(arm, self._ended_rows(arm))
        for id in self.ids[self.shown :]:
            without = self.loops[WITHOUT].get(id)
            memory = self.loops[MEMORY].get(id)
            if without is None or memory is None:
                return
            self.shown += 1
            self._show(id, without.story, memory.story)

    def _show(self, id: str, without: Story, memory: Story) -> None:
        """Show the line of a task if it has one, and the first story of each kind."""
        has_line = id in self.line_ids
        if has_line:
            self.screen.task(id, self.shown, without, memory)
        for kind, telling, other in kinds(without, memory):
            if kind in self.first:
                continue
            self.first[kind] = (telling, other)
            if has_line:
                self.screen.tell(HEADS[kind], telling, other)

    def _ended_rows(self, arm: str) -> list[TaskResult]:
        return [ended.row for ended in self.loops[arm].values()]

    def ran(self, seconds: float) -> Ran:
        """Return what was run in `seconds`, when all loops have ended."""
        return Ran(
            without=tuple(self.loops[WITHOUT][id].row for id in self.ids),
            memory=tuple(self.loops[MEMORY][id].row for id in self.ids),
            stories=self.first,
            seconds=seconds,
        )


@dataclass(frozen=True, kw_only=True)
class Lab:
    """Where a plan is run: one file for its loops and its memory, a model for each arm.

    `key` is in the names of the loops.
    """

    plan: Plan
    key: str
    store: Store
    models: Mapping[str, Model]
    embedder: Embedder | None
    screen: Screen

    async def run(self) -> Ran:
        """Run both arms at once; what is stored is not run again.

        A loop with memory rests on the loops before it. One without memory rests on no
        other, so the model of the arm that has ended helps with those.
        """
        began = time.perf_counter()
        ids = tuple(task.id for task in self.plan.tasks)
        ledger = Ledger(ids=ids, line_ids=frozenset(ids), screen=self.screen)
        waiting_without = iter(self.plan.tasks)  # shared by both

        async def run_with_memory() -> None:
            model = self.models[MEMORY]
            await self._run(MEMORY, model, self.plan.tasks, ledger)
            await self._run(WITHOUT, model, waiting_without, ledger)

        async def run_without() -> None:
            await self._run(WITHOUT, self.models[WITHOUT], waiting_without, ledger)

        with self.screen:
            arms = [
                asyncio.create_task(run_without()),
                asyncio.create_task(run_with_memory()),
            ]
            try:
                await asyncio.gather(*arms)
            finally:
                for arm in arms:
                    arm.cancel()
                await asyncio.gather(*arms, return_exceptions=True)
        return ledger.ran(round(time.perf_counter() - began, 1))

    async def _run(
        self, arm: str, model: Model, tasks: Iterable[Task], ledger: Ledger
    ) -> None:
        """Run tasks of an arm, one after the other."""
        driver = self._driver(arm, model)
        for task in tasks:
            ledger.begin(arm, task.id)
            try:
                row = await driver.drive(task)
                how = await story(self.store, SCOPES[arm], row.loop)
            except asyncio.CancelledError:
                ledger.screen.say(f"interrupted at loop {driver.loop_of(task)}")
                raise
            ledger.end(arm, Ended(row=row, story=how))

    def _driver(self, arm: str, model: Model) -> TaskDriver:
        """Return what runs the tasks of an arm."""
        memory = None
        if arm == MEMORY:
            # Without a holdout: memory is compared with the arm that has none.
            memory = Memory(self.store, SCOPES[arm], self.embedder, holdout=0)
        return TaskDriver(
            run=f"{RUNS[arm]}-{self.key}",
            policy=policies.default,
            generate=Writer(model, SYSTEM, max_tokens=MAX_TOKENS),
            store=self.store,
            scope=SCOPES[arm],
            memory=memory,
        )


async def measure(
    chosen: Plan,
    values: Settings,
    out: Path,
    *,
    again: str,
    db: str | None = None,
) -> Measured:
    """Run what is not stored yet, and measure. Without a `db`, the demo has its own.

    Raises ModelError, StoreError, UserCodeError.
    """
    embedder = await fetch(values)
    chosen = replace(chosen, by_meaning=embedder is not None)
    own_file = out / f"demo-{chosen.key}.db"
    db = db or str(own_file)
    # Two processes of the model share the cores.
    threads = values.threads or max(1, available_cores() // len(RUNS))
    values = replace(values, db=db, threads=threads)
    names = list(dict.fromkeys(task.family or "tasks" for task in chosen.tasks))
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(opened_store(values, new=True))
        models = {
            arm: await stack.enter_async_context(opened_model(values)) for arm in RUNS
        }
        say(
            f"{chosen.model}: {len(chosen.tasks)} tasks of {len(names)} families: "
            f"{', '.join(names)}\n{LEGEND}\n"
        )
        lab = Lab(
            plan=chosen,
            key=chosen.key,
            store=store,
            models=models,
            embedder=embedder,
            screen=Screen(len(chosen.tasks)),
        )
        ran = await lab.run()
        await record_pairs(ran, store)
        lessons = await store.read(SCOPES[MEMORY], lesson_store.top, TOP)
    return Measured(
        ran=ran,
        compared=tuple(comparisons(ran.without, ran.memory)),
        lessons=tuple(lessons),
        settings=_settings(chosen)
        | {"threads": f"{threads} for each arm", "command": again},
        machine=machine(),
        commands=tuple(next_commands(ran, db)),
    )


async def record_pairs(ran: Ran, store: Store) -> None:
    """Store how each task began in both arms, so that `heedful proof` compares them."""
    for without, memory in zip(ran.without, ran.memory, strict=True):
        await store.write(
            SCOPES[MEMORY],
            trial.pair,
            SOURCE,
            memory.id,
            score=1000 * memory.at_once,
            without=1000 * without.at_once,
        )


def announce(needed: list[Weights], cache: Path) -> None:
    """Say what will be downloaded."""
    missing = [file for file in needed if not file.cached(cache).is_file()]
    if missing:
        total = sum(file.size for file in missing) / 1e6
        say(f"to download once, {total:.0f} MB into {cache}:")
    for file in missing:
        say(f"  {file.about} ({file.size / 1e6:.0f} MB, {file.licence})")


async def fetch(values: Settings) -> Embedder | None:
    """Fetch missing weights, after saying how large they are; return the embedder or
    None.

    Raises WeightsError for those of the model.
    """
    embedded = values.model.partition(":")[0] == "embedded"
    wanted = values.embedder == "minilm" or (embedded and values.embedder == "auto")
    embedder_files = []
    if wanted:
        embedder_files = [weights.find(name) for name in weights.EMBEDDER_WEIGHTS]
    model_file = weights.for_model(values.model)
    model_files = [model_file] if model_file else []
    cache = values.cache or weights.default_cache()
    announce([*model_files, *embedder_files], cache)
    for file in model_files:
        await weights.fetch(file, cache=values.cache, progress=fetched)
    try:
        for file in embedder_files:
            await weights.fetch(file, cache=values.cache, progress=fetched)
    except ModelError as error:
        say(f"without the embedder, so recall compares words: {error}")
        return None
    return embedder_of(values)


def machine() -> dict[str, str]:
    """Describe the machine."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count() or "unknown"),
        "python": platform.python_version(),
        "heedful": heedful.__version__,
    }


def _settings(chosen: Plan) -> dict[str, str]:
    policy = policies.default
    path = chosen.path.resolve()
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    else:
        path = chosen.path
    part = "all" if chosen.full else "a subset"
    order = "one task of each family in turn"
    if not chosen.full:
        order += ", after two of the first family"
    settings = {"model": chosen.model}
    file = weights.for_model(chosen.model)
    if file:
        settings["weights"] = f"{file.about}, SHA-256 {file.sha256[:12]}…"
    return {
        **settings,
        "recall by": "meaning (all-MiniLM-L6-v2)" if chosen.by_meaning else "words",
        "tasks": f"{len(chosen.tasks)} of {path}, {part}",
        "order": f"{order}; both arms the same, at the same time",
        "system prompt": SYSTEM,
        "temperature": "0, warmer after a repeated answer",
        "tokens an answer": f"at most {MAX_TOKENS}",
        "policy": f"{policy.name}: {', '.join(map(str, policy.rules))}",
        "memory": (
            "empty at the start; holdout off; up to 3 earlier accepted answers as "
            "chat turns"
        ),
    }


def next_commands(ran: Ran, db: str) -> list[tuple[str, str]]:
    """Return commands that work on what was stored, each with its purpose."""
    stories = ran.stories
    # The commands work in the project of the arm with memory.
    loops = [
        stories[kind][0].loop
        for kind in ("corrected", "stopped", "knew")
        if kind in stories and stories[kind][0].loop.startswith(f"{RUNS[MEMORY]}-")
    ]
    loop = loops[0] if loops else ran.memory[0].loop
    lines = (
        ("all tasks in your browser; each arm is a project", ["ui"]),
        ("the answers to one task, and the feedback between them", ["why", loop]),
    )
    commands = []
    for purpose, line in lines:
        command = shlex.join([*line, "--db", shown(db)])
        commands.append((purpose, f"heedful {command}"))
    return commands


def write(measured: Measured, out: Path, *, json: bool, families: bool) -> None:
    """Print the result, with the `families` or their sum, or JSON; leave picture,
    report and result.json in the folder.
    """
    tasks = len(measured.ran.memory)
    title = (
        f"{measured.settings['model']}: {tasks} tasks, each once without and once with "
        "memory"
    )
    arms = {MEMORY: measured.ran.memory, WITHOUT: measured.ran.without}
    picture = b""
    try:
        picture = draw(arms, word_compared(measured.pooled(ALL)).sentence, title)
        (out / PICTURE).write_bytes(picture)
    except NoPictures as error:
        say(str(error))
    (out / REPORT).write_text(page(measured), "utf-8")
    (out / RESULT).write_text(jsonlib.dumps(measured.plain(), indent=1) + "\n", "utf-8")
    if json:
        print_json(measured.plain())
        return
    print_summary(measured, families=families)
    show(f"\nreport   {out / REPORT}")
    if picture:
        show(f"picture  {out / PICTURE}")
    show(f"figures  {out / RESULT}\n\nNext:")
    for what, line in measured.commands:
        show(f"  {line}\n      {what}")
