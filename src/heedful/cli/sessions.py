"""`heedful learn-sessions`: read folders of sessions of coding agents, and learn from
them.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import KW_ONLY, dataclass, field
from getpass import getuser
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, confirm

from heedful.cli import output
from heedful.cli import settings as config
from heedful.cli.output import answer, columns, counted, shorten
from heedful.cli.settings import Settings
from heedful.errors import TraceFileError, UsageError
from heedful.lessons.lesson import Trust
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.memory.sessions import Learned, learn_session
from heedful.sanitize import clean
from heedful.store import (
    DEFAULT_DATABASE_FILE,
    episodes,
    open_store,
    own_db,
    prepare,
    repository,
)
from heedful.traces import read
from heedful.traces.episode import Episode, Limits

SESSION_FILE_PATTERNS = ("*.jsonl", "*.json")
MAX_SHOWN_PROBLEMS = 20  # that are printed
SESSION_HEAD_BYTES = (
    65_536  # bytes of a file in which the folder of its session is looked for
)
_SESSION_FOLDER_PATTERN = re.compile(rb'"cwd"\s*:\s*"((?:[^"\\]|\\.)+)"')
# Nothing of a lesson is cut, so the texts of sessions are read whole.
WHOLE_SESSION_LIMITS = Limits(content=4_000_000)
# The trust of one's own sessions, and of those of others.
OWN_SOURCE_TRUST: dict[str, Trust] = {"user": "operator", "tool": "measured"}
OTHER_SOURCE_TRUST: dict[str, Trust] = {"user": "external", "tool": "tool"}


@dataclass
class SessionSurvey:
    """What was read: files, sessions, those known before, problems, and the failures.

    A failure has the number of sessions in which it came back, its cost in actions, and
    its mend. `waiting` has the texts that wait in quarantine, by database, and
    `unasked` the databases whose user has not said yet whether the sessions are his
    own.
    """

    files: int = 0
    sessions: int = 0
    _: KW_ONLY
    known: int = 0
    forgotten: int = 0
    corrections: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    waiting: dict[str, set[int]] = field(default_factory=dict)
    unasked: list[str] = field(default_factory=list)
    failures: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def add(self, db: str, made: Learned) -> None:
        """Add what a session taught the memory `db`."""
        self.sessions += 1
        self.known += made.again
        self.corrections += made.corrections
        if held := {one.entry for one in made.stored.values() if one.entry}:
            self.waiting.setdefault(db, set()).update(held)
        for mistake in made.mistakes:
            mark = signature("", mistake.error).digest
            row: dict[str, Any] = {
                "error": mistake.error,
                "mended": "",
                "state": "",
                "lesson": 0,
            }
            row = self.failures.setdefault(
                (db, mark), {**row, "sessions": 0, "actions": 0}
            )
            row["actions"] += mistake.steps
            row["mended"] = row["mended"] or "\n".join(mistake.mends)
            if known := made.stored.get(
                mark
            ):  # counts the sessions that were ever read
                row |= {
                    "sessions": known.seen,
                    "lesson": known.id,
                    "state": known.state,
                }


MISTAKE_COLUMNS = columns(
    "failure mended_by state sessions actions lesson",
    failure="error",
    mended_by=lambda one: clean(one["mended"], 160) or "nothing yet",
)


def learn_sessions(
    folders: Annotated[list[Path], Argument(help="Folders or files of sessions.")],
) -> int:
    """Learn from sessions of coding agents: what failed, how often, and what put it
    right.

    Reads Claude Code, Codex, OpenAI messages, OTLP. Without --db, what a session
    teaches goes to the memory of its repository, else to your own. Each session counts
    once. Ctrl-C stops; the same command does the rest. On a terminal it asks once
    whether the sessions are your own.
    """
    for folder in folders:
        if not folder.exists():
            raise UsageError(
                f"{folder} does not exist; give folders or files of sessions"
            )
    values = config.settings()
    report = SessionSurvey()
    stopped = "stopped; what was learnt is kept, the same command does the rest"
    output.drive(_learn(folders, values, report), lambda: stopped)
    asks = not output.call().json and sys.stdin.isatty() and sys.stderr.isatty()
    asked = report.unasked if asks else ()
    ranked = sorted(
        report.failures.values(), key=lambda one: (-one["sessions"], -one["actions"])
    )
    ways = [
        ("quarantine", "list"),
        *(("trust", "set", *one, "--waiting") for one in OWN_SOURCE_TRUST.items()),
    ]
    shown = {
        "report": report,
        "ranked": ranked,
        "names": SESSION_FILE_PATTERNS,
        "asked": asked,
        "join": shlex.join,
    }
    shown |= {
        "ways": ways,
        "corrections": Counter(report.corrections).most_common(MAX_SHOWN_PROBLEMS),
    }
    waiting = {db: sorted(held) for db, held in report.waiting.items()}
    document = {**vars(report), "waiting": waiting, "failures": ranked}
    answer(
        document,
        *shorten(MISTAKE_COLUMNS, ranked, text=3),
        output.page("sessions", **shown),
    )
    for problem in (
        report.problems[:MAX_SHOWN_PROBLEMS] if not output.call().json else ()
    ):
        output.say(f"heedful: {problem}")
    for db in asked:
        _ask(values.model_copy(update={"db": db}), len(report.waiting[db]))
    return int(bool(report.problems))


def _ask(values: Settings, held: int) -> None:
    """Ask whether the sessions are the user's own, and record the answer, so that it
    holds.
    """
    say = (
        f"{counted(held, 'text')} in quarantine of {values.db}. Were these sessions "
        "your own?"
    )
    own = confirm(
        f"{say} Then your words, and what your programs printed, are trusted.", err=True
    )
    options: Any = {
        "by": getuser(),
        "why": "answered heedful learn-sessions",
        "waiting": own,
    }

    async def state(memory: Memory) -> int:
        said = [
            await memory.set_trust(*one, **options)
            for one in (OWN_SOURCE_TRUST if own else OTHER_SOURCE_TRUST).items()
        ]
        return sum(map(len, said))

    released = config.ask_store(
        values, lambda store: state(config.memory_of(values, store))
    )
    output.say(
        f"{counted(released, 'text')} released; heedful trust list shows the statements"
    )


async def _learn(
    folders: Sequence[Path], values: Settings, report: SessionSurvey
) -> None:
    found = {
        *folders,
        *(
            file
            for one in folders
            for form in SESSION_FILE_PATTERNS
            for file in one.rglob(form)
        ),
    }
    # Oldest first, so that they are learnt in their order.
    files = sorted(
        filter(Path.is_file, found), key=lambda file: (file.stat().st_mtime, str(file))
    )
    memories: dict[str, Memory] = {}
    async with AsyncExitStack() as stack:
        for number, file in enumerate(files, 1):
            output.progress().counted("learning", number, len(files), "files")
            report.files += 1
            try:
                db = await asyncio.to_thread(_database, file, values)
                if db not in memories:
                    store = open_store(prepare(db))
                    stack.push_async_callback(store.close)
                    memories[db] = config.memory_of(values, store)
                await _learn_file(file, memories[db], db, report)
            except OSError as error:
                report.problems.append(f"{file}: it cannot be read ({error.strerror})")
        for db in report.waiting:
            report.unasked += (
                [] if "user" in await memories[db].stated_trust() else [db]
            )
        unused = config.seconds("forget", values.forget) if values.forget else 0.0
        for memory in memories.values() if unused else ():
            report.forgotten += len(
                await memory.prune(unused_for=unused, by="settings")
            )


def _database(file: Path, values: Settings) -> str:
    """Return the database for a file: the stated one, or that of its repository, or
    one's own.
    """
    if config.states_db():
        return values.db
    with file.open("rb") as opened:
        found = _SESSION_FOLDER_PATTERN.search(opened.read(SESSION_HEAD_BYTES))
    root = repository(Path(found[1].decode("utf-8", "replace"))) if found else None
    db = own_db() if root is None else root / DEFAULT_DATABASE_FILE
    db.parent.mkdir(parents=True, exist_ok=True)
    return str(db)


async def _learn_file(
    file: Path, memory: Memory, db: str, report: SessionSurvey
) -> None:
    """Learn the sessions of a file; its digest is stored with the last one, so it is
    read once.
    """
    with file.open("rb") as opened:
        digest = (
            await asyncio.to_thread(hashlib.file_digest, opened, "sha256")
        ).hexdigest()
    if await memory.store.read(memory.scope, episodes.state, digest):
        report.sessions = report.sessions + 1
        report.known = report.known + 1
        return
    found: list[Episode] = []
    try:
        await asyncio.to_thread(lambda: found.extend(read(file, WHOLE_SESSION_LIMITS)))
    except TraceFileError as error:  # what stands before the damage is learnt
        report.problems.append(str(error))
    for episode in found:
        last = digest if episode is found[-1] else ""
        report.add(db, await learn_session(episode, memory=memory, digest=last))
