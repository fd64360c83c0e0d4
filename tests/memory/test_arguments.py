"""What memory cannot use is refused: the argument is named, with its value and what is allowed."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from heedful.errors import InvalidInput, NotFound
from heedful.lessons.lesson import Example, Quota
from heedful.memory.memory import Memory

NAN = float("nan")
HUGE = 2**70


def refused(call: Any, field: str, value: object) -> None:
    """Also that nothing was written."""

    async def scenario() -> None:
        await call()

    with pytest.raises(InvalidInput) as caught:
        asyncio.run(scenario())
    assert caught.value.field == field
    assert str(value) in str(caught.value.value)
    assert str(caught.value).startswith(f"{field} is ")
    assert "; it must be " in str(caught.value)


@pytest.mark.parametrize("value", [NAN, 1.5, 0, -1, HUGE, True, "5"])
def test_max_entries(value):
    with pytest.raises(InvalidInput, match=r"max_entries is .* an integer of at least 1.* or None"):
        Memory(":memory:", max_entries=value)


@pytest.mark.parametrize("value", [NAN, 1, -0.1, "x", None])
def test_holdout(value):
    with pytest.raises(InvalidInput, match=r"holdout is .* a share of at least 0 and below 1"):
        Memory(":memory:", holdout=value)


def test_a_quota_is_a_quota():
    with pytest.raises(InvalidInput, match="quota is 5; it must be a Quota, or None"):
        Memory(":memory:", quota=5)  # type: ignore[arg-type]
    assert Memory(":memory:", quota=Quota(5)).quota.entries == 5


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tags", "abc"),
        ("tags", ["a", 1]),
        ("text", None),
        ("text", " "),
        ("error_type", None),
        ("source", None),
        ("source", "x" * 501),
        ("importance", NAN),
        ("trust", None),
        ("pinned", "yes"),
        ("derived_from", 5),
        ("derived_from", ["a"]),
        ("example", 5),
    ],
)
def test_remember(memory, field, value):
    given = {"error_type": "log", "text": "it failed again", field: value}
    refused(lambda: memory.remember(**given), field, value)
    assert asyncio.run(memory.count()) == 0


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"before": {"q": NAN}}, "example.before['q']"),
        ({"after": {"q": float("inf")}}, "example.after['q']"),
        ({"before": [0.5]}, "example.before"),
        ({"wrong": None}, "example.wrong"),
    ],
)
def test_an_example(memory, given, field):
    example = Example("a task", "an answer", **given)
    (value,) = given.values()
    value = value["q"] if isinstance(value, dict) else value
    refused(lambda: memory.remember("log", "it failed", example=example), field, value)
    assert asyncio.run(memory.count()) == 0


@pytest.mark.parametrize("value", [NAN, 1.5, -1, HUGE, None, "a"])
def test_whole_numbers(memory, value):
    for field, call in (
        ("limit", lambda: memory.recall("some words", value)),
        ("limit", lambda: memory.top(value)),
        ("limit", lambda: memory.quarantine.waiting(value)),
    ):
        refused(call, field, value)
    if value is not None:
        refused(lambda: memory.prune(keep=value, by="ada"), "keep", value)


@pytest.mark.parametrize("value", [NAN, 1.5, HUGE, True, None, "a"])
def test_ids(memory, value):
    for call in (memory.pin, memory.restore):
        refused(partial(call, value, by="ada"), "id", value)
    refused(lambda: memory.quarantine.show(value), "id", value)


@pytest.mark.parametrize("value", [None, b"x", 5])
def test_texts(memory, value):
    kept = asyncio.run(memory.remember("log", "it failed again"))
    digest = asyncio.run(memory.top())[0]["signature"]
    for field, call in (
        ("task", lambda: memory.recall(value)),
        ("text", lambda: memory.seen("log", value)),
        ("error_type", lambda: memory.seen(value, "it failed")),
        ("since", lambda: memory.recall("it failed", since=str(value))),
        ("source", lambda: memory.quarantine.revoke(value, by="ada")),
        ("by", lambda: memory.pin(kept.id, by=value)),
        ("why", lambda: memory.pin(kept.id, by="ada", why=value)),
        ("by", lambda: memory.set_apart(digest, by=value)),
        ("digests", lambda: memory.set_apart(value, by="ada")),
        ("ids", lambda: memory.quarantine.release([str(value)], by="ada")),
        ("ids", lambda: memory.quarantine.reject(value, by="ada")),
    ):
        refused(call, field, value)


def test_patterns_are_kept_apart_by_name(memory):
    refused(lambda: memory.set_apart(by="ann"), "digests", ())


@pytest.mark.parametrize("by", ["", " ", None])
def test_somebody_answers_for_what_is_pruned(memory, by):
    for dry in (True, False):
        refused(partial(memory.prune, keep=0, by=by, dry_run=dry), "by", by)


@pytest.mark.parametrize("value", [NAN, 0, -1, float("inf"), "x"])
def test_a_time_without_use(memory, value):
    refused(lambda: memory.prune(unused_for=value, by="ada"), "unused_for", value)


def test_what_is_not_found_says_where_to_look(memory):
    for remedy, call in (
        ("heedful quarantine list", lambda: memory.quarantine.show(9)),
        ("heedful quarantine list", lambda: memory.quarantine.release([9], by="ada")),
        ("heedful quarantine list", lambda: memory.quarantine.revoke("nobody", by="ada")),
        ("heedful lessons", lambda: memory.pin(9, by="ada")),
    ):
        with pytest.raises(NotFound, match=f"default/default; {remedy} shows"):
            asyncio.run(call())
