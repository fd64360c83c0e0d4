"""Who made a database: hooks may follow only the files that the user made.

A database has a random identity, which its file keeps (the table `identity`). When
heedful makes a database in a repository, it notes the identity in the user's own
`~/.heedful/approved.json`. So a different file in the same place is recognised: nobody
can guess the identity of a file without reading it.
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
    find_repository,
    is_tracked,
    own_db,
    project_top,
    read_project_file,
)

# The file beside the user's own database that says what is used from projects.
APPROVALS_FILE = "approved.json"
# With more databases, those that are gone are forgotten.
MAX_KNOWN_DATABASES = 1_000
# A database of somebody else may have a view in the place of a table.
MAX_IDENTITY_STEPS = 100_000
HAS_RECORDS_QUERY = (
    "select exists (select 1 from loop) or exists (select 1 from lesson) "
    "or exists (select 1 from episode)"
)
IS_TRACKED = "git tracks it, so anyone who pushes to the repository can replace it"
IS_AMONG_FILES = "git writes files there, so a pull can replace it, or a log beside it"
IS_UNKNOWN = "hooks did not make it here, and you have not approved it"
IS_REPLACED = "it is not the database that you approved or that hooks made"
HAS_LOG = "; a log of another database lies beside it"
HAS_JOURNAL = "a log (-journal) lies beside it, which would overwrite what it has"
IS_NO_FILE = "it is not a regular file"
IS_LOG_ONLY = "it is gone, but a log ({log}) lies beside its place"


def home_folder() -> Path:
    """Return the private folder for what belongs to no repository. Raises OSError."""
    folder = own_db().parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def private(path: str, flags: int) -> int:
    """Open a file that only its owner may read; this is an `opener` of `open`."""
    return os.open(path, flags, 0o600)


def approvals() -> dict[str, dict[str, str]]:
    """Return what the user has approved and refused.

    These are `files` (parts of settings, with the digests of their values), `trust` for
    all projects, `databases` (paths by identity), and `refused` (digests by name).
    Raises UsageError if the file has an error.
    """
    approved: dict[str, dict[str, str]] = {
        "files": {},
        "trust": {},
        "databases": {},
        "refused": {},
    }
    # Without a home nothing is approved.
    with suppress(OSError):
        path = home_folder() / APPROVALS_FILE
        try:
            approved |= json.loads(path.read_bytes())
            if not all(isinstance(table, dict) for table in approved.values()):
                raise ValueError("it must have tables only")
        except (ValueError, TypeError) as error:
            raise UsageError(
                f"{path} cannot be read: {error}; correct it, or remove it with all "
                "that you have approved"
            ) from error
    return approved


def approve(kind: str, more: Mapping[str, str]) -> None:
    """Add to the "files", "trust", "databases" that are approved, or to the "refused".

    Raises OSError if the file cannot be written, and UsageError if it has an error.
    """
    folder = home_folder()
    with _one_at_a_time(folder):
        approved = approvals()
        approved[kind] |= more
        if len(approved["databases"]) > MAX_KNOWN_DATABASES:
            approved["databases"] = {
                identity: path
                for identity, path in approved["databases"].items()
                if identity in more or os.path.exists(path)
            }

        # The file is replaced in one step, so that no hook reads half of it.
        draft = folder / f"{APPROVALS_FILE}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8", opener=private) as file:
            json.dump(approved, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
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
    return _read_value(path, "select id from identity limit 1")


def is_blank(path: Path) -> bool:
    """Return True if a database file has no loop, lesson or session and no log."""
    log = Path(f"{path}-wal")
    has_log = log.exists() and log.stat().st_size > 0
    return not has_log and _read_value(path, HAS_RECORDS_QUERY) == "0"


def _read_value(path: Path, query: str) -> str:
    """Return the only value of a query as text, "" if the file does not answer."""
    # SQLite would wait for the other end of a pipe.
    if not path.is_file():
        return ""

    try:
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as db:
            db.set_progress_handler(lambda: 1, MAX_IDENTITY_STEPS)
            db.execute("pragma trusted_schema = off")
            (value,) = db.execute(query).fetchone()
            return str(value)
    except (sqlite3.Error, TypeError, OSError):
        return ""


def doubt_about(db: str, folder: Path) -> str:
    """Return why hooks in a folder must not follow a database, "" if they may.

    Only files that can come with a project are doubted: those in the folder of git or
    below `folder`. A file among those that git writes is never followed.
    """
    path = Path(db)
    if db.startswith(POSTGRES_PREFIXES) or db == ":memory:" or path == own_db():
        return ""

    repository = find_repository(folder)
    if repository is not None and path == repository.db:
        return _doubt_about_file(path, may_have_moved=True)

    real = Path(os.path.realpath(path))
    if _is_among_files(path) or _is_among_files(real):
        return _doubt_among_files(path)
    if path.is_relative_to(folder):
        return _doubt_about_file(path)
    if real.is_relative_to(folder) or real.is_relative_to(project_top(real) / ".git"):
        return _doubt_about_file(real)
    return ""


def _is_among_files(path: Path) -> bool:
    """Return True if a path is in a folder that git fills, but not in that of git."""
    git = project_top(path.parent) / ".git"
    is_in_git = path.is_relative_to(git) and git.is_dir() and not git.is_symlink()
    return os.path.lexists(git) and not is_in_git


def _doubt_among_files(path: Path) -> str:
    """Return why a database among the files of a repository is not followed."""
    log = _leftover_log(path)
    if not os.path.lexists(path) and log is not None:
        return IS_LOG_ONLY.format(log=log.name)
    if os.path.lexists(path) and not path.is_file():
        return IS_NO_FILE
    return IS_TRACKED if is_tracked(path) else IS_AMONG_FILES


def doubt_about_unstated(path: Path, folder: Path) -> str:
    """Return why a `heedful.db` that nothing states is not followed, "" if it may be.

    One at the root of a repository can be adopted.
    """
    log = _leftover_log(path)
    if not os.path.lexists(path) and log is None:
        return ""

    doubt = doubt_about(str(path), folder)
    repository = find_repository(folder)
    is_at_root = repository is not None and path.parent == repository.root
    if doubt == IS_AMONG_FILES and is_at_root and not path.is_symlink():
        return IS_UNKNOWN + (HAS_LOG if log else "")
    return doubt


def _doubt_about_file(path: Path, may_have_moved: bool = False) -> str:
    """Return why a database is not followed in a place that git does not write."""
    # A link would lead to the memory of another project.
    if os.path.realpath(path) != str(path):
        return IS_NO_FILE

    log = _leftover_log(path)
    if not os.path.lexists(path):
        return IS_LOG_ONLY.format(log=log.name) if log else ""
    if not path.is_file():
        return IS_NO_FILE

    # Databases of heedful have a `-wal`.
    if log is not None and log.name.endswith("-journal"):
        return HAS_JOURNAL

    databases = approvals()["databases"]
    known_place = databases.get(identity_of(path), "")
    if known_place == str(path):
        return ""

    # Only the user can have moved it here, unless this is a second name of the file.
    if may_have_moved and known_place and not _is_one_file(Path(known_place), path):
        return ""

    doubt = IS_REPLACED if str(path) in databases.values() else IS_UNKNOWN
    return doubt + (HAS_LOG if log else "")


def _is_one_file(path: Path, other: Path) -> bool:
    """Return True if both paths are names of one file."""
    return path.exists() and os.path.samefile(path, other)


def _leftover_log(path: Path) -> Path | None:
    """Return a log beside a database from which SQLite would restore pages, or None."""
    for suffix in ("-journal", "-wal"):
        log = path.with_name(path.name + suffix)
        if os.path.lexists(log):
            return log
    return None


def prepare_database(db: str, is_followed: bool = False) -> str:
    """Return the name of a database; make a new file of hooks known and ignored.

    Hooks say `is_followed`: they make no database that they would doubt later.
    Raises UsageError if the log of another database would go into the new file, or if
    it cannot be noted, and StoreError if it cannot be made.
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

    git = path.parent.parent
    is_named_so = path.parts[-2:] == ("heedful", DEFAULT_DATABASE_FILE)
    is_repository_db = is_named_so and (git.name == ".git" or (git / "HEAD").is_file())
    if is_repository_db:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if git.name == ".git":
            _link(git.parent / DEFAULT_DATABASE_FILE, path)
    elif (path.parent / ".git").is_dir():
        _ignore(path.parent / ".git", path.name)

    if is_repository_db or is_followed:
        _make(path, is_followed)
    return db


def _make(path: Path, is_followed: bool) -> None:
    """Make a database that the user is known to have. Raises UsageError, StoreError."""
    engine = import_module("heedful.store.sqlite")
    identity = os.urandom(16).hex()
    try:
        # It is known before it is there, so that no hook doubts it in between.
        approve("databases", {identity: os.path.realpath(path)})
    except (OSError, RuntimeError) as error:
        # A command works without the note; hooks would not know the file again.
        if is_followed:
            raise UsageError(
                f"hooks note in {APPROVALS_FILE} which databases are yours, and that "
                f"cannot be written: {error}; set HOME to a folder of yours"
            ) from error

    try:
        engine.create_file(os.path.realpath(path), identity)
    except engine.SQLITE_ERRORS as error:
        raise engine.translate_error(error) from error


def _link(link: Path, target: Path) -> bool:
    """Let programs find the database of a repository at its root, if they can.

    git may replace the link, but not the database. Returns True if it is there.
    """
    # Windows requires a permission.
    with suppress(OSError):
        if (link.parent / ".git").is_dir():
            # It is ignored first, so that git never sees it, even if this is
            # interrupted.
            _ignore(target.parent.parent, link.name)
            link.symlink_to(os.path.relpath(target, link.parent))
            return True
    return False


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


def adopt(path: Path, target: Path) -> list[str]:
    """Let hooks follow a database from now on; return where things are, in words.

    One at the root of a repository is moved to another `target`, where git writes
    nothing, and a link stays. What hooks had there is kept beside it. Raises UsageError
    if a database is damaged or open elsewhere, or cannot be moved; then nothing is
    changed.
    """
    _check_whole(path)
    identity = os.urandom(16).hex()
    with _alone(path) as db:
        # A new identity: those who had the file before do not know it.
        db.execute("create table if not exists identity (id text not null)")
        db.execute("delete from identity")
        db.execute("insert into identity values (?)", (identity,))

    approve("databases", {identity: str(target)})
    lines: list[str] = []
    if path != target:
        lines = _move(path, target)

    with closing(import_module("heedful.store.sqlite").connect(str(target), 1.0)) as db:
        db.execute("pragma journal_mode = wal")
    return lines


def _move(path: Path, target: Path) -> list[str]:
    """Move a database, and keep another one that is there; return both places in words.

    The target is replaced in one step, so that no hook misses it and makes another.
    Raises UsageError.
    """
    lines: list[str] = []
    target.parent.mkdir(mode=0o700, exist_ok=True)
    mark = os.urandom(4).hex()
    draft = target.with_name(f"adopted-{mark}.db")
    aside = target.with_name(f"before-{mark}.db")
    try:
        with _alone(path):
            path.rename(draft)
            if target.exists():
                with _alone(target):
                    os.link(target, aside)
                    draft.replace(target)
                lines.append(f"what hooks had stored here until now is at {aside}")
            else:
                # A hook may have made one meanwhile; it stays.
                os.link(draft, target)
                draft.unlink()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be moved to {target} ({error}); nothing is changed: try "
            "again, or bring its lessons there with heedful export and import"
        ) from error
    finally:
        # Something failed: the old state is restored.
        if draft.exists():
            draft.rename(path)
            aside.unlink(missing_ok=True)

    lines.append(f"it is at {target} now, where git writes nothing")
    if _link(path, target):
        lines.append(f"{path} leads there")
    return lines


@contextmanager
def _alone(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database that nothing else has open, with its log written into it.

    Until the block ends, nothing else can use it. Raises UsageError.
    """
    engine = import_module("heedful.store.sqlite")
    try:
        with closing(engine.connect(str(path), 1.0)) as db:
            # SQLite does this only without another connection.
            db.execute("pragma journal_mode = delete")
            db.execute("begin exclusive")
            yield db
            db.execute("commit")
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
        for suffix in ("", "-wal", "-journal"):
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
