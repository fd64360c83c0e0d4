"""Loops in a store: claiming, writing, reading, explaining and replaying them.

A driver is what makes the attempts of a loop. It claims the loop with a lease, and with
a token that names its process: if the process is killed, another driver on the same
machine can claim the loop at once. Each claim raises the `epoch`; a driver with an
older epoch cannot write.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, lru_cache
from typing import Any

from heedful.errors import AttemptTaken, Conflict, LeaseLost, NotFound, OverrideRefused
from heedful.lessons.briefing import Briefing
from heedful.lessons.lesson import Scope
from heedful.loop import codec
from heedful.loop.decide import Done, Policy
from heedful.loop.record import Attempt, Goal, Loop, Override, Usage
from heedful.loop.replay import RecordedLoop
from heedful.loop.runs import StageHead
from heedful.loop.stop import counts_scope
from heedful.redact import redact, redact_data
from heedful.store import exposures, lessons
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    MAX_ROWS,
    MEMORY_LOCKS,
    Db,
    Row,
    holds,
    key_of,
    resumable,
    storable,
)
from heedful.store.records import Head, JournalEntry, LoopState, StoredLoop

LOOP_LEASE_SECONDS = 30.0
# The most bytes of JSON that are read to list loops, and to replay or count what they
# have.
MAX_LISTING_BYTES = 4 * 2**20
MAX_REPLAY_BYTES = 32 * 2**20
# A note about an attempt counts as a finding of it if its key begins with this.
NOTED_FINDING_PREFIX = "bias: "
_active: set[str] = set()


class LoopChanged(LeaseLost):
    """A loop without a driver has changed since its writer read it."""

    def __init__(self, id: str) -> None:
        super().__init__(f"loop {id!r} has changed since it was read; read it again")


def new_owner() -> str:
    """Return a token for one driver in this process: host, process id and a nonce."""
    return f"{_host()}|{os.getpid()}|{os.urandom(6).hex()}"


def enter(owner: str) -> None:
    """Mark the driver `owner` as working."""
    _active.add(owner)


def leave(owner: str) -> None:
    """Mark the driver `owner` as finished, so that its loops may be claimed at once."""
    _active.discard(owner)


def alive(owner: str, left: float, most: float = LOOP_LEASE_SECONDS) -> bool:
    """Return True if the driver with the token `owner` may still be working.

    A driver in this process works from `enter` to `leave`. Any other driver may be
    working while its lease has seconds `left`. If it is on this host, its process must
    also run. A lease with more than `most` seconds is from a clock that ran ahead, so
    it has ended.
    """
    host, _, rest = owner.partition("|")
    if host != _host():
        return bool(owner) and 0 < left <= most
    pid = int(rest.partition("|")[0])
    return (
        owner in _active if pid == os.getpid() else 0 < left <= most and _running(pid)
    )


@cache
def _host() -> str:
    """Return the host name and, on Linux, the process's PID namespace."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{socket.gethostname()}{space}"


def _running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


Plain = Mapping[str, Any]
_Fenced = tuple[int, str, bool]
HEAD_FIELDS = ("task", "goals", "policy", "context")
STAGE_SETTING_FIELDS = ("pipeline", "checks", "on_exhausted", "on_unvalidated", "model")


def _of_loop(id: str, *_: object, **__: object) -> tuple[str, ...]:
    """Return the lock that serialises the writers of one loop."""
    return (f"loop {id}",)


def _of_entry(entry: JournalEntry, *_: object, **__: object) -> tuple[str, ...]:
    told = entry.briefing is not None and entry.briefing.exposures
    teaches = entry.reflections or told or entry.outcome is not None
    return (*_of_loop(entry.id), *(MEMORY_LOCKS if teaches else ()))


@holds(by=_of_loop)
def begin(db: Db, scope: Scope, id: str, head: Head) -> tuple[StoredLoop, bool]:
    """Return the loop, and True if it is new; create the loop, without a driver, if
    necessary.

    Raises Conflict if the stored loop has another task, context, goals, policy or
    memory key.
    """
    created = (
        _insert(db, key=_key(scope, id), head=head, owner="", now=time.time())
        is not None
    )
    row = _row(db, scope, id)
    if not created:
        _same(row, head, (*HEAD_FIELDS, "memory_key"))
    return _stored(db, row), created


def state(db: Db, scope: Scope, id: str, window: int) -> LoopState:
    """Return the data for deciding on a loop that this process does not drive. Raises
    NotFound.

    If a rule of the policy needs it, `LoopState.echoes` counts finding keys in the
    `window` newest other loops.
    """
    row = _row(db, scope, id)
    stored = _stored(db, row)
    policy = _policy(row["policy"])
    return LoopState(
        stored=stored,
        policy=policy,
        driver=row["owner"] if alive(row["owner"], row["held_for"]) else "",
        echoes=echoes(db, scope, id, window)
        if any(map(counts_scope, policy.rules))
        else {},
    )


@lru_cache(64)  # most loops of a process have one policy
def _policy(text: str) -> Policy:
    return codec.policy_from(json.loads(text))


@holds(by=_of_loop)
def claim(db: Db, scope: Scope, id: str, head: Head, owner: str) -> StoredLoop:
    """Claim the loop for the driver `owner`; create the loop if necessary.

    Raises LeaseLost if another driver is working on the loop, Conflict if the stored
    task differs.
    """
    key = _key(scope, id)
    now = time.time()
    row = db.first("read_loop", key)
    if row is None:
        _insert(db, key, head=head, owner=owner, now=now)
    else:
        if alive(row["owner"], row["held_for"]) and row["owner"] != owner:
            raise LeaseLost(
                f"loop {id!r} is being driven by another process ({row['owner']}); "
                "wait for it, or stop it"
            )
        _same(row, head, HEAD_FIELDS[:1])
        db.run(
            "claim_loop",
            {"n": row["n"], "owner": owner, "lease": LOOP_LEASE_SECONDS, "now": now},
        )
    return read(db, scope, id)


@holds(by=_of_loop)
@resumable(result=None)
def beat(db: Db, scope: Scope, id: str, epoch: int) -> None:
    """Renew the lease of the loop. Raises LeaseLost if another driver has claimed the
    loop.
    """
    values = {**_key(scope, id), "epoch": epoch, "lease": LOOP_LEASE_SECONDS}
    if not db.run("renew_lease", values).rowcount:
        raise _lost(id)


@holds(by=_of_entry)
@resumable(result=int)
def commit(db: Db, scope: Scope, entry: JournalEntry, owner: str) -> int:
    """Write `entry` to its loop; return the number of a new outcome in the scope, else
    0.

    Raises LeaseLost if the loop's epoch is not `entry.epoch`. If the attempt of `entry`
    is stored already, nothing is written; if it is stored with other content, this
    raises AttemptTaken.

    If `owner` is "", the loop has no driver. The loop must then be unchanged since
    `entry.seen`, and each write raises the epoch: of several writers that read the same
    state, only one can write.
    """
    now = time.time()
    n, before, steps = _fence(
        db, key=_key(scope, entry.id), entry=entry, owner=owner, now=now
    )
    if not _attempt(db, n, now=now, entry=entry, steps=steps):
        return 0
    if entry.step is not None:
        key, record = entry.step
        db.insert(
            "step", {"loop": n, "key": key, "record": dump(record)}, CONFLICT_SKIP_SQL
        )
    if entry.extra is not None:
        db.update("loop", {"n": n}, {"extra": dump(codec.to_document(entry.extra))})
    if entry.cancelled:
        db.update("loop", {"n": n}, {"cancelled": storable(entry.cancelled)})
    if entry.override is not None:
        texts = {
            name: storable(getattr(entry.override, name)) for name in ("by", "why")
        }
        db.run(
            "insert_override", {**asdict(entry.override), **texts, "n": n, "now": now}
        )
    _decision(db, n, now=now, entry=entry, before=before or "open")
    if entry.briefing is not None:
        brief(db, scope, entry.id, entry.briefing)
    number = (
        exposures.expose(db, scope, exposures=(), outcome=entry.outcome, now=now)
        if entry.outcome
        else 0
    )
    if entry.reflections:
        answers = lessons.upsert(
            db,
            scope,
            reflections=entry.reflections,
            now=now,
            quota=entry.quota,
            drops=True,
        )
        lessons.evict(db, scope, answers, entry.most)
    return number


@resumable(result=None)
def brief(db: Db, scope: Scope, id: str, briefing: Briefing) -> None:
    """Record what memory tells the loop with this id, stored or not, unless it is
    recorded.
    """
    exposures.expose(
        db, scope, exposures=briefing.exposures, outcome=None, now=time.time()
    )
    new = {"briefing": dump(briefing.plain())}
    db.update("loop", {**_key(scope, id), "briefing": ""}, new)


def read(db: Db, scope: Scope, id: str) -> StoredLoop:
    """Return the stored loop with this id. Raises NotFound."""
    return _stored(db, _row(db, scope, id))


def _row(db: Db, scope: Scope, id: str) -> Row:
    row = db.one("read_loop", scope, id=id)
    if row is None:
        raise NotFound("loop", id, db.url)
    return row


def read_many(db: Db, scope: Scope, ids: Sequence[str]) -> list[StoredLoop]:
    """Return the stored loops with these ids, in this order; missing loops are left
    out.
    """
    rows = (db.one("read_loop", scope, id=id) for id in ids)
    return [_stored(db, row) for row in rows if row is not None]


def newest(
    db: Db,
    scope: Scope,
    limit: int,
    prefix: str = "",
    before: str = "",
    most: int = MAX_ROWS,
) -> tuple[list[StoredLoop], bool]:
    """Return the newest loops whose id begins with `prefix`, and whether there are
    more.

    Returns at most `limit` loops and `most` bytes, but at least one loop if there is
    any. The loops lack `values`, `journal` and the texts of candidates. `before` is the
    id of a loop: only older loops are returned, and none if this loop is missing.
    """
    values = {**key_of(scope), "limit": limit + 1, "prefix": prefix, "cursor": before}
    found: list[StoredLoop] = []
    for row in db.run("newest_loops", values):
        most -= row["size"]
        if len(found) == limit or (found and most < 0):
            return found, True
        found.append(_stored(db, _row(db, scope, row["id"]), whole=False))
    return found, False


def echoes(db: Db, scope: Scope, id: str, window: int) -> dict[str, int]:
    """Count the attempts with each finding key in the `window` newest loops other than
    `id`.

    In each loop, only the attempts from the last improvement on are counted; for a
    persistent finding, all attempts. Findings of level "note" are ignored. Noted bias
    tags count, too.
    """
    found, _ = newest(db, scope, window + 1, most=MAX_REPLAY_BYTES)
    others = [other for other in found if other.id != id][:window]
    counts: Counter[str] = Counter()
    for other in others:
        improvement = codec.improvement_from(other.head.policy)
        counts.update(replace(other.loop, improves=improvement).count_findings())
    own = [one.loop for one in read_many(db, scope, [id])]
    counts.update(
        _noted_findings(
            db,
            scope,
            id=id,
            loops=[*own, *(other.loop for other in others)],
            window=window,
        )
    )
    return dict(counts)


def _noted_findings(
    db: Db, scope: Scope, id: str, loops: Sequence[Loop], window: int
) -> Iterator[str]:
    """Yield the bias tags that are noted but not reported, of the `window` newest
    attempts.

    Tags of an attempt of `id` that is not reported yet are left out: its report will
    have them.
    """
    reported = {
        attempt.reported_as or loop.id: attempt.evaluation.keys
        if attempt.evaluation
        else ()
        for loop in loops
        for attempt in loop.attempts
    }
    for row in db.all("noted_tags", scope, prefix=NOTED_FINDING_PREFIX, window=window):
        pending = row["loop"] == id and row["name"] not in reported
        if not pending and row["key"] not in reported.get(row["name"], ()):
            yield row["key"]


@holds(by=_of_loop)
@resumable(result=None)
def set_policy(db: Db, scope: Scope, id: str, head: Head) -> None:
    """Give a loop the policy and the goals of `head`, if they differ from its own."""
    columns = {name: dump(getattr(head, name)) for name in ("goals", "policy")}
    if dict(db.select("goals, policy", "loop", _key(scope, id))[0]) != columns:
        db.update("loop", _key(scope, id), columns)


@holds(by=_of_loop)
@resumable(result=None)
def note(db: Db, scope: Scope, id: str, name: str, notes: Mapping[str, Any]) -> None:
    """Store notes about the attempt `name` of a loop; a note with the same key is
    replaced.
    """
    for key, record in notes.items():
        row = {**key_of(scope), "name": name, "key": storable(key)}
        db.delete("note", row)
        db.insert(
            "note", {**row, "loop": id, "record": dump(record), "created": time.time()}
        )


def notes(db: Db, scope: Scope, name: str) -> dict[str, Any]:
    """Return the notes about the attempt `name`, by key, oldest first."""
    rows = db.select(
        "key, record", "note", {**key_of(scope), "name": name}, "order by created"
    )
    return {row["key"]: json.loads(row["record"]) for row in rows}


def dump(value: Any) -> str:
    """Return `value` as JSON without secrets; ASCII, since UTF-8 cannot hold lone
    surrogates.
    """
    return _json(redact_data(value))


_json = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


@lru_cache(64)
def _dump_again(text: str) -> str:
    return dump(json.loads(text))


def _key(scope: Scope, id: str) -> dict[str, Any]:
    return {**key_of(scope), "id": id}


def _lost(id: str) -> LeaseLost:
    return LeaseLost(
        f"loop {id!r} was taken over by another process; nothing was written"
    )


def _insert(db: Db, key: Plain, head: Head, owner: str, now: float) -> int | None:
    """Insert the loop and return its number; return None if it exists."""
    driven = {
        "owner": owner,
        "lease": LOOP_LEASE_SECONDS if owner else 0.0,
        "via": db.actor.via,
    }
    row = db.first("insert_loop", {**key, **_columns(head), **driven, "now": now})
    return None if row is None else int(row["n"])


def _columns(head: Head) -> dict[str, str]:
    stage = head.stage
    return {
        **{part: dump(getattr(head, part)) for part in ("task", "context")},
        # Most loops of a process have one policy.
        **{
            part: _dump_again(_json(getattr(head, part)))
            for part in ("goals", "policy")
        },
        "kind": head.kind,
        "memory_key": redact(head.memory_key),
        "run": storable(stage.run) if stage else "",
        "stage": storable(stage.name) if stage else "",
        "settings": dump({name: getattr(stage, name) for name in STAGE_SETTING_FIELDS})
        if stage
        else "null",
    }


def _same(row: Row, head: Head, parts: Sequence[str]) -> None:
    """Check that the stored loop in `row` and `head` agree in `parts`. Raises
    Conflict.
    """
    columns = _columns(head)
    for part in parts:
        if row[part] != columns[part]:
            message = f"loop {row['id']!r} is about another {part}: {row[part][:80]}"
            raise Conflict(f"{message}; give another id")


def _fence(db: Db, key: Plain, entry: JournalEntry, owner: str, now: float) -> _Fenced:
    """Return the loop's number, its state ("" if new), and if it has steps. Raises
    LeaseLost.
    """
    if (
        entry.head is not None
        and owner
        and (n := _insert(db, key, head=entry.head, owner=owner, now=now))
    ):
        return n, "", False
    values = {
        **key,
        "epoch": entry.epoch,
        "owner": owner,
        "seen": entry.seen,
        "now": now,
    }
    row = db.first(
        "fence" if owner else "advance", {**values, "lease": LOOP_LEASE_SECONDS}
    )
    if row is not None:
        if (
            entry.head is not None
        ):  # it was resumed with other goals or under another policy
            columns = _columns(entry.head)
            kept = {
                name: columns[name] for name in columns.keys() - {"task", "context"}
            }
            db.update("loop", {"n": row["n"]}, kept)
        return int(row["n"]), row["state"], bool(row["steps"])
    if (
        entry.head is None
        or (n := _insert(db, key, head=entry.head, owner=owner, now=now)) is None
    ):
        raise LoopChanged(entry.id) if not owner else _lost(entry.id)
    return n, "", False


def _attempt(db: Db, n: int, now: float, entry: JournalEntry, steps: bool) -> bool:
    """Write the attempt, if any; False if it is stored. Raises AttemptTaken if contents
    differ.
    """
    if entry.attempt is None:
        return True
    value = dump(
        entry.value
    )  # before the attempt, so that fewer copies exist at a time
    attempt = redact_data(codec.to_document(entry.attempt))
    key = {"loop": n, "number": attempt["number"]}
    text = _json(attempt["candidate"].pop("text", None))
    content = {
        "record": _json(attempt),
        "text": "" if text == value else text,
        "value": value,
    }
    row = {**key, **content, "via": db.actor.via, "created": now}
    if db.insert("attempt", row, CONFLICT_SKIP_SQL).rowcount:
        if steps:
            db.delete("step", {"loop": n})
        return True
    if dict(db.select("record, text, value", "attempt", key)[0]) != content:
        message = (
            f"attempt {attempt['number']} of {entry.id!r} is stored with other content"
        )
        raise AttemptTaken(message)
    return False


def _decision(db: Db, n: int, now: float, entry: JournalEntry, before: str) -> None:
    number = entry.attempt.number if entry.attempt else None
    verdict = entry.verdict
    if verdict is None:
        return
    plain = redact_data(codec.decision_to(verdict, entry.standing, entry.decided))
    db.run(
        "insert_decision",
        {"n": n, "attempt": number, "record": _json(plain), "now": now},
    )
    if isinstance(verdict, Done):
        state = "passed" if verdict.passed else "stopped"
        db.update("loop", {"n": n}, {"state": state, "lease": 0.0})
    else:
        if before != "open":
            db.update("loop", {"n": n}, {"state": "open"})
        for index in sorted({one.override for one in verdict.lifted}):
            if db.first("use_override", {"n": n, "index": index}) is None:
                raise OverrideRefused(
                    "an override was consumed by another decision; decide again"
                )


def _stored(db: Db, row: Row, whole: bool = True) -> StoredLoop:
    parts: dict[str, list[Row]] = {
        "attempt": [],
        "decision": [],
        "override": [],
        "step": [],
    }
    for part in db.run("read_parts", {"loop": row["n"], "whole": int(whole)}):
        parts[part["part"]].append(part)
    records = [json.loads(each["record"]) for each in parts["attempt"]]
    values = [json.loads(each["value"]) for each in parts["attempt"]] if whole else []
    for plain, each, value in zip(records, parts["attempt"], values, strict=whole):
        plain["candidate"]["text"] = json.loads(each["text"]) if each["text"] else value
    decisions = tuple(
        codec.decision_from(json.loads(each["record"]), each["number"], each["at"])
        for each in parts["decision"]
    )
    overrides = [_override(each) for each in parts["override"]]
    task, goals, policy, context = (json.loads(row[part]) for part in HEAD_FIELDS)
    stage = None
    if row["kind"] == "stage":
        settings = json.loads(row["settings"])
        settings["checks"] = tuple(settings["checks"])
        stage = StageHead(run=row["run"], name=row["stage"], **settings)
    head = Head(
        task=task,
        goals=goals,
        policy=policy,
        context=context,
        kind=row["kind"],
        stage=stage,
        memory_key=row["memory_key"],
    )
    loop = Loop(
        row["id"],
        tuple(codec.from_document(Goal, g) for g in head.goals),
        attempts=tuple(codec.from_document(Attempt, plain) for plain in records),
        overrides=tuple(overrides),
        extra=Usage(**json.loads(row["extra"])),
        cancelled=row["cancelled"],
        # For the same decision again: an override that had expired then stays expired.
        at=decisions[-1].decided if decisions and overrides else 0.0,
    )
    return StoredLoop(
        id=row["id"],
        head=head,
        loop=loop,
        values=tuple(values),
        decisions=decisions,
        journal={each["text"]: json.loads(each["record"]) for each in parts["step"]},
        epoch=row["epoch"],
        created=row["created"],
        updated=row["updated"],
        briefing=Briefing.of(json.loads(row["briefing"])) if row["briefing"] else None,
    )


def _override(row: Row) -> Override:
    # The statement `read_parts` has one set of columns for the parts of all kinds.
    return Override(
        row["record"],
        by=row["text"],
        why=row["value"],
        decisions=row["number"],
        used=row["used"],
        until=row["at"],
    )


def replayable(stored: Sequence[StoredLoop]) -> list[RecordedLoop]:
    """Return the loops with attempts, for a replay, oldest first; `stored` is reversed.

    The run of a pipeline is left out: its stages are loops with their own attempts.
    """
    return [
        RecordedLoop(each.loop)
        for each in reversed(stored)
        if each.loop.attempts and not each.is_run
    ]
