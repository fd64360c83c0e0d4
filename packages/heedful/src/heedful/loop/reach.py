"""Find out for each rule of a policy whether it can be the one that ends a loop.

Loops are tried whose attempts are all alike: all improve or none does, all have new
candidates or repeat the first one, and so on. Nothing is proven about loops of mixed
attempts. Rules of a user's own are not tried.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product
from operator import add

from heedful.loop import record, stop
from heedful.loop.decide import Policy, check_types
from heedful.loop.stop import StopRule, rule_name

MAX_LIKE_ATTEMPTS = 50
PERSISTENT_FINDING_KEY = "kept"


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
        echoes={PERSISTENT_FINDING_KEY: max(echoes, default=1) - 1},
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

    A kind spends the limits of one budget, of all, or nothing.
    """
    severities = [None, 1.0]
    usages = [record.NO_USAGE]
    for rule in stop.flat(rules):
        if isinstance(rule, stop.Plateau) and rule.floor:
            severities.append(rule.floor - 0.001)
        if isinstance(rule, stop.Budget):
            usages.append(
                record.Usage(
                    rule.calls or 0,
                    rule.tokens or 0,
                    cost=rule.cost or 0.0,
                    seconds=rule.seconds or 0.0,
                )
            )
    usages.append(reduce(add, usages))

    likenesses = ("new", "near", "same")
    for kind in product((0, 1), likenesses, severities, (0.0, 0.5), usages):
        yield partial(_next_attempt, *kind)


def _next_attempt(
    gains: int,
    likeness: str,
    severity: float | None,
    met: float,
    usage: record.Usage,
    loop: record.Loop,
) -> record.Attempt:
    """Return the attempt that a loop gets next; its score rises by so many `gains`."""
    number = len(loop.attempts) + 1
    step = max(0.001, loop.improves.min_gain)
    text = "same" if likeness == "same" else f"new {number}"
    repeats = 1 if likeness == "near" and number > 1 else None
    is_kept = severity == 1
    key = PERSISTENT_FINDING_KEY if is_kept else f"new {number}"
    findings = [
        record.Finding(
            "check", key, level="warning", severity=level, key=key, persistent=is_kept
        )
        for level in (severity,)
        if level is not None
    ]
    score = (gains * number - MAX_LIKE_ATTEMPTS) * step
    return record.Attempt(
        number,
        record.Candidate.of(text),
        evaluation=record.Evaluation(tuple(findings), {"quality": score}, met=met),
        usage=usage,
        repeats=repeats,
    )
