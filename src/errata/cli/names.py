"""Names of runs: free ones are taken in the database, so that two processes never share one."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from errata.codec import goal_to, policy_to
from errata.errors import LeaseLost, NotFound, UsageError
from errata.protocols import Head, Scope, Store
from errata.store.lease import new_owner

if TYPE_CHECKING:
    from errata.cli.tasks import Task
    from errata.loop.decide import Policy

LONGEST = 200
NEWEST = 500


async def fresh(
    store: Store, scope: Scope, path: Path, name: str | None, first: Task, policy: Policy
) -> str:
    """The name of a new run: the one given, or the file's with a number that is free.

    It is taken by claiming the loop of the `first` task. Raises UsageError where it exists.
    """
    if name is not None:
        _check(name)
        if not await _taken(store, scope, name) and await _take(store, scope, name, first, policy):
            return name
        raise UsageError(
            f"run {name!r} exists; add --resume to go on with it, or give another name"
        )
    newest = await _newest(store, scope, path, 1)
    for number in count(int(newest.rpartition("-")[2]) + 1 if newest else 1):
        name = f"{_stem(path)}-{number}"
        if not await _taken(store, scope, name) and await _take(store, scope, name, first, policy):
            break
    return str(name)


async def existing(store: Store, scope: Scope, path: Path, name: str | None) -> str:
    """The name of a run to go on with: the one given, or the file's newest. Raises NotFound."""
    if name is not None:
        _check(name)
        if await _taken(store, scope, name):
            return name
        raise NotFound("run", name, f"{store.url}; leave --resume out to begin it")
    if newest := await _newest(store, scope, path, NEWEST):
        return newest
    raise NotFound("run", f"{_stem(path)}-…", f"{store.url}; leave --resume out to begin one")


async def _newest(store: Store, scope: Scope, path: Path, most: int) -> str:
    """The file's newest run that the newest `most` loops of its names tell of; "" for none."""
    pattern = re.compile(rf"({re.escape(_stem(path))}-\d+)/")
    for one in await store.loops(scope, most, f"{_stem(path)}-"):
        if found := pattern.match(one.id):
            return found[1]
    return ""


def _stem(path: Path) -> str:
    return re.sub(r"[^\w.-]", "_", path.stem)[:LONGEST] or "tasks"


def _check(name: str) -> None:
    if not 0 < len(name) <= LONGEST or not name.isprintable() or "/" in name:
        what = f"1 to {LONGEST} printable characters without /"
        raise UsageError(f"--run is {name!r}; it must be {what}")


async def _taken(store: Store, scope: Scope, name: str) -> bool:
    return bool(await store.loops(scope, 1, f"{name}/"))


async def _take(store: Store, scope: Scope, name: str, first: Task, policy: Policy) -> bool:
    """Whether the loop of the first task is new, and with it the run."""
    goals = [goal_to(goal) for goal in first.goals]
    head = Head(first.task, goals, policy_to(first.policy or policy))
    try:
        found = await store.claim(scope, f"{name}/{first.id}", head, new_owner())
    except LeaseLost:
        return False
    return found.epoch == 1
