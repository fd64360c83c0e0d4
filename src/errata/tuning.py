"""Policies tried on one half of recorded loops and reported on the other. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from errata.errors import InvalidInput
from errata.loop.decide import Policy
from errata.loop.measure import number
from errata.loop.replay import Figures, Recorded, compare
from errata.loop.stop import All, Fatigue, MaxAttempts, NothingMet, Plateau, Repeat, StopRule

MOST = 8  # attempts that are tried as a limit
HOPELESS = All(Repeat(1, near=False), NothingMet())
SETS: tuple[tuple[StopRule, ...], ...] = (
    (),
    *((Repeat(times, near),) for times in (1, 2, 3) for near in (True, False)),
    *((Repeat(times, near), HOPELESS) for times in (2, 3) for near in (True, False)),
    (HOPELESS,),
    *((Plateau(patience),) for patience in (1, 2, 3)),
    *((Fatigue(limit),) for limit in (0.15, 0.45)),
    *((Repeat(2), Plateau(patience)) for patience in (2, 3)),
)


@dataclass(frozen=True)
class Tuned:
    """The cheapest policy that keeps enough of what can be solved, and how it did.

    `chosen_on` are its figures on the half it was chosen on, `reported_on` those on the other half;
    `before` is the policy that was there, on that other half, too. `tried` counts policies.
    """

    policy: Policy
    chosen_on: Figures
    reported_on: Figures
    before: Figures
    tried: int


def grid(base: Policy | None = None) -> Iterator[Policy]:
    """Policies of at most three rules that differ in more than a name; improvement as of `base`."""
    improvement = (base or Policy((MaxAttempts(),))).improvement
    for limit in range(1, MOST + 1):
        for rules in SETS if limit > 1 else ((),):
            names = ", ".join(map(_short, rules))
            name = f"attempts {limit}" + (f", {names}" if names else "")
            yield Policy((MaxAttempts(limit), *rules), improvement, name=name)


def tune(recorded: Sequence[Recorded], before: Policy, keep: float = 0.99) -> Tuned:
    """Choose on half of the loops: the fewest attempts that keep a share `keep` of the solvable.

    A policy for which the record cannot tell is not chosen. Which half a loop is in depends on its
    id alone. Raises InvalidInput for less than four loops.
    """
    number("keep", keep, 0, 1)
    halves: tuple[list[Recorded], list[Recorded]] = ([], [])
    for one in recorded:
        halves[hashlib.sha256(one.loop.id.encode()).digest()[0] % 2].append(one)
    if min(map(len, halves)) < 2:
        raise InvalidInput("loops", len(recorded), "at least four, with at least two a half")
    policies = [replace(before, name=before.name or "as it is"), *grid(before)]
    figures = compare(halves[0], policies)
    enough = keep * figures[0].solvable
    fits = [n for n, one in enumerate(figures) if one.solved >= enough and not one.beyond]
    best = min(fits or [0], key=lambda n: (figures[n].attempts, n))
    reported, old = compare(halves[1], (policies[best], policies[0]))
    return Tuned(policies[best], figures[best], reported, old, len(policies))


def _short(rule: StopRule) -> str:
    match rule:
        case Repeat(times=times, near=near):
            return f"repeat {times}" + ("" if near else " exact")
        case Plateau(patience=patience):
            return f"plateau {patience}"
        case Fatigue(limit=limit):
            return f"fatigue {limit:g}"
        case _:
            return "first repeat with nothing met"
