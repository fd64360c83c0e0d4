"""`heedful replay`: what other policies would have done with recorded loops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.caveats import cannot_tell, caveats
from heedful.cli.interrupt import drive
from heedful.cli.output import MOST, Json, can_draw, counted, following, print_json, say, show
from heedful.cli.progress import Progress
from heedful.cli.replayed import compared, print_figures
from heedful.cli.settings import settings
from heedful.errors import StoreCorrupt, UsageError
from heedful.loop.policies import PRESETS
from heedful.loop.policies import policy as policy_of
from heedful.loop.replay import Figures, RecordedLoop
from heedful.store.history import aimed, document, unscored

LAST = 100_000
LARGE = 20_000_000  # bytes that take more than a moment to read

Source = Annotated[
    str | None,
    typer.Argument(metavar="DB|FILE.jsonl", help="Where the loops are. [the database]"),
]
Policies = Annotated[
    list[str] | None,
    typer.Option("--policy", help="A preset, or one with changes; as often as wanted. [presets]"),
]
Last = Annotated[
    int, typer.Option(min=1, max=MOST, help="How many loops of a database, the newest.")
]
Plot = Annotated[Path | None, typer.Option(help="Write cost against quality as a .png file.")]


def replay(
    source: Source = None,
    policy: Policies = None,
    last: Last = LAST,
    plot: Plot = None,
    json: Json = False,
) -> int:
    """Say what each policy would have cost and lost on recorded loops.

    It is exact where a policy stops no later than the record does; where it would have gone on,
    the record cannot tell, and the loop counts as far as it goes.

    An oracle stops at the first right attempt, after one where there is none. Regret counts the
    attempts beyond its own; lost are loops that the record solves and the policy does not; quality
    is that of the attempts that are kept.
    """
    given = [policy_of(text) for text in policy or ()]
    if plot is not None:
        can_draw(plot)
    with Progress() as progress:
        recorded = read(source, last, progress)
        left_out = [one for one in PRESETS.values() if not given and unscored(recorded, one)]
        policies = given or [one for one in PRESETS.values() if one not in left_out]
        whole, figures = compared(aimed(recorded, policies), policies, progress)
    notes = [f"{one.name} is left out: its goals are not scored here" for one in left_out]
    notes += caveats(recorded, policies)
    if plot is not None:
        _draw(plot, figures)
    if json:
        print_json(
            {"recorded": document(whole), "policies": list(map(document, figures)), "notes": notes}
        )
        return 0
    attempts = counted(sum(len(one.loop.attempts) for one in recorded), "attempt")
    solvable = counted(whole.solvable, "loop")
    show(f"{counted(whole.loops, 'loop')}, {attempts}; {solvable} can be solved")
    print_figures("policy", [(one.policy, one) for one in (whole, *figures)])
    for note in (*cannot_tell(figures), *notes):
        show(note)
    show(_next(again(source, last), policy or (), drawn=plot is not None))
    return 0


def read(source: str | None, last: int, progress: Progress) -> list[RecordedLoop]:
    """The recorded loops of a database or a file, at least one. Raises NotFound, UsageError."""
    from heedful.cli.recorded import from_file, from_store, is_file

    values = settings() if source is None or is_file(source) else settings(db=source)
    name = values.db if source is None else source
    path = Path(name)
    if path.is_file() and path.stat().st_size >= LARGE:
        progress.say(f"reading {name}, {path.stat().st_size / 1e6:.0f} MB")
    if is_file(name):
        return from_file(path, lambda done, total: progress.counted("reading", done, total))
    try:
        return drive(from_store(values, last))
    except StoreCorrupt as error:
        if source is not None:
            error.add_note("the name of a file of one loop a line must end in .jsonl or .jsonl.gz")
        raise


def _draw(path: Path, figures: Sequence[Figures]) -> None:
    from heedful.cli.frontier import Point, draw

    if not figures[0].solvable:
        raise UsageError("no recorded loop can be solved: there is nothing to draw; omit --plot")
    title = f"{counted(figures[0].loops, 'recorded loop')}, replayed"
    path.write_bytes(draw([Point.of(one) for one in figures], title))
    say(f"written: {path}")


def again(source: str | None, last: int) -> list[str]:
    """The words of a command line that read the same loops."""
    where = [] if source is None else [source]
    return where if last == LAST else [*where, "--last", str(last)]


def _next(loops: Sequence[str], policies: Sequence[str], drawn: bool) -> str:
    if drawn:
        return following("tune", *loops)
    given = (word for text in policies for word in ("--policy", text))
    return following("replay", *loops, *given, "--plot", "front.png")
