"""Live models for the jobs that ask one: every answer is kept, so a run can be stopped
and goes on.

The answers are in one SQLite file outside of the project. The key of an answer is the
model with the build that ran it, its whole prompt and settings, so an unchanged prompt
is never asked twice. The answers behind published figures are committed, too.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import sqlite3
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import heedful
from bench.quality import native
from bench.quality.committed import KEY_DIGITS, Committed, answer_of, read_committed
from heedful.errors import ModelError, ModelUnavailable
from heedful.loop.record import Usage
from heedful.models import weights
from heedful.models.contract import Answer, Message, Model, Options

CODER = "qwen2.5-coder-{}-instruct-q4_k_m"
MODELS = ("0.5b", "1.5b")
CACHE = Path.home() / ".cache" / "heedful-bench"
TO_ASK = "leave out REPLAY=1; weights need cmake and a C++ compiler"
FRAME_TOKENS = 24  # of a message, more than the formats of chats have
TABLE = """
create table if not exists answer (
    key text primary key, model text, text text, prompt_tokens integer,
    completion_tokens integer, seconds real, finish text
)"""


@dataclass(frozen=True, kw_only=True)
class Live:
    """How to run: the models, at most `limit` tasks, and where answers are.

    A model is a size of weights, or a name as `heedful.open_model` takes it. Weights
    have one thread each of `workers`, in the prebuilt wheel if they are `embedded`. A
    `replay` asks nothing, and `export` commits answers. `streams`, `arms` and `orders`
    change the plan of `learn`. Prices are dollars for a million tokens.
    """

    models: tuple[str, ...] = ("0.5b",)
    limit: int | None = None
    workers: int = 1
    embedded: bool = False
    replay: bool = False
    export: bool = False
    streams: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    orders: int | None = None
    folder: Path = CACHE
    price_in: float = 0.0
    price_out: float = 0.0
    limit_usd: float = math.inf

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return what tokens cost."""
        price = self.price_in * prompt_tokens + self.price_out * completion_tokens
        return price / 1e6


class Spending:
    """What the calls of a run cost, at most `limit_usd`.

    A call begins only if the limit is kept whatever its answer. After a call that was
    refused or failed none begins any more, and `ended_by` says why.
    """

    def __init__(self, live: Live) -> None:
        self.calls = 0
        self.cost = 0.0
        self.ended_by = ""
        self._live = live

    def begin(self, messages: Sequence[Message], max_tokens: int | None) -> float:
        """Return what a call costs at most; it counts so until `end`.

        Raises ModelUnavailable if the call may not begin.
        """
        reserved = self._live.price(most_tokens(messages), max_tokens or 0)
        if not self.ended_by and self.cost + reserved > self._live.limit_usd:
            self.ended_by = f"the next call could exceed {self._live.limit_usd:g} $"
        if self.ended_by:
            raise ModelUnavailable(self.ended_by)
        self.cost += reserved
        return reserved

    def end(self, reserved: float, usage: Usage) -> None:
        """Count what a call has cost; a call without tokens costs the most."""
        self.calls += 1
        if usage.tokens:
            cost = self._live.price(usage.prompt_tokens, usage.completion_tokens)
            self.cost += cost - reserved


def most_tokens(messages: Sequence[Message]) -> int:
    """Return how many tokens a prompt has at most: one for each byte, and its frame."""
    sizes = [len(message.content.encode("utf-8", "replace")) for message in messages]
    return sum(sizes) + FRAME_TOKENS * len(sizes)


class KeptAnswers:
    """The answers of one model: in the database, and those that are committed.

    `used` has those that were read or asked here, and `asking` a lock for each key.
    """

    def __init__(self, name: str, db: sqlite3.Connection, committed: Committed) -> None:
        self.name = name
        self.committed = committed
        self.used: dict[str, Answer] = {}
        self.asking = defaultdict[str, asyncio.Lock](asyncio.Lock)
        self._db = db

    def find(self, key: str) -> Answer | None:
        """Return the answer with this key, if there is one."""
        answer = self._read(key) or self.committed.answers.get(key[:KEY_DIGITS])
        if answer is not None:
            self.used[key[:KEY_DIGITS]] = answer
        return answer

    def _read(self, key: str) -> Answer | None:
        columns = "text, prompt_tokens, completion_tokens, seconds, finish"
        row = self._db.execute(
            f"select {columns} from answer where key = ?", [key]
        ).fetchone()
        return None if row is None else answer_of(*row)

    def keep(self, key: str, answer: Answer) -> Answer:
        """Keep an answer in the database, and return it as it is read from there."""
        usage = answer.usage
        counts = (usage.prompt_tokens, usage.completion_tokens, usage.seconds)
        with self._db:
            self._db.execute(
                "insert or replace into answer values (?,?,?,?,?,?,?)",
                (key, self.name, answer.text, *counts, answer.finish),
            )
        answer = answer_of(answer.text, *counts, answer.finish)
        self.used[key[:KEY_DIGITS]] = answer
        return answer


class KeptModel:
    """A model whose answers are kept; `calls` counts what was really asked."""

    def __init__(
        self, name: str, model: Model, answers: KeptAnswers, spending: Spending
    ) -> None:
        self.name = name
        self.calls = 0
        self._model = model
        self._answers = answers
        self._spending = spending

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
        # Runs that ask the same at the same time wait for one answer.
        async with self._answers.asking[key]:
            answer = self._answers.find(key)
            if answer is None:
                answer = await self._ask(
                    messages,
                    schema=schema,
                    max_tokens=max_tokens,
                    temperature=temperature,
                    seed=seed,
                )
                answer = self._answers.keep(key, answer)
        return answer

    async def _ask(
        self, messages: Sequence[Message], **options: Unpack[Options]
    ) -> Answer:
        reserved = self._spending.begin(messages, options["max_tokens"])
        try:
            answer = await self._model.complete(messages, **options)
        except ModelError as error:
            self._spending.ended_by = str(error)
            raise
        self._spending.end(reserved, answer.usage)
        self.calls += 1
        return answer

    async def close(self) -> None:
        """Do nothing: `open_kept_model` closes the model."""


class KeptModels:
    """Alike models, each of them leased to one job at a time."""

    def __init__(
        self, models: Sequence[Model], answers: KeptAnswers, spending: Spending
    ) -> None:
        self.name = answers.name
        self.answers = answers
        self.spending = spending
        self._idle = asyncio.Queue[Model]()
        for model in models:
            self._idle.put_nowait(model)

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[KeptModel]:
        """Wait for a model that is idle, and lend it with counters at 0."""
        model = await self._idle.get()
        try:
            yield KeptModel(self.name, model, self.answers, self.spending)
        finally:
            self._idle.put_nowait(model)


@asynccontextmanager
async def open_kept_models(
    size: str, data: Path, live: Live
) -> AsyncIterator[KeptModels]:
    """Open models by their size or name.

    `models.json` beside `data` has the fetch list, and the environment as MODEL_KEY the
    key of a server. Without a compiler, committed answers are replayed.
    """
    model = heedful.open_model(
        "embedded" if size in MODELS else size, api_key=os.environ.get("MODEL_KEY")
    )
    models = [model] * live.workers
    # The name of a model on the network has no login.
    name = CODER.format(size) if size in MODELS else model.name
    committed = read_committed(name)
    spending = Spending(live)
    needs_build = size in MODELS and not (live.embedded or live.replay)
    program = native.build(CACHE) if needs_build else None
    async with AsyncExitStack() as stack:
        if live.replay or (needs_build and not program and committed.name):
            spending.ended_by = f"{committed.path} has not all answers: {TO_ASK}"
            name = committed.name or name
        elif size in MODELS:
            path = data / ".." / "models.json"
            file = await weights.fetch(_read_weights(name, path), progress=_show_fetch)
            models = await _open_weights(file, program, live, stack)
        if program is not None:
            name = f"{name} {native.build_name(program)}"
        live.folder.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(live.folder / "answers.sqlite", timeout=60)
        stack.enter_context(closing(db))
        db.execute("pragma journal_mode=wal")
        db.execute(TABLE)
        yield KeptModels(models, KeptAnswers(name, db, committed), spending)


async def _open_weights(
    file: Path, program: Path | None, live: Live, stack: AsyncExitStack
) -> list[Model]:
    """Open weights in the program that was built, or else in the wheel."""
    models = list[Model]()
    for _ in range(live.workers):
        if program is None:
            model = heedful.open_model(f"embedded:{file}", threads=1)
            stack.push_async_callback(model.close)
        else:
            model = await stack.enter_async_context(native.serve(program, file))
        models.append(model)
    return models


@asynccontextmanager
async def open_kept_model(
    size: str, data: Path, live: Live
) -> AsyncIterator[KeptModel]:
    """Open one model by its size, run by the prebuilt wheel.

    Jobs that are compared with earlier figures stay with the build that all have.
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
    """One line about a series of tasks: how many are done, right and asked."""

    def __init__(self, title: str, total: int, model: KeptModel) -> None:
        self._title = title
        self._total = total
        self._model = model
        self._done = self._right = 0

    def task(self, right: bool) -> None:
        """Count a task; on a terminal the line is rewritten, else every tenth is
        printed.
        """
        self._done += 1
        self._right += right
        line = (
            f"{self._title} {self._done}/{self._total}: {self._right} right at the "
            f"first try, {self._model.calls} new calls"
        )
        is_last = self._done == self._total
        if sys.stderr.isatty() or is_last or self._done % 10 == 0:
            say(line, end="\n" if is_last or not sys.stderr.isatty() else "")


def say(line: str, end: str = "\n") -> None:
    """Print a line to standard error; with an empty `end` the next line replaces it."""
    start = "\r\x1b[K" if sys.stderr.isatty() else ""
    print(f"{start}{line}", end=end, file=sys.stderr, flush=True)
