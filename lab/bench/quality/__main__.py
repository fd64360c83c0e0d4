"""Run the jobs, print a table, and write `bench/out/quality.json`: one flat object."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.quality import (
    attacks,
    believed,
    dream,
    failures,
    grounding,
    harden,
    ladder,
    learn,
    logo,
    mended,
    particulars,
    recall,
    reflect,
    sessions,
    signatures,
    stop,
    unlike,
    whowhen,
)
from bench.quality.answers import CACHE, MODELS, Live, say
from bench.quality.arms import ARMS
from bench.quality.streams import READERS

JOBS: dict[str, Callable[..., Iterable[Any]]] = {
    "stop": stop.run,
    "signatures": signatures.run,
    "recall": recall.run,
    "attacks": attacks.run,
    "grounding": grounding.run,
    "whowhen": whowhen.run,
    "reflect": reflect.run,
    "believed": believed.run,
    "failures": failures.run,
    "mended": mended.run,
    "dream": dream.run,
    "sessions": sessions.run,
    "harden": harden.run,
    "logo": logo.run,
    "particulars": particulars.run,
    "unlike": unlike.run,
    "learn": learn.run,
    "ladder": ladder.run,
}
# These ask a live model and take its options.
LIVE = frozenset({"unlike", "learn", "ladder"})
# These take minutes or hours and run only when they are asked for by name.
SLOW = LIVE | {"logo"}
OUT = Path("bench/out/quality.json")


def main() -> int:
    """Return 0 when every asked job ran, 130 after Ctrl-C: the next run goes on."""
    options = parse_options()
    live = Live(
        models=tuple(options.models.split(",")),
        limit=options.limit,
        workers=options.workers,
        streams=tuple(options.streams),
        arms=tuple(options.arms),
        orders=options.orders,
        folder=options.answers,
        replay=options.replay,
        export=options.export,
        price_in=options.price_in,
        price_out=options.price_out,
        limit_usd=options.limit_usd,
    )
    console = Console() if sys.stdout.isatty() else Console(width=160)
    table = Table("key", "ours", "simple baseline", "published anchor")
    figures: dict[str, float] = {}
    names = [options.only] if options.only else [job for job in JOBS if job not in SLOW]
    try:
        for name in names:
            job = partial(JOBS[name], live=live) if name in LIVE else JOBS[name]
            if name == "sessions" and options.dump is not None:
                job = partial(sessions.run, dump=options.dump)
            for row in job(options.data, options.split):
                if row.ours is not None:
                    figures[row.key] = row.ours
                ours = format_figure(row.ours)
                table.add_row(row.key, ours, format_figure(row.baseline), row.anchor)
    except KeyboardInterrupt:
        say("interrupted; answers of models are kept, and the next run goes on")
        return 130
    console.print(table)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    return 0


def parse_options() -> argparse.Namespace:
    """Return the options of the command line; exit with 2 where one is wrong."""
    parser = argparse.ArgumentParser(prog="bench.quality", description=__doc__)
    parser.add_argument(
        "--data", type=Path, default=Path(), help="folder with NAME.SPLIT.jsonl.gz"
    )
    parser.add_argument("--split", default="dev")
    parser.add_argument("--only", choices=sorted(JOBS))
    parser.add_argument(
        "--dump",
        type=Path,
        help="of sessions: file for 60 texts that were shown, with their context",
    )
    live = parser.add_argument_group("jobs with a live model")
    sizes = ",".join(MODELS)
    live.add_argument(
        "--models",
        default=MODELS[0],
        help=f"with commas between: {sizes}, and of learn any name of a model",
    )
    live.add_argument("--limit", type=int, help="tasks of a stream or a check")
    live.add_argument(
        "--workers", type=int, default=1, help="models that run at the same time"
    )
    live.add_argument(
        "--streams",
        type=split_names,
        default=[],
        help=f"of learn and ladder, with commas between: {','.join(READERS)}",
    )
    live.add_argument(
        "--arms",
        type=split_names,
        default=[],
        help=f"with commas between: of learn {','.join(ARMS)}, "
        f"of ladder {','.join(ladder.ARMS)}",
    )
    live.add_argument(
        "--answers", type=Path, default=CACHE, help="folder that keeps the answers"
    )
    live.add_argument(
        "--orders", type=int, choices=(1, 2), help="of learn: 2 for the reverse, too"
    )
    live.add_argument(
        "--replay", action="store_true", help="ask nothing, read kept answers only"
    )
    live.add_argument(
        "--export", action="store_true", help="of learn: commit the answers"
    )
    prices = parser.add_argument_group("a model with a price, in US dollars")
    prices.add_argument("--price-in", type=float, default=0.0, help="1M tokens read")
    prices.add_argument("--price-out", type=float, default=0.0, help="1M written")
    prices.add_argument(
        "--limit-usd", type=float, default=math.inf, help="of all new calls of a run"
    )
    options = parser.parse_args()
    if options.limit_usd < math.inf and not options.price_in * options.price_out:
        parser.error("--limit-usd needs --price-in and --price-out")
    names = options.models.split(",")
    is_known = all(name in MODELS or ":" in name for name in names)
    if not is_known or (options.limit is not None and options.limit < 1):
        parser.error(f"--models takes {sizes} or a:name, --limit at least 1")
    arms = ladder.ARMS if options.only == "ladder" else ARMS
    if not (set(options.streams) <= set(READERS) and set(options.arms) <= set(arms)):
        parser.error(f"--streams takes {','.join(READERS)}, --arms {','.join(arms)}")
    return options


def split_names(text: str) -> list[str]:
    """Return the names between commas."""
    return text.split(",")


def format_figure(figure: float | None) -> str:
    """Return a figure with three decimals; "" for None."""
    return "" if figure is None else f"{figure:.3f}"


if __name__ == "__main__":
    sys.exit(main())
