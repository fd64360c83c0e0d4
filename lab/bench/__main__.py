"""Run the benchmarks, print a table, and write `bench/out/bench.json`."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import (
    core,
    durable,
    frames,
    grounding,
    growth,
    hooks,
    hostile,
    http,
    lookups,
    postgres,
    recall,
    several,
    starts,
    ui,
)
from bench.rows import Figure

OUT = Path("bench/out/bench.json")
GROUPS: Mapping[str, Callable[..., Iterable[Figure]]] = {
    "core": core.figures,
    "durable": durable.figures,
    "frames": frames.figures,
    "grounding": grounding.figures,
    "growth": growth.figures,
    "hooks": hooks.figures,
    "hostile": hostile.figures,
    "http": http.figures,
    "lookups": lookups.figures,
    "postgres": postgres.figures,
    "recall": recall.figures,
    "several": several.figures,
    "starts": starts.figures,
    "ui": ui.figures,
}


def main() -> None:
    """Run the groups; a target that is not reached is a line of the table."""
    options = parse_arguments()
    groups: dict[str, Callable[[str], Iterable[Figure]]] = {
        **GROUPS,
        "growth": partial(growth.figures, million=options.million, write=options.write),
        "recall": partial(recall.figures, real=options.texts, million=options.million),
    }
    figures: list[Figure] = []
    console = Console()
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        for name in options.only or groups:
            place = Path(folder, name)
            place.mkdir()
            for figure in groups[name](str(place)):
                console.print(
                    f"  {figure.name}: {figure.value:.3g} {figure.unit}", style="dim"
                )
                figures.append(figure)
    console.print(make_table(figures))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    machine = {"python": sys.version.split()[0], "machine": platform.machine()}
    rows = [asdict(f) | {"reached": f.reached} for f in figures]
    OUT.write_text(json.dumps({"machine": machine, "figures": rows}, indent=1) + "\n")
    console.print(f"written to {OUT}")


def parse_arguments() -> argparse.Namespace:
    """Parse the command line; the defaults take some minutes."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=GROUPS, help="this group, or several"
    )
    texts = (
        "recall in a scope of N texts, too, each embedded (4 ms; 100000 take 7 "
        "minutes, once)"
    )
    parser.add_argument("--texts", type=int, default=0, metavar="N", help=texts)
    million = (
        "recall among a million vectors, and growth to a million loops, too (15 "
        "minutes each, 8 GB of memory, 5 GB of disk)"
    )
    parser.add_argument("--million", action="store_true", help=million)
    written = "write the table of docs/appendix/growth.md, too"
    parser.add_argument("--write", action="store_true", help=written)
    return parser.parse_args()


def make_table(figures: Iterable[Figure]) -> Table:
    """Return a table of the figures beside their targets."""
    table = Table("figure", "measured", "target", "")
    for figure in figures:
        upper = f"≤ {figure.most:g}" if figure.most is not None else ""
        lower = f"≥ {figure.least:g}" if figure.least is not None else ""
        mark = {True: "✓", False: "✗", None: ""}[figure.reached]
        table.add_row(
            figure.name, f"{figure.value:.3g} {figure.unit}", upper + lower, mark
        )
    return table


if __name__ == "__main__":
    main()
