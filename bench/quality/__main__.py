"""Run the jobs, print a table, and write `bench/out/quality.json`: one flat object."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.quality import (
    attacks,
    dream,
    failures,
    grounding,
    recall,
    reflect,
    signatures,
    stop,
    strategies,
    whowhen,
)

JOBS = {
    "stop": stop.run,
    "signatures": signatures.run,
    "recall": recall.run,
    "attacks": attacks.run,
    "grounding": grounding.run,
    "whowhen": whowhen.run,
    "reflect": reflect.run,
    "failures": failures.run,
    "dream": dream.run,
    "strategies": strategies.run,
}
# These take minutes and run only when they are asked for by name.
SLOW = frozenset({"strategies"})
OUT = Path("bench/out/quality.json")


def main() -> int:
    """0 when every asked job ran."""
    parser = argparse.ArgumentParser(prog="bench.quality", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(), help="folder with NAME.SPLIT.jsonl.gz")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--only", choices=sorted(JOBS))
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table("key", "ours", "simple baseline", "published anchor")
    figures: dict[str, float] = {}
    for name, job in JOBS.items():
        if asked.only == name or (asked.only is None and name not in SLOW):
            for row in job(asked.data, asked.split):
                figures[row.key] = row.ours
                simple = "" if row.baseline is None else f"{row.baseline:.3f}"
                table.add_row(row.key, f"{row.ours:.3f}", simple, row.anchor)
    console.print(table)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
