"""What is known about a call of an agent that has failed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.lessons.preconditions import (
    Precondition,
    find_blamed,
    preconditions_of,
)
from heedful.lessons.scope import (
    Scope,
    Trust,
    source_of,
)
from heedful.store import preconditions, substitutions
from heedful.store.connection import Db, key_of, storable
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
