"""`heedful learn-sessions`: read sessions of coding agents, and learn from them.

What a session teaches goes to the database of the repository in which the agent worked,
unless a database is stated. What users and programs said in it waits in quarantine
until somebody says whose sessions they are.
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
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, confirm, prompt

from heedful.cli.exits import drive
from heedful.cli.output import (
    answer,
    columns,
    counted,
    current_command,
    page,
    progress,
    say,
    shorten,
)
from heedful.cli.resources import ask_store, memory_of, state_trust
from heedful.cli.settings import (
    Settings,
    approved_settings,
    seconds,
    settings,
    states_db,
)
from heedful.errors import TraceFileError, UsageError
from heedful.integrations.hook import read_settings
from heedful.lessons.lesson import Remembered, Trust
from heedful.lessons.signature import signature
from heedful.lessons.trust import QuarantinedLesson
from heedful.memory.memory import Memory
from heedful.memory.sessions import Learned, Mistake, learn_session
from heedful.sanitize import clean
from heedful.store import episodes, open_store
from heedful.store.ownership import home_folder, prepare_database
from heedful.store.store import Store
from heedful.store.workspace import find_repository
from heedful.traces import read
from heedful.traces.episode import Episode, Limits

SESSION_FILE_PATTERNS = ("*.jsonl", "*.json")
MAX_SHOWN_PROBLEMS = 20
MAX_FIX_CELL_CHARS = 160
# The folder of a session is looked for in the first bytes of its file.
SESSION_HEAD_BYTES = 65_536
# The JSON field of the folder, such as "cwd": "/srv/shop". The first group is the
# path as JSON has it, with \" for a quotation mark.
SESSION_FOLDER_PATTERN = re.compile(rb'"cwd"\s*:\s*"((?:[^"\\]|\\.)+)"')
# No part of a lesson is cut, so the texts of sessions are read whole.
WHOLE_SESSION_LIMITS = Limits(content=4_000_000)
# The trust of one's own sessions, and of those of others. Programs are trusted by name.
OWN_SOURCE_TRUST: dict[str, Trust] = {"user": "operator", "tool": "measured"}
OTHER_SOURCE_TRUST: dict[str, Trust] = {"user": "external", "tool": "tool"}
# The programs whose texts wait that are named, those with the most texts first.
MAX_NAMED_PROGRAMS = 8


@dataclass
class SessionSurvey:
    """What was read: files, sessions, those known before, problems, and the failures.

    A failure has the number of sessions in which it came back, its cost in actions, and
    what fixed it (`mended`); its key is the database and the digest of the error.
    `waiting` has the texts that wait in quarantine, by database, `programs` how many of
    them depend on each program, and `unasked` the databases whose user has not said yet
    whether the sessions are their own.
    """

    files: int = 0
    sessions: int = 0
    _: KW_ONLY
    known: int = 0
    forgotten: int = 0
    corrections: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    waiting: dict[str, set[int]] = field(default_factory=dict)
    programs: dict[str, Counter[str]] = field(default_factory=dict)
    unasked: list[str] = field(default_factory=list)
    failures: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def add(self, db: str, learned: Learned) -> None:
        """Add what a session taught the memory `db`."""
        self.sessions += 1
        if learned.again:
            self.known += 1
        self.corrections += learned.corrections

        stored_lessons = learned.stored.values()
        entries = {lesson.entry for lesson in stored_lessons if lesson.entry}
        if entries:
            self.waiting.setdefault(db, set()).update(entries)

        for mistake in learned.mistakes:
            digest = signature("", mistake.error).digest
            self._add_failure(db, digest, mistake, learned.stored.get(digest))

    def _add_failure(
        self, db: str, digest: str, mistake: Mistake, lesson: Remembered | None
    ) -> None:
        """Add a mistake to the failure with its digest; `lesson` is None if none is
        stored.
        """
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
        if not failure["mended"]:
            failure["mended"] = "\n".join(mistake.mends)

        if lesson is not None:
            failure["sessions"] = lesson.seen  # of all that were ever read
            failure["lesson"] = lesson.id
            failure["state"] = lesson.state


def _review_commands(programs: Counter[str]) -> list[tuple[str, ...]]:
    """Return the commands that review or release texts that wait."""
    commands: list[tuple[str, ...]] = [("quarantine", "list")]
    trust_by_source = {**OWN_SOURCE_TRUST}
    for source, _ in programs.most_common(MAX_NAMED_PROGRAMS):
        trust_by_source[source] = "measured"
    for source, trust in trust_by_source.items():
        commands.append(("trust", "set", source, trust, "--waiting"))
    return commands


def _count_programs(entries: Sequence[QuarantinedLesson]) -> Counter[str]:
    """Count the entries that depend on each program."""
    counts = Counter[str]()
    for entry in entries:
        sources = entry.source.split(", ")
        counts.update(source for source in sources if source.startswith("program:"))
    return counts


def _fix_cell(failure: Mapping[str, Any]) -> str:
    """Return what fixed a failure, as a cell of the table."""
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
    return learn_from(folders)


def learn_from(folders: Sequence[Path], approved_only: bool = False) -> int:
    """Learn from sessions as `learn_sessions` does, and return the exit code.

    The files of the current folder count only if an option or the environment states
    the database, and not if `approved_only`.
    """
    for folder in folders:
        if not folder.exists():
            raise UsageError(
                f"{folder} does not exist; give folders or files of sessions"
            )

    stated = None
    if states_db(files=False) and not approved_only:
        stated = settings()
    elif not approved_only:
        for item in read_settings(Path.cwd())["ignored"]:
            say(f"{item}; heedful hook approve shows it and asks")
    survey = SessionSurvey()
    stopped = "stopped; what was learnt is kept, the same command does the rest"
    values_by_db: dict[str, Settings] = {}
    drive(_learn(folders, stated, survey, values_by_db), lambda: stopped)

    prints_json = current_command().json
    may_ask = not prints_json and sys.stdin.isatty() and sys.stderr.isatty()
    dbs_to_ask = survey.unasked if may_ask else []

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
        ways={db: _review_commands(survey.programs[db]) for db in survey.waiting},
        corrections=Counter(survey.corrections).most_common(MAX_SHOWN_PROBLEMS),
    )
    answer(document, shorten(FAILURE_COLUMNS, failures, text_columns=3), text)

    if not prints_json:
        for problem in survey.problems[:MAX_SHOWN_PROBLEMS]:
            say(f"heedful: {problem}")
    for db in dbs_to_ask:
        _ask_whose(values_by_db[db], len(survey.waiting[db]), survey.programs[db])
    return 1 if survey.problems else 0


def _ask_whose(values: Settings, waiting: int, programs: Counter[str]) -> None:
    """Ask whether the sessions are the user's own, and record the answer.

    Then the user and the agent's own tools are trusted, and the programs that the user
    names; what others printed stays in quarantine.
    """
    are_own = confirm(
        f"{counted(waiting, 'text')} in quarantine of {values.db}. Were these sessions "
        "your own? Then your words are trusted, and the agent's tools for files.",
        err=True,
    )
    trust_by_source = dict(OWN_SOURCE_TRUST if are_own else OTHER_SOURCE_TRUST)
    if are_own and programs:
        counts = [
            f"{source.removeprefix('program:')} ({number})"
            for source, number in programs.most_common(MAX_NAMED_PROGRAMS)
        ]
        question = f"Trusted programs, of {', '.join(counts)}"
        names = prompt(question, default="none", err=True).replace(",", " ").split()
        sources = [f"program:{name}" for name in names if name != "none"]
        trust_by_source |= dict.fromkeys(sources, "measured")

    async def state(store: Store) -> int:
        """Record the answer, and return how many texts were released."""
        memory = memory_of(values, store)
        why = "answered heedful learn-sessions"
        return await state_trust(memory, trust_by_source, why=why, release=are_own)

    released = ask_store(values, state)
    say(
        f"{counted(released, 'text')} released; heedful trust list shows the statements"
    )


async def _learn(
    folders: Sequence[Path],
    stated: Settings | None,
    survey: SessionSurvey,
    values_by_db: dict[str, Settings],
) -> None:
    """Learn from all files, each into the memory it belongs to, and fill the survey.

    The `stated` settings are for all files. `values_by_db` gets those of each database.
    """
    files = _session_files(folders)
    memories: dict[str, Memory] = {}  # by database
    async with AsyncExitStack() as stack:
        for number, file in enumerate(files, 1):
            progress().counted("learning", number, len(files), "files")
            survey.files += 1

            try:
                values = stated
                if values is None:
                    values = await asyncio.to_thread(_settings_of, file)
                db = values.db
                if db not in memories:
                    store = open_store(prepare_database(db))
                    stack.push_async_callback(store.close)
                    memories[db] = memory_of(values, store)
                    values_by_db[db] = values

                await _learn_file(file, memories[db], db, survey)
            except OSError as error:
                survey.problems.append(f"{file}: it cannot be read ({error.strerror})")
            except UsageError as error:
                survey.problems.append(f"{file}: {error}")

        for db in survey.waiting:
            entries = await memories[db].quarantine.waiting()
            survey.programs[db] = _count_programs(entries)
            if "user" not in await memories[db].stated_trust():
                survey.unasked.append(db)

        for db, memory in memories.items():
            forget = values_by_db[db].forget
            if forget:
                unused_for = seconds("forget", forget)
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


def _settings_of(file: Path) -> Settings:
    """Return the settings for a file of sessions, with its database.

    They are what hooks follow in the folder in which the session worked: anyone may
    have written its files. Outside of repositories they are the user's own. Raises
    OSError, UsageError.
    """
    with file.open("rb") as opened:
        match = SESSION_FOLDER_PATTERN.search(opened.read(SESSION_HEAD_BYTES))

    folder = home_folder()
    if match:
        session_folder = Path(match[1].decode("utf-8", "replace"))
        if find_repository(session_folder) is not None:
            folder = session_folder
    return approved_settings(folder)


async def _learn_file(
    file: Path, memory: Memory, db: str, survey: SessionSurvey
) -> None:
    """Learn the sessions of a file; a file that was learnt before is not read again.

    The digest of the file is stored with its last session. So a file whose reading was
    interrupted is read again, and the sessions that were learnt then count once.
    """
    with file.open("rb") as opened:
        file_hash = await asyncio.to_thread(hashlib.file_digest, opened, "sha256")
    file_digest = file_hash.hexdigest()

    if await memory.store.read(memory.scope, episodes.state, file_digest):
        survey.sessions += 1
        survey.known += 1
        return

    sessions: list[Episode] = []

    def read_file() -> None:
        """Add the sessions one by one, so that an error loses only what follows it."""
        sessions.extend(read(file, WHOLE_SESSION_LIMITS))

    try:
        await asyncio.to_thread(read_file)
    except TraceFileError as error:  # what comes before the damage is learnt
        survey.problems.append(str(error))

    for place, session in enumerate(sessions, 1):
        digest = file_digest if place == len(sessions) else ""
        learned = await learn_session(session, memory=memory, digest=digest)
        survey.add(db, learned)
