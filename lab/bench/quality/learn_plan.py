"""The plan of `learn`: which arms answer which streams, and at what price."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from bench.quality.answers import Live
from bench.quality.arms import ARMS
from bench.quality.streams import READERS, Stream

PLAIN = "nothing"  # the arm that makes one attempt
TASKS = 150
ATTEMPTS = 3
TOKEN_CHARS = 4
TOLD_TOKENS = 150  # what memory or feedback adds to a prompt


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The streams that a model answers, and in how many orders each arm does.

    The second order is the reverse: without memory, it has the same answers.
    """

    streams: tuple[str, ...] = tuple(READERS)
    arms: Mapping[str, int]


PLANS: Mapping[str, Plan] = {
    "0.5b": Plan(
        arms={
            "nothing": 2,
            "retries": 1,
            "nearest": 2,
            "ours": 2,
            "trial": 1,
        }
    ),
    "1.5b": Plan(
        streams=("geo", "banking77", "rules"),
        arms={"nothing": 1, "nearest": 1, "ours": 1},
    ),
}
NAMED = Plan(arms={"nothing": 1, "nearest": 1, "ours": 1})


def plan_of(size: str, live: Live) -> Plan:
    """Return the plan of a model; the streams, arms and orders that are asked for
    replace its own.
    """
    plan = PLANS.get(size, NAMED)
    arms = {
        name: live.orders or plan.arms.get(name, 1) for name in live.arms or plan.arms
    }
    return Plan(streams=live.streams or plan.streams, arms=arms)


def cut(source: Stream, limit: int | None) -> Stream:
    """Return the tasks of a stream that are asked, at most `limit`."""
    return replace(source, tasks=source.tasks[: limit or TASKS])


def describe(
    title: str, plan: Plan, sources: Sequence[Stream], live: Live
) -> Iterator[str]:
    """Yield lines that say what is asked."""
    streams = [f"{source.name} {len(source.tasks)}" for source in sources]
    yield f"{title}: tasks of {', '.join(streams)}"
    yield f"  orders of {', '.join(f'{name} {n}' for name, n in plan.arms.items())}"

    estimates = [
        _estimate(source, name, orders)
        for source, (name, orders) in product(sources, plan.arms.items())
    ]
    calls, prompt_tokens, completion_tokens = map(sum, zip(*estimates, strict=True))
    cost = live.price(prompt_tokens, completion_tokens)
    yield (
        f"  at most {calls:,} calls that read about {prompt_tokens:,} tokens and write "
        f"at most {completion_tokens:,}: {cost:.2f} $ at {live.price_in:g} and "
        f"{live.price_out:g} $ a million; answers that are kept cost nothing"
    )


def _estimate(source: Stream, name: str, orders: int) -> tuple[int, int, int]:
    """Return the calls and tokens of an arm on a stream, at most."""
    chars = sum(len(task.system) + len(task.text) for task in source.tasks)
    read = chars // TOKEN_CHARS + TOLD_TOKENS * len(source.tasks)
    times = orders if ARMS[name].remembers else 1
    times *= 1 if name == PLAIN else ATTEMPTS
    calls = times * len(source.tasks)
    return calls, times * read, calls * source.tokens
