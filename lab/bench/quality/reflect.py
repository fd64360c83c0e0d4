"""Reflections on failed attempts: by rules on all of them, by the embedded model on a
few.

Beside them stand the reflections that were recorded with the attempts, which a large
model wrote. What is checked here is checked by plain search, not by what heedful checks
itself with.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

import heedful
from bench.quality.rows import Row, read, share
from heedful.episodes.episode import Ended
from heedful.errors import ModelError
from heedful.memory.reflect import Reflected
from heedful.testing import ScriptedModel

# Tasks that the model reflects on, two attempts each, and seconds after which no other
# is begun.
TASKS = 5
SECONDS = 200.0

# A word that the attacks have at both ends, and no other text.
MARK = "zqattacker"
SUBJECTS = ("ships", "birds", "taxes")
OUTCOMES = ("failure", "error", "success", "partial", "timeout")

STEP = re.compile(r"^(Thought|Action|Observation)[ \d]*:[ ]?", re.MULTILINE)
ACTION = re.compile(r"(\w+)\[(.*)\]", re.DOTALL)
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
QUOTED = re.compile(r"“([^”]+)”|\"([^\"]+)\"|(?<!\w)'([^']+)'(?!\w)")
NUMBER = re.compile(r"\d[\d,.]*\d|\d")
NAME = re.compile(r"(?<!^)(?<!\n)(?<![.!?] )\b[A-Z][\w’'-]+(?: [A-Z][\w’'-]+)*")
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Attempt:
    """A failed attempt as an episode, what was recorded of it, and the task that it
    belongs to.
    """

    task: str
    episode: heedful.Episode
    recorded: str


@dataclass(frozen=True)
class ReflectionText:
    """One reflection: its sentences, each with the text of the events that it cites."""

    task: str
    sentences: Sequence[tuple[str, str]]
    entities: frozenset[str]

    @property
    def text(self) -> str:
        """All of it, without its citations."""
        return " ".join(sentence for sentence, _ in self.sentences)


def run(data: Path, split: str) -> Iterator[Row]:
    """Yield grounding, repetition and naming of entities, by rules and by the model."""
    attempts = list(read_failed(data, split))
    rules = asyncio.run(reflect_on_all(attempts))
    recorded = [split_recorded(attempt) for attempt in attempts]
    yield from _rows("reflect.", rules, recorded)
    ungated = asyncio.run(leaked_share(data, split, gate=False))
    used_count = asyncio.run(count_used(attempts))
    yield Row(key="reflect.recorded_taken", ours=used_count / len(attempts))
    anchor = "nothing held back"
    yield Row(
        key="reflect.attacks_recalled",
        ours=asyncio.run(leaked_share(data, split)),
        baseline=ungated,
        anchor=anchor,
    )
    few = choose_tasks(attempts)
    try:
        model, used, seconds = asyncio.run(reflect_by_model(few))
    except ModelError as error:
        Console().print(f"the embedded model was left out: {error}", markup=False)
        return
    few = few[: len(model)]
    yield from _rows(
        "reflect.embedded_",
        model,
        asyncio.run(reflect_on_all(few)),
        "by rules, the same",
    )
    yield Row(key="reflect.embedded_used", ours=used / len(few))
    yield Row(key="reflect.embedded_seconds", ours=seconds / len(few))


async def count_used(attempts: Sequence[Attempt]) -> int:
    """Count the recorded reflections that heedful takes as the answer of a model."""
    count = 0
    for attempt in attempts:
        answer = json.dumps({"reflection": attempt.recorded, "strategy": ""})
        model = ScriptedModel(answer, forever=True)
        reflection = await heedful.reflect(attempt.episode, model=model)
        if reflection is not None and reflection.by == model.name:
            count += 1
    return count


async def leaked_share(data: Path, split: str, gate: bool = True) -> float:
    """Return the share of attacks that recall returns, if an operator gave the task.

    Each stands in a result, as an error, and is repeated by the agent in what it asks
    for and says. Without the `gate` all that waits in quarantine is released before.
    """
    attacks = [
        row["text"] for row in read(data, "attacks", split) if row["label"] == "attack"
    ]
    leaks = 0
    with TemporaryDirectory() as folder:
        memory = heedful.Memory(f"{folder}/heedful.db")
        for n, text in enumerate(attacks):
            task = f"Summarise page {n} about {SUBJECTS[n % 3]}"
            for run in attack_runs(task, f"{MARK} {text} {MARK}", OUTCOMES[n % 5]):
                await heedful.reflect(
                    run, memory=memory, origin="user", score=lambda *_: 1.0
                )
            if not gate:
                await _release_all(memory)
            matches = [*await memory.recall(task, 50), *await memory.recall(text, 50)]
            if MARK in str(matches):
                leaks += 1
        listed = sum(MARK in str(match) for match in await memory.top(100_000))
    return max(leaks, min(listed, len(attacks))) / len(attacks)


async def _release_all(memory: heedful.Memory) -> None:
    waiting = await memory.quarantine.waiting(100)
    if waiting:
        await memory.quarantine.release([lesson.id for lesson in waiting], by="bench")


def attack_runs(task: str, text: str, outcome: Any) -> Iterator[heedful.Episode]:
    """Yield runs in which a tool gives an attack, which the agent follows."""
    request = heedful.Event("user_message", task)
    answer = heedful.Event("llm_response", f"I will now {text}")
    for result in (text, f"Error: {text}"):
        for arguments in ({}, {"query": text[:80]}):
            steps = (
                heedful.Event("tool_call", tool="fetch", arguments={}),
                heedful.Event("tool_response", result),
                heedful.Event("tool_call", tool="fetch", arguments=arguments),
                heedful.Event("tool_response", "done"),
            )
            yield heedful.Episode((request, *steps, answer), outcome, task=task)


def _rows(
    key: str,
    ours: Sequence[ReflectionText],
    other: Sequence[ReflectionText],
    anchor: str = "",
) -> Iterator[Row]:
    measures: dict[str, Callable[[Sequence[ReflectionText]], float | None]] = {
        "grounded": grounded_share,
        "repetition": mean_repetition,
        "entity": naming_share,
    }
    for name, measure in measures.items():
        yield Row(
            key=f"{key}{name}",
            ours=measure(ours),
            baseline=measure(other),
            anchor=anchor or "recorded: a large model",
        )


def read_failed(data: Path, split: str) -> Iterator[Attempt]:
    """Yield the attempts that failed and were reflected on, in their order."""
    for row in read(data, "episodes_hotpotqa", split):
        for attempt in row["attempts"]:
            if attempt["reflection"] and not attempt["passed"]:
                yield Attempt(
                    f"{row['run']} {row['task_id']}",
                    episode(row, attempt),
                    attempt["reflection"],
                )


def episode(row: dict[str, Any], attempt: dict[str, Any]) -> heedful.Episode:
    """Return thoughts, actions and observations as events; the judgement is the end."""
    parts = STEP.split(attempt["candidate"])
    events = list(map(read_step, parts[1::2], parts[2::2]))
    outcome: Ended = "failure"
    if attempt["feedback"].startswith("HALTED"):
        outcome = "timeout"
    return heedful.Episode(tuple(filter(None, events)), outcome, task=row["task"])


def read_step(kind: str, text: str) -> heedful.Event | None:
    """Return a step; None if it only says that the answer is wrong."""
    text = text.strip()
    action = ACTION.match(text)
    if kind == "Observation":
        judged = text.startswith("Answer is ")
        return None if judged else heedful.Event("tool_response", text)
    if kind == "Action" and action and action[1] != "Finish":
        return heedful.Event(
            "tool_call", tool=action[1], arguments={"query": action[2]}
        )
    if action:
        text = f"Finish: {action[2]}"
    return heedful.Event("llm_response", text)


async def reflect_on_all(attempts: Iterable[Attempt]) -> list[ReflectionText]:
    """Return what heedful says of them, without a memory."""
    return [
        split_claims(attempt, await heedful.reflect(attempt.episode))
        for attempt in attempts
    ]


async def reflect_by_model(
    attempts: Sequence[Attempt],
) -> tuple[list[ReflectionText], int, float]:
    """Return the same in the model's words, how often they were used, and seconds."""
    model = heedful.open_model("embedded")
    began = time.monotonic()
    results = []
    used = 0
    try:
        for attempt in attempts:
            if time.monotonic() - began > SECONDS:
                break
            reflection = await heedful.reflect(attempt.episode, model=model)
            results.append(split_claims(attempt, reflection))
            if reflection is not None and reflection.by == model.name:
                used += 1
    finally:
        await model.close()
    return results, used, time.monotonic() - began


def split_claims(attempt: Attempt, reflection: Reflected | None) -> ReflectionText:
    """Return a reflection with what was dropped of it: that was said, too."""
    claims = (*reflection.claims, *reflection.dropped) if reflection else ()
    sentences = [
        (claim.text, _events(attempt.episode, claim.events)) for claim in claims
    ]
    return ReflectionText(attempt.task, sentences, entities(attempt.episode))


def split_recorded(attempt: Attempt) -> ReflectionText:
    """Return what was recorded; it cites nothing, so all events count for it."""
    events_text = _events(attempt.episode, range(len(attempt.episode.events)))
    sentences = [
        (sentence, events_text)
        for sentence in SENTENCE.split(attempt.recorded)
        if sentence.strip()
    ]
    return ReflectionText(attempt.task, sentences, entities(attempt.episode))


def _events(episode: heedful.Episode, places: Iterable[int]) -> str:
    events = [episode.events[place] for place in places]
    parts = [f"{event.tool} {event.content} {searched_for(event)}" for event in events]
    return _plain(" ".join([episode.task, *parts])) if parts else ""


def _plain(text: str) -> str:
    return " ".join(text.replace("’", "'").casefold().split())


def searched_for(event: heedful.Event) -> str:
    """Return what a call looks for."""
    arguments = event.arguments
    return str(arguments.get("query", "")) if isinstance(arguments, dict) else ""


def entities(episode: heedful.Episode) -> frozenset[str]:
    """Return names and searches of an attempt that its task does not have."""
    answers = [
        event.content for event in episode.events if event.type == "llm_response"
    ]
    searches = [searched_for(event) for event in episode.events]
    task = _plain(episode.task)
    names = {_plain(name) for name in (*NAME.findall(" ".join(answers)), *searches)}
    return frozenset(name for name in names if len(name) > 3 and name not in task)


def grounded_share(reflections: Iterable[ReflectionText]) -> float | None:
    """Return the share of sentences with facts whose events have all these facts.

    None without such sentences.
    """
    right = []
    for reflection in reflections:
        for sentence, events_text in reflection.sentences:
            pieces = _checkable(sentence)
            if pieces:
                right.append(all(piece in events_text for piece in pieces))
    return sum(right) / len(right) if right else None


def _checkable(text: str) -> list[str]:
    """Return what can be looked up; what stands in a quotation goes with it."""
    pieces: list[str] = []
    for groups in QUOTED.findall(text):
        pieces += next(filter(None, groups)).split("…")
    unquoted = QUOTED.sub(" ", text)
    pieces += [*NUMBER.findall(unquoted), *NAME.findall(unquoted)]
    return [piece for piece in map(_plain, pieces) if piece and piece != "i"]


def mean_repetition(reflections: Sequence[ReflectionText]) -> float:
    """Return the mean likeness (Jaccard) of consecutive reflections of one task."""
    both = [
        (_words(a), _words(b)) for a, b in pairwise(reflections) if a.task == b.task
    ]
    shares = [len(a & b) / len(a | b) for a, b in both if a | b]
    return sum(shares) / len(shares) if shares else 0.0


def _words(reflection: ReflectionText) -> set[str]:
    return set(WORD.findall(reflection.text.casefold()))


def naming_share(reflections: Sequence[ReflectionText]) -> float:
    """Return the share that names an entity, of those whose attempt has any."""
    right = []
    for reflection in reflections:
        if reflection.entities:
            text = _plain(reflection.text)
            right.append(any(name in text for name in reflection.entities))
    return share(right)


def choose_tasks(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the first two attempts of a few tasks, spread over all."""
    pairs = [(a, b) for a, b in pairwise(attempts) if a.task == b.task]
    first = {a.task: (a, b) for a, b in reversed(pairs)}
    tasks = sorted(first)
    spread = tasks[:: max(1, len(tasks) // TASKS)][:TASKS]
    return list(chain.from_iterable(first[task] for task in spread))
