"""Run every benchmark, print a table, and write `bench/out/bench.json`."""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import core, durable, grounding
from bench.rows import Figure

OUT = Path("bench/out/bench.json")


def main() -> int:
    """0 where every target is reached, else 1."""
    figures: list[Figure] = []
    console = Console()
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        for group in (core, durable, grounding):
            for figure in group.figures(folder):
                console.print(f"  {figure.name}: {figure.value:.3g} {figure.unit}", style="dim")
                figures.append(figure)
    console.print(table(figures))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    machine = {"python": sys.version.split()[0], "machine": platform.machine()}
    rows = [asdict(f) | {"reached": f.reached} for f in figures]
    OUT.write_text(json.dumps({"machine": machine, "figures": rows}, indent=1) + "\n")
    console.print(f"written to {OUT}")
    return 0 if all(f.reached is not False for f in figures) else 1


def table(figures: Iterable[Figure]) -> Table:
    """The figures beside their targets."""
    shown = Table("figure", "measured", "target", "")
    for figure in figures:
        most = f"≤ {figure.most:g}" if figure.most is not None else ""
        least = f"≥ {figure.least:g}" if figure.least is not None else ""
        mark = {True: "✓", False: "✗", None: ""}[figure.reached]
        shown.add_row(figure.name, f"{figure.value:.3g} {figure.unit}", most + least, mark)
    return shown


if __name__ == "__main__":
    sys.exit(main())
