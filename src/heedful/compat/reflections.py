"""Generate, store and query reflections, with the names and results of earlier systems."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from heedful.errors import InvalidInput
from heedful.lessons.lesson import Match, Scope, State, Trust, check_sequence, check_texts
from heedful.lessons.ranking import PRODUCTS, answer_order, claimed_importance
from heedful.loop.record import check_integer, check_share
from heedful.memory.memory import Memory
from heedful.memory.reflect import Reflected, keep, reflect
from heedful.models.contract import Model
from heedful.store.runs import iso
from heedful.store.store import Store
from heedful.traces.episode import Episode, Limits, safe_id
from heedful.traces.messages import EpisodeReader

SOURCE = "reflection_engine_v2"
LAYER = "rm"
STORE = "heedful.db"
UNKNOWN = {"outcome": "", "task_description": "", "event_count": 0, "session_id": ""}
TRUTHS = dict.fromkeys(("true", "1", "yes", "on"), True)
TRUTHS |= dict.fromkeys(("false", "0", "no", "off"), False)


@dataclass(frozen=True, slots=True)
class Reflections:
    """Settings of a host: whether it reflects, and when it consolidates its memory.

    With `mode` "lite" it consolidates only on demand, with "full" also periodically. The host must
    start reflection and consolidation, because heedful never does so by itself. Raises
    InvalidInput.
    """

    enabled: bool = True
    mode: str = "full"

    def __post_init__(self) -> None:
        if not isinstance(self.enabled, bool):
            raise InvalidInput("enabled", self.enabled, "true or false")
        if self.mode not in ("lite", "full"):
            raise InvalidInput("mode", self.mode, "lite or full")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Reflections:
        """Read HEEDFUL_REFLECTION_ENABLED and HEEDFUL_REFLECTION_MODE from a mapping.

        The older names REFLECTIVE_MEMORY_ENABLED and REFLECTIVE_MEMORY_MODE work, too. Names may be
        in lower case; other names are ignored. Raises InvalidInput.
        """
        known = {str(name).lower(): str(value).strip().lower() for name, value in settings.items()}
        values: dict[str, Any] = {}
        for name in ("enabled", "mode"):
            for key in (f"reflective_memory_{name}", f"heedful_reflection_{name}"):
                values |= {name: known[key]} if key in known else {}
        enabled = values.pop("enabled", True)
        return cls(TRUTHS.get(enabled, enabled), **values)


@dataclass(frozen=True, slots=True)
class RunMetadata:
    """The outcome, task, number of events and session of a run."""

    outcome: str
    task_description: str
    event_count: int
    session_id: str


@dataclass(frozen=True, slots=True)
class ReflectionAnswer:
    """The lesson and the strategy of a run; `importance` and `confidence` are in 0..1."""

    reflection_id: str
    strategy_id: str | None
    reflection_text: str
    strategy_text: str | None
    importance: float
    confidence: float
    tags: list[str]
    error_category: str | None
    source_event_ids: list[str]
    related_memory_ids: list[str]
    metadata: RunMetadata
    generated_at: str


@dataclass(frozen=True, slots=True)
class ReflectionRow:
    """A reflection or a strategy in memory; `content` and `reflection_text` are its text.

    `importance` and `confidence` are those of its author; `heedful_importance` is heedful's own.
    If `state` is "quarantined", it must not be put into a prompt, and the command `release`
    releases it.
    """

    reflection_id: str
    kind: Literal["reflection", "strategy"]
    content: str
    reflection_text: str
    importance: float
    heedful_importance: float
    confidence: float
    tags: list[str]
    error_category: str | None
    source_event_ids: list[str]
    related_memory_ids: list[str]
    metadata: RunMetadata
    source: str
    layer: str
    state: State
    trust: Trust
    release: str
    generated_at: str

    @classmethod
    def of(cls, match: Match) -> ReflectionRow:
        """Return the row of a match."""

        def of(name: str, empty: Any) -> Any:  # an import may contain anything
            value = match.meta.get(name)
            return value if type(value) is type(empty) else empty

        return cls(
            reflection_id=match.signature,
            kind="strategy" if match.kind == "strategy" else "reflection",
            content=match.lesson,
            reflection_text=match.lesson,
            importance=claimed_importance(match),
            heedful_importance=match.importance,
            confidence=of("confidence", 0.5),
            tags=list(match.tags),
            error_category=of("error_category", "") or None,
            source_event_ids=list(map(str, of("source_event_ids", []))),
            related_memory_ids=list(map(str, of("related_memory_ids", []))),
            metadata=RunMetadata(*(of(name, empty) for name, empty in UNKNOWN.items())),
            source=SOURCE,
            layer=LAYER,
            state=match.state,
            trust=match.trust,
            release=match.release,
            generated_at=iso(match.at),
        )


class Generated(dict[str, Any]):
    """The answer of `generate_reflection`: a dict whose attribute `result` has the lessons."""

    def __init__(self, result: Reflected) -> None:
        self.result: Reflected = result
        lesson, strategy, meta = result.reflection, result.strategy, result.reflection.meta
        answer = ReflectionAnswer(
            reflection_id=lesson.signature.digest,
            strategy_id=strategy.signature.digest if strategy else None,
            reflection_text=lesson.text,
            strategy_text=strategy.text if strategy else None,
            importance=lesson.importance,
            confidence=meta["confidence"],
            tags=list(lesson.tags),
            error_category=meta["error_category"] or None,
            source_event_ids=list(meta["source_event_ids"]),
            related_memory_ids=list(meta["related_memory_ids"]),
            metadata=RunMetadata(*(meta[field.name] for field in fields(RunMetadata))),
            generated_at=iso(time.time()),
        )
        super().__init__(asdict(answer))


async def generate_reflection(
    context: Mapping[str, Any],
    *,
    store: Memory | Store | str = STORE,
    model: Model | None = None,
    trust: Trust = "external",
    on_model_error: Literal["keep", "raise"] = "keep",
) -> dict[str, Any]:
    """Return the lesson of a run, without storing it.

    A failure that is already known is not sent to the model. Equal failures have equal ids. Without
    a strategy, `strategy_id` and `strategy_text` are None; without an error, `error_category` is
    None. `trust` says who wrote the task and the user's messages; `trust` and `on_model_error` are
    arguments of `reflect`. Raises InvalidInput, ModelError, StoreError.
    """
    episode = await asyncio.to_thread(_read_episode, context)
    for name in ("tenant_id", "project_id"):
        if not isinstance(context.get(name), str):
            raise InvalidInput(name, context.get(name), "a text")
    related = context.get("related_memory_ids") or ()
    check_sequence("related_memory_ids", related, object, "a list of ids")
    made = await reflect(
        episode,
        memory=Memory.of(store, Scope(context["tenant_id"], context["project_id"])),
        model=model,
        store=False,
        trust=trust,
        on_model_error=on_model_error,
        related=[str(id) for id in related],
    )
    if made is None:
        raise InvalidInput("events", [], "at least one event, or an error")
    return Generated(made)


async def store_reflection(
    result: Mapping[str, Any],
    tenant_id: str,
    project_id: str,
    session_id: str | None = None,
    *,
    store: Memory | Store | str = STORE,
) -> dict[str, str | None]:
    """Store a generated reflection; return the ids of its lessons.

    Storing it twice adds nothing. `result` must be the object that `generate_reflection` returned,
    because a copy does not say who wrote its text. Raises InvalidInput, QuotaExceeded, StoreError.
    """
    if not isinstance(result, Generated):
        raise InvalidInput("result", result, "the answer of generate_reflection, not a copy")
    made = result.result
    if session_id is not None:
        check_texts(session_id=session_id)
        session = {"session_id": safe_id(session_id)}
        lesson, strategy = made.reflection, made.strategy
        strategy = strategy and replace(strategy, meta={**strategy.meta, **session})
        lesson = replace(lesson, meta={**lesson.meta, **session})
        made = replace(made, reflection=lesson, strategy=strategy)
    await keep(made, Memory.of(store, Scope(tenant_id, project_id)))
    return {name: result[name] for name in ("reflection_id", "strategy_id")}


async def query_reflections(
    tenant_id: str,
    project_id: str,
    query_text: str | None = None,
    k: int = 5,
    min_importance: float = 0.5,
    tags: Sequence[str] | None = None,
    match: Literal["any", "all"] = "any",
    *,
    store: Memory | Store | str = STORE,
    waiting: bool = True,
) -> list[dict[str, Any]]:
    """Return at most `k` reflections and strategies for a query, best first.

    Without `query_text`, return the most important lessons. With `tags`, a lesson needs any of
    them, or all of them with `match="all"`. Lessons in quarantine are returned, too, unless
    `waiting` is False; their `state` marks them, and `release` is the command that releases them.
    Never put them into a prompt. Raises InvalidInput, StoreError.
    """
    check_integer("k", k)
    check_share("min_importance", min_importance)
    check_texts(query_text=query_text or "")
    memory, text = Memory.of(store, Scope(tenant_id, project_id)), query_text or ""
    options: Any = {"tags": tags or (), "match": match, "importance": min_importance}
    found = [
        one
        for kind in PRODUCTS
        for one in await memory.query(text, k, kind=kind, waiting=waiting, **options)
    ]
    now = time.time()
    found.sort(key=lambda one: answer_order(one, now))
    return [asdict(ReflectionRow.of(one)) for one in found[:k]]


def _read_episode(context: Mapping[str, Any]) -> Episode:
    """Return the episode of a run; values that JSON cannot hold become text."""
    try:
        value = json.loads(json.dumps(dict(context), default=str))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput("context", type(context).__name__, "data that JSON can hold") from error
    (episode,) = EpisodeReader(Limits()).add(value)
    return episode
