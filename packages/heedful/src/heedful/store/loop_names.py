"""Find a loop by its id, or by the part of it that tells it from all others.

An id that heedful makes up has 32 hexadecimal digits. Lists show the first
`SHORT_ID_CHARS`, and every command and page that names a loop takes them. Of a UUID
they are the last ones: those of version 7, which pydantic-ai makes for its runs, begin
with the time, so that all of a minute begin alike.
"""

import string

from heedful.errors import NotFound, UsageError
from heedful.lessons.scope import Scope
from heedful.store.connection import Db, key_of
from heedful.validation import MAX_SHOWN_ITEMS

SHORT_ID_CHARS = 8


def short_id(id: str) -> str:
    """Return the 8 characters of an id that lists show.

    They are the first ones, but the last ones of a UUID, which may begin with the time.
    An id that does not have 32 hexadecimal digits stays whole.

    >>> short_id("0cb7fbdbffce4d6a8a1f0d2b6f0c9e11"), short_id("tasks-1/add")
    ('0cb7fbdb', 'tasks-1/add')
    >>> short_id("019ab4e2-7c10-7a33-9d21-5b0c9e11f3aa")
    '9e11f3aa'
    """
    digits = id.replace("-", "")
    if len(digits) != 32 or not set(digits) <= set(string.hexdigits):
        return id
    return id[-SHORT_ID_CHARS:] if "-" in id else id[:SHORT_ID_CHARS]


def find_loop(db: Db, scope: Scope, name: str, kind: str = "loop") -> str:
    """Return the id of the loop that `name` means: its id, or a part of it.

    The part is the beginning of the id of just one loop, or else the end of just one
    UUID. A run of a pipeline comes before its stages, whose ids begin with its own.
    Raises NotFound, whose message calls the loop a `kind`, and UsageError with the ids
    of the loops if there are several.
    """
    if db.select("id", "loop", {**key_of(scope), "id": name}):
        return name

    place = "begin"
    ids = _newest_ids(db, scope, prefix=name)
    if not ids and len(name) >= SHORT_ID_CHARS:
        place = "end"
        # The statement compares by `like`, which knows wildcards and may ignore case.
        ids = _newest_ids(db, scope, ending=name)
        ids = [id for id in ids if id.endswith(name)]
    # An empty name is the beginning of all ids, but means none.
    if not ids or not name:
        raise NotFound(kind, name, db.url)
    if len(ids) == 1:
        return ids[0]

    shown_ids = ", ".join(sorted(ids[:MAX_SHOWN_ITEMS]))
    more = ", …" if len(ids) > MAX_SHOWN_ITEMS else ""
    raise UsageError(
        f"several loops {place} with {name!r}: {shown_ids}{more}; give more of the id"
    )


def known_names(db: Db, scope: Scope) -> list[str]:
    """Return the short ids of the newest 1,000 loops and runs, as lists show them.

    Stages, which belong to a run, are left out.
    """
    return [
        short_id(row["id"])
        for row in db.select(
            "id", "loop", {**key_of(scope), "run": ""}, "order by n desc limit 1000"
        )
    ]


def _newest_ids(
    db: Db, scope: Scope, *, prefix: str = "", ending: str = ""
) -> list[str]:
    """Return the ids of the newest loops that begin with `prefix`, newest first.

    With an `ending`, they are those of UUIDs that end so. There is one more than a
    message lists, which shows that there are more.
    """
    rows = db.all(
        "ids_of_loops",
        scope,
        prefix=prefix,
        last=f"{prefix}\U0010ffff",  # no id has this character, the last of all
        ending=ending,
        limit=MAX_SHOWN_ITEMS + 1,
    )
    return [row["id"] for row in rows]
