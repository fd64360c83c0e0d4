"""Recall: is a question known or new, and which turns of a conversation answer it."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

import heedful
from bench.quality.rows import Row, read
from heedful.lessons.lesson import Match
from heedful.models import open_embedder
from heedful.models.contract import Embedder
from heedful.models.embedding import space_of
from heedful.store import search

Rows = Sequence[Mapping[str, Any]]
Scores = tuple[list[float], list[float]]  # of known questions, of new ones


def run(data: Path, split: str) -> Iterator[Row]:
    """Yield both sets with meanings, and the second by words alone."""
    yield from asyncio.run(measure(data, split))


async def measure(data: Path, split: str) -> list[Row]:
    """Return the rows of both sets; the baselines are the share of equal words."""
    embedder = open_embedder()
    mistakes = group_by(read(data, "mistake_retrieval_hotpot", split), "pair")
    (known_scores, new_scores), (near, far) = await score_questions(mistakes, embedder)
    plain_known, plain_new = score_by_words(mistakes)
    talks = group_by(read(data, "locomo", split), "conv")
    both = await recall_turns(talks, embedder)
    words = await recall_turns(talks, None)
    jaccard_recall = mean(
        recall5(jaccard(talk, row), row) for talk, row in questions(talks)
    )
    anchor = "MiniLM + BM25, threshold fitted on the same half: .87"
    return [
        Row(
            key="recall.seen.recall",
            ours=share(known_scores),
            baseline=share(plain_known, 0.7),
            anchor=anchor,
        ),
        Row(
            key="recall.seen.false",
            ours=share(new_scores),
            baseline=share(plain_new, 0.7),
        ),
        Row(
            key="recall.seen.auroc",
            ours=auroc(near, far),
            baseline=auroc(plain_known, plain_new),
        ),
        Row(
            key="locomo.recall5",
            ours=both,
            baseline=jaccard_recall,
            anchor="MiniLM + BM25 with speaker and turn before: .596",
        ),
        Row(
            key="locomo.recall5_keyword",
            ours=words,
            baseline=jaccard_recall,
            anchor="BM25 .52",
        ),
    ]


async def score_questions(
    pairs: Mapping[str, Rows], embedder: Embedder
) -> tuple[Scores, Scores]:
    """Return scores of known and of new questions: recalled, and before the gate.

    The score of a question is the relevance of its best result, 0 without a result.
    """
    recalled: Scores = [], []
    searched: Scores = [], []
    async for _, row, memory in ask_pairs(pairs, embedder):
        is_new = not row["relevant"]
        text = question(row)
        recalled[is_new].append(best_relevance(await memory.recall(text)))
        matches = await search_memory(memory, text, embedder)
        searched[is_new].append(best_relevance(matches))
    return recalled, searched


async def ask_pairs(
    pairs: Mapping[str, Rows], embedder: Embedder
) -> AsyncIterator[tuple[str, Mapping[str, Any], heedful.Memory]]:
    """Yield each question with the name of its pair and the memory of its pair."""
    for name, rows in pairs.items():
        memory = heedful.Memory(":memory:", heedful.Scope(project=name), embedder)
        for row in rows:
            if row["kind"] == "memory":
                await memory.remember(row["id"], row["text"])
        for row in rows:
            if row["kind"] == "query":
                yield name, row, memory
        await memory.store.close()


async def search_memory(
    memory: heedful.Memory, text: str, embedder: Embedder
) -> list[Match]:
    """Return the 50 best results for a text, before the gate of recall."""
    (vector,) = await embedder.embed([text])
    return await memory.store.read(
        memory.scope,
        search.search,
        text,
        space=space_of(embedder),
        vector=vector,
        limit=50,
    )


def best_relevance(matches: Sequence[Match]) -> float:
    """Return the relevance of the best of them, 0 of none."""
    return max((match.relevance for match in matches), default=0.0)


def score_by_words(pairs: Mapping[str, Rows]) -> Scores:
    """Return the scores of the baseline: how alike the words of the best lesson are."""
    known_scores: list[float] = []
    new_scores: list[float] = []
    for rows in pairs.values():
        lessons = [row["text"] for row in rows if row["kind"] == "memory"]
        for row in rows:
            if row["kind"] == "query":
                score = max(alike(question(row), lesson) for lesson in lessons)
                (known_scores if row["relevant"] else new_scores).append(score)
    return known_scores, new_scores


def question(row: Mapping[str, Any]) -> str:
    """Return what is asked of memory: the question and the answer that was tried."""
    return f"{row['question']}\n{row['answer']}"


async def recall_turns(talks: Mapping[str, Rows], embedder: Embedder | None) -> float:
    """Return the mean recall@5 of turns that are kept with the turn before."""
    memories = {}
    for name, rows in talks.items():
        memory = heedful.Memory(":memory:", heedful.Scope(project=name), embedder)
        spoken_turns = [row for row in rows if row["kind"] == "turn"]
        for before, row in pairwise([{"session": None}, *spoken_turns]):
            context = spoken(before) if before["session"] == row["session"] else ""
            await memory.remember(row["id"], spoken(row), context=context)
        memories[name] = memory
    scores = []
    for _, question_row in questions(talks):
        matches = await memories[question_row["conv"]].recall(
            question_row["question"], 5
        )
        ids = [match.error_type for match in matches]
        scores.append(recall5(ids, question_row))
    for memory in memories.values():
        await memory.store.close()
    return mean(scores)


def questions(talks: Mapping[str, Rows]) -> Iterator[tuple[Rows, Mapping[str, Any]]]:
    """Yield each question that has evidence, with the turns of its conversation."""
    for rows in talks.values():
        conversation = [row for row in rows if row["kind"] == "turn"]
        turn_ids = {row["id"] for row in conversation}
        for row in rows:
            is_question = row["kind"] == "qa" and row["category"] in range(1, 5)
            if is_question and turn_ids.intersection(row["evidence"]):
                yield conversation, row


def spoken(turn: Mapping[str, Any]) -> str:
    """Return who said what."""
    return f"{turn['speaker']}: {turn['text']}"


def recall5(ranked_ids: Sequence[str], question_row: Mapping[str, Any]) -> float:
    """Return the share of the evidence that is among the first five."""
    evidence = set(question_row["evidence"])
    return len(evidence.intersection(ranked_ids[:5])) / len(evidence)


def jaccard(conversation: Rows, question_row: Mapping[str, Any]) -> list[str]:
    """Return the ids of the five turns that share most words with the question."""
    near = sorted(
        conversation, key=lambda row: -alike(spoken(row), question_row["question"])
    )
    return [row["id"] for row in near[:5]]


def alike(text: str, other: str) -> float:
    """Return the share of the words of both that both have."""
    a = words(text)
    b = words(other)
    return len(a & b) / len(a | b)


@cache
def words(text: str) -> frozenset[str]:
    """Return the words of a text in lower case."""
    return frozenset(re.findall(r"\w+", text.lower()))


def share(scores: Sequence[float], least: float = 1e-9) -> float:
    """Return the share of the scores that are at least so high."""
    return mean(score >= least for score in scores)


def auroc(known: Sequence[float], new: Sequence[float]) -> float:
    """Return how often a known question scores above a new one; a tie counts half."""
    signs = np.sign(np.subtract.outer(known, new))
    return float((1 + signs.mean()) / 2)


def group_by(
    rows: Iterator[dict[str, Any]], key: str
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each value of `key`, in order."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row[key]].append(row)
    return groups
