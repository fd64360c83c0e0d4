"""Which step, and which agent, an episode went wrong at. Pure.

A mistake that decides an episode is seldom the one that shows. A call that fails is seen and worked
around; what decides is the step that did something, got something for it, and handed it on into
the answer. So three grounds count, equally:

- it acted, where others only talked;
- something came of it: the world was asked, and answered;
- the last word of the failed run rests on it: a value of it came up first here.

A run that ended without an answer, by an error or out of time has no such value to follow back.
There the third ground is that it failed first, of its kind, and that no later try mended it.

Where a step stands counts for nothing. Of equal steps the earlier one comes first, because what
comes later may follow from it and not the other way round. The other signals of a step are among
its reasons and do not move it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from heedful.memory.course import Course, course
from heedful.memory.episode import Episode
from heedful.memory.signal import MOST_EVIDENCE, Signal
from heedful.memory.signals import of

# How many steps are ranked, and how many signals are named for one.
MOST = 50
MOST_REASONS = 10


@dataclass(frozen=True, slots=True)
class Suspect:
    """A step, or an agent by its first-ranked step: where it may have gone wrong, and why.

    `at` is the position of the step among the events, from 0, `id` its id or "". `score` is 0..1,
    the share of the grounds that hold; `evidence` and `evidence_ids` are the events that prove it.
    """

    at: int
    agent: str
    score: float
    reasons: tuple[str, ...]
    id: str = ""
    evidence: tuple[int, ...] = ()
    evidence_ids: tuple[str, ...] = ()

    def __str__(self) -> str:
        who = f" ({self.agent})" if self.agent else ""
        return f"event {self.id or self.at}{who}, {self.score:.2f}: {'; '.join(self.reasons)}"


@dataclass(frozen=True, slots=True)
class Attribution:
    """The steps of an episode and its agents, each ranked, the likeliest first.

    Both are empty where there is nothing to blame: a success, or no event of an agent. Every agent
    that did or said something is ranked; of steps, 50.
    """

    steps: tuple[Suspect, ...] = ()
    agents: tuple[Suspect, ...] = ()


# Of an episode a step, with the kinds of its signals.
Ground = Callable[[Course, int, Collection[str]], float]


def acted(seen: Course, at: int, kinds: Collection[str]) -> float:
    """1 where the step did something."""
    return float(seen.roles[at] == "act")


def observed(seen: Course, at: int, kinds: Collection[str]) -> float:
    """1 where something came of it."""
    return float(seen.result[at] is not None or seen.roles[at] == "result")


def decisive(seen: Course, at: int, kinds: Collection[str]) -> float:
    """1 where the answer rests on it; without an answer, where it failed first and stayed so."""
    if _answered(seen):
        return float("answer" in kinds)
    return float("unknown_tool" in kinds or ("cause" in kinds and "mended" not in kinds))


GROUNDS: tuple[Ground, ...] = (acted, observed, decisive)


def attribute(episode: Episode) -> Attribution:
    """The steps and agents of an episode that went wrong, the likeliest to be the cause first.

    Found from the episode alone, without a model, in n log n of the number of events.

    >>> from heedful.memory.episode import Event
    >>> asked = Event("tool_call", tool="price", agent="buyer", call="1")
    >>> told = Event("tool_response", "It sells for 4,180 dollars.", call="1")
    >>> said = Event("llm_response", "The price is 4,180 dollars.", agent="writer")
    >>> attribute(Episode((asked, told, said))).agents[0].agent
    'buyer'
    """
    return ranked(course(episode), GROUNDS)


def ranked(seen: Course, grounds: tuple[Ground, ...]) -> Attribution:
    """The attribution of an episode that has been read, by some of the grounds."""
    if seen.outcome == "success":
        return Attribution()
    by_step: dict[int, list[Signal]] = {}
    kinds: dict[int, set[str]] = {}
    for one in of(seen):
        by_step.setdefault(one.at, []).append(one)
        kinds.setdefault(one.at, set()).add(one.kind)
        if one.kind == "retry":
            kinds.setdefault(one.evidence[0], set()).add("mended")
    scores = {
        at: sum(ground(seen, at, kinds.get(at, ())) for ground in grounds) / len(grounds)
        for at in _suspects(seen)
    }
    order = sorted(scores, key=lambda at: (-scores[at], at))
    best: dict[str, int] = {}
    for at in order:
        best.setdefault(seen.events[at].agent, at)
    return Attribution(
        tuple(_suspect(seen, at, scores[at], by_step.get(at, [])) for at in order[:MOST]),
        tuple(_suspect(seen, at, scores[at], by_step.get(at, [])) for at in best.values()),
    )


def _suspects(seen: Course) -> Iterator[int]:
    """What an agent did or said; a result only where the trace does not tell what it came of."""
    for at, role in enumerate(seen.roles):
        if role in ("said", "act") or (role == "result" and seen.act[at] is None):
            yield at


def _answered(seen: Course) -> bool:
    return seen.outcome not in ("error", "timeout") and seen.answer is not None


def _suspect(seen: Course, at: int, score: float, found: Sequence[Signal]) -> Suspect:
    result = seen.result[at]
    reasons = ["acted"] if seen.roles[at] == "act" else []
    evidence = [at]
    if result is not None:
        reasons.append(f"its result is event {seen.events[result].id or result}")
        evidence.append(result)
    for one in found[:MOST_REASONS]:
        reasons.append(one.words)
        evidence += one.evidence
    kept = tuple(dict.fromkeys(evidence))[:MOST_EVIDENCE]
    ids = tuple(seen.events[one].id for one in kept)
    event = seen.events[at]
    return Suspect(at, event.agent, round(score, 3), tuple(reasons), event.id, kept, ids)
