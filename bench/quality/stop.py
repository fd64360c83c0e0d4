"""Stop policies replayed on recorded loops, from what a live loop would have seen."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import heedful
from bench.quality import traces
from bench.quality.rows import Row, read
from heedful.loop.policies import PRESETS, policy
from heedful.loop.stop import find_near_repeat as near
from heedful.pages.report import Point, draw_front, front

REPEATS = tuple(
    f"repeat.times={times}{near}"
    for times in (1, 2, 3)
    for near in ("", ", repeat.near=false")
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
ABLATIONS = (
    "default",
    "default, attempts.limit=1000",
    "default, -repeat",
    "default, -repeat+nothing_met",
    "default, repeat.times=1",
    "thorough",
    "thorough, attempts.limit=1000",
    "thorough, -repeat",
    "thorough, repeat.near=true",
)
SETS = {
    "stop.ldb": ("episodes_code_ldb", "candidate"),
    "stop.hotpot": ("episodes_hotpotqa", "final_answer"),
}
OUT = Path("bench/out")
Judge = Callable[[dict[str, Any], dict[str, Any]], heedful.Evaluation]


def grid() -> Iterator[heedful.Policy]:
    """Yield policies of at most three rules."""
    for written in WRITTEN:
        # With a limit of 1, the other rules have no effect.
        for limit in range(1 if written == "stage" else 2, MOST + 1):
            yield policy(f"{written}, attempts.limit={limit}")


def run(data: Path, split: str) -> Iterator[Row]:
    """Solved by the kept attempt ÷ solved with the full budget; attempts ÷ the
    oracle's.
    """
    for key, (name, candidate) in SETS.items():
        judge = code if key == "stop.ldb" else question
        loops = [recorded(row, judge, candidate) for row in read(data, name, split)]
        full, simple = heedful.compare(loops, (FULL, ON_REPEAT))
        began = time.perf_counter()
        ours = heedful.compare(loops, (PRESETS["default"], PRESETS["thorough"]))
        seconds = time.perf_counter() - began
        for suffix, one in zip(("", ".thorough"), ours, strict=True):
            share = one.solved / full.solved
            spent = one.attempts / one.oracle
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
            ours=sum(one.attempts for one in ours) / seconds,
        )
        _tell(key, loops, full)
    yield from traces.run(data, split)
    for stop in traces.stopped(data, split):
        Console().print(f"stopped: {stop}", markup=False)


def code(row: dict[str, Any], attempt: dict[str, Any]) -> heedful.Evaluation:
    """The failing visible assertions; the actual value is no part of a finding's
    key.
    """
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
    """The visible signal there is whether the answer was accepted."""
    if attempt["passed"]:
        return heedful.Evaluation(met=1.0)
    return heedful.Evaluation(
        (heedful.Finding("answer", "the answer is not accepted"),), met=0.0
    )


def recorded(row: dict[str, Any], judge: Judge, candidate: str) -> heedful.RecordedLoop:
    """An episode as a host would have recorded it, and which attempts were right in
    truth.
    """
    made: list[heedful.Attempt] = []
    for number, attempt in enumerate(row["attempts"], 1):
        value = heedful.Candidate.of(attempt[candidate] or "")
        seen = near(value, made)
        made.append(
            heedful.Attempt(number, value, evaluation=judge(row, attempt), repeats=seen)
        )
    truth = tuple(float(attempt["passed"]) for attempt in row["attempts"])
    return heedful.RecordedLoop(heedful.Loop("recorded", attempts=tuple(made)), truth)


def _tell(key: str, loops: list[heedful.RecordedLoop], full: heedful.Figures) -> None:
    """What each rule is for, the whole frontier as a picture, and what the oracle knows
    more.
    """
    table = Table(
        "policy", "solved share", "attempts ÷ oracle", title=f"{key}: ablations"
    )
    for one in heedful.compare(loops, map(policy, ABLATIONS)):
        row = f"{one.solved / full.solved:.4f}", f"{one.attempts / one.oracle:.4f}"
        table.add_row(one.policy, *row)
    Console().print(table)
    others = [Point.of(one) for one in heedful.compare(loops, grid())]
    named = (
        *(PRESETS[n] for n in ("default", "thorough", "stage", "reflection")),
        ON_REPEAT,
        FULL,
    )
    points = [Point.of(one) for one in heedful.compare(loops, named)]
    table = Table(
        "front", "solved share", "attempts ÷ oracle", title=f"{key}: Pareto front"
    )
    for point in front([*points, *others]):
        table.add_row(point.name, f"{point.solved:.4f}", f"{point.cost:.4f}")
    Console().print(table)
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{key.replace('.', '_')}.svg"
    path.write_text(
        draw_front(points, f"{key}: {len(loops)} recorded loops", others), "utf-8"
    )
    Console().print(f"written: {path}", _apart(loops), markup=False)


def _apart(loops: list[heedful.RecordedLoop]) -> str:
    """Where `default` spends more than the oracle, and what it loses, by the rule that
    stopped.
    """
    spent: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for one in loops:
        made = heedful.replay(one.loop, PRESETS["default"])
        solvable = any(one.worth(n) == 1 for n in range(1, len(one.loop.attempts) + 1))
        what = (
            "on loops that can be solved"
            if solvable
            else "on loops that nothing solves"
        )
        spent[what] += max(0, made.attempts - one.oracle)
        if solvable and one.worth(made.kept) < 1:
            stop = (
                made.verdict.stopped_by
                if isinstance(made.verdict, heedful.Done)
                else ()
            )
            lost[stop[0].rule if stop else "passed the visible tests"] += 1
    beyond = ", ".join(f"{n} {what}" for what, n in spent.items() if n)
    return f"attempts beyond the oracle's: {beyond}; solutions lost by: {dict(lost)}"
