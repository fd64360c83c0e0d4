"""`errata tune`: a policy chosen on one half of your loops and reported on the other."""

from __future__ import annotations

from typing import Annotated

import typer

from errata.cli.output import Json, print_json, show, table
from errata.cli.replay import HEADS, Last, Source, document, read, row
from errata.cli.settings import settings
from errata.codec import policy_to
from errata.configured import policy as policy_of
from errata.loop.decide import Policy
from errata.tuning import tune as tuned

Keep = Annotated[
    float, typer.Option(help="The share of what can be solved that it has to keep, 0..1.")
]
Before = Annotated[str | None, typer.Option("--policy", help="What is used now. [the setting]")]


def tune(
    source: Source = None,
    keep: Keep = 0.99,
    policy: Before = None,
    last: Last = 100_000,
    json: Json = False,
) -> int:
    """Choose a policy on one half of recorded loops and report it on the other.

    The cheapest that keeps enough of what can be solved. Loops are split by their ids; where the
    record cannot tell, a policy is not chosen.
    """
    from rich.console import Console

    before = policy_of(policy or settings().policy)
    recorded = read(source, last)
    with Console(stderr=True).status(f"replaying {len(recorded)} loops under many policies"):
        found = tuned(recorded, before, keep)
    if json:
        halves = (found.chosen_on, found.reported_on, found.before)
        names = ("chosen_on", "reported_on", "before")
        figures = {name: document(one) for name, one in zip(names, halves, strict=True)}
        print_json({"policy": policy_to(found.policy), "tried": found.tried, **figures})
        return 0
    show(f"{found.tried} policies tried on {found.chosen_on.loops} loops")
    show(f"chosen: {found.policy.name}: {', '.join(map(repr, found.policy.rules))}")
    rows = (
        ("chosen on", found.chosen_on),
        ("reported on the others", found.reported_on),
        ("now, on the others", found.before),
    )
    table(HEADS, [(f"{what}: {one.policy}", *row(one)[1:]) for what, one in rows])
    show(f"in Python: {_code(found.policy)}")
    return 0


def _code(policy: Policy) -> str:
    return f"errata.Policy({policy.rules!r})"
