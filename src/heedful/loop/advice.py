"""Say whether another policy would have cost less without losing a correct answer.

Each policy is judged only on the loops of which the record can tell how they would have
ended under it, and advised only if these are all loops. Advice needs
`MIN_SOLVED_LOOPS` correct answers: of fewer, none may be lost by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heedful.loop.replay import LoopScore
from heedful.loop.share import Share, percent
from heedful.sanitize import clean

MIN_SOLVED_LOOPS = 20
MIN_SAVED_SHARE = 0.005  # what is less rounds to 0 %
MAX_ADVICE_NAME_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """What a policy saves and loses against the record, on the loops it tells of.

    `solved` counts the correct answers of the record, `lost` those that the policy
    would not have found. `cost` and `recorded_cost` are money if all
    loops have a cost, otherwise `attempts` and `recorded_attempts`.
    """

    policy: str
    loops: int
    solved: int
    lost: int
    attempts: int
    recorded_attempts: int
    cost: float
    recorded_cost: float
    is_money: bool

    @property
    def saved(self) -> float:
        """The share of the cost that the policy saves; below 0 if it costs more."""
        if not self.recorded_cost:
            return 0.0
        return 1 - self.cost / self.recorded_cost

    @property
    def change(self) -> str:
        """The cost beside that of the record, in words."""
        if not self.saved:
            return "as much" if self.is_money else "as many"

        direction = "more"
        if self.saved > 0:
            direction = "less" if self.is_money else "fewer"
        if abs(self.saved) < MIN_SAVED_SHARE:
            return f"under {MIN_SAVED_SHARE:.1%} {direction}".replace("%", " %")
        return f"{percent(abs(self.saved))} {direction}"

    @property
    def saving(self) -> str:
        """What the policy saves, in words."""
        if self.is_money:
            return f"costs {self.change} than recorded"
        return f"takes {self.change} attempts than recorded"

    @property
    def kept(self) -> int:
        """The number of correct answers of the record that the policy keeps."""
        return self.solved - self.lost


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAdvice:
    """The policy to use, and why; without a `policy`, the sentence says what lacks.

    `risk` is the largest share of correct answers that the policy may lose on such
    loops, as an interval that holds however often somebody looks; None without advice.
    """

    sentence: str
    policy: str = ""
    trade: Trade | None = None
    risk: float | None = None


def trade_of(
    policy: str, recorded: Sequence[LoopScore], scores: Sequence[LoopScore]
) -> Trade:
    """Return what a policy saves and loses; both scores are of the same loops."""
    pairs = [
        (old, new) for old, new in zip(recorded, scores, strict=True) if new.is_known
    ]
    is_money = all(score.usage.cost for score in recorded)
    attempts = sum(new.attempts for _, new in pairs)
    recorded_attempts = sum(old.attempts for old, _ in pairs)
    cost: float = attempts
    recorded_cost: float = recorded_attempts
    if is_money:
        cost = sum(new.usage.cost for _, new in pairs)
        recorded_cost = sum(old.usage.cost for old, _ in pairs)

    return Trade(
        policy=policy,
        loops=len(pairs),
        solved=sum(old.quality == 1 for old, _ in pairs),
        lost=sum(old.quality == 1 and new.quality < 1 for old, new in pairs),
        attempts=attempts,
        recorded_attempts=recorded_attempts,
        cost=cost,
        recorded_cost=recorded_cost,
        is_money=is_money,
    )


def advise(
    recorded: Sequence[LoopScore], policies: Mapping[str, Sequence[LoopScore]]
) -> PolicyAdvice:
    """Return which policy to use on loops like these, or why nothing can be said.

    `policies` maps names to the scores of the same loops.
    """
    solved = sum(score.quality == 1 for score in recorded)
    if solved < MIN_SOLVED_LOOPS:
        return PolicyAdvice(
            sentence=f"No advice yet: it needs {MIN_SOLVED_LOOPS} loops with a correct "
            f"answer, and {solved} of {len(recorded):,} have one"
        )

    trades = [trade_of(name, recorded, scores) for name, scores in policies.items()]
    judged = [trade for trade in trades if trade.loops]
    if not judged:
        return PolicyAdvice(
            sentence="The record cannot tell what these policies would have cost or "
            "lost"
        )

    none = "None of these policies"
    if len(judged) < len(trades):
        none = "None of the policies of which the record can tell"
    cheaper = [trade for trade in judged if trade.saved >= MIN_SAVED_SHARE]
    if not cheaper:
        saving = "less than what was recorded"
        if any(trade.saved > 0 for trade in judged):
            saving = f"even {MIN_SAVED_SHARE:.1%} {saving}".replace("%", " %")
        return PolicyAdvice(sentence=f"{none} costs {saving}")

    lossless = [trade for trade in cheaper if not trade.lost]
    if not lossless:
        nearest = min(cheaper, key=lambda trade: (trade.lost, -trade.saved))
        lost = f"loses {nearest.lost:,} of {nearest.solved:,}"
        return PolicyAdvice(
            sentence=f"{none} costs less without losing correct answers: "
            f"{_name(nearest)} {nearest.saving} and {lost}"
            f"{_which_loops(nearest, len(recorded))}",
            trade=nearest,
        )

    sure = [trade for trade in lossless if trade.loops == len(recorded)]
    best = max(sure or lossless, key=lambda trade: trade.saved)
    if not sure:
        return PolicyAdvice(sentence=_say_unknown(best, len(recorded)), trade=best)

    sentence = f"{_name(best)} loses no correct answer and {best.saving}"
    _, risk = Share(0, best.solved).interval
    return PolicyAdvice(sentence=sentence, policy=best.policy, trade=best, risk=risk)


def _say_unknown(trade: Trade, loops: int) -> str:
    """Return that the record is too short to advise a policy, and how much it lacks."""
    name = _name(trade)
    missing = loops - trade.loops
    return (
        f"The record cannot tell whether {name} loses correct answers: it is too short "
        f"for {missing:,} of {loops:,} loops, and {missing:,} more recorded under "
        f"{name} would tell; on the others it loses none and {trade.saving}"
    )


def _which_loops(trade: Trade, loops: int) -> str:
    """Return on how many of the loops a policy was judged; "" if these are all."""
    if trade.loops == loops:
        return ""
    return f", on the {trade.loops:,} of {loops:,} loops of which the record can tell"


def _name(trade: Trade) -> str:
    """Return the name of a policy for a sentence."""
    return clean(trade.policy, MAX_ADVICE_NAME_CHARS)
