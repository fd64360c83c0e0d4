"""The right answer that a person gives is told at once, as the best example."""

from collections.abc import Iterator

import pytest

from heedful import Finding, Memory
from heedful.errors import InvalidInput, NotFound
from heedful.lessons.lesson import Scope
from heedful.store import loop_notes
from heedful.store.store import Store
from tests.memory.loops import run_loop

TASK = "Checkout answers 500 for everyone"
KEY = "triage"


def severity(answer: str) -> Iterator[Finding]:
    if answer not in ("P0", "P1"):
        yield Finding("severity", f"{answer!r} is no severity", fix="answer P0 or P1")


async def give_answer(memory: Memory, id: str, answer: str, task: str = TASK) -> None:
    """Run a loop that gives one answer."""

    def generate(task: str, hint: str) -> str:
        return answer

    await run_loop(
        memory, task, generate, [severity], memory_key=KEY, id=id, max_attempts=2
    )


@pytest.fixture
def memory(store: Store) -> Memory:
    return Memory(store, Scope(), holdout=0.0)


@pytest.mark.both_nightly
async def test_a_right_answer_is_told_to_the_next_loop_of_the_key(memory):
    await give_answer(memory, "first", "urgent")
    answers = await memory.correct("first", "P0", by="ann", why="it sells nothing")
    assert [answer.trust for answer in answers] == ["user"]
    assert [answer.state for answer in answers] == ["verified"]

    briefing = await memory.brief(TASK, "next", memory_key=KEY)
    turns = [message.content for message in briefing.examples]
    assert "P0" in turns[-1]
    notes = await memory.store.read(memory.scope, loop_notes.notes_of, "first")
    assert [note.by for note in notes] == ["ann"]
    assert notes[0].text == "Accepted answer (it sells nothing): P0"


@pytest.mark.both_nightly
async def test_the_same_answer_counts_once(memory):
    await give_answer(memory, "first", "urgent")
    (first,) = await memory.correct("first", "P0", by="ann")
    assert await memory.correct("first", "P0", by="ann") == []
    lessons = await memory.top()
    assert [lesson["id"] for lesson in lessons] == [first.id]
    assert len(await memory.store.read(memory.scope, loop_notes.notes_of, "first")) == 1


@pytest.mark.both_nightly
async def test_what_a_check_refuses_is_no_right_answer(memory):
    await give_answer(memory, "first", "urgent")
    with pytest.raises(InvalidInput, match="severity does not refuse"):
        await memory.correct("first", "urgent", by="ann")
    with pytest.raises(InvalidInput, match="'P9' is no severity"):
        await memory.correct("first", "P9", by="ann", checks=[severity])
    await give_answer(memory, "passed", "P1")
    with pytest.raises(InvalidInput, match="ended without passing"):
        await memory.correct("passed", "P0", by="ann")
    with pytest.raises(NotFound):
        await memory.correct("nowhere", "P0", by="ann")
