"""Learn: the learning curve of a small model on streams of text-to-SQL tasks, with four arms.

nothing: one attempt. retries: three attempts with feedback. nearest: retries, and before the first
attempt the three nearest accepted answers so far, by the embedder, as chat turns. ours: retries,
and one decorated function with a memory. Every arm has the same prompt, the same check and the same
order of tasks. The check runs the statement and says what a reviewer would see; it never shows the
right statement or its rows. Answers are kept: stop with Ctrl-C, and the next run goes on.
"""

from __future__ import annotations

import asyncio
import importlib.util
import random
import re
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

import heedful
from bench.quality.answers import KeptModel, Live, Progress, opened
from bench.quality.rows import Row, read
from heedful import Finding
from heedful.models.contract import Embedder, Message

# The tasks of a stream and the number of its orders, by model: hours on two cores.
SIZES = {"0.5b": (200, 2), "1.5b": (120, 1)}
ARMS = ("nothing", "retries", "nearest", "ours")
NEAREST = 3
TOKENS = 160
POLICY = heedful.Policy((heedful.MaxAttempts(3),), name="three attempts")
SYSTEM = "Write one SQLite statement that answers the question. Answer with the SQL only."
RESAMPLED = 10_000
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


@dataclass(frozen=True)
class Task:
    """A question with its prompt, and a function that runs a statement and judges the answer."""

    id: str
    text: str
    system: str
    judge: Callable[[str], tuple[bool, str, str]]  # right, what is wrong, the fix


@dataclass(frozen=True)
class Tried:
    """How one arm did on a task: right at once, solved in the end, and the calls of the model."""

    task: str
    first: bool
    solved: bool
    calls: int


def run(data: Path, split: str, live: Live) -> Iterator[Row]:
    """The rows of each model: each stream, then all of them pooled."""
    for size in live.models:
        yield from asyncio.run(_measured(size, data, split, live))


async def _measured(size: str, data: Path, split: str, live: Live) -> list[Row]:
    most, orders = SIZES[size]
    rows: list[Row] = []
    pooled: dict[str, list[Tried]] = {arm: [] for arm in ARMS}
    late: dict[str, list[Tried]] = {arm: [] for arm in ARMS}
    async with opened(size, data, live) as model:
        for name, stream in streams(data, split).items():
            every: dict[str, list[Tried]] = {arm: [] for arm in ARMS}
            half: dict[str, list[Tried]] = {arm: [] for arm in ARMS}
            tasks = list(live.first(stream, most))
            for order in range(orders):
                if order:
                    random.Random(order).shuffle(tasks)
                for arm, found in (await _arms(f"{name} {size}", order, tasks, model)).items():
                    every[arm] += found
                    half[arm] += found[len(found) // 2 :]
            rows += _figures(f"learn.{name}.{size}", every, half)
            for arm in ARMS:
                pooled[arm] += every[arm]
                late[arm] += half[arm]
    return rows + _figures(f"learn.all.{size}", pooled, late) + _intervals(size, late)


def _figures(
    key: str, every: Mapping[str, Sequence[Tried]], half: Mapping[str, Sequence[Tried]]
) -> list[Row]:
    rows = []
    for arm in ARMS:
        made, late = every[arm], half[arm]
        rows += [
            Row(f"{key}.{arm}.first", mean(one.first for one in made), None, f"{len(made)} tasks"),
            Row(f"{key}.{arm}.solved", mean(one.solved for one in made)),
            Row(f"{key}.{arm}.calls", mean(one.calls for one in made)),
            Row(f"{key}.{arm}.second_half", mean(one.first for one in late)),
        ]
    for arm in ("nearest", "ours"):
        pairs = list(zip(every["nothing"], every[arm], strict=True))
        right = sum(plain.first for plain, _ in pairs)
        lost = sum(plain.first and not other.first for plain, other in pairs)
        about = f"{lost} of {right} answers that were right without memory"
        rows.append(Row(f"{key}.{arm}.lost", lost / max(1, right), None, about))
    return rows


def _intervals(size: str, late: Mapping[str, Sequence[Tried]]) -> list[Row]:
    """The 95 % intervals of the paired differences in right at once; a task is drawn as a whole."""
    rows = []
    for arm in ("nothing", "retries", "nearest"):
        gains: dict[str, list[int]] = {}
        for ours, other in zip(late["ours"], late[arm], strict=True):
            gains.setdefault(ours.task, []).append(ours.first - other.first)
        sums = np.array([[sum(each), len(each)] for each in gains.values()], dtype=float)
        drawn = np.random.default_rng(0).integers(len(sums), size=(RESAMPLED, len(sums)))
        totals = sums[drawn].sum(axis=1)
        low, high = np.quantile(totals[:, 0] / totals[:, 1], (0.025, 0.975))
        gain = sums[:, 0].sum() / sums[:, 1].sum()
        key = f"learn.all.{size}.second_half.ours_over_{arm}"
        rows += [Row(key, gain), Row(f"{key}.low", float(low)), Row(f"{key}.high", float(high))]
    return rows


async def _arms(
    title: str, order: int, tasks: Sequence[Task], model: KeptModel
) -> dict[str, list[Tried]]:
    embedder = heedful.models.open_embedder("minilm")
    memory = heedful.Memory(":memory:", embedder=embedder, holdout=0)
    plain = _decorated(tasks, model, None, None)
    nearest = _Nearest(embedder)
    arms = {
        "retries": plain,
        "nearest": _decorated(tasks, model, None, nearest),
        "ours": _decorated(tasks, model, memory, None),
    }
    tried: dict[str, list[Tried]] = {}
    for arm, function in arms.items():
        progress = Progress(f"learn {title} order {order} {arm}", len(tasks), model)
        tried[arm] = []
        for task in tasks:
            made = await _try(task, function, nearest if arm == "nearest" else None)
            tried[arm].append(made)
            progress.task(made.first)
    # With nothing, the first answer is that of the first attempt of retries.
    tried["nothing"] = [replace(one, solved=one.first, calls=1) for one in tried["retries"]]
    return tried


async def _try(
    task: Task, function: Callable[..., Awaitable[str]], nearest: _Nearest | None
) -> Tried:
    made: list[str] = []
    if nearest is not None:
        await nearest.choose(task)
    await function(task.text, made)
    right = [task.judge(text)[0] for text in made]
    if nearest is not None and right[-1]:
        nearest.keep(made[-1])
    return Tried(task.id, right[0], any(right), len(made))


class _Nearest:
    """The accepted answers so far, and the ones nearest to the task as chat turns."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._kept: list[tuple[Sequence[float], str, str]] = []
        self._task: tuple[Sequence[float], str] = ((), "")
        self.turns: list[Message] = []

    async def choose(self, task: Task) -> None:
        """Take the nearest, with the best one last, next to the task."""
        (vector,) = await self._embedder.embed([task.text])
        self._task = vector, task.text
        ranked = sorted(self._kept, key=lambda kept: float(np.dot(kept[0], vector)))
        self.turns = []
        for _, asked, accepted in ranked[-NEAREST:]:
            self.turns += [Message("user", asked), Message("assistant", accepted)]

    def keep(self, accepted: str) -> None:
        """Keep the accepted answer to the current task."""
        self._kept.append((*self._task, accepted))


def _decorated(
    tasks: Sequence[Task],
    model: KeptModel,
    memory: heedful.Memory | None,
    nearest: _Nearest | None,
) -> Callable[..., Awaitable[str]]:
    """Return the decorated function: one prompt for every arm, from the context of the attempt."""
    known = {task.text: task for task in tasks}

    def accepted(candidate: str, at: heedful.Context) -> list[Finding]:
        """Run the statement and say what is wrong with its answer."""
        right, wrong, fix = known[at.task].judge(candidate)
        return [] if right else [Finding("sql", wrong, fix)]

    accepted.pure = True  # type: ignore[attr-defined]

    @heedful.self_correcting(
        checks=[accepted], policy=POLICY, memory=memory, store=None, on_exhausted="best"
    )
    async def write_sql(task: str, hint: str, made: list[str]) -> heedful.Answer:
        at = heedful.context()
        system, *turns = heedful.Writer(model, known[task].system).messages(at)
        turns = [*(nearest.turns if nearest else ()), *turns]
        settings: Any = {"temperature": at.temperature, "seed": at.seed}
        answer = await model.complete([system, *turns], max_tokens=TOKENS, **settings)
        made.append(answer.text)
        return answer

    return write_sql


def streams(data: Path, split: str) -> dict[str, list[Task]]:
    """Return the tasks of each stream; `sql_check.py` of the data folder accepts answers."""
    spec = importlib.util.spec_from_file_location("sql_check", data / "sql_check.py")
    if spec is None or spec.loader is None or not (data / "sql_check.py").exists():
        raise SystemExit(f"{data / 'sql_check.py'} is absent; it accepts the answers")
    checker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checker)
    geo = sqlite3.connect(f"file:{data / 'geo.sqlite'}?mode=ro", uri=True)
    tables = "\n".join(
        f"{name}({', '.join(row[1] for row in geo.execute(f'pragma table_info({name})'))})"
        for (name,) in geo.execute("select name from sqlite_master where type = 'table'")
    )
    return {
        "geo": [
            Task(
                row["id"],
                row["question"],
                f"{SYSTEM}\nThe tables:\n{tables}",
                partial(_judge, row, geo, partial(checker.query, geo, row)),
            )
            for row in read(data, "sql_geo", split)
        ],
        "lifelong": [
            Task(
                row["id"],
                row["instruction"],
                SYSTEM,
                partial(_judge, row, None, partial(checker.lifelong, row)),
            )
            for row in read(data, "sql_lifelong_db", split)
            if not row["fragile"]
        ],
    }


def statement(answer: str) -> str:
    """Return the statement in an answer, without the code block around it."""
    block = re.search(r"```(?:sql\w*)?\s*(.*?)(?:```|\Z)", answer, re.DOTALL)
    return (block[1] if block else answer).strip()


def _judge(
    row: Mapping[str, Any],
    db: sqlite3.Connection | None,
    check: Callable[[str], tuple[bool, str]],
    answer: str,
) -> tuple[bool, str, str]:
    sql = statement(answer)
    try:
        right, said = check(sql)
    except (ValueError, sqlite3.Error) as error:
        right, said = False, f"SQLite says: {error}"
    if right:
        return True, "", ""
    if said.startswith("SQLite says"):
        return False, said, ""
    if said == "table compared":
        return False, "the table does not hold what it should afterwards", ""
    if db is not None:
        db.set_progress_handler(None, 0)  # the checker's limit counts on
        return (False, *_review(db, sql, db.execute(row["gold_sql"]).fetchall(), False))
    with closing(sqlite3.connect(":memory:")) as own:
        own.executescript(row["schema_sql"] + row["rows_sql"])
        return (False, *_review(own, sql, row["answer"]["rows"], row["answer"]["ordered"]))


def _review(
    db: sqlite3.Connection, sql: str, want: Sequence[Sequence[Any]], ordered: bool
) -> tuple[str, str]:
    """Say what a reviewer sees in a wrong answer, and how to put it right where that is plain."""
    got = db.execute(sql).fetchmany(5_000)
    if not got and db.execute(_QUOTED.sub(lambda text: text[0].lower(), sql)).fetchone():
        return "no rows: names are written in lower case", "write 'texas', not 'Texas'"
    if not got:
        return "the statement returns no rows", "compare with values that the table has"
    if want and len(got[0]) != len(want[0]):
        fix = f"select only what is asked for: {len(want[0])} of the {len(got[0])} columns"
        fix = fix if len(got[0]) > len(want[0]) else "select every column that is asked for"
        return "the number of columns is wrong", fix
    distinct, wanted = set(map(tuple, got)), set(map(tuple, want))
    if distinct == wanted and len(got) > len(want):
        return "rows are repeated", "use SELECT DISTINCT"
    if distinct == wanted and ordered:
        return "the order of the rows is wrong", "sort as the question says"
    return "the rows are not those that are asked for", ""
