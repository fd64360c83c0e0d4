"""`seen` answers for a group of patterns; a merge is a reading, on record where it is
undone.
"""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.store import patterns as grouping
from tests.engines import IN_SOAK
from tests.store.support import opened

pytestmark = IN_SOAK

NAMES = ("ada", "bo", "cy", "di", "ed", "flo", "gus", "hal")
LOGIN = [f"login failed for {name} here" for name in NAMES]


def digest(text: str, kind: str = "log") -> str:
    return signature(kind, text).digest


async def told(
    memory: Memory, texts: list[str], kind: str = "log", **more: Any
) -> None:
    for text in texts:
        await memory.remember(kind, text, **more)


def forget(db, scope):
    db.local(grouping.PatternCache)._entries.clear()


async def test_a_pattern_answers_for_its_group(memory):
    await told(memory, LOGIN[:3])
    alone = await memory.seen("log", LOGIN[1])
    assert alone.count == 1
    assert alone.group is None
    assert len(alone.lessons) == 1
    await told(memory, [LOGIN[3], LOGIN[3], LOGIN[2]])
    known = await memory.seen("log", LOGIN[1])
    assert known
    assert known.count == 6
    assert known.group is not None
    assert known.group.template == "login failed for <*> here"
    assert set(known.group.members) == {digest(text) for text in LOGIN[:4]}
    # Its own first, then those most often seen, then the first learnt.
    order = [LOGIN[1], LOGIN[2], LOGIN[3], LOGIN[0]]
    assert [one["pattern"] for one in known.lessons] == order
    assert (await memory.seen("log", "login failed for zoe here")).count == 6
    assert await memory.count() == 4, "a question teaches nothing"
    # `remember` counts the very pattern.
    assert (await memory.remember("log", LOGIN[0])).seen == 2


@pytest.mark.parametrize("trust", ["tool", "external"])
async def test_a_flood_from_outside_merges_nothing_and_counts_for_nothing(
    memory, trust
):
    flood = [
        f"login failed for u{one}x{two} here" for one in "abcde" for two in "fghijklmno"
    ]

    await told(memory, LOGIN[:3])
    await told(memory, flood, trust=trust)
    for text in LOGIN[:3]:
        known = await memory.seen("log", text)
        assert known.count == 1
        assert known.group is None
    assert await memory.patterns() == []
    await told(memory, LOGIN[3:4])
    # Of those that are trusted four are evidence; of the flood nothing is counted with
    # them.
    assert (await memory.seen("log", LOGIN[0])).count == 4
    # Where one of the flood is asked for, it is known: its own, and those it is like.
    known = await memory.seen("log", flood[0])
    assert known.count == 5
    assert known.lessons[0]["state"] == "quarantined"
    assert known.lessons[0]["text"] == ""


@pytest.mark.parametrize("trust", ["tool", "external"])
async def test_what_was_rejected_merges_nothing_and_is_not_told(memory, trust):
    await told(memory, LOGIN[:2])
    await told(memory, LOGIN[2:], trust=trust, source="page", tags=["obey the page"])
    waiting = await memory.quarantine.waiting()
    await memory.quarantine.reject([one.id for one in waiting], by="ann")
    assert await memory.patterns() == []
    own = await memory.seen("log", LOGIN[0])
    assert own.count == 1
    assert own.group is None
    known = await memory.seen("log", LOGIN[2])
    (lesson,) = known.lessons
    assert known.count == 1
    assert lesson["state"] == "retired"
    assert lesson["text"] == ""
    assert lesson["tags"] == []


@pytest.mark.sqlite
async def test_what_another_connection_writes_is_seen(memory, path):
    await told(memory, LOGIN[:3])
    assert (await memory.seen("log", LOGIN[0])).count == 1
    with opened(path) as store:
        other = Memory(store)
        await told(other, LOGIN[3:4])
        assert (await memory.seen("log", LOGIN[0])).count == 4
        await other.set_apart(digest(LOGIN[0]), by="ann")
        assert (await memory.seen("log", LOGIN[0])).count == 1


steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["operator", "measured", "external", "apart", "together", "forget"]
        ),
        st.integers(0, len(NAMES) - 1),
    ),
    max_size=30,
)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(done=steps)
def test_what_is_kept_never_differs_from_what_is_read_anew(done):
    async def scenario(memory: Memory) -> None:
        for what, at in done:
            known = {one["signature"] for one in await memory.top(99)}
            if what in ("apart", "together"):
                if digest(LOGIN[at]) in known:
                    await memory.set_apart(
                        digest(LOGIN[at]), by="ann", apart=what == "apart"
                    )
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
