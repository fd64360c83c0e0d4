"""Loops in a store: claiming, writing and reading them.

`commit` is the one function that writes to a loop what happened in it; `loop_columns`
turns what it writes into columns without secrets.

A driver is what makes the attempts of a loop. It claims the loop with a lease, and with
a token that names its process: if the process is killed, another driver on the same
machine can claim the loop at once. Each claim raises the `epoch`; a driver with an
older epoch cannot write.
"""

import json
import os
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from heedful.errors import AttemptTaken, Conflict, LeaseLost, NotFound, OverrideRefused
from heedful.lessons.scope import Scope
from heedful.loop import codec
from heedful.loop.decide import Done, Policy, state_after
from heedful.loop.record import (
    NO_USAGE,
    Attempt,
    Goal,
    Loop,
    Override,
    Usage,
    text_of,
)
from heedful.loop.replay import RecordedLoop
from heedful.store import exposures
from heedful.store.connection import (
    MAX_ROWS,
    MEMORY_LOCKS,
    Db,
    Row,
    Rows,
    bulk,
    holds,
    key_of,
    resumable,
    storable,
)
from heedful.store.head import HEAD_FIELDS
from heedful.store.loop_columns import (
    dump,
    entry_columns,
    head_columns,
    head_from,
)
from heedful.store.records import (
    FAILURE_STEP,
    Head,
    JournalEntry,
    LoopState,
    MemoryEntry,
    Statement,
    StoredLoop,
)
from heedful.validation import MAX_READ_BYTES, Document, Fields

if TYPE_CHECKING:  # a process that only reads loops needs no lessons
    from heedful.lessons.briefing import Briefing

LOOP_LEASE_SECONDS = 30.0
# How many bytes of JSON are read at most, to list loops or count what they have, and to
# replay them.
MAX_LISTING_BYTES = 4 * 2**20
MAX_REPLAY_BYTES = 32 * 2**20
# A replay reads this many loops at a time.
REPLAY_CHUNK_LOOPS = 100
# A note about an attempt counts as a finding of it if its key begins with this.
NOTED_FINDING_PREFIX = "bias: "
# The tokens of the drivers of this process that work now. The loops of others may be
# claimed at once.
working_drivers: set[str] = set()


class LoopChanged(LeaseLost):
    """A loop without a driver has changed since its writer read it."""

    def __init__(self, id: str) -> None:
        super().__init__(f"loop {id!r} has changed since it was read; read it again")


def new_owner() -> str:
    """Return a token for one driver in this process: host, process id and a nonce."""
    return f"{_host_name()}|{os.getpid()}|{os.urandom(6).hex()}"


def driven_message(id: str, owner: str) -> str:
    """Return the error text for a claim of a loop that another driver works on.

    `owner` is the token of that driver, as `new_owner` makes it.
    """
    if owner in working_drivers:
        return (
            f"loop {id!r} is being driven by another task of this process; wait for "
            "its end, or use another id"
        )
    # The process id stands before the nonce, as in "host|4711|a1b2".
    process = owner.split("|")[-2:][0]
    return (
        f"loop {id!r} is being driven by another process (id {process}); wait for its "
        "end, or stop it"
    )


def alive(owner: str, left: float) -> bool:
    """Return True if the driver with the token `owner` may still be working.

    A driver is what makes the attempts of a loop. One in this process works while it is
    in `working_drivers`. Any other driver may be working while its lease has seconds
    `left`; if it is on this host, its process must also run. A lease with more than
    `LOOP_LEASE_SECONDS` is from a clock that ran ahead, so it counts as ended.
    """
    has_lease = 0 < left <= LOOP_LEASE_SECONDS
    host, _, pid_and_nonce = owner.partition("|")
    if host != _host_name():
        return bool(owner) and has_lease

    pid = int(pid_and_nonce.partition("|")[0])
    if pid == os.getpid():
        return owner in working_drivers
    return has_lease and _is_running(pid)


@cache
def _host_name() -> str:
    """Return the host name and, on Linux, the process's PID namespace.

    In another namespace, the same PID belongs to another process.
    """
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return f"{socket.gethostname()}{namespace}"


def _is_running(pid: int) -> bool:
    """Return whether a process with this id runs on this machine."""
    try:
        os.kill(pid, 0)  # signal 0 changes nothing: it only tests whether it exists
    except OSError as error:
        # The process of another user runs, but may not be signalled.
        return isinstance(error, PermissionError)
    return True


class _Loop(NamedTuple):
    """A loop that a writer may change: its row number, and whether it has steps."""

    n: int
    has_steps: bool = False


def _locks_of_loop(id: str, *_: object, **__: object) -> tuple[str, ...]:
    """Return the lock that serialises the writers of one loop."""
    return (f"loop {id}",)


def _locks_of_entry(
    entry: JournalEntry, owner: str, memory: MemoryEntry | None = None
) -> tuple[str, ...]:
    """Return the names of the locks that are needed to write an entry of a loop.

    It is that of the loop and, if `memory` has lessons or outcomes to write, those of
    memory. Other parameters are those of `commit`.
    """
    locks = _locks_of_loop(entry.id)
    if memory is not None and memory.teaches:
        return (*locks, *MEMORY_LOCKS)
    return locks


@holds(by=_locks_of_loop)
def begin(
    db: Db, scope: Scope, id: str, head: Head, *, any_key: bool = False
) -> StoredLoop | None:
    """Create a loop without a driver, and return it; return None if it exists.

    `head` is what the loop begins with. Raises Conflict if the existing loop has
    another task, context, goals, policy or, unless `any_key`, memory key. Only its head
    is read, since it may be large and other writers wait meanwhile.
    """
    key = {**key_of(scope), "id": id}
    new_loop = {
        **key,
        **head_columns(head),
        "owner": "",
        "unanswered": 0,
        "lease": 0.0,
        "via": db.actor.via,
        "state": "open",
        "now": time.time(),
    }
    # Nothing is inserted if there is a loop with this id.
    inserted, loop = db.last(("insert_loop", new_loop), ("read_loop", key))
    is_new = bool(inserted.fetchall())
    row = loop.fetchall()[0]
    if is_new:
        return _stored_loop(row, [])
    fields = HEAD_FIELDS if any_key else (*HEAD_FIELDS, "memory_key")
    _check_same(row, head, fields)
    return None


def state(db: Db, scope: Scope, id: str) -> LoopState:
    """Return what is needed to decide on a loop that this process does not drive.

    That is the loop with its policy, the token of the driver that works on it ("" if
    none does), and the checks of lessons that judge it. Raises NotFound.
    """
    # The statement finds the checks by the memory key that the loop has.
    of_loop = {**key_of(scope), "id": id, "memory_key": "", "calls": False}
    row, parts, check_rows = _read_rows(
        db, scope, id, ("active_checks", of_loop), reads=db.last
    )
    driver = row["owner"] if alive(row["owner"], row["held_for"]) else ""

    return LoopState(
        stored=_stored_loop(row, parts),
        policy=_policy_from(row["policy"]),
        driver=driver,
        checks=exposures.judging(check_rows),
    )


@lru_cache(64)  # most loops of a process have one policy
def _policy_from(text: str) -> Policy:
    """Return the policy that is stored as this JSON."""
    return codec.policy_from(json.loads(text))


@holds(by=_locks_of_loop)
def claim(
    db: Db,
    scope: Scope,
    id: str,
    head: Head,
    owner: str,
    at: float | None = None,
    reopens: int | None = None,
) -> StoredLoop:
    """Claim a loop for the driver `owner`, so that no other one makes its attempts.

    A loop that has ended is only read, by any number of drivers at once. One that wants
    to open it again gives the epoch at which it has read it in `reopens`.

    The loop is created if it does not exist, with this `head`. The claim counts the
    call that follows it, which may kill its process: `died` of the returned loop is how
    many calls did so since the last entry. `at` is the time of the claim, by default
    now; the same claim again, of the same driver and time, changes nothing. A run gets
    the stages that its pipeline has now, and is returned with those that it had. Raises
    LeaseLost if another driver is working on the loop, or has opened it meanwhile, and
    Conflict if its task differs.
    """
    key = {**key_of(scope), "id": id}
    row = db.first("read_loop", key)
    now = time.time() if at is None else at
    driver = {"owner": owner, "lease": LOOP_LEASE_SECONDS, "now": now}
    died = 0
    # "unanswered" counts the calls that were begun and not followed by an entry.
    if row is None:
        new_loop = {**key, **head_columns(head), **driver, "via": db.actor.via}
        db.send("insert_loop", {**new_loop, "state": "open", "unanswered": 1})
    elif row["owner"] == owner and row["updated"] == now:
        # This claim was made before, and counted its own call then.
        died = row["unanswered"] - 1
    else:
        _check_task(row, head)
        is_driven = row["state"] == "open" or reopens is not None
        if is_driven:
            _check_free(row, owner, reopens)
            db.send("claim_loop", {"n": row["n"], **driver})
            # It runs again, so it has not failed.
            db.delete("step", {"loop": row["n"], "key": FAILURE_STEP})
        if head.kind == "run":
            db.update("loop", {"n": row["n"]}, {"task": head_columns(head)["task"]})
        died = row["unanswered"]

    stored_loop = read(db, scope, id)
    if row is not None and head.kind == "run":
        began = replace(stored_loop.head, task=json.loads(row["task"]))
        stored_loop = replace(stored_loop, head=began)
    return replace(stored_loop, loop=replace(stored_loop.loop, died=died))


@holds(by=_locks_of_loop)
@resumable(result=None, again=lambda id, epoch: True)
def beat(db: Db, scope: Scope, id: str, epoch: int) -> None:
    """Renew the lease of a driver on a loop, so that no other one claims it.

    `epoch` is that of the driver's claim. Raises LeaseLost if another driver has
    claimed the loop since, which raised its epoch.
    """
    values = {**key_of(scope), "id": id, "epoch": epoch, "lease": LOOP_LEASE_SECONDS}
    db.expect("renew_lease", values, _lease_lost(id))


def _has_attempt_or_step(
    entry: JournalEntry, owner: str, memory: MemoryEntry | None = None
) -> bool:
    """Return True if an entry may be written again after a lost connection.

    So it is if the loop shows whether the entry was written: an attempt has its number
    there, and a step its name. A writer without a driver, whose entry was written, gets
    LoopChanged, reads the loop again and finds its attempt. The other parameters are
    those of `commit`.
    """
    return entry.attempt is not None or entry.step is not None


@holds(by=_locks_of_entry)
@resumable(result=int, again=_has_attempt_or_step)
def commit(
    db: Db,
    scope: Scope,
    entry: JournalEntry,
    owner: str,
    memory: MemoryEntry | None = None,
) -> int:
    """Write what happened in a loop: its `entry`, and what `memory` adds to it.

    Returns the number, in its scope, of the outcome that was written with it; 0 if none
    was. Raises LeaseLost if another driver has claimed the loop, so that its epoch is
    not `entry.epoch`. If the attempt of the entry is stored already, nothing is
    written; if it is stored with other content, this raises AttemptTaken.

    `owner` is the token of the loop's driver. If it is "", the loop must be as in
    `entry.seen`, and each write raises the epoch: of several writers that read the same
    state, only one can write. The others get LoopChanged.
    """
    now = time.time()
    columns = entry.columns or entry_columns(entry)
    key = {**key_of(scope), "id": entry.id}
    state = "" if entry.verdict is None else state_after(entry.verdict)
    if owner:
        loop = _renew_or_create(db, key, entry, owner=owner, state=state, now=now)
    else:
        loop = _raise_epoch(db, key, entry, state=state, now=now)

    # If the attempt is stored already, so is the rest of this entry.
    if columns.attempt and not _insert_attempt(
        db, loop, columns.attempt, id=entry.id, owner=owner, now=now
    ):
        return 0

    if columns.changes:
        db.update("loop", {"n": loop.n}, columns.changes)

    row = {**key, "n": loop.n, "now": now}
    for name, values in columns.statements:
        db.send(name, {**row, **values})
    # The verdict goes on only because of these overrides: each loses one decision.
    for index in columns.lifted:
        refused = OverrideRefused(
            "an override was consumed by another decision; decide again"
        )
        db.expect("use_override", {"n": loop.n, "index": index}, refused)

    if memory is None:
        return 0
    return _remember(db, scope, entry.id, memory, now)


@holds(by=_locks_of_entry)
@resumable(result=Fields, counts=True)
def lift(
    db: Db,
    scope: Scope,
    entry: JournalEntry,
    owner: str,
    memory: MemoryEntry | None = None,
) -> Fields:
    """Write an entry with overrides, with which persons let a loop go on past a limit.

    The parameters and errors are those of `commit`. Returns the answer for the caller
    of the override, the new verdict on the loop, as data; {} if the entry has none.
    """
    commit(db, scope, entry, owner, memory)
    return {} if entry.answer is None else codec.verdict_to(entry.answer, redacts=True)


def _remember(db: Db, scope: Scope, id: str, memory: MemoryEntry, now: float) -> int:
    """Write what memory adds to an entry of the loop with this `id`.

    That is what the loop was shown, how it ended, what checks of lessons found, and the
    lessons that it teaches. Returns the number of a new outcome in its scope, else 0.
    """
    if memory.briefing is not None:
        brief(db, scope, id, memory.briefing)
    number = exposures.expose(db, scope, exposures=(), outcome=memory.outcome, now=now)
    if memory.alarms:
        exposures.count_alarms(db, scope, memory.alarms)
    if memory.lessons:
        from heedful.store import lessons  # few processes store loops

        lessons.upsert(
            db,
            scope,
            lessons=memory.lessons,
            now=now,
            quota=memory.quota,
            drops=True,
            most=memory.most,
        )

    return number


@resumable(result=None)
def brief(db: Db, scope: Scope, id: str, briefing: "Briefing") -> None:
    """Record what memory shows the loop with this `id`: its briefing.

    What was recorded before stays. If the loop is not stored yet, only the lessons that
    it is shown are recorded.
    """
    exposures.expose(
        db, scope, exposures=briefing.exposures, outcome=None, now=time.time()
    )
    # Only a loop whose briefing is empty is changed.
    not_recorded = {**key_of(scope), "id": id, "briefing": ""}
    record = {**briefing.plain(), "prompt": briefing.prompt}
    db.update("loop", not_recorded, {"briefing": dump(record)})


def read(
    db: Db, scope: Scope, id: str, *, outputs: bool = True, task: bool = True
) -> StoredLoop:
    """Return the stored loop with this id. Raises NotFound.

    Without `outputs`, it lacks what its attempts made: `values`, answers that wait, and
    the texts of candidates. Without `task`, it lacks the task and the context. It must
    be the last read of its transaction, which may end with it.
    """
    row, parts, *_ = _read_rows(
        db, scope, id, reads=db.last, outputs=outputs, task=task
    )
    return _stored_loop(row, parts, outputs, task)


def read_many(
    db: Db,
    scope: Scope,
    ids: Iterable[str],
    *,
    outputs: bool = True,
    task: bool = True,
) -> list[StoredLoop]:
    """Return the stored loops with these ids, in this order, without missing ones.

    Without `outputs`, they lack what their attempts made; without `task`, the task and
    the context.
    """
    stored_loops = []
    for id in ids:
        with suppress(NotFound):
            row, parts, *_ = _read_rows(
                db, scope, id, reads=db.each, outputs=outputs, task=task
            )
            stored_loops.append(_stored_loop(row, parts, outputs, task))
    return stored_loops


def read_stages(db: Db, scope: Scope, run: str) -> list[tuple[str, StoredLoop]]:
    """Return the loops of the stages of a run, each with the name of its stage.

    A stage that ran again has several, the newest of them last.
    """
    rows = db.all("loops_of_stages", scope, run=run)
    names = {row["id"]: row["stage"] for row in rows}
    return [(names[loop.id], loop) for loop in read_many(db, scope, names)]


def usage_besides(
    stage_loops: Iterable[tuple[str, StoredLoop]], ids: Collection[str]
) -> Usage:
    """Return the usage of the loops of `read_stages` that do not have these ids."""
    others = (loop.loop.usage for _, loop in stage_loops if loop.id not in ids)
    return sum(others, NO_USAGE)


def _read_rows(
    db: Db,
    scope: Scope,
    id: str,
    *more: Statement,
    reads: Callable[..., list[Rows]],
    outputs: bool = True,
    task: bool = True,
) -> tuple[Row, list[Row], list[Row]]:
    """Return the row of a loop, the rows of its parts, and those of `more` statements.

    Parts are attempts, decisions, overrides and steps. `reads` runs the statements: it
    is `db.each`, or `db.last` if nothing is read afterwards. `outputs` and `task` are
    as in `read`. Raises NotFound, and LargeRead if the rows exceed what may be read.
    """
    key = {**key_of(scope), "id": id}
    parts = {**key, "whole": int(outputs)}
    results = reads(("read_loop", key), ("read_parts", parts), *more)
    rows, part_rows, *other_rows = [result.fetchall() for result in results]
    if not rows:
        raise NotFound("loop", id, db.url)
    db.spend(_size_of(rows[0], part_rows, task))
    return rows[0], part_rows, list(chain.from_iterable(other_rows))


@bulk
def newest(
    db: Db,
    scope: Scope,
    limit: int,
    prefix: str = "",
    before: str = "",
    most: int = MAX_ROWS,
    state: str = "",
) -> tuple[list[StoredLoop], bool]:
    """Return the newest loops, and whether there are more.

    Returns at most `limit` loops and `most` bytes, but at least one loop if there is
    any. Their ids begin with `prefix`. `before` is the id of a loop: only older loops
    are returned, and none if this loop is missing. `state` is open, passed or stopped;
    "" is any. The loops lack what their attempts made: `values`, answers that wait, and
    the texts of candidates.
    """
    sizes, more = _newest_sizes(
        db,
        scope,
        limit,
        prefix=prefix,
        before=before,
        most=most,
        state=state,
    )
    return read_many(db, scope, sizes, outputs=False), more


def _newest_sizes(
    db: Db,
    scope: Scope,
    limit: int,
    *,
    prefix: str,
    before: str,
    most: int,
    state: str = "",
) -> tuple[dict[str, int], bool]:
    """Return the sizes in bytes of the newest loops by id, and whether there are more.

    The loops are chosen as in `newest`: at most `limit` of them and `most` bytes, but
    at least one loop if there is any.
    """
    # One row more than is returned shows whether there are more.
    rows = db.all(
        "newest_loops",
        scope,
        limit=limit + 1,
        prefix=prefix,
        cursor=before,
        state=state,
    )
    free_bytes = most
    sizes = dict[str, int]()
    for row in rows:
        free_bytes -= row["size"]
        if len(sizes) == limit or (sizes and free_bytes < 0):
            return sizes, True
        sizes[row["id"]] = row["size"]

    return sizes, False


class RecordedChunk(NamedTuple):
    """Some loops to replay, newest first.

    `read` loops of `size` bytes were looked at. There are older ones than `last` if
    `more` is true.
    """

    loops: list[RecordedLoop]
    last: str
    read: int
    size: int
    more: bool


@bulk
def recorded(db: Db, scope: Scope, limit: int, before: str = "") -> RecordedChunk:
    """Return some of the newest loops, whose decisions can be made again in a replay.

    At most `limit` loops are looked at, and only loops older than the one with the id
    `before`, if it is given. Their JSON has at most `MAX_READ_BYTES`, or there is one
    loop. They lack task, context and outputs.
    """
    sizes, more = _newest_sizes(
        db,
        scope,
        min(limit, REPLAY_CHUNK_LOOPS),
        prefix="",
        before=before,
        most=MAX_READ_BYTES,
    )
    loops = replayable(read_many(db, scope, sizes, outputs=False, task=False))
    return RecordedChunk(
        loops,
        last=next(reversed(sizes), before),
        read=len(sizes),
        size=sum(sizes.values()),
        more=more,
    )


def echoes(db: Db, scope: Scope, id: str, window: int) -> dict[str, int]:
    """Return how many attempts of other loops had each persistent finding, by its key.

    These are the `window` newest loops except the loop `id`. Notes about attempts that
    count as findings are counted, also those about attempts of the loop `id`.
    """
    # The loop `id` may be among the newest, so one more is read.
    ids, _ = _newest_sizes(
        db, scope, window + 1, prefix="", before="", most=MAX_LISTING_BYTES
    )
    other_ids = [other for other in ids if other != id][:window]
    others = read_many(db, scope, other_ids, outputs=False, task=False)

    counts: Counter[str] = Counter()
    for attempt in chain.from_iterable(other.loop.attempts for other in others):
        if attempt.evaluation is not None:
            counts.update(attempt.evaluation.persistent)

    loops = [loop.loop for loop in (*read_many(db, scope, [id]), *others)]
    counts.update(_findings_in_notes(db, scope, id=id, loops=loops, window=window))
    return dict(counts)


def needed(
    db: Db, scope: Scope, id: str, memory_key: str, window: int
) -> tuple[int, ...]:
    """Return how many attempts other loops of a memory key needed to pass.

    These are the `window` newest loops except the loop `id`, newest first.
    """
    rows = db.all("needed_attempts", scope, id=id, memory_key=memory_key, window=window)
    return tuple(row["attempts"] for row in rows)


def _findings_in_notes(
    db: Db, scope: Scope, id: str, loops: Sequence[Loop], window: int
) -> Iterator[str]:
    """Yield the keys of findings that stand in notes about attempts, but in no report.

    Only the `window` newest attempts with such notes count. `loops` have the reports. A
    note about an attempt of the loop `id` is left out until the attempt is reported:
    the report will have the finding.
    """
    # The keys of the findings of each attempt in `loops`, by the name of its report.
    reported: dict[str, frozenset[str]] = {}
    for loop in loops:
        for attempt in loop.attempts:
            evaluation = attempt.evaluation
            keys = evaluation.keys if evaluation else frozenset[str]()
            reported[attempt.reported_as or loop.id] = keys

    for note in db.all("noted_tags", scope, prefix=NOTED_FINDING_PREFIX, window=window):
        is_pending = note["loop"] == id and note["name"] not in reported
        if not is_pending and note["key"] not in reported.get(note["name"], ()):
            yield note["key"]


@holds(by=_locks_of_loop)
@resumable(result=None)
def set_policy(db: Db, scope: Scope, id: str, head: Head) -> None:
    """Give a loop the policy and the goals of `head`, if they differ from its own."""
    key = {**key_of(scope), "id": id}
    columns = {name: dump(getattr(head, name)) for name in ("goals", "policy")}
    if dict(db.select("goals, policy", "loop", key)[0]) != columns:
        db.update("loop", key, columns)


@holds(by=_locks_of_loop)
@resumable(result=None)
def note(db: Db, scope: Scope, id: str, name: str, notes: Fields) -> None:
    """Store notes about an attempt of the loop with this `id`, by their keys.

    `name` is what the attempt is reported as. A note replaces an earlier one about the
    attempt that has the same key.
    """
    for note_key, record in notes.items():
        key = {**key_of(scope), "name": name, "key": storable(note_key)}
        db.delete("note", key)
        db.insert(
            "note", {**key, "loop": id, "record": dump(record), "created": time.time()}
        )


def notes(db: Db, scope: Scope, name: str) -> Document:
    """Return the notes about the attempt `name`, by key, oldest first."""
    rows = db.select(
        "key, record", "note", {**key_of(scope), "name": name}, "order by created"
    )
    return {row["key"]: json.loads(row["record"]) for row in rows}


def _lease_lost(id: str) -> LeaseLost:
    """Return the error for a writer whose loop another process has claimed."""
    return LeaseLost(
        f"loop {id!r} was taken over by another process; nothing was written"
    )


def _check_same(row: Row, head: Head, fields: Sequence[str]) -> None:
    """Raise Conflict unless a loop is stored as `head` says, in these `fields`.

    `row` is that of the stored loop. A head has what a loop begins with, such as its
    task, goals and policy.
    """
    columns = head_columns(head)
    for field in fields:
        if row[field] != columns[field]:
            raise Conflict(
                f"loop {row['id']!r} is about another {field}: {row[field][:80]}; "
                "give another id"
            )


def _check_free(row: Row, owner: str, reopens: int | None) -> None:
    """Raise LeaseLost if another driver has the loop, or opened it after that epoch."""
    if row["owner"] != owner and alive(row["owner"], row["held_for"]):
        raise LeaseLost(driven_message(row["id"], row["owner"]))
    if reopens is not None and row["epoch"] != reopens:
        raise _lease_lost(row["id"])


def _check_task(row: Row, head: Head) -> None:
    """Raise Conflict unless a loop has the task of `head`, or a run its pipeline."""
    if head.kind == "run" and row["kind"] == "run":
        pipeline = json.loads(row["task"])["pipeline"]
        if pipeline == head.task["pipeline"]:
            return
    _check_same(row, head, ("task",))


def _renew_or_create(
    db: Db,
    key: Fields,
    entry: JournalEntry,
    *,
    owner: str,
    state: str,
    now: float,
) -> _Loop:
    """Renew the lease of the driver `owner` on the loop of an entry, and return it.

    The loop is created if the entry has a head and the loop is new. It gets its new
    `state`; "" keeps it. A loop that ends has no lease. Raises LeaseLost if another
    driver has claimed the loop, so that its epoch is not that of the entry.
    """
    head = {} if entry.head is None else head_columns(entry.head)
    ends = isinstance(entry.verdict, Done)
    driver = {
        **key,
        "owner": owner,
        "now": now,
        "lease": 0.0 if ends else LOOP_LEASE_SECONDS,
        "unanswered": int(entry.goes_on),
        "state": state,
    }
    # A driver that gives a head mostly begins a loop, so this is tried first.
    if head:
        new_loop = {**driver, **head, "state": state or "open", "via": db.actor.via}
        inserted = db.first("insert_loop", new_loop)
        if inserted is not None:
            return _Loop(inserted["n"])

    # This changes, and returns, the loop only while its epoch is that of the entry.
    row = db.first("fence", {**driver, "epoch": entry.epoch})
    if row is None:
        raise _lease_lost(entry.id)

    if head:
        # It was resumed with other goals or under another policy.
        db.send("change_head", {**head, "n": row["n"]})
    return _Loop(row["n"], bool(row["steps"]))


def _raise_epoch(
    db: Db, key: Fields, entry: JournalEntry, *, state: str, now: float
) -> _Loop:
    """Raise the epoch of a loop without a driver, and give it its new `state`.

    So another writer that read the same state of the loop cannot write any more. ""
    keeps the state. Raises LoopChanged if the loop is not as `entry` has seen it, at
    the latest when the transaction is committed.
    """
    seen = entry.seen
    if seen is None:
        raise LoopChanged(entry.id)

    snapshot = {"n": seen.row, "epoch": entry.epoch, "seen": seen.updated}
    advanced = {**key, **snapshot, "state": state, "now": now}
    db.expect("advance", advanced, LoopChanged(entry.id))
    return _Loop(seen.row, bool(seen.journal))


def _insert_attempt(
    db: Db, loop: _Loop, columns: Fields, *, id: str, owner: str, now: float
) -> bool:
    """Write an attempt, given as its `columns`; return False if it is stored already.

    The steps of the loop are deleted, since they led to this attempt. Raises
    AttemptTaken if the number of the attempt is stored with other content, and, without
    an `owner`, LoopChanged if it is stored at all.
    """
    row = {**columns, "loop": loop.n, "via": db.actor.via, "created": now}
    if not owner:
        # The loop was found unchanged, so nobody can have written this attempt.
        db.expect("insert_attempt", row, LoopChanged(id))
    elif not db.run("insert_attempt", row).rowcount:
        number = columns["number"]
        key = {"loop": loop.n, "number": number}
        [attempt] = db.select("number, record, text, value", "attempt", key)
        if dict(attempt) != columns:
            raise AttemptTaken(
                f"attempt {number} of {id!r} is stored with other content"
            )
        return False

    if loop.has_steps:
        db.delete("step", {"loop": loop.n})
    return True


def _size_of(row: Row, parts: Iterable[Row], task: bool) -> int:
    """Return how many characters of a loop are parsed or copied to read it.

    `row` is that of the loop, and `parts` those of its attempts and other parts.
    Without `task`, the task and the context are not read.
    """
    size = sum(
        len(part["record"]) + len(part["text"]) + len(part["value"]) for part in parts
    )
    if task:
        size += len(row["task"]) + len(row["context"])
    return size


def _stored_loop(
    row: Row, part_rows: Sequence[Row], outputs: bool = True, task: bool = True
) -> StoredLoop:
    """Return a loop, read from its row and from those of its parts.

    Parts are attempts, decisions, overrides and steps. Without `outputs`, what its
    attempts made is left out. Without `task`, its head has no task and no context.
    """
    parts = defaultdict[str, list[Row]](list)
    for part in part_rows:
        parts[part["part"]].append(part)

    values = []
    attempts = []
    for part in parts["attempt"]:
        document = json.loads(part["record"])
        if outputs:
            value = json.loads(part["value"])
            values.append(value)

            # A text is stored only if it differs from the value.
            text = json.loads(part["text"]) if part["text"] else value
            document["candidate"]["text"] = text

        attempts.append(codec.from_document(Attempt, document))

    decisions = tuple(
        codec.decision_from(json.loads(part["record"]), part["number"], part["at"])
        for part in parts["decision"]
    )
    # The statement `read_parts` has one set of columns for the parts of all kinds.
    overrides = tuple(
        Override(
            part["record"],
            by=part["text"],
            why=part["value"],
            decisions=part["number"],
            used=part["used"],
            until=part["at"],
            rung=part["rung"],
        )
        for part in parts["override"]
    )
    # The time of the last decision: an override that had expired then stays expired, so
    # the same decision is made again.
    decided_at = decisions[-1].decided if decisions and overrides else 0.0

    head = head_from(row, task)
    task_text = text_of(head.task) if task else ""
    loop = Loop(
        row["id"],
        tuple(codec.from_document(Goal, goal) for goal in head.goals),
        attempts=tuple(attempts),
        overrides=overrides,
        extra=codec.from_document(Usage, json.loads(row["extra"])),
        cancelled=row["cancelled"],
        at=decided_at,
        ladder=head.ladder,
        task=task_text,
    )

    briefing = None
    if row["briefing"]:
        from heedful.lessons.briefing import Briefing

        briefing = Briefing.of(json.loads(row["briefing"]))

    return StoredLoop(
        id=row["id"],
        head=head,
        loop=loop,
        values=tuple(values),
        decisions=decisions,
        journal={part["text"]: json.loads(part["record"]) for part in parts["step"]},
        epoch=row["epoch"],
        created=row["created"],
        updated=row["updated"],
        briefing=briefing,
        row=row["n"],
        size=_size_of(row, part_rows, task),
    )


def revoke(db: Db, scope: Scope, source: str) -> tuple[list[str], list[str], int]:
    """Delete what came to loops through a key of the service.

    `source` is "key:" and the key's id. Loops that the key began are deleted. Another
    loop goes back to the state before the first attempt that the key reported: later
    attempts were built on its feedback. Returns the ids of deleted loops, the ids of
    loops that are open again, and how many attempts were deleted.
    """
    deleted = list[str]()
    reopened = list[str]()
    attempts = 0
    for row in db.all("loops_through_key", scope, source=source):
        n = row["n"]
        for number in range(row["first"], row["last"] + 1):
            attempts += db.delete("attempt", {"loop": n, "number": number})
            db.delete("decision", {"loop": n, "attempt": number})
        db.update("loop", {"n": n}, {"state": "open", "updated": time.time()})
        # Only a loop that the key began is deleted.
        if db.delete("loop", {"n": n, "via": source}):
            deleted.append(row["id"])
            db.delete("note", {**key_of(scope), "loop": row["id"]})
        else:
            reopened.append(row["id"])
    return deleted, reopened, attempts


def replayable(stored: Sequence[StoredLoop]) -> list[RecordedLoop]:
    """Return loops whose decisions can be made again, oldest first.

    `stored` are loops, newest first. Those without attempts are left out, and so is the
    run of a pipeline: its stages are loops with their own attempts.
    """
    return [
        RecordedLoop(recorded.loop, ended=recorded.ended)
        for recorded in reversed(stored)
        if recorded.loop.attempts and not recorded.is_run
    ]
