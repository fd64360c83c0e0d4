"""Grouping accuracy of signatures: log lines by template, agent failures by what failed."""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from statistics import mean

import errata
from bench.quality.rows import Row, read


def run(data: Path, split: str) -> Iterator[Row]:
    """The stateless level; the baseline is the hash of the whole text."""
    systems: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in read(data, "loghub_2k", split):
        systems[row["set"]].append((row["content"], row["event_id"]))
    began = time.perf_counter()
    ours = [
        accuracy([errata.signature("log", t).digest for t, _ in s], truth(s))
        for s in systems.values()
    ]
    seconds = time.perf_counter() - began
    plain = [accuracy([whole(t) for t, _ in s], truth(s)) for s in systems.values()]
    anchor = "tuned Drain .865, Brain .983"
    yield Row("signatures.loghub.ga_stateless", mean(ours), mean(plain), anchor)
    lines = sum(map(len, systems.values()))
    yield Row("signatures.us_per_line", seconds / lines * 1e6)
    agent = [(r["feedback"], r["group"]) for r in read(data, "agent_failure_signatures", split)]
    groups = [errata.signature("AssertionError", text).digest for text, _ in agent]
    simple = accuracy([whole(text) for text, _ in agent], truth(agent))
    yield Row("signatures.agent.ga", accuracy(groups, truth(agent)), simple, "drain3 .193")


def truth(rows: Sequence[tuple[str, str]]) -> list[str]:
    """The true groups, line by line."""
    return [group for _, group in rows]


def whole(text: str) -> str:
    """The hash of the whole text."""
    return hashlib.sha256(text.encode()).hexdigest()


def accuracy(predicted: Sequence[Hashable], true: Sequence[Hashable]) -> float:
    """The share of lines whose predicted group is exactly their true group."""
    of_predicted, of_true = members(predicted), members(true)
    right = sum(of_predicted[p] == of_true[t] for p, t in zip(predicted, true, strict=True))
    return right / len(true)


def members(groups: Sequence[Hashable]) -> dict[Hashable, frozenset[int]]:
    """Group -> the lines in it."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for line, group in enumerate(groups):
        found[group].append(line)
    return {group: frozenset(lines) for group, lines in found.items()}
