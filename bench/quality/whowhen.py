"""Failure attribution without a model: which step, and which agent, a failed run went wrong at.

Each message of a recorded chat is one event of no known type. Steps count from 0, an agent is its
name before " (", and the recorded right answer is not read. Beside it a fault is set into recorded
tool calls, and the failing call looked for.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise
from math import sqrt
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import heedful
from bench.quality import traces
from bench.quality.rows import Row, read
from heedful.memory.attribution import GROUNDS, Ground, ranked
from heedful.memory.course import course

Rows = Sequence[dict[str, Any]]
# A step and an agent.
Blame = tuple[int, str]
Blamer = Callable[[dict[str, Any]], Blame]

ERROR = re.compile("error|exception|traceback|failed", re.IGNORECASE)
STEPS = ("said", "act")
HALVES = 200
SEED = 7
Z = 1.96


def run(data: Path, split: str) -> Iterator[Row]:
    """Step and agent of the first-ranked, beside the best constant and the plainest guesses."""
    rows = list(read(data, "whowhen", split))
    ours = hits(rows, blamed)
    constant = max(share(hits(rows, at(step))[0]) for step in range(longest(rows)))
    speaking = share(hits(rows, most_speaking)[1])
    yield Row("whowhen.step", share(ours[0]), share(hits(rows, first_error)[0]), "best LLM .142")
    yield Row("whowhen.agent", share(ours[1]), speaking, "best LLM .535")
    yield Row("whowhen.step_best_constant", constant)
    for name in sorted({row["subset"] for row in rows}):
        part = [row for row in rows if row["subset"] == name]
        step, agent = hits(part, blamed)
        key = name.lower().replace("-", "_")
        yield Row(f"whowhen.{key}.step", share(step), share(hits(part, first_error)[0]))
        yield Row(f"whowhen.{key}.agent", share(agent), share(hits(part, most_speaking)[1]))
    faulty = list(faults(data, split))
    told = [heedful.attribute(episode).steps[0].at == call for episode, call in faulty]
    plain = [ranked(course(one), GROUNDS[:2]).steps[0].at == call for one, call in faulty]
    yield Row("whowhen.failed_call", share(told), share(plain), "without the third ground")
    _tell(rows)


def episode_of(row: dict[str, Any]) -> heedful.Episode:
    """A recorded chat as an episode; what a message is, heedful finds out from what it says."""
    said = (heedful.Event("message", one["content"], named(one["agent"])) for one in row["events"])
    return heedful.Episode(tuple(said), row["outcome"], row["task"])


def named(agent: str) -> str:
    """The name of an agent, without what it is doing."""
    return agent.partition(" (")[0]


def blamed(row: dict[str, Any]) -> Blame:
    """What heedful answers."""
    found = heedful.attribute(episode_of(row))
    return found.steps[0].at, found.agents[0].agent


def latest(row: dict[str, Any]) -> Blame:
    """What heedful would answer if the latest of equal steps came first: what order is worth."""
    steps = heedful.attribute(episode_of(row)).steps
    return _step(row, max(one.at for one in steps if one.score == steps[0].score))


def at(step: int) -> Blamer:
    """The same step of each run, its last where it has fewer."""
    return lambda row: _step(row, min(step, len(row["events"]) - 1))


def first_error(row: dict[str, Any]) -> Blame:
    """The first event with a word of errors."""
    events = row["events"]
    return _step(row, next((n for n, e in enumerate(events) if ERROR.search(e["content"])), 0))


def most_speaking(row: dict[str, Any]) -> Blame:
    """The agent of the most messages, and its first."""
    names = [named(one["agent"]) for one in row["events"]]
    agent = Counter(names).most_common(1)[0][0]
    return names.index(agent), agent


def _step(row: dict[str, Any], step: int) -> Blame:
    return step, named(row["events"][step]["agent"])


def hits(rows: Rows, blame: Blamer) -> tuple[list[bool], list[bool]]:
    """Row by row, whether the step is right, and whether the agent is."""
    blames = [blame(row) for row in rows]
    steps = [one[0] == row["mistake_step"] for one, row in zip(blames, rows, strict=True)]
    agents = [one[1] == row["mistake_agent"] for one, row in zip(blames, rows, strict=True)]
    return steps, agents


def share(right: Sequence[bool]) -> float:
    """The share of what is right."""
    return sum(right) / len(right) if right else 0.0


def longest(rows: Rows) -> int:
    """The most events of a run."""
    return max(len(row["events"]) for row in rows)


def faults(data: Path, split: str) -> Iterator[tuple[heedful.Episode, int]]:
    """Recorded tool calls, one of which, at random, fails, ended 6 events later; and that call."""
    chance = random.Random(SEED)
    for row in read(data, "taubench_airline", split):
        events = traces.trace(row)
        kinds = [event.type for event in events]
        pairs = pairwise(kinds)
        calls = [n for n, pair in enumerate(pairs) if pair == ("tool_call", "tool_response")]
        if len(calls) >= 3:
            call = chance.choice(calls)
            failed = heedful.Event("tool_response", "Error: the service is not available")
            kept = (*events[: call + 1], failed, *events[call + 2 : call + 8])
            yield heedful.Episode(kept, "error"), call


def wilson(right: Sequence[bool]) -> str:
    """The 95 % interval of a share (Wilson 1927)."""
    n, p = len(right), share(right)
    middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z * sqrt(p * (1 - p) / n + Z * Z / (4 * n * n)) / (1 + Z * Z / n)
    return f"{p:.3f} ({middle - half:.3f} to {middle + half:.3f})"


def halves(right: Sequence[bool]) -> str:
    """The middle 95 % of the share on random halves of the tasks."""
    chance = random.Random(SEED)
    shares = sorted(share(chance.sample(right, len(right) // 2)) for _ in range(HALVES))
    return f"{shares[HALVES // 40]:.3f} to {shares[-HALVES // 40]:.3f}"


def _tell(rows: Rows) -> None:
    """The intervals, what each ground is for, and how well the choice among them carries over."""
    heads = ("grounds", "step (95 %)", "agent (95 %)", "step on random halves")
    table = Table(*heads, title="whowhen: ablations")
    right = {grounds: hits(rows, blamer(grounds)) for grounds in _some()}
    for grounds, (steps, agents) in right.items():
        name = " + ".join(one.__name__ for one in grounds)
        table.add_row(name, wilson(steps), wilson(agents), halves(steps))
    other = hits(rows, latest)
    table.add_row("all, latest of equals", *map(wilson, other), halves(other[0]))
    Console().print(table, _signals(rows))
    steps_of = [steps for steps, _ in right.values()]
    Console().print(f"chosen on one half, on the other: step {carried(steps_of):.3f}", markup=False)


def blamer(grounds: tuple[Ground, ...]) -> Blamer:
    """What some of the grounds answer."""

    def blame(row: dict[str, Any]) -> Blame:
        found = ranked(course(episode_of(row)), grounds)
        return found.steps[0].at, found.agents[0].agent

    return blame


def _signals(rows: Rows) -> Table:
    """Of each kind of signal, how many steps it marks, and how often that is the mistake."""
    marked: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for row in rows:
        seen = course(episode_of(row))
        steps = {("any step of an agent", n) for n, r in enumerate(seen.roles) if r in STEPS}
        steps |= {(one.kind, one.at) for one in heedful.signals(episode_of(row))}
        marked.update(kind for kind, _ in steps)
        right.update(kind for kind, step in steps if step == row["mistake_step"])
    table = Table("signal", "steps", "of them the mistake", "share", title="whowhen: signals")
    for kind, steps_of in sorted(marked.items()):
        table.add_row(kind, str(steps_of), str(right[kind]), f"{right[kind] / steps_of:.3f}")
    return table


def carried(choices: Sequence[Sequence[bool]]) -> float:
    """The mean share on the other half of what is best on a random half of the tasks."""
    chance, total = random.Random(SEED), 0.0
    every = range(len(choices[0]))
    for _ in range(HALVES):
        half = set(chance.sample(every, len(every) // 2))
        best = max(choices, key=lambda one: sum(one[n] for n in half))
        total += share([best[n] for n in every if n not in half])
    return total / HALVES


def _some() -> Iterator[tuple[Ground, ...]]:
    """All grounds, and each choice of fewer."""
    for many in range(len(GROUNDS), 0, -1):
        yield from combinations(GROUNDS, many)
