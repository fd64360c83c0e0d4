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
before, began = peak(), time.process_time()
work(large)
print(time.process_time() - began, peak() - before)
"""


def parts(rows: int) -> Iterator[pa.Table]:
    """Yield rows of an id, an actual and a predicted value, in parts."""
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
    with (
        parquet.ParquetWriter(paths[0], schema) as one,
        csv.CSVWriter(paths[1], schema) as other,
    ):
        held: list[pa.Table] = []
        for part in parts(rows):
            other.write_table(part)
            held.append(part)
            if len(held) * PART >= 1_000_000 or rows < PART:
                one.write_table(pa.concat_tables(held).combine_chunks())
                held = []
    return paths


def measured(
    program: str, small: Path, large: Path, rounds: int = 3
) -> tuple[float, float]:
    """The fewest seconds of processor time, the most megabytes that the peak of memory
    grew by.
    """
    command = [sys.executable, "-c", program + MEASURED, str(small), str(large)]
    runs = [
        subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True
        ).stdout.split()
        for _ in range(rounds)
    ]
    return min(float(seconds) for seconds, _ in runs), max(
        float(grown) for _, grown in runs
    )


def figures(folder: str) -> Iterable[Figure]:
    """Time and memory for each format, and that memory does not grow with the rows."""
    small, tenth, large = (written(Path(folder), n) for n in (1_000, ROWS // 10, ROWS))
    for first, part, whole in zip(small, tenth, large, strict=True):
        name = f"10M rows of {whole.suffix[1:]}"
        seconds, grown = measured(CHECKED, first, whole)
        _, less = measured(CHECKED, first, part)
        plain, _ = measured(PLAIN, first, whole)
        yield Figure(name=f"{name}, predictions checked", value=seconds, unit="CPU s")
        yield Figure(
            name=f"{name}, beside a plain pass", value=seconds / plain, unit="times"
        )
        yield Figure(
            name=f"{name}, memory grows by",
            value=grown,
            unit="MB",
            most=max(150.0, 1.2 * less),
        )
        yield Figure(name=f"{name}, by a tenth of them", value=less, unit="MB")
    seconds, grown = measured(KEYED, small[0], large[0], rounds=1)
    yield Figure(name="10M keys", value=seconds, unit="CPU s")
    yield Figure(name="10M keys, memory grows by", value=grown, unit="MB", most=150.0)
