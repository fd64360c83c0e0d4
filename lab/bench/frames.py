"""Checks of a results file of ten million rows: memory and time, beside a plain
pass.
"""

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

# Each reads a small file first, so that what is imported does not count as growth.
CHECKED = """
import sys, time
import heedful
from heedful.checks import numbers
small, large = sys.argv[1:3]
at = heedful.Context("bench")
def work(path):
    check = numbers.predictions(path, actual="y", predicted="yhat")
    assert check(None, at) == []
"""
KEYED = """
import sys, time
import heedful
from heedful.checks import numbers
small, large = sys.argv[1:3]
at = heedful.Context("bench")
def work(path):
    check = numbers.rows(path, key="id")
    assert check(None, at) == []
"""
PLAIN = """
import sys, time
import pyarrow.csv as csv, pyarrow.parquet as parquet, pyarrow.compute as pc
small, large = sys.argv[1:3]
def parts(path):
    if path.endswith("csv"):
        reading = csv.ReadOptions(use_threads=False)
        chosen = csv.ConvertOptions(include_columns=["y", "yhat"])
        return csv.open_csv(path, reading, convert_options=chosen)
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
before, began = peak(), time.process_time()
work(large)
print(time.process_time() - began, peak() - before)
"""


def make_parts(rows: int) -> Iterator[pa.Table]:
    """Yield rows of an id, an actual and a predicted value, in parts."""
    chance = np.random.default_rng(11)
    for start in range(0, rows, PART):
        size = min(PART, rows - start)
        y = chance.normal(1e3, 50, size)
        yhat = y + chance.normal(0, 20, size)
        yield pa.table({"id": np.arange(start, start + size), "y": y, "yhat": yhat})


def write_files(folder: Path, rows: int) -> tuple[Path, Path]:
    """Write the same rows as Parquet, in groups of a million, and as CSV."""
    paths = folder / f"{rows}.parquet", folder / f"{rows}.csv"
    schema = next(make_parts(1)).schema
    with (
        parquet.ParquetWriter(paths[0], schema) as parquet_file,
        csv.CSVWriter(paths[1], schema) as csv_file,
    ):
        group: list[pa.Table] = []
        for part in make_parts(rows):
            csv_file.write_table(part)
            group.append(part)
            if len(group) * PART >= 1_000_000 or rows < PART:
                parquet_file.write_table(pa.concat_tables(group).combine_chunks())
                group = []
    return paths


def measure(
    program: str, small: Path, large: Path, rounds: int = 3
) -> tuple[float, float]:
    """Return the fewest seconds of processor time and the most MB of growth."""
    command = [sys.executable, "-c", program + MEASURED, str(small), str(large)]
    seconds = []
    megabytes = []
    for _ in range(rounds):
        process = subprocess.run(
            command,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        spent, grown = process.stdout.split()
        seconds.append(float(spent))
        megabytes.append(float(grown))
    return min(seconds), max(megabytes)


def figures(folder: str) -> Iterable[Figure]:
    """Measure time and memory by format, and that memory does not grow with rows."""
    small, tenth, large = (
        write_files(Path(folder), n) for n in (1_000, ROWS // 10, ROWS)
    )
    for first, part, full in zip(small, tenth, large, strict=True):
        name = f"10M rows of {full.suffix[1:]}"
        seconds, grown = measure(CHECKED, first, full)
        _, less = measure(CHECKED, first, part)
        plain_seconds, _ = measure(PLAIN, first, full)
        yield Figure(name=f"{name}, predictions checked", value=seconds, unit="CPU s")
        yield Figure(
            name=f"{name}, beside a plain pass",
            value=seconds / plain_seconds,
            unit="times",
        )
        yield Figure(
            name=f"{name}, memory grows by",
            value=grown,
            unit="MB",
            most=max(150.0, 1.2 * less),
        )
        yield Figure(name=f"{name}, by a tenth of them", value=less, unit="MB")
    seconds, grown = measure(KEYED, small[0], large[0], rounds=1)
    yield Figure(name="10M keys", value=seconds, unit="CPU s")
    yield Figure(name="10M keys, memory grows by", value=grown, unit="MB", most=150.0)
