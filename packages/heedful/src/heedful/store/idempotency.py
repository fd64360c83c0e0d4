"""The stored answers of calls that have an idempotency key, and their stored effects.

A caller that got no answer sends its call again with the same key. The second run finds
what the first one has written: its effects, in order, and its answer once it is
finished. Answers are forgotten after a day, as the HTTP interface promises. A
revocation of a source removes their texts at once, because they may quote it.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from heedful.errors import LeaseLost
from heedful.lessons.scope import DAY_SECONDS, Scope
from heedful.store.connection import Db, holds, resumable

# The answer of a call is stored under this number, its effects under higher ones.
ANSWER_EFFECT = -1
# Stands in place of an answer, and of its effects, after `remove_answers`.
REMOVED_ANSWER: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentCall:
    """A call that may be repeated.

    `caller` is the id of the caller, `once` the digest of the idempotency key and
    `digest` that of the request.
    """

    tenant: str
    caller: str
    once: str
    digest: str

    @property
    def lock_name(self) -> str:
        """The lock of its key: who has it stores something of a call with this key."""
        return f"answer {self.tenant} {self.caller} {self.once}"


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """The stored effects and the stored answer of a call.

    `digest` is that of the request, "" if nothing is stored. `answer` is None if the
    first run of the call has not finished, and `REMOVED_ANSWER` after a revocation.
    """

    digest: str = ""
    effects: tuple[Mapping[str, Any], ...] = ()
    answer: Mapping[str, Any] | None = None

    def check_effects(self, known_count: int) -> None:
        """Raise LeaseLost if more effects are stored than a run of the call knows."""
        if len(self.effects) > known_count:
            raise _being_answered()


def read_call(db: Db, scope: Scope, call: IdempotentCall) -> RecordedCall:
    """Return the effects and the answer that an earlier run of `call` stored."""
    values = {**asdict(call), "after": time.time() - DAY_SECONDS}
    rows = db.run("read_answer", values).fetchall()
    if not rows:
        return RecordedCall()

    effects = {int(row["n"]): json.loads(row["record"]) for row in rows}
    answer = effects.pop(ANSWER_EFFECT, None)
    return RecordedCall(rows[0]["digest"], tuple(effects.values()), answer)


@holds("answers")
@resumable(result=None)
def keep_answer(
    db: Db,
    scope: Scope,
    call: IdempotentCall,
    answer: Mapping[str, Any],
    effect_count: int,
) -> None:
    """Store the answer of `call`, and delete answers that are older than a day.

    The run that answers knows the first `effect_count` effects of the call. Raises
    LeaseLost if another process has stored more of them, or the answer.
    """
    db.send("lock", {"name": call.lock_name})
    read_call(db, scope, call).check_effects(effect_count)
    before = time.time() - DAY_SECONDS
    db.send("forget_answers", {"tenant": call.tenant, "before": before})
    write_effect(db, call, ANSWER_EFFECT, answer)


def remove_answers(db: Db, scope: Scope) -> None:
    """Remove the texts of all stored answers of a tenant, and of their effects.

    Their calls are remembered, so that a repeated one does not take effect again.
    """
    db.send(
        "remove_answers",
        {"tenant": scope.tenant, "removed": json.dumps(REMOVED_ANSWER)},
    )


def write_effect(
    db: Db, call: IdempotentCall, n: int, record: Mapping[str, Any]
) -> None:
    """Store `record` as effect number `n` of `call`.

    Until the commit, no other transaction stores anything under the key of the call: an
    effect and an answer have different numbers, so neither would see the other.
    Raises LeaseLost if another process, which answers the same call, has stored this
    effect, or if another call with the same key has stored anything.
    """
    now = time.time()
    values = {
        **asdict(call),
        "n": n,
        "record": json.dumps(record),
        "now": now,
        "before": now - DAY_SECONDS,
    }
    db.send("lock", {"name": call.lock_name})
    if not db.run("insert_answer", values).fetchall():
        raise _being_answered()


def _being_answered() -> LeaseLost:
    """Return the error for a call that another process has continued."""
    return LeaseLost("the same call is being answered right now; try again")
