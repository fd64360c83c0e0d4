"""Store the episodes of agents, their actions, and the sessions that go on.

An episode that arrives again is not stored again. One worker at a time reflects on an
episode. If reflecting fails, a worker tries again later. The events of a session wait
until the session ends.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from heedful.episodes.episode import (
    Event,
    Limits,
    clean_event,
)
from heedful.episodes.error_lines import error_lines, named_errors
from heedful.errors import Conflict
from heedful.lessons.call_marks import Mark, whole_call
from heedful.lessons.scope import Scope
from heedful.store import calls, session_marks
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    Db,
    from_row,
    holds,
    key_of,
    resumable,
    storable,
    token,
)
from heedful.validation import MAX_SHOWN_TEXT_CHARS, Document, Fields

if TYPE_CHECKING:  # imported when they are needed: a hook process starts for each event
    from heedful.lessons.session_names import MadeNames

EpisodeState = Literal["waiting", "reflected", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEpisode:
    """An episode as a store holds it.

    `record` is the episode as plain data. `tries` counts the attempts to reflect on it,
    and `error` says why the last one failed. `via` names the keys of a service that
    sent it. `at` is when the episode was stored, in seconds since 1970.
    """

    digest: str
    name: str
    session: str
    outcome: str
    record: Fields
    state: EpisodeState = "waiting"
    tries: int = 0
    error: str = ""
    via: str = ""
    at: float = 0.0


# Seconds for which a claim on an episode lasts. A worker renews its claim three times
# as often.
EPISODE_LEASE_SECONDS = 15.0


@resumable(result=str | None)
def admit(
    db: Db, scope: Scope, episode: StoredEpisode, claim: bool = True
) -> EpisodeState | None:
    """Store an episode if it is new; return its state, or None if this call claims it.

    The caller has removed the secrets of `episode`: that takes a second if it is long.
    """
    insert(db, scope, episode, db.actor.via)
    state_before = state(db, scope, episode.digest)

    if claim and take(db, scope, time.time() + 1, episode.digest) is not None:
        return None
    return state_before


# The claim of a run whose answer was lost lapses.
@resumable(result=StoredEpisode | None, again=lambda before, digest="": True)
def take(db: Db, scope: Scope, before: float, digest: str = "") -> StoredEpisode | None:
    """Claim and return the oldest waiting or failed episode, or None.

    Skips episodes that another worker has claimed, and episodes that were tried after
    the time `before` (seconds since 1970). With a `digest`, considers only the episode
    with this digest. A claim lasts `EPISODE_LEASE_SECONDS` after the last `beat`.
    """
    row = db.one(
        "take_episode",
        scope,
        digest=digest,
        now=time.time(),
        before=before,
        lease=EPISODE_LEASE_SECONDS,
    )
    return from_row(StoredEpisode, row) if row is not None else None


@holds()
@resumable(result=None)
def beat(db: Db, scope: Scope, digest: str) -> None:
    """Renew the claim of this worker on an episode."""
    db.update("episode", {**key_of(scope), "digest": digest}, {"taken": time.time()})


def left(db: Db, scope: Scope, limit: int, failed: bool = False) -> list[str]:
    """Return the digests of episodes that wait and that no worker has claimed.

    With `failed`, includes the episodes on which reflecting failed. The oldest comes
    first.
    """
    rows = db.all(
        "episodes_left",
        scope,
        limit=limit,
        failed=failed,
        now=time.time(),
        lease=EPISODE_LEASE_SECONDS,
    )
    return [row["digest"] for row in rows]


def state(db: Db, scope: Scope, digest: str) -> EpisodeState | None:
    """Return the state of an episode, or None if no episode has this digest."""
    rows = db.select("state", "episode", {**key_of(scope), "digest": digest})
    return rows[0]["state"] if rows else None


def tasks_done(db: Db, scope: Scope, digest: str) -> list[tuple[str, str]]:
    """Return the tools and the task of other episodes that succeeded, newest first.

    `digest` is that of the episode itself.
    """
    return [
        (row["tools"], row["task"])
        for row in db.all("tasks_done", scope, digest=digest)
    ]


@resumable(result=None)
def record_failure(db: Db, scope: Scope, digest: str, error: str) -> None:
    """Record why reflecting on an episode failed.

    With an empty `error`, only releases the claim.
    """
    new_state: EpisodeState = "failed" if error else "waiting"
    settle(db, scope, digest=digest, state=new_state, error=error)


def page(
    db: Db,
    scope: Scope,
    limit: int,
    state: str = "",
    before: str = "",
    *,
    whole: bool = False,
) -> list[StoredEpisode]:
    """Return up to `limit` episodes in `state`, newest first.

    With "" as `state`, returns episodes in any state. `before` is the digest of an
    episode, or "": only older episodes are returned. Their `record` is empty unless
    `whole` is set.
    """
    return [
        from_row(StoredEpisode, row)
        for row in db.all(
            "list_episodes", scope, state=state, limit=limit, cursor=before, whole=whole
        )
    ]


def known_examples(db: Db, scope: Scope, digests: Collection[str]) -> set[str]:
    """Return those of `digests` that are digests of stored examples of the scope."""
    return {
        row["digest"]
        for row in db.all(
            "known_examples",
            scope,
            scope=token(scope),
            digests=json.dumps(list(digests)),
        )
    }


def counts(db: Db, scope: Scope) -> dict[EpisodeState, int]:
    """Return the number of episodes in each state."""
    columns = "state, count(*) as n"
    return {
        row["state"]: row["n"]
        for row in db.select(columns, "episode", key_of(scope), "group by state")
    }


def insert(db: Db, scope: Scope, episode: StoredEpisode, via: str) -> None:
    """Store an episode if it is new; `via` names the keys that sent it."""
    row = {
        **key_of(scope),
        "digest": episode.digest,
        "name": episode.name,
        "session": episode.session,
        "outcome": episode.outcome,
        "via": via,
        "record": json.dumps(dict(episode.record)),
        "at": time.time(),
    }
    db.insert("episode", row, CONFLICT_SKIP_SQL)


def settle(db: Db, scope: Scope, digest: str, state: EpisodeState, error: str) -> bool:
    """Give an episode its new state; return False if it has its lessons already."""
    reason = storable(error)[:MAX_SHOWN_TEXT_CHARS]
    row = db.one("settle_episode", scope, digest=digest, state=state, error=reason)
    return row is not None


# A scope keeps at most this many events of sessions.
MAX_SESSION_EVENTS = 20_000


@holds()
@resumable(result=None)
def append_events(
    db: Db,
    scope: Scope,
    session: str,
    events: Sequence[Fields],
    root: str = "",
) -> None:
    """Add events to a session; each is a row as `event_row` returns it.

    `root` is the folder of the repository. Raises Conflict if the session belongs to
    another key.

    If a scope has more than `MAX_SESSION_EVENTS`, deletes a tenth of them: those of the
    sessions that were used longest ago.
    """
    check_owner(db, scope, session, db.actor.via)
    key = {**key_of(scope), "session": storable(session)}
    for event in events:
        db.insert("event", {**key, **event, "via": db.actor.via, "at": time.time()})
        calls.follow(db, scope, session, event, folder=root)

    if db.select("1", "event", key_of(scope), f"limit 1 offset {MAX_SESSION_EVENTS}"):
        trimmed = db.run("trim_events", {**key, "most": MAX_SESSION_EVENTS * 9 // 10})
        sessions = {(row["session"], row["via"]) for row in trimmed.fetchall()}
        session_marks.note_past(db, scope, sessions)


# The calls of a session among which are those that made what an error names.
MAX_RECENT_CALLS = 500


def event_row(event: Event) -> Document:
    """Return the columns of an event, without secrets.

    `record` has the event itself, the other columns are for searches.
    """
    action_digest = ""
    if event.type == "tool_call":
        action_digest = whole_call(event.tool, event.arguments or {}).digest

    event = clean_event(event, Limits().content)
    record = {
        "type": event.type,
        "content": event.content,
        "tool": event.tool,
        "arguments": event.arguments,
        "call": event.call,
        "error": event.error,
        "agent": event.agent,
        "origin": event.origin,
        "code": event.code,
    }
    return {
        "type": storable(event.type),
        "tool": storable(event.tool),
        "call": storable(event.call),
        "action": action_digest,
        "failed": bool(event.error),
        "record": json.dumps(record, ensure_ascii=False, default=repr),
    }


def error_digests(
    event: Fields, arguments: Any = None, names: MadeNames | None = None
) -> frozenset[str]:
    """Return the signatures of the errors of a failed event.

    A lesson knows an error by one of its lines, with what failed or without it, and
    without the `names` that the session made. `arguments` are those of the call.
    """
    from heedful.lessons.identity import failure_signature
    from heedful.lessons.signature import signature

    text = str(event["error"] or event["content"])
    tool = str(event.get("tool") or "")
    lines = error_lines(text.splitlines(), others=False)
    lines += named_errors(text, arguments)
    if names is not None:
        call = json.dumps(arguments, default=repr)
        lines += [names.named_in(line, call).masked(line) for line in lines]
    call_input = arguments or {}
    without_tool = frozenset(signature("", line).digest for line in lines)
    return without_tool.union(
        failure_signature(tool, call_input, line, text).digest for line in lines
    )


def recent_calls(db: Db, scope: Scope, session: str) -> list[Any]:
    """Return the arguments of the newest calls of a session, oldest first."""
    key = {**key_of(scope), "session": storable(session), "type": "tool_call"}
    end = f"order by n desc limit {MAX_RECENT_CALLS}"
    rows = list(db.select("record", "event", key, end))
    return [json.loads(row["record"])["arguments"] or {} for row in reversed(rows)]


def answered_calls(db: Db, scope: Scope, session: str) -> frozenset[str]:
    """Return the ids of the calls of a session that have a result."""
    key = {**key_of(scope), "session": storable(session), "type": "tool_response"}
    return frozenset(row["call"] for row in db.select("call", "event", key))


def course_of(
    db: Db, scope: Scope, session: str, tool: str, call: str, action: Mark
) -> tuple[bool, bool]:
    """Return whether a call is stored, and whether its tool or action failed last.

    `call` is the id of the call; with "", any call of the tool without a result counts.
    """
    (row,) = db.all(
        "course_of",
        scope,
        session=storable(session),
        tool=storable(tool),
        call=storable(call),
        action=action.digest,
    )
    return bool(row["known"]), bool(row["failed"])


def abandoned(db: Db, scope: Scope, before: float) -> list[str]:
    """Return the sessions without an event since the time `before`."""
    columns = "session, max(at) as last"
    return [
        row["session"]
        for row in db.select(columns, "event", key_of(scope), "group by session")
        if row["last"] < before
    ]


def owner(db: Db, scope: Scope, session: str) -> str | None:
    """Return the key that sent the first event of a session, which may be gone.

    Returns "" if the event came from code in this process, and None if the session has
    had no events.
    """
    key = {**key_of(scope), "session": storable(session)}
    rows = db.select("via", "event", key, "order by n limit 1")
    if rows:
        return str(rows[0]["via"])
    return session_marks.past_owner(db, scope, session)


def check_owner(db: Db, scope: Scope, session: str, via: str) -> None:
    """Raise Conflict if a session belongs to another key than `via`.

    The words of a session hold as those of its user, so no other key may add any. Code
    in this process has no key, and is not refused.
    """
    if via and owner(db, scope, session) not in (None, via):
        raise Conflict(
            f"session {session!r} belongs to another key, which sent its first event; "
            "send its events with that key, or begin a new session"
        )


def session_events(db: Db, scope: Scope, session: str) -> list[Document]:
    """Return the events of a session in order.

    Each event has its time as `at` and the key that sent it as `via`.
    """
    key = {**key_of(scope), "session": storable(session)}
    return [
        {**json.loads(row["record"]), "at": row["at"], "via": row["via"]}
        for row in db.select("record, via, at", "event", key, "order by n")
    ]


@holds()
@resumable(result=None)
def forget_session(db: Db, scope: Scope, session: str, *, until: float) -> None:
    """Delete the events of a session up to a time, and its marks.

    That it has a past is remembered: agents go on with sessions that have ended.
    """
    key = {**key_of(scope), "session": storable(session)}
    via = owner(db, scope, session) or ""
    db.run("forget_events", {**key, "until": until})
    goes_on = bool(db.select("1", "event", key, "limit 1"))
    if not goes_on:
        db.delete("session_mark", key)
    session_marks.note_past(db, scope, [(session, via)])
