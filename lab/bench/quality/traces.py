"""Repeated steps in recorded runs of agents: whom the detector would have stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import heedful
from bench.quality.rows import Row, read

TIMES = 5  # equal steps, after which the detector speaks


def run(data: Path, split: str) -> Iterator[Row]:
    """Yield episodes, those stopped, those solved of them, and the longest run."""
    rows = list(read(data, "taubench_airline", split))
    traces = list(map(events_of, rows))
    # The reward of an episode is 1 where the agent solved it later.
    rewards = [
        float(row["reward"])
        for row, events in zip(rows, traces, strict=True)
        if heedful.repeated_step(events, TIMES) is not None
    ]
    yield Row(key="stop.taubench.episodes", ours=len(traces))
    yield Row(key="stop.taubench.stopped", ours=len(rewards))
    yield Row(
        key="stop.taubench.stopped_solved", ours=sum(reward >= 1 for reward in rewards)
    )
    yield Row(
        key="stop.taubench.longest_equal", ours=max(map(longest, traces), default=0)
    )


def longest(events: list[heedful.Event]) -> int:
    """Return the longest run of equal steps; 0 if no tool was called."""
    length = 1
    while heedful.repeated_step(events, length + 1):
        length += 1
    return length if any(event.type == "tool_call" for event in events) else 0


def events_of(row: dict[str, Any]) -> list[heedful.Event]:
    """Return the recorded chat as events; a user's words are a reason to ask again."""
    return [event_of(message) for message in row["events"]]


def event_of(message: dict[str, Any]) -> heedful.Event:
    """Return a message: a call, its result, or what the agent or the user says."""
    role = message["role"]
    tool = message["tool"] or ""
    content = message["content"] or ""
    if role == "tool":
        return heedful.Event("tool_response", content, tool=tool)
    if tool:
        kind = "tool_call"
    elif role == "assistant":
        kind = "llm_response"
    else:
        kind = "user_message"
    return heedful.Event(
        kind, content, agent=role, tool=tool, arguments=message["args"]
    )
