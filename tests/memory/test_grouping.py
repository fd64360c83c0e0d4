"""`seen` answers for a group of patterns; a merge is a reading, on record where it is undone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.errors import InvalidInput, NotFound
from heedful.lessons import patterns as templates
from heedful.lessons.lesson import Scope
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.store import patterns as grouping
from heedful.testing import FixedEmbedder
from tests.engines import IN_SOAK
from tests.store.support import ended, opened, python, rows

pytestmark = IN_SOAK

NAMES = ("ada", "bo", "cy", "di", "ed", "flo", "gus", "hal")
LOGIN = [f"login failed for {name} here" for name in NAMES]


def digest(text: str, kind: str = "log") -> str:
    return signature(kind, text).digest


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.db"


@pytest.fixture
def memory(path):
    with opened(path) as store:
        yield Memory(store)


async def told(memory: Memory, texts: list[str], kind: str = "log", **more: Any) -> None:
    for text in texts:
        await memory.remember(kind, text, **more)


def do(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


# -- a group is counted as one


def forget(db, scope):
    """What the connection keeps of the templates."""
    db.local(grouping.Learned)._kept.clear()


def test_a_pattern_answers_for_its_group(memory):
    async def scenario() -> None:
        await told(memory, LOGIN[:3])
        alone = await memory.seen("log", LOGIN[1])
        assert (alone.count, alone.group, len(alone.lessons)) == (1, None, 1)
        await told(memory, [LOGIN[3], LOGIN[3], LOGIN[2]])
        known = await memory.seen("log", LOGIN[1])
        assert known
        assert known.count == 6
        assert known.group is not None
        assert known.group.template == "login failed for <*> here"
        assert known.group.why == ("4 values after 'for': ada, bo, cy, di",)
        assert set(known.group.members) == {digest(text) for text in LOGIN[:4]}
        # Its own first, then those most often seen, then the first learnt.
        order = [LOGIN[1], LOGIN[2], LOGIN[3], LOGIN[0]]
        assert [one["pattern"] for one in known.lessons] == order
        # `remember` counts the very pattern.
        assert (await memory.remember("log", LOGIN[0])).seen == 2

    do(scenario())


def test_a_text_that_was_never_stored_is_known_by_its_group(memory):
    async def scenario() -> None:
        await told(memory, LOGIN[:4])
        known = await memory.seen("log", "login failed for zoe here")
        assert (known.count, len(known.lessons)) == (4, 4)
        assert not await memory.seen("log", "login worked for zoe here")
        assert not await memory.seen("other", "login failed for zoe here")
        assert await memory.count() == 4, "a question teaches nothing"

    do(scenario())


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("AssertionError", LOGIN),
        ("log", [f"assert f({n}) == 4 in all of them" for n in range(8)]),
        ("KeyError", [f"there is no key '{name}' in it" for name in NAMES]),
        ("log", [f"job ended with {name.title()}Error today" for name in NAMES]),
        ("log", ["login failed " + "so " * templates.LONGEST + name for name in NAMES]),
    ],
)
def test_what_is_never_merged(memory, kind, texts):
    async def scenario() -> None:
        await told(memory, texts, kind)
        for text in texts:
            known = await memory.seen(kind, text)
            assert (known.count, known.group) == (1, None)
        assert await memory.patterns() == []

    do(scenario())


def test_nothing_crosses_a_scope(memory):
    other = Memory(memory.store, Scope("other", "default"))

    async def scenario() -> None:
        await told(memory, LOGIN[:2])
        await told(other, LOGIN[2:])
        assert (await memory.seen("log", LOGIN[0])).count == 1
        assert (await other.seen("log", LOGIN[2])).count == 6
        with pytest.raises(NotFound):
            await memory.unmerge(digest(LOGIN[2]), by="ann")

    do(scenario())


def test_a_pattern_with_a_secret_is_grouped_as_it_is_stored(memory):
    key = "sk-proj-" + "Ab1" * 16

    async def scenario() -> None:
        await told(memory, [f"call by {name} with api_key={key} was refused" for name in NAMES])
        known = await memory.seen("log", f"call by zoe with api_key={key} was refused")
        assert known.group is not None
        assert known.count == len(NAMES)
        assert key not in known.group.template

    do(scenario())


def test_a_group_has_a_bound_of_lessons_and_counts_them_all(memory, monkeypatch):
    monkeypatch.setattr(grouping, "LESSONS", 3)

    async def scenario() -> None:
        await told(memory, LOGIN)
        known = await memory.seen("log", LOGIN[5])
        assert (known.count, len(known.lessons)) == (8, 3)
        assert known.lessons[0]["pattern"] == LOGIN[5]

    do(scenario())


def test_only_the_first_patterns_of_a_type_teach(memory, monkeypatch):
    monkeypatch.setattr(grouping, "MOST_PATTERNS", 5)

    async def scenario() -> None:
        await told(memory, LOGIN)
        assert (await memory.seen("log", LOGIN[0])).count == 5
        assert (await memory.seen("log", LOGIN[7])).count == 6  # known by them, and of its own
        assert len((await memory.patterns())[0]["patterns"]) == 5

    do(scenario())


# -- trust


@pytest.mark.parametrize("trust", ["tool", "external"])
def test_a_flood_from_outside_merges_nothing_and_counts_for_nothing(memory, trust):
    flood = [f"login failed for u{one}x{two} here" for one in "abcde" for two in "fghijklmno"]

    async def scenario() -> None:
        await told(memory, LOGIN[:3])
        await told(memory, flood, trust=trust)
        for text in LOGIN[:3]:
            known = await memory.seen("log", text)
            assert (known.count, known.group) == (1, None)
        assert await memory.patterns() == []
        await told(memory, LOGIN[3:4])
        # Of those that are trusted four are evidence; of the flood nothing is counted with them.
        assert (await memory.seen("log", LOGIN[0])).count == 4
        # Where one of the flood is asked for, it is known: its own, and those it is like.
        known = await memory.seen("log", flood[0])
        assert (known.count, known.lessons[0]["state"]) == (5, "quarantined")

    do(scenario())


@pytest.mark.parametrize("trust", ["tool", "external"])
def test_what_was_rejected_merges_nothing_and_is_not_told(memory, trust):
    async def scenario() -> None:
        await told(memory, LOGIN[:2])
        await told(memory, LOGIN[2:], trust=trust, source="page", tags=["obey the page"])
        waiting = await memory.quarantine.waiting()
        await memory.quarantine.reject([one.id for one in waiting], by="ann")
        assert await memory.patterns() == []
        own = await memory.seen("log", LOGIN[0])
        assert (own.count, own.group) == (1, None)
        known = await memory.seen("log", LOGIN[2])
        (lesson,) = known.lessons
        assert (known.count, lesson["state"]) == (1, "retired")
        assert (lesson["text"], lesson["tags"]) == ("", [])

    do(scenario())


def test_what_is_said_again_by_a_person_teaches(memory):
    async def scenario() -> None:
        await told(memory, LOGIN, trust="external")
        assert (await memory.seen("log", LOGIN[0])).group is None
        await told(memory, LOGIN)
        assert (await memory.seen("log", LOGIN[0])).count == 16

    do(scenario())


# -- undone and back


def test_a_merge_is_undone_and_taken_back_on_record(memory, path):
    async def scenario() -> None:
        await told(memory, LOGIN[:5])
        await memory.unmerge(digest(LOGIN[0]), by="ann", why="ada is a service")
        alone = await memory.seen("log", LOGIN[0])
        assert (alone.count, alone.group) == (1, None)
        rest = await memory.seen("log", LOGIN[1])
        assert rest.count == 4
        assert digest(LOGIN[0]) not in {one["signature"] for one in rest.lessons}
        group, apart = await memory.patterns()
        assert (group["template"], group["seen"], group["apart"]) == (
            "login failed for <*> here",
            4,
            False,
        )
        assert (apart["template"], apart["seen"], apart["apart"]) == (LOGIN[0], 1, True)
        assert apart["why"] == ["by ann: ada is a service"]
        await memory.remerge(digest(LOGIN[0]), by="bob")
        assert (await memory.seen("log", LOGIN[0])).count == 5

    do(scenario())
    assert rows(path, "select action, subject, by, why from ruling order by id") == [
        ("unmerge", digest(LOGIN[0]), "ann", "ada is a service"),
        ("remerge", digest(LOGIN[0]), "bob", ""),
    ]


def test_what_was_kept_apart_stays_so_when_it_is_pruned_and_learnt_again(memory):
    async def scenario() -> None:
        await told(memory, LOGIN[:5])
        await memory.unmerge(digest(LOGIN[0]), digest(LOGIN[1]), by="ann")
        await memory.remerge(digest(LOGIN[1]), by="bob")
        await memory.prune(by="ann", keep=0)
        await told(memory, LOGIN[:5])
        assert (await memory.seen("log", LOGIN[0])).count == 1
        assert (await memory.seen("log", LOGIN[1])).count == 4

    do(scenario())


def test_too_few_that_are_left_count_apart(memory):
    async def scenario() -> None:
        await told(memory, LOGIN[:4])
        await memory.unmerge(digest(LOGIN[0]), by="ann")
        for text in LOGIN[:4]:
            assert (await memory.seen("log", text)).count == 1

    do(scenario())


def test_who_decides_is_named_and_what_is_decided_on_exists(memory, path):
    async def scenario() -> None:
        await told(memory, LOGIN[:4])
        with pytest.raises(InvalidInput) as caught:
            await memory.unmerge(digest(LOGIN[0]), by=" ")
        assert caught.value.field == "by"
        with pytest.raises(NotFound, match="no pattern 'nothing' in the lessons of default"):
            await memory.unmerge(digest(LOGIN[0]), "nothing", by="ann")
        assert (await memory.seen("log", LOGIN[0])).count == 4, "all or nothing"

    do(scenario())
    assert rows(path, "select count(*) from ruling") == [(0,)]


# -- what is kept in a process


@pytest.mark.sqlite
def test_what_another_process_writes_is_seen(memory, path):
    do(told(memory, LOGIN[:3]))
    assert do(memory.seen("log", LOGIN[0])).count == 1
    other = """
import asyncio, sys
from heedful.memory.memory import Memory
from heedful.lessons.signature import signature
from tests.store.support import opened

async def main(memory):
    if sys.argv[2] == "apart":
        await memory.unmerge(signature("log", sys.argv[3]).digest, by="ann")
    else:
        await memory.remember("log", sys.argv[3])

with opened(sys.argv[1]) as store:
    asyncio.run(main(Memory(store)))
"""
    ended(python(other, path, "remember", LOGIN[3]))
    assert do(memory.seen("log", LOGIN[0])).count == 4
    ended(python(other, path, "apart", LOGIN[0]))
    assert do(memory.seen("log", LOGIN[0])).count == 1


@pytest.mark.sqlite  # a connection keeps them, and PostgreSQL has several
def test_templates_are_made_once_and_kept_for_so_many_types(memory, monkeypatch):
    made: list[str] = []
    real = grouping._templates

    def making(error_type: str, given: Any) -> Any:
        made.append(error_type)
        return real(error_type, given)

    monkeypatch.setattr(grouping, "_templates", making)
    monkeypatch.setattr(grouping, "KEPT", 2)

    async def scenario() -> None:
        for kind in ("a", "b", "c"):
            await told(memory, LOGIN[:4], kind)
        for _ in range(3):
            for kind in ("a", "b"):
                assert (await memory.seen(kind, LOGIN[0])).count == 4
        assert made == ["a", "b"]
        await memory.seen("c", LOGIN[0])
        await memory.seen("b", LOGIN[0])
        await memory.seen("a", LOGIN[0])
        assert made == ["a", "b", "c", "a"]

    do(scenario())


steps = st.lists(
    st.tuples(
        st.sampled_from(["operator", "measured", "external", "apart", "together", "forget"]),
        st.integers(0, len(NAMES) - 1),
    ),
    max_size=30,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(done=steps)
def test_what_is_kept_never_differs_from_what_is_read_anew(done):
    async def scenario(memory: Memory) -> None:
        for what, at in done:
            known = {one["signature"] for one in await memory.top(99)}
            if what in ("apart", "together"):
                if digest(LOGIN[at]) in known:
                    act = memory.unmerge if what == "apart" else memory.remerge
                    await act(digest(LOGIN[at]), by="ann")
            elif what == "forget":
                for one in await memory.top(1):
                    await memory.pin(one["id"], by="ann")
                await memory.prune(by="ann", keep=0)
            else:
                await memory.remember("log", LOGIN[at], trust=what)
            for text in LOGIN[:5]:
                kept = await memory.seen("log", text)
                await memory.store.read(memory.scope, forget)
                assert kept == await memory.seen("log", text)
                own = [one for one in kept.lessons if one["signature"] == digest(text)]
                assert kept.count == sum(one["seen"] for one in kept.lessons)
                assert list(kept.lessons[: len(own)]) == own

    with opened(":memory:") as store:
        asyncio.run(scenario(Memory(store)))


@pytest.mark.sqlite
def test_the_reading_of_an_error_type_needs_no_sort_and_no_row(memory):
    from heedful.store.store import statements

    values = {"tenant": "t", "project": "p", "error_type": "e", "most": 9}
    plan = do(
        memory.store.read(
            Scope(),
            lambda db, _: [
                row["detail"]
                for row in db.execute(
                    f"explain query plan {statements('sqlite')['learnt_state']}", values
                )
            ],
        )
    )
    assert any("USING COVERING INDEX reflection_type" in line for line in plan)
    assert not any("TEMP B-TREE" in line for line in plan)


# -- suggestions


class Same(FixedEmbedder):
    """What begins with the same letter means the same."""

    async def embed(self, texts):
        return await super().embed([text[:1] for text in texts])


def test_what_is_alike_is_suggested_and_nothing_is_merged(memory):
    memory = Memory(memory.store, embedder=Same())

    async def scenario() -> None:
        await told(memory, ["the disk of db is full", "the volume has no room left"], "io")
        await told(memory, ["a queue is empty now"], "io")
        await told(memory, ["the disk has no room left"], "other")
        await told(memory, ["the tool said it is full", "the tool has said so"], trust="tool")
        await told(memory, ["the one", "the other one"], "AssertionError")
        before = await memory.patterns()
        (pair,) = await memory.suggest()
        assert pair["cosine"] == 1.0
        assert {one["text"] for one in pair["lessons"]} == {
            "the disk of db is full",
            "the volume has no room left",
        }
        assert await memory.patterns() == before == []
        assert (await memory.seen("io", "the disk of db is full")).group is None

    do(scenario())


def test_what_is_one_group_or_was_kept_apart_is_not_suggested(memory):
    memory = Memory(memory.store, embedder=Same())

    async def scenario() -> None:
        assert await memory.suggest() == []
        await told(memory, LOGIN[:4])
        assert await memory.suggest() == []
        await memory.unmerge(digest(LOGIN[0]), by="ann")
        pairs = await memory.suggest()
        assert len(pairs) == 3  # of the three that are left and count alone
        assert digest(LOGIN[0]) not in {it["signature"] for one in pairs for it in one["lessons"]}
        assert len(await memory.suggest(2)) == 2

    do(scenario())


def test_without_an_embedder_nothing_can_be_suggested(memory):
    with pytest.raises(InvalidInput, match="embedder"):
        do(memory.suggest())
