"""Stores by the name a user writes."""

from __future__ import annotations

from errata.errors import InvalidInput, UnknownName
from errata.protocols import Store


def open_store(url: str) -> Store:
    """The store of that name: a path of a SQLite file, or `:memory:`.

    A file is opened once a process and shared; it is created at the first use. Raises UnknownName,
    InvalidInput.
    """
    from errata.store.sqlite import shared

    if not url.strip():
        raise InvalidInput("store", url, "a path such as errata.db, or :memory:")
    if "://" in url:
        raise UnknownName("store", url, ["a path such as errata.db", ":memory:"])
    return shared(url)
