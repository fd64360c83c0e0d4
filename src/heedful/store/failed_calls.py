"""What is known about a call of an agent that has failed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.lessons.before import Mark, failed_marks
from heedful.lessons.contracts import Contract
from heedful.lessons.preconditions import (
    Precondition,
    Surroundings,
    find_blamed,
    preconditions_of,
)
from heedful.lessons.scope import Scope
from heedful.store import calls, session_marks, substitutions
from heedful.store.connection import Db
from heedful.store.substitutions import KnownSubstitution


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

    `blamed` is what the errors blame. The session `is_told` that such calls fail.
    `is_broken_again` is whether another session broke the contract.
    """

    blamed: tuple[Precondition, ...] = ()
    substitution: KnownSubstitution | None = None
    is_told: bool = False
    is_broken_again: bool = False


def knowledge_of(
    db: Db,
    scope: Scope,
    call: JudgedCall,
    trust: Collection[str],
    contract: Contract | None = None,
) -> FailureKnowledge:
    """Return what is known about a call that failed; `contract` is the one it broke."""
    needs = preconditions_of(call.tool, call.arguments, Surroundings(call.folder))
    blamed = tuple(find_blamed(needs, call.errors))
    failed = failed_marks(call.tool, call.arguments, call.errors, contract, call.folder)
    names = [f"told {mark.digest}" for mark in failed]
    is_broken_again = False
    if contract is not None:
        mark = Mark("contract", contract.name, call.tool)
        is_broken_again = calls.is_broken_elsewhere(db, scope, mark, call.session)
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
        is_told=bool(session_marks.find(db, scope, call.session, names)),
        is_broken_again=is_broken_again,
    )
