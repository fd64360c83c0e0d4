"""Stop policies replayed on recorded loops, from what a live loop would have seen."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import heedful
from bench.quality import traces
from bench.quality.rows import Row, read
from heedful.loop.policies import PRESETS, policy
from heedful.loop.similarity import find_near_repeat as near

REPEATS = tuple(
    f"repeat.times={times}{near}"
    for times, near in product((1, 2, 3), ("", ", repeat.near=false"))
)
# The base "default" includes its rule for loops in which no check has passed. Policies
# based on "stage" have only the rules that are written here.
WRITTEN = (
    "stage",
    *(f"stage, {repeat}" for repeat in REPEATS),
    *(f"default, {repeat}" for repeat in REPEATS[2:]),
    "default, -repeat",
    *(f"stage, plateau.patience={patience}" for patience in (1, 2, 3)),
    *(f"stage, fatigue.limit={limit}" for limit in (0.15, 0.45)),
    *(f"stage, repeat.times=2, plateau.patience={patience}" for patience in (2, 3)),
)
MOST = 8  # the highest limit of attempts in the grid
FULL = heedful.Policy((heedful.MaxAttempts(10**6),), name="full budget")
ON_REPEAT = heedful.Policy(
    (heedful.MaxAttempts(10**6), heedful.Repeat()), name="stop on repeat"
)
SETS = {
    "stop.ldb": ("episodes_code_ldb", "candidate"),
    "stop.hotpot": ("episodes_hotpotqa", "final_answer"),
}
Judge = Callable[[dict[str, Any], dict[str, Any]], heedful.Evaluation]


def grid() -> Iterator[heedful.Policy]:
    """Yield policies of at most three rules."""
    for written in WRITTEN:
        # With a limit of 1, the other rules have no effect.
        first = 1 if written == "stage" else 2
        for limit in range(first, MOST + 1):
            yield policy(f"{written}, attempts.limit={limit}")


def run(data: Path, split: str) -> Iterator[Row]:
    """Yield solved ÷ solved with the full budget, and attempts ÷ the oracle's."""
    for key, (name, candidate) in SETS.items():
        judge = code if key == "stop.ldb" else question
        loops = [record_loop(row, judge, candidate) for row in read(data, name, split)]
        full, simple = heedful.compare(loops, (FULL, ON_REPEAT))
        began = time.perf_counter()
        ours = heedful.compare(loops, (PRESETS["default"], PRESETS["thorough"]))
        seconds = time.perf_counter() - began
        for suffix, figures in zip(("", ".thorough"), ours, strict=True):
            share = figures.solved / full.solved
            spent = figures.attempts / figures.oracle
            base = (simple.solved / full.solved, simple.attempts / simple.oracle)
            yield Row(
                key=f"{key}{suffix}.solved_share",
                ours=share,
                baseline=base[0],
                anchor="oracle 1.000",
            )
            yield Row(
                key=f"{key}{suffix}.attempts_over_oracle",
                ours=spent,
                baseline=base[1],
                anchor="oracle 1.000",
            )
        yield Row(
            key=f"{key}.attempts_a_second",
            ours=sum(figures.attempts for figures in ours) / seconds,
        )
    yield from traces.run(data, split)


def code(row: dict[str, Any], attempt: dict[str, Any]) -> heedful.Evaluation:
    """Return the failing visible assertions; a key has no actual value."""
    if attempt["passed_visible"]:
        return heedful.Evaluation(met=1.0)
    text = attempt["feedback"]
    failing = (json.loads(text) if text.startswith("[") else [text]) or ["failed"]
    findings = tuple(
        heedful.Finding("visible", line, key=line.split(" # ")[0]) for line in failing
    )
    return heedful.Evaluation(
        findings, met=max(0.0, 1 - len(findings) / len(row["visible_tests"]))
    )


def question(row: dict[str, Any], attempt: dict[str, Any]) -> heedful.Evaluation:
    """Return the visible signal there: whether the answer was accepted."""
    if attempt["passed"]:
        return heedful.Evaluation(met=1.0)
    return heedful.Evaluation(
        (heedful.Finding("answer", "the answer is not accepted"),), met=0.0
    )


def record_loop(
    row: dict[str, Any], judge: Judge, candidate: str
) -> heedful.RecordedLoop:
    """Return an episode as a host would have recorded it, and which were right."""
    attempts: list[heedful.Attempt] = []
    for number, attempt in enumerate(row["attempts"], 1):
        value = heedful.Candidate.of(attempt[candidate] or "")
        repeated = near(value, attempts)
        attempts.append(
            heedful.Attempt(
                number, value, evaluation=judge(row, attempt), repeats=repeated
            )
        )
    truth = tuple(float(attempt["passed"]) for attempt in row["attempts"])
    return heedful.RecordedLoop(
        heedful.Loop("recorded", attempts=tuple(attempts)), truth
    )
