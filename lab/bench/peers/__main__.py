"""Measure heedful beside its peers: `make bench PEERS=1`.

Each peer is installed in an environment of its own, with the versions of
`versions.toml`; all do the same work in turns, in one run. The table is printed and
written to `bench/out/peers.json`; with `--write` it is written into the docs, too.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import Console

from bench.__main__ import make_table as make_figure_table
from bench.page import PAGE, write_section
from bench.peers import measure, table
from bench.peers.environments import (
    VERSIONS,
    Environment,
    make_environment,
    open_ours,
    read_peers,
)
from bench.peers.memories import TOP, write_lessons
from bench.quality.rows import write_json
from bench.recall import embed_texts, make_texts
from heedful.redact import redact
from scripts.workspace import ROOT

OUT = Path("bench/out/peers.json")
# Above this load for each core, times are those of a busy machine.
QUIET_LOAD = 0.25


def main() -> None:
    """Measure; a target that is not reached is a line of the table.

    Raises SystemExit if a peer could not be installed, or a work of one failed.
    """
    options = parse_arguments()
    console = Console()
    conditions = describe_machine(options.smoke)
    plan = measure.SMOKE if options.smoke else measure.FULL
    environments = list(prepare(options.only, console))
    peers = [environment.peer for environment in environments]
    titles = {peer.name: peer.title for peer in peers}
    installed = [environment for environment in environments if environment.python]

    measurements = list[measure.Measurement]()
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as name:
        folder = Path(name).resolve()
        for measurement in run(installed, plan, folder):
            console.print(f"  {measurement}", style="dim", markup=False)
            measurements.append(measurement)

    results = table.Results(measurements)
    figures = list(table.figures(results, titles))
    section = table.write_section(results, environments, conditions)
    console.print(make_figure_table(figures))
    console.print(section, markup=False, soft_wrap=True)
    write_results(environments, conditions, measurements)
    console.print(f"written to {OUT}")
    if options.write:
        picture = table.draw(results, titles, conditions)
        write_section("peers", section, picture, "benchmarks_peers.png")
        console.print(f"written to {PAGE.relative_to(ROOT)}")

    failed = any(measurement.figure == "failed" for measurement in measurements)
    if failed or len(installed) < len(environments):
        sys.exit("not all was measured: the lines below the table say what failed")


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="make bench PEERS=1 ARGS=...", description=__doc__
    )
    names = [peer.name for peer in read_peers(VERSIONS.read_text("utf-8"))]
    parser.add_argument(
        "--only", action="append", choices=names, help="this peer, or several"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="a short run: whether all of it works"
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="write docs/appendix/benchmarks.md and its picture",
    )
    return parser.parse_args()


def describe_machine(smoke: bool) -> str:
    """Return a sentence about the machine and the day."""
    load = os.getloadavg()[0]
    cores = os.cpu_count() or 1
    sentence = (
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, {cores} cores "
        f"({platform.machine()}), Python {platform.python_version()}, load average at "
        f"the start {load:.1f}."
    )
    if smoke:
        return (
            f"**Provisional: a short run that only shows that all works.** {sentence}"
        )
    if load > QUIET_LOAD * cores:
        return f"**Provisional: the machine was busy.** {sentence}"
    return sentence


def prepare(only: Sequence[str] | None, console: Console) -> Iterator[Environment]:
    """Yield our environment and those of the peers, which are installed if needed."""
    yield open_ours()
    for peer in read_peers(VERSIONS.read_text("utf-8")):
        if only and peer.name not in only:
            continue
        environment = make_environment(peer)
        console.print(
            f"{peer.title}: {environment.version or environment.reason}", markup=False
        )
        yield environment


def run(
    environments: Sequence[Environment], plan: measure.Plan, folder: Path
) -> Iterator[measure.Measurement]:
    """Measure the loops and the memories."""
    yield from measure.measure_loops(environments, plan, folder)
    inputs = folder / "inputs"
    inputs.mkdir()
    prepare_lessons(inputs, plan)
    yield from measure.measure_memories(environments, plan, folder, inputs)


def prepare_lessons(folder: Path, plan: measure.Plan) -> None:
    """Embed the lessons and queries, and find the nearest by an exact scan."""
    # Texts with a secret are left out: heedful stores and embeds them without it.
    count = plan.lessons + plan.queries
    harmless_texts = [text for text in make_texts(2 * count) if redact(text) == text]
    texts = harmless_texts[:count]
    vectors = embed_texts(texts)
    scores = vectors[plan.lessons :] @ vectors[: plan.lessons].T
    nearest = np.argsort(-scores, axis=1)[:, :TOP]
    write_lessons(
        folder,
        texts=texts[: plan.lessons],
        queries=texts[plan.lessons :],
        nearest=nearest.tolist(),
        vectors=np.ascontiguousarray(vectors, np.float32).tobytes(),
    )


def write_results(
    environments: Sequence[Environment],
    conditions: str,
    measurements: Sequence[measure.Measurement],
) -> None:
    """Write all that was measured, with every package of every environment."""
    packages: Mapping[str, object] = {
        environment.peer.title: environment.packages or environment.reason
        for environment in environments
    }
    fields = {
        "conditions": conditions,
        "packages": packages,
        "measurements": [asdict(measurement) for measurement in measurements],
    }
    write_json(OUT, fields)


if __name__ == "__main__":
    main()
