"""What memory has to say to one loop, what a coin withholds of it, and what the loop came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from heedful.errors import InvalidInput
from heedful.loop.record import Loop
from heedful.memory.proof import SHARE, Exposure, Lesson, Outcome
from heedful.memory.recall import as_messages
from heedful.protocols import Found, Message

# The first loops of a scope are shown everything: whoever tries memory sees what it does, and of so
# few loops nothing can be concluded. The coin depends on what was before, and so stays fair.
FIRST = 20
# In one loop of four, one coin decides over all lessons together.
TOGETHER = 0.25


@dataclass(frozen=True, slots=True)
class Briefing:
    """What memory has to say to one task: chat turns, and the ids of the examples in them.

    `exposures` are what the loop is shown of each lesson, or spared. `vector` is where the task
    lies in the embedding space named `space`. `advice` are the lessons in it without an accepted
    output: what was wrong, and what mended it; `found` are these and the examples, best first.
    """

    examples: tuple[Message, ...] = ()
    shown: tuple[int, ...] = ()
    exposures: tuple[Exposure, ...] = ()
    space: str = ""
    vector: Sequence[float] | None = None
    advice: tuple[Found, ...] = ()
    found: tuple[Found, ...] = ()

    @classmethod
    def of(
        cls,
        chosen: Sequence[Found],
        exposures: Sequence[Exposure],
        space: str,
        vector: Sequence[float] | None,
    ) -> Briefing:
        """What of the chosen the exposures do not withhold."""
        shown = {id for one in exposures for id in one.examples}
        told = [one for one in chosen if one.id in shown]
        advice = tuple(one for one in told if not one.example.accepted)
        ids = tuple(one.id for one in told)
        turns = as_messages(told)
        return cls(turns, ids, tuple(exposures), space, vector, advice, tuple(told))

    @property
    def worked(self) -> Briefing:
        """The same for a prompt that has room for worked examples alone: without strategies.

        Whether a coin would have shown them or not: so what is left is compared fairly.
        """
        found = tuple(one for one in self.found if one.example.accepted)
        left = (one for one in self.exposures if not str(one.lesson).startswith("strategy/"))
        ids = tuple(one.id for one in found)
        return replace(self, shown=ids, exposures=tuple(left), advice=(), found=found)


def together(seed: str | int, loop_id: str) -> bool:
    """Whether this loop tests memory as a whole: one coin for all of its lessons."""
    return _chance("together", seed, loop_id) < TOGETHER


def withheld(seed: str | int, loop_id: str, lesson_id: Lesson, share: float = SHARE) -> bool:
    """Whether a lesson that recall ranked into the prompt of a loop is to be left out of it.

    A pure function, so a resumed loop gets the same answer; true with probability `share` (at least
    0, which is off, and below 1), independent between loops. What is randomised decides what can be
    said. In three loops of four every lesson has a coin of its own: the rest of the prompt is alike
    with and without it, so the difference is what this lesson adds to the others, which are there
    or not as their own coins fell. Of three lessons that say the same each would seem useless so;
    therefore in one loop of four a single coin decides over all of them, and its difference is the
    effect of memory as a whole. A loop with one lesson tells both. The place of a lesson that is
    withheld stays empty. What is estimated is the effect of the coin: of the intention to show.
    Raises InvalidInput.
    """
    if not 0 <= share < 1:
        raise InvalidInput("share", share, "a probability of at least 0 and below 1")
    coin = "" if together(seed, loop_id) else f"lesson {lesson_id}"
    return _chance("withheld", seed, loop_id, coin) < share


def _chance(*names: str | int) -> float:
    """Uniform in 0..1, decided by the names."""
    digest = sha256(ascii(tuple(map(str, names))).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def own(found: Sequence[Found], task: str, examples: bool | None) -> Sequence[Found]:
    """Without `examples` only what was learnt from the very task, and what somebody remembered.

    What mended one stage is no advice to another, however alike their names; and none of it has an
    accepted output, which would not be shown. None: that, and what has one.
    """
    if examples:
        return found
    bare = [one for one in found if one.kind != "check" or one.example.task == task]
    fit = {one.id for one in bare if not one.example.accepted}
    return [one for one in found if one.id in fit or (examples is None and one.example.accepted)]


def drawn(chosen: Sequence[Found], loop: str, seed: str, share: float) -> tuple[Exposure, ...]:
    """One exposure a lesson, of however many examples, each withheld with probability `share`."""
    examples: dict[str, list[int]] = {}
    for one in chosen:
        examples.setdefault(f"{one.kind}/{one.signature}", []).append(one.id)
    whole = share > 0 and together(seed, loop)
    made = []
    for lesson, ids in examples.items():
        shown = not withheld(seed, loop, lesson, share)
        digest = lesson.partition("/")[2]
        made.append(
            Exposure(lesson, loop, shown, digest, share, whole, tuple(ids) if shown else ())
        )
    return tuple(made)


def outcome(loop: Loop) -> Outcome:
    """What a loop that has ended came to; its errors are named as its lessons would be."""
    from heedful.memory.signature import signature  # whose patterns a store has no need of

    judged = [one.evaluation for one in loop.attempts if one.evaluation is not None]
    wrong = {(found.check, found.key) for one in judged for found in one.errors}
    wrong |= {(goal.score, str(goal)) for one in judged for goal in one.unmet(loop.goals)}
    digests = frozenset(signature(*one).digest for one in wrong)
    first = loop.attempts[0].evaluation if loop.attempts else None
    return Outcome(
        loop.id, first is not None and first.passes(loop.goals), loop.usage.calls, digests
    )
