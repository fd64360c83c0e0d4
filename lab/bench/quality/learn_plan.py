"""The plan of `learn`: which arms answer which streams, and at what price."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from bench.quality.answers import Live
from bench.quality.arms import ARMS
from bench.quality.streams import READERS, Stream

PLAIN = "nothing"  # the arm that makes one attempt
TASKS = 150
PARTS = ("a", "b")
ATTEMPTS = 3
TOKEN_CHARS = 4
TOLD_TOKENS = 150  # what memory or feedback adds to a prompt


@dataclass(frozen=True, kw_only=True)
class Runs:
    """How many parts of a stream an arm answers, and each in how many orders.

    The second order is the reverse: without memory, it has the same answers.
    """

    parts: int = 1
    orders: int = 1


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The streams that a model answers, and the runs of each arm on each of them."""

    streams: tuple[str, ...] = tuple(READERS)
    arms: Mapping[str, Runs]

    def arms_of(self, part: int) -> dict[str, Runs]:
        """Return the arms that answer a part of a stream."""
        return {name: runs for name, runs in self.arms.items() if part < runs.parts}


PLANS: Mapping[str, Plan] = {
    "0.5b": Plan(
        arms={
            "nothing": Runs(parts=2, orders=2),
            "retries": Runs(parts=2, orders=2),
            "nearest": Runs(parts=2, orders=2),
            "ours": Runs(parts=2, orders=2),
            "trial": Runs(),
            "again": Runs(),
        }
    ),
    "1.5b": Plan(
        streams=("geo", "banking77", "rules"),
        arms={"nothing": Runs(), "nearest": Runs(), "ours": Runs()},
    ),
}
NAMED = Plan(
    arms={
        "nothing": Runs(parts=2),
        "nearest": Runs(parts=2),
        "ours": Runs(parts=2),
    }
)


def plan_of(size: str, live: Live) -> Plan:
    """Return the plan of a model; the streams, arms and orders that are asked for
    replace its own.
    """
    plan = PLANS.get(size, NAMED)
    arms = {name: plan.arms.get(name, Runs()) for name in live.arms or plan.arms}
    if live.orders:
        for name, runs in arms.items():
            arms[name] = replace(runs, orders=live.orders)
    return Plan(streams=live.streams or plan.streams, arms=arms)


def cut(source: Stream, plan: Plan, limit: int | None) -> list[Stream]:
    """Return the planned parts of a stream, up to `limit` tasks of each.

    They share no task, and a memory is empty at the start of each.
    """
    count = min(TASKS, len(source.tasks) // len(PARTS))
    parts = max(runs.parts for runs in plan.arms.values())
    return [
        replace(
            source,
            name=f"{source.name}.{letter}",
            pool=f"{source.pool}.{letter}",
            tasks=source.tasks[number * count :][: min(limit or count, count)],
        )
        for number, letter in enumerate(PARTS[:parts])
    ]


def describe(
    title: str, plan: Plan, sources: Sequence[Sequence[Stream]], live: Live
) -> Iterator[str]:
    """Yield lines that say what is asked; `sources` has the parts of each stream."""
    parts = [f"{part.name} {len(part.tasks)}" for part in chain.from_iterable(sources)]
    yield f"{title}: tasks of {', '.join(parts)}"
    for name, runs in plan.arms.items():
        yield f"  {name}: parts {runs.parts}, orders {runs.orders}"

    estimates = list(_estimate(plan, sources))
    calls, prompt_tokens, completion_tokens = map(sum, zip(*estimates, strict=True))
    cost = live.price(prompt_tokens, completion_tokens)
    yield (
        f"  at most {calls:,} calls that read about {prompt_tokens:,} tokens and write "
        f"at most {completion_tokens:,}: {cost:.2f} $ at {live.price_in:g} and "
        f"{live.price_out:g} $ a million; answers that are kept cost nothing"
    )


def _estimate(
    plan: Plan, sources: Sequence[Sequence[Stream]]
) -> Iterator[tuple[int, int, int]]:
    """Yield the calls and tokens of each arm on each part of a stream, at most."""
    for number, part in chain.from_iterable(map(enumerate, sources)):
        chars = sum(len(task.system) + len(task.text) for task in part.tasks)
        read = chars // TOKEN_CHARS + TOLD_TOKENS * len(part.tasks)
        for name, runs in plan.arms_of(number).items():
            orders = runs.orders if ARMS[name].remembers else 1
            times = orders * (1 if name == PLAIN else ATTEMPTS)
            calls = times * len(part.tasks)
            yield calls, times * read, calls * part.tokens
