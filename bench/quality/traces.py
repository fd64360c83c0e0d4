"""Repeated steps in recorded runs of agents: whom the detector would have stopped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import heedful
from bench.quality.rows import Row, read
from heedful.episodes.signals import Signal

SHOWN = 100


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """An episode in which the detector speaks; `reward` is 1 where the agent solved it
    later.
    """

    episode: str
    found: Signal
    arguments: str
    reward: float

    def __str__(self) -> str:
        return f"{self.episode}, reward {self.reward:g}: {self.found}: {self.arguments}"


def run(data: Path, split: str) -> Iterator[Row]:
    """Yield episodes, those stopped, those solved of them, and the longest run."""
    stops = list(find_stops(data, split))
    traces = [events_of(row) for row in read(data, "taubench_airline", split)]
    yield Row(key="stop.taubench.episodes", ours=len(traces))
    yield Row(key="stop.taubench.stopped", ours=len(stops))
    yield Row(
        key="stop.taubench.stopped_solved", ours=sum(stop.reward >= 1 for stop in stops)
    )
    yield Row(
        key="stop.taubench.longest_equal", ours=max(map(longest, traces), default=0)
    )


def find_stops(data: Path, split: str, times: int = 5) -> Iterator[Stopped]:
    """Yield what is stopped after so many equal steps, each with its call."""
    for row in read(data, "taubench_airline", split):
        events = events_of(row)
        signal = heedful.repeated_step(events, times)
        if signal is not None:
            arguments = str(events[signal.evidence[0]].arguments)[:SHOWN]
            episode = f"task {row['task_id']}, trial {row['trial']}"
            yield Stopped(
                episode=episode,
                found=signal,
                arguments=arguments,
                reward=float(row["reward"]),
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
