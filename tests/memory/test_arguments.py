"""What memory cannot use is refused: the argument is named, with its value and what is
allowed.
"""

from collections.abc import Callable
from typing import Any

import pytest

from heedful.errors import InvalidInput, NotFound
from heedful.lessons.lesson import Example
from heedful.lessons.signature import signature
from heedful.memory.dream import Dreams, consolidate
from heedful.memory.memory import Memory

NAN = float("nan")
HUGE = 2**70
KEPT = signature("log", "kept").digest
Call = Callable[[Memory, Any], Any]


@pytest.mark.parametrize(
    ("field", "values", "allowed"),
    [
        pytest.param(
            "max_entries",
            (NAN, 1.5, 0, -1, HUGE, True, "5"),
            "an integer of at least 1.* or None",
            id="max_entries",
        ),
        pytest.param(
            "holdout",
            (NAN, 1, -0.1, "x", None),
            "a share of at least 0 and below 1",
            id="holdout",
        ),
        pytest.param(
            "quota", (0, 1.5, "5", None), "an integer of at least 1", id="quota"
        ),
    ],
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
WRONG = [
    pytest.param("tags", ("abc", ["a", 1]), remember("tags"), id="remember: tags"),
    pytest.param("text", (None, " "), remember("text"), id="remember: text"),
    pytest.param(
        "error_type", (None,), remember("error_type"), id="remember: error_type"
    ),
    pytest.param(
        "source", (None, "x" * 501), remember("source"), id="remember: source"
    ),
    pytest.param(
        "importance", (NAN,), remember("importance"), id="remember: importance"
    ),
    pytest.param("pinned", ("yes",), remember("pinned"), id="remember: pinned"),
    pytest.param(
        "derived_from",
        (5, ["a"]),
        remember("derived_from"),
        id="remember: derived_from",
    ),
    pytest.param("example", (5,), remember("example"), id="remember: example"),
    pytest.param(
        "example.before",
        ({"q": NAN},),
        with_example("before"),
        id="remember: qualities before are no numbers",
    ),
    pytest.param(
        "example.after",
        ({"q": float("inf")},),
        with_example("after"),
        id="remember: qualities after are infinite",
    ),
    pytest.param(
        "example.before",
        ([0.5],),
        with_example("before"),
        id="remember: qualities before are a list",
    ),
    pytest.param(
        "example.wrong",
        (None,),
        with_example("wrong"),
        id="remember: what was wrong with an example",
    ),
    pytest.param(
        "limit",
        COUNTS,
        lambda memory, value: memory.recall("some words", value),
        id="recall: limit",
    ),
    pytest.param(
        "limit", COUNTS, lambda memory, value: memory.top(value), id="top: limit"
    ),
    pytest.param(
        "limit",
        COUNTS,
        lambda memory, value: memory.quarantine.waiting(value),
        id="waiting: limit",
    ),
    pytest.param(
        "id", IDS, lambda memory, value: memory.pin(value, by="ada"), id="pin: id"
    ),
    pytest.param(
        "id",
        IDS,
        lambda memory, value: memory.restore(value, by="ada"),
        id="restore: id",
    ),
    pytest.param(
        "id", IDS, lambda memory, value: memory.quarantine.show(value), id="show: id"
    ),
    pytest.param(
        "task", TEXTS, lambda memory, value: memory.recall(value), id="recall: task"
    ),
    pytest.param(
        "text", TEXTS, lambda memory, value: memory.seen("log", value), id="seen: text"
    ),
    pytest.param(
        "error_type",
        TEXTS,
        lambda memory, value: memory.seen(value, "it failed"),
        id="seen: error_type",
    ),
    *(
        pytest.param(name, values, recall(name), id=f"recall: {name}")
        for name, values in FILTERS.items()
    ),
    pytest.param(
        "text", TEXTS[1:], lambda memory, value: memory.query(value), id="query: text"
    ),
    pytest.param(
        "tags",
        ("t0",),
        lambda memory, value: memory.query(tags=value),
        id="query: tags",
    ),
    pytest.param(
        "source",
        TEXTS,
        lambda memory, value: memory.quarantine.revoke(value, by="ada"),
        id="revoke: source",
    ),
    pytest.param(
        "by", TEXTS, lambda memory, value: memory.pin(1, by=value), id="pin: by"
    ),
    pytest.param(
        "why",
        TEXTS,
        lambda memory, value: memory.pin(1, by="ada", why=value),
        id="pin: why",
    ),
    pytest.param(
        "ids",
        (["x"], "x", None),
        lambda memory, value: memory.quarantine.release(value, by="ada"),
        id="release: ids",
    ),
    pytest.param(
        "ids",
        TEXTS,
        lambda memory, value: memory.quarantine.reject(value, by="ada"),
        id="reject: ids",
    ),
    pytest.param(
        "keep",
        COUNTS[:4],
        lambda memory, value: memory.prune(keep=value, by="ada"),
        id="prune: keep",
    ),
    pytest.param(
        "by",
        ("", " ", None),
        lambda memory, value: memory.prune(keep=0, by=value),
        id="prune: by",
    ),
    pytest.param(
        "by",
        ("",),
        lambda memory, value: memory.prune(keep=0, by=value, dry_run=True),
        id="prune: by of a rehearsal",
    ),
    pytest.param(
        "by",
        ("",),
        lambda memory, value: consolidate(memory, by=value),
        id="consolidate: by",
    ),
    pytest.param(
        "unused_for",
        (NAN, 0, -1, float("inf"), "x"),
        lambda memory, value: memory.prune(unused_for=value, by="ada"),
        id="prune: unused_for",
    ),
]


@pytest.mark.parametrize(("field", "values", "call"), WRONG)
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
        ("heedful dream log", lambda: Dreams(memory).show(9)),
        ("heedful dream log", lambda: Dreams(memory).rollback(9, by="ada")),
    ):
        with pytest.raises(NotFound, match=f"default/default; {remedy} shows"):
            await call()
