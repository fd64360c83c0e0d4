"""Open a store by its name: a path, `:memory:` or a URL."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from heedful.errors import InvalidInput, PackageMissing, UnknownName, UsageError
from heedful.redact import redact

if (
    TYPE_CHECKING
):  # records are imported without asyncio, and a store is opened without paths
    from pathlib import Path

    from heedful.store.store import Store

POSTGRES_PREFIXES = ("postgresql://", "postgres://")
DEFAULT_DATABASE_FILE = "heedful.db"
_shared: dict[str, Store] = {}
_guard = threading.Lock()


def open_store(url: str) -> Store:
    """Return the store at `url`: a SQLite path, `:memory:`, or a `postgresql://` URL.

    A process opens each store once and shares it, except `:memory:`, which is a new
    store each time. A SQLite file is created at its first use. A PostgreSQL database
    needs `heedful migrate` first. Raises UnknownName, InvalidInput, PackageMissing.
    """
    if not isinstance(url, str) or not url.strip():
        raise InvalidInput(
            "store", url, "a path such as heedful.db, :memory:, or a Store"
        )
    if url.startswith(POSTGRES_PREFIXES):
        needs_psycopg()
        make = import_module("heedful.store.postgres").in_database
        key = url
    elif "://" in url:
        known = [
            "a path such as heedful.db",
            ":memory:",
            "postgresql://user@host/database",
        ]
        raise UnknownName("store", url.partition("://")[0] + "://", known)
    else:
        make = import_module("heedful.store.sqlite").in_file
        key = os.path.realpath(url)
    with _guard:
        store: Store = (url != ":memory:" and _shared.get(key)) or make(url)
        if url != ":memory:":
            _shared[key] = store
        return store


def needs_psycopg() -> None:
    """Check that psycopg is installed. Raises PackageMissing."""
    try:
        import_module("psycopg")
    except ImportError as error:
        raise PackageMissing("a store in PostgreSQL", "psycopg", "postgres") from error


def shown(url: str) -> str:
    """Return the URL of a store without its password and its parameters.

    >>> shown("postgresql://erin:secret@host/heedful?sslpassword=other")
    'postgresql://erin@host/heedful'
    """
    scheme, slashes, rest = url.partition("://")
    place, _, more = rest.partition("?")
    if (
        slashes
    ):  # an "@" after the "?" ends a password, which may begin anywhere before it
        user, at, host = place.rpartition("@")
        rest = "..." if "@" in more else user.partition(":")[0] + at + host
    return redact(scheme + slashes + rest)  # a user may be a token


def repository(folder: Path) -> Path | None:
    """Return the root of the git repository with this folder; of a worktree, the main
    root.
    """
    for place in (folder, *folder.parents):
        git = place / ".git"
        if git.is_dir():
            return place
        with suppress(OSError, ValueError):
            inner = (
                place / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
            )
            common = (
                inner / (inner / "commondir").read_text(encoding="utf-8").strip()
            ).resolve()
            return common.parent
    return None


def prepare(db: str) -> str:
    """Return the name of a database; let git ignore a new file in the root of a
    repository.
    """
    from pathlib import Path

    path = Path(db).absolute()
    if db.startswith(POSTGRES_PREFIXES) or db == ":memory:" or path.exists():
        return db
    if (path.parent / ".git").is_dir():
        ignored = path.parent / ".git" / "info" / "exclude"
        ignored.parent.mkdir(exist_ok=True)
        with ignored.open("a", encoding="utf-8") as file:
            file.write(f"\n/{path.name}*\n")
    return db


def own_db() -> Path:
    """Return the database of one's own memory, for what belongs to no repository."""
    from pathlib import Path

    return Path.home() / ".heedful" / DEFAULT_DATABASE_FILE


def read_table(file: str | Path, *keys: str) -> dict[str, Any]:
    """Return a table of a TOML file, {} if the file does not exist. Raises
    UsageError.
    """
    from pathlib import Path

    try:
        text = Path(file).read_text(encoding="utf-8")
        import tomllib  # few folders have such a file

        found: Any = tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{file} cannot be read: {error}; correct or remove it"
        ) from error
    for key in keys:
        found = found.get(key, {}) if isinstance(found, dict) else {}
    if not isinstance(found, dict):
        raise UsageError(f"[{'.'.join(keys)}] in {file} must be a table")
    return found
