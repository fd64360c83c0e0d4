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
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import KW_ONLY, dataclass, field
from getpass import getuser
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, confirm

from heedful.cli.exits import drive
from heedful.cli.output import (
    answer,
    call,
    columns,
    counted,
    page,
    progress,
    say,
    shorten,
)
from heedful.cli.resources import ask_store, memory_of
from heedful.cli.settings import Settings, seconds, settings, states_db
from heedful.errors import TraceFileError, UsageError
from heedful.lessons.lesson import Trust
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.memory.sessions import Learned, learn_session
from heedful.sanitize import clean
from heedful.store import DEFAULT_DATABASE_FILE, episodes, open_store
from heedful.store.store import Store
from heedful.store.workspace import own_db, prepare_database, repository
from heedful.traces import read
from heedful.traces.episode import Episode, Limits

SESSION_FILE_PATTERNS = ("*.jsonl", "*.json")
MAX_SHOWN_PROBLEMS = 20
MAX_FIX_CELL_CHARS = 160
# The part of a file in which the folder of its session is looked for.
SESSION_HEAD_BYTES = 65_536
_SESSION_FOLDER_PATTERN = re.compile(rb'"cwd"\s*:\s*"((?:[^"\\]|\\.)+)"')
# Nothing of a lesson is cut, so the texts of sessions are read whole.
WHOLE_SESSION_LIMITS = Limits(content=4_000_000)
# The trust of one's own sessions, and of those of others.
OWN_SOURCE_TRUST: dict[str, Trust] = {"user": "operator", "tool": "measured"}
OTHER_SOURCE_TRUST: dict[str, Trust] = {"user": "external", "tool": "tool"}
# What a user can do about texts that wait.
REVIEW_COMMANDS = (
    ("quarantine", "list"),
    ("trust", "set", "user", OWN_SOURCE_TRUST["user"], "--waiting"),
    ("trust", "set", "tool", OWN_SOURCE_TRUST["tool"], "--waiting"),
)


@dataclass
class SessionSurvey:
    """What was read: files, sessions, those known before, problems, and the failures.

    A failure has the number of sessions in which it came back, its cost in actions, and
    what fixed it (`mended`). `waiting` has the texts that wait in quarantine, by
    database, and `unasked` the databases whose user has not said yet whether the
    sessions are their own.
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

    def add(self, db: str, learned: Learned) -> None:
        """Add what a session taught the memory `db`."""
        self.sessions += 1
        if learned.again:
            self.known += 1
        self.corrections += learned.corrections
        entries = {
            stored_lesson.entry
            for stored_lesson in learned.stored.values()
            if stored_lesson.entry
        }
        if entries:
            self.waiting.setdefault(db, set()).update(entries)
        for mistake in learned.mistakes:
            digest = signature("", mistake.error).digest
            new_failure = {
                "error": mistake.error,
                "mended": "",
                "state": "",
                "lesson": 0,
                "sessions": 0,
                "actions": 0,
            }
            failure = self.failures.setdefault((db, digest), new_failure)
            failure["actions"] += mistake.steps
            failure["mended"] = failure["mended"] or "\n".join(mistake.mends)
            stored_lesson = learned.stored.get(digest)
            if stored_lesson is not None:
                failure["sessions"] = stored_lesson.seen  # of all that were ever read
                failure["lesson"] = stored_lesson.id
                failure["state"] = stored_lesson.state


def _fix_cell(failure: Mapping[str, Any]) -> str:
    return clean(failure["mended"], MAX_FIX_CELL_CHARS) or "nothing yet"


FAILURE_COLUMNS = columns(
    "failure fixed_by state sessions actions lesson",
    failure="error",
    fixed_by=_fix_cell,
)


def learn_sessions(
    folders: Annotated[list[Path], Argument(help="Folders or files of sessions.")],
) -> int:
    """Learn from sessions of coding agents: what failed, how often, and what fixed it.

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
    values = settings()
    survey = SessionSurvey()
    stopped = "stopped; what was learnt is kept, the same command does the rest"
    drive(_learn(folders, values, survey), lambda: stopped)
    asks = not call().json and sys.stdin.isatty() and sys.stderr.isatty()
    dbs_to_ask = survey.unasked if asks else []
    failures = sorted(
        survey.failures.values(), key=lambda row: (-row["sessions"], -row["actions"])
    )
    document = {
        **vars(survey),
        "waiting": {db: sorted(entries) for db, entries in survey.waiting.items()},
        "failures": failures,
    }
    text = page(
        "sessions",
        report=survey,
        ranked=failures,
        names=SESSION_FILE_PATTERNS,
        asked=dbs_to_ask,
        join=shlex.join,
        ways=REVIEW_COMMANDS,
        corrections=Counter(survey.corrections).most_common(MAX_SHOWN_PROBLEMS),
    )
    answer(document, shorten(FAILURE_COLUMNS, failures, text=3), text)
    if not call().json:
        for problem in survey.problems[:MAX_SHOWN_PROBLEMS]:
            say(f"heedful: {problem}")
    for db in dbs_to_ask:
        _ask_whose(values.model_copy(update={"db": db}), len(survey.waiting[db]))
    return 1 if survey.problems else 0


def _ask_whose(values: Settings, waiting: int) -> None:
    """Ask whether the sessions are the user's own, and record the answer, so that it
    holds.
    """
    are_own = confirm(
        f"{counted(waiting, 'text')} in quarantine of {values.db}. Were these sessions "
        "your own? Then your words, and what your programs printed, are trusted.",
        err=True,
    )
    statements = OWN_SOURCE_TRUST if are_own else OTHER_SOURCE_TRUST

    async def state(store: Store) -> int:
        memory = memory_of(values, store)
        released = 0
        for source, trust in statements.items():
            released_ids = await memory.set_trust(
                source,
                trust,
                by=getuser(),
                why="answered heedful learn-sessions",
                waiting=are_own,
            )
            released += len(released_ids)
        return released

    released = ask_store(values, state)
    say(
        f"{counted(released, 'text')} released; heedful trust list shows the statements"
    )


async def _learn(
    folders: Sequence[Path], values: Settings, survey: SessionSurvey
) -> None:
    files = _session_files(folders)
    memories: dict[str, Memory] = {}
    async with AsyncExitStack() as stack:
        for number, file in enumerate(files, 1):
            progress().counted("learning", number, len(files), "files")
            survey.files += 1
            try:
                db = await asyncio.to_thread(_database, file, values)
                if db not in memories:
                    store = open_store(prepare_database(db))
                    stack.push_async_callback(store.close)
                    memories[db] = memory_of(values, store)
                await _learn_file(file, memories[db], db, survey)
            except OSError as error:
                survey.problems.append(f"{file}: it cannot be read ({error.strerror})")
        for db in survey.waiting:
            if "user" not in await memories[db].stated_trust():
                survey.unasked.append(db)
        if values.forget:
            unused_for = seconds("forget", values.forget)
            for memory in memories.values():
                removed = await memory.prune(unused_for=unused_for, by="settings")
                survey.forgotten += len(removed)


def _session_files(folders: Sequence[Path]) -> list[Path]:
    """Return the files of sessions, oldest first, so that they are learnt in their
    order.
    """
    paths = set(folders)
    for folder in folders:
        for pattern in SESSION_FILE_PATTERNS:
            paths.update(folder.rglob(pattern))
    files = filter(Path.is_file, paths)
    return sorted(files, key=lambda file: (file.stat().st_mtime, str(file)))


def _database(file: Path, values: Settings) -> str:
    """Return the database for a file: the stated one, or that of its repository, or
    one's own.
    """
    if states_db():
        return values.db
    with file.open("rb") as opened:
        match = _SESSION_FOLDER_PATTERN.search(opened.read(SESSION_HEAD_BYTES))
    root = None
    if match:
        root = repository(Path(match[1].decode("utf-8", "replace")))
    db = own_db() if root is None else root / DEFAULT_DATABASE_FILE
    db.parent.mkdir(parents=True, exist_ok=True)
    return str(db)


async def _learn_file(
    file: Path, memory: Memory, db: str, survey: SessionSurvey
) -> None:
    """Learn the sessions of a file; its digest is stored with the last one, so it is
    read once.
    """
    with file.open("rb") as opened:
        file_hash = await asyncio.to_thread(hashlib.file_digest, opened, "sha256")
    digest = file_hash.hexdigest()
    if await memory.store.read(memory.scope, episodes.state, digest):
        survey.sessions += 1
        survey.known += 1
        return
    sessions: list[Episode] = []

    def read_file() -> None:
        sessions.extend(read(file, WHOLE_SESSION_LIMITS))

    try:
        await asyncio.to_thread(read_file)
    except TraceFileError as error:  # what stands before the damage is learnt
        survey.problems.append(str(error))
    for place, session in enumerate(sessions, 1):
        digest_of_last = digest if place == len(sessions) else ""
        learned = await learn_session(session, memory=memory, digest=digest_of_last)
        survey.add(db, learned)
