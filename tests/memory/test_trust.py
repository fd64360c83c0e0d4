"""Trust: the order, what raises what, and that the database agrees; origins, parents,
quotas.
"""

import asyncio
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from heedful.errors import InvalidInput, QuotaExceeded
from heedful.lessons.lesson import TRUST_ORDER, Example, Lesson, Scope
from heedful.lessons.signature import signature
from heedful.lessons.trust import (
    QUARANTINE_TRUST,
    TRUST_RAISING_VERIFICATION,
    initial_state,
)
from heedful.memory.memory import Memory
from heedful.store import exposures
from tests.memory.test_quarantine import SIMILAR, WEIGHT

pytestmark = pytest.mark.both_nightly


async def read_rows(store: Any, sql: str, **values: Any) -> list[tuple[Any, ...]]:
    found_rows: list[tuple[Any, ...]] = await store.read(
        Scope(), lambda db, _: [tuple(row) for row in db.execute(sql, values)]
    )
    return found_rows


def pairs_of_trusts() -> list[Any]:
    """Return all pairs of trusts; those that are no neighbours are `nightly`."""
    pairs = []
    for first, second in product(TRUST_ORDER, TRUST_ORDER):
        steps = abs(TRUST_ORDER.index(first) - TRUST_ORDER.index(second))
        marks = () if steps <= 1 else pytest.mark.nightly
        pairs.append(
            pytest.param(first, second, id=f"{first}, then {second}", marks=marks)
        )
    return pairs


@pytest.mark.parametrize(("first", "second"), pairs_of_trusts())
@pytest.mark.parametrize(
    "with_example",
    [
        pytest.param(True, id="an example"),
        pytest.param(False, id="no example", marks=pytest.mark.nightly),
    ],
)
async def test_the_database_raises_what_the_rule_raises(
    store, memory, first, second, with_example
):
    example = WEIGHT if with_example else None
    for trust in (first, second):
        await memory.remember(
            "u",
            "x",
            lesson="say it",
            example=example,
            trust=trust,
            source=f"by {trust}",
            tags=[trust],
            importance=0.1 * TRUST_ORDER.index(trust),
        )
    raised = (
        second in TRUST_RAISING_VERIFICATION and first not in TRUST_RAISING_VERIFICATION
    )
    standing = second if raised else first
    (row,) = await read_rows(store, "select trust, state, lesson from example")
    assert row == (standing, initial_state(standing), "say it")
    (lesson,) = await memory.top()
    assert lesson["trust"] == standing
    assert lesson["state"] == initial_state(standing)
    assert lesson["source"] == f"by {standing}"
    assert lesson["seen"] == 2
    # What is held back says nothing where lessons are listed.
    is_held_back = standing in QUARANTINE_TRUST
    assert lesson["tags"] == ([] if is_held_back else [standing])
    assert bool(lesson["text"]) is not is_held_back
    ((tags,),) = [await read_rows(store, "select tags from lesson")]
    assert tags == (f'["{standing}"]',)
    assert lesson["importance"] == 0.1 * TRUST_ORDER.index(standing)
    assert await read_rows(store, "select source from origin") == [(f"by {standing}",)]
    assert bool(await memory.recall("say it" if example is None else SIMILAR)) == (
        standing not in QUARANTINE_TRUST
    )
    released = await store.read(memory.scope, exposures.rulings, 9)
    assert len(released) == (raised and second == "operator")


@pytest.mark.parametrize("trust", TRUST_ORDER)
async def test_however_it_is_written_it_begins_as_its_trust_says(store, trust):
    lesson = Lesson(
        "error",
        signature("u", "x"),
        error_type="u",
        text="text",
        sighting="x",
        trust=trust,
        state="verified",
    )

    await store.write(Scope(), exposures.remember, [lesson])
    assert await read_rows(store, "select state from example") == [
        (initial_state(trust, "verified"),)
    ]


@pytest.mark.parametrize("trust", TRUST_ORDER)
async def test_only_an_operator_or_a_measured_outcome_verifies(store, trust):
    lesson = Lesson(
        "error",
        signature("u", "x"),
        error_type="u",
        text="t",
        sighting="x",
        loop="",
        example=WEIGHT,
        trust="operator",
    )
    repeated = replace(lesson, trust=trust, state="verified")
    later = replace(lesson, trust="model")  # which takes nothing back
    await store.write(Scope(), exposures.remember, [lesson, repeated, later])
    state = "verified" if trust in TRUST_RAISING_VERIFICATION else "unverified"
    assert await read_rows(store, "select state, trust from example") == [
        (state, "operator")
    ]
    assert await read_rows(store, "select state, trust from lesson") == [
        (state, "operator")
    ]


async def test_a_parent_that_is_unknown_or_of_another_scope_is_refused(store, memory):
    await memory.remember("e", "x")
    for scope, id in ((Scope(), 99), (Scope("other"), 1), (Scope(), -1)):
        with pytest.raises(InvalidInput, match="derived_from") as caught:
            await Memory(store, scope).remember("new", "y", derived_from=[1, id])
        assert str(id) in str(caught.value)
    assert await memory.count() == 1


async def test_only_what_is_all_an_operators_may_be_pinned(store, memory):
    await memory.remember("kept", "x", pinned=True)
    await memory.remember("page", "x", trust="external", source="page")
    with pytest.raises(InvalidInput, match="pinned"):
        await memory.remember("new", "x", pinned=True, derived_from=[1, 2])
    assert await read_rows(
        store, "select error_type, pinned from lesson order by id"
    ) == [
        ("kept", 1),
        ("page", 0),
    ]


async def test_a_source_that_is_not_trusted_fills_no_quarantine(store):
    memory = Memory(store, quota=3)

    for n in range(3):
        await memory.remember(f"e{n}", "x", trust="external", source="page")
    with pytest.raises(QuotaExceeded, match="release or reject some first") as caught:
        await memory.remember("e3", "x", trust="external", source="page")
    error = caught.value
    assert error.source == "page"
    assert error.count == 4
    assert error.quota == 3
    assert await memory.count() == 3  # nothing of it was written
    await memory.remember("e0", "x", trust="external", source="page")  # known: no entry
    await memory.remember("e3", "x", trust="tool", source="linter")
    await Memory(store, Scope("other"), quota=memory.quota).remember(
        "e3", "x", trust="external", source="page"
    )
    await memory.quarantine.reject([1, 2], by="ann")
    await memory.remember(
        "e4", "x", trust="external", source="page"
    )  # there is room again


async def test_of_what_is_not_trusted_only_so_much_is_kept(store, memory):
    long = "word " * 8_000
    long_tag = "word " * 200
    example = Example(
        long,
        long,
        rejected=long,
        wrong=long,
        before={},
        after={},
        evidence=long,
        context=long,
    )
    for n, trust in enumerate(TRUST_ORDER):
        await memory.remember(
            long,
            "abcde"[n],
            lesson=long,
            example=example,
            context=long,
            trust=trust,
            tags=[long_tag] * 100,
        )
    for id, trust in enumerate(TRUST_ORDER, 1):
        sizes = (
            "select length(e.record) + length(e.words) + length(e.lesson) + "
            "length(e.task)"
            " + length(l.error_type) + length(l.pattern) + length(l.text) + "
            "length(l.tags)"
            " from example e, lesson l where e.id = :id and l.id = :id"
        )
        ((size,),) = await read_rows(store, sizes, id=id)
        assert (size < 60_000) == (trust in QUARANTINE_TRUST)
        assert (await memory.seen(long, "abcde"[id - 1])).count


async def test_many_at_once_stay_within_the_quota(store):
    memory = Memory(store, quota=10)

    calls = [
        memory.remember(f"e{n}", "x", trust="external", source="p") for n in range(40)
    ]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(answer, QuotaExceeded) for answer in answers) == 30
    assert len(await memory.quarantine.waiting()) == 10


async def test_an_operator_states_trust_by_source_on_record(memory):
    def build_lesson(task: str, *sources: str, source: str = "episode:a") -> Lesson:
        mark = signature("", task)
        example = Example(task, "")
        return Lesson(
            "error",
            mark,
            error_type="",
            text=f"{task}: do y",
            sighting=task,
            example=example,
            state="quarantined",
            trust="tool",
            source=source,
            sources=sources,
        )

    both_sources = await memory.keep(build_lesson("pot", "program:pytest", "user"))
    await memory.keep(build_lesson("pan", "program:pytest", "network"))
    await memory.keep(
        build_lesson("lid", source="program:pytest")
    )  # a caller names its source as it likes
    set_trust = memory.set_trust
    assert (
        await set_trust(
            "program:pytest", "measured", by="ann", why="ours", waiting=True
        )
        == []
    )
    assert await set_trust("user", "operator", by="ann", waiting=True) == [
        both_sources.entry
    ]
    assert await memory.stated_trust() == {
        "program:pytest": "measured",
        "user": "operator",
    }
    assert await set_trust("user", None, by="ann", waiting=True) == []
    assert await set_trust("tool", "operator", by="ann", waiting=True) == []
    assert await memory.stated_trust() == {
        "program:pytest": "measured",
        "tool": "operator",
    }
    assert [entry.trust for entry in await memory.recall("pot")] == ["model"]
    assert await memory.recall("pan") == []
    assert await memory.recall("lid") == []
    rulings = await memory.store.read(memory.scope, exposures.rulings, 9)
    assert [entry["action"] for entry in rulings].count("trust") == 4
    for source, trust in (("network", "operator"), ("", "tool"), ("user", "high")):
        with pytest.raises(InvalidInput):
            await set_trust(source, trust, by="ann")
    with pytest.raises(InvalidInput):
        Memory(memory.store, trust={"network": "operator"})


@pytest.mark.parametrize(
    ("statements", "released"),
    [
        pytest.param({}, False, id="nothing is stated of the key"),
        pytest.param({"key:0f": "tool"}, False, id="the key is a tool's"),
        pytest.param({"key:0f": "measured"}, True, id="the key is trusted, too"),
    ],
)
async def test_trust_in_a_program_releases_nothing_of_a_key_that_is_not_trusted(
    memory, statements, released
):
    lesson = Lesson(
        "reflection",
        signature("", "no such target"),
        error_type="",
        text="use make all",
        sighting="no such target",
        state="quarantined",
        trust="tool",
        source="episode:a",
        sources=("program:make", "user", "key:0f"),
    )
    remembered = await memory.keep(lesson)
    released_ids = []
    for source, trust in {
        "user": "operator",
        "program:make": "measured",
        **statements,
    }.items():
        released_ids += await memory.set_trust(source, trust, by="ann", waiting=True)

    assert (remembered.entry in released_ids) == released
    assert bool(await memory.quarantine.waiting()) != released
