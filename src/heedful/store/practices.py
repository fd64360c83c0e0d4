"""The tasks that a practice tries again, and who works on them.

A task is the stored loop of a user that ended without passing. A practice claims it
with a lease, so that of several practices at once each tries other tasks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heedful.lessons.scope import Scope
from heedful.store.connection import Db, Row, holds, key_of, storable, token
from heedful.store.loops import LOOP_LEASE_SECONDS, alive

# A task that so many practices did not solve rests until its key has a new example.
MAX_PRACTICE_TRIES = 3
PRACTICE_LOCKS = ("practice",)


@dataclass(frozen=True, slots=True, kw_only=True)
class PracticeTask:
    """A task that may be practised: the `id` of its loop, and of the newest practice.

    `state` is "" if nobody has practised it. `tries` of its practices did not pass. It
    `rests` until its memory key has a new accepted example.
    """

    id: str
    loop: str = ""
    state: str = ""
    tries: int = 0
    rests: bool = False

    def fits(self, row: Row) -> bool:
        """Return True if the task is as it was read."""
        seen = {"loop": self.loop, "state": self.state, "tries": self.tries}
        return all(row[name] == value for name, value in seen.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class PracticeClaim:
    """A claimed task with its value, and the `loop` that practises it.

    Each attempt reserves `calls`. The loop `climbs` if it has several rungs. While it
    is `untold`, `on_passed` has to be called.
    """

    practises: str
    loop: str
    task: Any
    calls: int = 1
    climbs: bool = False
    untold: bool = False


def tasks(db: Db, scope: Scope, memory_key: str, limit: int) -> list[PracticeTask]:
    """Return the tasks of a memory key that no loop has solved, oldest first."""
    values = {
        "memory_key": storable(memory_key),
        "example": _newest_example(db, scope, memory_key),
        "tries": MAX_PRACTICE_TRIES,
        "limit": limit,
    }
    return [_task_of(row) for row in db.all("practice_tasks", scope, **values)]


def unsettled(db: Db, scope: Scope, memory_key: str, limit: int) -> list[PracticeTask]:
    """Return the tasks whose practice has ended, but not what follows its end."""
    values = {"memory_key": storable(memory_key), "limit": limit}
    return [_task_of(row) for row in db.all("unsettled_practices", scope, **values)]


def _task_of(row: Row) -> PracticeTask:
    """Return the task in a row of `practice_tasks` or `unsettled_practices`."""
    return PracticeTask(
        id=row["id"],
        loop=row["loop"],
        state=row["state"],
        tries=row["tries"],
        rests=bool(row["rests"]),
    )


@holds(*PRACTICE_LOCKS)
def claim(
    db: Db, scope: Scope, task: PracticeTask, *, loop: str, owner: str, tells: bool
) -> PracticeClaim | None:
    """Claim a task for the driver `owner`; None if it has changed or somebody works.

    A new practice gets the id `loop`. It is untold if it `tells` somebody when it has
    passed.
    """
    key = {**key_of(scope), "task": task.id}
    row = db.first("read_practice", key)
    climbs = False
    if row is None and task.state:
        return None
    if row is not None:
        is_driven = alive(row["driver"], row["driven_for"])
        if is_driven or alive(row["owner"], row["held_for"]) or not task.fits(row):
            return None
        climbs = bool(row["ladder"])

    begins = task.state in ("", "failed")
    tries = task.tries
    if not begins:
        loop = task.loop
    elif tries >= MAX_PRACTICE_TRIES:
        tries = 0  # there is a new example
    stored_key = {**key_of(scope), "id": task.id}
    for row in db.select("task, memory_key", "loop", stored_key):
        values = {
            **key,
            "memory_key": row["memory_key"],
            "loop": loop,
            "begins": int(begins),
            "tries": tries,
            "untold": tells and begins,
            "owner": owner,
            "lease": LOOP_LEASE_SECONDS,
        }
        db.send("claim_practice", values)
        untold = db.select("untold", "practice", key)[0]["untold"]
        calls = db.one("most_calls", scope, task=task.id, loop=loop)
        return PracticeClaim(
            practises=task.id,
            loop=loop,
            task=json.loads(row["task"]),
            calls=max(1, calls["calls"]) if calls else 1,
            climbs=climbs and not begins,
            untold=bool(untold),
        )
    return None


@holds(*PRACTICE_LOCKS)
def end(
    db: Db,
    scope: Scope,
    practice: PracticeClaim,
    *,
    memory_key: str,
    passed: bool,
    is_open: bool = False,
) -> None:
    """Record how the practice of a claimed task ended.

    Its loop `is_open` if the function raised an exception: the next practice resumes
    it, unless the task rests.
    """
    key = {**key_of(scope), "task": practice.practises, "loop": practice.loop}
    tries = 0
    for row in db.select("state, tries", "practice", key):
        if row["state"] != "open":
            return
        tries = row["tries"]

    changes: dict[str, Any] = {"state": "passed"}
    if not passed:
        tries += 1
        example = _newest_example(db, scope, memory_key)
        changes = {"tries": tries, "example": example, "owner": ""}
        if not is_open or tries >= MAX_PRACTICE_TRIES:
            changes["state"] = "failed"
            changes["untold"] = False
    db.update("practice", key, changes)


@holds(*PRACTICE_LOCKS)
def release(
    db: Db, scope: Scope, practice: PracticeClaim, is_told: bool = False
) -> None:
    """Give a claimed task back; with `is_told`, `on_passed` has returned."""
    key = {**key_of(scope), "task": practice.practises, "loop": practice.loop}
    changes: dict[str, Any] = {"owner": "", "lease": 0.0}
    if is_told:
        changes["untold"] = False
    db.update("practice", key, changes)


def _newest_example(db: Db, scope: Scope, memory_key: str) -> int:
    """Return the id of the newest accepted example of a memory key, 0 for none."""
    values = {"scope": token(scope), "memory_key": storable(memory_key)}
    row = db.first("newest_accepted", values)
    return 0 if row is None else int(row["id"])


def asked(db: Db, scope: Scope, memory_key: str) -> int:
    """Return how many loops of users a memory key has."""
    (row,) = db.all("count_asked", scope, memory_key=storable(memory_key))
    return int(row["loops"])


def learnt(db: Db, scope: Scope, loop: str) -> int:
    """Return how many examples memory has from a loop."""
    values = {"scope": token(scope), "source": f"loop:{loop}"}
    row = db.first("count_learnt", values)
    return 0 if row is None else int(row["examples"])


def practices_of(db: Db, scope: Scope, id: str) -> Sequence[str]:
    """Return the ids of the loops that practise the task of a loop, oldest first."""
    return [row["id"] for row in db.all("practices_of", scope, id=id)]
