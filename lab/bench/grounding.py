"""Grounding a long report against a large table."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import partial
from itertools import product

from bench.rows import Figure
from bench.timing import best
from heedful.checks import Evidence, ground

COLUMNS = [
    f"{measure}_{letter}"
    for measure, letter in product(("revenue", "cost", "margin", "visits"), "abcde")
][:19]


def make_rows() -> list[dict[str, object]]:
    """Return 5,000 rows of a name and 19 numbers: 100,000 cells."""
    chance = random.Random(7)
    stores: list[dict[str, object]] = []
    for n in range(5_000):
        name = "".join(chance.choice("aeioklmnprst") for _ in range(7)).title()
        stores.append(
            {"store": f"{name} {n}"}
            | {c: round(chance.random() * 1e3, 2) for c in COLUMNS}
        )
    return stores


def write_report(rows: list[dict[str, object]]) -> str:
    """Write true sentences about random rows, with 2,000 words in all."""
    chance = random.Random(8)
    text = ""
    while text.count(" ") < 2_000:
        row = chance.choice(rows)
        column = chance.choice(COLUMNS)
        measure = column.replace("_", " ")
        text += (
            f"{row['store']} had a {measure} of {row[column]}, far above the plan of "
            "the year. "
        )
    return text


def figures(folder: str) -> Iterable[Figure]:
    """Index the evidence, as rows and as data frames, and check a report against it."""
    import pandas as pd
    import polars as pl

    rows = make_rows()
    text = write_report(rows)
    forms = {"": rows, ", polars": pl.DataFrame(rows), ", pandas": pd.DataFrame(rows)}
    for name, form in forms.items():
        seconds = best(partial(Evidence, form), 1, rounds=3)
        yield Figure(
            name=f"index of 100,000 cells of evidence{name}",
            value=seconds * 1e3,
            unit="ms",
        )

    indexed = [Evidence(rows) for _ in range(3)]
    alone = best(lambda: ground(text, indexed.pop()), 1, rounds=3)
    yield Figure(
        name="ground 2,000 words, 100,000 cells indexed before",
        value=alone * 1e3,
        unit="ms",
    )
    with_index = best(partial(ground, text, rows), 1, rounds=3)
    yield Figure(
        name="ground 2,000 words, 100,000 cells",
        value=with_index * 1e3,
        unit="ms",
        most=200.0,
    )
