"""Find a loop by its id, or by the beginning of it that tells it from all others.

An id that heedful makes up has 32 hexadecimal digits. Lists show the first
`SHORT_ID_CHARS`, and every command and page that names a loop takes them.
"""

from __future__ import annotations

import re

from heedful.errors import NotFound, UsageError
from heedful.lessons.scope import Scope
from heedful.store.connection import Db, key_of

SHORT_ID_CHARS = 8
MAX_AMBIGUOUS_IDS = 10  # that an error lists
# An id that a caller gave, such as "tasks-1/add", does not match.
_MADE_UP_ID_PATTERN = re.compile(r"[0-9a-f]{32}")


def short_id(id: str) -> str:
    """Return the first part of an id that heedful made up; another id stays whole.

    >>> short_id("0cb7fbdbffce4d6a8a1f0d2b6f0c9e11"), short_id("tasks-1/add")
    ('0cb7fbdb', 'tasks-1/add')
    """
    if _MADE_UP_ID_PATTERN.fullmatch(id):
        return id[:SHORT_ID_CHARS]
    return id


def find_loop(db: Db, scope: Scope, name: str) -> str:
    """Return the id of the loop called `name`, or of the only loop that begins so.

    A run comes before its own stages. Raises NotFound, and UsageError with the ids of
    the loops that begin so.
    """
    if db.select("id", "loop", {**key_of(scope), "id": name}):
        return name

    values = {**key_of(scope), "prefix": name, "limit": MAX_AMBIGUOUS_IDS + 1}
    ids = [row["id"] for row in db.run("ids_of_prefix", values)] if name else []
    if not ids:
        raise NotFound("loop", name, db.url)
    if len(ids) == 1:
        return str(ids[0])

    listed = ", ".join(sorted(ids[:MAX_AMBIGUOUS_IDS]))
    more = ", …" if len(ids) > MAX_AMBIGUOUS_IDS else ""
    raise UsageError(
        f"several loops begin with {name!r}: {listed}{more}; give more of the id"
    )
