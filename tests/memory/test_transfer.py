"""Export and import: the same bytes again, each thing once, nothing more trusted than it may be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.lessons.lesson import ORDER, Example, Reflection, Scope
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.store import exposures, quarantine
from heedful.store.store import Store
from heedful.testing import FixedEmbedder
from tests.conftest import SOAK
from tests.engines import in_memory
from tests.memory import transfers
from tests.memory.transfers import (
    PLANTED,
    do,
    everything,
    exported,
    fresh,
    moved,
    only,
    records,
)

pytestmark = pytest.mark.both

# Columns that an export has no place for: they say nothing outside of their database, or follow
# from what is exported.
LOCAL = {
    "reflection": {"id", "tenant", "project", "author"},
    "occurrence": {"id", "reflection"},
    "example": {"id", "reflection", "scope", "task", "indexed"},
    "vector": {"example", "tenant", "project", "changed"},
    "origin": {"example", "scope"},
    "lineage": {"child", "parent"},
    "ruling": {"id", "tenant", "project"},
    "link": {"tenant", "project"},
    "exposure": {"tenant", "project", "kind", "signature", "among"},
    "outcome": {"tenant", "project", "loop", "n"},
}
RENAMED = {("example", "record"): "example", ("example", "lesson"): "says"}
RENAMED |= {("origin", "source"): "origins"}


async def columns(memory: Memory) -> dict[str, set[str]]:
    store = memory.store
    assert isinstance(store, Store)
    sql = "select t.name, c.name from sqlite_schema t, pragma_table_info(t.name) c"
    found: dict[str, set[str]] = {table: set() for table in LOCAL}
    for table, name in await store.read(Scope(), lambda db, _: db.execute(sql).fetchall()):
        found.get(table, set()).add(name)
    return found


async def rows(memory: Memory, sql: str) -> list[tuple[Any, ...]]:
    store = memory.store
    assert isinstance(store, Store)
    return [
        tuple(row) for row in await store.read(Scope(), lambda db, _: db.execute(sql).fetchall())
    ]


def fields(value: Any) -> set[str]:
    """The names of all fields of a record, however deep."""
    if isinstance(value, dict):
        return set(value) | {name for one in value.values() for name in fields(one)}
    return {name for one in value for name in fields(one)} if isinstance(value, list) else set()


@pytest.mark.sqlite
async def test_every_column_is_exported_or_local():
    memory = await everything()
    told = fields(records(await exported(memory)))
    missing = {
        (table, name)
        for table, names in (await columns(memory)).items()
        for name in names - LOCAL[table]
        if RENAMED.get((table, name), name) not in told
    }
    assert missing == set()


# -- the same again, and each thing once


async def test_moved_into_an_empty_memory_it_gives_the_same_bytes():
    memory, other = await everything(), fresh()
    data = await exported(memory)
    done = await moved(data, other)
    kinds = ("lesson", "example", "sighting", "lineage", "loop", "ruling", "link")
    counts = {kind: len(only(records(data), kind)) for kind in kinds}
    assert min(counts.values()) > 0
    assert done.written == {**counts, "sighting": counts["sighting"]}
    assert (done.new, done.merged, done.known, done.left) == (counts["lesson"], 0, 0, 0)
    assert (done.tenant, done.project) == ("default", "default")
    assert await exported(other) == data
    for one in (other, memory):  # twice, and back where it came from
        again = await moved(data, one)
        assert (again.new, again.merged, again.known) == (0, 0, counts["lesson"])
        assert again.written == {}
        assert await exported(one) == data
    links = "select child, relation, parent, at from link order by 1, 2, 3"
    assert await rows(other, links) == await rows(memory, links)
    assert {row[1] for row in await rows(other, links)} == {"strategy", "became"}
    (meta,) = await rows(other, "select meta from reflection where kind = 'reflection'")
    assert json.loads(meta[0])["source_event_ids"] == ["e2", "e3", "e4"]
    assert await other.prove() == await memory.prove()
    task = "convert parcel 9 to kilograms"
    with_vectors = Memory(other.store, embedder=FixedEmbedder())
    found = [await one.recall(task) for one in (memory, with_vectors)]
    assert [f.cosine for f in found[0]] == [f.cosine for f in found[1]] != []


async def test_without_vectors_the_file_is_smaller_and_memory_embeds_anew():
    memory, other = await everything(), fresh(embedder=FixedEmbedder())
    data = await exported(memory, vectors=False)
    assert len(data) < len(await exported(memory))
    await moved(data, other)
    there = await other.spaces()
    assert (there.here, there.nowhere) == (0, there.behind)
    assert await other.reembed() == there.behind > 0
    assert await exported(other, vectors=False) == data


async def test_the_scope_is_the_callers():
    data = await exported(await everything())
    store = in_memory()
    acme = Memory(store, Scope("acme", "support"))
    done = await moved(data, acme)
    assert (done.tenant, done.project) == ("default", "default")
    assert await Memory(store).count() == 0
    assert await acme.count() == done.new
    names = [record.pop("tenant") for record in records(await exported(acme))[:1]]
    assert names == ["acme"]


async def test_both_ways_of_reading_a_file_are_one(tmp_path):
    memory = await everything()
    path = tmp_path / "lessons.jsonl"
    told: list[tuple[str, int, int]] = []
    done = await memory.export(path, progress=lambda *at: told.append(at))
    assert path.read_bytes() == await exported(memory)
    assert (done.bytes, done.lines) == (
        path.stat().st_size,
        len(path.read_bytes().split(b"\n")) - 1,
    )
    assert told == [("exporting", n + 1, done.lessons) for n in range(done.lessons)]
    assert list(tmp_path.iterdir()) == [path]
    told.clear()
    other = fresh()
    done_there = await other.import_(str(path), progress=lambda *at: told.append(at))
    assert done_there.source == f"import:{done.digest[:16]}"
    assert told == [("checking", done.bytes, done.bytes), ("importing", done.bytes, done.bytes)]


# -- random memories

CHARACTERS = st.characters(exclude_categories=())  # lone surrogates are characters, too
SECRET = st.sampled_from([text for text, _ in PLANTED])
TEXT = st.one_of(
    st.text(CHARACTERS, min_size=1, max_size=12).filter(str.strip),
    st.sampled_from(
        ["no unit", "KeyError: 'a'", "नमस्ते दुनिया", "重量是12公斤", "a\x00b\x1e\n", "\ud800"]
    ),
    st.builds("{} {}".format, st.text(max_size=3), SECRET),
)
EXAMPLE = st.builds(
    Example,
    task=TEXT,
    accepted=TEXT,
    rejected=st.one_of(st.just(""), TEXT),
    before=st.dictionaries(TEXT, st.floats(allow_nan=False, allow_infinity=False), max_size=2),
    context=st.one_of(st.just(""), TEXT),
)
LESSON = st.fixed_dictionaries(
    {
        "error_type": st.sampled_from(["E", "F", "\ud800 type"]),
        "text": TEXT,
        "trust": st.sampled_from(ORDER),
    },
    optional={
        "lesson": TEXT,
        "example": EXAMPLE,
        "tags": st.lists(TEXT, max_size=2),
        "importance": st.floats(0, 1),
        "source": TEXT,
    },
)


async def test_an_export_holds_no_number_that_json_has_no_word_for():
    example = Example("a task", "done", before={"q": float("nan")}, after={"q": float("-inf")})
    one = Reflection("error", signature("E", "it"), "E", "it", "it", example=example)
    memory = fresh()
    await memory.store.write(memory.scope, exposures.remember, [one])
    data = await exported(memory)
    assert b"NaN" not in data
    assert b"Infinity" not in data
    assert (await moved(data, fresh())).new == 1


# What is done between lessons: something is ruled on, forgotten, or its source revoked.
RULED = st.sampled_from(["release", "reject", "revoke", "prune", "derive"])


async def rule(memory: Memory, what: str) -> None:
    store, scope = memory.store, memory.scope
    held = await store.read(scope, quarantine.entries, None)
    top = await memory.top(1)
    if what in ("release", "reject") and held:
        await store.write(
            scope,
            quarantine.settle,
            [held[0].id],
            "release" if what == "release" else "reject",
            "b",
            "",
        )
    elif what == "revoke" and held and held[0].source:
        source = held[0].source.partition(", ")[0]
        await store.write(scope, quarantine.revoke, source, "b", "w", False)
    elif what == "prune" and top:
        await memory.prune(by="ann", keep=len(await memory.top(100)) - 1)
    elif what == "derive" and held:
        await memory.remember("D", f"from {held[0].signature}", derived_from=[held[0].id])


async def built(steps: list[Any]) -> Memory:
    memory = fresh(embedder=FixedEmbedder(4))
    for step in steps:
        if isinstance(step, dict):
            await memory.remember(**step)
        else:
            await rule(memory, step)
    return memory


@pytest.mark.sqlite
@settings(max_examples=40 * SOAK, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(LESSON, LESSON, RULED), max_size=10))
def test_any_memory_comes_back_as_it_was(steps):
    async def scenario() -> None:
        memory, other, colleague = await built(steps), fresh(), fresh()
        data = await exported(memory)
        assert [needle for _, needle in PLANTED if needle in data] == []
        await moved(data, other)
        assert await exported(other) == data
        for one in (other, memory):
            assert (await moved(data, one)).written == {}
            assert await exported(one) == data
        first = await transfers.given(data, colleague)
        theirs = await exported(colleague)
        assert await colleague.recall("no unit") == []
        again = await transfers.given(data, colleague)
        assert (again.new, again.merged, again.written) == (0, 0, {})
        assert again.known == first.new
        assert await exported(colleague) == theirs
        for one in (memory, other, colleague):
            await one.store.close()

    do(scenario())
