"""The stored answers of calls that have an idempotency key, and their stored effects.

A caller that got no answer makes its call again with the same key. The second run finds
what the first one has written: its effects, in order, and its answer once it is
finished. A call in process has one effect, which is its answer. Answers are forgotten
after a day, as the HTTP interface promises. Revoking a source or forgetting removes
their texts at once, because they may quote them.
"""

import json
import os
import time
from dataclasses import asdict, is_dataclass
from typing import Any, NamedTuple

from heedful.errors import Conflict, LeaseLost
from heedful.lessons.scope import DAY_SECONDS, Scope
from heedful.store.connection import Db, holds, resumable
from heedful.validation import Fields, hex_digest, typed_frozen

# The answer of a call is stored under this number, its effects under higher ones.
ANSWER_EFFECT = -1
# Stands in place of an answer, and of its effects, after `remove_answers`.
REMOVED_ANSWER: Fields = {}
# The caller of a call in process; a key of a service has another id.
IN_PROCESS = ""
MAX_KEY_CHARS = 255


@typed_frozen(slots=True, kw_only=True)
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

    @classmethod
    def in_process(cls, scope: Scope, key: str, request: object) -> "IdempotentCall":
        """Return the call that this process makes with an idempotency key.

        `request` is what the call asks for. Its `repr`, which must be the same in each
        process, tells a repeated call from another one with the same key.
        """
        return cls(
            tenant=scope.tenant,
            caller=IN_PROCESS,
            once=hex_digest(key),
            digest=hex_digest(repr((scope, request))),
        )

    @classmethod
    def of_one_write(cls, scope: Scope) -> "IdempotentCall":
        """Return a call that nobody else can make, for a write that may be repeated."""
        return cls.in_process(scope, new_key(), "")


def new_key() -> str:
    """Return a key that no other call has, and that no message takes for a secret."""
    return f"call-{os.urandom(16).hex()}"


class RecordedCall(NamedTuple):
    """The stored effects and the stored answer of a call.

    `digest` is that of the request, "" if nothing is stored. `answer` is None if the
    first run of the call has not finished, and `REMOVED_ANSWER` after a revocation.
    """

    digest: str = ""
    effects: tuple[Fields, ...] = ()
    answer: Fields | None = None

    def check_effects(self, known_count: int) -> None:
        """Raise LeaseLost if more effects are stored than a run of the call knows."""
        if len(self.effects) > known_count:
            raise _lease_lost()

    def record_of(self, call: IdempotentCall, n: int) -> Fields | None:
        """Return what `call` stored as its effect `n`; None if it stored nothing.

        The number `ANSWER_EFFECT` is that of its answer. Raises Conflict if the key was
        used for another request, or if somebody had the record removed.
        """
        if self.digest not in ("", call.digest):
            raise Conflict("this key was already used for another call; give a new key")

        record = self.answer
        if n != ANSWER_EFFECT:
            record = self.effects[n] if n < len(self.effects) else None
        if record == REMOVED_ANSWER:
            raise Conflict(
                "this call has taken effect, but its answer was removed when somebody "
                "revoked a source or forgot texts; a new key would make it once more"
            )
        return record


def read_call(db: Db, scope: Scope, call: IdempotentCall) -> RecordedCall:
    """Return the effects and the answer that an earlier run of `call` stored.

    Both are empty if no run stored anything in the last day.
    """
    values = {**asdict(call), "after": time.time() - DAY_SECONDS}
    rows = db.run("read_answer", values).fetchall()
    if not rows:
        return RecordedCall()

    # The rows come in the order of their numbers, so the effects do, too.
    effects = {int(row["n"]): json.loads(row["record"]) for row in rows}
    answer = effects.pop(ANSWER_EFFECT, None)
    return RecordedCall(rows[0]["digest"], tuple(effects.values()), answer)


@holds("answers")
@resumable(result=None)
def keep_answer(
    db: Db,
    scope: Scope,
    call: IdempotentCall,
    answer: Fields,
    effect_count: int,
) -> None:
    """Store the answer of `call`, which ends the call.

    The run that answers has stored or found the first `effect_count` effects of the
    call. Raises LeaseLost if there are more, or an answer: another process runs the
    same call.
    """
    # So that no effect is stored between the check and the answer.
    db.send("lock", {"name": call.lock_name})
    read_call(db, scope, call).check_effects(effect_count)
    write_effect(db, call, ANSWER_EFFECT, answer)


def remove_answers(db: Db, scope: Scope) -> None:
    """Remove the content of all stored answers of a tenant, and of their effects.

    The answers may quote what was revoked or forgotten. That their calls were made is
    remembered, so that a repeated one does not take effect again.
    """
    db.send(
        "remove_answers",
        {"tenant": scope.tenant, "removed": json.dumps(REMOVED_ANSWER)},
    )


def read_record(db: Db, scope: Scope, call: IdempotentCall, n: int) -> Fields | None:
    """Return what `call` stored as its effect `n`; None if it stored nothing.

    Raises Conflict if the key was used for another request, or if the record was
    removed.
    """
    return read_call(db, scope, call).record_of(call, n)


def read_effect(db: Db, scope: Scope, call: IdempotentCall, n: int) -> Fields | None:
    """Lock the key of `call`, and return what the call stored as its effect `n`.

    Returns None if it stored nothing. Until the commit, no other transaction stores
    anything under this key, so what was read stays true.
    """
    db.send("lock", {"name": call.lock_name})
    return read_record(db, scope, call, n)


def write_effect(db: Db, call: IdempotentCall, n: int, record: Fields) -> None:
    """Store `record` as effect number `n` of `call`, or as its answer.

    The answer has the number `ANSWER_EFFECT`; with it, answers of the tenant that are
    older than a day are deleted. Raises LeaseLost, at the latest at the commit, if
    another process has stored this effect of the same call, or if another request with
    the same key has stored anything.
    """
    now = time.time()
    values = {
        **asdict(call),
        "n": n,
        "record": json.dumps(record, default=_json_data),
        "now": now,
        "before": now - DAY_SECONDS,
    }
    # An effect and an answer have different numbers: without the lock, two transactions
    # could store both, as neither sees the other.
    db.send("lock", {"name": call.lock_name})
    if n == ANSWER_EFFECT:
        db.send("forget_answers", {"tenant": call.tenant, "before": values["before"]})
    db.expect("insert_answer", values, _lease_lost())


def _json_data(value: Any) -> Any:
    """Return a dataclass as an object of JSON, and a set as a list.

    `json.dumps` calls it for what it cannot write, and expects a TypeError for others.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, set | frozenset):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON data")


def _lease_lost() -> LeaseLost:
    """Return the error for a call that another process has continued."""
    return LeaseLost("the same call is being answered right now; try again")
