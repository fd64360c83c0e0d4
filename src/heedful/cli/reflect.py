"""`heedful reflect`: what runs of agents teach, from files of traces, and what still waits."""

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

from heedful.cli.interrupt import drive
from heedful.cli.opening import memory_of, model_of, stored
from heedful.cli.output import Db, Json, counted, following, print_json, say, show
from heedful.cli.progress import Progress
from heedful.cli.settings import Settings, settings
from heedful.errors import HeedfulError, ModelError, ModelUnavailable, UsageError
from heedful.lessons.lesson import Trust
from heedful.loop.feedback import clean
from heedful.memory.attribution import Suspect
from heedful.memory.episode import Episode
from heedful.memory.memory import Memory
from heedful.memory.reflect import Reflected
from heedful.models.contract import Model
from heedful.store import episodes

STOPPED = "stopped; what was reflected on is kept, the same command does the rest"
AGAIN = "heedful reflect --waiting tries again"
BUSY = f"another is at work on it, or was killed: after some seconds {AGAIN}"
QUIET = logging.NullHandler()
SIGNALS = 5
WORDS = 300
NAME = 60


@dataclass
class _Told:
    """What came of one episode: None where there was nothing to say; `error` is the model's."""

    name: str
    episode: Episode | None
    one: Reflected | None
    error: str = ""


@dataclass
class _Work:
    """What is reflected with, and what came of it so far; `damage` is where reading ended.

    Others are at work on so many of those that waited (`left`), or were killed. The files that are
    `empty` tell of no run.
    """

    memory: Memory
    model: Model | None
    trust: Trust
    keep: bool
    done: list[_Told] = field(default_factory=list)
    damage: HeedfulError | None = None
    left: int = 0
    empty: list[str] = field(default_factory=list)


def reflect(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Traces of any format.", show_default=False)
    ] = None,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Try again what failed or was left.")
    ] = False,
    model: Annotated[
        str | None, typer.Option("--model", help="A model that words it; else a program does.")
    ] = None,
    format: Annotated[str, typer.Option(help="auto, heedful, otlp, chat or claude-code.")] = "auto",
    trust: Annotated[
        str, typer.Option(help="Whose the tasks are: external or operator (your own).")
    ] = "external",
    keep: Annotated[bool, typer.Option("--store/--no-store", help="Keep what it teaches.")] = True,
    db: Db = None,
    json: Json = False,
) -> int:
    """Say what went wrong in runs of agents, with the events that prove it, and learn from it.

    Each run once, however often it is read. What tools, documents and users said waits in
    quarantine with all that rests on it.
    """
    if bool(files) == waiting:
        raise UsageError("give files of traces, or --waiting for what failed before")
    if trust not in ("external", "operator"):
        raise UsageError(f"--trust is {trust!r}; it must be external or operator")
    values = settings(db=db, model=model)
    logging.getLogger("heedful").addHandler(QUIET)  # what fails is told below
    sys.path.insert(0, str(Path.cwd()))  # a model may be named module:function
    with Progress() as progress:
        asked = _reflected(values, files or [], format, trust, keep, bool(model), progress)
        work = drive(asked, lambda: STOPPED)
    if json:
        print_json(_document(work))
    else:
        for told in work.done:
            _print(told, keep)
        _sum(work, db or "")
    for name in work.empty:
        say(f"heedful: {name} tells of no run of an agent; is it in one of the formats?")
    if work.damage is not None:
        raise work.damage
    return 1 if any(told.error for told in work.done) else 0


async def _reflected(
    values: Settings,
    files: Sequence[Path],
    format: str,
    trust: Any,
    keep: bool,
    asks: bool,
    progress: Progress,
) -> _Work:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(stored(values, new=bool(files)))
        model = None
        if asks:
            model = await stack.enter_async_context(model_of(values, progress.fetched))
        work = _Work(memory_of(values, store), model, trust, keep)
        each = _files(work, files, format) if files else _waiting(work)
        async for told in each:
            work.done.append(told)
            progress.bar("reflecting", len(work.done), 0, counted(len(work.done), "episode"))
            if model is not None:
                progress.say(f"{told.name}: {told.error or 'reflected on'}")
        if not files:
            counts = await store.read(work.memory.scope, episodes.counts)
            work.left = counts.get("waiting", 0)
        return work


async def _files(work: _Work, files: Sequence[Path], format: str) -> AsyncIterator[_Told]:
    from heedful.memory.reflect import reflect as reflected

    given: dict[str, Any] = {"memory": work.memory, "trust": work.trust, "store": work.keep}
    for name, episode in _episodes(work, files, format):
        try:
            one = await reflected(episode, model=work.model, on_model_error="raise", **given)
            yield _Told(name, episode, one)
        except ModelUnavailable:
            raise
        except ModelError as error:
            one = await reflected(episode, **{**given, "store": False})
            yield _Told(name, episode, one, str(error))


def _episodes(work: _Work, files: Sequence[Path], format: str) -> Iterator[tuple[str, Episode]]:
    from heedful.traces import read

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


async def _waiting(work: _Work) -> AsyncIterator[_Told]:
    from heedful.memory.reflect import reflect_waiting

    began, going = time.time(), True
    while going:
        try:
            one = await reflect_waiting(work.memory, before=began, model=work.model)
            going = one is not None
            if one is not None:
                yield _Told(clean(one.reflection.source, NAME), None, one)
        except ModelUnavailable:
            raise
        except ModelError as error:
            yield _Told("episode", None, None, str(error))


def _print(told: _Told, keep: bool) -> None:
    episode, one = told.episode, told.one
    about = ""
    if episode is not None:
        events = counted(len(episode.events) + episode.omitted, "event")
        about = f"  {episode.outcome}, {events}: {clean(episode.task, WORDS)}"
    show(f"{told.name}{about}".rstrip(": "))
    if one is None:
        show(f"  {told.error or 'nothing to reflect on: it has no events and no error'}")
        return
    if one.step is not None:
        reasons = "; ".join(one.step.reasons)
        show(f"  step     {_named(one.step, episode)}: {clean(reasons, WORDS)}")
    for signal in one.signals[:SIGNALS]:
        proof = ", ".join(
            name or str(at) for at, name in zip(signal.evidence, signal.evidence_ids, strict=True)
        )
        show(f"  signal   {signal.kind} [{clean(proof, NAME)}]: {clean(signal.words, WORDS)}")
    if len(one.signals) > SIGNALS:
        show(f"  signal   and {len(one.signals) - SIGNALS} more")
    show(f"  lesson   {clean(one.text, 2 * WORDS)}")
    if one.strategy is not None:
        show(f"  rule     {clean(one.strategy.text, WORDS)}")
    show(f"  by {clean(one.by, NAME)}, importance {one.reflection.importance:.2f}; {_became(told)}")


def _named(step: Suspect, episode: Episode | None) -> str:
    """A step by its event, the tool or else the words of it, and the agent."""
    event = episode.events[step.at] if episode else None
    words = clean(event.tool or event.content, NAME) if event else ""
    parts = (step.id or str(step.at), words, f"({step.agent})" if step.agent else "")
    return " ".join(clean(part, NAME) for part in parts if part)


def _became(told: _Told) -> str:
    """What memory made of it."""
    one = told.one
    if told.error:
        return f"the model failed, so nothing was kept ({clean(told.error, WORDS)}); {AGAIN}"
    if one is not None and one.busy:
        return BUSY
    if one is None or one.again:
        return "was reflected on before; nothing was added"
    if not one.stored:
        return f"known, seen {one.known} times" if one.known else "not kept"
    kept = f"known, seen {one.known + 1} times now" if one.known else "kept"
    return f"{kept}{', waits in quarantine' if one.quarantined else ''}"


def _sum(work: _Work, db: str) -> None:
    some = [told.one for told in work.done if told.one is not None and not told.error]
    new = [one for one in some if one.stored and not one.known]
    known = [one for one in some if (one.known or one.again) and not one.busy]
    left = work.left + sum(one.busy for one in some)
    failed = sum(bool(told.error) for told in work.done)
    told = f"{counted(len(work.done), 'episode')}: {len(new)} new, {len(known)} known"
    told = f"{told}, {left} left to others" if left else told
    show(f"{told}, {failed} failed" if failed else told)
    if work.left:
        say(f"heedful: {BUSY.replace('it,', 'what is left,')}")
    if failed:
        say(f"heedful: {AGAIN}")
    elif any(one.quarantined for one in new):
        show(following("quarantine", "list", db=db))
    elif new:
        show(following("lessons", db=db))


def _document(work: _Work) -> dict[str, Any]:
    return {
        "episodes": [_plain(told) for told in work.done],
        "failed": sum(bool(told.error) for told in work.done),
        "left": work.left,
    }


def _plain(told: _Told) -> dict[str, Any]:
    """One episode as JSON data."""
    episode, one = told.episode, told.one
    head: dict[str, Any] = {"name": told.name, "error": told.error}
    if episode is not None:
        head |= {"outcome": episode.outcome, "task": episode.task, "digest": episode.digest}
    if one is None:
        return {**head, "reflection": None}
    lessons = {"reflection": one.reflection, "strategy": one.strategy}
    texts = {
        name: lesson
        and {
            "text": lesson.text,
            "importance": lesson.importance,
            "trust": lesson.trust,
            "state": lesson.state,
            "tags": lesson.tags,
            "source": lesson.source,
            "meta": lesson.meta,
        }
        for name, lesson in lessons.items()
    }
    more = {
        "step": one.step and asdict(one.step),
        "signals": [asdict(signal) for signal in one.signals],
        "claims": [asdict(claim) for claim in one.claims],
        "dropped": [asdict(claim) for claim in one.dropped],
        "known": one.known,
        "again": one.again,
        "busy": one.busy,
        "stored": [asdict(answer) for answer in one.stored],
        "usage": asdict(one.usage),
    }
    return {**head, **texts, **more}
