"""Store what worked in the place of what a call took for granted.

A substitution counts once a session. It is told if a trusted session knows it, or if
somebody released a text of a session that says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from heedful.lessons.preconditions import (
    Precondition,
)
from heedful.lessons.scope import Scope, source_of
from heedful.store.connection import Db, Row, key_of, storable, token

if TYPE_CHECKING:  # a hook process starts for each event
    from heedful.lessons.before import Step
    from heedful.lessons.substitution import Substitution

# A session may have at most this many: the last ones count.
MAX_SESSION_SUBSTITUTIONS = 200
# How many substitutions of a call are looked at, the best first.
MAX_TRIED_SUBSTITUTIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSubstitution:
    """A substitution for a call, and how often it worked.

    `arguments` are those of the call with it, and `digest` is that of the precondition
    that gives way. It passed in so many `sessions`: those whose sources are the user's
    own, or if there are none, those that a person released. `lesson` is the id of the
    lesson about the failure, 0 if there is none that may be told.
    """

    substitution: Substitution
    arguments: Mapping[str, Any]
    digest: str
    sessions: int
    lesson: int = 0

    @property
    def text(self) -> str:
        """The substitution in words."""
        times = "once" if self.sessions == 1 else f"in {self.sessions} sessions"
        return f"{self.substitution} worked {times}"


@dataclass(slots=True)
class _Count:
    """In which sessions a substitution passed, and the lessons about the failures.

    It `passed` last in a trusted session at this time.
    """

    digest: str
    sessions: set[str] = field(default_factory=set)
    trusted: set[str] = field(default_factory=set)
    lessons: set[int] = field(default_factory=set)
    passed: float = 0.0


def record(db: Db, scope: Scope, source: str, steps: Sequence[Step]) -> None:
    """Record what worked in the place of steps of one run that `source` names."""
    now = time.time()
    replaced = [step for step in steps if step.replacement is not None]
    for step in replaced[-MAX_SESSION_SUBSTITUTIONS:]:
        assert step.replacement is not None
        change = step.replacement.substitution
        for precondition in step.replacement.preconditions:
            values = {
                **key_of(scope),
                "digest": precondition.digest,
                "source": source,
                "lesson_id": step.lesson or None,
                "argument": storable(change.argument),
                "old": json.dumps([storable(word) for word in change.old]),
                "new": json.dumps([storable(word) for word in change.new]),
                "sources": json.dumps(sorted(step.replacement.sources)),
                "passed": min(step.at or now, now),
            }
            db.send("substitute", values)


def find(
    db: Db,
    scope: Scope,
    preconditions: Sequence[Precondition],
    call: tuple[str, Mapping[str, Any]],
    *,
    folder: str,
    trust: Collection[str],
    session: str = "",
) -> tuple[KnownSubstitution, ...]:
    """Return what worked in the place of preconditions of a call, the best first.

    The call is a tool with its arguments, in the repository in `folder`. `trust` is
    that of the memory, to which the statements of the scope are added. What only the
    `session` knows is left out.
    """
    source = storable(source_of(session)) if session else ""
    digests = [precondition.digest for precondition in preconditions]
    counts = _count(db, scope, digests, trust=trust, source=source)
    if not counts:
        return ()

    worked = list[KnownSubstitution]()
    for change, count in _rank(counts)[:MAX_TRIED_SUBSTITUTIONS]:
        repaired = change.apply(call[1], folder)
        if repaired is None:
            continue
        released = _find_released(db, scope, count)
        sessions = count.trusted or set(released)
        if not sessions:
            continue
        worked.append(
            KnownSubstitution(
                substitution=change,
                arguments=repaired,
                digest=count.digest,
                sessions=len(sessions),
                lesson=min(released.values(), default=0),
            )
        )
    return tuple(worked)


def _count(
    db: Db,
    scope: Scope,
    digests: Sequence[str],
    *,
    trust: Collection[str],
    source: str = "",
) -> dict[Substitution, _Count]:
    """Return what worked in the place of preconditions, and in which sessions."""
    values = {"digests": json.dumps(list(digests)), "source": source}
    rows = db.all("substitutions", scope, **values)
    if not rows:
        return {}

    from heedful.lessons.origin import is_outside
    from heedful.store import quarantine

    stated = quarantine.believed_names(db, scope, trust)
    counts: dict[Substitution, _Count] = {}
    for row in rows:
        count = counts.setdefault(_substitution_of(row), _Count(row["digest"]))
        count.sessions.add(row["source"])
        count.lessons.add(row["lesson_id"] or 0)
        if not any(is_outside(name, stated) for name in json.loads(row["sources"])):
            count.trusted.add(row["source"])
            count.passed = max(count.passed, row["passed"])
    return counts


def _rank(
    counts: Mapping[Substitution, _Count],
) -> list[tuple[Substitution, _Count]]:
    """Return substitutions with their counts, the best first."""
    return sorted(
        counts.items(),
        key=lambda item: (len(item[1].trusted), len(item[1].sessions), item[1].passed),
        reverse=True,
    )


def _substitution_of(row: Row) -> Substitution:
    from heedful.lessons.substitution import Substitution

    old = tuple(json.loads(row["old"]))
    new = tuple(json.loads(row["new"]))
    return Substitution(row["argument"], old, new)


def _find_released(db: Db, scope: Scope, count: _Count) -> dict[str, int]:
    """Return the sessions with a released text about the failure, each with its lesson.

    A text of another session or lesson vouches for nothing.
    """
    sources = sorted(count.trusted or count.sessions)
    rows = db.all(
        "released_texts", scope, scope=token(scope), sources=json.dumps(sources)
    )
    return {
        row["source"]: row["lesson_id"]
        for row in rows
        if row["lesson_id"] in count.lessons
    }
