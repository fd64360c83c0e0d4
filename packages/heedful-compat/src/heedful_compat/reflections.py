"""Generate, store and query reflections, with the names and results of earlier systems.

A reflection and its strategy are two lessons here; an earlier system's answer has both
in one record. A record that `generate_reflection` made keeps its lessons with it, so
that storing it keeps their origin. Any other record has an unknown author.
"""

import asyncio
import copy
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum, StrEnum
from functools import partial
from typing import Any, Literal
from uuid import UUID

from heedful.episodes.episode import Episode, EventType, Limits, safe_id
from heedful.episodes.readers.heedful import EpisodeReader
from heedful.errors import InvalidInput
from heedful.lessons.lesson import (
    EPISODE_LESSON_KINDS,
    Example,
    Lesson,
    LessonRun,
    Match,
    Scope,
    claimed_importance,
)
from heedful.lessons.scope import short_digest
from heedful.lessons.signature import signature, strategy_signature
from heedful.loop.runs import iso
from heedful.memory.draft import OUTCOME_PROMPTS, Score, by_outcome
from heedful.memory.memory import Memory, open_memory
from heedful.memory.reflect import Reflected, keep, reflect
from heedful.memory.run_records import strategy_importance
from heedful.models.contract import Model
from heedful.models.function import Function
from heedful.redact import redact
from heedful.store import DEFAULT_DATABASE_FILE
from heedful.store.store import Store
from heedful.validation import (
    MAX_STORED_TEXT_CHARS,
    Document,
    Fields,
    as_float,
    as_integer,
    check_integer,
    check_share,
    check_texts,
    require,
)
from heedful_compat.answers import Record, Records
from heedful_compat.completions import Judge
from heedful_compat.lesson_words import earlier_state, read_trust

# As seconds since 1970, it is the year 10000; as milliseconds, it is 1978.
MIN_MILLISECONDS = 253_402_300_800
# What holds the lessons; a store or its name has a memory in each scope.
MemoryStore = Memory | Store | str
Id = str | UUID


# Plain text is taken where a member is; error categories, as event types, are an open
# list.
class OutcomeType(StrEnum):
    """How a run ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    PARTIAL = "partial"
    TIMEOUT = "timeout"
    ERROR = "error"


class ErrorCategory(StrEnum):
    """The kind of an error; any other text makes a category of its own."""

    TIMEOUT_ERROR = "timeout_error"
    TOOL_ERROR = "tool_error"
    NETWORK_ERROR = "network_error"
    PERMISSION_ERROR = "permission_error"
    VALIDATION_ERROR = "validation_error"
    UNKNOWN_ERROR = "unknown_error"

    @classmethod
    def _missing_(cls, value: object) -> "ErrorCategory | None":
        """Return the category of a text that no member has."""
        if not isinstance(value, str):
            return None
        category = str.__new__(cls, value)
        category._name_ = value.upper()
        category._value_ = value
        return category


@dataclass
class Event(Record):
    """One event of a run, of any type; `error` has a message and a code."""

    event_id: str
    event_type: EventType | str
    timestamp: Any
    content: Any
    metadata: Document | None = None
    tool_name: str | None = None
    error: Any = None


@dataclass
class ErrorInfo(Record):
    """The error of a run, of any category."""

    error_category: str
    error_message: str
    context: Any = None


@dataclass
class ReflectionContext(Record):
    """A finished run to reflect on. Its events and its error may also be mappings."""

    events: Sequence[Event | Fields]
    outcome: str
    tenant_id: str
    project_id: str
    session_id: str | None = None
    error: ErrorInfo | Fields | None = None
    task_description: str | None = None
    task_goal: str | None = None
    related_memory_ids: Sequence[str] | None = None


@dataclass
class ReflectionResult(Record):
    """The lesson and the strategy of a run; `importance` and `confidence` are in 0..1.

    Both are the author's; `heedful_importance` is heedful's own. `dropped` lists the
    sentences of a model with what the run lacks: each `text`, its `part` and its
    `unsupported` words. `model_error` says why rules wrote the texts and not the model.
    If the lessons wait, `hint` is the command that states their sources.
    """

    reflection_text: str
    strategy_text: str | None = None
    importance: float = 0.5
    confidence: float = 0.5
    tags: Sequence[str] | None = None
    error_category: str | None = None
    source_event_ids: Sequence[str] | None = None
    related_memory_ids: Sequence[str] | None = None
    metadata: Document | None = None
    generated_at: str | None = None
    reflection_id: str | None = None
    strategy_id: str | None = None
    state: str | None = None
    trust: str | None = None
    release: str | None = None
    heedful_importance: float | None = None
    dropped: Sequence[Fields] | None = None
    model_error: str | None = None
    hint: str | None = None


class GeneratedReflection(ReflectionResult):
    """The answer of `generate_reflection`; `reflected` has the lessons.

    `episode` is the run that they are drawn from. A copy that `dataclasses.replace`
    makes has none of them: its author is unknown.
    """

    reflected: Reflected | None = None
    episode: Episode | None = None

    @classmethod
    def of(cls, reflected: Reflected, episode: Episode) -> "GeneratedReflection":
        """Return the answer about the lessons of an episode."""
        lesson = lesson_of(reflected)
        strategy = reflected.strategy
        run = run_of(lesson)
        category = run.error_category
        answer = cls(
            reflection_text=lesson.text,
            strategy_text=strategy.text if strategy else None,
            importance=reflected.importance,
            confidence=reflected.confidence,
            tags=list(lesson.tags),
            error_category=ErrorCategory(category) if category else None,
            source_event_ids=list(run.cited_events),
            related_memory_ids=list(run.related),
            metadata=_run_metadata(run, lesson.example),
            generated_at=iso(time.time()),
            reflection_id=lesson.signature.digest,
            strategy_id=strategy.signature.digest if strategy else None,
            heedful_importance=lesson.importance,
            dropped=[
                {**asdict(claim), "why": claim.why} for claim in reflected.dropped
            ],
            model_error=redact(reflected.error) or None,
        )
        answer.reflected = reflected
        answer.episode = episode
        return answer


async def generate_reflection(
    context: ReflectionContext | Fields,
    *,
    store: MemoryStore = DEFAULT_DATABASE_FILE,
    model: Judge | None = None,
    prompts: Mapping[str, str] = OUTCOME_PROMPTS,
    score: Score = by_outcome,
    trust: str = "",
    on_model_error: Literal["keep", "raise"] = "keep",
    keys: Sequence[str] = (),
    quotes_memory: bool = True,
) -> GeneratedReflection:
    """Return the lesson of a run, without storing it.

    A failure that is already known is not sent to the model: the answer has the stored
    words. Equal failures have equal ids. Without a strategy, `strategy_id` and
    `strategy_text` are None; without an error, `error_category` is None. `trust` is the
    origin of the run, by default that of the memory: "user", "local" or "outside", or a
    word of earlier systems. `trust`, `prompts`, `score`, `on_model_error`, `keys` and
    `quotes_memory` are arguments of `reflect`. A `model` may be a function of the
    messages. Raises InvalidInput, ModelError, StoreError.
    """
    context = await asyncio.to_thread(_as_data, context)
    (episode,) = EpisodeReader(Limits()).add(context)

    for name in ("tenant_id", "project_id"):
        require(isinstance(context.get(name), str), name, context.get(name), "a text")
    related = context.get("related_memory_ids") or []
    require(isinstance(related, list), "related_memory_ids", related, "a list of ids")

    if callable(model) and not isinstance(model, Model):
        model = Function(model)

    memory = _memory(store, context["tenant_id"], context["project_id"])
    reflected = await reflect(
        episode,
        memory=memory,
        model=model,
        prompts=prompts,
        score=score,
        origin=read_trust(trust) if trust else None,
        on_model_error=on_model_error,
        store=False,
        related=[str(id) for id in related],
        keys=keys,
        of_quiet_runs=True,
        quotes_memory=quotes_memory,
    )
    if reflected is None:
        raise InvalidInput("events", [], "at least one event, or an error")

    return GeneratedReflection.of(reflected, episode)


async def store_reflection(
    result: ReflectionResult | Fields,
    tenant_id: Id,
    project_id: Id,
    session_id: Id | None = None,
    *,
    store: MemoryStore = DEFAULT_DATABASE_FILE,
) -> dict[str, str | None]:
    """Store a generated reflection; return its lessons' ids, `state` and `trust`.

    If you have changed the `importance`, `confidence`, `tags`, `error_category` or
    another field, the new value is stored. If the lessons wait in quarantine, `release`
    is the command that releases them. Storing a reflection twice adds nothing. A result
    has the origin "outside", because its author is unknown, if `generate_reflection`
    did not make it, or if its texts were changed later. Raises InvalidInput,
    QuotaExceeded, StoreError.
    """
    memory = _memory(store, tenant_id, project_id)
    return await keep_reflection(result, memory, session_id)


async def keep_reflection(
    result: ReflectionResult | Fields,
    memory: Memory,
    session_id: Id | None = None,
) -> dict[str, str | None]:
    """Store a reflection as `store_reflection` does; return the same answer."""
    # A run has one reflection and one strategy here.
    reflected = replace(_reflected(result), others=())
    if session_id is not None:
        session = safe_id(id_text("session_id", session_id))
        reflected = _edited(
            reflected,
            lambda lesson: replace(
                lesson, run=replace(run_of(lesson), session=session)
            ),
        )

    reflected = replace(reflected, stored=await keep(reflected, memory))
    strategy = reflected.strategy

    return {
        "reflection_id": lesson_of(reflected).signature.digest,
        "strategy_id": strategy.signature.digest if strategy else None,
        "state": earlier_state(reflected.state),
        "trust": reflected.trust,
        "release": reflected.release,
        "hint": reflected.hint,
    }


def lesson_of(reflected: Reflected) -> Lesson:
    """Return the reflection: these functions write one about every run."""
    assert reflected.lesson is not None
    return reflected.lesson


def run_of(lesson: Lesson | Match) -> LessonRun:
    """Return the run of a lesson; an unknown one if it was drawn from none."""
    return lesson.run or LessonRun(by="caller")


def _run_metadata(run: LessonRun, example: Example | None) -> Document:
    """Return what the metadata of a record say about its run."""
    return {
        "outcome": run.outcome,
        "task_description": example.task if example else "",
        "event_count": run.events,
        "session_id": run.session,
    }


def id_text(name: str, id: object) -> str:
    """Return an id as text; it may be a UUID. Raises InvalidInput for other values."""
    require(isinstance(id, Id), name, id, "a text or a UUID")
    return str(id)


def _edited(reflected: Reflected, edit: Callable[[Lesson], Lesson]) -> Reflected:
    """Return the lessons of a result, each edited by a function."""
    strategy = reflected.strategy and edit(reflected.strategy)
    return replace(reflected, lesson=edit(lesson_of(reflected)), strategy=strategy)


def _with_changes(generated: Reflected, fields: ReflectionResult) -> Reflected:
    """Return heedful's lessons with the fields of a result as the caller left them.

    The strategy keeps the tag `strategy`. A changed importance counts instead of
    heedful's. Raises InvalidInput.
    """
    is_tagged = list(fields.tags or ()) != list(lesson_of(generated).tags)
    is_rated = fields.importance != generated.importance

    def edit(lesson: Lesson) -> Lesson:
        is_strategy = lesson.kind == "strategy"
        lesson = _with_fields(lesson, fields)
        if is_tagged:
            tags = _checked_tags(fields)
            own_tags = _strategy_tags(tags) if is_strategy else tags
            lesson = replace(lesson, tags=own_tags)
        if is_rated:
            importance = fields.importance
            weight = strategy_importance(importance) if is_strategy else importance
            run = replace(run_of(lesson), rated=None)
            lesson = replace(lesson, run=run, importance=weight)
        return lesson

    return _edited(generated, edit)


def _reflected(result: ReflectionResult | Fields) -> Reflected:
    """Return the lessons of a result.

    If heedful made the result and its texts are unchanged, they are heedful's lessons
    with the other fields as they are now. Else they are new lessons of an unknown
    author. Raises InvalidInput.
    """
    fields = _fields_of(result)
    generated = getattr(result, "reflected", None)
    if isinstance(generated, Reflected):
        strategy_text = generated.strategy.text if generated.strategy else None
        same_lesson = lesson_of(generated).text == fields.reflection_text
        if same_lesson and strategy_text == fields.strategy_text:
            return _with_changes(generated, fields)

    return _reflected_by_caller(fields)


def _fields_of(result: object) -> ReflectionResult:
    """Return the checked fields of a result, a mapping or an object.

    Raises InvalidInput.
    """
    mapping = ReflectionResult.fields_in(result)
    allowed = "a ReflectionResult, or a mapping or an object with its fields"
    require("reflection_text" in mapping, "result", result, allowed)

    fields = ReflectionResult(**mapping)
    for name in ("importance", "confidence"):
        setattr(fields, name, as_float(getattr(fields, name)))
        check_share(name, getattr(fields, name))
    for name in ("tags", "source_event_ids", "related_memory_ids"):
        values = getattr(fields, name) or ()
        is_list = isinstance(values, Iterable) and not isinstance(values, str | Mapping)
        require(is_list, name, values, "a list of texts")
        setattr(fields, name, [*values])

    check_texts(
        reflection_text=fields.reflection_text,
        strategy_text=fields.strategy_text or "",
        error_category=fields.error_category or "",
    )
    is_said = fields.reflection_text.strip()
    require(is_said, "reflection_text", fields.reflection_text, "a text, not empty")
    fields.metadata = _json_mapping("metadata", fields.metadata or {}, "a mapping")
    return fields


def _with_fields(lesson: Lesson, fields: ReflectionResult) -> Lesson:
    """Return a lesson with the fields of a result.

    Metadata that differ from those of the run are data of the caller. Raises
    InvalidInput.
    """
    run = run_of(lesson)
    known = _run_metadata(run, lesson.example)
    metadata = {
        name: value
        for name, value in (fields.metadata or {}).items()
        if name not in known or known[name] != value
    }
    run = replace(
        run,
        confidence=fields.confidence,
        error_category=str(fields.error_category or ""),
        cited_events=tuple(map(str, fields.source_event_ids or ())),
        related=tuple(map(str, fields.related_memory_ids or ())),
    )
    return replace(lesson, run=run, data=metadata)


def _checked_tags(fields: ReflectionResult) -> tuple[str, ...]:
    """Return the tags of a result, each once. Raises InvalidInput."""
    tags = tuple(dict.fromkeys(fields.tags or ()))
    are_texts = all(isinstance(tag, str) and tag.strip() for tag in tags)
    require(are_texts, "tags", fields.tags, "texts that are not empty")
    return tags


def _strategy_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags of the strategy of a reflection with these tags."""
    return tuple(dict.fromkeys((*tags, "strategy")))


def _reflected_by_caller(fields: ReflectionResult) -> Reflected:
    """Make the lessons of texts whose author is unknown. Raises InvalidInput."""
    text = redact(fields.reflection_text)
    pattern = signature(str(fields.error_category or "reflection"), text)
    text = text[:MAX_STORED_TEXT_CHARS]

    run = LessonRun(
        by="caller",
        outcome="failure",
        episode=short_digest(f"{fields.reflection_text}\0{fields.strategy_text}"),
    )
    lesson = Lesson(
        "reflection",
        pattern,
        error_type=pattern.error_type,
        text=text,
        sighting=text,
        trust="outside",
        importance=fields.importance,
        tags=_checked_tags(fields),
        evidence="failed run",
        run=run,
        state="quarantined",
    )
    lesson = _with_fields(lesson, fields)

    if not fields.strategy_text:
        return Reflected(lesson, strategy=None)

    text = redact(fields.strategy_text)[:MAX_STORED_TEXT_CHARS]
    strategy = replace(
        lesson,
        kind="strategy",
        signature=strategy_signature(pattern),
        text=text,
        sighting=text,
        importance=strategy_importance(lesson.importance),
        tags=_strategy_tags(lesson.tags),
    )
    return Reflected(lesson, strategy)


async def query_reflections(
    tenant_id: Id,
    project_id: Id,
    query_text: str | None = None,
    k: int = 5,
    min_importance: float = 0.5,
    tags: Sequence[str] | None = None,
    match: Literal["any", "all"] = "any",
    *,
    store: MemoryStore = DEFAULT_DATABASE_FILE,
    waiting: bool = True,
) -> Records:
    """Return at most `k` reflections and strategies for a query, best first.

    If there are none, `silence` of the list says why the nearest is missing. Without
    `query_text`, return the most important lessons. With `tags`, a lesson needs any of
    them, or all of them with `match="all"`; lessons that only have the tags come after
    those that fit the text. Lessons in quarantine are returned, too, unless `waiting`
    is False; their `state` marks them, and `release` is the command that releases them.
    Never put them into a prompt. `importance` and `confidence` of a record are those of
    its author, `heedful_importance` is heedful's own. Raises InvalidInput, StoreError.
    """
    k = as_integer(k)
    check_integer("k", k)
    check_share("min_importance", min_importance)
    check_texts(query_text=query_text or "")

    memory = _memory(store, tenant_id, project_id)
    matches = await memory.query(
        query_text or "",
        k,
        tags=tags or (),
        match=match,
        importance=min_importance,
        kind=EPISODE_LESSON_KINDS,
        reviews=waiting,
    )
    return Records(map(_record_of, matches), silence=matches.silence)


def _record_of(match: Match) -> Document:
    """Return a lesson with the fields of earlier systems."""
    run = run_of(match)

    return {
        "reflection_id": match.signature,
        "kind": "strategy" if match.kind == "strategy" else "reflection",
        "content": match.lesson,
        "reflection_text": match.lesson,
        "importance": claimed_importance(match),
        "heedful_importance": match.importance,
        "confidence": run.confidence,
        "tags": list(match.tags),
        "error_category": run.error_category or None,
        "source_event_ids": list(run.cited_events),
        "related_memory_ids": list(run.related),
        "metadata": {**_run_metadata(run, match.example), **match.data},
        "source": "reflection_engine_v2",
        "layer": "rm",
        "state": earlier_state(match.state),
        "trust": match.trust,
        "release": match.release,
        "model_error": run.model_error or None,
        "generated_at": iso(match.at),
    }


class Reflector:
    """The three functions of this module as methods, with one store and one model.

    They are `generate_reflection`, `store_reflection` and `query_reflections`.
    `prompts` is a mapping with `failure`, `success` or `partial`. `score(draft,
    episode)` returns the importance, 0..1. A `memory_repository` is used instead of
    `store`. `trust` is the origin of the runs. Raises InvalidInput.
    """

    def __init__(
        self,
        store: MemoryStore = DEFAULT_DATABASE_FILE,
        model: Judge | None = None,
        memory_repository: Memory | None = None,
        prompts: Mapping[str, str] | None = None,
        score: Score | None = None,
        *,
        trust: str = "",
    ) -> None:
        repository = store if memory_repository is None else memory_repository
        if not isinstance(repository, MemoryStore):
            name = "store" if repository is store else "memory_repository"
            allowed = "a Memory, a Store, or the name of a store"
            raise InvalidInput(name, repository, allowed)

        self.generate_reflection = partial(
            generate_reflection,
            store=repository,
            model=model,
            prompts=prompts or OUTCOME_PROMPTS,
            score=score or by_outcome,
            trust=trust,
        )
        self.store_reflection = partial(store_reflection, store=repository)
        self.query_reflections = partial(query_reflections, store=repository)


# The names of earlier systems.
ReflectionEngine = Reflector
ReflectionEngineV2 = Reflector


def _memory(store: MemoryStore, tenant: Id, project: Id) -> Memory:
    """Return the memory of this scope.

    If `store` is a Memory of another scope, the new one has its store and settings.
    """
    scope = Scope(id_text("tenant_id", tenant), id_text("project_id", project))
    if isinstance(store, Memory):
        memory = copy.copy(store)
        memory.scope = scope
        # The job of a host embeds what its own scope stores.
        memory.later = None
        return memory
    return open_memory(store, scope)


def _as_data(context: Any) -> Fields:
    """Return a run as JSON data; values that JSON cannot hold become text.

    Raises InvalidInput.
    """
    value = _json_mapping("context", context, "a ReflectionContext, or a mapping")
    if isinstance(value.get("events"), list):
        value["events"] = [_plain_event(event) for event in value["events"]]
    return value


def _json_mapping(name: str, value: Any, allowed: str) -> Document:
    """Return a mapping as JSON data; values that JSON cannot hold become text.

    Raises InvalidInput.
    """
    kind = type(value).__name__
    try:
        data = json.loads(json.dumps(value, default=_fields_or_text))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(name, kind, "data that JSON can hold") from error

    if not isinstance(data, dict):
        raise InvalidInput(name, kind, allowed)
    return data


def _plain_event(event: Any) -> Any:
    """Return an event with its time in seconds, and its tool.

    JavaScript counts milliseconds, and earlier systems noted the tool in the metadata.
    """
    if not isinstance(event, dict):
        return event

    for name in ("timestamp", "at"):
        moment = event.get(name)
        if isinstance(moment, int | float) and moment >= MIN_MILLISECONDS:
            event[name] = moment / 1_000

    metadata = event.get("metadata")
    if isinstance(metadata, dict) and not event.get("tool_name"):
        tool = metadata.get("tool")
        if isinstance(tool, str) and tool:
            event["tool_name"] = tool
    return event


def _fields_or_text(value: Any) -> Any:
    """Return the fields of an object, without those that are None, or else its text.

    A generator, a set and the like become a list.
    """
    if isinstance(value, Enum):
        return str(value.value)

    fields = value if isinstance(value, Mapping) else getattr(value, "__dict__", None)
    if fields:
        return {name: field for name, field in fields.items() if field is not None}
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray):
        return list(value)
    return str(value)
