"""Count what the pages show: how often the first answer is right, what fails, what retries mend."""

from __future__ import annotations

import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import log, sqrt
from pathlib import Path
from typing import Any

from heedful.lessons.lesson import Scope
from heedful.store.store import Db, Row, key_of

DAY = 86_400.0
DAYS = 30
LOOPS = 10_000  # the newest loops that a figure looks at
JUDGED = 1_000  # the newest loops whose findings are read
LEVEL = 0.05
Plain = dict[str, Any]


@cache
def statements(dialect: str) -> Mapping[str, str]:
    """Return the named statements of the pages for an engine."""
    text = (Path(__file__).parent / "figures.sql").read_text(encoding="utf-8")
    text = re.sub(rf"/\*{dialect} (.*?) \*/", r"\1", text)
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (sql.strip() for sql in parts[2::2]), strict=True))


def rows(db: Db, scope: Scope, statement: str, /, **values: Any) -> list[Row]:
    """Return the rows of a named statement in a scope."""
    sql = statements(db.dialect)[statement]
    found: list[Row] = db.execute(sql, {**key_of(scope), **values}).fetchall()
    return found


def latest(db: Db, scope: Scope) -> tuple[Any, ...]:
    """Return what differs after a loop, a lesson or an episode of the project changed."""
    (row,) = rows(db, scope, "latest")
    return tuple(row)


@dataclass(frozen=True)
class Share:
    """A share of `of`, with an interval that holds however often somebody looks."""

    number: int
    of: int

    @property
    def value(self) -> float | None:
        """The share, from 0 to 1; None of nothing."""
        return self.number / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends of the interval at level 0.05.

        It is the normal mixture of Robbins for a variance of at most 1/4 (Howard and others, 2021,
        time-uniform Chernoff bounds), which is narrowest near 100 loops.
        """
        if not self.of:
            return 0.0, 1.0
        rho, v = 25.0, self.of / 4
        radius = sqrt((v + rho) * (2 * log(1 / LEVEL) + log((v + rho) / rho))) / self.of
        share = self.number / self.of
        return max(0.0, share - radius), min(1.0, share + radius)

    @property
    def plain(self) -> Plain:
        """The share as JSON data."""
        low, high = self.interval
        return {"number": self.number, "of": self.of, "value": self.value, "low": low, "high": high}


def home(db: Db, scope: Scope) -> Plain:
    """Return how the newest loops went, day by day and in all."""
    since, found = time.time() - DAYS * DAY, rows(db, scope, "ended", since=0.0, limit=LOOPS)
    days: dict[int, Counter[str]] = defaultdict(Counter)
    total = Counter[str]()
    for row in found:
        facts = Counter(loops=1, calls=row["calls"] or 0)
        if row["state"] != "open":
            right = row["state"] == "passed" and row["attempts"] == 1
            facts.update(ended=1, right=right, retried=row["attempts"] > 1)
            facts.update(solved=row["state"] == "passed" and row["attempts"] > 1)
            facts.update(stopped=row["state"] == "stopped")
        total += facts
        if row["created"] >= since:
            days[int(row["created"] // DAY)] += facts
    last = int(time.time() // DAY)
    shown = range(max(min(days, default=last), last - DAYS + 1), last + 1)
    return {
        "loops": total["loops"],
        "more": len(found) == LOOPS,
        "calls": total["calls"],
        "right": Share(total["right"], total["ended"]).plain,
        "solved": Share(total["solved"], total["retried"]).plain,
        "stopped": Share(total["stopped"], total["ended"]).plain,
        "days": [
            {
                "at": day * DAY,
                "loops": days[day]["loops"],
                "calls": days[day]["calls"],
                "right": Share(days[day]["right"], days[day]["ended"]).plain,
            }
            for day in shown
        ],
    }


def failing(db: Db, scope: Scope) -> list[Plain]:
    """Return the checks that failed in the newest loops, and how often a retry mended them."""
    failed: dict[int, list[set[str]]] = defaultdict(list)
    passed = dict[int, bool]()
    for row in rows(db, scope, "judged", limit=JUDGED):
        judged = json.loads(row["record"]).get("evaluation") or {}
        errors = [one for one in judged.get("findings", ()) if one.get("level", "error") == "error"]
        failed[row["n"]].append({one["check"] for one in errors})
        passed[row["n"]] = row["state"] == "passed"
    first, again, mended = Counter[str](), Counter[str](), Counter[str]()
    for n, attempts in failed.items():
        for check in set().union(*attempts):
            first[check] += 1
            at = next(k for k, names in enumerate(attempts) if check in names)
            again[check] += len(attempts) > at + 1
            mended[check] += len(attempts) > at + 1 and check not in attempts[-1]
    return [
        {"check": check, "loops": n, "mended": Share(mended[check], again[check]).plain}
        for check, n in first.most_common(10)
    ]


def stopping(db: Db, scope: Scope) -> list[Plain]:
    """Return which rules stopped the newest stopped loops."""
    counts = Counter[str]()
    for row in rows(db, scope, "stopped", limit=JUDGED):
        stops = json.loads(row["decision"] or "{}").get("stopped_by", ())
        counts.update(one["rule"] for one in stops[:1])
    return [{"rule": rule, "loops": n} for rule, n in counts.most_common(10)]


def listed(db: Db, scope: Scope, limit: int, **only: Any) -> list[Plain]:
    """Return the newest loops that fit all filters; "" and 0 allow all loops."""
    filters = {"before": 0, "state": "", "key": "", "since": 0.0, "text": "", "rule": "", "tag": ""}
    filters |= only
    filters["text"] = filters["text"].lower()
    for name, field in (("rule", "rule"), ("tag", "check")):
        if filters[name]:
            filters[name] = f'"{field}":{json.dumps(filters[name])}'
    found = []
    for row in rows(db, scope, "listed", **filters, limit=limit):
        verdict = json.loads(row["decision"] or "{}")
        stops = [one["rule"] for one in verdict.get("stopped_by", ())]
        facts = {k: row[k] for k in ("n", "id", "kind", "run", "stage", "memory_key", "attempts")}
        facts |= {"task": json.loads(row["task"]), "state": row["state"], "driven": row["driven"]}
        facts |= {"created": row["created"], "updated": row["updated"], "stopped_by": stops}
        found.append(facts)
    return found


def runs(db: Db, scope: Scope, limit: int, before: int) -> list[Plain]:
    """Return the newest runs of pipelines."""
    found = rows(db, scope, "runs", limit=limit, before=before)
    return [{**dict(row), "task": json.loads(row["task"])} for row in found]


def overrides(db: Db, scope: Scope) -> list[Plain]:
    """Return the overrides that expire within a day, soonest first."""
    now = time.time()
    found = [dict(row) for row in rows(db, scope, "overrides", now=now, limit=20)]
    return [one for one in found if one["until"] < now + DAY]
