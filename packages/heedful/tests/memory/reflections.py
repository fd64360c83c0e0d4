"""Runs of agents to reflect on, and what a model might say of them."""

import json
from dataclasses import replace
from typing import Any

from heedful import Episode, Event

TASK = "What does the blue kettle cost?"


def ask_price(item: str, *, call: str, id: str) -> Event:
    asked: Any = {"agent": "buyer", "tool": "price", "arguments": {"item": item}}
    return Event("tool_call", call=call, id=id, **asked)


FAILED = Episode(
    (
        Event("user_message", TASK, id="e1"),
        ask_price("pot", call="1", id="e2"),
        Event("tool_response", "Error: 3 items match", call="1", id="e3"),
        Event("llm_response", "The kettle costs 41.90.", agent="writer", id="e4"),
    ),
    "error",
    task=TASK,
    id="run 1",
    session="s1",
)
MENDED = Episode(
    (
        *FAILED.events[:3],
        ask_price("big pot", call="2", id="e5"),
        Event("tool_response", '{"price": 52.75}', call="2", id="e6"),
        Event("llm_response", "It costs 52.75.", agent="writer", id="e7"),
    ),
    "failure",
    task=TASK,
)


def with_task(task: str, episode: Episode = FAILED) -> Episode:
    return replace(episode, task=task)


def answer(*sentences: str, **more: Any) -> str:
    """What a model answers."""
    value = {"strategy": "", "importance": 0.9, "confidence": 0.8, "tags": ["t"]}
    return json.dumps({"reflection": " ".join(sentences), **value, **more})


GOOD = answer(
    "buyer called price with item pot.",
    "The result was “Error: 3 items match”.",
    strategy="Before you call price, name the item in full.",
)
