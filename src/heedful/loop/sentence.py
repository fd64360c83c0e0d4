"""Say in one sentence how a loop ended, and what would have changed that.

The sentence is for people who know neither rules nor policies: it has no name of a rule
that a policy could have otherwise. Every face shows the same sentence: the page of a
loop, its data, `heedful why` and the list of loops.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from heedful.loop.decide import Again, Verdict
from heedful.loop.record import UNJUDGED, format_score
from heedful.loop.stop import (
    Stop,
)
from heedful.sanitize import clean

MAX_SENTENCE_REASON_CHARS = 240  # of all the rules that stopped a loop
MAX_SENTENCE_NAME_CHARS = 60  # of a score
# What a rule says of a loop, by pattern, and how a reader says it who has the loop in
# view. A text that fits none of them stays as the rule wrote it.
_PLAIN_REASONS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"\battempt \d+ ((nearly )?repeats attempt)", r"the answer \1"),
        (r"\b1 of 1 attempts made", "the only attempt is made"),
        (r"\b(\d+) of \1 attempts made", r"all \1 attempts are made"),
        (
            r"\bfatigue ([\d.]+) has reached ([\d.]+)",
            r"too many attempts without improvement (fatigue \1, limit \2)",
        ),
        (r"\bthe same finding again: ", "the same finding came back: "),
        (r"^(\S+ of \S+ (?:tokens|cost|seconds|calls).*) spent$", r"it has spent \1"),
    )
)
# How a limit that can change is called, by its name in a policy.
_PLAIN_LIMITS = {
    "attempts.limit": "a limit of {to} attempts instead of {was}",
    "budget.tokens": "a budget of {to} tokens instead of {was}",
    "budget.cost": "a budget of {to} $ instead of {was}",
    "budget.seconds": "a budget of {to} seconds instead of {was}",
    "budget.calls": "a budget of {to} calls instead of {was}",
    "fatigue.limit": "a limit of fatigue of {to} instead of {was}",
    "fatigue.increment": (
        "a fatigue of {to} instead of {was} for an attempt without improvement"
    ),
    "fatigue.decay": "{to} less fatigue for an improvement instead of {was}",
    "echo.times": "a limit of {to} attempts with the same finding instead of {was}",
    "repeat.times": "a limit of {to} repeated answers instead of {was}",
    "plateau.patience": "a patience of {to} attempts instead of {was}",
    "plateau.floor": "a least severity of {to} instead of {was}",
    "min_gain": "a least gain of {to} instead of {was}",
}
# What stopped a loop, by the name of the rule.
_PLAIN_RULES = {
    "attempts": "all attempts made",
    "budget": "budget spent",
    "cancelled": "cancelled",
    "echo": "the same finding again",
    "fatigue": "too many attempts without improvement",
    "nothing_met": "nothing passed yet",
    "plateau": "no improvement",
    "repeat": "repeated answer",
}


def describe_rule_name(name: str) -> str:
    """Return in plain words what a rule of this name stops loops for.

    >>> describe_rule_name("repeat+nothing_met"), describe_rule_name("mine")
    ('repeated answer, nothing passed yet', 'mine')
    """
    return ", ".join(_PLAIN_RULES.get(part, part) for part in name.split("+"))


def describe_reason(verdict: Verdict) -> str:
    """Return in plain words why a loop stopped, or why it goes on; "" if it passed."""
    if isinstance(verdict, Again):
        reasons = [trigger.detail for trigger in verdict.reasons[:1]]
    else:
        reasons = describe_stops(verdict.stopped_by)
    return clean(", and ".join(reasons), MAX_SENTENCE_REASON_CHARS)


def describe_stops(stops: Sequence[Stop]) -> list[str]:
    """Return in plain words why rules stopped a loop, each reason once.

    >>> alone = Stop("repeat", "attempt 2 repeats attempt 1")
    >>> both = Stop("repeat+mine", "attempt 2 repeats attempt 1 and it is late")
    >>> describe_stops([alone, both])
    ['the answer repeats attempt 1', 'it is late']
    """
    rules = {stop.rule for stop in stops}
    reasons = [_describe_new(stop, rules) for stop in stops]
    return list(filter(None, dict.fromkeys(reasons)))


def _describe_new(stop: Stop, rules: Collection[str]) -> str:
    """Return what a stop says beside those of its members that are among `rules`."""
    members = stop.rule.split("+")
    details = stop.detail.split(" and ")
    if len(members) == len(details):
        new_details = [
            detail
            for member, detail in zip(members, details, strict=True)
            if stop.rule == member or member not in rules
        ]
        stop = Stop(stop.rule, " and ".join(new_details))
    return describe_stop(stop)


def describe_end(verdict: Verdict, attempts: int, doubt: str = "") -> str:
    """Return in one sentence how a loop stands after so many attempts, and why.

    `doubt` says why nothing judged the answer that passed.

    >>> from heedful.loop.decide import Done
    >>> from heedful.loop.stop import Stop
    >>> stop = Stop("repeat", "attempt 4 repeats attempt 2")
    >>> describe_end(Done(2, passed=False, stopped_by=(stop,)), 4)
    'Stopped after attempt 4: the answer repeats attempt 2.'
    """
    reason = describe_reason(verdict)
    if doubt:
        reason = clean(doubt, MAX_SENTENCE_REASON_CHARS)
    if isinstance(verdict, Again):
        if not attempts:
            return "Open: no attempt has been judged yet."
        opening = f"Open after attempt {attempts}"
    elif doubt == UNJUDGED:
        opening = f"Unchecked at attempt {attempts}"
    elif doubt:
        opening = f"Not validated at attempt {attempts}"
    elif verdict.passed:
        opening = f"Passed at attempt {attempts}"
        if attempts == 1:
            opening = "Passed at the first attempt"
    elif attempts:
        opening = f"Stopped after attempt {attempts}"
    else:
        opening = "Stopped before the first attempt"

    # A reason may be a whole sentence of a check.
    return f"{opening}: {reason.removesuffix('.')}." if reason else f"{opening}."


def describe_value(name: str, was: float, to: float) -> str:
    """Return a change of one threshold or score in plain words.

    `name` is that of a `Change`, such as `attempts.limit`.

    >>> describe_value("repeat+nothing_met: repeat.times", 1, 2)
    'a limit of 2 repeated answers instead of 1 while nothing has passed'
    >>> describe_value("attempts.limit", 4, 1)
    'a limit of 1 attempt instead of 4'
    >>> describe_value("score alignment", 0.42, 0.75)
    'alignment 0.75 instead of 0.42'
    """
    old = format_score(was)
    new = format_score(to)
    kind, _, score = name.partition(" ")
    if kind == "score":
        return f"{clean(score, MAX_SENTENCE_NAME_CHARS)} {new} instead of {old}"
    if name.startswith("threshold of "):
        score = clean(name.removeprefix("threshold of "), MAX_SENTENCE_NAME_CHARS)
        return f"a goal of {new} for {score} instead of {old}"

    # A member of several rules that must all stop has their names before its own.
    rules, _, limit = name.rpartition(": ")
    is_early = "nothing_met" in rules.split("+")
    condition = " while nothing has passed" if is_early else ""
    if limit == "fatigue.limit" and to > was:
        # Any higher limit would do; the least one is a number that nobody would choose.
        return f"a limit of fatigue above {was:.2f}"
    words = _PLAIN_LIMITS.get(limit)
    if words is None:
        return f"{clean(limit, MAX_SENTENCE_NAME_CHARS)} {new} instead of {old}"
    if new == "1":
        words = re.sub("s(?= instead| with)", "", words)  # without its plural
    return words.format(to=new, was=old) + condition


def describe_stop(stop: Stop) -> str:
    """Return what a rule says of a loop in the words of a reader.

    >>> describe_stop(Stop("fatigue", "fatigue 0.30 has reached 0.30"))
    'too many attempts without improvement (fatigue 0.30, limit 0.30)'
    """
    detail = stop.detail
    if stop.rule == "cancelled":
        return f"it was cancelled: {detail}"
    for pattern, words in _PLAIN_REASONS:
        detail = pattern.sub(words, detail)
    return detail
