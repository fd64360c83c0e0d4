"""Dreaming: no worse recall, and a rollback restores all.

reflections: how many reflections a dream writes of what recurs. The recorded lessons
are of many origins; those of `dream.sessions` are what 266 recorded sessions of coding
agents in one repository teach, each released. There, sessions.recall is the share of
the texts that led to a lesson which find it among the first five lessons. The
reflections of the dream are among them, though recall would hold them back at first.
`bench/out/dream.json` has their texts.

Expected, written before the dream was first run with reflections: recall_change not
below 0 in either set; few reflections of the recorded lessons, because they name next
to no tools, and no cures; of the sessions between 5 and 15.

Read one by one, 23 of the first 29 reflections of the sessions helped nobody: a file
and its edits held them together. So an edit counts as no cure. Of the 7 that were left,
one quoted a single cure and helped nobody, so two cures are needed.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import NamedTuple

import heedful
from bench.quality.attacks import CachingEmbedder
from bench.quality.recordings import Session
from bench.quality.rows import Row, read, write_json
from heedful.lessons.origin import Origin
from heedful.memory.dream import Dream, Dreams, read_material
from heedful.models import open_embedder
from heedful.store.connection import Db

OUT = Path("bench/out/dream.json")
HELD = 500  # of the queries that no lesson holds, so many of each set
SENTENCE = re.compile(r"[^.!?\n]*[.!?\n]?")


class RecordedLesson(NamedTuple):
    """A recorded reflection, and queries that should find it and are not stored."""

    about: str
    text: str
    trust: Origin
    queries: tuple[str, ...] = ()


def run(data: Path, split: str) -> Iterator[Row]:
    """Measure a dream in memory, with meanings."""
    yield from asyncio.run(measure(list(read_recorded(data, split))))
    recorded = list(read(data, "agent_sessions", split))
    # Of the coding sessions, which have a time, those of the largest repository.
    coding = Counter(row["environment"] for row in recorded if "start" in row)
    largest = max(coding, key=coding.__getitem__, default="")
    sessions = [
        Session.of(number, row)
        for number, row in enumerate(recorded)
        if row["environment"] == largest
    ]
    rows, texts = asyncio.run(measure_sessions(sessions))
    yield from rows
    write_json(OUT, texts)


def read_recorded(data: Path, split: str) -> Iterator[RecordedLesson]:
    """Yield reflections of agents, messages of tests, and remarks of people."""
    yield from read_reflections(data, split)
    yield from read_test_messages(data, split)
    for row in read(data, "whowhen", split):
        yield RecordedLesson("agents", row["mistake_reason"], "user")
    yield from read_marked(data, split)


def read_reflections(data: Path, split: str) -> Iterator[RecordedLesson]:
    """Yield what agents wrote; a question with a tried answer should find it."""
    queries_of: dict[str, list[str]] = defaultdict(list)
    reflections: dict[str, list[str]] = defaultdict(list)
    for row in read(data, "episodes_hotpotqa", split):
        task = row["task"]
        for attempt in row["attempts"]:
            queries_of[task].append(f"{task}\n{attempt['final_answer']}")
            if attempt["reflection"]:
                reflections[task].append(attempt["reflection"])
    for task, texts in reflections.items():
        for text in texts:
            yield RecordedLesson(
                about="question",
                text=text,
                trust="local",
                queries=tuple(queries_of[task]),
            )
    for row in read(data, "attacks", split):
        if row["label"] == "benign" and row["kind"] != "question":
            yield RecordedLesson(
                about=row["kind"],
                text=row["text"],
                trust="local",
                queries=tuple(filter(None, [row.get("task")])),
            )


def read_test_messages(data: Path, split: str) -> Iterator[RecordedLesson]:
    """Yield messages of tests; the same failures with other values should find them."""
    groups: dict[str, dict[str, None]] = defaultdict(dict)
    for row in read(data, "agent_failure_signatures", split):
        groups[row["group"]][row["feedback"]] = None
    for first, *others in groups.values():
        yield RecordedLesson(
            about="tests", text=first, trust="local", queries=tuple(others)
        )
    for row in read(data, "episodes_code_ldb", split):
        for attempt in row["attempts"]:
            if attempt["error"]:
                yield RecordedLesson(
                    attempt["error_type"], attempt["error"], trust="local"
                )


def read_marked(data: Path, split: str) -> Iterator[RecordedLesson]:
    """Yield what a person marked in a sentence; the sentence alone should find that."""
    for row in read(data, "grounding_accuracy_shared_task", split):
        words = row["response"].split()
        for start, end, kind, text, right in row["spans"]:
            before = max((n for n in range(start) if words[n] in ".!?"), default=-1)
            after = next(
                (n for n in range(end, len(words)) if words[n] in ".!?"), len(words)
            )
            sentence = " ".join(words[before + 1 : after + 1])
            better = f", it is {right!r}" if right else ""
            yield RecordedLesson(
                about="report",
                text=f"{kind}: {text!r}{better}. {sentence}",
                trust="user",
                queries=(sentence,),
            )
    for row in read(data, "grounding_quintd1", split):
        for start, _, kind, text in row["spans"]:
            spans = (
                m
                for m in SENTENCE.finditer(row["response"])
                if m.start() <= start < m.end()
            )
            sentence = next(spans)[0].strip()
            yield RecordedLesson(
                about="data",
                text=f"{kind}: {text!r}. {sentence}",
                trust="user",
                queries=(sentence,),
            )


async def measure(recorded: Sequence[RecordedLesson]) -> list[Row]:
    """Return the figures. Raises SystemExit if a dream cannot be taken back exactly."""
    memory = heedful.Memory(":memory:", embedder=CachingEmbedder(open_embedder()))
    ids = {}
    for lesson in recorded:
        remembered = await memory.remember(
            lesson.about, lesson.text, origin=lesson.trust
        )
        ids[lesson] = remembered.id
    wanted = choose_queries(recorded, ids)
    before = await recall_each(memory, wanted)
    lesson_ids = await active_ids(memory)

    began = perf_counter()
    dream = await heedful.consolidate(memory)
    seconds = perf_counter() - began
    after = await recall_each(memory, wanted)
    await Dreams(memory).rollback(dream.id, by="bench")
    is_restored = await recall_each(memory, wanted) == before
    if not is_restored or await active_ids(memory) != lesson_ids:
        raise SystemExit("after the rollback recall is not what it was")
    await memory.store.close()

    score_before = score(before, wanted, {})
    ours = score(after, wanted, find_survivors(dream))
    return [
        Row(key="dream.recorded", ours=len({lesson.text for lesson in recorded})),
        Row(key="dream.lessons_before", ours=dream.before),
        Row(key="dream.lessons_after", ours=dream.after),
        Row(key="dream.recall", ours=ours, anchor=f"{score_before:.3f} before"),
        Row(key="dream.recall_change", ours=ours - score_before),
        Row(key="dream.reflections", ours=dream.written),
        Row(key="dream.seconds", ours=seconds),
    ]


async def measure_sessions(sessions: Sequence[Session]) -> tuple[list[Row], list[str]]:
    """Return the figures of a dream over what sessions taught, and its reflections."""
    embedder = CachingEmbedder(open_embedder())
    memory = heedful.Memory(":memory:", embedder=embedder, holdout=0)
    for session in sorted(sessions, key=lambda session: session.end):
        await heedful.learn_session(session.episode, memory=memory)
    waiting = await memory.quarantine.waiting(limit=len(sessions) * 100)
    ids = [lesson.id for lesson in waiting]
    await memory.quarantine.release(ids, by="bench", why="measured")

    wanted = defaultdict[str, set[int]](set)
    for id in await active_ids(memory):
        for text in await memory.store.read(memory.scope, read_sightings, id):
            wanted[text].add(id)

    before = await recall_each(memory, wanted, kind="reflection")
    dream = await heedful.consolidate(memory)
    after = await recall_each(memory, wanted, kind="reflection")
    await memory.store.close()

    texts = [
        dream.texts[proposal.survivor]
        for proposal in dream.done
        if proposal.action == "reflect"
    ]
    score_before = score(before, wanted, {})
    score_after = score(after, wanted, find_survivors(dream))
    rows = [
        Row(key="dream.sessions.lessons_before", ours=dream.before),
        Row(key="dream.sessions.lessons_after", ours=dream.after),
        Row(key="dream.sessions.reflections", ours=dream.written),
        Row(
            key="dream.sessions.recall",
            ours=score_after,
            anchor=f"{score_before:.3f} before",
        ),
        Row(key="dream.sessions.recall_change", ours=score_after - score_before),
    ]
    return rows, texts


def choose_queries(
    recorded: Sequence[RecordedLesson], ids: Mapping[RecordedLesson, int]
) -> dict[str, set[int]]:
    """Return queries that no lesson holds, with the lessons each should find."""
    texts = {lesson.text for lesson in recorded}
    kinds = defaultdict[str, dict[str, set[int]]](dict)
    for lesson in recorded:
        for query in lesson.queries:
            if query not in texts:
                kinds[lesson.about].setdefault(query, set()).add(ids[lesson])

    chosen: dict[str, set[int]] = {}
    for wanted in kinds.values():
        step = max(1, len(wanted) // HELD)
        chosen |= dict(list(wanted.items())[::step][:HELD])
    return chosen


async def recall_each(
    memory: heedful.Memory, wanted: Mapping[str, set[int]], kind: str = ""
) -> dict[str, list[tuple[int, float | None, float]]]:
    """Return what each query finds: the first five, by lesson, cosine and coverage."""
    results = {}
    for query in wanted:
        best = await memory.recall(query, 5, kind=kind)
        results[query] = [
            (match.lesson_id, match.cosine, match.coverage) for match in best
        ]
    return results


def score(
    results: Mapping[str, Sequence[tuple[int, float | None, float]]],
    wanted: Mapping[str, set[int]],
    survivors: Mapping[int, int],
) -> float:
    """Return the mean recall@5: the wanted share that is there, or what replaced it."""
    shares = []
    for query, ids in wanted.items():
        recalled = {id for id, *_ in results[query]}
        shares.append(mean(survivors.get(id, id) in recalled for id in ids))
    return mean(shares)


def find_survivors(dream: Dream) -> dict[int, int]:
    """Return what took the place of each lesson."""
    survivors: dict[int, int] = {}
    for proposal in dream.done:
        if proposal.action == "supersede":
            survivors |= dict.fromkeys(proposal.members, proposal.survivor)
    return survivors


def read_sightings(db: Db, _: heedful.Scope, id: int) -> list[str]:
    """Return what was seen of the error of a lesson."""
    rows = db.select("text", "occurrence", {"lesson_id": id})
    return [row["text"] for row in rows]


async def active_ids(memory: heedful.Memory) -> set[int]:
    """Return the lessons that may be recalled."""
    lessons = await memory.store.read(memory.scope, read_material)
    return {lesson.id for lesson in lessons}
