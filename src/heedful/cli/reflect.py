"""`heedful reflect`: learn from runs of agents, from files of traces or from the waiting ones."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from heedful.cli import output
from heedful.cli.output import answer, call, counted, following, say, show
from heedful.cli.settings import Settings, memory_of, model_of, settings, stored
from heedful.errors import HeedfulError, ModelError, ModelUnavailable, UsageError
from heedful.loop.record import clean
from heedful.memory import reflect as learn
from heedful.memory.memory import Memory
from heedful.memory.reflect import Reflected
from heedful.models.contract import Model
from heedful.store import episodes
from heedful.traces import read
from heedful.traces.episode import Episode

AGAIN = "heedful reflect --waiting tries again"
BUSY = f"another process works on it, or was killed: after some seconds {AGAIN}"
SIGNALS = 5
WORDS = 300  # characters of a text that are shown
NAME = 60


@dataclass
class Result:
    """The lessons of an episode, None if there were none; `error` is the error of the model."""

    name: str
    episode: Episode | None = None
    reflected: Reflected | None = None
    error: str = ""


def reflect(
    files: Annotated[list[Path] | None, Argument(help="Traces of any format.")] = None,
    waiting: Annotated[bool, Option("--waiting", help="Try failed episodes again.")] = False,
    model: Annotated[str | None, Option("--model", help="Words the lessons. [rules]")] = None,
    trust: Annotated[str, Option(help="Who wrote the tasks: external or operator.")] = "external",
    keep: Annotated[bool, Option("--store/--no-store", help="Keep what is learnt.")] = True,
) -> int:
    """List what failed in runs of agents, with the events that prove it, and learn from it.

    Each run counts once, however often it is read. Lessons that depend on the words of tools,
    documents or users wait in quarantine.
    """
    if bool(files) == waiting:
        raise UsageError("give files of traces, or --waiting for what failed before")
    if trust not in ("external", "operator"):
        raise UsageError(f"--trust is {trust!r}; it must be external or operator")
    logging.getLogger("heedful").addHandler(logging.NullHandler())  # failures are printed below
    options = {"trust": trust, "store": keep}
    rest = "stopped; what was reflected on is kept, the same command does the rest"
    with output.Progress() as progress:
        work = _reflect(settings(model=model), files or [], bool(model), options, progress)
        results, damage, left = output.drive(work, lambda: rest)
    failed = sum(bool(one.error) for one in results)
    record = {"episodes": list(map(_document, results)), "failed": failed, "left": left}
    if not call().json:
        for result in results:
            show("\n".join(_describe(result)))
        _print_sum(results, failed, left)
    if damage is not None:
        return output.report_error(damage, **record)
    if call().json:
        answer(record)
    return 1 if failed else 0


async def _reflect(
    values: Settings, files: Sequence[Path], asks: bool, options: Any, progress: output.Progress
) -> tuple[list[Result], HeedfulError | None, int]:
    """Return the results, the error that ended reading, and how many wait for other processes."""
    done, damage, left = list[Result](), None, 0
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(stored(values, new=bool(files)))
        model = None
        if asks:
            model = await stack.enter_async_context(model_of(values, progress.fetched))
        memory = memory_of(values, store)
        options = {**options, "memory": memory, "model": model, "on_model_error": "raise"}
        results = _from_files(files, options) if files else _from_waiting(memory, model)
        try:
            async for result in results:
                done.append(result)
                progress.bar("reflecting", len(done), 0, counted(len(done), "episode"))
                if model is not None:
                    progress.say(f"{result.name}: {result.error or 'reflected on'}")
        except UsageError as error:
            damage = error
        if not files:
            left = (await store.read(memory.scope, episodes.counts)).get("waiting", 0)
    return done, damage, left


async def _from_files(files: Sequence[Path], options: Any) -> AsyncIterator[Result]:
    for file in files:
        number = 0
        for number, episode in enumerate(read(file), 1):
            name = f"{file.name}:{clean(episode.id, NAME) or number}"
            try:
                yield Result(name, episode, await learn.reflect(episode, **options))
            except ModelUnavailable:
                raise
            except ModelError as error:
                yield Result(name, episode, None, str(error))
        if not number:
            yield Result(file.name)


async def _from_waiting(memory: Memory, model: Model | None) -> AsyncIterator[Result]:
    began = time.time()
    while True:
        try:
            found = await learn.reflect_waiting(memory, before=began, model=model)
        except ModelUnavailable:
            raise
        except ModelError as error:
            yield Result("episode", error=str(error))
            continue
        if found is None:
            return
        yield Result(clean(found.reflection.source, NAME), None, found)


def _describe(result: Result) -> Iterator[str]:
    episode, found = result.episode, result.reflected
    about = ""
    if episode is not None:
        events = counted(len(episode.events) + episode.omitted, "event")
        about = f"  {episode.outcome}, {events}: {clean(episode.task, WORDS)}"
    yield f"{result.name}{about}".rstrip(": ")
    if result.error:
        why = clean(result.error, WORDS)
        yield f"  the model failed, so nothing was kept ({why}); {AGAIN}"
        return
    if found is None:
        yield "  nothing to reflect on: no run of an agent, or one without events and error"
        return
    for signal in found.signals[:SIGNALS]:
        proof = ", ".join(
            name or str(at) for at, name in zip(signal.evidence, signal.evidence_ids, strict=True)
        )
        yield f"  signal   {signal.kind} [{clean(proof, NAME)}]: {clean(signal.words, WORDS)}"
    if len(found.signals) > SIGNALS:
        yield f"  signal   and {len(found.signals) - SIGNALS} more"
    yield f"  lesson   {clean(found.text, 2 * WORDS)}"
    if found.strategy is not None:
        yield f"  rule     {clean(found.strategy.text, WORDS)}"
    importance = f"importance {found.reflection.importance:.2f}"
    yield f"  by {clean(found.by, NAME)}, {importance}; {_stored_as(found)}"


def _stored_as(found: Reflected) -> str:
    """Describe how memory stored the lesson."""
    if found.busy:
        return BUSY
    if found.again:
        return "was reflected on before; nothing was added"
    if not found.stored:
        return f"known, seen {found.known} times" if found.known else "not kept"
    kept = f"known, seen {found.known + 1} times now" if found.known else "kept"
    return f"{kept}{', waits in quarantine' if found.quarantined else ''}"


def _print_sum(results: Sequence[Result], failed: int, left: int) -> None:
    some = [one.reflected for one in results if one.reflected is not None]
    new = [one for one in some if one.stored and not one.known]
    known = [one for one in some if (one.known or one.again) and not one.busy]
    others = left + sum(one.busy for one in some)
    words = f"{counted(len(results), 'episode')}: {len(new)} new, {len(known)} known"
    words += f", {others} left to others" if others else ""
    show(f"{words}, {failed} failed" if failed else words)
    if left:
        say(f"heedful: {BUSY.replace('on it,', 'on the rest,')}")
    if failed:
        say(f"heedful: {AGAIN}")
    elif any(one.quarantined for one in new):
        show(following("quarantine", "list"))
    elif new:
        show(following("lessons"))


def _document(result: Result) -> dict[str, Any]:
    def parts(record: Any, names: str) -> dict[str, Any]:
        return {name: getattr(record, name) for name in names.split()}

    head: dict[str, Any] = {"name": result.name, "error": result.error}
    if result.episode is not None:
        head |= parts(result.episode, "outcome task digest")
    found = result.reflected
    if found is None:
        return {**head, "reflection": None}
    lesson = "text importance trust state tags source meta"
    head["reflection"] = parts(found.reflection, lesson)
    head["strategy"] = found.strategy and parts(found.strategy, lesson)
    return head | parts(found, "signals claims dropped stored known again busy usage")
