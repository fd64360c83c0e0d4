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
from bench.quality.answers import KeptModel, Live, opened
from bench.quality.curve import (
    Function,
    Made,
    Task,
    Tried,
    decorated,
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
    """The rows of each model: each stream, then all of them pooled."""
    for size in live.models:
        yield from asyncio.run(_measured(size, data, split, live))


async def _measured(size: str, data: Path, split: str, live: Live) -> list[Row]:
    (most, orders) = SIZES[size]
    rows = list[Row]()
    pooled: dict[str, list[Tried]] = {arm: [] for arm in ARMS}
    async with opened(size, data, live) as model:
        for name, every in streams(data, split).items():
            arms: dict[str, list[Tried]] = {arm: [] for arm in ARMS}
            tasks = every[: live.limit or most]
            for order in range(orders):
                if order:
                    random.Random(order).shuffle(tasks)
                for arm, tried in (
                    await _arms(f"{name} {size} {order}", tasks, model)
                ).items():
                    arms[arm] += tried
                    pooled[arm] += tried
            for arm in ARMS:
                rows += figures(
                    f"learn.{name}.{size}.{arm}", arms[arm], arms["nothing"]
                )
    for arm in ARMS:
        rows += figures(f"learn.all.{size}.{arm}", pooled[arm], pooled["nothing"])
        if arm != "ours":
            rows += _interval(
                f"learn.all.{size}.ours_over_{arm}", pooled["ours"], pooled[arm]
            )
    return rows


def _interval(key: str, ours: Sequence[Tried], other: Sequence[Tried]) -> Iterator[Row]:
    """The gain in right at once in the second halves, with its 95 % interval.

    Pairs of one task, in several orders, are drawn together.
    """
    gains: dict[str, list[int]] = {}
    for one, two in zip(ours, other, strict=True):
        if one.late:
            gains.setdefault(one.task.id, []).append(one.first - two.first)
    sums = np.array([[sum(each), len(each)] for each in gains.values()], dtype=float)
    drawn = np.random.default_rng(0).integers(len(sums), size=(RESAMPLED, len(sums)))
    totals = sums[drawn].sum(axis=1)
    low, high = np.quantile(totals[:, 0] / totals[:, 1], (0.025, 0.975))
    yield Row(key=f"{key}.gain", ours=float(sums[:, 0].sum() / sums[:, 1].sum()))
    yield Row(key=f"{key}.low", ours=float(low))
    yield Row(key=f"{key}.high", ours=float(high))


async def _arms(
    title: str, tasks: Sequence[Task], model: KeptModel
) -> dict[str, list[Tried]]:
    plain = decorated("sql", tasks, model, chat=True, tokens=TOKENS)
    ours = decorated("sql", tasks, model, new_memory(), chat=True, tokens=TOKENS)

    async def call(function: Function, task: Task, made: Made) -> None:
        await function(task.text, made)

    arms: dict[str, Callable[[Task, Made], Any]] = {
        "retries": partial(call, plain),
        "nearest": _Nearest(plain),
        "ours": partial(call, ours),
    }
    tried = {
        arm: await stream(f"learn {title} {arm}", tasks, function, model)
        for arm, function in arms.items()
    }
    # With nothing, the only answer is the first one of the retries.
    tried["nothing"] = [
        replace(one, solved=one.first, calls=1) for one in tried["retries"]
    ]
    return tried


class _Nearest:
    """Shows the accepted answers so far whose tasks are nearest, the best one last."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._embedder = heedful.models.open_embedder("minilm")
        self._kept: list[tuple[Sequence[float], str, str]] = []

    async def __call__(self, task: Task, made: Made) -> None:
        (vector,) = await self._embedder.embed([task.text])
        ranked = sorted(self._kept, key=lambda kept: float(np.dot(kept[0], vector)))
        turns: list[Message] = []
        for _, asked, accepted in ranked[-NEAREST:]:
            turns += [Message("user", asked), Message("assistant", accepted)]
        await self._function(task.text, made, turns)
        if not task.judge(made.texts[-1]):
            self._kept.append((vector, task.text, made.texts[-1]))


def streams(data: Path, split: str) -> dict[str, list[Task]]:
    """Return the tasks of each stream; `sql_check.py` of the data folder accepts
    answers.
    """
    spec = importlib.util.spec_from_file_location("sql_check", data / "sql_check.py")
    if spec is None or spec.loader is None or not (data / "sql_check.py").exists():
        raise SystemExit(f"{data / 'sql_check.py'} is absent; it accepts the answers")
    checker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checker)
    geo = sqlite3.connect(f"file:{data / 'geo.sqlite'}?mode=ro", uri=True)
    tables = "\n".join(
        f"{name}({', '.join(row[1] for row in geo.execute(f'pragma table_info({name})'))})"
        for (name,) in geo.execute(
            "select name from sqlite_master where type = 'table'"
        )
    )
    return {
        "geo": [
            Task(
                id=row["id"],
                text=row["question"],
                system=f"{SYSTEM}\nThe tables:\n{tables}",
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
        right, said = check(sql)
    except (ValueError, sqlite3.Error) as error:
        right = False
        said = f"SQLite says: {error}"
    if right:
        return []
    if said.startswith("SQLite says"):
        return [Finding("sql", said)]
    if said == "table compared":
        return [Finding("sql", "the table does not hold what it should afterwards")]
    if db is not None:
        db.set_progress_handler(None, 0)  # the checker's limit counts on
        expected_rows = db.execute(row["gold_sql"]).fetchall()
        message, fix = _review(db, sql, expected_rows, ordered=False)
        return [Finding("sql", message, fix=fix)]
    with closing(sqlite3.connect(":memory:")) as own:
        own.executescript(row["schema_sql"] + row["rows_sql"])
        expected = row["answer"]
        message, fix = _review(own, sql, expected["rows"], expected["ordered"])
        return [Finding("sql", message, fix=fix)]


def _review(
    db: sqlite3.Connection, sql: str, want: Sequence[Sequence[Any]], ordered: bool
) -> tuple[str, str]:
    """Say what a reviewer sees in a wrong answer, and how to put it right where that is
    plain.
    """
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
