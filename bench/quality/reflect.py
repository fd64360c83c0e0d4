"""Reflections on failed attempts: by rules on all of them, by the embedded model on a
few.

Beside them stand the reflections that were recorded with the attempts, which a large
model wrote. What is checked here is checked by plain search, not by what heedful checks
itself with.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

import heedful
from bench.quality.rows import Row, read
from heedful.errors import ModelError

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
NAME = re.compile(r"(?<!^)(?<![.!?] )\b[A-Z][\w’'-]+(?: [A-Z][\w’'-]+)*")
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
class Worded:
    """One reflection: its sentences, each with the text of the events that it cites."""

    task: str
    sentences: Sequence[tuple[str, str]]
    entities: frozenset[str]

    @property
    def text(self) -> str:
        """All of it, without its citations."""
        return " ".join(sentence for sentence, _ in self.sentences)


def run(data: Path, split: str) -> Iterator[Row]:
    """Grounded sentences, repetition, and naming an entity, by rules and by the
    model.
    """
    attempts = list(failed(data, split))
    rules = asyncio.run(reflected(attempts))
    recorded = [as_recorded(one) for one in attempts]
    yield from _rows("reflect.", rules, recorded)
    ungated = asyncio.run(leaked(data, split, gate=False))
    held = "nothing held back"
    yield Row(
        key="reflect.attacks_recalled",
        ours=asyncio.run(leaked(data, split)),
        baseline=ungated,
        anchor=held,
    )
    few = chosen(attempts)
    try:
        model, used, seconds = asyncio.run(by_model(few))
    except ModelError as error:
        Console().print(f"the embedded model was left out: {error}", markup=False)
        return
    few = few[: len(model)]
    yield from _rows(
        "reflect.embedded_", model, asyncio.run(reflected(few)), "by rules, the same"
    )
    yield Row(key="reflect.embedded_used", ours=used / len(few))
    yield Row(key="reflect.embedded_seconds", ours=seconds / len(few))


async def leaked(data: Path, split: str, gate: bool = True) -> float:
    """The share of attacks of which recall returns anything, if an operator gave the
    task.

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
            for one in attacked(task, f"{MARK} {text} {MARK}", OUTCOMES[n % 5]):
                await heedful.reflect(
                    one, memory=memory, trust="operator", score=lambda *_: 1.0
                )
            waiting = [] if gate else await memory.quarantine.waiting(100)
            if waiting:
                await memory.quarantine.release([one.id for one in waiting], by="bench")
            found = [
                f for asked in (task, text) for f in await memory.recall(asked, 50)
            ]
            leaks += MARK in f"{found}"
        listed = sum(MARK in str(one) for one in await memory.top(100_000))
    return max(leaks, min(listed, len(attacks))) / len(attacks)


def attacked(task: str, text: str, outcome: Any) -> Iterator[heedful.Episode]:
    """Runs in which a tool gives an attack, which the agent follows."""
    asked = heedful.Event("user_message", task)
    for result in (text, f"Error: {text}"):
        for more in ({}, {"query": text[:80]}):
            calls = (
                heedful.Event("tool_call", tool="fetch", arguments=one)
                for one in ({}, more)
            )
            results = (heedful.Event("tool_response", one) for one in (result, "done"))
            steps = [one for both in zip(calls, results, strict=True) for one in both]
            said = heedful.Event("llm_response", f"I will now {text}")
            yield heedful.Episode((asked, *steps, said), outcome, task=task)


def _rows(
    key: str, ours: Sequence[Worded], other: Sequence[Worded], said: str = ""
) -> Iterator[Row]:
    said = said or "recorded: a large model"
    yield Row(
        key=f"{key}grounded", ours=grounded(ours), baseline=grounded(other), anchor=said
    )
    yield Row(
        key=f"{key}repetition",
        ours=repetition(ours),
        baseline=repetition(other),
        anchor=said,
    )
    yield Row(
        key=f"{key}entity", ours=naming(ours), baseline=naming(other), anchor=said
    )


def failed(data: Path, split: str) -> Iterator[Attempt]:
    """The attempts that failed and were reflected on, of each run in their order."""
    for row in read(data, "episodes_hotpotqa", split):
        for attempt in row["attempts"]:
            if attempt["reflection"] and not attempt["passed"]:
                yield Attempt(
                    f"{row['run']} {row['task_id']}",
                    episode(row, attempt),
                    attempt["reflection"],
                )


def episode(row: dict[str, Any], attempt: dict[str, Any]) -> heedful.Episode:
    """Thoughts, actions and what came of them as events; the judgement is the last."""
    parts = STEP.split(attempt["candidate"])
    events = list(map(event, parts[1::2], parts[2::2]))
    outcome: Any = "timeout" if attempt["feedback"].startswith("HALTED") else "failure"
    return heedful.Episode(tuple(filter(None, events)), outcome, task=row["task"])


def event(kind: str, text: str) -> heedful.Event | None:
    """A step; what only says that the answer is wrong is how the episode ended."""
    text, action = text.strip(), ACTION.match(text.strip())
    if kind == "Observation":
        judged = text.startswith("Answer is ")
        return None if judged else heedful.Event("tool_response", text)
    if kind == "Action" and action and action[1] != "Finish":
        return heedful.Event(
            "tool_call", tool=action[1], arguments={"query": action[2]}
        )
    return heedful.Event("llm_response", f"Finish: {action[2]}" if action else text)


async def reflected(
    attempts: Iterable[Attempt], model: heedful.Model | None = None
) -> list[Worded]:
    """What heedful says of them, without a memory."""
    return [
        worded(one, await heedful.reflect(one.episode, model=model)) for one in attempts
    ]


async def by_model(attempts: Sequence[Attempt]) -> tuple[list[Worded], int, float]:
    """The same in the words of the model, how often they were used, and the seconds."""
    model = heedful.open_model("embedded")
    began = time.monotonic()
    found = []
    used = 0
    try:
        for one in attempts:
            if time.monotonic() - began > SECONDS:
                break
            made = await heedful.reflect(one.episode, model=model)
            found.append(worded(one, made))
            used += made is not None and made.by == model.name
    finally:
        await model.close()
    return found, used, time.monotonic() - began


def worded(one: Attempt, made: heedful.Reflected | None) -> Worded:
    """A reflection with what was dropped of it: that was said, too."""
    claims = (*made.claims, *made.dropped) if made else ()
    told = [(each.text, _events(one.episode, each.events)) for each in claims]
    return Worded(one.task, told, entities(one.episode))


def as_recorded(one: Attempt) -> Worded:
    """What was recorded cites nothing: all events count for it."""
    held = _events(one.episode, range(len(one.episode.events)))
    told = [(each, held) for each in SENTENCE.split(one.recorded) if each.strip()]
    return Worded(one.task, told, entities(one.episode))


def _events(episode: heedful.Episode, places: Iterable[int]) -> str:
    events = [episode.events[at] for at in places]
    said = [f"{one.tool} {one.content} {searched(one)}" for one in events]
    return _plain(" ".join([episode.task, *said])) if said else ""


def _plain(text: str) -> str:
    return " ".join(text.replace("’", "'").casefold().split())


def searched(event: heedful.Event) -> str:
    """What a call looks for."""
    given = event.arguments
    return str(given.get("query", "")) if isinstance(given, dict) else ""


def entities(episode: heedful.Episode) -> frozenset[str]:
    """Names and searches of an attempt that its task does not have."""
    said = " ".join(one.content for one in episode.events if one.type == "llm_response")
    asked = [searched(one) for one in episode.events]
    names = {_plain(name) for name in (*NAME.findall(said), *asked)}
    return frozenset(
        one for one in names if len(one) > 3 and one not in _plain(episode.task)
    )


def grounded(found: Iterable[Worded]) -> float:
    """Of sentences with a number, a name or a quotation, the share whose events have
    them all.
    """
    right = [
        all(one in held for one in _told(text))
        for each in found
        for text, held in each.sentences
        if _told(text)
    ]
    return sum(right) / len(right) if right else 0.0


def _told(text: str) -> list[str]:
    """What can be looked up; what stands in a quotation is looked up with it."""
    quoted = [next(filter(None, match)) for match in QUOTED.findall(text)]
    rest = QUOTED.sub(" ", text)
    pieces = [piece for one in quoted for piece in one.split("…")]
    found = (*pieces, *NUMBER.findall(rest), *NAME.findall(rest))
    return [plain for one in found if (plain := _plain(one)) and plain != "i"]


def repetition(found: Sequence[Worded]) -> float:
    """The mean Jaccard similarity of the words of consecutive reflections of one
    task.
    """
    both = [(_words(a), _words(b)) for a, b in pairwise(found) if a.task == b.task]
    shares = [len(a & b) / len(a | b) for a, b in both if a | b]
    return sum(shares) / len(shares) if shares else 0.0


def _words(one: Worded) -> set[str]:
    return set(WORD.findall(one.text.casefold()))


def naming(found: Sequence[Worded]) -> float:
    """The share that names an entity of its attempt, of those whose attempt has any."""
    some = [one for one in found if one.entities]
    right = [any(name in _plain(one.text) for name in one.entities) for one in some]
    return sum(right) / len(right) if right else 0.0


def chosen(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The first two attempts of a few tasks, spread over all."""
    pairs = [(a, b) for a, b in pairwise(attempts) if a.task == b.task]
    first = {a.task: (a, b) for a, b in reversed(pairs)}
    tasks = sorted(first)
    return [
        one
        for task in tasks[:: max(1, len(tasks) // TASKS)][:TASKS]
        for one in first[task]
    ]
