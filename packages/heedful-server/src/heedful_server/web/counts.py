"""Count what the pages show: first tries, failures, and what retries fixed.

Each function reads named statements of `counts.sql` in one scope. Figures are of the
newest loops only, so that a page of a large project takes no longer than one of a small
project. They are computed from at most `MAX_LISTING_BYTES` of records, and a long task
or output is cut in SQL; they say what was left out.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from heedful.errors import NotFound
from heedful.lessons.lesson import Scope
from heedful.loop.codec import from_document
from heedful.loop.ladder import Ladder
from heedful.store import lessons as lesson_store, search
from heedful.store.connection import Db, bulk, key_of, token
from heedful.store.head import HEAD_PLAIN
from heedful.store.loops import MAX_LISTING_BYTES
from heedful.store.offload import MAX_INLINE_CHARS
from heedful.store.rulings import name_of
from heedful.store.statements import of_dialect, statements_in
from heedful.validation import Document, Fields
from heedful_server.web.steps import first_failure, steps_of, time_span

MAX_EPISODE_EVENTS = 500  # the first events of an episode on its page


@cache
def statements(dialect: str) -> Mapping[str, str]:
    """Return the statements of `counts.sql` by name, as an engine reads them.

    `dialect` is the name of the engine: "sqlite" or "postgres".
    """
    text = (Path(__file__).parent / "counts.sql").read_text(encoding="utf-8")
    return statements_in(of_dialect(text, dialect), {"head": ", ".join(HEAD_PLAIN)})


def rows(db: Db, scope: Scope, statement: str, /, **values: Any) -> list[Document]:
    """Return the rows of a named statement in a scope."""
    sql = statements(db.dialect)[statement]
    return [dict(row) for row in db.execute(sql, {**key_of(scope), **values})]


def beginning(text: str, size: int) -> tuple[Any, int]:
    """Return a value from its JSON, and how many characters of the JSON are left out.

    If `text` is only the beginning of JSON of `size` characters, the value is the
    beginning of a text, or else the beginning of the JSON as a text.
    """
    left_out = size - len(text)
    if not left_out:
        return json.loads(text), 0

    if text.startswith('"'):
        # The cut may have parted an escape such as `\u00e9` into two.
        for end in range(len(text), max(0, len(text) - 6), -1):
            with suppress(ValueError):
                return json.loads(f'{text[:end]}"'), left_out
    return text, left_out


def named(db: Db, scope: Scope, names: Sequence[str]) -> dict[str, Document]:
    """Return ids and texts of lessons by name, without words from outside."""
    lessons = list[Fields]()
    for name in names:
        kind, _, signature = name.partition("/")
        key = {**key_of(scope), "kind": kind, "signature": signature}
        lessons += map(lesson_store.plain, db.select("*", "lesson", key))
    return {
        name_of(lesson): {"id": lesson["id"], "text": lesson["text"]}
        for lesson in search.with_told_words(db, scope, lessons)
    }


@bulk
def present_lessons(db: Db, scope: Scope, ids: Sequence[int]) -> list[Document]:
    """Return those of the lessons with these ids that are stored."""
    return [dict(row) for row in db.all("lessons_of", scope, ids=json.dumps(ids))]


def lessons_of_texts(db: Db, scope: Scope, ids: Sequence[int]) -> dict[int, int]:
    """Map the ids of examples to those of their lessons."""
    return {
        row["id"]: row["lesson_id"]
        for row in db.all(
            "some_examples", scope, scope=token(scope), ids=json.dumps(ids)
        )
    }


def rung_name(ladder: str, rung: int) -> str:
    """Return the name of a rung from the JSON of its ladder, "" without a ladder."""
    if not ladder:
        return ""
    return from_document(Ladder, json.loads(ladder)).name(rung)


@bulk
def episodes(db: Db, scope: Scope, digests: Sequence[str]) -> dict[str, Document]:
    """Return what a list shows of episodes, by digest.

    That is the task, the first step that `failed`, what it `tried` and its `failure`,
    the number of `steps`, when they `began`, and the time from the first to the last of
    them in seconds; a time is None if it is unknown.
    """
    episode_rows = rows(
        db,
        scope,
        "episodes",
        digests=json.dumps(list(digests)),
        most=MAX_INLINE_CHARS,
    )

    summaries = dict[str, Document]()
    for row in episode_rows:
        episode = json.loads(row["record"]).get("episode", {})
        events = episode.get("events", ())
        began, seconds = time_span(events)
        # Steps are counted as on the page of the trace.
        steps = steps_of(events[:MAX_EPISODE_EVENTS])
        summaries[row["digest"]] = {
            "task": episode.get("task") or "",
            "began": began,
            **first_failure(steps, events),
            "steps": len(steps),
            "seconds": seconds,
        }
    return summaries


@bulk
def episode(db: Db, scope: Scope, digest: str) -> tuple[Document, Document]:
    """Return what is stored about an episode, and the episode with its first events.

    `digest` may be the id of a session, which stands for its last part. `left_out` has
    the number of `events` that are left out, and in `record` the characters of a record
    that is not read because it has more than `MAX_LISTING_BYTES`. Raises NotFound.
    """
    found_rows = rows(db, scope, "episode_of", digest=digest, most=MAX_LISTING_BYTES)
    if not found_rows:
        # A session is the source of its lessons by its own id.
        key = {**key_of(scope), "session": digest}
        for part in db.select("digest", "episode", key, "order by id desc limit 1"):
            return episode(db, scope, part["digest"])
        raise NotFound("trace", digest, "the project")

    row = found_rows[0]
    chars = row.pop("chars")
    record = row.pop("record")
    unread = 0
    if chars > MAX_LISTING_BYTES:
        unread = chars

    stored_episode: Document = json.loads(record).get("episode", {})
    events = stored_episode.get("events", [])
    stored_episode["events"] = events[:MAX_EPISODE_EVENTS]
    left_out = {"events": max(0, len(events) - MAX_EPISODE_EVENTS), "record": unread}
    return {**row, "left_out": left_out}, stored_episode


@bulk
def runs(db: Db, scope: Scope, limit: int, before: int) -> list[Document]:
    """Return the newest runs of pipelines."""
    return rows(db, scope, "runs", limit=limit, before=before)
