"""psycopg's errors as ours: what happened, what to do about it, and whether to begin again."""

from __future__ import annotations

from typing import NamedTuple

import psycopg
from psycopg import errors

from heedful.errors import (
    HeedfulError,
    InvalidInput,
    RoleRefused,
    StoreError,
    StoreInDoubt,
    StoreOlder,
    StoreUnavailable,
)
from heedful.store.connection import TOO_LARGE
from heedful.store.session import InDoubt

# What transactions raise that `mishap` knows: the work's own errors pass as they are.
MISHAPS = (psycopg.Error, UnicodeEncodeError, OverflowError)
# What a user can do about an error, by its class or by its SQLSTATE's first letters
# (postgresql.org/docs/current/errcodes-appendix.html).
_WAITS: dict[type[psycopg.Error], str] = {
    errors.LockNotAvailable: "another transaction holds what this one needs; try again",
    errors.QueryCanceled: "it took longer than statement_timeout; try again, or raise it in the "
    "URL: ?options=-c%20statement_timeout=60s",
    errors.ReadOnlySqlTransaction: "this server is a standby; name the primary in the URL",
    errors.DiskFull: "the server's disk is full; make room and run again, nothing was lost",
}
_GONE = "the server does not answer any more; see that it runs, then try again"
_AWAY = (
    "see that the server runs, has room (max_connections), and that host, database, user and "
    "password in the URL are right; then try again"
)


class Mishap(NamedTuple):
    """What an error means: ours, and whether the same work may run again at once."""

    told: HeedfulError
    again: bool


def mishap(error: psycopg.Error | UnicodeEncodeError | OverflowError, lost: bool = False) -> Mishap:
    """What it means. `lost`: the connection is gone."""
    match error:
        case UnicodeEncodeError():
            allowed = "text that UTF-8 can hold, without a lone surrogate"
            told = Mishap(InvalidInput("text", error.object, allowed), again=False)
        case OverflowError():
            told = Mishap(InvalidInput("number", *TOO_LARGE), again=False)
        case InDoubt():
            told = Mishap(StoreInDoubt(_line(error)), again=False)
        case errors.SerializationFailure() | errors.DeadlockDetected():
            why = "others change the same again and again; try again later"
            told = Mishap(StoreUnavailable(f"{_line(error)}: {why}"), again=True)
        case _:
            told = Mishap(_told(error, lost), again=lost)
    told.told.__cause__ = error
    return told


def _told(error: psycopg.Error, lost: bool) -> HeedfulError:
    line = _line(error)
    for kind, remedy in _WAITS.items():
        if isinstance(error, kind):
            return StoreUnavailable(f"{line}: {remedy}")
    if isinstance(error, errors.InsufficientPrivilege):
        return RoleRefused(f"{line}: run heedful migrate --role with the name of this role")
    if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn | errors.UndefinedFunction):
        return StoreOlder(f"{line}: run heedful migrate as the role that owns the tables")
    if isinstance(error, psycopg.DataError) and "NUL" in line:
        allowed = "text without the character NUL, which PostgreSQL cannot hold"
        return InvalidInput("text", "\0", allowed)
    if lost or isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreUnavailable(f"{line}: {_GONE if lost else _AWAY}")
    return StoreError(line)


def _line(error: Exception) -> str:
    """The first line of a message; what follows quotes the statement."""
    return (str(error) or type(error).__name__).splitlines()[0]
