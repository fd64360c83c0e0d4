"""Stop policies replayed on recorded loops, from what a live loop would have seen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import errata
from bench.quality.rows import Row, read
from errata.loop.policies import PRESETS
from errata.near import near

FULL = errata.Policy((errata.MaxAttempts(10**6),), name="full budget")
ON_REPEAT = errata.Policy((errata.MaxAttempts(10**6), errata.Repeat(1)), name="stop on repeat")
Judge = Callable[[dict[str, Any]], errata.Evaluation]


def run(data: Path, split: str) -> Iterator[Row]:
    """Solved by the kept attempt ÷ solved with the full budget; attempts ÷ the oracle's."""
    sets = (
        ("stop.ldb", "episodes_code_ldb", code, "candidate"),
        ("stop.hotpot", "episodes_hotpotqa", question, "final_answer"),
    )
    for key, name, judge, candidate in sets:
        episodes = [
            (
                recorded(row["attempts"], judge, candidate),
                [bool(a["passed"]) for a in row["attempts"]],
            )
            for row in read(data, name, split)
        ]
        best = sum(passed.index(True) + 1 if any(passed) else 1 for _, passed in episodes)
        full, _ = replayed(episodes, FULL)
        simple = replayed(episodes, ON_REPEAT)
        presets = (("", "default"), (".thorough", "thorough"))
        for suffix, preset in presets:
            if preset not in PRESETS:
                continue
            solved, spent = replayed(episodes, PRESETS[preset])
            anchor = "oracle 1.000"
            yield Row(f"{key}{suffix}.solved_share", solved / full, simple[0] / full, anchor)
            yield Row(f"{key}{suffix}.attempts_over_oracle", spent / best, simple[1] / best, anchor)


def code(attempt: dict[str, Any]) -> errata.Evaluation:
    """The failing visible assertions; the actual value is no part of a finding's key."""
    if attempt["passed_visible"]:
        return errata.Evaluation()
    text = attempt["feedback"]
    failing = json.loads(text) if text.startswith("[") else [text]
    findings = (
        errata.Finding("visible", line, key=line.split(" # ")[0]) for line in failing or ["failed"]
    )
    return errata.Evaluation(tuple(findings))


def question(attempt: dict[str, Any]) -> errata.Evaluation:
    """The visible signal there is whether the answer was accepted."""
    if attempt["passed"]:
        return errata.Evaluation()
    return errata.Evaluation((errata.Finding("answer", "the answer is not accepted"),))


def recorded(attempts: list[dict[str, Any]], judge: Judge, candidate: str) -> list[errata.Attempt]:
    """The attempts as a host would have recorded them."""
    made: list[errata.Attempt] = []
    for number, attempt in enumerate(attempts, 1):
        value = errata.Candidate.of(attempt[candidate] or "")
        made.append(errata.Attempt(number, value, judge(attempt), repeats=near(value, made)))
    return made


Episodes = list[tuple[list[errata.Attempt], list[bool]]]


def replayed(episodes: Episodes, policy: errata.Policy) -> tuple[int, int]:
    """How many kept attempts pass the hidden test, and how many attempts were spent."""
    solved = spent = 0
    for attempts, passed in episodes:
        for end in range(1, len(attempts) + 1):
            verdict = errata.decide(errata.Loop("recorded", attempts=tuple(attempts[:end])), policy)
            if isinstance(verdict, errata.Done):
                break
        best = errata.Loop("recorded", attempts=tuple(attempts[:end])).best
        solved += passed[best - 1] if best else 0
        spent += end
    return solved, spent
