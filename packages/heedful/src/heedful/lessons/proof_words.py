"""Say what a proof found in one sentence, or exactly what is missing to say it.

The command line, pages, their data and reports show these sentences, so that all of
them have the same words and the same rounding.
"""

from dataclasses import dataclass, replace
from math import ceil, inf

from heedful.display import counted
from heedful.lessons.holdout import (
    MemoryVerdict,
    why_nothing_withheld,
)
from heedful.lessons.proof import (
    MAX_FORECAST_LOOPS,
    PROOF_HOLDOUT,
    Conclusion,
    Effect,
    Forecast,
    Proof,
    Total,
    TrialProof,
)
from heedful.loop.share import percent, points, say_doubt, without

# A verdict takes up to so many times the loops that a forecast says, or as much less;
# in simulations, seven of ten do.
FORECAST_SPREAD = 3


@dataclass(frozen=True, slots=True)
class ProofWords:
    """The parts of the sentence of a proof: a figure, its subject, and further facts.

    `shares` are the shares with and without memory, "" if they are unknown. `trial` is
    the source of the trial that they are from, "" for loops.
    """

    figure: str
    about: str
    shares: str = ""
    facts: tuple[str, ...] = ()
    trial: str = ""

    @property
    def sentence(self) -> str:
        """The parts as one sentence."""
        if not self.shares:
            return f"{self.figure}: {self.about}"
        gain = f"{self.figure} {self.about}: {self.shares}"
        return "; ".join((gain, *self.facts))


def word_gain(uplift: Effect) -> ProofWords:
    """Return words for how many more loops were right at the first try with memory.

    `uplift` has the shares of loops that were right, with memory and without, and the
    gain between them with its interval. The words have all of these. If the interval
    has 0 in it, they say that nothing is proven.

    >>> word_gain(Effect(0.63, 0.11, gain=0.52, low=0.35, high=0.63)).sentence
    '+52 points right at the first try (+35 to +63): 63 % with, 11 % without'
    >>> word_gain(Effect(0.17, 0.13, gain=0.04, low=-0.51, high=0.44)).sentence
    'Not proven yet at the first try (−51 to +44 points): 17 % right with, \
13 % without'
    """
    ends = f"{points(uplift.low)} to {points(uplift.high)}"
    doubt = say_doubt(uplift.low, uplift.high).capitalize()
    if doubt:
        subject = f"at the first try ({ends} points)"
        return ProofWords(doubt, subject, say_shares(uplift, " right"))

    gain = points(uplift.gain or 0.0)
    subject = f"right at the first try ({ends})"
    return ProofWords(f"{gain} points", subject, say_shares(uplift))


def word_effects(
    uplift: Effect, recurrence: Effect, conclusion: Conclusion
) -> ProofWords:
    """Return words for what memory changed: at the first try, and in known errors.

    `uplift` is the gain at the first try. `recurrence` is how much less often errors
    came again that lessons are about; it is left out unless it is proven. If it alone
    is the reason for the `conclusion` that memory helps or hurts, it stands first.

    >>> gain = Effect(0.17, 0.13, gain=0.04, low=-0.05, high=0.2)
    >>> repeats = Effect(0.1, 0.55, gain=0.45, low=0.1, high=0.72)
    >>> print(word_effects(gain, repeats, "helps").sentence)
    45 points fewer repeats of known errors (10 to 72): 10 % with, 55 % without; \
not proven yet at the first try (−5 to +20 points): 17 % right with, 13 % without
    """
    gain = word_gain(uplift)
    if recurrence.gain is None or say_doubt(recurrence.low, recurrence.high):
        return gain

    figure = _say_fewer(recurrence, "{:.0f} points {}", unit=100)
    ends = _say_fewer(recurrence, "({2:.0f} to {3:.0f})", unit=100)
    # Without a conclusion, or if the first try alone allows one, it stands first.
    if conclusion not in ("helps", "hurts") or not say_doubt(uplift.low, uplift.high):
        return replace(gain, facts=(f"known errors again: {figure} {ends}",))
    return ProofWords(
        figure,
        f"repeats of known errors {ends}",
        say_shares(recurrence),
        facts=(gain.sentence[0].lower() + gain.sentence[1:],),
    )


def say_shares(uplift: Effect, of: str = "") -> str:
    """Return the shares with and without memory, as they are printed beside their gain.

    `of` follows the first percentage, such as " right". The second is rounded so that
    the two differ by the printed gain. Without shares, returns "".

    >>> say_shares(Effect(0.626, 0.104, gain=0.522, low=0.35, high=0.63))
    '63 % with, 11 % without'
    """
    if uplift.shown is None or uplift.withheld is None or uplift.gain is None:
        return ""
    base = without(100 * uplift.shown, 100 * uplift.withheld, 100 * uplift.gain)
    return f"{percent(uplift.shown)}{of} with, {percent(base / 100)} without"


def say_calls(calls: Effect) -> str:
    """Return how many fewer model calls a loop makes with memory, and the interval.

    `calls` are the mean calls of a loop with memory and without. If the interval has 0
    in it, the words say that nothing is proven.

    >>> say_calls(Effect(1.6, 2.2, gain=0.62, low=0.1, high=0.9))
    '0.62 calls fewer a loop (0.10 to 0.90)'
    >>> say_calls(Effect(2.4, 1.2, gain=-1.2, low=-2.0, high=-0.5))
    '1.20 calls more a loop (0.50 to 2.00)'
    >>> say_calls(Effect(1.6, 1.9, gain=0.29, low=-0.03, high=0.93))
    'calls a loop: not proven yet (between 0.03 more and 0.93 fewer)'
    """
    doubt = say_doubt(calls.low, calls.high)
    if doubt:
        ends = f"between {abs(calls.low):.2f} more and {abs(calls.high):.2f} fewer"
        return f"calls a loop: {doubt} ({ends})"

    return _say_fewer(calls, "{:.2f} calls {} a loop ({:.2f} to {:.2f})")


def _say_fewer(effect: Effect, form: str, unit: float = 1) -> str:
    """Return how much fewer or more there is, in words.

    `form` is a format: it gets the size of the gain, "fewer" or "more", and the two
    ends of the interval, the smaller size first. Each is multiplied by `unit`.
    """
    gain = unit * (effect.gain or 0.0)
    sizes = sorted(unit * abs(end) for end in (effect.low, effect.high))
    direction = "fewer" if gain > 0 else "more"
    return form.format(abs(gain), direction, *sizes)


def say_net(net: float, shown: int) -> str:
    """Return how many more loops were right at the first try because of memory.

    `net` is this number, below 0 if fewer were, of the `shown` loops that had memory.

    >>> say_net(84.6, 317)
    '85 more right at the first try, of 317 loops'
    """
    number = round(abs(net))
    word = "more" if net > 0 else "fewer"
    words = f"{number:,} {word}" if number else "as many"
    return f"{words} right at the first try, of {shown:,} loops"


def say_missing(
    shown: int, withheld: int, missing: int | None, *, bare: bool = False
) -> str:
    """Return what is missing for a conclusion about memory, or about a lesson.

    A conclusion compares loops that were `shown` it with those from which it was
    `withheld`; without loops of one sort, these are missing. With `bare`, the words do
    not say how many there are of the other sort. Otherwise about `missing` more loops
    are; None stands for more than can be forecast.

    >>> say_missing(19, 0, None), say_missing(16, 12, 130)
    ('loops without it (19 had it)', 'about 44 to 390 more loops')
    >>> say_missing(16, 12, None)
    'more than 10,000 more loops'
    """
    if not shown and not withheld:
        return "loops: none has ended yet"
    if not withheld:
        return "loops without it" if bare else f"loops without it ({shown:,} had it)"
    if not shown:
        return "loops with it" if bare else f"loops with it ({withheld:,} had none)"
    loops = inf if missing is None else missing
    return f"{_say_range(loops)} more loops"


def _say_range(loops: float) -> str:
    """Return the least and the largest value of a forecast of a number, in words.

    They are a `FORECAST_SPREAD`-th of it and so many times it. The forecast is off by
    this much, because the shares of the few loops so far are.
    """
    if loops > MAX_FORECAST_LOOPS:
        return f"more than {MAX_FORECAST_LOOPS:,}"
    least = ceil(loops / FORECAST_SPREAD)
    return f"about {least:,} to {max(ceil(loops * FORECAST_SPREAD), least + 1):,}"


def say_forecast(forecast: Forecast) -> str:
    """Return about how many more loops and days a verdict on memory needs, in words.

    If a larger holdout, that is share of loops without memory, would bring the verdict
    clearly sooner, the words say so.

    >>> week = Forecast(loops=130, sooner=56, recent=310, of_days=7)
    >>> print(say_forecast(week))
    about 44 to 390 more loops, about 1 to 9 days at the latest pace (310 in 7 days); \
with holdout=0.3 about 19 to 168
    >>> print(say_forecast(replace(week, loops=56, recent=0)))
    about 19 to 168 more loops
    >>> print(say_forecast(replace(week, loops=0)))
    the setting holdout is 0, so nothing is withheld; with holdout=0.3 about 19 to 168
    """
    words = f"{_say_range(forecast.loops)} more loops"
    if not forecast.loops:
        words = say_draws(0.0, "")
    elif forecast.recent:
        days = _say_range(forecast.loops / forecast.recent * forecast.of_days)
        pace = f"{forecast.recent:,} in {counted(forecast.of_days, 'day')}"
        words += f", {days} days at the latest pace ({pace})"
    # Not if it is nearly as many: the loops so far had this holdout, up to chance.
    if forecast.sooner < forecast.loops * 0.8 or not forecast.loops:
        words += f"; with holdout={PROOF_HOLDOUT} {_say_range(forecast.sooner)}"
    return words


def say_draws(holdout: float, verdict: MemoryVerdict) -> str:
    """Return in words when a random draw withholds one lesson, and when all of them.

    `holdout` is the share of lessons that draws withhold, and `verdict` is what the
    last proof concluded on memory as a whole, "" if it could not conclude.

    >>> say_draws(0.1, "")
    'one random draw decides over all lessons of a loop, until memory as a whole has a \
conclusion; such a loop counts for no lesson by itself'
    >>> say_draws(0.0, "")
    'the setting holdout is 0, so nothing is withheld'
    """
    if not holdout:
        return "the setting holdout is 0, so nothing is withheld"
    if verdict == "hurts":
        return "memory hurts, so one random draw decides over all lessons of a loop"
    if not verdict:
        return (
            "one random draw decides over all lessons of a loop, until memory as a "
            "whole has a conclusion; such a loop counts for no lesson by itself"
        )
    return (
        "in one loop of four, one random draw decides over all lessons; in the others "
        "each lesson has a draw of its own"
    )


def word_trial(trial: TrialProof) -> ProofWords:
    """Return words for what a trial found: its gain, and in which loops.

    A trial compares loops that had the texts of its source with loops that had none, or
    the same tasks with these texts and without.
    """
    loops = f"{trial.shown:,} loops with {trial.source}, {trial.withheld:,} without"
    if trial.pairs:
        loops = f"the same {trial.pairs:,} tasks with memory and without"
    return replace(word_gain(trial.uplift), facts=(loops,), trial=trial.source)


def _why_no_verdict(proof: Proof, holdout: float, ended: int) -> str:
    """Return why there are no loops with memory and loops without it to compare.

    `holdout` is the share of loops without memory that was asked for, and `ended`
    counts the loops with lessons that have an outcome.
    """
    if proof.pooled.withheld:
        return "no loop was shown lessons, so there is nothing to compare with"
    if proof.pooled.shown:
        return why_nothing_withheld(holdout, ended, proof.coins)
    loop = "loop of this model" if ended else "loop"
    running = f"; {proof.pending:,} run" if proof.pending else ""
    return f"no {loop} with lessons has ended{running}"


def word_proof(proof: Proof, *, holdout: float, ended: int) -> ProofWords:
    """Return words for what is proven of memory as a whole, and what is still missing.

    If its loops cannot be compared, the words are about the first trial that can speak
    for them, or say why there is no verdict. `holdout` is the share of loops without
    memory that was asked for, and `ended` counts the loops of the scope with lessons
    and an outcome.
    """
    pooled = proof.pooled
    if pooled.uplift.gain is None:
        for trial in proof.trials:
            # A trial of another memory does not speak for loops that had this one.
            if trial.uplift.gain is not None and (trial.pairs or not pooled.shown):
                return word_trial(trial)
        return ProofWords("No verdict yet", _why_no_verdict(proof, holdout, ended))

    words = word_effects(pooled.uplift, pooled.recurrence, pooled.conclusion)
    facts = [*words.facts]
    if pooled.calls.shown or pooled.calls.withheld:
        facts.append(say_calls(pooled.calls))
    if not say_doubt(pooled.uplift.low, pooled.uplift.high):
        net = Total.of(pooled.uplift, pooled.shown).gain or 0.0
        facts.append(say_net(net, pooled.shown))
    if pooled.conclusion == "insufficient data":
        missing = say_missing(pooled.shown, pooled.withheld, pooled.missing)
        if proof.forecast:
            missing = say_forecast(proof.forecast)
        facts.append(f"missing for a verdict: {missing}")
    return replace(words, facts=tuple(facts))
