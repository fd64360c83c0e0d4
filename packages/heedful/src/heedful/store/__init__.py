"""Open a store by its name: a path, `:memory:` or a URL."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

from heedful.errors import InvalidInput, PackageMissing, UnknownName
from heedful.redact import redact

if TYPE_CHECKING:  # records are imported without asyncio
    from heedful.store.store import Store

POSTGRES_PREFIXES = ("postgresql://", "postgres://")
DEFAULT_DATABASE_FILE = "heedful.db"


class UnchosenName(str):
    """The name of a database that the caller did not choose."""

    __slots__ = ()


# What `store` is by default. A loop with a memory is then stored beside its lessons.
DEFAULT_STORE: str = UnchosenName(DEFAULT_DATABASE_FILE)
# The stores that this process has opened, by URL or by the path of the file.
_shared: dict[str, Store] = {}


def open_store(url: Store | str) -> Store:
    """Return the store at `url`: a SQLite path, `:memory:`, or a `postgresql://` URL.

    A store itself is returned as it is.

    A process opens each store once and shares it, except `:memory:`, which is a new
    store each time. A SQLite file is created at its first use. A PostgreSQL database
    needs `heedful db migrate` first. Raises UnknownName, InvalidInput, PackageMissing.
    """
    from heedful.store.store import Store

    if isinstance(url, Store):
        return url
    if not isinstance(url, str) or not url.strip():
        raise InvalidInput(
            "store", url, "a path such as heedful.db, :memory:, or a Store"
        )

    # Only the module of the database that is needed is imported, for they are slow.
    if url.startswith(POSTGRES_PREFIXES):
        needs_psycopg()
        connect = import_module("heedful.store.postgres").in_database
        key = url
    elif "://" in url:
        names = [
            "a path such as heedful.db",
            ":memory:",
            "postgresql://user@host/database",
        ]
        raise UnknownName("store", url.partition("://")[0] + "://", names)
    else:
        connect = import_module("heedful.store.sqlite").in_file
        key = os.path.realpath(url)

    store: Store
    if url == ":memory:":
        store = connect(url)
        return store

    if key not in _shared:
        # If several threads come here at once, the first store is kept; the others are
        # dropped, which is harmless: a store has no connection before its first use.
        _shared.setdefault(key, connect(url))
    return _shared[key]


def open_beside(store: Store | str | None, memory: Store | None) -> Store | None:
    """Return the store in which loops are recorded, beside the store of their lessons.

    `store` is what the caller chose: a store, its path or URL, or None to record no
    loops. If the caller left it at its default, an `UnchosenName`, loops are recorded
    in the store of the lessons, `memory`, if there is one. Raises the errors of
    `open_store`.
    """
    if memory is not None and isinstance(store, UnchosenName):
        return memory
    return None if store is None else open_store(store)


def needs_psycopg() -> None:
    """Check that psycopg is installed. Raises PackageMissing."""
    try:
        import_module("psycopg")
    except ImportError as error:
        raise PackageMissing("a store in PostgreSQL", "psycopg", "postgres") from error


def shown(url: str) -> str:
    """Return the URL of a store without its password and parameters, to be shown.

    A path is returned as it is, apart from secrets.

    >>> shown("postgresql://erin:secret@host/heedful?sslpassword=other")
    'postgresql://erin@host/heedful'
    """
    scheme, slashes, place = url.partition("://")
    if slashes:
        place, _, query = place.partition("?")
        if "@" in query:
            # The @ ends a password, which may begin anywhere before it.
            place = "..."
        else:
            user, at_sign, host = place.rpartition("@")
            place = user.partition(":")[0] + at_sign + host
    return redact(scheme + slashes + place)  # a user may be a token
