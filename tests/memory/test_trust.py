"""Trust: the order, what raises what, and that the database agrees; origins, parents, quotas."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from heedful.errors import InvalidInput, QuotaExceeded
from heedful.lessons.lesson import ORDER, Example, Quota, Reflection, Scope
from heedful.lessons.signature import signature
from heedful.lessons.trust import HELD, RAISING, initial_state, lowest_trust, raises_trust
from heedful.memory.memory import Memory
from heedful.store import exposures, lessons
from tests.engines import IN_SOAK
from tests.store.support import opened

pytestmark = IN_SOAK

WEIGHT = Example("convert the weight of parcel 7 to kilograms", "7 kg", "7", "no unit")
SIMILAR = "convert the weight of parcel 9 to kilograms"


@pytest.fixture
def store(tmp_path):
    with opened(tmp_path / "a.db") as one:
        yield one


@pytest.fixture
def memory(store):
    return Memory(store)


def do(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


async def rows(store: Any, sql: str, **values: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = await store.read(
        Scope(), lambda db, _: [tuple(row) for row in db.execute(sql, values)]
    )
    return found


# -- the order


# -- the database agrees


@pytest.mark.parametrize(("known", "new"), list(product(ORDER, ORDER)))
@pytest.mark.parametrize("with_example", [True, False])
def test_the_database_raises_what_the_rule_raises(store, memory, known, new, with_example):
    async def scenario() -> None:
        example = WEIGHT if with_example else None
        for trust in (known, new):
            await memory.remember(
                "u", "x", lesson="say it", example=example, trust=trust, source=f"by {trust}",
                tags=[trust], importance=0.1 * ORDER.index(trust),
            )  # fmt: skip
        now = new if raises_trust(new, known) else known
        (one,) = await rows(store, "select trust, state, lesson from example")
        assert one == (now, initial_state(now), "say it")
        (lesson,) = await memory.top()
        facts = [lesson[name] for name in ("trust", "state", "source", "seen")]
        assert facts == [now, initial_state(now), f"by {now}", 2]
        # What is held back says nothing where lessons are listed.
        assert (lesson["tags"], bool(lesson["text"])) == (
            ([], False) if now in HELD else ([now], True)
        )
        ((tags,),) = [await rows(store, "select tags from reflection")]
        assert (tags, lesson["importance"]) == ((f'["{now}"]',), 0.1 * ORDER.index(now))
        assert await rows(store, "select source from origin") == [(f"by {now}",)]
        assert bool(await memory.recall("say it" if example is None else SIMILAR)) == (
            now not in HELD
        )
        released = await store.read(memory.scope, exposures.rulings, 9)
        assert len(released) == (raises_trust(new, known) and new == "operator")

    do(scenario())


@pytest.mark.parametrize("trust", ORDER)
def test_however_it_is_written_it_begins_as_its_trust_says(store, trust):
    one = Reflection("error", signature("u", "x"), "u", "text", "x", trust=trust, state="verified")

    async def scenario() -> None:
        await store.write(Scope(), exposures.remember, [one])
        assert await rows(store, "select state from example") == [
            (initial_state(trust, "verified"),)
        ]

    do(scenario())


@pytest.mark.parametrize("trust", ORDER)
def test_only_an_operator_or_a_measured_outcome_verifies(store, trust):
    known = Reflection("error", signature("u", "x"), "u", "t", "x", "", WEIGHT, trust="operator")
    seen = replace(known, trust=trust, state="verified")

    async def scenario() -> None:
        await store.write(Scope(), exposures.remember, [known, seen])
        state = "verified" if trust in RAISING else "candidate"
        assert await rows(store, "select state, trust from example") == [(state, "operator")]
        assert await rows(store, "select state, trust from reflection") == [(state, "operator")]

    do(scenario())


# -- what is derived


@pytest.mark.parametrize(("own", "parents"), [
    ("operator", ["external", "operator"]),
    ("operator", ["measured", "model"]),
    ("model", ["operator"]),
    ("external", ["operator", "operator"]),
    ("measured", ["tool"]),
])  # fmt: skip
def test_what_is_derived_has_the_lowest_trust_of_its_sources(store, memory, own, parents):
    async def scenario() -> None:
        for n, trust in enumerate(parents):
            await memory.remember(f"e{n}", "x", trust=trust, source=f"s{n}")
        ids = [id for (id,) in await rows(store, "select id from example order by id")]
        await memory.remember("new", "both", trust=own, derived_from=ids, source="own")
        ((id, trust, state),) = await rows(
            store,
            "select id, trust, state from example where id not in (select parent from lineage)",
        )
        assert (trust, state) == (
            lowest_trust([own, *parents]),
            initial_state(lowest_trust([own, *parents])),
        )
        (held,) = await memory.store.read(memory.scope, lessons.quarantined, [id])
        came = await memory.store.read(memory.scope, lessons.provenance, held)
        assert set(came.sources) == {"own", *(f"s{n}" for n in range(len(parents)))}
        assert came.parents == tuple(ids)

    do(scenario())


def test_a_parent_that_is_unknown_or_of_another_scope_is_refused(store, memory):
    async def scenario() -> None:
        await memory.remember("e", "x")
        for scope, id in ((Scope(), 99), (Scope("other"), 1), (Scope(), -1)):
            with pytest.raises(InvalidInput, match="derived_from") as caught:
                await Memory(store, scope).remember("new", "y", derived_from=[1, id])
            assert str(id) in str(caught.value)
        assert await memory.count() == 1

    do(scenario())


def test_an_id_is_never_given_twice(store, memory):
    async def scenario() -> None:
        await memory.remember("a", "x")
        await memory.remember("b", "x")
        assert await memory.clear() == 2
        await memory.remember("c", "x")
        assert await rows(store, "select id from example") == [(3,)]
        with pytest.raises(InvalidInput, match="derived_from"):
            await memory.remember("d", "x", derived_from=[2])

    do(scenario())


@pytest.mark.parametrize("field", ["source", "pinned"])
def test_what_cannot_be_said_of_a_text(memory, field):
    given: Any = {"source": {"source": "s" * 501}, "pinned": {"pinned": True, "trust": "measured"}}
    with pytest.raises(InvalidInput) as caught:
        do(memory.remember("E", "x", **given[field]))
    assert caught.value.field == field


def test_only_what_is_all_an_operators_may_be_pinned(store, memory):
    async def scenario() -> None:
        await memory.remember("kept", "x", pinned=True)
        await memory.remember("page", "x", trust="external", source="page")
        with pytest.raises(InvalidInput, match="pinned"):
            await memory.remember("new", "x", pinned=True, derived_from=[1, 2])
        assert await rows(store, "select error_type, pinned from reflection order by id") == [
            ("kept", 1),
            ("page", 0),
        ]

    do(scenario())


def test_a_secret_in_the_name_of_a_source_is_not_kept(store, memory):
    url = "https://ann:hunter2secret@pages.example/a"

    async def scenario() -> None:
        await memory.remember("E", "x", trust="external", source=url)
        assert "hunter2" not in str(await rows(store, "select source from origin"))
        assert (await memory.quarantine.revoke(url, by="ann")).examples == 1

    do(scenario())


# -- quotas


def test_a_source_that_is_not_trusted_fills_no_quarantine(store):
    memory = Memory(store, quota=Quota(entries=3, sightings=100))

    async def scenario() -> None:
        for n in range(3):
            await memory.remember(f"e{n}", "x", trust="external", source="page")
        with pytest.raises(QuotaExceeded, match="release or reject some first") as caught:
            await memory.remember("e3", "x", trust="external", source="page")
        error = caught.value
        assert (error.source, error.count, error.quota) == ("page", 4, 3)
        assert await memory.count() == 3  # nothing of it was written
        await memory.remember("e0", "x", trust="external", source="page")  # known: no entry
        await memory.remember("e3", "x", trust="tool", source="linter")
        await Memory(store, Scope("other"), quota=memory.quota).remember(
            "e3", "x", trust="external", source="page"
        )
        await memory.quarantine.reject([1, 2], by="ann")
        await memory.remember("e4", "x", trust="external", source="page")  # there is room again

    do(scenario())


def test_a_source_that_is_not_trusted_fills_no_database(store):
    memory = Memory(store, quota=Quota(entries=100, sightings=5))

    async def scenario() -> None:
        await memory.remember("e", "x", lesson="An operator's own.")
        for _ in range(5):
            await memory.remember("e", "x", trust="tool", source="linter")
        with pytest.raises(QuotaExceeded, match=r"6 sightings, its quota is 5; revoke the source"):
            await memory.remember("e", "x", trust="tool", source="linter")
        for _ in range(9):
            await memory.remember("e", "x", trust="model", source="linter")
        (known,) = await memory.top()
        assert (known["seen"], known["text"]) == (15, "An operator's own.")

    do(scenario())


def test_of_what_is_not_trusted_only_so_much_is_kept(store, memory):
    long = "word " * 20_000

    async def scenario() -> None:
        whole = Example(long, long, long, long, {}, {}, long, long)
        for n, trust in enumerate(ORDER):
            await memory.remember(long, "abcde"[n], lesson=long, example=whole, context=long,
                                  trust=trust, tags=[long] * 100)  # fmt: skip
        for id, trust in enumerate(ORDER, 1):
            sizes = (
                "select length(e.record) + length(e.words) + length(e.lesson) + length(e.task)"
                " + length(l.error_type) + length(l.pattern) + length(l.text) + length(l.tags)"
                " from example e, reflection l where e.id = :id and l.id = :id"
            )
            ((size,),) = await rows(store, sizes, id=id)
            assert (size < 100_000) == (trust in HELD)
            assert (await memory.seen(long, "abcde"[id - 1])).count

    do(scenario())


def test_who_is_trusted_has_no_quota(store):
    memory = Memory(store, quota=Quota(entries=1, sightings=1))

    async def scenario() -> None:
        for n in range(5):
            for trust in ("operator", "measured", "model"):
                await memory.remember(f"e{n}", "x", trust=trust, source="one")
        assert await memory.count() == 5

    do(scenario())


def test_texts_that_name_no_source_are_those_of_one(store):
    memory = Memory(store, quota=Quota(entries=2))

    async def scenario() -> None:
        for n in range(2):
            await memory.remember(f"e{n}", "x", trust="external")
        with pytest.raises(QuotaExceeded, match="source 'external'"):
            await memory.remember("e2", "x", trust="external")
        await memory.remember("e2", "x", trust="tool")
        assert {one.source for one in await memory.quarantine.waiting()} == {"external", "tool"}

    do(scenario())


def test_many_at_once_stay_within_the_quota(store):
    memory = Memory(store, quota=Quota(entries=10))

    async def scenario() -> None:
        calls = [memory.remember(f"e{n}", "x", trust="external", source="p") for n in range(40)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(one, QuotaExceeded) for one in answers) == 30
        assert len(await memory.quarantine.waiting()) == 10

    do(scenario())
