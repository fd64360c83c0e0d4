"""`errata replay`: what other policies would have done with recorded loops."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from errata.cli.interrupt import drive
from errata.cli.output import Json, print_json, say, show, table
from errata.cli.settings import settings
from errata.configured import policy as policy_of
from errata.errors import UsageError
from errata.loop.decide import Policy
from errata.loop.policies import PRESETS
from errata.loop.replay import Figures, Recorded, compare
from errata.loop.stop import MaxAttempts

HEADS = tuple(
    "policy,attempts,÷ oracle,calls,tokens,solved,lost,quality,regret,cannot tell".split(",")
)
WHOLE = Policy((MaxAttempts(10**9),), name="as recorded")

Source = Annotated[
    str | None,
    typer.Argument(metavar="DB|FILE.jsonl", help="Where the loops are. [the database]"),
]
Policies = Annotated[
    list[str] | None,
    typer.Option("--policy", help="A preset, or one with changes; as often as wanted. [presets]"),
]
Last = Annotated[int, typer.Option(min=1, help="How many loops of a database, the newest.")]
Plot = Annotated[Path | None, typer.Option(help="Write cost against quality as a PNG.")]


def replay(
    source: Source = None,
    policy: Policies = None,
    last: Last = 100_000,
    plot: Plot = None,
    json: Json = False,
) -> int:
    """Say what each policy would have cost and lost on recorded loops.

    It is exact where a policy stops no later than the record does; where it would have gone on,
    the record cannot tell, and the loop counts as far as it goes.
    """
    given = [policy_of(text) for text in policy or ()]
    recorded = read(source, last)
    policies = given or [one for one in PRESETS.values() if _fits(one, recorded)]
    whole, *figures = compare(recorded, [WHOLE, *policies])
    if plot is not None:
        _plot(plot, figures)
    if json:
        print_json({"recorded": document(whole), "policies": [document(one) for one in figures]})
        return 0
    show(f"{len(recorded)} loops, {whole.attempts} attempts, {whole.solvable} loops can be solved")
    table(HEADS, [(*row(whole)[:-1], "-"), *map(row, figures)])
    if any(one.beyond for one in figures):
        show("cannot tell: it would have gone on where the record of so many loops ends")
    name = figures[0].policy if len(figures) == 1 else "NAME"
    show(f"next: errata policy check {shlex.quote(name)}" + ("" if plot else "; --plot FILE.png"))
    return 0


def _fits(policy: Policy, recorded: Sequence[Recorded]) -> bool:
    """Whether the goals that it brings along are scored in the records."""
    evaluations = (a.evaluation for one in recorded for a in one.loop.attempts if a.evaluation)
    return not policy.goals or any(not one.unscored(policy.goals) for one in evaluations)


def read(source: str | None, last: int) -> list[Recorded]:
    """The recorded loops of a database or a file. Raises UsageError where there is none."""
    from rich.console import Console

    from errata.cli.recorded import from_file, from_store, is_file

    values = settings(db=source) if source and not is_file(source) else settings()
    name = source or values.db
    with Console(stderr=True).status(f"reading the loops of {name}"):
        file = is_file(name)
        recorded = from_file(Path(name)) if file else drive(from_store(values, last))
    if not recorded:
        raise UsageError(f"{name} holds no loop with an attempt; errata run makes some")
    return recorded


def row(figures: Figures) -> tuple[str, ...]:
    """One line of the table."""
    usage, ratio = figures.usage, figures.attempts / figures.oracle if figures.oracle else 0.0
    numbers = (usage.calls, usage.tokens, figures.solved, figures.lost)
    return (
        figures.policy or "(no name)",
        str(figures.attempts),
        f"{ratio:.3f}",
        *map(str, numbers),
        f"{figures.quality:.3f}",
        str(figures.regret),
        str(figures.beyond),
    )


def document(figures: Figures) -> dict[str, Any]:
    """The figures as JSON data."""
    return {**asdict(figures), "lost": figures.lost}


def _plot(path: Path, figures: Sequence[Figures]) -> None:
    from errata.cli.frontier import Point, draw

    loops = figures[0].loops if figures else 0
    path.write_bytes(draw([Point.of(one) for one in figures], f"{loops} recorded loops replayed"))
    say(f"written: {path}")
