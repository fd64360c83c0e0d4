"""Dreams that reflect: what recurs becomes one reflection, and goes as it came."""

from typing import Any

import pytest

from heedful.errors import RollbackRefused
from heedful.lessons.dream_proposals import Proposal
from heedful.lessons.lesson import Scope
from heedful.memory.dream import (
    COUNTED_OUTCOME,
    KNOWN_OUTCOME,
    WITHDRAWN_OUTCOME,
    Dream,
    Dreams,
    consolidate,
)
from heedful.memory.memory import Memory
from heedful.store.store import Store
from tests.engines import check_derived
from tests.memory.dreams import (
    CONFLICT,
    DIRTY,
    NO_STAT,
    REJECTED,
    dump_tables,
    failed_call,
    learn_failure,
    learn_git_failures,
)
from tests.tables import cases

pytestmark = pytest.mark.both_nightly
AUTOSTASH = failed_call(
    "git push", "Updates were rejected", "git pull --rebase --autostash"
)


@pytest.fixture
def memory(store: Store) -> Memory:
    return Memory(store, Scope("ours"))


def reflections_of(dream: Dream) -> list[Proposal]:
    return [proposal for proposal in dream.done if proposal.action == "reflect"]


async def lesson_rows(memory: Memory) -> dict[int, dict[str, Any]]:
    return {lesson["id"]: dict(lesson) for lesson in await memory.top(100)}


async def test_failures_with_one_tool_become_one_partial_reflection(memory):
    ids = await learn_git_failures(memory)
    before = await dump_tables(memory)

    rehearsal = await consolidate(memory, dry_run=True)
    [proposed] = reflections_of(rehearsal)
    assert proposed.survivor < 0
    assert "git pull --rebase" in rehearsal.texts[proposed.survivor]
    assert await dump_tables(memory) == before

    dream = await consolidate(memory, by="ada")
    [reflection] = reflections_of(dream)
    assert reflection.members == tuple(ids)
    assert reflection.why == "3 failures with the tool git in 3 runs"
    assert dream.before == 3
    assert dream.after == 4
    assert dream.superseded == 0
    assert dream.written == 1

    rows = await lesson_rows(memory)
    assert {rows[id]["state"] for id in ids} == {"unverified"}
    row = rows[reflection.survivor]
    assert row["kind"] == "reflection"
    assert row["error_type"] == "partial"
    assert row["trust"] == "local"
    text = dream.texts[reflection.survivor]
    assert text == row["text"]
    for id in ids:
        assert f"lesson {id})" in text
    assert "what put it right: Bash `git pull --rebase`" in text
    assert "(2 runs, " in text


@pytest.mark.parametrize("trust", ["user", "local"])
async def test_a_reflection_is_trusted_no_more_than_what_it_cites(memory, trust):
    await learn_failure(memory, REJECTED, "one", trust)
    await learn_failure(memory, NO_STAT, "two", "user")
    await learn_failure(memory, CONFLICT, "two", "user")
    await learn_failure(memory, CONFLICT, "three", "user")
    dream = await consolidate(memory)
    [reflection] = reflections_of(dream)
    rows = await lesson_rows(memory)
    expected = "local" if trust == "user" else trust
    assert rows[reflection.survivor]["trust"] == expected


async def test_what_waits_in_quarantine_is_not_cited(memory):
    ids = await learn_git_failures(memory)
    waiting = await learn_failure(memory, DIRTY, "four", "outside")
    # Of another lesson, a part waits.
    await learn_failure(memory, AUTOSTASH, "five", "outside")
    dream = await consolidate(memory)
    [reflection] = reflections_of(dream)
    assert reflection.members == tuple(ids)
    assert waiting not in reflection.members


async def test_the_same_failures_are_not_reflected_on_twice(memory):
    await learn_git_failures(memory)
    [first] = reflections_of(await consolidate(memory))
    again = await consolidate(memory)
    [proposal] = again.proposals
    assert proposal.outcome == KNOWN_OUTCOME
    assert proposal.survivor == first.survivor
    assert again.after == again.before == 4

    await learn_failure(memory, CONFLICT, "later")
    counted = await consolidate(memory)
    assert [proposal.outcome for proposal in counted.proposals] == [COUNTED_OUTCOME]
    rows = await lesson_rows(memory)
    assert rows[first.survivor]["seen"] == 2
    assert len(rows) == 4


async def test_a_further_failure_makes_a_new_version_of_the_reflection(memory):
    ids = await learn_git_failures(memory)
    [first] = reflections_of(await consolidate(memory))
    ids.append(await learn_failure(memory, DIRTY, "four"))
    await learn_failure(memory, DIRTY, "five")

    dream = await consolidate(memory)
    [second] = reflections_of(dream)
    assert second.members == tuple(ids)
    assert dream.after == dream.before == 5
    rows = await lesson_rows(memory)
    assert rows[first.survivor]["state"] == "superseded"
    assert rows[second.survivor]["state"] == "unverified"

    assert await Dreams(memory).rollback(dream.id, by="ada") == 1
    rows = await lesson_rows(memory)
    assert rows[first.survivor]["state"] == "unverified"
    assert rows[second.survivor]["state"] == "superseded"


async def test_a_rollback_withdraws_the_reflection_for_good(memory):
    await learn_git_failures(memory)
    dream = await consolidate(memory)
    [reflection] = reflections_of(dream)
    await Dreams(memory).rollback(dream.id, by="ada", why="too long")
    rows = await lesson_rows(memory)
    assert rows[reflection.survivor]["state"] == "superseded"

    again = await consolidate(memory)
    assert again.nothing == f"each proposal was dropped: {WITHDRAWN_OUTCOME}"
    with pytest.raises(RollbackRefused, match="is rolled back already"):
        await Dreams(memory).rollback(dream.id, by="ada")


async def retire_cited(memory: Memory, id: int) -> None:
    sql = f"update lesson set state = 'retired' where id = {id}"
    await memory.store.write(memory.scope, lambda db, _: db.execute(sql) and None)


async def delete_cited(memory: Memory, id: int) -> None:
    sql = f"delete from lesson where id = {id}"
    await memory.store.write(memory.scope, lambda db, _: db.execute(sql) and None)


async def edit_cited(memory: Memory, id: int) -> None:
    await memory.edit(id, "Pull before you push.", by="ada")


async def revoke_run(memory: Memory, id: int) -> None:
    removed = await memory.quarantine.revoke("episode:one", by="ada")
    assert removed.lessons == 2


async def clear_scope(memory: Memory, id: int) -> None:
    await memory.clear()


@cases(
    "remove",
    {
        "retire": retire_cited,
        "delete": delete_cited,
        "other words": edit_cited,
        "revoke a run": revoke_run,
        "clear": clear_scope,
    },
)
async def test_a_reflection_goes_with_a_lesson_that_it_cites(memory, remove):
    cited, *_ = await learn_git_failures(memory)
    dream = await consolidate(memory)
    [reflection] = reflections_of(dream)
    await remove(memory, cited)
    assert reflection.survivor not in await lesson_rows(memory)
    tables = await dump_tables(memory)
    assert "What went wrong with" not in str(tables)
    assert "cites" not in str(tables["link"])
    await check_derived(memory.store)


async def test_recall_shows_a_reflection_once_its_failures_come_back(memory):
    await learn_git_failures(memory)
    [reflection] = reflections_of(await consolidate(memory))
    row = (await lesson_rows(memory))[reflection.survivor]
    matches = await memory.recall(row["text"], 20)
    assert reflection.survivor not in [match.lesson_id for match in matches]

    await learn_failure(memory, CONFLICT, "later")
    await consolidate(memory)
    matches = await memory.recall(row["text"], 20)
    assert reflection.survivor in [match.lesson_id for match in matches]
    # What happened elsewhere is no rule: no prompt has it.
    briefing = await memory.brief(row["text"], "loop")
    assert reflection.survivor not in [match.lesson_id for match in briefing.chosen]
