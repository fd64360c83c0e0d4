"""Streams of tasks that others wrote: text-to-SQL, customers' intents, house rules.

Each reader turns the rows of one data set into tasks; nothing else knows a data set.
The checkers beside the data (`NAME_check.py`) accept the answers. A check says what a
reviewer would say, never the right answer; only in `NAME_corrected` a person names it.
"""

from __future__ import annotations

import importlib.util
import random
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.quality import sql
from bench.quality.curve import Task
from bench.quality.rows import read
from heedful import Finding

OPEN = "open"
CORRECTED = "corrected"
RULES = "rules"
DatasetRow = Mapping[str, Any]
SQL_SYSTEM = (
    "Write one SQLite statement that answers the question. Answer with the SQL only."
)
SQL_TOKENS = 160
LABEL_TOKENS = 40
TEXT_TOKENS = 120


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Tasks in the order of their file.

    `pool` says with which other streams its figures are averaged, and `tokens` limits
    the length of an answer.
    """

    name: str
    tasks: tuple[Task, ...]
    pool: str = OPEN
    tokens: int = SQL_TOKENS


def load_checker(data: Path, name: str) -> ModuleType:
    """Return the checker NAME_check.py of the data. Raises SystemExit if absent."""
    path = data / f"{name}_check.py"
    spec = importlib.util.spec_from_file_location(f"{name}_check", path)
    if spec is None or spec.loader is None or not path.exists():
        raise SystemExit(
            f"{path} is absent; give the folder with the data sets: DATA=folder"
        )
    checker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checker)
    return checker


def read_geo(data: Path, split: str) -> Stream:
    """Return questions on one database of geography."""
    load_checker(data, "sql")  # which says that the folder is absent
    db = sqlite3.connect(f"file:{data / 'geo.sqlite'}?mode=ro", uri=True)
    return _query_stream("geo", data, split, lambda row: db)


def read_spider(data: Path, split: str) -> Stream:
    """Return questions on several databases; the prompt has the tables of its own."""
    checker = load_checker(data, "sql")
    databases = checker.spider_databases(data / "sql_spider_dbs.jsonl.gz")
    return _query_stream("spider", data, split, lambda row: databases[row["db"]])


def read_lifelong(data: Path, split: str) -> Stream:
    """Return tasks with a table of their own each; without those of fragile answers."""
    checker = load_checker(data, "sql")
    tasks = []
    for row in read(data, "sql_lifelong_db", split):
        if row["fragile"]:
            continue
        check = partial(checker.lifelong, row)
        tasks.append(
            Task(
                id=row["id"],
                text=row["instruction"],
                system=SQL_SYSTEM,
                judge=partial(_judge_table, row, check, checker.limit),
                extract=sql.statement,
            )
        )
    return Stream(name="lifelong", tasks=tuple(tasks))


def _query_stream(
    name: str,
    data: Path,
    split: str,
    database_of: Callable[[DatasetRow], sqlite3.Connection],
) -> Stream:
    """Return tasks whose answers have the rows of the gold query on their database."""
    checker = load_checker(data, "sql")
    tasks = []
    for row in read(data, f"sql_{name}", split):
        db = database_of(row)
        check = partial(checker.query, db, row)
        reviewer = _reviewer(row, checker, db)
        task = Task(
            id=row["id"],
            text=row["question"],
            system=f"{SQL_SYSTEM}\nThe tables:\n{_describe_tables(db)}",
            judge=partial(sql.findings, check, reviewer),
            extract=sql.statement,
        )
        tasks.append(task)
    return Stream(name=name, tasks=tuple(tasks))


def _reviewer(
    row: DatasetRow, checker: ModuleType, db: sqlite3.Connection
) -> sql.Reviewer:
    """Return the reviewer who knows the rows of the gold query."""

    def right_rows() -> sql.Rows:
        checker.limit(db)
        return db.execute(row["gold_sql"]).fetchall()

    return sql.Reviewer(
        db=db,
        right_rows=right_rows,
        ordered=row.get("ordered", False),
        limit=checker.limit,
    )


def _judge_table(
    row: DatasetRow,
    check: Callable[[str], tuple[bool, str]],
    limit: Callable[[sqlite3.Connection], None],
    answer: str,
) -> list[Finding]:
    """Review an answer on a table of its own, made for this once."""
    with closing(sqlite3.connect(":memory:")) as scratch:
        scratch.executescript(row["schema_sql"] + row["rows_sql"])
        expected = row["answer"]
        reviewer = sql.Reviewer(
            db=scratch,
            right_rows=lambda: expected["rows"],
            ordered=expected.get("ordered", False),
            limit=limit,
        )
        return sql.findings(check, reviewer, answer)


def _describe_tables(db: sqlite3.Connection) -> str:
    """Return a line for each table: its name and its columns."""
    lines = []
    query = "select name from sqlite_master where type = 'table'"
    for (name,) in db.execute(query).fetchall():
        columns = [row[1] for row in db.execute(f"pragma table_info('{name}')")]
        lines.append(f"{name}({', '.join(columns)})")
    return "\n".join(lines)


def read_intents(name: str, corrected: bool, data: Path, split: str) -> Stream:
    """Return customers' texts; the answer is the name of a queue.

    The check says only that the queue is wrong, or, `corrected`, a person says which is
    right.
    """
    checker = load_checker(data, "intents")
    rows = list(read(data, f"intents_{name}", split))
    queues = checker.queues(rows)
    system = (
        "Route the customer's text to a queue. Answer with the name of the queue only."
        f"\nThe queues: {', '.join(queues)}"
    )
    if checker.NONE in queues:
        system += f"\nAnswer {checker.NONE} if no queue is meant."

    judge = partial(_judge_queue, checker, frozenset(queues), corrected)
    extract = partial(queue_named, queue_pattern(queues), checker.named)
    tasks = [
        Task(
            id=row["id"],
            text=row["text"],
            system=system,
            judge=partial(judge, row),
            extract=extract,
        )
        for row in rows
    ]
    pool = OPEN
    if corrected:
        name = f"{name}_corrected"
        pool = CORRECTED
    return Stream(name=name, tasks=tuple(tasks), pool=pool, tokens=LABEL_TOKENS)


def _judge_queue(
    checker: ModuleType,
    queues: frozenset[str],
    corrected: bool,
    row: DatasetRow,
    answer: str,
) -> list[Finding]:
    right, message, fix = checker.judge(row, answer, queues, corrected)
    return [] if right else [Finding("queue", message, fix=fix)]


def queue_pattern(queues: Iterable[str]) -> re.Pattern[str]:
    """Return what finds a queue's name, however its words are joined."""
    names = [r"[\s_-]+".join(map(re.escape, name.split("_"))) for name in queues]
    names.sort(key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(names)})(?![\w-])", re.IGNORECASE)


def queue_named(
    pattern: re.Pattern[str], first_line: Callable[[str], str], answer: str
) -> str:
    """Return the queue that an answer names, the longest name of several.

    An answer that names none is its first line, without marks.
    """
    names = [re.sub(r"[\s-]+", "_", name.lower()) for name in pattern.findall(answer)]
    line = first_line(answer)
    if line in names or not names:
        return line
    return max(names, key=len)


def read_rules(data: Path, split: str) -> Stream:
    """Return unlike requests under house rules; a function for each rule.

    The functions take turns, and each has its requests in an order of its own.
    """
    checker = load_checker(data, "rules")
    checker.load(data)
    rows = list(read(data, "rules_ifeval", split))
    requests = [row for row in rows if row["kind"] == "task"]
    series = []
    for rule in rows:
        if rule["kind"] != "rule":
            continue
        order = random.Random(rule["name"]).sample(requests, len(requests))
        judge = partial(_judge_rule, checker, rule)
        series.append(
            [
                Task(
                    id=f"{rule['name']} {row['id']}",
                    text=row["text"],
                    system=rule["instruction"],
                    judge=judge,
                    extract=str.strip,
                    group=rule["name"],
                )
                for row in order
            ]
        )
    turns = chain.from_iterable(zip(*series, strict=True))
    return Stream(name="rules", tasks=tuple(turns), pool=RULES, tokens=TEXT_TOKENS)


def _judge_rule(checker: ModuleType, rule: DatasetRow, answer: str) -> list[Finding]:
    right, message, fix = checker.judge(rule, answer)
    return [] if right else [Finding(rule["name"], message, fix=fix)]


READERS: Mapping[str, Callable[[Path, str], Stream]] = {
    "geo": read_geo,
    "lifelong": read_lifelong,
    "spider": read_spider,
    "banking77": partial(read_intents, "banking77", False),
    "clinc150": partial(read_intents, "clinc150", False),
    "banking77_corrected": partial(read_intents, "banking77", True),
    "clinc150_corrected": partial(read_intents, "clinc150", True),
    "rules": read_rules,
}
