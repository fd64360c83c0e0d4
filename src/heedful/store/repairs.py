"""Store what is known when a call has failed, and the calls that were repaired.

A repair changes a call before it is made. It needs a precondition that never passed and
surely fails, and a substitution that worked in two sessions whose words are trusted. It
is counted by the first result of the very call that it proposed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.lessons.action import KnownFailure, action
from heedful.lessons.preconditions import (
    Precondition,
    describe,
    find_blamed,
    preconditions_of,
)
from heedful.lessons.scope import (
    Scope,
    Trust,
    digest_of,
    source_of,
)
from heedful.lessons.substitution import is_safe
from heedful.store import preconditions, substitutions
from heedful.store.connection import Db, key_of, storable
from heedful.store.substitutions import KnownSubstitution, change_digest

MIN_REPAIR_SESSIONS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCall:
    """A call of an agent in a repository, and the `errors` with which it failed."""

    tool: str
    arguments: Mapping[str, Any]
    errors: Sequence[str] = ()
    session: str = ""
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureKnowledge:
    """What is known about a call that failed.

    `blamed` is what the errors blame, and `marks` are those of the session about it:
    what it was told. `is_broken_again` is whether another session broke the contract.
    """

    blamed: tuple[Precondition, ...] = ()
    substitution: KnownSubstitution | None = None
    marks: frozenset[str] = frozenset()
    is_broken_again: bool = False

    @property
    def is_told(self) -> bool:
        """True if the session was told that such calls fail, and what to do."""
        digests = (precondition.digest for precondition in self.blamed)
        return any(f"told {digest}" in self.marks for digest in digests)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A call that will fail, and the `known` substitution that repairs it."""

    failure: KnownFailure
    known: KnownSubstitution

    @property
    def text(self) -> str:
        """What is changed, and why."""
        return f"{self.known.text}; {self.failure}"


def knowledge_of(
    db: Db,
    scope: Scope,
    call: JudgedCall,
    trust: Mapping[str, Trust],
    contract: str = "",
) -> FailureKnowledge:
    """Return what is known about a call that failed; `contract` is the one it broke."""
    surroundings = preconditions.surroundings_of(
        db, scope, call.session, call.arguments, folder=call.folder
    )
    needs = preconditions_of(call.tool, call.arguments, surroundings)
    blamed = tuple(find_blamed(needs, call.errors))
    marks = [f"told {precondition.digest}" for precondition in blamed]
    if contract:
        marks.append(f"told {contract}")
    key = {"session": storable(call.session), "marks": json.dumps(marks)}
    source = storable(source_of(call.session))
    is_broken_again = False
    if contract:
        contract_key = {"digest": substitutions.contract_digest(contract)}
        contract_key |= key_of(scope)
        rows = db.select("source", "substitution", contract_key, "limit 2")
        is_broken_again = any(row["source"] != source for row in rows)
    worked = substitutions.find(
        db,
        scope,
        blamed,
        (call.tool, call.arguments),
        folder=call.folder,
        trust=trust,
        session=call.session,
    )
    return FailureKnowledge(
        blamed=blamed,
        substitution=next(iter(worked), None),
        marks=frozenset(row["mark"] for row in db.all("read_marks", scope, **key)),
        is_broken_again=is_broken_again,
    )


def find_repair(
    db: Db, scope: Scope, call: JudgedCall, trust: Mapping[str, Trust]
) -> Repair | None:
    """Return the repair of a call that is yet to be made, if one is sure and safe."""
    for precondition, failure in _never_passed(db, scope, call):
        worked = substitutions.find(
            db,
            scope,
            [precondition],
            (call.tool, call.arguments),
            folder=call.folder,
            trust=trust,
            session=call.session,
        )
        for substitution in worked:
            is_known = substitution.trusted >= MIN_REPAIR_SESSIONS
            change = substitution.substitution
            if is_known and is_safe(call.arguments, substitution.arguments, change):
                return Repair(failure=failure, known=substitution)
    return None


def _never_passed(
    db: Db, scope: Scope, call: JudgedCall
) -> Iterator[tuple[Precondition, KnownFailure]]:
    """Yield what surely makes a call fail and never passed, the surest first."""
    sure = preconditions.sure_failures(
        db, scope, call.tool, call.arguments, session=call.session, folder=call.folder
    )
    for precondition, track, bound in sure:
        if track.failed and not track.passed:
            failure = KnownFailure(
                0,
                "",
                about=describe(precondition),
                runs=track.failed,
                surely=bound,
                digest=precondition.digest,
            )
            yield precondition, failure


def call_digest(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the digest of exactly this call."""
    called = action(tool, arguments)
    return digest_of("call", f"{called.tool}\0{called.text}")


def offer(db: Db, scope: Scope, call: JudgedCall, id: str, repair: Repair) -> None:
    """Record that a call with this id is repaired, once in its session."""
    values = {
        "source": storable(source_of(call.session)),
        "call": storable(id),
        "digest": repair.known.digest,
        "change": change_digest(repair.known.substitution),
        "action": call_digest(call.tool, repair.known.arguments),
        "at": time.time(),
    }
    db.send("offer_repair", {**key_of(scope), **values})
    preconditions.mark(db, scope, call.session, [f"told {repair.known.digest}"])


def settle(db: Db, scope: Scope, call: JudgedCall, id: str) -> None:
    """Record how a call ended, if it is one that was repaired.

    An agent that did not take the repair, or a person who did not allow it, made
    another call, which says nothing about it.
    """
    values = {
        "source": storable(source_of(call.session)),
        "call": storable(id),
        "action": call_digest(call.tool, call.arguments),
        "outcome": "failed" if call.errors else "passed",
        "at": time.time(),
    }
    db.send("settle_repair", {**key_of(scope), **values})
