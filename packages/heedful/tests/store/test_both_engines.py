"""What random calls on both engines leave out, on each: episodes, spans and edits."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from heedful.episodes.spans import Piece
from heedful.errors import InvalidInput, NotFound
from heedful.lessons.call_marks import Mark, Step, whole_call
from heedful.lessons.lesson import Scope
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.store import (
    calls,
    editions,
    episode_lessons,
    episodes,
    exposures,
    patterns,
)
from heedful.store.episodes import StoredEpisode
from heedful_server import arrivals
from tests.store.entries import build_lesson
from tests.store.support import SCOPE

pytestmark = pytest.mark.both
FAR = 4e9  # seconds since 1970, after any test


ABSENT = Mark("path", "docs/x.md")
ABSENT_ERROR = "docs/x.md does not exist"
FAILS = Step((ABSENT,), (ABSENT_ERROR,), failed=((ABSENT, ABSENT_ERROR),))


async def count_failures(store: Any) -> int:
    """Return in how many runs a Read of the absent file is known to have failed."""
    history = await store.read(
        SCOPE, calls.history_of, "Read", {"file_path": "docs/x.md"}
    )
    return sum(failure.runs for failure in history.failures)


async def test_episodes_and_spans(store):
    read = partial(store.read, SCOPE)
    write = partial(store.write, SCOPE)
    episode = StoredEpisode(
        digest="d1", name="run", session="", outcome="failure", record={"a": 1}
    )
    assert await write(episodes.admit, episode) is None
    assert await write(episodes.admit, episode, claim=False) == "waiting"
    assert (
        await write(episodes.admit, replace(episode, digest="d2"), claim=False)
        == "waiting"
    )
    assert await write(episodes.admit, replace(episode, digest="d3")) is None
    assert await read(episodes.left, 9) == ["d2"]
    assert (await write(episodes.take, FAR)).digest == "d2"
    await write(episodes.beat, "d2")
    await write(episodes.record_failure, "d2", "ModelTimeout")
    assert await read(episodes.state, "d2") == "failed"
    (remembered,) = await write(
        episode_lessons.record_lessons, "d1", [build_lesson("it failed")]
    )
    failed = replace(FAILS, lesson=remembered.id)
    await write(calls.record_run, "run", [failed, Step(())])
    assert await count_failures(store) == 1
    assert (
        await read(patterns.find, signature("", "?"), [("?", signature("", "?"))])
    ).count == 0
    head = {"name": "a", "session": "s", "outcome": "partial"}
    back = [build_lesson("it came back")]
    session = partial(write, episode_lessons.record_session, "d9", head, [], back)
    assert len(await session()) == 1
    assert await session() == []
    assert await read(episodes.counts) == {"reflected": 2, "failed": 1, "waiting": 1}
    assert len(await read(episodes.page, 9)) == 4
    assert await read(episodes.known_examples, ["x"]) == set()
    spans = [
        Piece(trace=trace, id="1", parent="", root=True, record="{}", known=True)
        for trace in ("t", "u")
    ]
    for _ in range(2):
        assert not await write(arrivals.put_spans, spans, "outside")
    assert await read(arrivals.read_spans, "t") == spans[:1]
    for trace in await read(arrivals.ended_traces, FAR, FAR):
        assert await write(
            arrivals.finish_trace, trace, replace(episode, digest=trace.id)
        )
    assert not await read(arrivals.ended_traces, FAR, FAR)


async def test_sessions_give_way_whole_and_say_what_a_hook_asks(store, monkeypatch):
    read = partial(store.read, SCOPE)
    write = partial(store.write, SCOPE)
    monkeypatch.setattr(episodes, "MAX_SESSION_EVENTS", 10)
    listing = whole_call("Bash", "ls x")
    call = {
        "type": "tool_call",
        "tool": "Bash",
        "call": "",
        "action": listing.digest,
        "failed": False,
        "record": json.dumps({"tool": "Bash", "arguments": {}, "error": "it failed"}),
    }
    end = {**call, "type": "tool_response", "action": "", "failed": True}
    for session, events in (
        ("old", [call] * 4),
        ("kept", [call, end, call]),
        ("new", [call] * 4),
    ):
        await write(episodes.append_events, session, events)
    lengths = [
        len(await read(episodes.session_events, session))
        for session in ("old", "kept", "new")
    ]
    assert lengths == [0, 3, 4]
    assert await read(episodes.course_of, "kept", "Bash", "", listing) == (True, True)
    assert await read(episodes.course_of, "kept", "Bash", "c", listing) == (False, True)
    assert await read(episodes.course_of, "new", "Read", "", listing) == (False, False)
    numbered = [{**event, "call": "c", "tool": "X"} for event in (call, end)]
    await write(episodes.append_events, "new", [*numbered, *[call] * 8])
    assert len(await read(episodes.session_events, "new")) == 9
    assert await read(episodes.owner, "new") == ""
    assert sorted(await read(episodes.abandoned, FAR)) == ["new"]


async def test_new_words_are_a_version_of_their_own(store):
    memory = Memory(store, SCOPE)
    new = "New words on parcels"
    remember_old_words = partial(
        memory.remember,
        "E",
        "it is late",
        lesson="Old words on parcels",
        origin="local",
        source="page",
    )
    id = (await remember_old_words()).id
    counted = "update lesson set helped = 3, useful = 0.5, state = 'verified'"
    await store.write(SCOPE, lambda db, _: db.execute(counted) and None)
    assert await memory.edit(id, new, by="ann", why="plainer") == 0
    now = await store.read(SCOPE, editions.one, id)
    assert now["text"] == new
    assert now["trust"] == "user"
    assert now["state"] == "unverified"
    assert now["helped"] == 0
    assert now["useful"] == 1
    assert now["seen"] == 1
    assert now["judged_from"] >= now["last_seen"]
    for query in ("Old words on parcels", new):
        assert [match.lesson for match in await memory.recall(query)] == [new]
    (ruling,) = await store.read(SCOPE, exposures.rulings, 9)
    assert ruling["action"] == "edit"
    assert ruling["record"]["source"] == "page"
    for wrong, by in (
        (" ", "ann"),
        ("x" * 4_001, "ann"),
        (new, "ann"),
        ("No actor.", " "),
    ):
        with pytest.raises(InvalidInput):
            await memory.edit(id, wrong, by=by)
    await remember_old_words()  # they do not come back
    await memory.quarantine.revoke("page", by="ann")
    assert (await store.read(SCOPE, editions.one, id))["text"] == new


async def test_an_edit_is_whole_or_not_at_all(store):
    memory = Memory(store, SCOPE)
    id = (await memory.remember("E", "what went wrong")).id
    edition = (await store.read(SCOPE, editions.one, id))["edition"]
    await memory.remember("E", "what went wrong")  # seen again: a counter is no edit
    read = await store.read(SCOPE, editions.one, id)
    assert read["seen"] == 2
    assert read["edition"] == edition
    edit = partial(editions.amend, edition=edition, by="ada", why="", pinned=True)
    with pytest.raises(NotFound):  # no proof retired it
        await store.write(SCOPE, partial(edit, id=id, restored=True))
    assert await store.read(SCOPE, editions.one, id) == read
    for scope, other in ((Scope("other"), id), (SCOPE, id + 1), (SCOPE, 2**63 - 1)):
        with pytest.raises(NotFound):
            await store.write(scope, partial(edit, id=other))
