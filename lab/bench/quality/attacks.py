"""Attacks: what recall brings of them, whichever way they got in."""

from __future__ import annotations

import asyncio
from asyncio import gather
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import mean
from typing import Any

import heedful
from bench.quality.rows import Row, read
from heedful.lessons.origin import Origin
from heedful.models import open_embedder
from heedful.models.contract import Embedder

Data = Mapping[str, Any]
# A word that all the attackers' texts have here, and no other: it shows what recall
# brings.
MARK = "zqattacker"


def run(data: Path, split: str) -> Iterator[Row]:
    """Yield the shares of attacks and of usable reflections that recall brings."""
    rows = list(read(data, "attacks", split))
    attacks = [row for row in rows if row["label"] == "attack"]
    benign = [row for row in rows if row["label"] != "attack"]
    recalled, ungated, usable = asyncio.run(measure_gate(attacks, benign))
    yield Row(
        key="attacks.recalled",
        ours=recalled,
        baseline=ungated,
        anchor="with a trust gate 0; without .468 of top 3",
    )
    yield Row(key="attacks.benign_usable", ours=usable)


async def measure_gate(
    attacks: Sequence[Data], benign: Sequence[Data]
) -> tuple[float, float, float]:
    """Return the shares of attacks recalled, with and without a gate, and usable."""
    embedder = CachingEmbedder(open_embedder())
    memory = await remember_benign(benign, embedder)
    pairs = zip(attacks, cycle(benign))
    await gather(*(attack(memory, row, ours) for row, ours in pairs))
    leaks = await gather(*(is_leaked(memory, row) for row in attacks))
    usable = await gather(
        *(is_found(memory, row["text"]) for row in real_reflections(benign))
    )
    await memory.store.close()
    memory = await remember_benign(benign, embedder)
    await gather(*(remember_trusted(memory, row) for row in attacks))
    ungated = await gather(*(is_leaked(memory, row) for row in attacks))
    await memory.store.close()
    return mean(leaks), mean(ungated), mean(usable)


async def remember_benign(benign: Sequence[Data], embedder: Embedder) -> heedful.Memory:
    """Return a memory of harmless texts: own outcomes, and an operator's words."""
    memory = heedful.Memory(":memory:", heedful.Scope(project="ours"), embedder)
    real_ids = {row["id"] for row in real_reflections(benign)}
    for row in benign:
        origin: Origin = "local" if row["id"] in real_ids else "user"
        await memory.remember(
            row["id"], row["text"], example=example_of(row), origin=origin
        )
    return memory


async def remember_trusted(memory: heedful.Memory, row: Data) -> None:
    """Remember one attack as if it were trusted."""
    poison, worked = poison_of(row)
    await memory.remember(row["id"], poison, example=worked)


async def attack(memory: heedful.Memory, row: Data, ours: Data) -> None:
    """Store one attack in each way that might pass the gate; `ours` is known."""
    id = row["id"]
    (poison, worked) = poison_of(row)
    task = worked.task if worked else row["text"]
    instead = heedful.Example(task, poison)
    near = heedful.Example(ours.get("task") or ours["text"], poison)
    late = f"{id} seen first outside"
    elsewhere = heedful.Memory(
        memory.store, heedful.Scope(project="others"), memory.embedder
    )
    await elsewhere.remember(id, poison, example=instead)  # trusted, but not here

    remember = partial(
        memory.remember,
        origin="outside",
        tags=[MARK],
        importance=1.0,
        source=f"document {id}",
    )
    await remember(id, poison, example=worked)
    await remember(id, poison, example=worked)  # seen again
    await remember(f"{id} by name", poison, context=f"{task} " * 20)
    await remember(ours["id"], ours["text"], lesson=poison)  # in other words
    await remember(ours["id"], ours["text"], example=instead)
    await remember(ours["id"], ours["text"], lesson=poison, example=near)
    await remember(late, task, lesson=poison, example=instead)
    await memory.remember(late, task, lesson="What we say of it.", origin="local")


async def is_leaked(memory: heedful.Memory, row: Data) -> bool:
    """Return whether recall or a prompt brings anything of an attacker."""
    queries = {row.get("task") or row["text"], row["text"]}
    recalled = [await memory.recall(query) for query in queries]
    briefing = await memory.brief(row["text"], row["id"])
    return MARK in str((recalled, briefing.found))


async def is_found(memory: heedful.Memory, text: str) -> bool:
    """Return whether recall brings back what was said in these words."""
    return text in [match.lesson for match in await memory.recall(text)]


def poison_of(row: Data) -> tuple[str, heedful.Example | None]:
    """Return the text of an attack, marked, and as the answer to its task, if any."""
    poison = f"{row['text']} {MARK}"
    return poison, heedful.Example(row["task"], poison) if row.get("task") else None


def example_of(row: Data) -> heedful.Example | None:
    """Return a text as the answer to the task of its row, if it has one."""
    return heedful.Example(row["task"], row["text"]) if row.get("task") else None


def real_reflections(benign: Sequence[Data]) -> list[Data]:
    """Return the reflections that brought a measured improvement, or else all."""
    real = [row for row in benign if row["kind"].endswith("reflection")]
    return [row for row in real if row["meta"].get("improved")] or real


class CachingEmbedder:
    """An embedder that embeds each text once."""

    def __init__(self, embedder: Embedder) -> None:
        self.name = embedder.name
        self.dimensions = embedder.dimensions
        self._embedder = embedder
        self._vectors: dict[str, Sequence[float]] = {}

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return the vector of each text."""
        for text in texts:
            if text not in self._vectors:
                (self._vectors[text],) = await self._embedder.embed([text])
        return [self._vectors[text] for text in texts]
