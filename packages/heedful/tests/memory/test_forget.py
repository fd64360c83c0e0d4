"""Forgetting: what goes, what stays with others, and what the files still have."""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.episodes.episode import Episode, Event
from heedful.errors import InvalidInput, NotFound
from heedful.integrations import Host
from heedful.lessons.scope import Scope
from heedful.memory.memory import Memory
from heedful.store import episodes, exposures, keys, loop_notes, loops
from heedful.store.connection import Actor, Db
from heedful.store.copying import tables
from heedful.store.sqlite import in_file
from heedful.store.store import Effects, Store
from tests.tables import cases

# Each stands in what goes; none in what stays.
WORDS = ("zebrafish", "marrakesh", "vespa")
OTHERS = "walnut"
ALL_TABLES = {table.name for table in tables()}
# The tables whose words no forgetting deletes, and why.
WORDLESS = {
    "answer": "emptied whole",
    "audit": "who did what through a service, without texts",
    "call_success": "digests",
    "corpus": "numbers",
    "key": "the name of a key, until somebody revokes it",
    "lineage": "numbers",
    "link": "digests",
    "outcome": "digests and numbers",
    "refused": "digests",
    "session_mark": "digests",
    "spending": "numbers",
    "tally": "numbers",
}
# The tables that a case below fills with words, which must be gone.
FORGOTTEN = {
    "attempt",
    "call_failure",
    "cause",
    "climb",
    "decision",
    "episode",
    "event",
    "example",
    "exposure",
    "hardened",
    "learnt",
    "lesson",
    "loop",
    "note",
    "occurrence",
    "origin",
    "override",
    "past_call",
    "reminder",
    "ruling",
    "span",
    "step",
    "trace",
    "trial",
    "vector",
}


def judge(answer: str) -> None:
    if "kindly" not in answer:
        raise ValueError(f"the answer {answer!r} must contain the word kindly")


def answer(task: str, hint: str) -> str:
    return f"kindly {task}" if hint else f"{task}, now"


async def run_loop(memory: Memory, word: str, id: str) -> None:
    await heedful.run(
        f"Plan a trip with a {word}.",
        id=id,
        generate=answer,
        checks=[judge],
        memory=memory,
        memory_key="trip",
    )


async def say(memory: Memory, word: str, source: str, **options: Any) -> Any:
    return await memory.remember(
        "preference",
        f"the user has a {word}",
        lesson=f"Keep the {word} in mind.",
        context=f"while we planned a {word}",
        tags=[word],
        source=source,
        **options,
    )


async def tell_agent(memory: Memory, word: str, session: str) -> None:
    call = f'{{"command": "pack {word}"}}'
    error = f"pack: {word}: No such file or directory"
    steps = (
        Event("tool_call", call, tool="Bash", call="1"),
        Event("tool_response", error, tool="Bash", call="1", code="2"),
        Event("tool_call", f'{{"command": "fetch {word}"}}', tool="Bash", call="2"),
        Event("tool_response", "done", tool="Bash", call="2", code="0"),
        Event("tool_call", call, tool="Bash", call="3"),
        Event("tool_response", "done", tool="Bash", call="3", code="0"),
    )
    await heedful.reflect(
        Episode(steps, session=session, outcome="success", task=f"Pack a {word}."),
        memory=memory,
    )


async def end_session(memory: Memory, word: str) -> None:
    """Let a session end in which an agent made a call with a word."""
    run = Host(memory=memory).run("ended")
    await run.before("Bash", {"command": f"pack {word}"}, word)
    await memory.store.write(
        memory.scope, episodes.forget_session, "ended", until=time.time()
    )


async def of_lesson(memory: Memory) -> dict[str, Any]:
    first, *_ = [await say(memory, " ".join(WORDS), f"page {n}") for n in (1, 2)]
    example = heedful.Example("a zebrafish", "marrakesh", rejected="vespa")
    await say(memory, " ".join(WORDS), "page 3", example=example)
    await memory.edit(first.id, "A vespa, then.", by="ann", why="vespa is shorter")
    await memory.pin(first.id, by="ann", why="all need the marrakesh rule")
    await memory.brief("a zebrafish marrakesh vespa", "told")
    return {"lesson": first.id}


async def of_person(memory: Memory) -> dict[str, Any]:
    key, _ = await keys.create(memory.store, memory.scope.tenant, "ada")
    for word in WORDS:
        await say(memory, word, "user:ada")
    await memory.user_rules.state("Never book a vespa.", by="ada")
    with Effects(actor=Actor(f"key:{key.id}")):
        await run_loop(memory, "zebrafish", "hers")
        await say(memory, "marrakesh", "a page")
    other = await heedful.open_loop(
        "others",
        "Weigh it.",
        store=memory.store,
        policy=heedful.Policy((heedful.MaxAttempts(1),), name="one try"),
    )
    await other.report(
        "12", evaluation=heedful.Evaluation((heedful.Finding("u", "no"),))
    )
    await heedful.override(
        "others", "attempts", by="ada", why="for the vespa", store=memory.store
    )
    await memory.store.write(
        memory.scope, loop_notes.add, "others", "ask about marrakesh", by="ada"
    )
    theirs = await say(memory, OTHERS, "user:bob")
    await memory.pin(theirs.id, by="ada", why="as with the zebrafish")
    return {"person": "ada"}


async def of_loop(memory: Memory) -> dict[str, Any]:
    await run_loop(memory, " ".join(WORDS), "trip/1")
    await memory.store.write(
        memory.scope, loop_notes.add, "trip/1", "marrakesh again", by="ann"
    )
    trial = heedful.Trial("mem", memory.store, keep_texts=True, holdout=0.0)
    await trial.offer("trip/1", ["she has a vespa"])
    return {"loop": "trip/1"}


async def of_old(memory: Memory) -> dict[str, Any]:
    await of_lesson(memory)
    await of_person(memory)
    await of_loop(memory)
    for word in WORDS:
        await tell_agent(memory, word, f"session {word}")
        await end_session(memory, word)
    await heedful.consolidate(memory)
    before = time.time()
    await say(memory, OTHERS, "user:bob")
    return {"before": before}


TARGETS: dict[str, Callable[[Memory], Awaitable[dict[str, Any]]]] = {
    "a lesson": of_lesson,
    "a person": of_person,
    "a loop": of_loop,
    "all that is old": of_old,
}


def words_in_file(path: Path) -> list[str]:
    files = [path, path.with_name(f"{path.name}-wal")]
    data = b"".join(file.read_bytes() for file in files if file.exists())
    return [word for word in (*WORDS, OTHERS) if word in data.decode("latin-1").lower()]


async def words_in_tables(store: Store, scope: Scope) -> dict[str, set[str]]:
    """Return the tables that have each of the words, in any column."""

    def read(db: Db, scope: Scope) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for table in ALL_TABLES - {"schema_version"}:
            text = str([dict(row) for row in db.execute(f"select * from {table}")])
            for word in WORDS:
                if word in text.lower():
                    found.setdefault(word, set()).add(table)
        return found

    return await store.read(scope, read)


@pytest.mark.sqlite
@cases("fill", TARGETS)
async def test_no_word_stays_in_the_files(tmp_path, fill):
    path = tmp_path / "a.db"
    memory = Memory(in_file(str(path)), holdout=0)
    await say(memory, OTHERS, "user:bob")
    target = await fill(memory)
    assert set(WORDS) <= set(words_in_file(path))

    forgotten = await memory.forget(**target, by="ops", why="asked")

    assert forgotten.remains == ""
    await memory.store.close()
    assert words_in_file(path) == [OTHERS]


@pytest.mark.both
@cases("fill", TARGETS)
async def test_no_word_stays_in_a_table(store, fill):
    memory = Memory(store, holdout=0)
    target = await fill(memory)
    assert set(await words_in_tables(store, memory.scope)) == set(WORDS)
    await memory.forget(**target, by="ops", why="asked")
    assert await words_in_tables(store, memory.scope) == {}


@pytest.mark.both
async def test_a_revoked_run_leaves_none_of_its_calls(store):
    memory = Memory(store)
    for word in WORDS:
        await end_session(memory, word)
    assert set(await words_in_tables(store, memory.scope)) == set(WORDS)
    await memory.quarantine.revoke("episode:ended", by="ops")
    assert await words_in_tables(store, memory.scope) == {}


@pytest.mark.sqlite
async def test_a_cleared_scope_leaves_no_word_and_no_loop(tmp_path):
    path = tmp_path / "a.db"
    memory = Memory(in_file(str(path)), holdout=0)
    await of_old(memory)
    await memory.clear()
    loops_left, _ = await memory.store.read(memory.scope, loops.newest, 9)
    assert loops_left == []
    assert await words_in_tables(memory.store, memory.scope) == {}
    await memory.store.close()
    assert words_in_file(path) == []


@pytest.mark.sqlite
async def test_a_revoked_source_leaves_no_word_in_the_files(tmp_path):
    path = tmp_path / "a.db"
    memory = Memory(in_file(str(path)), holdout=0)
    for word in WORDS:
        await say(memory, word, "user:ada")
    await memory.quarantine.revoke("user:ada", by="ops")
    await memory.store.close()
    assert words_in_file(path) == []


def test_every_table_is_one_that_forgetting_knows():
    """A new table is filled by a case above, or has no words."""
    assert FORGOTTEN | set(WORDLESS) == ALL_TABLES


def nobody(memory: Memory) -> Awaitable[Any]:
    return memory.forget(person="nobody", by="ops")


@pytest.mark.both
async def test_what_nobody_said_is_an_answer_without_rows(store):
    memory = Memory(store, holdout=0)
    await say(memory, OTHERS, "user:bob")
    forgotten = await nobody(memory)
    assert not forgotten
    assert await memory.count() == 1
    assert await store.read(memory.scope, exposures.rulings, 9) == []


SAME_WORDS = {
    "she said it first": ("user:ada", "user:bob"),
    "she said it last": ("user:bob", "user:ada"),
    "an operator, and she": ("operator:ada", "user:bob"),
    "she said it twice": ("user:ada", "user:bob", "user:ada"),
    "without a prefix": ("ada", "user:bob"),
    "another one without a source": ("user:ada", ""),
}


@pytest.mark.both
@cases("sources", SAME_WORDS)
@pytest.mark.parametrize("with_example", [True, False])
async def test_what_others_said_in_the_same_words_stays(store, sources, with_example):
    memory = Memory(store, holdout=0)
    example = None
    if with_example:
        example = heedful.Example("Weigh the cup.", "12 kg", rejected="12")
    for source in sources:
        await memory.remember(
            "unit",
            "no unit",
            lesson="Write the unit.",
            example=example,
            source=source,
        )
    forgotten = await memory.forget(person="ada", by="ops")
    (lesson,) = await memory.top()
    assert forgotten.shared == (lesson["id"],)
    assert forgotten.lessons == 0
    assert lesson["text"] == "Write the unit."
    assert lesson["seen"] == 1
    assert lesson["state"] == "unverified"
    (match,) = await memory.recall("weigh the cup and write the unit")
    assert (match.example.accepted == "12 kg") is with_example


OTHER_WORDS = {
    "he has words of his own": ("Write kg.", "Write kg."),
    "he only saw it": ("", "no unit of cup 7"),
}


@pytest.mark.both
@cases("his, shown", OTHER_WORDS)
async def test_a_lesson_shows_the_words_of_who_stays(store, his, shown):
    memory = Memory(store, holdout=0)
    await memory.remember("unit", "no unit of cup 7", lesson=his, source="user:bob")
    await memory.remember(
        "unit",
        "no unit of cup 8",
        lesson="Write the zebrafish.",
        tags=["vespa"],
        source="user:ada",
    )
    await memory.forget(person="ada", by="ops")
    (lesson,) = await memory.top()
    assert lesson["text"] == shown
    assert lesson["tags"] == []
    assert lesson["seen"] == 1


@pytest.mark.both
async def test_the_tags_of_who_said_it_first_go_though_another_changed_her_words(store):
    memory = Memory(store, holdout=0)
    await memory.remember(
        "unit", "no unit", lesson="Write g.", tags=["vespa"], source="user:ada"
    )
    await memory.remember("unit", "no unit", lesson="Write kg.", source="user:bob")
    await memory.forget(person="ada", by="ops")
    (lesson,) = await memory.top()
    assert lesson["text"] == "Write kg."
    assert lesson["tags"] == []


async def test_a_saying_from_outside_waits_when_who_was_believed_is_forgotten(memory):
    await memory.remember("unit", "no unit", lesson="Write it.", source="user:ada")
    await memory.remember(
        "unit", "no unit", lesson="Write it.", origin="outside", source="page"
    )
    await memory.forget(person="ada", by="ops")
    (entry,) = await memory.quarantine.waiting()
    assert entry.source == "page"
    (lesson,) = await memory.top()
    assert lesson["text"] == ""


async def test_what_derives_goes_but_not_what_another_also_said(memory):
    hers = await memory.remember("a", "x", lesson="Sort first.", source="user:ada")
    derived = {"lesson": "Sort twice.", "derived_from": [hers.id]}
    await memory.remember("b", "y", **derived)
    await memory.remember("c", "z", **derived)
    await memory.remember("c", "z", lesson="Sort twice.", source="user:bob")
    forgotten = await memory.forget(person="ada", by="ops")
    (lesson,) = await memory.top()
    assert lesson["error_type"] == "c"
    assert lesson["seen"] == 1
    assert forgotten.lessons == 2


async def test_two_loops_that_taught_the_same_are_forgotten_one_by_one(memory):
    runs: list[heedful.Run[str]] = [
        heedful.Run(
            "Plan a trip.", id=id, generate=answer, checks=[judge], memory=memory
        )
        for id in ("one", "two")
    ]
    # Neither is shown what the other taught.
    for run in (*runs, *runs):
        await run.step()
    before = {lesson["text"] for lesson in await memory.top()}
    await memory.forget(loop="one", by="ops")
    assert {lesson["text"] for lesson in await memory.top()} <= before
    assert await memory.count() > 0
    await memory.forget(loop="two", by="ops")
    assert await memory.count() == 0


async def test_a_run_is_forgotten_with_its_stages(store):
    memory = Memory(store, holdout=0)
    pipeline = heedful.Pipeline("p", store=store)

    @pipeline.stage()
    def weigh(state: dict[str, Any]) -> None:
        state["weight"] = "12 kg"

    await pipeline.run({}, id="R")
    forgotten = await memory.forget(loop="R", by="ops")
    assert set(forgotten.loop_ids) == {"R", "R/weigh"}
    loops_left, _ = await store.read(Scope(), loops.newest, 9)
    assert loops_left == []


@pytest.mark.both
async def test_a_dry_run_counts_the_same_and_deletes_nothing(store):
    memory = Memory(store, holdout=0)
    await of_old(memory)
    before = await memory.top(50)
    planned = await memory.forget(person="ada", dry_run=True)
    assert await memory.top(50) == before
    forgotten = await memory.forget(person="ada", by="ops")
    assert planned.counts == forgotten.counts
    assert planned.shared == forgotten.shared


async def test_another_scope_and_another_person_are_untouched(store):
    here = Memory(store, Scope("bot", "one"), holdout=0)
    there = Memory(store, Scope("bot", "two"), holdout=0)
    for memory in (here, there):
        await say(memory, OTHERS, "user:adam")
        await say(memory, "zebrafish", "user:ada")
    await here.forget(person="user:ada", by="ops")
    assert await here.count() == 1
    assert await there.count() == 2


async def test_the_ruling_names_neither_the_person_nor_the_words(memory):
    await say(memory, "zebrafish", "user:ada")
    await memory.quarantine.revoke("user:ada", by="ops")
    await say(memory, "zebrafish", "user:ada")
    await memory.forget(person="ada", by="ops", why="as the law says")
    rulings = await memory.store.read(memory.scope, exposures.rulings, 9)
    assert [ruling["action"] for ruling in rulings] == ["forget", "revoke"]
    assert rulings[0]["by"] == "ops"
    assert rulings[0]["why"] == "as the law says"
    assert rulings[0]["record"]["lessons"] == 1
    assert "ada" not in str(rulings)


@pytest.mark.both
async def test_no_ruling_names_the_source_of_forgotten_words_or_a_loop(store):
    memory = Memory(store, holdout=0)
    lesson = await memory.remember("E", "no unit", lesson="Write g.", source="user:ada")
    await memory.edit(lesson.id, "Write kg.", by="ops")
    await memory.remember("unit", "none", origin="outside", source="page")
    await memory.remember("unit", "none", source="user:ada")
    await run_loop(memory, "vespa", "ada-1")
    await memory.forget(loop="ada-1", by="ops")
    await memory.forget(person="ada", by="ops")
    rulings = await memory.store.read(memory.scope, exposures.rulings, 9)
    actions = ["forget", "forget", "release", "edit"]
    assert [ruling["action"] for ruling in rulings] == actions
    assert "ada" not in str([dict(ruling) for ruling in rulings])


@pytest.mark.both
async def test_what_is_newer_than_the_day_stays(store):
    memory = Memory(store, holdout=0)
    await say(memory, "zebrafish", "user:ada")
    await run_loop(memory, "vespa", "old")
    before = time.time()
    await say(memory, "zebrafish", "user:bob")
    await run_loop(memory, OTHERS, "new")
    forgotten = await memory.forget(before=before, by="ops")
    assert forgotten.loop_ids == ("old",)
    stored_loops, _ = await store.read(memory.scope, loops.newest, 9)
    assert [loop.id for loop in stored_loops] == ["new"]
    counts = {lesson["kind"]: lesson["seen"] for lesson in await memory.top()}
    assert counts["error"] == 1
    seen = await memory.seen("preference", "the user has a zebrafish")
    assert seen.count == 1


REFUSED: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "nothing": ({"by": "ops"}, InvalidInput),
    "two": ({"by": "ops", "lesson": 1, "loop": "L"}, InvalidInput),
    "a blank person": ({"by": "ops", "person": " "}, InvalidInput),
    "nobody asks": ({"lesson": 1}, InvalidInput),
    "an unknown lesson": ({"by": "ops", "lesson": 99}, NotFound),
    "an unknown loop": ({"by": "ops", "loop": "L"}, NotFound),
    "the future": ({"by": "ops", "before": time.time() + 9e6}, InvalidInput),
}


@cases("options, error", REFUSED)
async def test_what_is_refused(memory, options, error):
    await say(memory, OTHERS, "user:bob")
    with pytest.raises(error):
        await memory.forget(**options)
    assert await memory.count() == 1


@pytest.mark.sqlite
async def test_a_reader_elsewhere_delays_the_files_and_the_next_call_ends_it(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("heedful.store.sqlite.BUSY_TIMEOUT_SECONDS", 0.1)
    path = tmp_path / "a.db"
    memory = Memory(in_file(str(path)), holdout=0)
    target = await of_lesson(memory)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from lesson").fetchone()
        forgotten = await memory.forget(**target, by="ops")
        assert "another program reads the file" in forgotten.remains
        assert await memory.count() == 0
    again = await memory.forget(**target, by="ops")
    assert not again
    assert again.remains == ""
    assert words_in_file(path) == []
    await memory.store.close()


@pytest.mark.sqlite
async def test_what_is_written_meanwhile_is_not_lost(tmp_path):
    memory = Memory(in_file(str(tmp_path / "a.db")), holdout=0)
    target = await of_lesson(memory)
    others = [memory.remember("E", f"failure {'x' * n}") for n in range(1, 20)]
    await asyncio.gather(memory.forget(**target, by="ops"), *others)
    assert await memory.count() == len(others)
    await memory.store.close()
