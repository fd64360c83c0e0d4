"""Say what a proof found in one sentence, or exactly what is missing to say it.

The command line, pages, their data and reports show these sentences, so that all of
them have the same words and the same rounding.
"""

from __future__ import annotations

from heedful.lessons.holdout import why_nothing_withheld
from heedful.lessons.proof import Comparison, Effect, Total
from heedful.loop.share import percent, points

NO_VERDICT = "No verdict yet"


def say_gain(uplift: Effect) -> str:
    """Return a gain at the first try, its interval, and the shares with and without.

    >>> say_gain(Effect(0.63, 0.11, gain=0.52, low=0.35, high=0.63))
    '+52 points right at the first try (+35 to +63): 63 % with, 11 % without'
    """
    ends = f"{points(uplift.low)} to {points(uplift.high)}"
    gain = points(uplift.gain or 0.0)
    shares = f"{percent(uplift.shown)} with, {percent(uplift.withheld)} without"
    return f"{gain} points right at the first try ({ends}): {shares}"


def say_calls(saved: float, loop: str = "loop") -> str:
    """Return how many model calls fewer a loop makes.

    >>> say_calls(0.62), say_calls(-1.2, "task"), say_calls(0.001)
    ('0.62 calls fewer a loop', '1.20 calls more a task', 'as many calls a loop')
    """
    number = f"{abs(saved):.2f}"
    if number == "0.00":
        return f"as many calls a {loop}"
    return f"{number} calls {'fewer' if saved > 0 else 'more'} a {loop}"


def say_net(net: float, shown: int) -> str:
    """Return how many more loops with memory were right at the first try.

    >>> say_net(84.6, 317)
    '85 more right at the first try, of 317 loops'
    """
    number = round(abs(net))
    words = "as many"
    if number:
        words = f"{number:,} {'more' if net > 0 else 'fewer'}"
    return f"{words} right at the first try, of {shown:,} loops"


def say_pairs(won: int, lost: int) -> str:
    """Return how many tasks were right only with memory, and how many only without.

    >>> say_pairs(41, 3)
    'won 41, lost 3'
    """
    return f"won {won:,}, lost {lost:,}"


def say_missing(shown: int, withheld: int, missing: int | None) -> str:
    """Return what a conclusion lacks that loops of so many kinds cannot allow.

    `missing` is about how many compared loops it needs, None if more than a million.

    >>> say_missing(19, 0, None), say_missing(16, 12, 130)
    ('a loop without it; 19 had it', 'about 130 more loops in the comparison')
    """
    if not shown and not withheld:
        return "loops: none has ended yet"
    if not withheld:
        return f"a loop without it; {shown:,} had it"
    if not shown:
        return f"a loop with it; {withheld:,} had none"
    if missing is None:
        return "more than a million loops in the comparison"
    return f"about {missing:,} more loops in the comparison"


def say_proof(
    pooled: Comparison,
    *,
    holdout: float,
    ended: int,
    pending: int,
) -> str:
    """Return what is proven of memory as a whole.

    `holdout` is the share that was asked for, `ended` counts the loops of the scope
    with lessons and an outcome, `pending` those without an outcome.
    """
    if pooled.uplift.gain is None:
        return f"{NO_VERDICT}: {_say_why(pooled, holdout, ended, pending)}"

    net = Total.of(pooled.uplift, pooled.shown).gain or 0.0
    facts = [say_gain(pooled.uplift)]
    if pooled.calls.shown or pooled.calls.withheld:
        facts.append(say_calls(pooled.calls.gain or 0.0))
    facts.append(say_net(net, pooled.shown))
    if pooled.conclusion == "insufficient data":
        missing = say_missing(pooled.shown, pooled.withheld, pooled.missing)
        facts.append(f"missing for a verdict: {missing}")
    return "; ".join(facts)


def _say_why(pooled: Comparison, holdout: float, ended: int, pending: int) -> str:
    """Return why memory as a whole cannot be compared."""
    if pooled.withheld:
        return "no loop was shown lessons, so there is nothing to compare with"
    if pooled.shown or ended:
        return why_nothing_withheld(holdout, ended)

    why = "no loop with lessons has ended"
    if pending:
        why += f"; {pending:,} run"
    return why
