"""Stores by the name a user writes."""

from __future__ import annotations

from errata.errors import InvalidInput, PackageMissing, UnknownName
from errata.protocols import Store

POSTGRES = ("postgresql://", "postgres://")


def open_store(url: str) -> Store:
    """The store of that name: a path of a SQLite file, `:memory:`, or a `postgresql://` URL.

    It is opened once a process and shared. A file is created at the first use, a database is not:
    `errata migrate` does that. Raises UnknownName, InvalidInput, PackageMissing.
    """
    from errata.store.sqlite import shared

    if not url.strip():
        raise InvalidInput("store", url, "a path such as errata.db, or :memory:")
    if url.startswith(POSTGRES):
        return _in_postgres(url)
    if "://" in url:
        known = ["a path such as errata.db", ":memory:", "postgresql://user@host/database"]
        raise UnknownName("store", url.partition("://")[0] + "://", known)
    return shared(url)


def _in_postgres(url: str) -> Store:
    try:
        from errata.store import postgres
    except ImportError as error:
        raise PackageMissing("a store in PostgreSQL", "psycopg", "postgres") from error
    return postgres.shared(url)
