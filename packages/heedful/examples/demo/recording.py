"""`heedful demo --recorded`: a demonstration that ran before, shown again without a
model.

`recorded.zip` has the database of the run and `run.json`, its rows and what it ran on.
`scripts/record_demo.py` makes it of the results of a real run.
"""

from __future__ import annotations

import json
import sqlite3
import time
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heedful.cli.databases import opened_store
from heedful.cli.printing import say
from heedful.cli.run import TaskResult
from heedful.cli.settings import Settings
from heedful.store import lessons as lesson_store
from heedful.store.store import Store

from .figures import MEMORY, RUNS, WITHOUT, Measured, Ran, comparisons, folded
from .lab import SCOPES, TOP, Ended, Ledger, next_commands, record_pairs
from .stories import LEGEND, Screen, story

RECORDING = Path(__file__).with_name("recorded.zip")
DATABASE = "demo-recorded.db"
FACTS = "run.json"
TIMES = "select min(created), max(updated) from loop"
TIME_COLUMNS = """
select t.name, c.name from sqlite_master t, pragma_table_info(t.name) c
where t.type = 'table' and c.type = 'REAL'
"""
# A time of the run may lie so far before its first loop or after its last.
MAX_SKEW_SECONDS = 60
STORY_FAMILIES = 2


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What a run left besides its database: the rows of each arm, and what it ran on.

    `date` is the day of the run, such as 2026-11-24.
    """

    date: str
    settings: Mapping[str, str]
    machine: Mapping[str, str]
    rows: Mapping[str, list[TaskResult]]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Recording:
        """Return the recording of the data in `run.json`."""
        rows = {
            arm: [TaskResult(**row) for row in facts["rows"][short]]
            for arm, short in RUNS.items()
        }
        return cls(
            date=facts["date"],
            settings=facts["settings"],
            machine=facts["machine"],
            rows=rows,
        )

    @property
    def seconds(self) -> float:
        """How long all loops took together."""
        return sum(row.seconds for rows in self.rows.values() for row in rows)

    def __str__(self) -> str:
        machine = self.machine
        return (
            f"a recording of {self.date}, no model is asked: "
            f"{self.settings['weights']}, {self.seconds:.0f} s of answers on "
            f"{machine['system']} with {machine['cores']} cores, "
            f"heedful {machine['heedful']}"
        )


def unpack(out: Path) -> Recording:
    """Write the database of the recording to the folder; return the rest."""
    database = out / DATABASE
    for end in ("", "-wal", "-shm"):
        database.with_name(database.name + end).unlink(missing_ok=True)
    with zipfile.ZipFile(RECORDING) as archive:
        database.write_bytes(archive.read(DATABASE))
        facts = json.loads(archive.read(FACTS))
    move_to_now(database)
    return Recording.of(facts)


def move_to_now(database: Path) -> None:
    """Move all times of a run so that it has ended now.

    The pages show the last 30 days, and a recording is older one day.
    """
    with closing(sqlite3.connect(database)) as connection, connection:
        began, ended = connection.execute(TIMES).fetchone()
        delay = time.time() - ended
        for table, column in connection.execute(TIME_COLUMNS).fetchall():
            connection.execute(
                f'update "{table}" set "{column}" = "{column}" + ? '
                f'where "{column}" between ? and ?',
                (delay, began - MAX_SKEW_SECONDS, ended + MAX_SKEW_SECONDS),
            )


def story_ids(rows: Sequence[TaskResult]) -> frozenset[str]:
    """Return the tasks of the first two families, up to the first that was right at
    the first try.
    """
    chosen = []
    for family in list(dict.fromkeys(row.group for row in rows))[:STORY_FAMILIES]:
        for row in rows:
            if row.group == family:
                chosen.append(row.id)
                if row.at_once:
                    break
    return frozenset(chosen)


async def replay(
    values: Settings, out: Path, again: str, *, every_task: bool
) -> Measured:
    """Show the recorded run, its telling tasks or all, and measure it.

    Raises StoreError.
    """
    recording = unpack(out)
    db = str(out / DATABASE)
    rows = recording.rows[MEMORY]
    line_ids = frozenset(row.id for row in rows) if every_task else story_ids(rows)
    say(folded(str(recording)))
    say(f"{LEGEND}\n")

    values = replace(values, db=db)
    async with opened_store(values) as store:
        ran = await _show(recording, line_ids, store)
        await record_pairs(ran, store)
        lessons = await store.read(SCOPES[MEMORY], lesson_store.top, TOP)
    if len(line_ids) < len(rows):
        say(f"{len(rows) - len(line_ids)} more tasks with --all\n")

    recorded = {"recorded": str(recording), "command": again}
    return Measured(
        ran=ran,
        compared=tuple(comparisons(ran.without, ran.memory)),
        lessons=tuple(lessons),
        settings={**recording.settings, **recorded},
        machine=recording.machine,
        commands=tuple(next_commands(ran, db)),
    )


async def _show(recording: Recording, line_ids: frozenset[str], store: Store) -> Ran:
    """Let all tasks end in their order; show the lines of some."""
    ids = tuple(row.id for row in recording.rows[MEMORY])
    screen = Screen(len(ids))
    ledger = Ledger(ids=ids, line_ids=line_ids, screen=screen)
    pairs = zip(recording.rows[WITHOUT], recording.rows[MEMORY], strict=True)
    with screen:
        for without, memory in pairs:
            for arm, row in ((WITHOUT, without), (MEMORY, memory)):
                how = await story(store, SCOPES[arm], row.loop)
                ledger.end(arm, Ended(row=row, story=how))
    return ledger.ran(round(recording.seconds, 1))
