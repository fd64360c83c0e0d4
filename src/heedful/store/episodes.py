"""Store the episodes of agents, their actions, and what has not ended: spans and
sessions.

An episode or span that arrives again is not stored again. One worker at a time reflects
on an episode. If reflecting fails, a worker tries again later. When a trace ends, an
episode replaces its spans.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
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
# A part of an action is announced after it failed in `least` runs: on recorded
# sessions, 2 runs announce the wrong failure in 15 % of the cases, 3 in 10 %. `read`
# failures are read, newest first, and `limit` lessons about them; an answer has
# `MAX_ANNOUNCED_FAILURES` failures.
ANNOUNCEMENT_LIMITS = {"least": 3, "read": 500, "limit": 10}
MAX_ANNOUNCED_FAILURES = 3


def _episode_or_none() -> Any:
    from heedful.store.records import StoredEpisode

    return StoredEpisode | None


@resumable(result=str | None)
def admit(
    db: Db, scope: Scope, episode: StoredEpisode, claim: bool = True
) -> EpisodeState | None:
    """Store an episode if it is new, and return its state; None if this call claimed
    it.

    The caller has removed the secrets of `episode`: that takes a second if it is long.
    """
    _insert(db, scope, episode, db.actor.via)
    known = state(db, scope, episode.digest)
    digest = episode.digest
    return (
        None
        if claim and take(db, scope, time.time() + 1, digest) is not None
        else known
    )


@resumable(result=_episode_or_none)
def take(db: Db, scope: Scope, before: float, digest: str = "") -> StoredEpisode | None:
    """Claim and return the oldest waiting or failed episode; None if no episode is
    left.

    Skips episodes that another worker has claimed, and episodes that were tried after
    the time `before` (seconds since 1970). With a `digest`, considers only the episode
    with this digest. A claim lasts `EPISODE_LEASE_SECONDS` seconds after the last `beat`.
    """
    from heedful.store.records import StoredEpisode

    values = {"now": time.time(), "before": before, "lease": EPISODE_LEASE_SECONDS}
    row = db.one("take_episode", scope, digest=digest, **values)
    return from_row(StoredEpisode, row) if row is not None else None


@holds()
@resumable(result=None)
def beat(db: Db, scope: Scope, digest: str) -> None:
    """Renew the claim of this worker on an episode."""
    db.update(
        "episode", {**_key(scope, digest), "state": "waiting"}, {"taken": time.time()}
    )


def left(db: Db, scope: Scope, limit: int, failed: bool = False) -> list[str]:
    """Return the digests of unclaimed waiting episodes, and of `failed` ones, oldest
    first.
    """
    times = {"now": time.time(), "lease": EPISODE_LEASE_SECONDS}
    rows = db.all("episodes_left", scope, limit=limit, failed=failed, **times)
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
    reflections: Sequence[Lesson],
    *,
    most: int = 0,
    quota: int | None = None,
) -> list[Remembered]:
    """Write the lessons of an episode. The first is linked to the others, which are its
    strategies.

    `most` and `quota` are limits as in `exposures.remember`. Raises Conflict if the
    episode has its lessons already, InvalidInput, QuotaExceeded.
    """
    now = time.time()
    if not _settle(db, scope, digest=digest, state="reflected", error=""):
        raise Conflict(
            f"episode {digest[:16]} has its lessons already; nothing was added"
        )
    answers = lessons.upsert(db, scope, reflections=reflections, now=now, quota=quota)
    names = [f"{one.kind}/{one.signature.digest}" for one in reflections]
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
    reflections: Sequence[Lesson],
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
    names = {name: storable(text) for name, text in head.items()}
    row = {
        **_key(scope, digest),
        **names,
        "state": "reflected",
        "record": "{}",
        "at": now,
    }
    if not db.insert("episode", row, CONFLICT_SKIP_SQL).rowcount:
        return []
    answers = list[Remembered]()
    for one in reflections:
        key = {"kind": one.kind, "signature": one.signature.digest}
        source = storable(one.source)
        _withdraw(db, {**key_of(scope), **key, "source": source}, one)
        known = db.select("*", "reflection", {**key_of(scope), **key})
        mended = [row for row in known if lessons.lacks_mend(one.text, row)]
        for row in mended:
            if (
                one.trust in TRUST_RAISING_VERIFICATION and row["state"] == "candidate"
            ):  # a release wrote no text
                db.update("reflection", {"id": row["id"]}, {"trust": "model"})
                db.update("example", {"id": row["author"]}, {"trust": "model"})
        if db.one("seen_in", scope, **key, source=source) is None:
            answers += lessons.upsert(
                db, scope, reflections=[one], now=now, quota=quota
            ) or [lessons.UNSTORED_LESSON]
            if answers[-1].seen > 1:
                db.run(
                    "raise_importance",
                    {"id": answers[-1].id, "least": MIN_RECALL_IMPORTANCE},
                )
            continue
        for row in mended:  # the session put it right by now
            db.delete("occurrence", {"reflection": row["id"], "source": source})
            if row["state"] == "quarantined" and row["seen"] == 1:
                db.delete("reflection", {"id": row["id"]})
            else:
                db.update("reflection", {"id": row["id"]}, {"seen": row["seen"] - 1})
        again = (
            lessons.upsert(db, scope, reflections=[one], now=now, quota=quota)
            if mended
            else ()
        )
        answers += again or lessons.remembered(db, scope, [one])
    answers = lessons.evict(db, scope, answers, most)
    ids = {
        one.signature.digest: row.id
        for one, row in zip(reflections, answers, strict=True)
    }
    if ids:
        about = [
            replace(one, lesson=ids.get(signature("", one.error).digest, 0))
            for one in steps
        ]
        record_steps(db, scope, reflections[0].source, about)
    return answers


def _withdraw(db: Db, key: Mapping[str, Any], one: Lesson) -> None:
    """Delete the lesson that only this session told, with a mend that its user then
    forbade.
    """
    for row in db.select("id, text", "reflection", {**key, "seen": 1, "pinned": False}):
        if one.meta.get("forbidden") and row["text"] != storable(one.text):
            db.delete("reflection", {"id": row["id"]})


@resumable(result=None)
def record_failure(db: Db, scope: Scope, digest: str, error: str) -> None:
    """Record why reflecting on an episode failed; with an empty `error`, only release
    the claim.
    """
    _settle(
        db, scope, digest=digest, state="failed" if error else "waiting", error=error
    )


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

    values = {"state": state, "limit": limit, "cursor": before, "whole": whole}
    return [
        from_row(StoredEpisode, row) for row in db.all("list_episodes", scope, **values)
    ]


def known_examples(db: Db, scope: Scope, digests: Collection[str]) -> set[str]:
    """Return the members of `digests` that are digests of examples in the scope."""
    values = {"scope": token(scope), "digests": json.dumps(list(digests))}
    return {row["digest"] for row in db.run("known_examples", values)}


def counts(db: Db, scope: Scope) -> dict[EpisodeState, int]:
    """Return the number of episodes in each state."""
    return dict(
        map(
            tuple,
            db.select("state, count(*)", "episode", key_of(scope), "group by state"),
        )
    )


def _insert(db: Db, scope: Scope, one: StoredEpisode, via: str) -> None:
    texts = {
        "name": one.name,
        "session": one.session,
        "outcome": one.outcome,
        "via": via,
    }
    row = {**_key(scope, one.digest), **texts, "record": json.dumps(dict(one.record))}
    db.insert("episode", {**row, "at": time.time()}, CONFLICT_SKIP_SQL)


def _settle(db: Db, scope: Scope, digest: str, state: EpisodeState, error: str) -> bool:
    outcome = {"state": state, "error": storable(error)[:500]}
    return db.one("settle_episode", scope, digest=digest, **outcome) is not None


def _key(scope: Scope, digest: str) -> dict[str, Any]:
    return {**key_of(scope), "digest": digest}


LATE_SPANS_REASON = "the trace had ended before these spans arrived"
# Late spans of a finished trace are ignored for this many seconds, and begin a new
# trace after it.
LATE_SPANS_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """A trace may have `spans` spans; all unfinished traces of a scope, `bytes`
    bytes.
    """

    spans: int = 10_000
    bytes: int = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTrace:
    """A trace that is not an episode yet, with the number, the trust and the keys of
    its spans.

    `last` is when the last span arrived, in seconds since 1970.
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
    db: Db, scope: Scope, trace: OpenTrace, made: StoredEpisode | None
) -> bool:
    """Delete the spans of a trace, and store the episode `made` if it is not None.

    Does nothing and returns False if new spans have arrived or another process finished
    the trace.
    """
    key = key_of(scope)
    open_ = {**key, "id": trace.id, "state": "open", "spans": trace.spans}
    if not db.update("trace", open_, {"state": "done", "bytes": 0}):
        return False
    db.delete("span", {**key, "trace": trace.id})
    db.run("forget_traces", {**key, "known": time.time() - LATE_SPANS_SECONDS})
    if made is not None:
        _insert(db, scope, made, trace.via)
    return True


@holds("traces")
@resumable(result=Counter[str])
def put_spans(
    db: Db, scope: Scope, pieces: Sequence[Piece], trust: Trust, bounds: Bounds
) -> Counter[str]:
    """Store new spans; return, for each reason to refuse spans, the number of refused
    spans.

    `trust` is the trust of these spans. A trace with spans of different trust becomes
    "external".
    """
    refused: Counter[str] = Counter()
    grouped: defaultdict[str, list[Piece]] = defaultdict(list)
    for piece in pieces:
        grouped[piece.trace].append(piece)
    used = db.select(
        "coalesce(sum(bytes), 0)", "trace", {**key_of(scope), "state": "open"}
    )
    room = bounds.bytes - int(used[0][0])
    for trace, group in grouped.items():
        known = db.select("state, spans", "trace", {**key_of(scope), "id": trace})
        state, spans = known[0] if known else ("open", 0)
        size = sum(len(one.record) for one in group)
        if state != "open":
            refused[LATE_SPANS_REASON] += len(group)
        elif spans + len(group) > bounds.spans:
            refused[f"a trace may have {bounds.spans} spans"] += len(group)
        elif size > room:
            refused[
                f"unfinished traces of a project may have {bounds.bytes} bytes"
            ] += len(group)
        else:
            _put(db, scope, trace=trace, pieces=group, trust=trust)
            room -= size
    return refused


def _put(
    db: Db, scope: Scope, trace: str, pieces: Sequence[Piece], trust: Trust
) -> None:
    key = {**key_of(scope), "trace": trace}
    spans = size = 0
    root = False
    for piece in pieces:
        if db.insert("span", {**key, **asdict(piece)}, CONFLICT_SKIP_SQL).rowcount:
            spans = spans + 1
            size = size + len(piece.record)
            root = root or not piece.parent
    if spans:
        counts = {"spans": spans, "bytes": size, "root": root, "now": time.time()}
        db.run("upsert_trace", {**key, **counts, "trust": trust, "via": db.actor.via})


def record_steps(db: Db, scope: Scope, source: str, steps: Sequence[Step]) -> None:
    """Record the steps of one run: what failed, and what worked after it had failed
    before.

    `source` names the run, so that it counts once and can be revoked. A step without a
    time was just made. A run may be recorded again when it is longer.
    """
    now = time.time()
    worked = dict[str, float]()
    for step in steps:
        at = 0.0 if step.error else min(step.at or now, now)
        worked.update(dict.fromkeys(step.action.digests(step.error), at))
    for at, good in groupby(sorted(worked, key=worked.__getitem__), worked.__getitem__):
        db.run(
            "actions_worked",
            {**key_of(scope), "digests": json.dumps([*good]), "at": at},
        )
    for step in steps:
        if step.error and step.lesson:
            values = {
                **key_of(scope),
                "reflection": step.lesson,
                "source": storable(source),
            }
            values |= {
                "state": storable(step.state),
                "failed": min(step.at or now, now),
            }
            for digest in step.action.digests(step.error):
                db.run(
                    "insert_action",
                    {**values, "digest": digest, "worked": worked[digest]},
                )


def failures_of(db: Db, scope: Scope, action: Action) -> ActionHistory:
    """Return what is known about an action that failed and has not worked since."""
    failures = list[KnownFailure]()
    waiting = set[int]()
    asked = {"digests": json.dumps(action.digests()), "whole": action.whole}
    for failed in db.all("failed_actions", scope, **asked, **ANNOUNCEMENT_LIMITS):
        rows = db.all("lesson_and_rules", scope, id=failed["id"])
        waiting |= {row["entry"] for row in rows if row["entry"]}
        known = {bool(row["own"]): row for row in rows if not row["entry"]}
        if True in known and len(failures) < MAX_ANNOUNCED_FAILURES:
            rule = known.get(False)
            best = rule or known[True]
            text = known[True]["text"]
            what, _, fix = text.partition(f"\n{MEND_HEADING}\n")
            told = (
                {"what": text, "fix": rule["text"]}
                if rule
                else {"what": what, "fix": fix}
            )
            told |= {
                "lesson": failed["id"],
                "trust": best["trust"],
                "lesson_state": best["state"],
            }
            failures.append(from_row(KnownFailure, failed, **told))
    return ActionHistory(tuple(failures), tuple(sorted(waiting)))


# The events of sessions that a scope keeps.
MAX_SESSION_EVENTS = 20_000


@holds()
@resumable(result=None)
def append_events(
    db: Db, scope: Scope, session: str, events: Sequence[Mapping[str, Any]]
) -> None:
    """Add events to a session: the columns of a row. Other sessions give way, the
    oldest first.
    """
    key = {**key_of(scope), "session": storable(session)}
    for event in events:
        db.insert("event", {**key, **event, "via": db.actor.via, "at": time.time()})
    if db.select("1", "event", key_of(scope), f"limit 1 offset {MAX_SESSION_EVENTS}"):
        db.run("trim_events", {**key, "most": MAX_SESSION_EVENTS * 9 // 10})


def event_row(event: Event) -> dict[str, Any]:
    """Return an event as a row: without secrets, and with what finds it again."""
    acted = (
        action(event.tool, event.arguments or {}).whole
        if event.type == "tool_call"
        else ""
    )
    event = clean_event(event, Limits().content)
    names = "type content tool arguments call error agent origin".split()
    held = {name: getattr(event, name) for name in names}
    record = json.dumps(held, ensure_ascii=False, default=repr)
    named = {name: storable(held[name]) for name in ("type", "tool", "call")}
    return {**named, "action": acted, "failed": bool(event.error), "record": record}


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
    """Return whether a call is kept, and whether its tool or action failed when it ran
    last.
    """
    about = {"session": session, "tool": tool, "call": call, "action": action.whole}
    (row,) = db.all(
        "course_of", scope, **{name: storable(one) for name, one in about.items()}
    )
    return bool(row["known"]), bool(row["failed"])


def abandoned(db: Db, scope: Scope, before: float) -> list[str]:
    """Return the sessions without an event since the time `before`."""
    end = f"group by session having max(at) < {before:f}"
    return [row["session"] for row in db.select("session", "event", key_of(scope), end)]


def owner(db: Db, scope: Scope, session: str) -> str | None:
    """Return the key that sent the first event of a session, "" in process; None
    without events.
    """
    key = {**key_of(scope), "session": storable(session)}
    return next(
        (row["via"] for row in db.select("via", "event", key, "order by n limit 1")),
        None,
    )


def session_events(db: Db, scope: Scope, session: str) -> list[dict[str, Any]]:
    """Return the events of a session in order, each with its time and key as `at` and
    `via`.
    """
    key = {**key_of(scope), "session": storable(session)}
    rows = db.select("record, via, at", "event", key, "order by n")
    return [
        {**json.loads(row["record"]), "at": row["at"], "via": row["via"]}
        for row in rows
    ]


@holds()
@resumable(result=None)
def forget_session(db: Db, scope: Scope, session: str) -> None:
    """Delete the events of a session."""
    db.delete("event", {**key_of(scope), "session": storable(session)})
