"""Recall: is a question known or new, and which turns of a conversation answer it."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import heedful
from bench.quality.rows import Row, read
from heedful.lessons.lesson import Match
from heedful.memory.vectors import space_of
from heedful.models import open_embedder
from heedful.models.contract import Embedder
from heedful.store import search

Rows = Sequence[Mapping[str, Any]]
Scores = tuple[list[float], list[float]]  # of known questions, of new ones


def run(data: Path, split: str) -> Iterator[Row]:
    """Both sets with meanings, and the second by words alone."""
    yield from asyncio.run(measured(data, split))


async def measured(data: Path, split: str) -> list[Row]:
    """The rows of both sets; the baseline of each is the share of equal words
    (Jaccard).
    """
    embedder = open_embedder()
    mistakes = by(read(data, "mistake_retrieval_hotpot", split), "pair")
    (known, new), (near, far) = await seen(mistakes, embedder)
    plain_known, plain_new = best_alike(mistakes)
    talks = by(read(data, "locomo", split), "conv")
    both = await turns(talks, embedder)
    words = await turns(talks, None)
    plain = mean(
        recall5(jaccard(talk, asked), asked) for talk, asked in questions(talks)
    )
    anchor = "MiniLM + BM25, threshold fitted on the same half: .87"
    return [
        Row(
            key="recall.seen.recall",
            ours=share(known),
            baseline=share(plain_known, 0.7),
            anchor=anchor,
        ),
        Row(key="recall.seen.false", ours=share(new), baseline=share(plain_new, 0.7)),
        Row(
            key="recall.seen.auroc",
            ours=auroc(near, far),
            baseline=auroc(plain_known, plain_new),
        ),
        Row(
            key="locomo.recall5",
            ours=both,
            baseline=plain,
            anchor="MiniLM + BM25 with speaker and turn before: .596",
        ),
        Row(
            key="locomo.recall5_keyword", ours=words, baseline=plain, anchor="BM25 .52"
        ),
    ]


async def seen(pairs: Mapping[str, Rows], embedder: Embedder) -> tuple[Scores, Scores]:
    """The scores of known and of new questions: recalled, and before the gate.

    The score of a question is the relevance of its best result, 0 without a result.
    """
    recalled: Scores = [], []
    searched: Scores = [], []
    for name, rows in pairs.items():
        memory = heedful.Memory(":memory:", heedful.Scope(project=name), embedder)
        for row in rows:
            if row["kind"] == "memory":
                await memory.remember(row["id"], row["text"])
        for row in rows:
            if row["kind"] == "query":
                new = not row["relevant"]
                asked = question(row)
                recalled[new].append(best(await memory.recall(asked)))
                (vector,) = await embedder.embed([asked])
                space = space_of(embedder)
                found = await memory.store.read(
                    memory.scope, search.search, asked, space, vector, 50
                )
                searched[new].append(best(found))
        await memory.store.close()
    return recalled, searched


def best(found: Sequence[Match]) -> float:
    """The relevance of the best of them, 0 of none."""
    return max((one.relevance for one in found), default=0.0)


def best_alike(pairs: Mapping[str, Rows]) -> Scores:
    """The same of the baseline: how alike the words of the most alike lesson are."""
    known: list[float] = []
    new: list[float] = []
    for rows in pairs.values():
        lessons = [row["text"] for row in rows if row["kind"] == "memory"]
        for row in rows:
            if row["kind"] == "query":
                score = max(alike(question(row), lesson) for lesson in lessons)
                (known if row["relevant"] else new).append(score)
    return known, new


def question(row: Mapping[str, Any]) -> str:
    """What is asked of memory: the question and the answer that was tried."""
    return f"{row['question']}\n{row['answer']}"


async def turns(talks: Mapping[str, Rows], embedder: Embedder | None) -> float:
    """Mean recall@5; a turn is kept as who said what, with the turn before as its
    context.
    """
    memories = {}
    for name, rows in talks.items():
        memory = heedful.Memory(":memory:", heedful.Scope(project=name), embedder)
        said = [row for row in rows if row["kind"] == "turn"]
        for before, row in pairwise([{"session": None}, *said]):
            context = spoken(before) if before["session"] == row["session"] else ""
            await memory.remember(row["id"], spoken(row), context=context)
        memories[name] = memory
    scores = []
    for _, asked in questions(talks):
        found = await memories[asked["conv"]].recall(asked["question"], 5)
        scores.append(recall5(ids(found), asked))
    for memory in memories.values():
        await memory.store.close()
    return mean(scores)


def questions(talks: Mapping[str, Rows]) -> Iterator[tuple[Rows, Mapping[str, Any]]]:
    """Each question of categories 1 to 4 that has evidence, with the turns of its
    conversation.
    """
    for rows in talks.values():
        said = [row for row in rows if row["kind"] == "turn"]
        known = {row["id"] for row in said}
        for row in rows:
            asked = row["kind"] == "qa" and row["category"] in range(1, 5)
            if asked and known.intersection(row["evidence"]):
                yield said, row


def spoken(turn: Mapping[str, Any]) -> str:
    """Who said what."""
    return f"{turn['speaker']}: {turn['text']}"


def ids(found: Sequence[Match]) -> list[str]:
    """The ids under which they were remembered."""
    return [one.error_type for one in found]


def recall5(found: Sequence[str], asked: Mapping[str, Any]) -> float:
    """The share of the evidence that is among the first five."""
    evidence = set(asked["evidence"])
    return len(evidence.intersection(found[:5])) / len(evidence)


def jaccard(said: Rows, asked: Mapping[str, Any]) -> list[str]:
    """The ids of the five turns that share most words with the question."""
    near = sorted(said, key=lambda row: -alike(spoken(row), asked["question"]))
    return [row["id"] for row in near[:5]]


def alike(one: str, other: str) -> float:
    """The share of the words of both that both have."""
    a = words(one)
    b = words(other)
    return len(a & b) / len(a | b)


@cache
def words(text: str) -> frozenset[str]:
    """The words of a text in lower case."""
    return frozenset(re.findall(r"\w+", text.lower()))


def share(scores: Sequence[float], least: float = 1e-9) -> float:
    """The share of the scores that are at least so high."""
    return mean(score >= least for score in scores)


def auroc(known: Sequence[float], new: Sequence[float]) -> float:
    """How often a known question scores above a new one; a tie counts half."""
    return mean((k > n) + (k == n) / 2 for k in known for n in new)


def by(rows: Iterator[dict[str, Any]], key: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of each value of `key`, in order."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row[key]].append(row)
    return found
