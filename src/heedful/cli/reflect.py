"""`heedful reflect`: learn from runs of agents, from files of traces or from the waiting ones."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli.output import Db, Json, counted, following, print_json, report_error, say, show
from heedful.cli.progress import Progress, drive
from heedful.cli.settings import Settings, memory_of, model_of, settings, stored
from heedful.errors import HeedfulError, ModelError, ModelUnavailable, UsageError
from heedful.lessons.lesson import Trust
from heedful.loop.record import clean
from heedful.memory.memory import Memory
from heedful.memory.reflect import Reflected, reflect_waiting
from heedful.memory.reflect import reflect as reflect_on
from heedful.models.contract import Model
from heedful.store import episodes
from heedful.traces import read
from heedful.traces.episode import Episode

STOPPED = "stopped; what was reflected on is kept, the same command does the rest"
AGAIN = "heedful reflect --waiting tries again"
BUSY = f"another process works on it, or was killed: after some seconds {AGAIN}"
QUIET = logging.NullHandler()
SIGNALS = 5
WORDS = 300  # characters of a text that are shown
NAME = 60


@dataclass
class Result:
    """The lessons of an episode, None if there were none; `error` is the error of the model."""

    name: str
    episode: Episode | None
    reflected: Reflected | None
    error: str = ""


@dataclass
class Work:
    """The model or rules that reflect, and the results so far.

    `damage` is the error that ended reading. `left` counts the waiting episodes that other
    processes hold, or held when they were killed. The files in `empty` hold no run.
    """

    memory: Memory
    model: Model | None
    trust: Trust
    keep: bool
    results: list[Result] = field(default_factory=list)
    damage: HeedfulError | None = None
    left: int = 0
    empty: list[str] = field(default_factory=list)


def reflect(
    context: typer.Context,
    files: Annotated[
        list[Path] | None, typer.Argument(help="Traces of any format.", show_default=False)
    ] = None,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Try failed and unfinished episodes again.")
    ] = False,
    model: Annotated[
        str | None, typer.Option("--model", help="A model that words the lessons. [rules do]")
    ] = None,
    format: Annotated[str, typer.Option(help="auto, heedful, otlp, chat or claude-code.")] = "auto",
    trust: Annotated[
        str, typer.Option(help="Who wrote the tasks: external or operator (you).")
    ] = "external",
    keep: Annotated[bool, typer.Option("--store/--no-store", help="Keep what is learnt.")] = True,
    db: Db = None,
    json: Json = False,
) -> int:
    """List what failed in runs of agents, with the events that prove it, and learn from it.

    Each run counts once, however often it is read. Lessons that depend on the words of tools,
    documents or users wait in quarantine.
    """
    if bool(files) == waiting:
        raise UsageError("give files of traces, or --waiting for what failed before")
    if trust not in ("external", "operator"):
        raise UsageError(f"--trust is {trust!r}; it must be external or operator")
    values = settings(db=db, model=model)
    logging.getLogger("heedful").addHandler(QUIET)  # failures are printed below
    sys.path.insert(0, str(Path.cwd()))  # a model may be named module:function
    with Progress() as progress:
        reading = _reflect(values, files or [], format, trust, keep, bool(model), progress)
        work = drive(reading, lambda: STOPPED)
    failed = sum(bool(one.error) for one in work.results)
    described = list(map(_document, work.results)) if json else []
    document = {"episodes": described, "failed": failed, "left": work.left}
    if not json:
        for result in work.results:
            _print(result)
        _print_sum(work, failed, db)
    for name in work.empty:
        say(f"heedful: {name} holds no run of an agent; is it in one of the formats?")
    if work.damage is not None:
        debug = "--debug" in (context.obj or ())
        return report_error(work.damage, json=json, debug=debug, **document)
    if json:
        print_json(document)
    return 1 if failed else 0


async def _reflect(
    values: Settings,
    files: Sequence[Path],
    format: str,
    trust: Any,
    keep: bool,
    asks: bool,
    progress: Progress,
) -> Work:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(stored(values, new=bool(files)))
        model = None
        if asks:
            model = await stack.enter_async_context(model_of(values, progress.fetched))
        work = Work(memory_of(values, store), model, trust, keep)
        async for result in _from_files(work, files, format) if files else _from_waiting(work):
            work.results.append(result)
            number = len(work.results)
            progress.bar("reflecting", number, 0, counted(number, "episode"))
            if model is not None:
                progress.say(f"{result.name}: {result.error or 'reflected on'}")
        if not files:
            counts = await store.read(work.memory.scope, episodes.counts)
            work.left = counts.get("waiting", 0)
        return work


async def _from_files(work: Work, files: Sequence[Path], format: str) -> AsyncIterator[Result]:
    options: dict[str, Any] = {"memory": work.memory, "trust": work.trust, "store": work.keep}
    for name, episode in _episodes(work, files, format):
        try:
            found = await reflect_on(episode, model=work.model, on_model_error="raise", **options)
            yield Result(name, episode, found)
        except ModelUnavailable:
            raise
        except ModelError as error:
            found = await reflect_on(episode, **{**options, "store": False})
            yield Result(name, episode, found, str(error))


def _episodes(work: Work, files: Sequence[Path], format: str) -> Iterator[tuple[str, Episode]]:
    for file in files:
        number = 0
        try:
            for number, episode in enumerate(read(file, format), 1):
                yield f"{file.name}:{clean(episode.id, NAME) or number}", episode
            if not number:
                work.empty.append(file.name)
        except UsageError as error:
            work.damage = error
            return


async def _from_waiting(work: Work) -> AsyncIterator[Result]:
    began, going = time.time(), True
    while going:
        try:
            found = await reflect_waiting(work.memory, before=began, model=work.model)
            going = found is not None
            if found is not None:
                yield Result(clean(found.reflection.source, NAME), None, found)
        except ModelUnavailable:
            raise
        except ModelError as error:
            yield Result("episode", None, None, str(error))


def _print(result: Result) -> None:
    episode, found = result.episode, result.reflected
    about = ""
    if episode is not None:
        events = counted(len(episode.events) + episode.omitted, "event")
        about = f"  {episode.outcome}, {events}: {clean(episode.task, WORDS)}"
    show(f"{result.name}{about}".rstrip(": "))
    if found is None:
        show(f"  {result.error or 'nothing to reflect on: it has no events and no error'}")
        return
    for signal in found.signals[:SIGNALS]:
        proof = ", ".join(
            name or str(at) for at, name in zip(signal.evidence, signal.evidence_ids, strict=True)
        )
        show(f"  signal   {signal.kind} [{clean(proof, NAME)}]: {clean(signal.words, WORDS)}")
    if len(found.signals) > SIGNALS:
        show(f"  signal   and {len(found.signals) - SIGNALS} more")
    show(f"  lesson   {clean(found.text, 2 * WORDS)}")
    if found.strategy is not None:
        show(f"  rule     {clean(found.strategy.text, WORDS)}")
    importance = f"importance {found.reflection.importance:.2f}"
    show(f"  by {clean(found.by, NAME)}, {importance}; {_stored_as(result, found)}")


def _stored_as(result: Result, found: Reflected) -> str:
    """Describe how memory stored the lesson."""
    if result.error:
        return f"the model failed, so nothing was kept ({clean(result.error, WORDS)}); {AGAIN}"
    if found.busy:
        return BUSY
    if found.again:
        return "was reflected on before; nothing was added"
    if not found.stored:
        return f"known, seen {found.known} times" if found.known else "not kept"
    kept = f"known, seen {found.known + 1} times now" if found.known else "kept"
    return f"{kept}{', waits in quarantine' if found.quarantined else ''}"


def _print_sum(work: Work, failed: int, db: str | None) -> None:
    some = [one.reflected for one in work.results if one.reflected is not None and not one.error]
    new = [one for one in some if one.stored and not one.known]
    known = [one for one in some if (one.known or one.again) and not one.busy]
    left = work.left + sum(one.busy for one in some)
    words = f"{counted(len(work.results), 'episode')}: {len(new)} new, {len(known)} known"
    words += f", {left} left to others" if left else ""
    show(f"{words}, {failed} failed" if failed else words)
    if work.left:
        say(f"heedful: {BUSY.replace('on it,', 'on the rest,')}")
    if failed:
        say(f"heedful: {AGAIN}")
    elif any(one.quarantined for one in new):
        show(following("quarantine", "list", db=db))
    elif new:
        show(following("lessons", db=db))


def _document(result: Result) -> dict[str, Any]:
    episode, found = result.episode, result.reflected
    head: dict[str, Any] = {"name": result.name, "error": result.error}
    if episode is not None:
        head |= {name: getattr(episode, name) for name in ("outcome", "task", "digest")}
    if found is None:
        return {**head, "reflection": None}
    parts = ("text", "importance", "trust", "state", "tags", "source", "meta")
    lessons = {"reflection": found.reflection, "strategy": found.strategy}
    return {
        **head,
        **{
            name: lesson and {part: getattr(lesson, part) for part in parts}
            for name, lesson in lessons.items()
        },
        **{
            name: list(map(asdict, getattr(found, name)))
            for name in ("signals", "claims", "dropped", "stored")
        },
        **{name: getattr(found, name) for name in ("known", "again", "busy")},
        "usage": asdict(found.usage),
    }
