"""Store the episodes of agents, their actions, and the sessions that go on.

An episode that arrives again is not stored again. One worker at a time reflects on an
episode. If reflecting fails, a worker tries again later. The events of a session wait
until the session ends.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
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
from heedful.validation import MAX_SHOWN_TEXT_CHARS, Document, Fields, typed_frozen

if TYPE_CHECKING:  # imported when they are needed: a hook process starts for each event
    from heedful.lessons.session_names import MadeNames

EpisodeState = Literal["waiting", "reflected", "failed"]


@typed_frozen(slots=True, kw_only=True)
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
    """Store an episode, the record of one run of an agent, if it is not stored yet.

    Returns None if this call claims the episode, so that its caller is the one worker
    who reflects on it. Otherwise, and always without `claim`, returns its state. The
    caller has removed the secrets of `episode`, because that takes a second if it is
    long.
    """
    insert(db, scope, episode, db.actor.via)
    state_before = state(db, scope, episode.digest)

    # A try at any time until now is no reason to skip the episode; a claim still is.
    if claim and take(db, scope, time.time() + 1, episode.digest) is not None:
        return None
    return state_before


# The claim of a run whose answer was lost lapses.
@resumable(result=StoredEpisode | None, again=lambda before, digest="": True)
def take(db: Db, scope: Scope, before: float, digest: str = "") -> StoredEpisode | None:
    """Claim and return the oldest episode that waits or failed; None if there is none.

    A worker claims an episode in order to reflect on it, that is to write its lessons.
    Skips episodes that another worker has claimed, and those that were tried after the
    time `before` (seconds since 1970). With a `digest`, considers only the episode with
    this digest. A claim lasts `EPISODE_LEASE_SECONDS` after the last `beat`.
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
    """Return the digests of at most `limit` episodes that wait and nobody has claimed.

    With `failed`, includes those on which a worker tried to reflect in vain. The oldest
    comes first.
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
    """Return the tools and the task of each of the newest episodes that succeeded.

    The tools are one text. At most 200 episodes are returned, the newest first, without
    the episode with this `digest`.
    """
    return [
        (row["tools"], row["task"])
        for row in db.all("tasks_done", scope, digest=digest)
    ]


@resumable(result=None)
def record_failure(db: Db, scope: Scope, digest: str, error: str) -> None:
    """Record the `error` for which reflecting on an episode failed.

    With an empty `error`, only releases the claim: the episode waits again.
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
    """Return up to `limit` episodes in `state`, or in any state if it is "".

    The newest comes first. With `before`, the digest of an episode, returns only older
    episodes than this one. Their `record` is empty unless `whole` is set.
    """
    return [
        from_row(StoredEpisode, row)
        for row in db.all(
            "list_episodes", scope, state=state, limit=limit, cursor=before, whole=whole
        )
    ]


def known_examples(db: Db, scope: Scope, digests: Collection[str]) -> set[str]:
    """Return those of `digests` that belong to examples which the scope has stored."""
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
    """Store an episode if no episode of the scope has its digest.

    `via` names the keys of a service that sent it. The caller has removed its secrets.
    """
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
    """Give an episode the new `state` and `error`; return whether that was done.

    It is not done if the state is "reflected": such an episode has its lessons already.
    """
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
    """Add `events`, rows as `event_row` returns them, to a session of an agent.

    Also records what each event shows about calls that failed and files that were read;
    `root` is the folder of the repository, from which paths are relative. Raises
    Conflict if the session belongs to another API key.

    If a scope has more than `MAX_SESSION_EVENTS`, deletes a tenth of them: those of the
    sessions that were used longest ago.
    """
    check_owner(db, scope, session, db.actor.via)
    key = {**key_of(scope), "session": storable(session)}
    for event in events:
        row = {"at": time.time(), **key, **event, "via": db.actor.via}
        db.insert("event", row)
        calls.follow(db, scope, session, event, folder=root)

    # A row at this offset exists only if there are too many.
    if db.select("1", "event", key_of(scope), f"limit 1 offset {MAX_SESSION_EVENTS}"):
        trimmed = db.run("trim_events", {**key, "most": MAX_SESSION_EVENTS * 9 // 10})
        # The owner of a session is still known when its events are gone.
        sessions = {(row["session"], row["via"]) for row in trimmed.fetchall()}
        session_marks.note_past(db, scope, sessions)


# So many calls of sessions that have ended are kept, the newest.
MAX_PAST_CALLS = 5_000
# The calls of a session among which are those that made what an error names.
MAX_RECENT_CALLS = 500


def event_row(event: Event) -> Document:
    """Return the columns of the row that stores an event of a session, without secrets.

    `record` has the event itself as JSON, the other columns are for searches. `action`
    is the digest of a call with its arguments, "" for an event that is no call.
    """
    # A digest of the call as it was made: below, what is long is cut.
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
    row = {
        "type": storable(event.type),
        "tool": storable(event.tool),
        "call": storable(event.call),
        "action": action_digest,
        "failed": bool(event.error),
        "record": json.dumps(record, ensure_ascii=False, default=repr),
    }
    return row if event.at is None else {**row, "at": event.at}


def error_digests(
    event: Fields, arguments: Any = None, names: MadeNames | None = None
) -> frozenset[str]:
    """Return the digests of all signatures under which a lesson may know an error.

    `event` is the failed result of a call, and `arguments` are those of the call. Each
    line that names an error has a signature with the tool or program that failed and
    one without it. With `names`, those that the session made up, such as of files, each
    line also counts without them.
    """
    from heedful.lessons.identity import failure_signature
    from heedful.lessons.signature import signature

    text = str(event["error"] or event["content"])
    tool = str(event.get("tool") or "")
    # The two searches find different lines, and a lesson may have either.
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
    """Return the arguments of the newest calls of a session, the oldest call first.

    These are at most `MAX_RECENT_CALLS`.
    """
    key = {**key_of(scope), "session": storable(session), "type": "tool_call"}
    end = f"order by n desc limit {MAX_RECENT_CALLS}"
    rows = list(db.select("record", "event", key, end))
    return [json.loads(row["record"])["arguments"] or {} for row in reversed(rows)]


def answered_calls(db: Db, scope: Scope, session: str) -> frozenset[str]:
    """Return the ids of the calls of a session whose result is stored."""
    key = {**key_of(scope), "session": storable(session), "type": "tool_response"}
    return frozenset(row["call"] for row in db.select("call", "event", key))


def kept_calls(
    db: Db, scope: Scope, session: str, calls: Collection[str]
) -> set[tuple[str, str]]:
    """Return what is stored of calls of a session, as pairs of a type and an id."""
    ids = json.dumps(list(calls))
    rows = db.all("kept_calls", scope, session=storable(session), calls=ids)
    return {(row["type"], row["call"]) for row in rows}


def course_of(
    db: Db, scope: Scope, session: str, tool: str, call: str, action: Mark
) -> tuple[bool, bool]:
    """Return two answers about a call of a session, whose events are stored.

    The first: whether the call itself is stored. `call` is its id; with "", a call of
    the `tool` counts that has no id and no result yet. The second: whether the newest
    result of the `tool` is a failure, or that of the newest answered call with the same
    `action`, the mark of a tool with its arguments.
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
    """Return the sessions whose last event came before `before`, seconds since 1970."""
    columns = "session, max(at) as last"
    return [
        row["session"]
        for row in db.select(columns, "event", key_of(scope), "group by session")
        if row["last"] < before
    ]


def owner(db: Db, scope: Scope, session: str) -> str | None:
    """Return the API key to which a session belongs, because it sent the first event.

    Returns "" if this event came from code in this process, and None if the session has
    had no events. If its events were deleted, a mark of the session still tells.
    """
    key = {**key_of(scope), "session": storable(session)}
    rows = db.select("via", "event", key, "order by n limit 1")
    if rows:
        return str(rows[0]["via"])
    return session_marks.past_owner(db, scope, session)


def check_owner(db: Db, scope: Scope, session: str, via: str) -> None:
    """Raise Conflict if a session belongs to another API key than `via`.

    What a session says counts as said by its user, so no other key may add to it. Code
    in this process has no key, so `via` is "", and it is never refused.
    """
    if via and owner(db, scope, session) not in (None, via):
        raise Conflict(
            f"session {session!r} belongs to another key, which sent its first event; "
            "send its events with that key, or begin a new session"
        )


def session_events(db: Db, scope: Scope, session: str) -> list[Document]:
    """Return the stored events of a session, the oldest first, as plain data.

    Each has the time at which it was stored as `at`, in seconds since 1970, and the API
    key that sent it as `via`, "" if code in this process did.
    """
    key = {**key_of(scope), "session": storable(session)}
    return [
        {**json.loads(row["record"]), "at": row["at"], "via": row["via"]}
        for row in db.select("record, via, at", "event", key, "order by n")
    ]


@holds()
@resumable(result=None)
def forget_session(db: Db, scope: Scope, session: str, *, until: float) -> None:
    """Delete the events of a session up to the time `until`, in seconds since 1970.

    Its calls stay as those of the past, so that rules can be compared with them.
    If no later event is left, deletes its marks too, such as of what it has read. A new
    mark remembers to which key the session belongs, because agents go on with sessions
    that have ended.
    """
    key = {**key_of(scope), "session": storable(session)}
    # Both of its sources, events and marks, are deleted below.
    via = owner(db, scope, session) or ""
    db.send("keep_calls", {**key, "until": until})
    db.send("trim_past_calls", {**key_of(scope), "most": MAX_PAST_CALLS})
    db.run("forget_events", {**key, "until": until})
    goes_on = bool(db.select("1", "event", key, "limit 1"))
    if not goes_on:
        # Also those of the agents in the session.
        db.send("forget_readers", {**key, "agents": f"{key['session']}/"})
    session_marks.note_past(db, scope, [(session, via)])
