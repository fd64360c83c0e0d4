"""`heedful tune`: a policy chosen on one half of your loops and reported on the other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from json import dumps
from typing import Annotated

import typer

from heedful.cli.caveats import cannot_tell, caveats
from heedful.cli.output import Json, counted, following, print_json, show
from heedful.cli.progress import Progress
from heedful.cli.replay import LAST, Last, Source, again, read
from heedful.cli.replayed import print_figures
from heedful.cli.settings import policy_of, settings
from heedful.loop.codec import policy_to
from heedful.loop.record import check_number
from heedful.loop.replay import TuningResult
from heedful.loop.replay import tune as tuned
from heedful.store.history import document

Keep = Annotated[
    float, typer.Option(help="The share of what can be solved that it has to keep, 0..1.")
]
Before = Annotated[str | None, typer.Option("--policy", help="What is used now. [the setting]")]


def tune(
    source: Source = None,
    keep: Keep = 0.99,
    policy: Before = None,
    last: Last = LAST,
    json: Json = False,
) -> int:
    """Choose a policy on one half of recorded loops and report it on the other.

    The cheapest that keeps enough of what can be solved. Loops are split by their ids; where the
    record cannot tell, a policy counts as if it used up all of its attempts.
    """
    check_number("--keep", keep, 0, 1)
    before = policy_of(policy)
    with Progress() as progress:
        recorded = read(source, last, progress)
        found = tuned(recorded, before, keep, partial(progress.counted, "replaying"))
    halves = (found.chosen_on, found.reported_on, found.before)
    notes = [*cannot_tell(halves), *caveats(recorded, [found.policy])]
    if json:
        names = ("chosen_on", "reported_on", "before")
        figures = {name: document(one) for name, one in zip(names, halves, strict=True)}
        chosen = {"policy": policy_to(found.policy), "tried": found.tried}
        print_json({**chosen, **figures, "notes": notes})
        return 0
    _print(found, len(recorded), keep)
    for note in notes:
        show(note)
    now = settings().policy if policy is None else policy
    _print_next(found, again(source, last), now if isinstance(now, str) else "")
    return 0


def _stays(found: TuningResult) -> bool:
    return found.policy.name == found.before.policy


def _print(found: TuningResult, loops: int, keep: float) -> None:
    solvable, now = found.chosen_on.solvable, found.before.policy
    show(f"{found.tried} policies tried on {found.chosen_on.loops} of {counted(loops, 'loop')}")
    if not solvable:
        show(f"{now} stays: none of these loops can be solved, there is nothing to choose by")
    elif _stays(found):
        show(f"{now} stays: no cheaper one keeps {keep:g} of the {solvable} that can be solved")
    else:
        show(f"chosen: {found.policy.name}")
    these, others = f"these {found.chosen_on.loops}", f"the other {found.before.loops}"
    rows = [
        (f"chosen, on {these}", found.chosen_on),
        (f"chosen, on {others}", found.reported_on),
        (f"now, on {others}", found.before),
    ]
    if _stays(found):
        rows = [(f"now, on {these}", found.chosen_on), rows[-1]]
    print_figures("", rows)


def _print_next(found: TuningResult, loops: Sequence[str], now: str) -> None:
    """How to use what was chosen, and the command that compares it with what is used now."""
    if _stays(found):
        show(following("replay", *loops))
        return
    show(f"to use it, write in heedful.toml: policy = {dumps(found.policy.name)}")
    given = (word for text in (now, found.policy.name) if text for word in ("--policy", text))
    show(following("replay", *loops, *given))
