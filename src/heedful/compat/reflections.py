"""Reflections under the names and in the shapes that callers of earlier systems know."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from heedful.compat.shapes import moment
from heedful.errors import InvalidInput
from heedful.lessons.lesson import Filter, Match, Reflection, Scope, Trust
from heedful.lessons.ranking import PRODUCTS, relevance, worth
from heedful.lessons.trust import check_sequence, check_texts
from heedful.loop.record import check_integer, check_share
from heedful.memory.episode import Episode
from heedful.memory.memory import Memory
from heedful.memory.reflect import Reflected, keep, reflect
from heedful.models.contract import Model
from heedful.store.store import Store
from heedful.traces.gather import Limits, opaque
from heedful.traces.lines import Lines

SOURCE = "reflection_engine_v2"
LAYER = "rm"
STORE = "heedful.db"
METADATA = ("outcome", "task_description", "event_count", "session_id")
LISTED = 10_000  # of the lessons most often seen, where no text is looked for
OLDER = {"enabled": "reflective_memory_enabled", "mode": "reflective_memory_mode"}
TRUTHS = {"true": True, "1": True, "yes": True, "on": True}
TRUTHS |= {"false": False, "0": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class Reflections:
    """Whether a host reflects, and how it dreams: "lite" on demand only, "full" periodically, too.

    A host asks for both: nothing in heedful reflects or dreams by itself. Raises InvalidInput.
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
        """From a mapping such as `os.environ`; other names in it are left alone.

        HEEDFUL_REFLECTION_ENABLED and HEEDFUL_REFLECTION_MODE, in either case; else the older
        names REFLECTIVE_MEMORY_ENABLED and REFLECTIVE_MEMORY_MODE. Raises InvalidInput.
        """
        given = {str(name).lower(): value for name, value in settings.items()}
        found: dict[str, Any] = {}
        for name, older in OLDER.items():
            value = given.get(f"heedful_reflection_{name}", given.get(older))
            if value is not None:
                plain = str(value).strip().lower()
                found[name] = TRUTHS.get(plain, value) if name == "enabled" else plain
        return cls(**found)


class Generated(dict[str, Any]):
    """What `generate_reflection` answers: a dictionary that knows whose its words are."""

    def __init__(self, made: Reflected, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.made: Reflected = made


async def generate_reflection(
    context: Mapping[str, Any],
    *,
    store: Memory | Store | str = STORE,
    model: Model | None = None,
    trust: Trust = "external",
    on_model_error: Literal["keep", "raise"] = "keep",
) -> dict[str, Any]:
    """What a run teaches, and nothing is stored; of what the store knows no model is asked.

    The ids are the names of the two lessons: the same failure has the same. Without a strategy its
    id and text are None, and so is the category of no error. `trust` and `on_model_error` as of
    `reflect`: from whom the task and the user's words are, and what becomes of a model that fails.
    Raises InvalidInput, ModelError, StoreError.
    """
    episode = await asyncio.to_thread(_episode, context)
    scope = Scope(_text(context, "tenant_id"), _text(context, "project_id"))
    related = context.get("related_memory_ids") or ()
    check_sequence("related_memory_ids", related, object, "a list of ids")
    made = await reflect(
        episode,
        memory=Memory.of(store, scope),
        model=model,
        store=False,
        trust=trust,
        on_model_error=on_model_error,
        related=[str(one) for one in related],
    )
    if made is None:
        raise InvalidInput("events", [], "at least one event, or an error")
    return Generated(made, _told(made))


async def store_reflection(
    result: Mapping[str, Any],
    tenant_id: str,
    project_id: str,
    session_id: str | None = None,
    *,
    store: Memory | Store | str = STORE,
) -> dict[str, str | None]:
    """Store what was generated; the ids of both lessons. The same run again adds nothing.

    `result` is what `generate_reflection` gave: another dictionary does not say whose its words
    are. Raises InvalidInput, QuotaExceeded, StoreError.
    """
    if not isinstance(result, Generated):
        raise InvalidInput("result", result, "what generate_reflection gave, not a copy of it")
    made = result.made
    if session_id is not None:
        check_texts(session_id=session_id)
        rule = made.strategy and _of_session(made.strategy, session_id)
        one = _of_session(made.reflection, session_id)
        made = replace(made, reflection=one, strategy=rule)
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
) -> list[dict[str, Any]]:
    """Reflections and strategies that fit a text, or without one the most important; best first.

    With any of the `tags`, or all with `match`; what waits in quarantine is not among them. Raises
    InvalidInput, StoreError.
    """
    check_integer("k", k)
    check_share("min_importance", min_importance)
    check_texts(query_text=query_text or "")
    given: Any = tags if isinstance(tags, str) else tuple(tags or ())
    only = Filter(given, match, importance=min_importance)
    memory = Memory.of(store, Scope(tenant_id, project_id))
    if not query_text:
        return await _most_important(memory, k, only)
    found: list[Match] = []
    for kind in PRODUCTS:
        found += await memory.recall(
            query_text, k, tags=only.tags, match=match, kind=kind, importance=min_importance
        )
    now = time.time()
    found.sort(key=lambda one: (-relevance(one) * worth(one, now), one.kind, one.signature))
    return [_found(one) for one in found[:k]]


async def _most_important(memory: Memory, k: int, only: Filter) -> list[dict[str, Any]]:
    enough = any if only.match == "any" else all
    rows = [
        one
        for one in await memory.top(LISTED)
        if one["kind"] in PRODUCTS
        and one["state"] in ("candidate", "verified")
        and one["importance"] >= only.importance
        and (not only.tags or enough(tag in one["tags"] for tag in only.tags))
    ]
    rows.sort(key=lambda one: (-one["importance"], -one["last_seen"], one["kind"], one["id"]))
    return [_answer({**one, "at": one["last_seen"]}) for one in rows[:k]]


def _found(one: Match) -> dict[str, Any]:
    names = ("signature", "kind", "importance", "tags", "error_type", "at")
    return _answer({**{name: getattr(one, name) for name in names}, "text": one.lesson})


def _answer(one: Mapping[str, Any]) -> dict[str, Any]:
    rule = one["kind"] == "strategy"
    return {
        "reflection_id": one["signature"],
        "kind": one["kind"],
        "reflection_text": one["text"],
        "importance": one["importance"],
        "tags": list(one["tags"]),
        "error_category": None if rule else one["error_type"] or None,
        "source": SOURCE,
        "layer": LAYER,
        "generated_at": moment(one["at"]),
    }


def _told(made: Reflected) -> dict[str, Any]:
    one, rule = made.reflection, made.strategy
    return {
        "reflection_id": one.signature.digest,
        "strategy_id": rule and rule.signature.digest,
        "reflection_text": one.text,
        "strategy_text": rule and rule.text,
        "importance": one.importance,
        "confidence": one.meta["confidence"],
        "tags": list(one.tags),
        "error_category": one.meta["error_category"] or None,
        "source_event_ids": list(one.meta["source_event_ids"]),
        "related_memory_ids": list(one.meta["related_memory_ids"]),
        "metadata": {name: one.meta[name] for name in METADATA},
        "generated_at": moment(time.time()),
    }


def _episode(context: Mapping[str, Any]) -> Episode:
    """As the reader of our own files reads it; times and ids of Python count as their texts."""
    try:
        value = json.loads(json.dumps(dict(context), default=str))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput("context", type(context).__name__, "data that JSON can say") from error
    (episode,) = Lines(Limits()).add(value)
    return episode


def _text(context: Mapping[str, Any], name: str) -> str:
    value = context.get(name)
    if not isinstance(value, str):
        raise InvalidInput(name, value, "a text")
    return value


def _of_session(one: Reflection, session: str) -> Reflection:
    return replace(one, meta={**one.meta, "session_id": opaque(session)})
