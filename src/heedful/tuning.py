"""Policies tried on one half of recorded loops and reported on the other. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from heedful.configured import policy
from heedful.errors import InvalidInput
from heedful.loop.decide import Policy
from heedful.loop.measure import number
from heedful.loop.record import Improvement
from heedful.loop.replay import Figures, Recorded, Replayed, compare, replay

MOST = 8  # attempts that are tried as a limit
REPEATS = tuple(
    f"repeat.times={times}{near}" for times in (1, 2, 3) for near in ("", ", repeat.near=false")
)
# As people write them: what comes after "default" keeps its rule that the first repeat ends a loop
# in which nothing was ever met, what comes after "stage" has no rule but those that are named.
WRITTEN = (
    "stage",
    *(f"stage, {repeat}" for repeat in REPEATS),
    *(f"default, {repeat}" for repeat in REPEATS[2:]),
    "default, -repeat",
    *(f"stage, plateau.patience={patience}" for patience in (1, 2, 3)),
    *(f"stage, fatigue.limit={limit}" for limit in (0.15, 0.45)),
    *(f"stage, repeat.times=2, plateau.patience={patience}" for patience in (2, 3)),
)
Watch = Callable[[int, int], object]


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


@dataclass(frozen=True)
class Trial:
    """A policy over some loops: how many attempts it makes at most, how many loops it solves.

    Where the record cannot tell, it is taken to use up its limit and to solve nothing more.
    """

    policy: Policy
    most: int
    solved: int


def grid(base: Policy | None = None) -> Iterator[Policy]:
    """Policies of at most three rules, each named as one can write it.

    Improvement, goals and what is done where unscored are those of `base`.
    """
    for written in WRITTEN:
        for limit in _limits(written):
            yield _tried(written, limit, base or policy("stage"))


def tune(
    recorded: Sequence[Recorded],
    before: Policy,
    keep: float = 0.99,
    watch: Watch = lambda done, total: None,
) -> Tuned:
    """Choose on half of the loops: the fewest attempts that keep a share `keep` of the solvable.

    Where the record cannot tell, a policy counts with all attempts of its limit. `before` stays
    where no other keeps enough with fewer attempts, and where nothing can be solved. Which half a
    loop is in depends on its id alone; one without goals has those of `before`. `watch` is told how
    many replays of how many are done. Raises InvalidInput where less than two loops are in a half.
    """
    number("keep", keep, 0, 1)
    halves = _halves([_aimed(one, before) for one in recorded])
    before = replace(before, name=before.name or "as it is")
    (now,) = compare(halves[0], [before])
    tried = [Trial(before, now.attempts, now.solved), *trials(halves[0], before, watch)]
    enough = Fraction(str(keep)) * now.solvable
    fits = [one for one in tried if now.solvable and one.solved >= enough]
    best = min(fits or tried[:1], key=lambda one: (one.most, -one.solved)).policy
    (chosen,) = compare(halves[0], [best])
    reported, old = compare(halves[1], (best, before))
    return Tuned(best, chosen, reported, old, len(tried))


def trials(
    recorded: Sequence[Recorded], base: Policy, watch: Watch = lambda done, total: None
) -> Iterator[Trial]:
    """Each policy of the grid over the same loops, with the figures of `compare`.

    Another limit of attempts cuts the same replay elsewhere, so one replay does for all limits.
    """
    solved = [_solved(one) for one in recorded]
    for place, written in enumerate(WRITTEN):
        longest, made = _tried(written, MOST, base), list[Replayed]()
        for one in recorded:
            made.append(replay(one.loop, longest))
            watch(place * len(recorded) + len(made), len(WRITTEN) * len(recorded))
        for limit in _limits(written):
            ends = [min(limit, one.attempts) for one in made]
            beyond = sum(limit - end for one, end in zip(made, ends, strict=True) if not one.exact)
            right = sum(known[end] for known, end in zip(solved, ends, strict=True))
            yield Trial(_tried(written, limit, base), sum(ends) + beyond, right)


def _limits(written: str) -> range:
    """The first attempt alone leaves other rules nothing to do."""
    return range(1 if written == "stage" else 2, MOST + 1)


def _tried(written: str, limit: int, base: Policy) -> Policy:
    made = policy(f"{written}, attempts.limit={limit}")
    name = ", ".join([made.name, *_kept(base)])
    return Policy(made.rules, base.improvement, base.unscored, name, base.goals)


def _kept(base: Policy) -> Iterator[str]:
    """What is left of a policy where its rules are others, as one can write it."""
    better = base.improvement if isinstance(base.improvement, Improvement) else Improvement()
    if better.min_gain != Improvement().min_gain:
        yield f"min_gain={better.min_gain!r}"
    if better.against != "best":
        yield f"against={better.against}"
    if base.unscored != "stop":
        yield f"unscored={base.unscored}"
    yield from map(str, base.goals)


def _aimed(one: Recorded, before: Policy) -> Recorded:
    if one.loop.goals or not before.goals:
        return one
    return replace(one, loop=replace(one.loop, goals=before.goals))


def _halves(recorded: Sequence[Recorded]) -> tuple[list[Recorded], list[Recorded]]:
    halves: tuple[list[Recorded], list[Recorded]] = ([], [])
    for one in recorded:
        id = one.loop.id.encode("utf-8", "surrogatepass")
        halves[hashlib.sha256(id).digest()[0] % 2].append(one)
    if min(map(len, halves)) < 2:
        split = " and ".join(str(len(half)) for half in halves)
        allowed = f"more: by their ids the halves have {split}, and each needs at least two"
        raise InvalidInput("loops", len(recorded), allowed)
    return halves


def _solved(one: Recorded) -> tuple[bool, ...]:
    """Whether the best of the first 0, 1, 2 … attempts is of quality 1."""
    ends = range(len(one.loop.attempts) + 1)
    return tuple(one.worth(one.loop.upto(end).best) == 1 for end in ends)
