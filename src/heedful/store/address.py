"""The URL of a PostgreSQL database: what libpq takes of it, and what a person may see."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from heedful.errors import InvalidInput
from heedful.store import shown

# Connections of one process: two services and three workers stay below a server's usual 100.
POOL_SIZE = 12
# The schema of heedful's tables; the types of pgvector are in the second one.
SCHEMA = "heedful"
# And what a server that hangs may cost. The URL's own `options` come after these and win.
OPTIONS = (
    f"-c search_path={SCHEMA},public -c statement_timeout=30s -c lock_timeout=10s "
    "-c idle_in_transaction_session_timeout=60s"
)
# For a transaction that may take its time, and wait for what is done elsewhere meanwhile.
PATIENT = "set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0"
# libpq's parameters unless the URL has its own: seconds, but for the last, which has milliseconds.
DEFAULTS = {
    "fallback_application_name": "heedful",
    "connect_timeout": "5",
    "keepalives_idle": "30",
    "tcp_user_timeout": "20000",
}
_ALLOWED = "postgresql://user@host:5432/database"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is; `conninfo` holds the password, `shown` does not."""

    conninfo: str
    shown: str
    size: int

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"


def addressed(url: str) -> Address:
    """The parts of a URL; its parameter `pool_size` (1..500) is ours. Raises InvalidInput."""
    place, _, query = url.partition("?")
    parts = [one.partition("=") for one in query.split("&") if one]
    sizes = [value for name, _, value in parts if name == "pool_size"]
    # As in `options=-c statement_timeout=60s`; libpq wants the second one escaped.
    kept = [f"{n}{is_}{value.replace('=', '%3D')}" for n, is_, value in parts if n != "pool_size"]
    rest = "&".join(kept)
    given = _parsed(f"{place}?{rest}" if rest else place)
    options = " ".join(filter(None, (OPTIONS, str(given.get("options") or ""))))
    conninfo = make_conninfo("", **{**DEFAULTS, **given, "options": options})
    return Address(conninfo, shown(url), _size(sizes[-1]) if sizes else POOL_SIZE)


def _parsed(url: str) -> dict[str, Any]:
    try:
        return dict(conninfo_to_dict(url))
    except psycopg.Error as error:
        what = re.split('[:"]', str(error))[0]  # what follows may be a part of the password
    raise InvalidInput("store", shown(url), f"like {_ALLOWED} ({what.strip()})")


def _size(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 500):
        raise InvalidInput("pool_size", text, "a whole number from 1 to 500")
    return int(text)
