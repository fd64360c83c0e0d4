"""Store marks of the session of an agent that goes on, or of an agent in it.

A mark is a file that it has read, what it was told, or its past: it has read what its
stored events do not have.
"""

import json
import time
from collections.abc import Iterable
from datetime import UTC, datetime

from heedful.lessons.call_marks import MIN_KNOWN_READS, touched_path
from heedful.lessons.scope import DAY_SECONDS, Scope, digest_of, source_of
from heedful.store.connection import CONFLICT_SKIP_SQL, Db, key_of, storable
from heedful.validation import Fields

# The mark of a reader that no longer knows what it did itself.
FORGOT_MARK = "forgot"
# Stands in the mark of a past for the key of events that code in this process sent.
_NO_KEY = "local"


def mark(db: Db, scope: Scope, session: str, marks: Iterable[str]) -> None:
    """Remember marks of a session."""
    key = {**key_of(scope), "session": storable(session)}
    for text in marks:
        db.insert("session_mark", {**key, "mark": text}, CONFLICT_SKIP_SQL)


def find(db: Db, scope: Scope, session: str, marks: Iterable[str]) -> frozenset[str]:
    """Return those of the marks that a session has."""
    values = {"session": storable(session), "marks": json.dumps(list(marks))}
    return frozenset(row["mark"] for row in db.all("read_marks", scope, **values))


def has_unread(
    db: Db, scope: Scope, session: str, arguments: Fields, folder: str
) -> bool:
    """Return True if a call is about a file that a session has surely not read.

    `arguments` are those of the call; a path in `folder`, that of the repository, is
    made relative to it. Without notes of `MIN_KNOWN_READS` files that the session has
    read, nothing is sure.
    """
    path = touched_path(arguments, folder)
    if not path or find(db, scope, session, [_read_mark(path)]):
        return False
    key = {**key_of(scope), "session": storable(session)}
    # All marks that begin with "read ", since "!" follows the blank.
    is_read = f"and mark >= 'read ' and mark < 'read!' limit {MIN_KNOWN_READS}"
    return len(db.select("1", "session_mark", key, is_read)) == MIN_KNOWN_READS


def mark_read(
    db: Db, scope: Scope, session: str, arguments: Fields, folder: str
) -> None:
    """Remember that a session has read the file that a call with `arguments` names.

    A path in `folder`, that of the repository, is made relative to it. Without a file
    nothing is remembered.
    """
    path = touched_path(arguments, folder)
    if path:
        mark(db, scope, session, [_read_mark(path)])


def _read_mark(path: str) -> str:
    return f"read {digest_of('file', path)}"


def forget(db: Db, scope: Scope, reader: str) -> None:
    """Forget what a reader has read, and was told: it was resumed, or compacted.

    What it did itself is forgotten, too: `FORGOT_MARK` says so.
    """
    db.send("forget_marks", {**key_of(scope), "session": storable(reader)})
    mark(db, scope, reader, [FORGOT_MARK])


def past_mark(at: float, via: str = "") -> str:
    """Return the mark of a session whose events were deleted at a time.

    It has the day, so that marks sort by it, and the key of the service through which
    the events came, or "local" if they came without one.
    """
    day = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
    return f"past {day} {via or _NO_KEY}"


def note_past(db: Db, scope: Scope, sessions: Iterable[tuple[str, str]]) -> None:
    """Remember to which key each of these sessions belongs: their events are deleted.

    `sessions` are names, each with the key through which its events came, "" without
    one. After 30 days the mark is deleted, so that marks do not grow, unless the
    session has events: agents keep a session so long that it can be resumed.
    """
    now = time.time()
    for session, via in sessions:
        mark(db, scope, session, [past_mark(now, via)])
    db.send(
        "forget_pasts", {**key_of(scope), "oldest": past_mark(now - 30 * DAY_SECONDS)}
    )


def past_owner(db: Db, scope: Scope, session: str) -> str | None:
    """Return the key of a session whose events were deleted.

    Returns "" if the session came without a key, from code in this process, and None if
    it has no mark of its past.
    """
    key = {**key_of(scope), "session": storable(session)}
    marks: list[str] = [row["mark"] for row in db.select("mark", "session_mark", key)]
    # Such a mark is "past DAY KEY".
    pasts = [text.split(" ", 2) for text in marks if text.startswith("past ")]
    keys = {words[2] for words in pasts if len(words) > 2}
    # There is at most one key: no key may go on with the session of others, but code in
    # this process may go on with that of a key.
    for owner in keys - {_NO_KEY}:
        return owner
    return "" if keys else None


def past_runs(db: Db, scope: Scope, key: str) -> set[str]:
    """Return the names, as sources, of the runs with a past that belong to a key."""
    return {
        storable(source_of(row["session"]))
        for row in db.all("pasts_of", scope, key=key)
    }


def forget_events(db: Db, scope: Scope, key: Fields) -> None:
    """Delete the events with these columns, `key`.

    Their sessions get a mark that says through which key of the service they came.
    """
    rows = db.select("distinct session, via", "event", key)
    db.delete("event", key)
    db.delete("past_call", key)
    note_past(db, scope, [(row["session"], row["via"]) for row in rows])
