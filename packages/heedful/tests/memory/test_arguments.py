"""What memory cannot use is refused: the argument is named, with its value and what is
allowed.
"""

from collections.abc import Callable
from typing import Any

import pytest

from heedful.errors import InvalidInput, NotFound
from heedful.lessons.lesson import Example
from heedful.memory.dream import Dreams
from heedful.memory.hardening import LessonChecks
from heedful.memory.memory import Memory
from heedful.memory.trial import MAX_LOOP_TEXTS, Trial
from heedful.validation import MAX_NAME_CHARS
from tests.tables import cases

NAN = float("nan")
HUGE = 2**70
Call = Callable[[Memory, Any], Any]


@cases(
    "field, values, allowed",
    {
        "max_entries": (
            "max_entries",
            (NAN, 1.5, 0, -1, HUGE, True, "5"),
            "an integer of at least 1.* or None",
        ),
        "holdout": (
            "holdout",
            (NAN, 1, -0.1, "x", None),
            "a share of at least 0 and below 1",
        ),
        "quota": ("quota", (0, 1.5, "5", None), "an integer of at least 1"),
    },
)
def test_a_memory(field, values, allowed):
    for value in values:
        with pytest.raises(InvalidInput, match=rf"{field} is .*; it must be {allowed}"):
            Memory(":memory:", **{field: value})


def remember(name: str) -> Call:
    return lambda memory, value: memory.remember(
        **{"error_type": "log", "text": "it failed again", name: value}
    )


def with_example(name: str) -> Call:
    return lambda memory, value: memory.remember(
        "log", "it failed", example=Example("a task", "an answer", **{name: value})
    )


def recall(name: str) -> Call:
    return lambda memory, value: memory.recall("it failed", **{name: value})


def checks_of(memory: Memory) -> LessonChecks:
    return LessonChecks(memory)


def trial_of(memory: Memory, source: str = "mem0") -> Trial:
    return Trial(source, memory.store)


async def offer_texts(memory: Memory, source: Any) -> None:
    await trial_of(memory, source).offer("loop", ["x"])


async def offer_to_loop(memory: Memory, texts: Any) -> None:
    await trial_of(memory).offer("loop", texts)


# Of a source or a loop: nothing, NUL, a long name, a secret.
NAMES = ("", "a\0b", "x" * (MAX_NAME_CHARS + 1), "AKIAIOSFODNN7EXAMPLE")
IDS = (NAN, 1.5, HUGE, True, None, "a")
TEXTS = (None, b"x", 5)
COUNTS = (NAN, 1.5, -1, HUGE, None, "a")
FILTERS: dict[str, tuple[Any, ...]] = {
    "tags": ("red", [""]),
    "match": ("some",),
    "kind": ("lesson",),
    "error_type": (7,),
    "importance": (1.1,),
    "since": ("1", -1.0),
}
WRONG = {
    "remember: tags": ("tags", ("abc", ["a", 1]), remember("tags")),
    "remember: text": ("text", (None, " "), remember("text")),
    "remember: source": ("source", (None, "x" * 501), remember("source")),
    "remember: importance": ("importance", (NAN,), remember("importance")),
    "remember: derived_from": ("derived_from", (5, ["a"]), remember("derived_from")),
    "remember: qualities before are no numbers": (
        "example.before",
        ({"q": NAN},),
        with_example("before"),
    ),
    "recall: limit": ("limit", COUNTS, lambda memory, n: memory.recall("words", n)),
    "pin: id": ("id", IDS, lambda memory, id: memory.pin(id, by="ada")),
    "pin: by": ("by", TEXTS, lambda memory, by: memory.pin(1, by=by)),
    "seen: text": ("text", TEXTS, lambda memory, text: memory.seen("log", text)),
    **{f"recall: {name}": (name, FILTERS[name], recall(name)) for name in FILTERS},
    "query: tags": ("tags", ("t0",), lambda memory, tags: memory.query(tags=tags)),
    "revoke: source": (
        "source",
        TEXTS,
        lambda memory, source: memory.quarantine.revoke(source, by="ada"),
    ),
    "release: ids": (
        "ids",
        (["x"], "x", None),
        lambda memory, ids: memory.quarantine.release(ids, by="ada"),
    ),
    "prune: keep": (
        "keep",
        COUNTS[:4],
        lambda memory, keep: memory.prune(keep=keep, by="ada"),
    ),
    "prune: by": (
        "by",
        ("", " ", None),
        lambda memory, by: memory.prune(keep=0, by=by),
    ),
    "propose: lesson": (
        "lesson",
        (0,),
        lambda memory, id: checks_of(memory).propose(id),
    ),
    "accept: by": ("by", ("",), lambda memory, by: checks_of(memory).accept(1, by=by)),
    "checks: limit": ("limit", (0,), lambda memory, n: checks_of(memory).list(n)),
    "state: text": (
        "text",
        ("", "never " * 100),
        lambda memory, text: memory.user_rules.state(text, by="ann"),
    ),
    "trial: source": ("source", NAMES, offer_texts),
    "offer: loop": (
        "loop",
        NAMES,
        lambda memory, id: trial_of(memory).offer(id, ["x"]),
    ),
    "offer: texts": ("texts", ("Use metres.", None), offer_to_loop),
    "offer: too many": (
        "number of texts",
        (["x"] * (MAX_LOOP_TEXTS + 1),),
        offer_to_loop,
    ),
    "end: loop": ("loop", NAMES, lambda memory, id: trial_of(memory).end(id, score=1)),
    "end: score": (
        "score",
        (1.01,),
        lambda memory, score: trial_of(memory).end("loop", score=score),
    ),
    "prune: unused_for": (
        "unused_for",
        (NAN, 0, -1, float("inf"), "x"),
        lambda memory, seconds: memory.prune(unused_for=seconds, by="ada"),
    ),
}


@cases("field, values, call", WRONG)
async def test_a_call(memory, field, values, call):
    """Nothing is written either."""
    await memory.remember("log", "kept")
    for value in values:
        with pytest.raises(InvalidInput) as caught:
            await call(memory, value)
        assert caught.value.field == field
        assert str(caught.value).startswith(f"{field} is ")
        assert "; it must be " in str(caught.value)
    assert await memory.count() == 1


async def test_what_is_not_found_says_where_to_look(memory):
    for remedy, call in (
        ("heedful quarantine list", lambda: memory.quarantine.show(9)),
        ("heedful quarantine list", lambda: memory.quarantine.release([9], by="ada")),
        (
            "heedful quarantine list",
            lambda: memory.quarantine.revoke("nobody", by="ada"),
        ),
        ("heedful lessons", lambda: memory.pin(9, by="ada")),
        ("heedful consolidate log", lambda: Dreams(memory).show(9)),
        ("heedful consolidate log", lambda: Dreams(memory).rollback(9, by="ada")),
    ):
        with pytest.raises(NotFound, match=f"default/default; {remedy} shows"):
            await call()
