"""Find out for each rule of a policy whether it can be the one that ends a loop.

This is a simulation: for each kind of attempt, a loop gets attempts of this kind only,
until a rule ends it. In one loop all attempts improve, in another none does; all have
new candidates, or all repeat the first one; and so on. A rule that needs other attempts
has a row in `PROVOCATIONS`. Nothing is proven about loops of mixed
attempts. Rules of a user's own are not tested.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product
from typing import Any

from heedful.loop import record, stop
from heedful.loop.decide import Policy, check_types
from heedful.loop.stop import StopRule, rule_name

# A simulated loop that no rule has ended after so many attempts goes on for ever.
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

    Simulates a loop for each kind of attempt. The rule that ends it is seen to fire. If
    several rules end it after the same attempt, it counts for none of them: without any
    one of them it would have ended all the same. Raises InvalidInput.
    """
    check_types(record.Loop(""), policy)
    testable_rules = [rule for rule in policy.rules if not stop.has_user_code([rule])]
    echo_limits = [
        rule.times for rule in stop.flat(testable_rules) if isinstance(rule, stop.Echo)
    ]
    empty_loop = record.Loop(
        "simulated",
        (record.Goal("quality", 1.0),),
        # One more sighting of the finding, and every rule Echo has enough.
        echoes={PERSISTENT_FINDING.key: max(echo_limits, default=1) - 1},
        improves=policy.improvement,
    )
    earliest_end: dict[StopRule, int] = {}
    all_loops_ended = True
    for make_attempt in _attempt_makers(testable_rules):
        loop = empty_loop
        ending_rules: list[StopRule] = []
        while not ending_rules and len(loop.attempts) < MAX_LIKE_ATTEMPTS:
            loop = loop.then(make_attempt(loop))
            ending_rules = [rule for rule in testable_rules if rule(loop)]

        if not ending_rules:
            all_loops_ended = False
        if len(ending_rules) == 1:
            [rule] = ending_rules
            number = len(loop.attempts)
            earliest_end[rule] = min(number, earliest_end.get(rule, number))

    never_ended = set(testable_rules).difference(earliest_end)
    return tuple(
        Reach(
            rule,
            earliest_end.get(rule),
            is_useless=all_loops_ended and rule in never_ended,
        )
        for rule in policy.rules
    )


def _attempt_makers(
    rules: Sequence[StopRule],
) -> Iterator[Callable[[record.Loop], record.Attempt]]:
    """Yield, for each kind of attempt, the function that makes a loop's next attempt.

    The kinds are all that the rules tell apart. Of the rules that need attempts of
    their own, none, one, two or all get them.
    """
    provoking_rules = [rule for rule in stop.flat(rules) if type(rule) in PROVOCATIONS]
    for count in {0, 1, 2, len(provoking_rules)}:
        kinds = product(
            (0, 1),
            ("new", "near", "same"),
            (False, True),
            (0.0, 0.5),
            combinations(provoking_rules, count),
        )
        yield from (partial(_next_attempt, *kind) for kind in kinds)


def _next_attempt(
    gains: int,
    likeness: str,
    has_finding: bool,
    met: float,
    provoking_rules: Sequence[Any],
    loop: record.Loop,
) -> record.Attempt:
    """Return the next attempt of a loop, of the kind that the arguments describe.

    Its score rises by so many `gains`, each the least that counts as an improvement.
    Its candidate has this `likeness` to earlier ones; `met` is the share of tests
    that it passes. Each of the rules changes it to what this rule needs.
    """
    number = len(loop.attempts) + 1
    least_gain = max(0.001, loop.improves.min_gain)
    text = "same" if likeness == "same" else f"new {number}"
    findings = (PERSISTENT_FINDING,) if has_finding else ()
    score = (gains * number - MAX_LIKE_ATTEMPTS) * least_gain
    attempt = record.Attempt(
        number,
        record.Candidate.of(text),
        evaluation=record.Evaluation(findings, {"quality": score}, met=met),
        usage=record.NO_USAGE,
        repeats=1 if likeness == "near" and number > 1 else None,
    )
    for rule in provoking_rules:
        attempt = PROVOCATIONS[type(rule)](rule, attempt)
    return attempt


def spend_all(rule: stop.Budget, attempt: record.Attempt) -> record.Attempt:
    """Return the attempt as it would be if it also used the whole budget."""
    budget = record.Usage(
        rule.calls or 0,
        rule.tokens or 0,
        cost=rule.cost or 0.0,
        seconds=rule.seconds or 0.0,
    )
    return replace(attempt, usage=attempt.usage + budget)


def find_slight(rule: stop.Plateau, attempt: record.Attempt) -> record.Attempt:
    """Return the attempt as it would be with a finding just below the floor."""
    if rule.floor is None or attempt.evaluation is None:
        return attempt
    finding = record.Finding(
        "check",
        f"new {attempt.number}",
        level="warning",
        severity=rule.floor - 0.001,
    )
    evaluation = replace(attempt.evaluation, findings=(finding,))
    return replace(attempt, evaluation=evaluation)


# What changes an attempt so that a rule can fire.
PROVOCATIONS: dict[type[Any], Callable[[Any, record.Attempt], record.Attempt]] = {
    stop.Budget: spend_all,
    stop.Plateau: find_slight,
}
