"""Run the jobs, print a table, and write `bench/out/quality.json`: one flat object."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.quality import (
    attacks,
    dream,
    failures,
    grounding,
    learn,
    logo,
    recall,
    reflect,
    sessions,
    signatures,
    stop,
    strategies,
    unlike,
    whowhen,
)
from bench.quality.answers import CACHE, MODELS, Live, say

JOBS: dict[str, Callable[..., Iterable[Any]]] = {
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
    "sessions": sessions.run,
    "logo": logo.run,
    "unlike": unlike.run,
    "learn": learn.run,
}
# These ask a live model and take its options.
LIVE = frozenset({"unlike", "learn"})
# These take minutes or hours and run only when they are asked for by name.
SLOW = LIVE | {"strategies", "logo"}
OUT = Path("bench/out/quality.json")


def main() -> int:
    """Return 0 when every asked job ran, 130 after Ctrl-C: the next run goes on."""
    parser = argparse.ArgumentParser(prog="bench.quality", description=__doc__)
    parser.add_argument(
        "--data", type=Path, default=Path(), help="folder with NAME.SPLIT.jsonl.gz"
    )
    parser.add_argument("--split", default="dev")
    parser.add_argument("--only", choices=sorted(JOBS))
    live = parser.add_argument_group("jobs with a live model")
    sizes = ",".join(MODELS)
    live.add_argument(
        "--models", default=MODELS[0], help=f"sizes with commas between: {sizes}"
    )
    live.add_argument("--limit", type=int, help="tasks of a stream or a check")
    live.add_argument("--threads", type=int, default=1)
    live.add_argument(
        "--answers", type=Path, default=CACHE, help="folder that keeps the answers"
    )
    asked = parser.parse_args()
    if not set(asked.models.split(",")) <= set(MODELS) or (
        asked.limit is not None and asked.limit < 1
    ):
        parser.error(f"--models takes {sizes}, --limit a number of at least 1")
    options = Live(
        models=tuple(asked.models.split(",")),
        limit=asked.limit,
        threads=asked.threads,
        folder=asked.answers,
    )
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table("key", "ours", "simple baseline", "published anchor")
    figures: dict[str, float] = {}
    try:
        for name, job in JOBS.items():
            if asked.only == name or (asked.only is None and name not in SLOW):
                work = partial(job, live=options) if name in LIVE else job
                for row in work(asked.data, asked.split):
                    if row.ours is not None:
                        figures[row.key] = row.ours
                    shown = (
                        "" if it is None else f"{it:.3f}"
                        for it in (row.ours, row.baseline)
                    )
                    table.add_row(row.key, *shown, row.anchor)
    except KeyboardInterrupt:
        say("interrupted; answers of models are kept, and the next run goes on")
        return 130
    console.print(table)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
