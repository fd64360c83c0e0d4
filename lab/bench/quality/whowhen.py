"""Recorded failures of agents: do the signals of a run lead to the decisive step?

Each message of a recorded chat is one event of no known type; steps count from 0, and
the recorded right answer is not read. heedful names no step: it lists signals. What
stands here is what a reader gets who takes the first signal for the mistake, beside the
best constant answer, for each kind of trace apart; a step may be named again when the
first beats the second on both. Beside it a fault is set into recorded tool calls, and
the failing call looked for among the signals.

strongest and any are the shares of failed runs with a known wrong step whose strongest
signal, or any signal, blames that step. In the runs of `taubench_airline` the step is
the first call that changes something and is not in the list of expected actions.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import heedful
from bench.quality import traces
from bench.quality.rows import Row, read, share
from heedful.episodes.episode import call_arguments
from heedful.episodes.signals import canonical_json

Rows = Sequence[dict[str, Any]]
# The beginnings of the names of the tools that change a booking or pay something back.
WRITING_TOOLS = ("book_", "cancel_", "update_", "send_")
ERROR = re.compile("error|exception|traceback|failed", re.IGNORECASE)
SEED = 7


@dataclass(frozen=True, kw_only=True)
class WrongStep:
    """A failed run with the position of the event that was the mistake."""

    episode: heedful.Episode
    step: int


def run(data: Path, split: str) -> Iterator[Row]:
    """Yield figures of all rows, of each subset, and of the injected faults."""
    rows = list(read(data, "whowhen", split))
    yield from figures("whowhen.", rows)
    for name in sorted({row["subset"] for row in rows}):
        part = [row for row in rows if row["subset"] == name]
        yield from figures(f"whowhen.{name.lower().replace('-', '_')}.", part)

    # A recorded chat with the message that people call the mistake.
    messages = [
        WrongStep(episode=episode_of(row), step=row["mistake_step"]) for row in rows
    ]
    yield from attribution("whowhen", messages)
    failed_runs = read(data, "taubench_airline", split)
    calls = [wrong_call(row) for row in failed_runs if row["reward"] < 1]
    yield from attribution("whowhen.taubench", [call for call in calls if call])

    among = []
    first = []
    for episode, call in inject_faults(data, split):
        among.append(call in signal_steps(episode))
        first.append(first_signal_of(episode) == call)
    yield Row(
        key="whowhen.failed_call",
        ours=share(among),
        baseline=share(first),
        anchor="baseline: the first signal",
    )


def figures(prefix: str, rows: Rows) -> Iterator[Row]:
    """Yield how often the first signal is the mistake, and how reliable signals are."""
    yield Row(
        key=f"{prefix}step",
        ours=share(hits(rows, lambda row: first_signal_of(episode_of(row)))),
        baseline=share(hits(rows, first_error)),
        anchor="best LLM .142",
    )
    longest = max(len(row["events"]) for row in rows)
    constant = max(share(hits(rows, constant_answer(step))) for step in range(longest))
    yield Row(key=f"{prefix}step_best_constant", ours=constant)

    right = 0
    signal_count = 0
    for row in rows:
        steps = signal_steps(episode_of(row))
        signal_count += len(steps)
        if row["mistake_step"] in steps:
            right += 1
    step_count = sum(len(row["events"]) for row in rows)
    yield Row(
        key=f"{prefix}signal_precision",
        ours=right / max(1, signal_count),
        baseline=len(rows) / step_count,
    )
    yield Row(key=f"{prefix}signal_recall", ours=right / len(rows))


def attribution(key: str, runs: Sequence[WrongStep]) -> Iterator[Row]:
    """Yield the shares of runs whose strongest signal, or any, blames the step."""
    strongest = []
    among = []
    for run in runs:
        signals = heedful.signals(run.episode)
        by_strength = sorted(signals, key=lambda signal: -signal.strength)
        blamed = [signal.at for signal in by_strength]
        strongest.append(blamed[:1] == [run.step])
        among.append(run.step in blamed)
    for name, marks in (("strongest", strongest), ("any", among)):
        anchor = f"{sum(marks)} of {len(runs)} runs"
        yield Row(key=f"{key}.{name}", ours=share(marks), anchor=anchor)


def wrong_call(row: dict[str, Any]) -> WrongStep | None:
    """Return a failed run with its first call that writes and is not an expected one.

    A run without such a call left one out.
    """
    events = traces.events_of(row)
    expected = [
        (action["name"], canonical_json(action["kwargs"]))
        for action in row["expected_actions"]
    ]
    for step, event in enumerate(events):
        if event.type != "tool_call" or not event.tool.startswith(WRITING_TOOLS):
            continue
        call = event.tool, canonical_json(call_arguments(event))
        if call not in expected:
            return WrongStep(
                episode=heedful.Episode(tuple(events), "failure"), step=step
            )
        expected.remove(call)
    return None


def signal_steps(episode: heedful.Episode) -> set[int]:
    """Return the steps of an episode that have a signal."""
    return {signal.at for signal in heedful.signals(episode)}


def episode_of(row: dict[str, Any]) -> heedful.Episode:
    """Turn a recorded chat into an episode; an agent is its name before " ("."""
    events = (
        heedful.Event(
            "message", message["content"], agent=message["agent"].partition(" (")[0]
        )
        for message in row["events"]
    )
    return heedful.Episode(tuple(events), row["outcome"], task=row["task"])


def first_signal_of(episode: heedful.Episode) -> int:
    """Return the step of the first signal of an episode, 0 without any."""
    return next((signal.at for signal in heedful.signals(episode)), 0)


def constant_answer(step: int) -> Callable[[dict[str, Any]], int]:
    """Answer the same step of each run, its last where it has fewer."""
    return lambda row: min(step, len(row["events"]) - 1)


def first_error(row: dict[str, Any]) -> int:
    """Return the first event with a word of errors."""
    events = row["events"]
    return next(
        (n for n, event in enumerate(events) if ERROR.search(event["content"])), 0
    )


def hits(rows: Rows, answer: Callable[[dict[str, Any]], int]) -> list[bool]:
    """Return for each row whether the answer is the step that was the mistake."""
    return [answer(row) == row["mistake_step"] for row in rows]


def inject_faults(data: Path, split: str) -> Iterator[tuple[heedful.Episode, int]]:
    """Yield runs that end 6 events after a random call that fails, and the call."""
    chance = random.Random(SEED)
    for row in read(data, "taubench_airline", split):
        events = traces.events_of(row)
        kinds = [event.type for event in events]
        pairs = pairwise(kinds)
        calls = [
            n for n, pair in enumerate(pairs) if pair == ("tool_call", "tool_response")
        ]
        if len(calls) >= 3:
            call = chance.choice(calls)
            failed = heedful.Event(
                "tool_response", "Error: the service is not available"
            )
            shortened = (*events[: call + 1], failed, *events[call + 2 : call + 8])
            yield heedful.Episode(shortened, "error"), call
