"""What loops are shown, and the seeded draws that withhold it, for proofs. Pure.

A draw depends only on scope, loop and lesson: a loop that is resumed gets the same
answer. `plan_holdout` says with which probability draws withhold; loops, sessions and
reminders all toss theirs here.
"""

import hashlib
from dataclasses import KW_ONLY
from typing import Literal, NamedTuple

from heedful.lessons.scope import DEFAULT_HOLDOUT_SHARE
from heedful.validation import typed_frozen

# The first loops of a scope see everything: their users try memory out, and so few
# loops prove nothing. The draw depends on earlier loops only, so it stays fair.
FIRST_LOOPS_WITHOUT_HOLDOUT = 20
# Memory as a whole is measured first: one draw decides over all lessons of a loop, once
# there is a verdict only in this share of the loops.
POOLED_COIN_SHARE = 0.25
# Memory that is proven to hurt is still shown to one loop in 40, so that a proof finds
# out when it stops hurting.
HARMFUL_MEMORY_SHARE = 0.975
MemoryVerdict = Literal["", "helps", "hurts", "no difference shown"]


@typed_frozen(slots=True)
class Exposure:
    """A lesson that recall chose for the prompt of a loop: shown or withheld.

    `lesson` is its name, `kind/signature`. `signature` is the digest of its error.
    `share` is the probability that it is withheld, 0 if withholding was off. `together`
    is true if one draw decided about all lessons of the loop. `examples` are the ids of
    the examples whose answers or words the prompt has, or would have.
    """

    lesson: str
    loop: str
    _: KW_ONLY
    shown: bool
    signature: str = ""
    share: float = DEFAULT_HOLDOUT_SHARE
    together: bool = False
    examples: tuple[int, ...] = ()


@typed_frozen(slots=True)
class Outcome:
    """The end of a loop: whether its first attempt passed, and its number of calls.

    `signatures` are the digests of the errors of its attempts. Abandoned loops have an
    outcome too. `memory_key` is the key of the loop, and `rules` are the rules of this
    key that it broke. `model` made the attempts of the first rung, "" if it is
    unknown. `rung` made the first attempt, and `climbed` says whether a higher one made
    another; None without a ladder. `cost` is that of the loop, also of
    calls that failed.
    """

    loop: str
    right_at_once: bool
    _: KW_ONLY
    calls: int
    signatures: frozenset[str] = frozenset()
    memory_key: str = ""
    rules: frozenset[str] = frozenset()
    model: str = ""
    rung: int = 1
    climbed: bool | None = None
    cost: float = 0.0


@typed_frozen(slots=True, kw_only=True)
class Shown:
    """How many loops and sessions were shown a lesson, and how these ended.

    `right` counts those that were right at the first try, or in which the mistake did
    not come again; `again` those that made its mistake again. The `other` ones did
    neither, go on, or have no verdict. It does not say that the lesson was the cause:
    only a comparison shows that.
    """

    shown: int = 0
    right: int = 0
    again: int = 0
    other: int = 0

    def __str__(self) -> str:
        """Return one line for a person.

        >>> print(Shown(shown=27, right=18, again=4, other=5))
        shown 27: 18 right, 4 again, 5 other
        """
        if not self.shown:
            return "never shown"
        ends = f"{self.right:,} right, {self.again:,} again, {self.other:,} other"
        return f"shown {self.shown:,}: {ends}"

    @property
    def of_call(self) -> str:
        """One line for a person, of a lesson that names a call of an agent.

        >>> Shown(shown=27, right=18, again=4, other=5).of_call
        'told 27, kept 18, repeated 4'
        """
        if not self.shown:
            return str(self)
        return f"told {self.shown:,}, kept {self.right:,}, repeated {self.again:,}"


@typed_frozen(slots=True, kw_only=True)
class SessionTally:
    """The lessons that sessions of agents were told, each once a session, by result.

    Of those `told`, so many were `kept`: the call came again without the mistake. The
    others were `repeated`, or the call did not come again. `withheld` counts the
    lessons that a random draw left out and that have a result; `withheld_repeated` of
    them were repeated. The sessions lost `calls_lost` to mistakes that memory knew.
    """

    told: int = 0
    kept: int = 0
    repeated: int = 0
    withheld: int = 0
    withheld_repeated: int = 0
    calls_lost: int = 0

    @property
    def words(self) -> str:
        """One line for a person; "" if the sessions were told no lesson.

        >>> SessionTally(told=4, kept=2, repeated=1, calls_lost=3).words
        'lessons told 4, kept 2, repeated 1; 3 calls lost to known mistakes'
        """
        if not self.told:
            return ""
        # `display` would make each hook slower to start.
        calls = "call" if self.calls_lost == 1 else "calls"
        told = Shown(shown=self.told, right=self.kept, again=self.repeated)
        return (
            f"lessons {told.of_call}; {self.calls_lost} {calls} lost to known mistakes"
        )


@typed_frozen(slots=True, kw_only=True)
class LoopExposures:
    """The exposures of one loop that the store has recorded.

    `ended` counts the loops of the scope with exposures and an outcome. `number` is the
    position of this loop among them, 0 if it has no outcome. `verdict` is what the last
    proof concluded on memory as a whole, "" if it could not conclude. `memory_key` is
    the key of the loop, `model` makes its attempts, and `waiting` counts what waits in
    quarantine, at most 100. Only `brief` reads these three.
    """

    exposures: tuple[Exposure, ...] = ()
    ended: int = 0
    number: int = 0
    verdict: MemoryVerdict = ""
    memory_key: str = ""
    model: str = ""
    waiting: int = 0


class Holdout(NamedTuple):
    """With which probability a loop's draw withholds a lesson: `share`.

    With the probability `pooled_share`, the loop has one draw for all its lessons.
    """

    share: float
    pooled_share: float = POOLED_COIN_SHARE


def plan_holdout(share: float, past: LoopExposures) -> Holdout:
    """Return with which probability a new loop goes without lessons, for a proof.

    `share` is the probability that the user has set; 0 always withholds nothing. `past`
    says how many loops of the scope have ended, and what the last proof concluded about
    memory as a whole. Until it has concluded, one draw decides about all lessons of a
    loop at once (`pooled_share` is 1), as this measures memory as a whole.
    """
    if share == 0 or past.ended < FIRST_LOOPS_WITHOUT_HOLDOUT:
        return Holdout(0.0)
    if past.verdict == "hurts":
        return Holdout(HARMFUL_MEMORY_SHARE, pooled_share=1.0)
    if past.verdict:
        # A larger share than usual brings a verdict sooner. Now that there is one, it
        # would withhold help for nothing.
        return Holdout(min(share, DEFAULT_HOLDOUT_SHARE))
    return Holdout(share, pooled_share=1.0)


def why_nothing_withheld(share: float, ended: int, coins: int) -> str:
    """Tell a person why no loop went without lessons, so that none can be compared.

    `share` is the holdout that was set: the probability of going without. `ended`
    counts the loops that had lessons and have ended. In `coins` of them a random draw
    could have withheld these.
    """
    if coins:
        return (
            f"by chance, memory was withheld in none of the {coins:,} loops in which "
            "it could be"
        )
    if share == 0:
        return (
            "the holdout is off (the setting holdout is 0), so there is nothing to "
            "compare with"
        )
    if ended < FIRST_LOOPS_WITHOUT_HOLDOUT:
        have = "has" if ended == 1 else "have"
        return (
            f"the first {FIRST_LOOPS_WITHOUT_HOLDOUT} loops for which memory has "
            f"something are shown all of it; {ended} of them {have} ended"
        )
    return (
        f"none of the {ended:,} loops with lessons went without them (their holdout "
        "was 0), so there is nothing to compare with"
    )


def is_pooled(
    seed: str | int, loop_id: str, pooled_share: float = POOLED_COIN_SHARE
) -> bool:
    """Return True, with the probability `pooled_share`, if a loop has one draw only.

    It then decides about all lessons of the loop. `seed` names the scope. The result
    depends on the arguments only.
    """
    return _chance("together", seed, loop_id) < pooled_share


def is_withheld(
    seed: str | int,
    loop_id: str,
    lesson_id: str | int,
    share: float = DEFAULT_HOLDOUT_SHARE,
    *,
    pooled_share: float = POOLED_COIN_SHARE,
) -> bool:
    """Return True, with probability `share`, if a loop's prompt leaves a lesson out.

    `seed` names the scope of the loop. The result depends on the arguments only, so a
    resumed loop gets the same one. A withheld lesson is not replaced by another.

    Mostly each lesson of a loop has its own draw, which measures what the lesson adds
    to the others. By this measure, three lessons that say the same would each seem
    useless. So in a share `pooled_share` of the loops, a single draw decides about all
    lessons, which measures memory as a whole.
    """
    is_together = is_pooled(seed, loop_id, pooled_share)
    # Without the name of the lesson, the draw is the same for all of them.
    drawn_for = "" if is_together else f"lesson {lesson_id}"
    return _chance("withheld", seed, loop_id, drawn_for) < share


def is_source_withheld(
    seed: str | int, loop_id: str, source: str, share: float
) -> bool:
    """Return True, with probability `share`, if a loop gets no texts of a source.

    A source is another memory whose texts are on trial; each has a draw of its own.
    `seed` names the scope. The result depends on the arguments only.
    """
    return _chance("source", seed, loop_id, source) < share


def _chance(*names: str | int) -> float:
    """Return an evenly distributed number, 0..1, that depends only on the names.

    It is made of 48 bits of a hash of the names. So a draw looks random, but it can be
    repeated without being stored.
    """
    digest = hashlib.sha256(ascii(tuple(map(str, names))).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def opportunity_name(session: str, signature: str) -> str:
    """Return the name of the opportunity that a session has for a lesson."""
    return f"{session}/{signature}"
