"""Actions of agents that failed: the lessons about them, and whether the actions worked later."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Sequence

from heedful.lessons.action import Action, ActionHistory, KnownFailure, Step
from heedful.lessons.lesson import Scope
from heedful.lessons.trust import HELD
from heedful.store.store import Db, Row, key_of, storable

# A part of an action is announced after it failed in this many runs. On recorded sessions, 2 runs
# announce the wrong failure in 15 % of the cases, 3 in 10 %.
LEAST = 3
READ = 500  # failures that are read, newest first
READ_LESSONS, LISTED = 10, 3  # lessons that are read, and failures in an answer
TEXT = 400  # characters of an action, and of a state


def record(db: Db, scope: Scope, source: str, steps: Sequence[Step]) -> None:
    """Record the steps of one run: what failed, and what worked after it had failed before.

    `source` names the run, so that it counts once and can be revoked.
    """
    last: dict[str, bool] = {}
    for step in steps:
        found = step.action.digests_of(step.error) if step.error else step.action.digests
        last.update(dict.fromkeys(found, not step.error))
    now = time.time()
    worked = json.dumps([digest for digest, well in last.items() if well])
    db.run("actions_worked", {**key_of(scope), "digests": worked, "now": now})
    for step in steps:
        if step.error and step.lesson:
            record = {"action": storable(step.action.text)[:TEXT], "state": storable(step.state)}
            for digest in step.action.digests_of(step.error):
                values = {
                    **key_of(scope),
                    "digest": digest,
                    "reflection": step.lesson,
                    "source": storable(source),
                    "record": json.dumps({**record, "state": record["state"][:TEXT]}),
                    "failed": now,
                    "worked": now if last[digest] else 0.0,
                }
                db.run("insert_action", values)


def before(db: Db, scope: Scope, action: Action) -> ActionHistory:
    """Return what is known about an action that failed and has not worked since."""
    digests, whole = json.dumps(action.digests), action.whole
    found: defaultdict[int, defaultdict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in db.all("failed_actions", scope, digests=digests, limit=READ):
        found[row["reflection"]][row["digest"]].append(row)
    ranked = []
    for id, parts in found.items():
        runs = max(map(len, parts.values()))
        if whole in parts or runs >= LEAST:
            newest = max((rows[0] for rows in parts.values()), key=lambda row: float(row["failed"]))
            ranked.append((whole in parts, runs, newest, id))
    ranked.sort(key=lambda one: (not one[0], -one[1], -one[3]))
    failures, waiting = list[KnownFailure](), list[int]()
    for same, runs, newest, id in ranked[:READ_LESSONS]:
        rows = db.all("lesson_and_rules", scope, id=id)
        waiting += [row["author"] for row in rows if is_held(row)]
        known = {bool(row["own"]): row for row in rows if not is_held(row)}
        if True not in known or len(failures) == LISTED:
            continue
        lesson, rule = known[True], known.get(False)
        best, said = rule or lesson, json.loads(newest["record"])
        failures.append(
            KnownFailure(
                id,
                lesson["text"],
                rule["text"] if rule else "",
                best["trust"],
                best["state"],
                runs,
                newest["failed"],
                said["action"],
                said["state"],
                same,
            )
        )
    return ActionHistory(tuple(failures), tuple(sorted(set(waiting))))


def is_held(row: Row) -> bool:
    """Return True if the text of a lesson waits in quarantine, and must not be shown."""
    return row["trust"] in HELD or row["state"] == "quarantined"
