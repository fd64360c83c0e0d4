"""Checks of a results file of ten million rows: how much memory and how long, beside a plain pass."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from bench.rows import Figure

ROWS = 10_000_000
PART = 500_000

# Both read a small file first, so that what is imported does not count as growth.
CHECKED = """
import sys, time
import errata
from errata.checks import numbers
small, large = sys.argv[1:3]
at = errata.Context("bench")
def work(path):
    check = numbers.predictions(path, actual="y", predicted="yhat")
    assert check(None, at) == []
"""
KEYED = """
import sys, time
import errata
from errata.checks import numbers
small, large = sys.argv[1:3]
at = errata.Context("bench")
def work(path):
    check = numbers.rows(path, key="id", same_as=path)
    assert check(None, at) == []
"""
PLAIN = """
import sys, time
import pyarrow.csv as csv, pyarrow.parquet as parquet, pyarrow.compute as pc
small, large = sys.argv[1:3]
def parts(path):
    if path.endswith("csv"):
        chosen = csv.ConvertOptions(include_columns=["y", "yhat"])
        return csv.open_csv(path, csv.ReadOptions(use_threads=False), convert_options=chosen)
    file = parquet.ParquetFile(path)
    return file.iter_batches(columns=["y", "yhat"], use_threads=False)
def work(path):
    for part in parts(path):
        for column in part.columns:
            pc.sum(column)
"""
MEASURED = """
def peak():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status["VmHWM"].split()[0]) / 1024
work(small)
before, began = peak(), time.perf_counter()
work(large)
print(time.perf_counter() - began, peak() - before)
"""


def parts(rows: int) -> Iterator[pa.Table]:
    """So many rows of an id, actual and predicted values, a part at a time."""
    chance = np.random.default_rng(11)
    for at in range(0, rows, PART):
        size = min(PART, rows - at)
        y = chance.normal(1e3, 50, size)
        yhat = y + chance.normal(0, 20, size)
        yield pa.table({"id": np.arange(at, at + size), "y": y, "yhat": yhat})


def written(folder: Path, rows: int) -> tuple[Path, Path]:
    """The same rows as Parquet, in groups of a million as is usual, and as CSV."""
    paths = folder / f"{rows}.parquet", folder / f"{rows}.csv"
    schema = next(parts(1)).schema
    with parquet.ParquetWriter(paths[0], schema) as one, csv.CSVWriter(paths[1], schema) as other:
        held: list[pa.Table] = []
        for part in parts(rows):
            other.write_table(part)
            held.append(part)
            if len(held) * PART >= 1_000_000 or rows < PART:
                one.write_table(pa.concat_tables(held).combine_chunks())
                held = []
    return paths


def measured(program: str, *paths: Path) -> tuple[float, float]:
    """Seconds, and megabytes that the peak of memory grew by, in a process of its own."""
    command = [sys.executable, "-c", program + MEASURED, *map(str, paths)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds, grown = map(float, done.stdout.split())
    return seconds, grown


def figures(folder: str) -> Iterable[Figure]:
    """Time and memory for each format, and that memory does not grow with the rows."""
    small = written(Path(folder), 1_000)
    tenth = written(Path(folder), ROWS // 10)
    large = written(Path(folder), ROWS)
    for first, part, whole in zip(small, tenth, large, strict=True):
        name = f"10,000,000 rows of {whole.suffix[1:]}"
        seconds, grown = measured(CHECKED, first, whole)
        _, less = measured(CHECKED, first, part)
        plain, _ = measured(PLAIN, first, whole)
        yield Figure(f"{name}: predictions checked", seconds, "s")
        yield Figure(f"{name}: a plain pass takes", plain, "s")
        yield Figure(f"{name}: checked, as a multiple of it", seconds / plain, "times")
        yield Figure(f"{name}: memory grows by", grown, "MB", max(150.0, 1.2 * less))
        yield Figure("  by a tenth of the rows it grows by", less, "MB")
