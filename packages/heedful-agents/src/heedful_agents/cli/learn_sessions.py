"""`heedful learn-sessions`: read sessions of coding agents, and learn from them.

What a session teaches goes to the database of the repository in which the agent worked,
unless a database is stated. What users and programs said in it waits in quarantine
until somebody says whose sessions they are.
"""

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Annotated

from typer import Argument

from heedful.cli.exits import run_interruptibly
from heedful.cli.printing import (
    answer,
    command_line,
    current_command,
    page,
    say,
    show_progress,
)
from heedful.cli.reflect_command import FailureTable, told_words
from heedful.cli.resources import memory_of
from heedful.cli.settings import (
    Settings,
    is_stated,
    settings,
    settings_of_hooks,
)
from heedful.episodes import read
from heedful.episodes.episode import Episode, Limits
from heedful.episodes.trace_files import files_in
from heedful.errors import TraceFileError, UsageError
from heedful.lessons.commands import trust_words
from heedful.lessons.origin import names_to_state
from heedful.memory.memory import Memory
from heedful.memory.sessions import Learned, learn_session
from heedful.store import episodes, open_store
from heedful.store.projects import (
    find_repository,
    own_db,
    prepare_database,
    project_top,
)
from heedful.validation import MAX_SHOWN_ITEMS

# The folder of a session is looked for in the first bytes of its file.
SESSION_HEAD_BYTES = 65_536
# The JSON field of the folder, such as "cwd": "/srv/shop". The first group is the
# path as JSON has it, with \" for a quotation mark.
SESSION_FOLDER_PATTERN = re.compile(rb'"cwd"\s*:\s*"((?:[^"\\]|\\.)+)"')
# No part of a lesson is cut, so the texts of sessions are read whole.
WHOLE_SESSION_LIMITS = Limits(content=4_000_000)


@dataclass
class SessionSurvey:
    """What was read: files, sessions, those known before, problems, and the failures.

    `waiting` has the texts that wait in quarantine, by database, and `names` those of
    the sources for which they wait. `unread` are the files of a folder that are of no
    known format.
    """

    files: int = 0
    sessions: int = 0
    _: KW_ONLY
    known: int = 0
    rules: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    waiting: dict[str, set[int]] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    failures: FailureTable = field(default_factory=FailureTable)

    def add(self, db: str, session: Episode, learned: Learned) -> None:
        """Add what a session taught the memory `db`."""
        self.sessions += 1
        if learned.was_known:
            self.known += 1
        self.rules += learned.rules

        stored_lessons = learned.stored.values()
        entries = {lesson.entry for lesson in stored_lessons if lesson.entry}
        if entries:
            self.waiting.setdefault(db, set()).update(entries)

        for mistake in learned.mistakes:
            lesson = learned.stored.get(mistake.signature)
            self.failures.add(db, mistake, lesson, session)


def learn_sessions(
    folders: Annotated[list[Path], Argument(help="Folders or files of sessions.")],
) -> int:
    """Learn from sessions of coding agents: what failed, how often, and what fixed it.

    Reads all formats that `heedful reflect` reads; in a folder, other files are named
    and left. Without --db, what a session teaches goes to the memory of its repository,
    else to your own. Each session counts once. You can stop it with Ctrl-C; the same
    command then does the rest.
    """
    for folder in folders:
        if not folder.exists():
            raise UsageError(
                f"{folder} does not exist; give folders or files of sessions"
            )

    stated = None
    if is_stated("db", files=False):
        stated = settings()
    survey = SessionSurvey()
    stopped = "stopped; what was learnt is kept, the same command does the rest"
    run_interruptibly(_learn_folders(folders, stated, survey), lambda: stopped)

    ranked = survey.failures.ranked()
    document = {
        **vars(survey),
        "waiting": {db: sorted(entries) for db, entries in survey.waiting.items()},
        "failures": survey.failures.documents(),
    }

    text = page(
        "sessions",
        report=survey,
        ranked=ranked,
        unread=", ".join(survey.unread[:MAX_SHOWN_ITEMS]),
        ways={
            db: command_line(*trust_words(names), db=db)
            for db, names in survey.names.items()
            if names
        },
        rules=Counter(survey.rules).most_common(MAX_SHOWN_ITEMS),
    )
    answer(document, [*survey.failures.text(), text, told_words(ranked)])

    if not current_command().json:
        for problem in survey.problems[:MAX_SHOWN_ITEMS]:
            say(f"heedful: {problem}")
    return 1 if survey.problems else 0


async def _learn_folders(
    folders: Sequence[Path], stated: Settings | None, survey: SessionSurvey
) -> None:
    """Learn from all files, each into the memory it belongs to, and fill the survey.

    The `stated` settings are for all files.
    """
    files = list({file for file, _ in files_in(folders)})
    # The oldest first: what happened later counts later.
    files.sort(key=lambda file: (file.stat().st_mtime, str(file)))
    memories: dict[str, Memory] = {}
    try:
        for number, file in enumerate(files, 1):
            show_progress("learning", number, len(files), "files")
            is_named = file in folders
            await _learn_file(file, memories, stated, survey, is_named=is_named)

        for db in survey.waiting:
            entries = await memories[db].quarantine.waiting()
            sources = list(chain.from_iterable(entry.sources for entry in entries))
            survey.names[db] = list(names_to_state(sources))
    finally:
        for memory in memories.values():
            await memory.store.close()


async def _learn_file(
    file: Path,
    memories: dict[str, Memory],
    stated: Settings | None,
    survey: SessionSurvey,
    *,
    is_named: bool,
) -> None:
    """Find the memory that a file of sessions belongs to, and let it learn from them.

    `memories` are those that are open, by their databases; a new one is added. What
    goes wrong is a problem of the survey: the other files are read all the same.
    """
    survey.files += 1
    try:
        values = stated
        if values is None:
            values = await asyncio.to_thread(_settings_of, file)
        db = values.db
        if db not in memories:
            store = open_store(prepare_database(db))
            memories[db] = memory_of(values, store)
        await _teach_memory(memories[db], db, file, survey, is_named=is_named)
    except OSError as error:
        survey.problems.append(f"{file}: it cannot be read ({error.strerror})")
    except UsageError as error:
        survey.problems.append(f"{file}: {error}")


def _settings_of(file: Path) -> Settings:
    """Return the settings for a file of sessions, with its database.

    They are those of hooks in the folder in which the session worked; without such a
    folder, the database is the user's own. Raises OSError, UsageError.
    """
    folder = _session_folder(file)
    if folder is None:
        return replace(settings_of_hooks(), db=str(own_db()))
    return settings_of_hooks(folder)


def _session_folder(file: Path) -> Path | None:
    """Return the folder in which a session worked, None if it is not on this machine.

    Raises OSError.
    """
    with file.open("rb") as opened:
        match = SESSION_FOLDER_PATTERN.search(opened.read(SESSION_HEAD_BYTES))

    if match:
        folder = Path(match[1].decode("utf-8", "replace"))
        if folder.is_dir() or find_repository(folder) is not None:
            return folder
    return None


async def _teach_memory(
    memory: Memory, db: str, file: Path, survey: SessionSurvey, *, is_named: bool
) -> None:
    """Teach a memory the sessions of a file, unless it has learnt the file before.

    The digest of the file is stored with its last session. So a file whose reading was
    interrupted is read again, and the sessions that were learnt then count once. A file
    that is not named itself may be of no known format.
    """
    with file.open("rb") as opened:
        file_hash = await asyncio.to_thread(hashlib.file_digest, opened, "sha256")
    file_digest = file_hash.hexdigest()

    if await memory.store.read(memory.scope, episodes.state, file_digest):
        survey.sessions += 1
        survey.known += 1
        return

    sessions: list[Episode] = []
    traces = read(file, WHOLE_SESSION_LIMITS)
    try:
        # One by one, so that damage loses only what follows it.
        await asyncio.to_thread(sessions.extend, traces)
        survey.problems.extend(map(str, traces.skipped))
    except TraceFileError as error:
        if is_named or traces.is_recognised:
            survey.problems.append(str(error))
        else:
            survey.unread.append(str(file))

    folder = _session_folder(file)
    root = "" if folder is None else str(project_top(folder))

    for place, session in enumerate(sessions, 1):
        digest = file_digest if place == len(sessions) else ""
        learned = await learn_session(session, memory=memory, digest=digest, root=root)
        survey.add(db, session, learned)
