"""Write docs/appendix/reliability.md from what the long runs broke and counted.

`make soak` ends with `python -m scripts.reliability`. Each line of build/soak.jsonl
is a trial, or how a test ended. The newest trial of the same damage on the same engine
replaces its row of the page; other rows stay, so that a few tests can run again alone.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bench.page import table

ROOT = Path(__file__).resolve().parent.parent
LEDGER = ROOT / "build" / "soak.jsonl"
PAGE = ROOT / "docs" / "appendix" / "reliability.md"
FULL_SOAK = 100  # the factor of `make soak`
COUNTS = ("lost", "doubled", "exceeded", "leaked")
NOT_COUNTED = "–"
KILL = "kill -9"
TITLE = "# Reliability: what was broken on purpose"
INTRODUCTION = """\
For operators who want to know what heedful loses when processes are killed, servers
restart, disks fill up and models fail. Each row of the last table is a test. Most break
something on purpose, at random moments. Each compares what heedful acknowledged with
what is stored. The next line adds up four counts: records that were lost, counted
twice, above a limit, or shown to the wrong reader, with the rows that count them. Each
sum must be 0. A program writes this page from the results."""
UNEXPLAINED = """\
**Not explained, nor in these sums.** Once in about 600 runs on a full disk, a SQLite
file could not be opened afterwards, and heedful said so (`StoreCorrupt`).
Versions of SQLite before 3.51.3, such as the one above, have a
[rare fault](https://sqlite.org/wal.html) that may be the cause.
[Keep backups](../howto/deploy.md#back-up-and-restore)."""
COLUMNS = """\
- **times**: how often the test broke something.
- **at work**: how often heedful was at work at that moment. At work means: a call, a
  transaction or a request had begun and had not ended.
- **lost**: records that heedful acknowledged and that are gone or incomplete.
- **doubled**: records, calls or units of usage that heedful counted twice, or calls
  that it repeated although their result was stored.
- **exceeded**: attempts, calls, tokens or seconds of waiting above a limit, or memory
  that grows.
- **leaked**: records that were shown to another tenant or project, or in a prompt
  before a person had released them, or a secret in a message.
- **–**: the test does not count this.
- **also**: other results of the test.
- **again**: the command that repeats the test with the same random numbers (**seed**).
  `SOAK` is the length of the run, 100 if it is left out. With `SOAK=20`, the test runs
  20 times as long as with `SOAK=1`. The kills may come at other moments, because these
  also depend on the machine."""
SUMMARY = re.compile(r"^Newest row: (.+)\.$", re.MULTILINE)
HEADINGS = (
    "what was broken",
    "engine",
    "times",
    "at work",
    *COUNTS,
    "also",
    "seed",
    "seconds",
    "day and commit",
    "again",
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One kind of damage on one engine, as its newest run counted it."""

    what: str
    engine: str
    times: int
    at_work: int | None
    lost: int | None
    doubled: int | None
    exceeded: int | None
    leaked: int | None
    note: str
    seed: int
    seconds: float
    day: str
    again: str

    @property
    def key(self) -> tuple[str, str]:
        """What a newer row replaces."""
        return self.what, self.engine

    @property
    def wrong(self) -> int:
        """The sum of its four counts."""
        return sum(getattr(self, count) or 0 for count in COUNTS)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A test that failed when it ran last, and the class of its error."""

    test: str
    error: str
    day: str


@dataclass(frozen=True, kw_only=True)
class Results:
    """What the page says: rows by their keys, failures by their tests, and where the
    newest run was.
    """

    rows: dict[tuple[str, str], Row]
    failures: dict[str, Failure]
    machine: str


def command_of(test: str, soak: int) -> str:
    """Return the command that repeats a test, in all its forms."""
    path, _, name = test.partition("::")
    factor = ""
    if soak != FULL_SOAK:
        factor = f" SOAK={soak}"
    return f"make soak{factor} ARGS='{path} -k {name.partition('[')[0]}'"


def read_ledger(text: str) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the lines of a ledger, and the numbers of those that cannot be read."""
    lines = []
    unreadable = []
    for number, line in enumerate(text.splitlines(), 1):
        values = _read_line(line)
        if values is None:
            unreadable.append(number)
        else:
            lines.append(values)
    return lines, unreadable


def _read_line(line: str) -> dict[str, Any] | None:
    """Return the values of a line, None if it is torn or of something else."""
    try:
        values = json.loads(line)
    except ValueError:
        return None
    is_whole = isinstance(values, dict) and {"test", "day"} <= values.keys()
    return values if is_whole else None


def read_page(text: str) -> Results:
    """Return what a page says, so that a run of some tests keeps its other rows."""
    rows = {}
    failures = {}
    for cells in _table_cells(text):
        if len(cells) == len(HEADINGS):
            row = _row_of(cells)
            rows[row.key] = row
        elif len(cells) == len(fields(Failure)):
            test, error, day = cells
            failures[test] = Failure(test=test, error=error, day=day)
    newest = SUMMARY.search(text)
    machine = newest[1] if newest else ""
    return Results(rows=rows, failures=failures, machine=machine)


def _table_cells(text: str) -> Iterator[list[str]]:
    """Yield the cells of each row that names a test; other tables do not."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if "tests/soak/" in line and len(cells) > 1:
            yield cells


def _row_of(cells: Sequence[str]) -> Row:
    """Return the row that the page shows by these cells."""
    what, engine, *numbers, note, seed, seconds, day, again = cells
    times, at_work, lost, doubled, exceeded, leaked = map(_number, numbers)
    return Row(
        what=what,
        engine=engine,
        times=times or 0,
        at_work=at_work,
        lost=lost,
        doubled=doubled,
        exceeded=exceeded,
        leaked=leaked,
        note=note,
        seed=int(seed),
        seconds=float(seconds.replace(",", "")),
        day=day,
        again=again.strip("`"),
    )


def _number(cell: str) -> int | None:
    """Return the number that a cell shows, None for what is not counted."""
    return None if cell == NOT_COUNTED else int(cell.strip("*").replace(",", ""))


def merge(results: Results, lines: Sequence[dict[str, Any]]) -> Results:
    """Return what a page says after these lines, of which later ones win.

    A test that passes is no longer among the failures.
    """
    rows = dict(results.rows)
    failures = dict(results.failures)
    machine = results.machine
    newest_day = max((row.day for row in rows.values()), default="")
    for line in lines:
        again = command_of(line["test"], line.get("soak", FULL_SOAK))
        day = line["day"]
        if day >= newest_day:
            machine = f"{day} on {line.get('machine', '')}"
        if "failed" in line:
            test = line["test"]
            failures.pop(test, None)
            if line["failed"]:
                failures[test] = Failure(test=test, error=line["failed"], day=day)
            continue

        row = Row(
            what=line["what"],
            engine=line["engine"],
            times=line["times"],
            at_work=line.get("at_work"),
            lost=line.get("lost"),
            doubled=line.get("doubled"),
            exceeded=line.get("exceeded"),
            leaked=line.get("leaked"),
            note=line.get("note", ""),
            seed=line["seed"],
            seconds=line["seconds"],
            day=day,
            again=again,
        )
        older = rows.get(row.key)
        if older is None or older.day <= day:
            rows[row.key] = row
    return Results(rows=rows, failures=failures, machine=machine)


def render(results: Results) -> str:
    """Return the page."""
    rows = sorted(results.rows.values(), key=lambda row: (row.again, row.key))
    kills = [row for row in rows if row.what.startswith(KILL)]
    counts = {
        count: [getattr(row, count) for row in rows if getattr(row, count) is not None]
        for count in COUNTS
    }
    kills_at_work = sum(row.at_work or 0 for row in kills)
    counted_kills = sum(row.times for row in kills if row.at_work is not None)
    found = ", ".join(
        f"{count} {sum(numbers):,} ({len(numbers)} rows)"
        for count, numbers in counts.items()
    )
    summary = (
        f"**{found.capitalize()}**, of {len(rows)} rows. `kill -9` was sent "
        f"{sum(row.times for row in kills):,} times. For {counted_kills:,} of these "
        "kills, the tests noted whether heedful was at work at that moment. It was at "
        f"work at {kills_at_work:,} of them."
    )
    wrong = [row for row in rows if row.wrong]

    parts = [TITLE, INTRODUCTION, summary, f"Newest row: {results.machine}."]
    if wrong:
        names = "; ".join(f"{row.what} ({row.engine})" for row in wrong)
        parts.append(f"**Not 0**: {names}.")
    parts.append(UNEXPLAINED)
    if results.failures:
        failures = sorted(results.failures.values(), key=lambda failure: failure.test)
        cells = [(failure.test, failure.error, failure.day) for failure in failures]
        parts += [
            "## Tests that failed in their newest run",
            table(["test", "error", "day"], cells),
        ]
    parts += [
        "## What the columns mean",
        COLUMNS,
        "## What was broken",
        table(HEADINGS, map(_cells, rows)),
    ]
    return "\n\n".join(parts) + "\n"


def _cells(row: Row) -> list[str]:
    """Return the cells of what was broken."""
    numbers = [row.times, row.at_work]
    counts = [_count(getattr(row, count)) for count in COUNTS]
    return [
        row.what,
        row.engine,
        *map(_shown, numbers),
        *counts,
        row.note,
        str(row.seed),
        f"{row.seconds:,.1f}",
        row.day,
        f"`{row.again}`",
    ]


def _count(number: int | None) -> str:
    """Return a count as a cell; one that is not 0 is bold."""
    cell = _shown(number)
    return f"**{cell}**" if number else cell


def _shown(number: int | None) -> str:
    """Return a number as a cell."""
    return NOT_COUNTED if number is None else f"{number:,}"


def main(ledger: Path = LEDGER, page: Path = PAGE) -> int:
    """Write the page; return 1 if there is nothing to write it from."""
    if not ledger.exists():
        print(
            f"{ledger} is missing: make soak writes it if SOAK is 2 or more; "
            f"{page} stays as it is"
        )
        return 1

    lines, unreadable = read_ledger(ledger.read_text(encoding="utf-8"))
    for number in unreadable:
        print(
            f"line {number} of {ledger} cannot be read, perhaps because the run was "
            "cut off: it is left out"
        )
    results = Results(rows={}, failures={}, machine="")
    if page.exists():
        results = read_page(page.read_text(encoding="utf-8"))
    results = merge(results, lines)
    page.write_text(render(results), encoding="utf-8")

    wrong = sum(row.wrong for row in results.rows.values())
    print(
        f"{page}: {len(results.rows)} kinds of damage, {wrong} records wrong, "
        f"{len(results.failures)} tests failed"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
