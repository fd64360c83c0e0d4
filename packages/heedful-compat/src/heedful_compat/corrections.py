"""Remember the errors that an agent corrected, with the names of earlier systems.

A caller finds an error by its exact signature, which is a tag of the lesson. The memory
is heedful's, or another system's object with the same two coroutines. The words of a
judge decide what went wrong: a conflict, an unverified claim, a factual error, or an
answer that got better. Only a quality that rose verifies a lesson.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from inspect import isawaitable
from typing import Any, Self

from heedful.errors import InvalidInput
from heedful.lessons.lesson import Example, Lesson, Remembered
from heedful.lessons.scope import State
from heedful.lessons.signature import CLAIM_ERROR_TYPES, signature
from heedful.loop.record import thousandths
from heedful.memory.memory import Memory
from heedful.redact import redact
from heedful.store import editions
from heedful.validation import (
    MAX_SCORE,
    MAX_SHOWN_LINE_CHARS,
    MAX_SHOWN_ROWS,
    MAX_STORED_TEXT_CHARS,
    Document,
    Fields,
    as_float,
    as_integer,
    check_integer,
    check_number,
    check_sequence,
    check_share,
    check_texts,
    require,
)
from heedful_compat.answers import Record
from heedful_compat.lesson_words import earlier_state

# A quality, 0..1 or on any other scale, must rise by more than this to count as better.
MIN_QUALITY_RISE = 0.1
# The word that earlier systems put in place of an empty text.
UNKNOWN_DETAIL = "Unknown"
_VERIFICATION_FORM = "results, each a mapping with a status"


# The status of a verification's result -> the error type, the beginning of the lesson's
# text, the key of the detail in the result, and the most characters of the detail. The
# first status in this order that occurs counts.
_STATUS_ERRORS = (
    (
        "conflict",
        "conflict",
        "Detected conflict: ",
        "conflict_reason",
        MAX_STORED_TEXT_CHARS,
    ),
    (
        "unverified",
        "unverified_claim",
        "Made unverified claim about: ",
        "claim_text",
        100,
    ),
)


def as_entry(text: str, tags: Sequence[str], data: Fields) -> Document:
    """Return a lesson with the field names of earlier stores of reflections."""
    context = data["reflection_context"][:100]
    return {
        "content": text,
        "rationale": f"Self-correction during: {context}",
        "category": "reflection",
        "tags": list(tags),
        "context": dict(data),
    }


def _verification_results(
    verification: Sequence[Fields] | None,
) -> Sequence[Fields]:
    """Return the results of a verification. Raises InvalidInput for other data."""
    results = () if verification is None else verification
    form = f"a sequence of {_VERIFICATION_FORM}"
    check_sequence("verification", results, object, form)

    for number, result in enumerate(results):
        if not isinstance(result, Mapping) or not isinstance(result.get("status"), str):
            raise InvalidInput(
                f"verification[{number}]", result, f"one of {_VERIFICATION_FORM}"
            )

    return results


def _judged_error(
    critique: str, results: Sequence[Fields], rise: float
) -> tuple[str, str] | None:
    """Return the type and the text of the error that an evaluation names, or None.

    `rise` is by how much the quality rose.
    """
    for status, error_type, beginning, key, most in _STATUS_ERRORS:
        for result in results:
            if result["status"] == status:
                detail = _redacted(key, result.get(key))[:most]
                return error_type, beginning + (detail or UNKNOWN_DETAIL)

    if "CONFLICTS" in critique:
        return "factual_error", critique[:200]

    if rise > MIN_QUALITY_RISE:
        detail = critique[:150] or UNKNOWN_DETAIL
        return "quality_improvement", f"Quality improved by {rise:.2f}: {detail}"

    return None


def _redacted(field: str, value: object) -> str:
    """Return a text without its secrets; "" for None or a blank text.

    Raises InvalidInput.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidInput(field, value, "a text")
    return redact(value) if value.strip() else ""


def _rise(before: float | None, after: float | None) -> float:
    """Return by how much a quality rose, in whole thousandths; 0 if it is unknown.

    Raises InvalidInput.
    """
    qualities = []
    for when, value in (("before", before), ("after", after)):
        if value is not None:
            quality = as_float(value)
            check_number(f"quality_{when}", quality, -MAX_SCORE, MAX_SCORE)
            qualities.append(thousandths(quality))
    if len(qualities) < 2:
        return 0.0
    return (qualities[1] - qualities[0]) / 1000


# From this cosine on, two lessons may be merged.
MERGE_COSINE = 0.85
_log = logging.getLogger("heedful")


@dataclass(slots=True)
class Reflection(Record):
    """The lesson of one self-correction; callers may change its fields.

    `error_signature` identifies the error. `context` describes the work during which it
    occurred. `iteration` counts from 0. `quality_delta` is the quality after minus the
    quality before.
    """

    error_type: str
    error_signature: str
    content: str
    context: str
    query: str
    iteration: int
    quality_delta: float


def compute_error_signature(error_type: str, content: str) -> str:
    """Return the signature of an error: 16 hex digits that are the same for equal ones.

    They are the first digits of the SHA-256 of the type, ":", and the content in lower
    case without blanks around it.
    """
    check_texts(error_type=error_type, content=content)
    return signature(error_type, content).exact


def create_reflection_from_evaluation(
    critique: str | None,
    verification_results: Sequence[Fields] | None,
    query: str | None,
    context: str | None,
    iteration: int,
    quality_before: float | None,
    quality_after: float | None,
) -> Reflection | None:
    """Return the lesson of an evaluation, or None without a lesson; store nothing.

    The first of these is the error's type: a result of the verification with the
    `status` "conflict" (its `conflict_reason` becomes the text) or "unverified" (its
    `claim_text`), the word CONFLICTS in the critique, a quality that rose by more than
    `MIN_QUALITY_RISE`. Empty texts become "Unknown". Raises InvalidInput.
    """
    critique = _redacted("critique", critique)
    query = _redacted("query", query)
    context = _redacted("context", context)
    iteration = as_integer(iteration)
    check_integer("iteration", iteration, least=0)
    rise = _rise(quality_before, quality_after)

    error = _judged_error(critique, _verification_results(verification_results), rise)
    if error is None:
        return None
    error_type, text = error
    return Reflection(
        error_type=error_type,
        error_signature=signature(error_type, text).exact,
        content=text,
        context=context,
        query=query,
        iteration=iteration,
        quality_delta=rise,
    )


class StoredId(int):
    """The id of a stored lesson, with its state and trust.

    `release` is the command that releases it from quarantine, "" if it is not there.
    """

    state: str
    trust: str
    release: str

    @classmethod
    def of(cls, remembered: Remembered) -> Self:
        """Return the id of what was remembered."""
        id = cls(remembered.id)
        id.state = earlier_state(remembered.state)
        id.trust = remembered.trust
        id.release = remembered.release
        return id


async def persist_reflection(
    reflection: Reflection | Fields | Any,
    memory_manager: Memory | Any,
    changed_behavior: bool,
    similarity_threshold: float = MERGE_COSINE,
) -> Any:
    """Store a reflection that `changed_behavior`, and return its id; else return None.

    `reflection` is a Reflection, or a mapping or an object with its fields.
    `memory_manager` is a Memory, or another system's object with the methods
    `remember(category, content, rationale, tags, context)`, which returns a mapping
    with an "id", and `recall(topic, categories, tags, limit)`, which returns one with
    "memories". The methods may be coroutines or plain functions. Reflections of one
    type with the same signature are one lesson: it is counted and keeps its id. If a
    Memory has an embedder, lessons of the same type with a similarity of at least
    `similarity_threshold` (0..1) are logged. Raises InvalidInput, QuotaExceeded,
    StoreError.
    """
    check_share("similarity_threshold", similarity_threshold)
    if not changed_behavior:
        _log.info("skipped (did not change behaviour)")
        return None

    lesson = _lesson_of(reflection)
    earlier = await _with_signature(
        lesson.data["error_signature"],
        memory_manager,
        limit=1,
        error_type=lesson.error_type,
    )

    if not isinstance(memory_manager, Memory):
        if earlier:
            return earlier[0]["id"]
        entry = as_entry(lesson.text, lesson.tags, lesson.data)
        stored_entry = await _value_of(memory_manager.remember(**entry))
        return stored_entry["id"]

    # With the signature of the earlier lesson, the store counts this one as the same.
    if earlier and earlier[0]["text"]:
        earlier_signature = signature(lesson.error_type, earlier[0]["text"])
        lesson = replace(lesson, signature=earlier_signature)

    remembered = await memory_manager.keep(lesson)
    if remembered.created:
        await _suggest_merge(
            memory_manager, remembered.id, lesson, similarity_threshold
        )
    return StoredId.of(remembered) if remembered.id else None


async def _value_of(answer: Any) -> Any:
    """Return what a method of a memory manager returns, awaited if it is awaitable."""
    return await answer if isawaitable(answer) else answer


def _lesson_of(reflection: Any) -> Lesson:
    """Return the lesson of a reflection without secrets. Raises InvalidInput."""
    values = Reflection.fields_in(reflection)
    allowed = "a Reflection, or a mapping or an object with its fields"
    require(values, "reflection", reflection, allowed)

    texts: dict[str, str] = {}
    for field in fields(Reflection):
        if field.type is str:
            text = values.get(field.name)
            check_texts(**{field.name: text})
            texts[field.name] = redact(str(text))

    iteration: Any = as_integer(values.get("iteration"))
    delta: Any = as_float(values.get("quality_delta"))
    check_integer("iteration", iteration, least=0)
    check_number("quality_delta", delta, -MAX_SCORE, MAX_SCORE)

    error_type = texts["error_type"]
    text = texts["content"]
    query = texts["query"]
    context = texts["context"]
    exact = texts["error_signature"]
    # Only the difference is known.
    example = Example(
        query or text,
        "",
        rejected="",
        wrong=text,
        before={"quality": 0.0},
        after={"quality": float(delta), "iteration": float(iteration)},
        context=context,
    )
    rise = round(float(delta), 3)
    state: State = "unverified"
    if rise > MIN_QUALITY_RISE and error_type not in CLAIM_ERROR_TYPES:
        state = "verified"

    return Lesson(
        "error",
        signature(error_type, text),
        error_type=error_type,
        text=text,
        sighting=text,
        example=example,
        state=state,
        tags=("reflection", "self-correction", error_type, f"sig:{exact}"),
        context=context,
        data={
            "error_signature": exact,
            "original_query": query[:MAX_SHOWN_LINE_CHARS] or UNKNOWN_DETAIL,
            "iteration_count": iteration,
            "quality_improvement": rise,
            "reflection_context": context[:MAX_SHOWN_LINE_CHARS] or UNKNOWN_DETAIL,
        },
    )


async def _suggest_merge(
    memory: Memory, id: int, lesson: Lesson, threshold: float
) -> None:
    """Log each older lesson of this type with a similarity of at least `threshold`."""
    if memory.embedder is None:
        return

    older = await memory.store.read(
        memory.scope,
        editions.list_lessons,
        limit=MAX_SHOWN_ROWS,
        before=id,
        kind="error",
        error_type=lesson.error_type,
    )
    candidates = [row for row in older if row["text"]]
    texts = [lesson.text, *(row["text"] for row in candidates)]
    vector, *vectors = await memory.embedder.embed(texts)

    message = "lesson %d is like lesson %d (%.2f): they may be merged"
    for row, other in zip(candidates, vectors, strict=True):
        cosine = sum(left * right for left, right in zip(vector, other, strict=True))
        if cosine >= threshold:
            _log.info(message, id, row["id"], cosine)


async def retrieve_similar_reflections(
    error_signature: str,
    memory_manager: Memory | Any,
    limit: int = 5,
    error_type: str | None = None,
) -> list[Document]:
    """Return the reflections with this signature, newest first, as mappings.

    The keys are `id`, `content`, `rationale`, `category`, `tags`, `context` (query and
    context, 200 characters of each) and `seen` (the number of sightings). The records
    of another memory manager are returned as they are. Raises InvalidInput, StoreError.
    """
    check_integer("limit", limit)
    rows = await _with_signature(
        error_signature, memory_manager, limit, error_type or ""
    )
    if not isinstance(memory_manager, Memory):
        return [dict(row) for row in rows]

    records = []
    for row in rows:
        entry = as_entry(row["text"], row["tags"], row["data"])
        records.append({"id": row["id"], **entry, "seen": row["seen"]})

    return records


async def has_seen_error_before(
    error_signature: str, memory_manager: Memory | Any
) -> bool:
    """Return whether an error with this signature is stored.

    An error of the store never means "not seen". Raises InvalidInput, StoreError.
    """
    rows = await _with_signature(
        error_signature, memory_manager, limit=1, error_type=""
    )
    return bool(rows)


async def _with_signature(
    exact: str, manager: Memory | Any, limit: int, error_type: str
) -> Sequence[Fields]:
    """Return the lessons with this exact signature, newest first.

    `error_type` is their type, "" for any. Raises InvalidInput, StoreError.
    """
    check_texts(error_signature=exact, error_type=error_type)
    tag = f"sig:{exact}"
    if isinstance(manager, Memory):
        return await manager.store.read(
            manager.scope,
            editions.list_lessons,
            limit=limit,
            kind="error",
            error_type=error_type,
            tag=tag,
        )

    require(
        hasattr(manager, "remember") and hasattr(manager, "recall"),
        "memory_manager",
        manager,
        "a Memory, or one with remember and recall",
    )

    answer = await _value_of(
        manager.recall(
            topic=exact,
            categories=["reflection"],
            tags=[tag],
            limit=max(limit, MAX_SHOWN_ROWS),
        )
    )
    if not isinstance(answer, Mapping) or "memories" not in answer:
        raise InvalidInput(
            "answer of recall", answer, 'a mapping with the list "memories"'
        )

    # Another manager may recall what has only some of the tags.
    tags = {tag}
    if error_type:
        tags.add(error_type)
    matches = [
        memory for memory in answer["memories"] if tags <= set(memory.get("tags") or ())
    ]
    return matches[:limit]
