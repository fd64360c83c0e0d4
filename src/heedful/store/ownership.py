"""Whose a database is: which files hooks may follow, because the user made them.

A database has a random identity, which its file keeps (the table `identity`). When
heedful makes a database in a repository, it notes the identity in the user's own
`~/.heedful/approved.json`. So another file in the same place is known as another one,
whoever put it there: nobody can guess the identity of a file that he has not read.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from pathlib import Path

from heedful.errors import UsageError
from heedful.store import DEFAULT_DATABASE_FILE, POSTGRES_PREFIXES
from heedful.store.workspace import (
    git_folder,
    is_tracked,
    own_db,
    read_project_file,
    repository_db,
)

# The file beside the user's own database that says what of projects is used.
APPROVALS_FILE = "approved.json"
# Files of SQLite beside a database; the first two change what is read from it.
LOG_SUFFIXES = ("-wal", "-journal", "-shm")
# A database of somebody else may have a view in the place of a table.
MAX_IDENTITY_STEPS = 100_000
IS_TRACKED = "git tracks it, so anyone who pushes to the repository can replace it"
IS_UNKNOWN = "heedful did not make it here, and you have not approved it"
IS_REPLACED = "it is not the database that you approved or that heedful made"
HAS_LOG = "; a log of another database lies beside it"
IS_NO_FILE = "it is no regular file"
IS_LOG_ONLY = "it is gone, but a log ({log}) lies beside its place"


def home_folder() -> Path:
    """Return the folder of what belongs to no repository, which is private."""
    folder = own_db().parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def private(path: str, flags: int) -> int:
    """Open a file that only its owner may read, as `open` takes it for an `opener`."""
    return os.open(path, flags, 0o600)


def approvals() -> dict[str, dict[str, str]]:
    """Return what the user has approved.

    These are `files` (parts of settings, with the digests of their values), `trust` for
    all projects, and `databases` (paths by identity).
    """
    approved: dict[str, dict[str, str]] = {"files": {}, "trust": {}, "databases": {}}
    with suppress(OSError, ValueError):
        approved |= json.loads(read_project_file(home_folder() / APPROVALS_FILE))
    return approved


def approve(kind: str, more: Mapping[str, str]) -> None:
    """Add to the "files", "trust" or "databases" that are approved. Raises OSError."""
    folder = home_folder()
    with _one_at_a_time(folder):
        approved = approvals()
        approved[kind] |= more

        # The file is replaced at once, so that no hook reads half of it.
        draft = folder / f"{APPROVALS_FILE}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8", opener=private) as file:
            json.dump(approved, file, indent=2)
        draft.replace(folder / APPROVALS_FILE)


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Keep other processes from changing the approvals during the block."""
    with open(folder / "approved.lock", "w", opener=private) as file:
        # Windows has no such locks.
        with suppress(ImportError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def identity_of(path: Path) -> str:
    """Return the identity of a database file, "" if it has none.

    Nothing is written, and no log beside the file is read: it may be another file's.
    """
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as db:
            db.set_progress_handler(lambda: 1, MAX_IDENTITY_STEPS)
            db.execute("pragma trusted_schema = off")
            (identity,) = db.execute("select id from identity limit 1").fetchone()
            return str(identity)
    except (sqlite3.Error, TypeError, OSError):
        return ""


def doubt_about(db: str, folder: Path) -> str:
    """Return why hooks in a folder must not follow a database, "" if they may.

    Only files that come with a project are doubted: those in repositories and those
    below the folder.
    """
    path = Path(db)
    if db.startswith(POSTGRES_PREFIXES) or db == ":memory:" or path == own_db():
        return ""

    git = git_folder(path.parent)
    if git is None and not path.is_relative_to(folder):
        return ""

    log = _leftover_log(path)
    if not os.path.lexists(path):
        return IS_LOG_ONLY.format(log=log.name) if log else ""
    if not path.is_file():
        return IS_NO_FILE

    is_in_git = git is not None and path.is_relative_to(git)
    if git is not None and not is_in_git and is_tracked(path):
        return IS_TRACKED

    databases = approvals()["databases"]
    approved_path = databases.get(identity_of(path))
    # Nobody but the user can have moved what is in the folder of git.
    if approved_path == str(path) or (is_in_git and approved_path):
        return ""

    doubt = IS_REPLACED if str(path) in databases.values() else IS_UNKNOWN
    return doubt + (HAS_LOG if log else "")


def _leftover_log(path: Path) -> Path | None:
    """Return a log beside a database from which SQLite would restore pages, or None."""
    for suffix in LOG_SUFFIXES[:2]:
        log = path.with_name(path.name + suffix)
        if os.path.lexists(log):
            return log
    return None


def prepare_database(db: str) -> str:
    """Return the name of a database; make a new file in a repository known and ignored.

    Raises UsageError if the log of another database would go into the new file, and
    StoreError if the file cannot be made.
    """
    path = Path(db).absolute()
    is_server = db.startswith(POSTGRES_PREFIXES)
    if is_server or db == ":memory:" or os.path.exists(path):
        return db

    log = _leftover_log(path)
    if log is not None:
        raise UsageError(
            f"{log} is the log of a database that is gone; remove it, then {db} is made"
        )

    git = git_folder(path.parent)
    if git is None:
        return db

    if path == repository_db(path.parent):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _link(git.parent / DEFAULT_DATABASE_FILE, path)
    if path.parent == git.parent:
        _ignore(git, path.name)
    _make(path)
    return db


def _make(path: Path) -> None:
    """Make a database that the user is known to have. Raises StoreError."""
    engine = import_module("heedful.store.sqlite")
    identity = os.urandom(16).hex()
    try:
        # It is known before it is there, so that no hook doubts it in between.
        approve("databases", {identity: str(path)})
        engine.create_file(os.path.realpath(path), identity)
    except engine.SQLITE_ERRORS as error:
        raise engine.translate_error(error) from error


def _link(link: Path, target: Path) -> None:
    """Let programs find the database of a repository at its root, if it is free.

    git may replace the link, but not the database.
    """
    # Windows asks for a right.
    with suppress(OSError):
        if (link.parent / ".git").is_dir():
            link.symlink_to(os.path.relpath(target, link.parent))
            _ignore(target.parent.parent, link.name)


def _ignore(git: Path, name: str) -> None:
    """Add a file at the root, with the files beside it, to those that git ignores."""
    exclude = git / "info" / "exclude"
    exclude.parent.mkdir(exist_ok=True)
    lines = ""
    with suppress(FileNotFoundError):
        lines = read_project_file(exclude, within=git).decode("utf-8", "replace")

    if f"/{name}*" not in lines.splitlines():
        with exclude.open("a", encoding="utf-8") as file:
            file.write(f"\n/{name}*\n")


def adopt(path: Path, target: Path | None) -> list[str]:
    """Let hooks follow a database from now on; return where things are, in words.

    In a repository it is moved to `target`, where git writes nothing, and a link stays.
    What hooks had there moves aside. Raises UsageError if a database is damaged, or
    open elsewhere.
    """
    _check_whole(path)
    identity = os.urandom(16).hex()
    with _alone(path) as db:
        # A new one, which nobody knows who had the file before.
        db.execute("create table if not exists identity (id text not null)")
        db.execute("delete from identity")
        db.execute("insert into identity values (?)", (identity,))

    approve("databases", {identity: str(target or path)})
    lines: list[str] = []
    if target is not None:
        lines = _move(path, target)

    with closing(import_module("heedful.store.sqlite").connect(str(path), 1.0)) as db:
        db.execute("pragma journal_mode = wal")
    return lines


def _move(path: Path, target: Path) -> list[str]:
    """Move a database, and another one out of its way; return both places in words."""
    lines: list[str] = []
    target.parent.mkdir(mode=0o700, exist_ok=True)
    if target.exists():
        aside = target.with_name(f"before-{os.urandom(4).hex()}.db")
        with _alone(target):
            target.rename(aside)
        lines.append(f"what hooks had stored here until now is at {aside}")

    with _alone(path):
        path.rename(target)
    _link(path, target)
    return [
        *lines,
        f"it is at {target} now, where git writes nothing; {path} leads there",
    ]


@contextmanager
def _alone(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database that nothing else has open, with its log written into it.

    Raises UsageError.
    """
    engine = import_module("heedful.store.sqlite")
    try:
        with closing(engine.connect(str(path), 1.0)) as db:
            # SQLite does this only without another connection.
            db.execute("pragma journal_mode = delete")
            yield db
    except sqlite3.OperationalError as error:
        raise UsageError(
            f"{path} is open in another program ({error}); end it, then try again"
        ) from error


def _check_whole(path: Path) -> None:
    """Check a copy of a database with its log, which may be another file's.

    Raises UsageError.
    """
    import shutil
    import tempfile

    engine = import_module("heedful.store.sqlite")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / DEFAULT_DATABASE_FILE
        for suffix in ("", *LOG_SUFFIXES[:2]):
            source = path.with_name(path.name + suffix)
            if source.is_file():
                shutil.copyfile(source, copy.with_name(copy.name + suffix))

        try:
            with closing(engine.connect(str(copy), 1.0)) as db:
                (result,) = db.execute("pragma integrity_check(1)").fetchone()
        except sqlite3.Error as error:
            result = str(error)

    if result != "ok":
        raise UsageError(
            f"{path} is damaged, perhaps by a log of another database beside it "
            f"({result}); restore a copy, or move both away"
        )
