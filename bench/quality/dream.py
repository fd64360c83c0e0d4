"""Dreaming: fewer recorded reflections, no worse recall, and a rollback restores
all.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any, NamedTuple

import heedful
from bench.quality.attacks import Remembering
from bench.quality.rows import Row, read
from heedful.lessons.consolidate import DreamLesson, near_vectors
from heedful.lessons.lesson import Trust
from heedful.memory.dream import WORSE_RECALL_OUTCOME
from heedful.memory.vectors import space_of
from heedful.models import open_embedder
from heedful.store import dreams

HELD = 500  # of the queries that no lesson holds, so many of each set
SENTENCE = re.compile(r"[^.!?\n]*[.!?\n]?")
NEGATION = re.compile(
    r"\b(?:no|not|never|none|nor|neither|without|cannot|nothing|nobody)\b|n['’]t\b"
)


class Known(NamedTuple):
    """A recorded reflection, and queries that should find it and are not stored."""

    about: str
    text: str
    trust: Trust
    asked: tuple[str, ...] = ()


def run(data: Path, split: str) -> Iterator[Row]:
    """Measured on a database in memory, with meanings; the baseline merges by cosine
    alone.
    """
    yield from asyncio.run(measured(list(recorded(data, split))))


def recorded(data: Path, split: str) -> Iterator[Known]:
    """Reflections of agents on failures, messages of tests, and remarks of people."""
    yield from reflected(data, split)
    yield from tested(data, split)
    for row in read(data, "whowhen", split):
        yield Known("agents", row["mistake_reason"], "operator")
    yield from marked(data, split)


def reflected(data: Path, split: str) -> Iterator[Known]:
    """What agents wrote; a question with an answer that was tried should find it."""
    tried: dict[str, list[str]] = defaultdict(list)
    said: dict[str, list[str]] = defaultdict(list)
    for row in read(data, "episodes_hotpotqa", split):
        for one in row["attempts"]:
            tried[row["task"]].append(f"{row['task']}\n{one['final_answer']}")
            said[row["task"]] += filter(None, [one["reflection"]])
    for task, texts in said.items():
        yield from (
            Known(about="question", text=text, trust="model", asked=tuple(tried[task]))
            for text in texts
        )
    for row in read(data, "attacks", split):
        if row["label"] == "benign" and row["kind"] != "question":
            yield Known(
                about=row["kind"],
                text=row["text"],
                trust="model",
                asked=tuple(filter(None, [row.get("task")])),
            )


def tested(data: Path, split: str) -> Iterator[Known]:
    """Messages of tests; the same failures with other actual values should find
    them.
    """
    groups: dict[str, dict[str, None]] = defaultdict(dict)
    for row in read(data, "agent_failure_signatures", split):
        groups[row["group"]][row["feedback"]] = None
    for texts in map(list, groups.values()):
        yield Known(
            about="tests", text=texts[0], trust="measured", asked=tuple(texts[1:])
        )
    for row in read(data, "episodes_code_ldb", split):
        for one in row["attempts"]:
            if one["error"]:
                yield Known(one["error_type"], one["error"], "measured")


def marked(data: Path, split: str) -> Iterator[Known]:
    """A sentence and what a person marked in it; the sentence alone should find
    that.
    """
    for row in read(data, "grounding_accuracy_shared_task", split):
        words = row["response"].split()
        for start, end, kind, text, right in row["spans"]:
            before = max((n for n in range(start) if words[n] in ".!?"), default=-1)
            after = next(
                (n for n in range(end, len(words)) if words[n] in ".!?"), len(words)
            )
            sentence = " ".join(words[before + 1 : after + 1])
            better = f", it is {right!r}" if right else ""
            yield Known(
                about="report",
                text=f"{kind}: {text!r}{better}. {sentence}",
                trust="operator",
                asked=(sentence,),
            )
    for row in read(data, "grounding_quintd1", split):
        for start, _, kind, text in row["spans"]:
            spans = (
                m
                for m in SENTENCE.finditer(row["response"])
                if m.start() <= start < m.end()
            )
            sentence = next(spans)[0].strip()
            yield Known(
                about="data",
                text=f"{kind}: {text!r}. {sentence}",
                trust="operator",
                asked=(sentence,),
            )


async def measured(known: Sequence[Known]) -> list[Row]:
    """The figures. Raises SystemExit where a dream cannot be taken back exactly."""
    memory = heedful.Memory(":memory:", embedder=Remembering(open_embedder()))
    ids = {
        one: (await memory.remember(one.about, one.text, trust=one.trust)).id
        for one in known
    }
    wanted = queries(known, ids)
    before = await recalled(memory, wanted)
    places = await memory.store.read(
        memory.scope, dreams.material, space_of(memory.embedder)
    )
    lessons = {lesson.id: lesson for lesson, _ in places}
    plain = await merged_by_cosine(memory, places)
    naive = await recalled(memory, wanted)
    await heedful.Dreams(memory).rollback(plain.id, by="bench")
    began = perf_counter()
    dream = await heedful.consolidate(memory)
    seconds = perf_counter() - began
    after = await recalled(memory, wanted)
    await heedful.Dreams(memory).rollback(dream.id, by="bench")
    if await recalled(memory, wanted) != before or await states(memory) != set(lessons):
        raise SystemExit("after the rollback recall is not what it was")
    await memory.store.close()
    found = score(before, wanted, {})
    ours, theirs = (
        score(of, wanted, became(by)) for of, by in ((after, dream), (naive, plain))
    )
    return [
        Row(key="dream.recorded", ours=len({one.text for one in known})),
        Row(key="dream.lessons_before", ours=dream.before, baseline=plain.before),
        Row(key="dream.lessons_after", ours=dream.after, baseline=plain.after),
        Row(
            key="dream.merges_across",
            ours=across(dream, lessons),
            baseline=across(plain, lessons),
        ),
        Row(
            key="dream.recall", ours=ours, baseline=theirs, anchor=f"{found:.3f} before"
        ),
        Row(key="dream.recall_change", ours=ours - found, baseline=theirs - found),
        Row(key="dream.vetoed", ours=sum(dream.vetoes.values())),
        Row(
            key="dream.dropped",
            ours=sum(one.outcome == WORSE_RECALL_OUTCOME for one in dream.proposals),
        ),
        Row(key="dream.seconds", ours=seconds),
    ]


def queries(known: Sequence[Known], ids: Mapping[Known, int]) -> dict[str, set[int]]:
    """Queries that are no stored text, with the lessons each should find; as many of
    each kind.
    """
    stored = {one.text for one in known}
    found = defaultdict[str, dict[str, set[int]]](dict)
    for one in known:
        for query in one.asked:
            if query not in stored:
                found[one.about].setdefault(query, set()).add(ids[one])
    return {
        query: wanted
        for those in found.values()
        for query, wanted in list(those.items())[:: max(1, len(those) // HELD)][:HELD]
    }


async def recalled(
    memory: heedful.Memory, wanted: Mapping[str, set[int]]
) -> dict[str, list[tuple[int, float | None, float]]]:
    """What each query finds: the first five, by lesson, cosine and coverage."""
    found = {}
    for query in wanted:
        best = await memory.recall(query, 5)
        found[query] = [(one.lesson_id, one.cosine, one.coverage) for one in best]
    return found


def score(
    found: Mapping[str, Sequence[tuple[int, float | None, float]]],
    wanted: Mapping[str, set[int]],
    became: Mapping[int, int],
) -> float:
    """Mean recall@5: the share of what is wanted that is there, or what took its
    place.
    """
    return mean(
        mean(became.get(id, id) in {one for one, *_ in found[query]} for id in ids)
        for query, ids in wanted.items()
    )


def became(dream: heedful.Dream) -> dict[int, int]:
    """What took the place of each lesson."""
    return {id: one.survivor for one in dream.done for id in one.members}


def across(dream: heedful.Dream, lessons: Mapping[int, DreamLesson]) -> int:
    """Count merges across digits, negations or trust, with checks of this module."""
    return sum(
        told(lessons[id]) != told(lessons[into]) for id, into in became(dream).items()
    )


def told(lesson: DreamLesson) -> tuple[Counter[str], Counter[str], str]:
    """Its numbers, its negations and its trust."""
    text = lesson.text.lower()
    numbers = re.findall(r"\d+(?:[.,]\d+)*", text)
    return Counter(numbers), Counter(NEGATION.findall(text)), lesson.trust


async def merged_by_cosine(
    memory: heedful.Memory, places: Sequence[tuple[DreamLesson, Any]]
) -> heedful.Dream:
    """The baseline: merge every lesson into an earlier one with a cosine of 0.85."""
    near: dict[int, list[int]] = defaultdict(list)
    for a, b in near_vectors([vector for _, vector in places], 0.85):
        near[a].append(b)
    gone: set[int] = set()
    proposals = []
    for first in sorted(near):
        members = (
            [at for at in near[first] if at not in gone] if first not in gone else []
        )
        if members:
            gone |= {first, *members}
            ids = tuple(places[at][0].id for at in members)
            proposals.append(
                heedful.Proposal("merge", ids, survivor=places[first][0].id)
            )
    lessons = {lesson.id: lesson for lesson, _ in places}
    report = {"mode": "lite", "before": len(places), "queries": 0}
    report |= {"vetoes": {}, "found": ""}
    id, _ = await memory.store.write(
        memory.scope, dreams.supersede, report, proposals, lessons, "bench"
    )
    return await heedful.Dreams(memory).show(id)


async def states(memory: heedful.Memory) -> set[int]:
    """The lessons that may be recalled."""
    return {
        lesson.id
        for lesson, _ in await memory.store.read(memory.scope, dreams.material, "")
    }
