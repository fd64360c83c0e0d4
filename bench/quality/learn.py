"""Learn: the learning curve of a small model on streams of text-to-SQL tasks, with four
arms.

nothing: one attempt. retries: three attempts with feedback. nearest: retries, and
before the first attempt the three nearest accepted answers so far, by the embedder, as
chat turns. ours: retries, and one decorated function with a memory. Every arm has the
same prompt, the same check and the same order of tasks. The check runs the statement
and says what a reviewer would see; it never shows the right statement or its rows.
Answers are kept: stop with Ctrl-C, and the next run goes on.
"""

from __future__ import annotations

import asyncio
import importlib.util
import random
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import heedful
from bench.quality.answers import KeptModel, Live, open_kept_model
from bench.quality.curve import (
    Answers,
    Function,
    Outcome,
    Task,
    decorate,
    figures,
    new_memory,
    stream,
)
from bench.quality.rows import Row, read
from heedful import Finding
from heedful.models.contract import Message

# The tasks of a stream and the number of its orders, by model: hours on two cores.
SIZES = {"0.5b": (200, 2), "1.5b": (120, 1)}
ARMS = ("nothing", "retries", "nearest", "ours")
NEAREST = 3
TOKENS = 160
SYSTEM = (
    "Write one SQLite statement that answers the question. Answer with the SQL only."
)
RESAMPLED = 10_000
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def run(data: Path, split: str, live: Live) -> Iterator[Row]:
    """Yield the rows of each model: each stream, then all of them pooled."""
    for size in live.models:
        yield from asyncio.run(_measure(size, data, split, live))


async def _measure(size: str, data: Path, split: str, live: Live) -> list[Row]:
    (default_limit, orders) = SIZES[size]
    rows = list[Row]()
    pooled: dict[str, list[Outcome]] = {arm: [] for arm in ARMS}
    async with open_kept_model(size, data, live) as model:
        for name, all_tasks in streams(data, split).items():
            arms: dict[str, list[Outcome]] = {arm: [] for arm in ARMS}
            tasks = all_tasks[: live.limit or default_limit]
            for order in range(orders):
                if order:
                    random.Random(order).shuffle(tasks)
                ran = await _run_arms(f"{name} {size} {order}", tasks, model)
                for arm, outcomes in ran.items():
                    arms[arm] += outcomes
                    pooled[arm] += outcomes
            for arm in ARMS:
                key = f"learn.{name}.{size}.{arm}"
                rows += figures(key, arms[arm], arms["nothing"])
    for arm in ARMS:
        rows += figures(f"learn.all.{size}.{arm}", pooled[arm], pooled["nothing"])
        if arm != "ours":
            key = f"learn.all.{size}.ours_over_{arm}"
            rows += _interval(key, pooled["ours"], pooled[arm])
    return rows


def _interval(
    key: str, ours: Sequence[Outcome], other: Sequence[Outcome]
) -> Iterator[Row]:
    """Yield the gain at the first try in the second halves, with its 95 % interval.

    Pairs of one task, in several orders, are drawn together.
    """
    gains: dict[str, list[int]] = {}
    for our, their in zip(ours, other, strict=True):
        if our.late:
            gains.setdefault(our.task.id, []).append(our.first - their.first)
    sums = np.array(
        [[sum(task_gains), len(task_gains)] for task_gains in gains.values()],
        dtype=float,
    )
    drawn = np.random.default_rng(0).integers(len(sums), size=(RESAMPLED, len(sums)))
    totals = sums[drawn].sum(axis=1)
    low, high = np.quantile(totals[:, 0] / totals[:, 1], (0.025, 0.975))
    yield Row(key=f"{key}.gain", ours=float(sums[:, 0].sum() / sums[:, 1].sum()))
    yield Row(key=f"{key}.low", ours=float(low))
    yield Row(key=f"{key}.high", ours=float(high))


async def _run_arms(
    title: str, tasks: Sequence[Task], model: KeptModel
) -> dict[str, list[Outcome]]:
    without_memory = decorate("sql", tasks, model, chat=True, tokens=TOKENS)
    ours = decorate("sql", tasks, model, new_memory(), chat=True, tokens=TOKENS)

    async def call(function: Function, task: Task, answers: Answers) -> None:
        await function(task.text, answers)

    arms: dict[str, Callable[[Task, Answers], Any]] = {
        "retries": partial(call, without_memory),
        "nearest": _Nearest(without_memory),
        "ours": partial(call, ours),
    }
    outcomes = {
        arm: await stream(f"learn {title} {arm}", tasks, function, model)
        for arm, function in arms.items()
    }
    # With nothing, the only answer is the first one of the retries.
    outcomes["nothing"] = [
        replace(outcome, solved=outcome.first, calls=1)
        for outcome in outcomes["retries"]
    ]
    return outcomes


class _Nearest:
    """Shows the accepted answers so far whose tasks are nearest, the best one last."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._embedder = heedful.models.open_embedder("minilm")
        self._kept: list[tuple[Sequence[float], str, str]] = []

    async def __call__(self, task: Task, answers: Answers) -> None:
        (vector,) = await self._embedder.embed([task.text])
        ranked = sorted(self._kept, key=lambda entry: float(np.dot(entry[0], vector)))
        turns: list[Message] = []
        for _, question, accepted in ranked[-NEAREST:]:
            turns += [Message("user", question), Message("assistant", accepted)]
        await self._function(task.text, answers, turns)
        if not task.judge(answers.texts[-1]):
            self._kept.append((vector, task.text, answers.texts[-1]))


def streams(data: Path, split: str) -> dict[str, list[Task]]:
    """Return the tasks of each stream; `sql_check.py` of `data` accepts answers."""
    spec = importlib.util.spec_from_file_location("sql_check", data / "sql_check.py")
    if spec is None or spec.loader is None or not (data / "sql_check.py").exists():
        raise SystemExit(f"{data / 'sql_check.py'} is absent; it accepts the answers")
    checker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checker)
    geo = sqlite3.connect(f"file:{data / 'geo.sqlite'}?mode=ro", uri=True)
    system = f"{SYSTEM}\nThe tables:\n{_describe_tables(geo)}"
    return {
        "geo": [
            Task(
                id=row["id"],
                text=row["question"],
                system=system,
                judge=partial(_judge, row, geo, partial(checker.query, geo, row)),
            )
            for row in read(data, "sql_geo", split)
        ],
        "lifelong": [
            Task(
                id=row["id"],
                text=row["instruction"],
                system=SYSTEM,
                judge=partial(_judge, row, None, partial(checker.lifelong, row)),
            )
            for row in read(data, "sql_lifelong_db", split)
            if not row["fragile"]
        ],
    }


def _describe_tables(db: sqlite3.Connection) -> str:
    """Return a line for each table: its name and its columns."""
    lines = []
    query = "select name from sqlite_master where type = 'table'"
    for (name,) in db.execute(query).fetchall():
        columns = [row[1] for row in db.execute(f"pragma table_info({name})")]
        lines.append(f"{name}({', '.join(columns)})")
    return "\n".join(lines)


def statement(answer: str) -> str:
    """Return the statement in an answer, without the code block around it."""
    block = re.search(r"```(?:sql\w*)?\s*(.*?)(?:```|\Z)", answer, re.DOTALL)
    return (block[1] if block else answer).strip()


def _judge(
    row: Mapping[str, Any],
    db: sqlite3.Connection | None,
    check: Callable[[str], tuple[bool, str]],
    answer: str,
) -> list[Finding]:
    sql = statement(answer)
    try:
        right, reason = check(sql)
    except (ValueError, sqlite3.Error) as error:
        right = False
        reason = f"SQLite says: {error}"
    if right:
        return []
    if reason.startswith("SQLite says"):
        return [Finding("sql", reason)]
    if reason == "table compared":
        return [Finding("sql", "the table does not hold what it should afterwards")]
    if db is not None:
        db.set_progress_handler(None, 0)  # the checker's limit counts on
        expected_rows = db.execute(row["gold_sql"]).fetchall()
        message, fix = _review(db, sql, expected_rows, ordered=False)
        return [Finding("sql", message, fix=fix)]
    with closing(sqlite3.connect(":memory:")) as scratch:
        scratch.executescript(row["schema_sql"] + row["rows_sql"])
        expected = row["answer"]
        message, fix = _review(scratch, sql, expected["rows"], expected["ordered"])
        return [Finding("sql", message, fix=fix)]


def _review(
    db: sqlite3.Connection, sql: str, want: Sequence[Sequence[Any]], ordered: bool
) -> tuple[str, str]:
    """Say what a reviewer sees in a wrong answer, and its fix where that is plain."""
    got = db.execute(sql).fetchmany(5_000)
    if (
        not got
        and db.execute(_QUOTED.sub(lambda text: text[0].lower(), sql)).fetchone()
    ):
        return "no rows: names are written in lower case", "write 'texas', not 'Texas'"
    if not got:
        return "the statement returns no rows", "compare with values that the table has"
    if want and len(got[0]) != len(want[0]):
        fix = (
            f"select only what is asked for: {len(want[0])} of the {len(got[0])} "
            "columns"
        )
        fix = (
            fix
            if len(got[0]) > len(want[0])
            else "select every column that is asked for"
        )
        return "the number of columns is wrong", fix
    distinct = set(map(tuple, got))
    wanted = set(map(tuple, want))
    if distinct == wanted and len(got) > len(want):
        return "rows are repeated", "use SELECT DISTINCT"
    if distinct == wanted and ordered:
        return "the order of the rows is wrong", "sort as the question says"
    return "the rows are not those that are asked for", ""
