"""What loops and the entries of their journals look like in columns, without secrets.

This is the one place where a value of a loop becomes a column: data through `dump`,
texts through `storable`. It is also where the columns of a head become the head. It
needs no connection, so what is large can be converted before the transaction.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any, TypeVar

from heedful.loop import codec
from heedful.loop.decide import Again
from heedful.loop.ladder import Ladder
from heedful.loop.record import Attempt
from heedful.loop.runs import StageHead
from heedful.redact import redact_data
from heedful.store import ladders
from heedful.store.connection import storable
from heedful.store.head import HEAD_DATA, HEAD_TEXTS
from heedful.store.records import (
    FAILURE_STEP,
    EntryColumns,
    Head,
    JournalEntry,
    Statement,
)
from heedful.validation import MAX_SHOWN_TEXT_CHARS, Document, Fields

T = TypeVar("T")


def dump(value: Any) -> str:
    """Return `value` as JSON without secrets.

    It is ASCII, since UTF-8 cannot hold lone surrogates.
    """
    return _json(redact_data(value))


_json = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


@lru_cache(64)  # most loops of a process have the same goals and policy
def _dump_again(text: str) -> str:
    """Return JSON as `dump` writes it: without secrets."""
    return dump(json.loads(text))


def head_columns(head: Head) -> Mapping[str, str]:
    """Return the columns of a head, that is what is known of a loop when it begins.

    Its values become JSON or text without secrets.
    """
    # Those of a large head were made before the transaction, to keep that short.
    if head.columns is not None:
        return head.columns

    stage = head.stage
    return {
        **{name: storable(getattr(head, name)) for name in HEAD_TEXTS},
        "task": dump(head.task),
        "context": dump(head.context),
        **{name: _dump_again(_json(getattr(head, name))) for name in HEAD_DATA},
        "ladder": dump_record(head.ladder),
        "settings": dump_record(stage),
        "run": storable(stage.run) if stage else "",
        "stage": storable(stage.name) if stage else "",
    }


def head_from(row: Fields, task: bool) -> Head:
    """Return the head in the row of a loop; the inverse of `head_columns`.

    The head is what was known of the loop when it began. If `task` is false, the task
    and the context, which may be large, are None and not decoded.
    """
    return Head(
        **{name: row[name] for name in HEAD_TEXTS},
        **{name: json.loads(row[name]) for name in HEAD_DATA},
        task=json.loads(row["task"]) if task else None,
        context=json.loads(row["context"]) if task else None,
        stage=_record_from(StageHead, row["settings"]),
        ladder=_record_from(Ladder, row["ladder"]),
    )


@lru_cache(64)  # most loops of a process have one ladder
def _record_from(kind: type[T], column: str) -> T | None:
    """Return the record in the column of a loop, None if the column is ""."""
    document = json.loads(column) if column else None
    return None if document is None else codec.from_document(kind, document)


def dump_record(record: Any) -> str:
    """Return a record as JSON without secrets, and None as ""."""
    return "" if record is None else _json(codec.to_document(record, redacts=True))


def entry_columns(entry: JournalEntry) -> EntryColumns:
    """Return what an entry of a loop's journal writes, as columns without secrets.

    These are its attempt, the changes of the loop, and the named SQL statements that
    follow the attempt, in the order in which they run.
    """
    statements: list[Statement] = []
    attempt: Document = {}
    number = None  # of the attempt that a decision is about: without one, the newest
    if entry.attempt is not None:
        number = entry.attempt.number
        attempt = _attempt_columns(entry.attempt, entry.value)
        # The model of a loop is that of its first attempt, on the first rung: a rung is
        # one model of a ladder of cheaper to dearer ones.
        model = storable(entry.attempt.model)
        if model and number == 1 and entry.attempt.rung <= 1:
            statements.append(("name_model", {"model": model}))

    if entry.step is not None:
        key, record = entry.step
        statements.append(("insert_step", {"key": key, "record": dump(record)}))
    # Why an attempt has no result is one step, which the next reason replaces.
    if entry.failure is not None:
        error = storable(entry.failure.error)[:MAX_SHOWN_TEXT_CHARS]
        failure = dump_record(replace(entry.failure, error=error))
        statements.append(("replace_step", {"key": FAILURE_STEP, "record": failure}))
    if entry.spending is not None:
        rung, usage, reserved_at = entry.spending
        spending = ladders.spending_values(rung, usage, reserved_at)
        statements.append(("settle_call", spending))
    # A climb is what the attempts of an ended loop did on the rungs of its ladder.
    if entry.climb is not None:
        statements.append(("record_climb", {"record": dump_record(entry.climb)}))

    for override in entry.overrides:
        columns = asdict(override)
        columns["by"] = storable(override.by)
        columns["why"] = storable(override.why)
        statements.append(("insert_override", columns))

    # A verdict that continues uses up the overrides that lifted the stops in its way.
    lifted = set[int]()
    if entry.verdict is not None:
        document = codec.decision_to(entry.verdict, entry.standing, entry.decided)
        decision = {"attempt": number, "record": _json(document)}
        statements.append(("insert_decision", decision))
        if isinstance(entry.verdict, Again):
            lifted = {stop.override for stop in entry.verdict.lifted}

    return EntryColumns(
        attempt=attempt,
        changes=_changes(entry),
        statements=statements,
        lifted=sorted(lifted),
    )


def _attempt_columns(attempt: Attempt, value: Any) -> Document:
    """Return the columns of an attempt whose candidate, its output, has this value.

    The text of the candidate has a column of its own, "" if it is the value.
    """
    value_json = dump(value)  # first, so that fewer copies exist at a time
    document = codec.to_document(attempt, redacts=True)
    text = _json(document["candidate"].pop("text", None))
    if text == value_json:
        text = ""  # a candidate that is a text is stored once, as the value
    return {
        "number": attempt.number,
        "record": _json(document),
        "text": text,
        "value": value_json,
    }


def _changes(entry: JournalEntry) -> dict[str, str]:
    """Return the columns of its loop that an entry changes, besides the state.

    What an entry does not set stays as it is.
    """
    changes = {}
    if entry.extra is not None:
        changes["extra"] = dump_record(entry.extra)
    if entry.cancelled:
        changes["cancelled"] = storable(entry.cancelled)
    if entry.ladder is not None:
        changes["ladder"] = dump_record(entry.ladder)
    return changes
