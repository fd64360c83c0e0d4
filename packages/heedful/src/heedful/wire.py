"""Codes of errors, shapes of records, pages of lists, and a loop as JSON.

The service, its client and `--json` share them. A record is declared once, as a
dataclass of the library, and the service sends it as JSON. Where this JSON differs from
the dataclass, `Shape` declares how.
"""

from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict
from typing import Annotated, Any, Generic, Self, TypeVar, get_type_hints

from pydantic import BaseModel, GetCoreSchemaHandler, PlainSerializer
from pydantic_core import core_schema

from heedful import errors
from heedful.errors import HeedfulError
from heedful.lessons.scope import Scope, name_scope
from heedful.loop import codec, decide
from heedful.loop.explain import Explanation
from heedful.loop.ladder import figure_ladders
from heedful.loop.record import Loop
from heedful.store.loop_notes import LoopNote
from heedful.store.records import StoredLoop
from heedful.validation import Document, Fields

# Error class -> the HTTP status and the code in the problem. A class that is missing
# here has the status and code of its nearest base class.
ERROR_RESPONSES: Mapping[type[HeedfulError], tuple[int, str]] = {
    errors.HeedfulError: (500, "internal_error"),
    errors.UsageError: (422, "invalid_request"),
    errors.InvalidInput: (422, "invalid_input"),
    errors.UnknownName: (422, "unknown_name"),
    errors.PackageMissing: (501, "package_missing"),
    errors.TraceFileError: (422, "invalid_traces"),
    errors.OverrideRefused: (409, "override_refused"),
    errors.NotQuarantined: (409, "not_quarantined"),
    errors.RollbackRefused: (409, "rollback_refused"),
    errors.Changed: (412, "changed"),
    errors.QuotaExceeded: (409, "quota_exceeded"),
    errors.LoopTooLarge: (413, "loop_too_large"),
    errors.Conflict: (409, "conflict"),
    errors.AttemptTaken: (409, "attempt_conflict"),
    errors.LoopEnded: (409, "loop_ended"),
    errors.OutOfOrder: (409, "attempt_out_of_order"),
    errors.AccessDenied: (403, "access_denied"),
    errors.KeyRefused: (401, "key_refused"),
    errors.Forbidden: (403, "forbidden"),
    errors.TenantMismatch: (403, "tenant_mismatch"),
    errors.NotFound: (404, "not_found"),
    errors.UserCodeError: (500, "user_code_failed"),
    errors.CheckFailed: (500, "check_failed"),
    errors.NotJournalable: (422, "not_journalable"),
    errors.StoreError: (500, "store_error"),
    errors.StoreUnavailable: (503, "store_unavailable"),
    errors.StoreCorrupt: (500, "store_corrupt"),
    errors.StoreOlder: (503, "store_older"),
    errors.StoreInDoubt: (503, "store_in_doubt"),
    errors.LeaseLost: (409, "at_work"),
    errors.ModelError: (502, "model_error"),
    errors.ModelUnavailable: (503, "model_unavailable"),
    errors.ModelTimeout: (504, "model_timeout"),
    errors.MalformedAnswer: (502, "malformed_answer"),
    errors.PromptTooLong: (422, "prompt_too_long"),
}

# The scope of the request that is answered, for the commands in its answer.
ANSWERED_SCOPE: ContextVar[Scope] = ContextVar("heedful_answered")


def _with_scope(text: str) -> str:
    """Return a text whose commands name the scope of the request that is answered."""
    return name_scope(text, ANSWERED_SCOPE.get(Scope()))


# A text of an answer that may have commands, which an operator runs anywhere.
CommandText = Annotated[str, PlainSerializer(_with_scope)]


class Shape:
    """Changes how a record is sent: `Annotated[Key, Shape(also={"shown": "key"})]`.

    Fields in `omit` are not sent. Properties in `also` are sent too, under the names to
    which it maps them. `names` maps fields to the names under which they are sent.
    `types` gives fields and properties a narrower type, such as a bounded number.
    """

    def __init__(
        self,
        omit: Collection[str] = (),
        also: Mapping[str, str] | None = None,
        names: Mapping[str, str] | None = None,
        **types: Any,
    ) -> None:
        self._omit = omit
        self._also = also or {}
        self._names = names or {}
        self._types = types

    def __get_pydantic_core_schema__(
        self, record: Any, handler: GetCoreSchemaHandler
    ) -> Any:
        """Return pydantic's schema of the record, changed as this Shape declares."""
        record_schema = dict(handler.resolve_ref_schema(handler(record)))
        del record_schema["ref"]  # the unchanged record has this name

        properties = []
        for name, alias in self._also.items():
            kind = self._types.get(name)
            if kind is None:
                kind = get_type_hints(getattr(record, name).fget)["return"]
            properties.append(
                core_schema.computed_field(
                    name, handler.generate_schema(kind), alias=alias
                )
            )

        arguments = dict(record_schema["schema"])
        arguments["fields"] = [
            self._field(field, handler) for field in arguments["fields"]
        ]
        arguments["computed_fields"] = properties
        return {**record_schema, "schema": arguments}

    def _field(self, field: Any, handler: GetCoreSchemaHandler) -> Any:
        """Return pydantic's schema of a field, changed as this Shape declares."""
        name = field["name"]
        if name in self._omit:
            return {**field, "serialization_exclude": True}
        if name in self._names:
            field = {**field, "serialization_alias": self._names[name]}
        if name not in self._types:
            return field

        kind = handler.generate_schema(self._types[name])
        # A field with a default keeps it, around the schema of its narrower type.
        if field["schema"]["type"] == "default":
            kind = {**field["schema"], "schema": kind}
        return {**field, "schema": kind}


def lesson_from_wire(plain: Fields) -> Document:
    """Return the fields of a lesson, a match or a known failure that was sent.

    The id of a lesson that was found is sent as its `reflection`.
    """
    lesson = dict(plain)
    if "reflection" in lesson:
        lesson["lesson_id"] = lesson.pop("reflection")
    return lesson


Row = TypeVar("Row")


def split_page(rows: Sequence[Any], limit: int, name: str) -> tuple[list[Any], Any]:
    """Return the first `limit` rows, and the cursor of the next page; None at the end.

    The cursor is the field `name` of the last of these rows.
    """
    if len(rows) <= limit:
        return list(rows), None

    last = rows[limit - 1]
    cursor = last[name] if isinstance(last, Mapping) else getattr(last, name)
    return list(rows[:limit]), cursor


class Page(BaseModel, Generic[Row]):
    """One page of a list; `next` is the cursor of the next page, or null on the last
    page.
    """

    items: list[Row]
    next: str | None

    @classmethod
    def of(cls, rows: Sequence[Any], limit: int, name: str) -> Self:
        """Return the first `limit` rows; the cursor is the last row's field `name`."""
        items, cursor = split_page(rows, limit, name)
        return cls(items=items, next=None if cursor is None else str(cursor))


def loop_verdict(
    verdict: decide.Verdict,
    loop: Loop,
    evaluated_by: Sequence[str] = (),
    release: str = "",
) -> Document:
    """Return a verdict: make another attempt (`again`, with `feedback`) or stop
    (`done`).

    `attempt` is the number of attempts so far, `best` is the number of the best
    attempt. `lifted` are rules that an override suspended; `override` is an index in
    the loop's list of overrides. `evaluated_by` names the checks that judged the
    attempt, and `report` if the report contained an evaluation. `release` is the
    command that releases the lessons of the loop that wait.
    """
    # A stored verdict leaves out what is empty, and an answer has it.
    facts = {
        "passed": False,
        "stopped_by": [],
        "reasons": [],
        "feedback": "",
        "lifted": [],
        "rung": 0 if isinstance(verdict, decide.Done) else verdict.rung,
        "climbed": [],
        **codec.verdict_answer(verdict),
    }
    decision = facts.pop("verdict")
    return {
        "decision": decision,
        **facts,
        "attempt": len(loop.attempts),
        "best": loop.best,
        "state": decide.state_after(verdict),
        "evaluated_by": list(evaluated_by),
        "release": release,
    }


def loop_record(
    stored: StoredLoop,
    notes: Sequence[LoopNote],
) -> Document:
    """Return a loop with its attempts (`made`), its decisions, and its latest verdict.

    The `output` of an attempt is null if only its digest is stored. A decision has the
    fatigue of the loop at that time, and the code of the reason. `notes` are what
    persons wrote about it. The `prompt` of the `briefing` is the whole text that memory
    showed; it is "" for a key without the permission `read`.
    """
    loop = stored.loop

    attempts = []
    for attempt, output in zip(loop.attempts, stored.values, strict=True):
        row = codec.to_document(attempt)
        attempts.append({**row, "digest": attempt.candidate.digest, "output": output})

    briefing = None
    if stored.briefing is not None:
        briefing = {**stored.briefing.plain(), "prompt": stored.briefing.prompt}
    # Each decision has its reason, and the fatigue that it saw.
    steps = decide.reasoning(loop, stored.decisions)
    decisions = [
        {
            "attempt": decision.attempt,
            "verdict": codec.verdict_answer(decision.verdict),
            "reason": step.reason,
            **asdict(decision.standing),
            "at": decision.at,
        }
        for decision, step in zip(stored.decisions, steps, strict=True)
    ]
    return {
        **stored.summary(),
        **stored.head.plain(),
        "rungs": [] if loop.ladder is None else list(loop.ladder.names),
        "usage_by_rung": list(map(asdict, figure_ladders([loop.climb()]).rungs)),
        "usage": codec.to_document(loop.usage),
        "cancelled": loop.cancelled,
        "made": attempts,
        "decisions": decisions,
        "overrides": [asdict(override) for override in loop.overrides],
        "notes": [asdict(note) for note in notes],
        "briefing": briefing,
        "verdict": loop_verdict(stored.verdict, loop),
    }


def explanation_record(why: Explanation) -> Document:
    """Return why a loop continued and why it stopped, as a text and in parts."""
    return {
        "sentence": why.sentence,
        "text": str(why),
        "lines": why.lines,
        "would_change": list(map(str, why.would_change)),
        "otherwise": why.otherwise,
        "closed": why.closed,
    }
