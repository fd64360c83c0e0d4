"""`heedful learn-sessions`: read folders of sessions of coding agents, and learn from them."""

from __future__ import annotations

import asyncio
import hashlib
import re
import shlex
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from typer import Argument

from heedful.cli import output
from heedful.cli import settings as config
from heedful.cli.output import Progress, answer, columns, counted, shorten
from heedful.cli.settings import Settings
from heedful.errors import TraceFileError, UsageError
from heedful.lessons.signature import signature
from heedful.loop.record import clean
from heedful.memory.memory import Memory
from heedful.memory.sessions import Learned, learn_session
from heedful.store import episodes, open_store
from heedful.traces import read
from heedful.traces.episode import Episode, Limits

FILES = ("*.jsonl", "*.json")
PROBLEMS = 20  # that are printed
HEAD = 65_536  # bytes of a file in which the folder of its session is looked for
_FOLDER = re.compile(rb'"cwd"\s*:\s*"((?:[^"\\]|\\.)+)"')
# Nothing of a lesson is cut, so the texts of sessions are read whole.
WHOLE = Limits(content=4_000_000)


@dataclass
class Failure:
    """A failure of the sessions: how often it came back, its cost in actions, and its mend."""

    error: str
    names: set[str] = field(default_factory=set)
    seen: int = 0
    actions: int = 0
    mended: str = ""
    lesson: int = 0
    state: str = ""

    @property
    def sessions(self) -> int:
        """The number of sessions with this failure, in all that was ever read."""
        return max(self.seen, len(self.names))


@dataclass
class Report:
    """What was read: files, sessions, those known before, problems, and the failures."""

    files: int = 0
    sessions: int = 0
    known: int = 0
    corrections: dict[str, int] = field(default_factory=dict)  # how often each was said
    problems: list[str] = field(default_factory=list)
    failures: dict[tuple[str, str], Failure] = field(default_factory=dict)
    waiting: dict[str, set[int]] = field(default_factory=dict)
    forgotten: int = 0

    def add(self, db: str, name: str, made: Learned) -> None:
        """Add what the session `name` taught the memory `db`."""
        self.sessions += 1
        self.known += made.again
        for said in made.corrections:
            self.corrections[said] = self.corrections.get(said, 0) + 1
        if held := {one.entry for one in made.stored.values() if one.entry}:
            self.waiting[db] = self.waiting.get(db, set()) | held
        for mistake in made.mistakes:
            for error in mistake.errors:
                mark = signature("", error).digest
                one = self.failures.setdefault((db, mark), Failure(error))
                one.actions += mistake.steps * (name not in one.names)
                one.names.add(name)
                one.mended = one.mended or "\n".join(mistake.mends)
                if known := made.stored.get(mark):
                    one.lesson, one.state, one.seen = known.id, known.state, known.seen


SHOWN = columns(
    "failure mended_by state sessions actions lesson",
    failure="error",
    mended_by=lambda one: clean(one.mended, 160) or "nothing yet",
)


def learn_sessions(
    folders: Annotated[list[Path], Argument(help="Folders or files of sessions.")],
) -> int:
    """Learn from sessions of coding agents: what failed, how often, and what put it right.

    Reads Claude Code, Codex, OpenAI messages, OTLP. Without --db, what a session teaches goes to
    the memory of its repository, else to your own. Each session counts once. Ctrl-C stops; the same
    command does the rest.
    """
    for folder in folders:
        if not folder.exists():
            raise UsageError(f"{folder} does not exist; give folders or files of sessions")
    values, report = config.settings(), Report()
    rest = "stopped; what was learnt is kept, the same command does the rest"
    with Progress() as progress:
        output.drive(_learn(folders, values, report, progress), lambda: rest)
    return _answer(report)


def _files(folders: Sequence[Path]) -> list[Path]:
    """Return the files of sessions, oldest first, so that they are learnt in their order."""
    found: dict[Path, float] = {}
    for folder in folders:
        inner = (file for form in FILES for file in folder.rglob(form)) if folder.is_dir() else ()
        for file in inner if folder.is_dir() else (folder,):
            if file.is_file():
                found[file] = file.stat().st_mtime
    return sorted(found, key=lambda file: (found[file], str(file)))


async def _learn(
    folders: Sequence[Path], values: Settings, report: Report, progress: Progress
) -> None:
    files = await asyncio.to_thread(_files, folders)
    memories: dict[str, Memory] = {}
    async with AsyncExitStack() as stack:
        for number, file in enumerate(files, 1):
            progress.counted("learning", number, len(files), "files")
            report.files += 1
            try:
                db = await asyncio.to_thread(_database, file, values)
                if db not in memories:
                    store = open_store(config.prepare(db))
                    stack.push_async_callback(store.close)
                    memories[db] = config.memory_of(values, store)
                await _learn_file(file, memories[db], db, report)
            except TraceFileError as error:
                report.problems.append(str(error))
            except OSError as error:
                report.problems.append(f"{file}: it cannot be read ({error.strerror})")
        unused = config.seconds("forget", values.forget) if values.forget else 0.0
        for memory in memories.values() if unused else ():
            report.forgotten += len(await memory.prune(unused_for=unused, by="settings"))


def _database(file: Path, values: Settings) -> str:
    """Return the database for a file: the stated one, or that of its repository, or one's own."""
    if config.states_db():
        return values.db
    with file.open("rb") as opened:
        found = _FOLDER.search(opened.read(HEAD))
    root = config.repository(Path(found[1].decode("utf-8", "replace"))) if found else None
    return str((root or config.own_folder()) / config.DATABASE)


async def _learn_file(file: Path, memory: Memory, db: str, report: Report) -> None:
    """Learn the sessions of a file; its digest is stored with the last one, so it is read once."""
    digest = await asyncio.to_thread(_digest, file)
    if await memory.store.read(memory.scope, episodes.state, digest):
        report.sessions, report.known = report.sessions + 1, report.known + 1
        return
    found, damage = await asyncio.to_thread(_read, file)
    for episode in found:
        last = digest if episode is found[-1] else ""
        made = await learn_session(episode, memory=memory, digest=last)
        report.add(db, episode.session or episode.id or str(file), made)
    if damage is not None:
        raise damage


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _read(file: Path) -> tuple[list[Episode], TraceFileError | None]:
    """Return the sessions of a file, and the error that ends it early."""
    found: list[Episode] = []
    try:
        found.extend(read(file, WHOLE))
    except TraceFileError as error:
        return found, error
    return found, None


def _answer(report: Report) -> int:
    ranked = sorted(report.failures.values(), key=lambda one: (-one.sessions, -one.actions))
    again = sum(one.sessions > 1 for one in ranked)
    words = f"{counted(report.sessions, 'session')} of {counted(report.files, 'file')}"
    words += f", {report.known} known before: {counted(len(ranked), 'failure')}, {again} came back"
    lines: list[object] = [*shorten(SHOWN, ranked, text=3)]
    said = sorted(report.corrections, key=lambda one: -report.corrections[one])
    lines += [f"your correction: {clean(one, 200)}" for one in said[:PROBLEMS]]
    lines.append(words)
    if report.forgotten:
        lines.append(f"{counted(report.forgotten, 'unused lesson')} forgotten")
    for db, held in report.waiting.items():
        lines.append(f"{counted(len(held), 'text')} in quarantine of {db}; if you trust your own:")
        for source, trust in (("user", "operator"), ("tool", "measured")):
            stated = "trust", "set", source, trust, "--waiting", "--db", db
            lines.append(f"  heedful {shlex.join(stated)}")
    names = "files sessions known corrections problems forgotten"
    record = {name: getattr(report, name) for name in names.split()}
    record["waiting"] = {db: sorted(held) for db, held in report.waiting.items()}
    kept = "error sessions actions mended lesson state"
    failures = [{name: getattr(one, name) for name in kept.split()} for one in ranked]
    answer({**record, "failures": failures}, *lines)
    for problem in report.problems[:PROBLEMS] if not output.call().json else ():
        output.say(f"heedful: {problem}")
    return int(bool(report.problems))
