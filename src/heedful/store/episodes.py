"""Store the episodes of agents, their actions, and what has not ended yet.

An episode or span that arrives again is not stored again. One worker at a time reflects
on an episode. If reflecting fails, a worker tries again later. When a trace ends, an
episode replaces its spans; the events of a session wait until the session ends.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from heedful.errors import Conflict
from heedful.lessons.action import (
    MEND_HEADING,
    Action,
    ActionHistory,
    KnownFailure,
    Step,
    action,
)
from heedful.lessons.lesson import Lesson, Remembered, Scope, Trust
from heedful.lessons.ranking import MIN_RECALL_IMPORTANCE
from heedful.lessons.signature import signature
from heedful.lessons.trust import TRUST_RAISING_VERIFICATION
from heedful.store import lessons
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    Db,
    Row,
    from_row,
    holds,
    key_of,
    resumable,
    storable,
    token,
)
from heedful.traces.episode import Event, Limits, clean_event

if TYPE_CHECKING:  # imported when they are needed: a hook process starts for each event
    from heedful.store.records import EpisodeState, StoredEpisode
    from heedful.traces.spans import Piece

# Seconds for which a claim on an episode lasts. A worker renews its claim three times
# as often.
EPISODE_LEASE_SECONDS = 15.0
MAX_FAILURE_CHARS = 500  # of the reason why reflecting failed
# A part of an action is announced after it failed in `least` runs: on recorded
# sessions, 2 runs announce the wrong failure in 15 % of the cases, 3 in 10 %. `read`
# failures are read, newest first, and `limit` lessons about them; an answer has
# `MAX_ANNOUNCED_FAILURES` failures.
ANNOUNCEMENT_LIMITS = {"least": 3, "read": 500, "limit": 10}
MAX_ANNOUNCED_FAILURES = 3


@resumable(result=str | None)
def admit(
    db: Db, scope: Scope, episode: StoredEpisode, claim: bool = True
) -> EpisodeState | None:
    """Store an episode if it is new; return its state, or None if this call claims it.

    The caller has removed the secrets of `episode`: that takes a second if it is long.
    """
    _insert(db, scope, episode, db.actor.via)
    before = state(db, scope, episode.digest)
    if claim and take(db, scope, time.time() + 1, episode.digest) is not None:
        return None
    return before


def _episode_or_none() -> Any:
    from heedful.store.records import StoredEpisode

    return StoredEpisode | None


@resumable(result=_episode_or_none)
def take(db: Db, scope: Scope, before: float, digest: str = "") -> StoredEpisode | None:
    """Claim and return the oldest waiting or failed episode, or None.

    Skips episodes that another worker has claimed, and episodes that were tried after
    the time `before` (seconds since 1970). With a `digest`, considers only the episode
    with this digest. A claim lasts `EPISODE_LEASE_SECONDS` after the last `beat`.
    """
    from heedful.store.records import StoredEpisode

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
    key = {**_key(scope, digest), "state": "waiting"}
    db.update("episode", key, {"taken": time.time()})


def left(db: Db, scope: Scope, limit: int, failed: bool = False) -> list[str]:
    """Return the digests of unclaimed waiting episodes, and of `failed` ones.

    The oldest comes first.
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
    rows = db.select("state", "episode", _key(scope, digest))
    return rows[0]["state"] if rows else None


@resumable(result=list[Remembered])
def record_lessons(
    db: Db,
    scope: Scope,
    digest: str,
    new_lessons: Sequence[Lesson],
    *,
    most: int = 0,
    quota: int | None = None,
) -> list[Remembered]:
    """Write the lessons of an episode.

    The first is linked to the others, which are its strategies. `most` and `quota` are
    limits as in `exposures.remember`. Raises Conflict if the episode has its lessons
    already, InvalidInput, QuotaExceeded.
    """
    now = time.time()
    if not _settle(db, scope, digest=digest, state="reflected", error=""):
        raise Conflict(
            f"episode {digest[:16]} has its lessons already; nothing was added"
        )
    answers = lessons.upsert(db, scope, lessons=new_lessons, now=now, quota=quota)
    names = [f"{lesson.kind}/{lesson.signature.digest}" for lesson in new_lessons]
    for child in names[1:]:
        link = {"child": child, "relation": "strategy", "parent": names[0]}
        db.insert("link", {**key_of(scope), **link}, CONFLICT_SKIP_SQL)
    return lessons.evict(db, scope, answers, most)


@resumable(result=list[Remembered])
def record_session(
    db: Db,
    scope: Scope,
    digest: str,
    head: Mapping[str, str],
    steps: Sequence[Step],
    new_lessons: Sequence[Lesson],
    *,
    most: int = 0,
    quota: int | None = None,
) -> list[Remembered]:
    """Write the lessons and the steps of a session; return [] if it is stored.

    A lesson counts once a session. One that comes back in another session becomes
    important enough for prompts. `head` is the name, the session and the outcome.
    `most` and `quota` are limits as in `exposures.remember`. Raises InvalidInput,
    QuotaExceeded.
    """
    now = time.time()
    row = {
        **_key(scope, digest),
        **{name: storable(text) for name, text in head.items()},
        "state": "reflected",
        "record": "{}",
        "at": now,
    }
    if not db.insert("episode", row, CONFLICT_SKIP_SQL).rowcount:
        return []
    answers = list[Remembered]()
    for lesson in new_lessons:
        answers += _record_session_lesson(db, scope, lesson, now, quota)
    answers = lessons.evict(db, scope, answers, most)
    if not new_lessons:
        return answers
    ids = {
        lesson.signature.digest: answer.id
        for lesson, answer in zip(new_lessons, answers, strict=True)
    }
    taught = [
        replace(step, lesson=ids.get(signature("", step.error).digest, 0))
        for step in steps
    ]
    record_steps(db, scope, new_lessons[0].source, taught)
    return answers


def _record_session_lesson(
    db: Db, scope: Scope, lesson: Lesson, now: float, quota: int | None
) -> Sequence[Remembered]:
    """Write a lesson of a session, unless it counts for this session already.

    A lesson that the session fixed since it was written is written again.
    """
    name = {"kind": lesson.kind, "signature": lesson.signature.digest}
    key = {**key_of(scope), **name}
    source = storable(lesson.source)
    _withdraw(db, {**key, "source": source}, lesson)
    lesson_rows = db.select("*", "lesson", key)
    outdated = [row for row in lesson_rows if lessons.lacks_mend(lesson.text, row)]
    for row in outdated:
        raises_trust = lesson.trust in TRUST_RAISING_VERIFICATION
        if raises_trust and row["state"] == "unverified":  # a release wrote no text
            db.update("lesson", {"id": row["id"]}, {"trust": "model"})
            db.update("example", {"id": row["author"]}, {"trust": "model"})
    if db.one("seen_in", scope, **name, source=source) is None:
        written = lessons.upsert(db, scope, lessons=[lesson], now=now, quota=quota)
        answers = written or [lessons.UNSTORED_LESSON]
        if answers[-1].seen > 1:
            values = {"id": answers[-1].id, "least": MIN_RECALL_IMPORTANCE}
            db.run("raise_importance", values)
        return answers
    for row in outdated:
        db.delete("occurrence", {"lesson_id": row["id"], "source": source})
        if row["state"] == "quarantined" and row["seen"] == 1:
            db.delete("lesson", {"id": row["id"]})
        else:
            db.update("lesson", {"id": row["id"]}, {"seen": row["seen"] - 1})
    if outdated:
        written = lessons.upsert(db, scope, lessons=[lesson], now=now, quota=quota)
        if written:
            return written
    return lessons.remembered(db, scope, [lesson])


def _withdraw(db: Db, key: Mapping[str, Any], lesson: Lesson) -> None:
    """Delete what only this session taught, with a fix that its user then forbade."""
    if not lesson.meta.get("forbidden"):
        return
    only_here = {**key, "seen": 1, "pinned": False}
    for row in db.select("id, text", "lesson", only_here):
        if row["text"] != storable(lesson.text):
            db.delete("lesson", {"id": row["id"]})


@resumable(result=None)
def record_failure(db: Db, scope: Scope, digest: str, error: str) -> None:
    """Record why reflecting on an episode failed.

    With an empty `error`, only releases the claim.
    """
    after: EpisodeState = "failed" if error else "waiting"
    _settle(db, scope, digest=digest, state=after, error=error)


def page(
    db: Db,
    scope: Scope,
    limit: int,
    state: str = "",
    before: str = "",
    *,
    whole: bool = False,
) -> list[StoredEpisode]:
    """Return up to `limit` episodes in `state` ("": in any state), newest first.

    `before` is the digest of an episode: only older episodes are returned. Their
    `record` is empty unless `whole` is set.
    """
    from heedful.store.records import StoredEpisode

    rows = db.all(
        "list_episodes", scope, state=state, limit=limit, cursor=before, whole=whole
    )
    return [from_row(StoredEpisode, row) for row in rows]


def known_examples(db: Db, scope: Scope, digests: Collection[str]) -> set[str]:
    """Return the members of `digests` that are digests of examples in the scope."""
    values = {"scope": token(scope), "digests": json.dumps(list(digests))}
    return {row["digest"] for row in db.run("known_examples", values)}


def counts(db: Db, scope: Scope) -> dict[EpisodeState, int]:
    """Return the number of episodes in each state."""
    columns = "state, count(*) as n"
    rows = db.select(columns, "episode", key_of(scope), "group by state")
    return {row["state"]: row["n"] for row in rows}


def _insert(db: Db, scope: Scope, episode: StoredEpisode, via: str) -> None:
    row = {
        **_key(scope, episode.digest),
        "name": episode.name,
        "session": episode.session,
        "outcome": episode.outcome,
        "via": via,
        "record": json.dumps(dict(episode.record)),
        "at": time.time(),
    }
    db.insert("episode", row, CONFLICT_SKIP_SQL)


def _settle(db: Db, scope: Scope, digest: str, state: EpisodeState, error: str) -> bool:
    reason = storable(error)[:MAX_FAILURE_CHARS]
    row = db.one("settle_episode", scope, digest=digest, state=state, error=reason)
    return row is not None


def _key(scope: Scope, digest: str) -> dict[str, Any]:
    return {**key_of(scope), "digest": digest}


LATE_SPANS_REASON = "the trace had ended before these spans arrived"
# Late spans of a finished trace are ignored for this many seconds, and begin a new
# trace after it.
LATE_SPANS_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a trace, in `spans`, and of all open traces, in `bytes`."""

    spans: int = 10_000
    bytes: int = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTrace:
    """A trace that is not an episode yet.

    It has the number, the trust and the keys of its spans. `last` is when the last span
    arrived, in seconds since 1970.
    """

    id: str
    spans: int
    trust: Trust
    via: str
    last: float


def ended_traces(
    db: Db, scope: Scope, settled: float, ending: float
) -> list[OpenTrace]:
    """Return up to 100 traces that have ended, the one with the oldest last span first.

    A trace has ended if its last span arrived before `settled` or, without a root span,
    before `ending`. Times are seconds since 1970.
    """
    rows = db.all("ended_traces", scope, settled=settled, ending=ending)
    return [from_row(OpenTrace, row) for row in rows]


def spans(db: Db, scope: Scope, trace: str) -> list[Piece]:
    """Return the spans of a trace in the order in which they arrived."""
    from heedful.traces.spans import Piece

    columns = "trace, id, parent, root, record"
    key = {**key_of(scope), "trace": trace}
    return [
        from_row(Piece, row) for row in db.select(columns, "span", key, "order by n")
    ]


@holds("traces")
@resumable(result=bool)
def finish_trace(
    db: Db, scope: Scope, trace: OpenTrace, episode: StoredEpisode | None
) -> bool:
    """Delete the spans of a trace, and store the `episode` if it is not None.

    Does nothing and returns False if new spans have arrived or another process finished
    the trace.
    """
    key = key_of(scope)
    unchanged = {**key, "id": trace.id, "state": "open", "spans": trace.spans}
    if not db.update("trace", unchanged, {"state": "done", "bytes": 0}):
        return False
    db.delete("span", {**key, "trace": trace.id})
    db.run("forget_traces", {**key, "known": time.time() - LATE_SPANS_SECONDS})
    if episode is not None:
        _insert(db, scope, episode, trace.via)
    return True


@holds("traces")
@resumable(result=Counter[str])
def put_spans(
    db: Db, scope: Scope, pieces: Sequence[Piece], trust: Trust, bounds: Bounds
) -> Counter[str]:
    """Store new spans; return the number of refused spans by reason.

    `trust` is the trust of these spans. A trace with spans of different trust becomes
    "external".
    """
    refused: Counter[str] = Counter()
    by_trace: defaultdict[str, list[Piece]] = defaultdict(list)
    for piece in pieces:
        by_trace[piece.trace].append(piece)
    unfinished = {**key_of(scope), "state": "open"}
    ((used,),) = db.select("coalesce(sum(bytes), 0)", "trace", unfinished)
    room = bounds.bytes - int(used)
    for trace, group in by_trace.items():
        rows = db.select("state, spans", "trace", {**key_of(scope), "id": trace})
        is_open = not rows or rows[0]["state"] == "open"
        stored_spans = rows[0]["spans"] if rows else 0
        size = sum(len(piece.record) for piece in group)
        reason = ""
        if not is_open:
            reason = LATE_SPANS_REASON
        elif stored_spans + len(group) > bounds.spans:
            reason = f"a trace may have {bounds.spans} spans"
        elif size > room:
            reason = f"unfinished traces of a project may have {bounds.bytes} bytes"
        if reason:
            refused[reason] += len(group)
        else:
            _put(db, scope, trace=trace, pieces=group, trust=trust)
            room -= size
    return refused


def _put(
    db: Db, scope: Scope, trace: str, pieces: Sequence[Piece], trust: Trust
) -> None:
    key = {**key_of(scope), "trace": trace}
    new = [
        piece
        for piece in pieces
        if db.insert("span", {**key, **asdict(piece)}, CONFLICT_SKIP_SQL).rowcount
    ]
    if not new:
        return
    values = {
        **key,
        "spans": len(new),
        "bytes": sum(len(piece.record) for piece in new),
        "root": any(not piece.parent for piece in new),
        "now": time.time(),
        "trust": trust,
        "via": db.actor.via,
    }
    db.run("upsert_trace", values)


def record_steps(db: Db, scope: Scope, source: str, steps: Sequence[Step]) -> None:
    """Record the steps of one run: what failed, and what worked after a failure.

    `source` names the run, so that it counts once and can be revoked. A step without a
    time has just happened. A run may be recorded again when it is longer.
    """
    now = time.time()
    worked = dict[str, float]()  # when each action worked last, 0 if it failed last
    for step in steps:
        time_worked = 0.0 if step.error else min(step.at or now, now)
        for digest in step.action.digests(step.error):
            worked[digest] = time_worked
    by_time = defaultdict[float, list[str]](list)
    for digest, time_worked in worked.items():
        by_time[time_worked].append(digest)
    for time_worked, digests in sorted(by_time.items()):
        values = {"digests": json.dumps(digests), "at": time_worked}
        db.run("actions_worked", {**key_of(scope), **values})
    for step in steps:
        if not (step.error and step.lesson):
            continue
        values = {
            **key_of(scope),
            "lesson_id": step.lesson,
            "source": storable(source),
            "state": storable(step.state),
            "failed": min(step.at or now, now),
        }
        for digest in step.action.digests(step.error):
            values |= {"digest": digest, "worked": worked[digest]}
            db.run("insert_action", values)


def failures_of(db: Db, scope: Scope, action: Action) -> ActionHistory:
    """Return what is known about an action that failed and has not worked since."""
    failures = list[KnownFailure]()
    waiting = set[int]()
    rows = db.all(
        "failed_actions",
        scope,
        digests=json.dumps(action.digests()),
        whole=action.whole,
        **ANNOUNCEMENT_LIMITS,
    )
    for failure in rows:
        texts = db.all("lesson_and_rules", scope, id=failure["id"])
        waiting.update(text["entry"] for text in texts if text["entry"])
        lesson = rule = None
        for text in texts:
            if text["entry"]:
                continue
            if text["own"]:
                lesson = text
            else:
                rule = text
        if lesson is not None and len(failures) < MAX_ANNOUNCED_FAILURES:
            failures.append(_known_failure(failure, lesson, rule))
    return ActionHistory(tuple(failures), tuple(sorted(waiting)))


def _known_failure(failure: Row, lesson: Row, rule: Row | None) -> KnownFailure:
    """Return a failure with its lesson; a `rule` about it says how to avoid it."""
    if rule is None:
        best = lesson
        wrong, _, fix = lesson["text"].partition(f"\n{MEND_HEADING}\n")
    else:
        best = rule
        wrong = lesson["text"]
        fix = rule["text"]
    return from_row(
        KnownFailure,
        failure,
        what=wrong,
        fix=fix,
        lesson=failure["id"],
        trust=best["trust"],
        lesson_state=best["state"],
    )


# The events of sessions that a scope keeps.
MAX_SESSION_EVENTS = 20_000


@holds()
@resumable(result=None)
def append_events(
    db: Db, scope: Scope, session: str, events: Sequence[Mapping[str, Any]]
) -> None:
    """Add events to a session: the columns of a row.

    Other sessions give way, the oldest first.
    """
    key = {**key_of(scope), "session": storable(session)}
    for event in events:
        db.insert("event", {**key, **event, "via": db.actor.via, "at": time.time()})
    if db.select("1", "event", key_of(scope), f"limit 1 offset {MAX_SESSION_EVENTS}"):
        db.run("trim_events", {**key, "most": MAX_SESSION_EVENTS * 9 // 10})


def event_row(event: Event) -> dict[str, Any]:
    """Return an event as a row: without secrets, and with what finds it again."""
    called = ""
    if event.type == "tool_call":
        called = action(event.tool, event.arguments or {}).whole
    event = clean_event(event, Limits().content)
    names = "type content tool arguments call error agent origin".split()
    record = {name: getattr(event, name) for name in names}
    return {
        "type": storable(event.type),
        "tool": storable(event.tool),
        "call": storable(event.call),
        "action": called,
        "failed": bool(event.error),
        "record": json.dumps(record, ensure_ascii=False, default=repr),
    }


def error_digests(event: Mapping[str, Any]) -> frozenset[str]:
    """Return the signatures of the errors of a failed event, as lessons have them."""
    from heedful.traces.error_lines import error_lines

    lines = error_lines(
        str(event["content"] or event["error"]).splitlines(), others=False
    )
    titles = "", str(event.get("tool") or "")
    return frozenset(
        signature(title, line).digest for line in lines for title in titles
    )


def course_of(
    db: Db, scope: Scope, session: str, tool: str, call: str, action: Action
) -> tuple[bool, bool]:
    """Return whether a call is stored, and whether its tool or action failed last."""
    (row,) = db.all(
        "course_of",
        scope,
        session=storable(session),
        tool=storable(tool),
        call=storable(call),
        action=storable(action.whole),
    )
    return bool(row["known"]), bool(row["failed"])


def abandoned(db: Db, scope: Scope, before: float) -> list[str]:
    """Return the sessions without an event since the time `before`."""
    end = f"group by session having max(at) < {before:f}"
    return [row["session"] for row in db.select("session", "event", key_of(scope), end)]


def owner(db: Db, scope: Scope, session: str) -> str | None:
    """Return the key that sent the first event of a session.

    It is "" in process; returns None without events.
    """
    key = {**key_of(scope), "session": storable(session)}
    for row in db.select("via", "event", key, "order by n limit 1"):
        return str(row["via"])
    return None


def session_events(db: Db, scope: Scope, session: str) -> list[dict[str, Any]]:
    """Return the events of a session in order.

    Each has its time and key as `at` and `via`.
    """
    key = {**key_of(scope), "session": storable(session)}
    events = []
    for row in db.select("record, via, at", "event", key, "order by n"):
        event = {**json.loads(row["record"]), "at": row["at"], "via": row["via"]}
        events.append(event)
    return events


@holds()
@resumable(result=None)
def forget_session(db: Db, scope: Scope, session: str) -> None:
    """Delete the events of a session."""
    db.delete("event", {**key_of(scope), "session": storable(session)})
