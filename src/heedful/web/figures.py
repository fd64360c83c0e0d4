"""Count what the pages show: how often the first answer is right, what fails, what
retries mend.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import lgamma, log
from pathlib import Path
from typing import Any

from heedful.errors import NotFound
from heedful.lessons.briefing import Briefing
from heedful.lessons.lesson import Scope
from heedful.lessons.trust import QUARANTINE_TRUST, QuarantinedLesson
from heedful.loop.codec import from_document
from heedful.loop.record import Attempt, Goal, Loop, Usage
from heedful.loop.replay import RecordedLoop
from heedful.store import patterns
from heedful.store import quarantine as quarantine_store
from heedful.store.connection import Db, Row, key_of, token

FIGURE_DAY_SECONDS = 86_400.0
# days of a course; of a shorter record, `SHORT_COURSE_GROUPS` groups of loops
MAX_COURSE_DAYS = 30
MIN_COURSE_DAYS = 3
SHORT_COURSE_GROUPS = 20
MAX_FIGURE_LOOPS = 2_000  # the newest loops that a figure looks at
MAX_JUDGED_LOOPS = 500  # the newest loops whose findings are read
MAX_JUDGED_ATTEMPTS = 20  # the first attempts of a loop whose findings are read
MAX_SEARCHED_LOOPS = (
    10_000  # loops that one search looks at; the page then offers to search older ones
)
MAX_REDECIDED_ATTEMPTS = (
    200  # attempts of a loop that is decided again while somebody waits for its page
)
MAX_SOURCE_TEXTS = 5_000  # the newest texts in quarantine whose sources are counted
SHARE_ERROR_LEVEL = 0.05
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
    """Return what differs after a loop, a lesson or an episode of the project
    changed.
    """
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

        A share outside it would give the counts less than 0.05 of the probability that
        a uniform mixture of all shares gives them, which a true share does at any time
        with probability 0.05 at most (Robbins, 1970, Statistical methods related to the
        law of the iterated logarithm).
        """
        right = self.number
        wrong = self.of - self.number
        mixed = (
            lgamma(right + 1)
            + lgamma(wrong + 1)
            - lgamma(self.of + 2)
            + log(SHARE_ERROR_LEVEL)
        )

        def end(share: float, bound: float) -> float:
            for _ in range(40):
                middle = (share + bound) / 2
                likely = right * log(middle or 1e-12) + wrong * log(1 - middle or 1e-12)
                share, bound = (middle, bound) if likely >= mixed else (share, middle)
            return bound

        best = right / self.of if self.of else 0.5
        return end(best, 0.0), end(best, 1.0)

    @property
    def plain(self) -> Plain:
        """The share as JSON data."""
        low, high = self.interval
        return {
            "number": self.number,
            "of": self.of,
            "value": self.value,
            "low": low,
            "high": high,
        }


def home(db: Db, scope: Scope) -> Plain:
    """Return how the newest loops went, day by day and in all."""
    found = rows(db, scope, "ended", limit=MAX_FIGURE_LOOPS)
    total = _total(found)
    today = _total(
        [row for row in found if row["updated"] > time.time() - FIGURE_DAY_SECONDS]
    )
    return {
        "loops": total["loops"],
        "more": len(found) == MAX_FIGURE_LOOPS,
        "calls": total["calls"],
        "tokens": total["tokens"],
        "cost": total["cost"],
        "right": Share(total["right"], total["ended"]).plain,
        "solved": Share(total["solved"], total["retried"]).plain,
        "stopped": Share(total["stopped"], total["ended"]).plain,
        "today": {k: today[k] for k in ("loops", "ended", "stopped")},
        **_course(found),
    }


def _total(found: Sequence[Row]) -> Plain:
    """Count the loops, how they ended, and what they spent."""
    ended = [row for row in found if row["state"] != "open"]
    passed = [row["attempts"] > 1 for row in ended if row["state"] == "passed"]
    retried = sum(row["attempts"] > 1 for row in ended)
    return {
        "loops": len(found),
        "calls": sum(row["calls"] or 0 for row in found),
        "tokens": sum(row["tokens"] or 0 for row in found),
        "cost": sum(row["cost"] or 0.0 for row in found),
        "ended": len(ended),
        "right": passed.count(False),
        "retried": retried,
        "solved": passed.count(True),
        "stopped": len(ended) - len(passed),
    }


def _course(found: Sequence[Row]) -> Plain:
    """Return the figures of each of the last days; of a record of few days, of groups
    of loops.

    `found` has the newest loop first.
    """
    days = (
        not found
        or (found[0]["created"] - found[-1]["created"])
        > MIN_COURSE_DAYS * FIGURE_DAY_SECONDS
    )
    groups = defaultdict[float, list[Row]](list)
    if days and found:
        last = time.time() // FIGURE_DAY_SECONDS
        groups |= {(last - n) * FIGURE_DAY_SECONDS: [] for n in range(MAX_COURSE_DAYS)}
        for row in found:
            if (
                start := row["created"] // FIGURE_DAY_SECONDS * FIGURE_DAY_SECONDS
            ) in groups:
                groups[start].append(row)
    else:
        size = -(-len(found) // SHORT_COURSE_GROUPS) or 1
        for n in range(0, len(found), size):
            groups[found[n : n + size][-1]["created"]] += found[n : n + size]
    course = []
    for at, group in sorted(groups.items()):
        total = _total(group)
        right = Share(total["right"], total["ended"]).plain
        course.append(
            {
                "at": at,
                **{k: total[k] for k in ("loops", "calls", "cost")},
                "right": right,
            }
        )
    return {"course": course, "by": "day" if days else "group of loops"}


def failing(db: Db, scope: Scope) -> list[Plain]:
    """Return the checks that failed in the newest loops, and how often a retry mended
    them.
    """
    failed: dict[int, list[set[str]]] = defaultdict(list)
    passed = dict[int, bool]()
    for row in rows(
        db, scope, "judged", limit=MAX_JUDGED_LOOPS, most=MAX_JUDGED_ATTEMPTS
    ):
        failed[row["n"]].append(set(_failed(row["record"])))
        passed[row["n"]] = row["state"] == "passed"
    first = Counter[str]()
    again = Counter[str]()
    mended = Counter[str]()
    for attempts in failed.values():
        for check in set().union(*attempts):
            first[check] += 1
            at = next(k for k, names in enumerate(attempts) if check in names)
            again[check] += len(attempts) > at + 1
            mended[check] += len(attempts) > at + 1 and check not in attempts[-1]
    return [
        {"check": check, "loops": n, "mended": Share(mended[check], again[check]).plain}
        for check, n in first.most_common(10)
    ]


def _failed(attempt: str) -> list[str]:
    """Return the checks with an error in a stored attempt."""
    found = (json.loads(attempt).get("evaluation") or {}).get("findings", ())
    return list(
        dict.fromkeys(
            one["check"] for one in found if one.get("level", "error") == "error"
        )
    )


def named(db: Db, scope: Scope, names: Sequence[str]) -> dict[str, Plain]:
    """Return the ids and texts of lessons by name; without the words of tools and
    documents.
    """
    found = dict[str, Plain]()
    for name in names:
        kind, _, signature = name.partition("/")
        key = {**key_of(scope), "kind": kind, "signature": signature}
        for row in db.select("id, text, trust", "reflection", key):
            text = "" if row["trust"] in QUARANTINE_TRUST else row["text"]
            found[name] = {"id": row["id"], "text": text}
    return found


def lessons(db: Db, scope: Scope, ids: Sequence[int]) -> list[Mapping[str, Any]]:
    """Return the lessons with these ids, in this order, as `list_lessons` does."""
    return [patterns.one(db, scope, id) for id in ids]


def waiting(
    db: Db, scope: Scope, limit: int, before: int, source: str, trust: str
) -> tuple[list[QuarantinedLesson], int, list[Plain]]:
    """Return the newest texts in quarantine, how many wait, and their most frequent
    sources.

    "" and 0 allow all texts. The sources are of the newest `MAX_SOURCE_TEXTS` texts.
    """
    about = {"token": token(scope), "before": before, "source": source, "trust": trust}
    ids = [row["id"] for row in rows(db, scope, "waiting", **about, limit=limit)]
    counts = rows(
        db, scope, "waiting_sources", token=token(scope), limit=MAX_SOURCE_TEXTS
    )
    total = db.select(
        "count(*) as n", "example", {"scope": token(scope), "state": "quarantined"}
    )
    found = quarantine_store.quarantined(db, scope, ids) if ids else []
    return found, next(iter(total))["n"], list(map(dict, counts))


def told(briefing: Briefing) -> list[Plain]:
    """Return what memory told a loop, withheld and missed: a row for each lesson and
    reason.
    """
    alike = {str(one): one for one in briefing.choices}
    counts = Counter(map(str, briefing.choices))
    return [
        {
            "outcome": one.outcome,
            "lesson": one.lesson,
            "n": counts[line],
            "said": line[len(one.outcome) + 2 :],
        }
        for line, one in alike.items()
    ]


def stopping(db: Db, scope: Scope) -> list[Plain]:
    """Return which rules stopped the newest stopped loops."""
    counts = Counter[str]()
    for row in rows(db, scope, "stopped", limit=MAX_FIGURE_LOOPS):
        stops = json.loads(row["decision"] or "{}").get("stopped_by", ())
        counts.update(one["rule"] for one in stops[:1])
    return [{"rule": rule, "loops": n} for rule, n in counts.most_common(10)]


def listed(db: Db, scope: Scope, /, limit: int, **only: Any) -> tuple[list[Plain], int]:
    """Return the newest loops that fit all filters, and the number to continue below; 0
    at the end.

    "" and 0 allow all loops. At most `MAX_SEARCHED_LOOPS` loops are looked at.
    """
    filters: Plain = dict.fromkeys(("state", "key", "text", "rule", "tag"), "")
    filters |= {"before": 0, "since": 0.0, **only}
    filters["text"] = filters["text"].lower()
    for name, field in (("rule", "rule"), ("tag", "check")):
        if filters[name]:
            filters[name] = f'"{field}":{json.dumps(filters[name])}'
    found = []
    for row in rows(
        db, scope, "listed", **filters, limit=limit + 1, window=MAX_SEARCHED_LOOPS
    ):
        verdict = json.loads(row["decision"] or "{}")
        stops = [one["rule"] for one in verdict.get("stopped_by", ())]
        facts = {
            k: row[k]
            for k in ("n", "id", "kind", "run", "stage", "memory_key", "attempts")
        }
        facts |= {
            "task": json.loads(row["task"]),
            "state": row["state"],
            "driven": row["driven"],
        }
        facts |= {
            "created": row["created"],
            "updated": row["updated"],
            "stopped_by": stops,
        }
        facts["failed"] = _failed(row["last"] or "{}")
        found.append(facts)
    if len(found) > limit:
        return found[:limit], found[limit - 1]["n"]
    past = rows(db, scope, "past", before=filters["before"], window=MAX_SEARCHED_LOOPS)
    return found, past[0]["n"] if past else 0


def window(db: Db, scope: Scope, id: str, first: int, shown: int) -> Plain:
    """Return a loop with `shown` attempts from number `first`, 0 for the last ones.

    Raises NotFound.
    """
    head = rows(db, scope, "head", id=id)
    if not head:
        raise NotFound("loop", id, "the project")
    row = dict(head[0])
    n = row.pop("n")
    last = row["attempts"]
    first = max(1, first or last - shown + 1)
    asked = {"n": n, "first": first - 1, "last": first + shown - 1}
    made = [
        {**json.loads(one["record"]), "output": json.loads(one["value"])}
        for one in rows(db, scope, "attempts_of", **asked)
    ]
    decided = {
        one["attempt"]: json.loads(one["record"])
        for one in rows(db, scope, "decided", **asked)
    }
    latest = json.loads(row.pop("decision") or "{}")
    for name in ("task", "goals", "policy"):
        row[name] = json.loads(row[name])
    briefing = (
        Briefing.of(json.loads(told_it)) if (told_it := row.pop("briefing")) else None
    )
    return {
        **row,
        "name": id,
        "first": first,
        "made": made,
        "decided": decided,
        "latest": latest,
        "stopped_by": [one["rule"] for one in latest.get("stopped_by", ())],
        "silence": briefing.silence if briefing else "",
        "told": told(briefing) if briefing else [],
        "long": last > MAX_REDECIDED_ATTEMPTS,
        "cost": 0.0,
    }


def replayable(
    db: Db,
    scope: Scope,
    limit: int,
    *,
    since: float = 0.0,
    state: str = "",
    key: str = "",
) -> tuple[list[RecordedLoop], dict[str, Any]]:
    """Return the newest loops of at most `MAX_REDECIDED_ATTEMPTS` attempts, oldest first, and their tasks
    by id.

    They changed `since` a time, and have this `state` and memory `key`; "" allows all.
    """
    only = {"since": since, "state": state, "key": key}
    attempts = defaultdict[str, list[Attempt]](list)
    heads = dict[str, Row]()
    for row in rows(
        db, scope, "replayed", **only, limit=limit, most=MAX_REDECIDED_ATTEMPTS
    ):
        heads[row["id"]] = row
        attempts[row["id"]].append(from_document(Attempt, json.loads(row["record"])))
    found = list[RecordedLoop]()
    tasks = dict[str, Any]()
    for id, row in reversed(heads.items()):
        goals = tuple(from_document(Goal, one) for one in json.loads(row["goals"]))
        extra = Usage(**json.loads(row["extra"]))
        found.append(
            RecordedLoop(Loop(id, goals, attempts=tuple(attempts[id]), extra=extra))
        )
        tasks[id] = json.loads(row["task"])
    return found, tasks


MAX_EPISODE_LIST_CHARS = 200_000  # characters of an episode that a list reads


def episodes(db: Db, scope: Scope, digests: Sequence[str]) -> dict[str, Plain]:
    """Return the task of episodes and their first step that failed, by digest."""
    about = dict[str, Plain]()
    asked = {"digests": json.dumps(list(digests)), "most": MAX_EPISODE_LIST_CHARS}
    for row in rows(db, scope, "episodes", **asked):
        episode = json.loads(row["record"]).get("episode", {})
        steps = enumerate(episode.get("events", ()), 1)
        failed = next(
            (f"{n} {one.get('tool', '')}" for n, one in steps if one.get("error")), ""
        )
        about[row["digest"]] = {"task": episode.get("task") or "", "failed": failed}
    return about


def runs(db: Db, scope: Scope, limit: int, before: int) -> list[Plain]:
    """Return the newest runs of pipelines."""
    found = rows(db, scope, "runs", limit=limit, before=before)
    return [{**dict(row), "task": json.loads(row["task"])} for row in found]


def overrides(db: Db, scope: Scope) -> list[Plain]:
    """Return the overrides that expire within a day, soonest first."""
    now = time.time()
    found = [dict(row) for row in rows(db, scope, "overrides", now=now, limit=20)]
    return [one for one in found if one["until"] < now + FIGURE_DAY_SECONDS]
