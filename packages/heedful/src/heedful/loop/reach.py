"""Find out for each rule of a policy whether it can be the one that ends a loop.

Loops are tried whose attempts are all alike: all improve or none does, all have new
candidates or repeat the first one, and so on. A rule that needs other attempts has the
method `provoke`, which changes one. Nothing is proven about loops of mixed attempts.
Rules of a user's own are not tried.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from typing import Any

from heedful.loop import record, stop
from heedful.loop.decide import Policy, check_types
from heedful.loop.stop import StopRule, rule_name

MAX_LIKE_ATTEMPTS = 50
PERSISTENT_FINDING = record.Finding(
    "check", "kept", level="warning", severity=1.0, persistent=True
)


@dataclass(frozen=True, slots=True)
class Reach:
    """After how many `attempts` a rule alone ends a loop; None if it was not seen to.

    `is_useless` says that other rules ended all loops before it.
    """

    rule: StopRule
    attempts: int | None
    is_useless: bool

    def __str__(self) -> str:
        end = "was not seen to fire"
        if self.attempts is not None:
            end = f"can fire, first after attempt {self.attempts}"
        elif self.is_useless:
            end = "cannot fire: other rules end loops of like attempts before it"
        return f"{rule_name(self.rule)} {end}"


def reach(policy: Policy) -> tuple[Reach, ...]:
    """Find out for each rule of `policy` after how many attempts it can end a loop.

    Raises InvalidInput.
    """
    check_types(record.Loop(""), policy)
    tried = [rule for rule in policy.rules if not stop.has_user_code([rule])]
    echoes = [r.times for r in stop.flat(tried) if isinstance(r, stop.Echo)]
    new_loop = record.Loop(
        "tried",
        (record.Goal("quality", 1.0),),
        echoes={PERSISTENT_FINDING.key: max(echoes, default=1) - 1},
        improves=policy.improvement,
    )
    first: dict[StopRule, int] = {}
    all_ended = True
    for attempt in _list_kinds(tried):
        loop = new_loop
        stops: list[StopRule] = []
        while not stops and len(loop.attempts) < MAX_LIKE_ATTEMPTS:
            loop = loop.then(attempt(loop))
            stops = [rule for rule in tried if rule(loop)]
        if len(stops) == 1:
            number = len(loop.attempts)
            first[stops[0]] = min(number, first.get(stops[0], number))
        all_ended = all_ended and bool(stops)

    return tuple(
        Reach(rule, first.get(rule), all_ended and rule in tried and rule not in first)
        for rule in policy.rules
    )


def _list_kinds(
    rules: Sequence[StopRule],
) -> Iterator[Callable[[record.Loop], record.Attempt]]:
    """Yield what makes the next attempt of a loop, for each kind that rules tell apart.

    Of the rules that need attempts of their own, none, one, two or all get them.
    """
    provoking = [rule for rule in stop.flat(rules) if hasattr(rule, "provoke")]
    for count in {0, 1, 2, len(provoking)}:
        kinds = product(
            (0, 1),
            ("new", "near", "same"),
            (False, True),
            (0.0, 0.5),
            combinations(provoking, count),
        )
        yield from (partial(_next_attempt, *kind) for kind in kinds)


def _next_attempt(
    gains: int,
    likeness: str,
    is_kept: bool,
    met: float,
    provoking: Sequence[Any],
    loop: record.Loop,
) -> record.Attempt:
    """Return the attempt that a loop gets next; its score rises by so many `gains`."""
    number = len(loop.attempts) + 1
    step = max(0.001, loop.improves.min_gain)
    text = "same" if likeness == "same" else f"new {number}"
    findings = (PERSISTENT_FINDING,) if is_kept else ()
    score = (gains * number - MAX_LIKE_ATTEMPTS) * step
    attempt = record.Attempt(
        number,
        record.Candidate.of(text),
        evaluation=record.Evaluation(findings, {"quality": score}, met=met),
        usage=record.NO_USAGE,
        repeats=1 if likeness == "near" and number > 1 else None,
    )
    for rule in provoking:
        attempt = rule.provoke(attempt)
    return attempt
