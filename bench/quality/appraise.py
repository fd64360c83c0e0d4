"""A finished run judged only by code: does the judgement agree with the recorded end?

Recorded tool calls are held against the actions that were expected. Which tools only read is what
the caller of `appraise` says; beside it stands what becomes of it when nobody does. Recorded
answers are held against the right ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import heedful
from bench.quality import traces
from bench.quality.rows import Row, read

# The tools of the recorded agent that change nothing, as their descriptions say.
READS = (
    "calculate",
    "get_reservation_details",
    "get_user_details",
    "list_all_airports",
    "search_direct_flight",
    "search_onestop_flight",
    "think",
    "transfer_to_human_agents",
)


def run(data: Path, split: str) -> Iterator[Row]:
    """Agreement of the scores with the recorded end, beside the best constant answer."""
    rows = list(read(data, "taubench_airline", split))
    solved = [float(row["reward"]) >= 1 for row in rows]
    named = [appraised(row, READS) for row in rows]
    plain = [appraised(row, ()) for row in rows]
    right, ends = scored("correctness", named, solved)
    yield Row("appraise.taubench.accuracy", agreement(right, ends), constant(ends))
    yield Row("appraise.taubench.auroc", auroc(right, ends), 0.5)
    unnamed = auroc(*scored("correctness", plain, solved))
    yield Row("appraise.taubench.auroc_reads_unnamed", unnamed, 0.5)
    complete = auroc(*scored("completeness", named, solved))
    yield Row("appraise.taubench.auroc_completeness", complete, 0.5)
    found = [any(f.check == "safety" and f.level != "note" for f in one.findings) for one in named]
    yield Row("appraise.taubench.safety_found", sum(found) / len(found))
    yield from _answers(data, split)


def appraised(row: dict[str, Any], reads: Collection[str]) -> heedful.Evaluation:
    """A recorded run against what it was expected to do."""
    actions = (
        heedful.Event("tool_call", tool=one["name"], arguments=one["kwargs"])
        for one in row["expected_actions"]
    )
    expected = heedful.Expected(actions=tuple(actions), reads=reads)
    episode = heedful.Episode(tuple(traces.trace(row)), task=row["instruction"])
    return asyncio.run(heedful.appraise(episode, expected=expected))


def _answers(data: Path, split: str) -> Iterator[Row]:
    """Of the attempts at a question that gave an answer: agreement, and the share left open."""
    judged, passed = [], []
    for row in read(data, "episodes_hotpotqa", split):
        for attempt in row["attempts"]:
            if attempt["final_answer"]:
                said = heedful.Event("llm_response", attempt["final_answer"])
                run = heedful.appraise(heedful.Episode((said,)), expected=row["gold"])
                judged.append(asyncio.run(run))
                passed.append(bool(attempt["passed"]))
    right, ends = scored("correctness", judged, passed)
    yield Row("appraise.hotpot.accuracy", agreement(right, ends), constant(ends))
    yield Row("appraise.hotpot.unscored", 1 - len(right) / len(judged))


def scored(
    name: str, judged: Sequence[heedful.Evaluation], ends: Sequence[bool]
) -> tuple[list[float], list[bool]]:
    """A score of the runs that have it, and how those ended."""
    both = [
        (one.scores[name], end) for one, end in zip(judged, ends, strict=True) if name in one.scores
    ]
    return [score for score, _ in both], [end for _, end in both]


def agreement(scores: Sequence[float], ends: Sequence[bool]) -> float:
    """The share of the runs that are fully correct where they were solved, and not where not."""
    return sum((score >= 1) == end for score, end in zip(scores, ends, strict=True)) / len(ends)


def constant(ends: Sequence[bool]) -> float:
    """The agreement of the better of two constant answers."""
    share = sum(ends) / len(ends)
    return max(share, 1 - share)


def auroc(scores: Sequence[float], ends: Sequence[bool]) -> float:
    """How often a solved run scores above one that is not, ties counting half."""
    good = [score for score, end in zip(scores, ends, strict=True) if end]
    bad = [score for score, end in zip(scores, ends, strict=True) if not end]
    pairs = [(one > other) + (one == other) / 2 for one, other in product(good, bad)]
    return sum(pairs) / len(pairs)
