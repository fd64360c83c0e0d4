"""Lessons from reviews and CI: two changes make one, and nobody is trusted unasked."""

from typing import Any

import pytest

from heedful.episodes.changes import CI_SOURCE, ChangeRemarks, Remark
from heedful.memory.changes import learn_change
from heedful.memory.memory import Memory
from heedful.store import lessons
from tests.engines import in_memory

WRAP = "Please wrap errors with `%w`."
LINT = "cart.go:12:3: Error return value of `db.Close` is not checked (errcheck)"

pytestmark = pytest.mark.both_nightly


def review(
    name: str, text: str = WRAP, login: str = "ann", **more: Any
) -> ChangeRemarks:
    """Return a pull request with one comment."""
    remark = Remark(text=text, about="cart.go", source=f"reviewer:{login}", **more)
    return ChangeRemarks(name=name, kind="review", remarks=(remark,))


def run_of_ci(name: str, text: str = LINT, place: str = "make lint") -> ChangeRemarks:
    """Return a run of CI with one error."""
    remark = Remark(text=text, about="make lint", source=CI_SOURCE, place=place)
    return ChangeRemarks(name=name, kind="ci", remarks=(remark,))


async def learn(memory: Memory, *changes: ChangeRemarks) -> None:
    for change in changes:
        await learn_change(change, memory=memory)


async def told(memory: Memory) -> list[str]:
    """Return the texts that may be told."""
    usable = ("unverified", "verified")
    return [row["text"] for row in await memory.top() if row["state"] in usable]


async def test_one_change_makes_no_lesson():
    memory = Memory(in_memory())
    await memory.state("reviewer:ann", by="me")
    await learn(memory, review("a#1"), review("a#1"), run_of_ci("c1"))
    assert await memory.count() == 0
    assert await memory.quarantine.waiting() == []


async def test_what_two_changes_have_is_a_lesson():
    memory = Memory(in_memory())
    await memory.state("reviewer:ann", by="me")
    other_words = "please wrap errors with %w!"
    await learn(memory, review("a#1"), review("a#2", other_words))
    assert await told(memory) == [f"A review of cart.go said: “{WRAP}”"]
    [lesson] = await memory.top()
    assert lesson["seen"] == 2
    assert lesson["trust"] == "local"

    await learn(memory, review("a#3"), review("a#3"), review("a#1"))
    [lesson] = await memory.top()
    assert lesson["seen"] == 3


async def test_reviewers_wait_unless_they_are_trusted_by_name():
    memory = Memory(in_memory())
    await learn(memory, review("a#1"), review("a#2"))
    assert await told(memory) == []
    [entry, *_] = await memory.quarantine.waiting()
    assert entry.trust == "outside"
    assert "reviewer:ann" in entry.source

    released = await memory.state("reviewer:ann", by="me")
    assert released
    assert await told(memory) == [f"A review of cart.go said: “{WRAP}”"]


async def test_the_words_of_one_reviewer_do_not_vouch_for_those_of_another():
    memory = Memory(in_memory())
    await memory.state("reviewer:ann", by="me")
    await learn(memory, review("a#1", login="eve"), review("a#2", login="eve"))
    assert await told(memory) == []
    await learn(memory, review("a#3", login="ann"))
    assert len(await told(memory)) == 1


async def test_an_error_of_ci_is_found_when_it_comes_again():
    memory = Memory(in_memory())
    await memory.state("ci", by="me")
    await learn(memory, run_of_ci("c1"))
    assert (await memory.seen("Bash", LINT)).lessons == ()
    await learn(memory, run_of_ci("c2"))
    [lesson] = (await memory.seen("Bash", f"running\n{LINT}\n")).lessons
    assert lesson["text"] == f"CI: `make lint` failed with “{LINT}”."
    assert lesson["trust"] == "local"


async def test_the_same_line_of_two_tests_is_not_the_same():
    memory = Memory(in_memory())
    line = "AssertionError: assert False"
    await learn(memory, run_of_ci("c1", line, "test_a"), run_of_ci("c2", line, "b"))
    assert await memory.count() == 0


async def test_a_revoked_reviewer_leaves_nothing_behind():
    memory = Memory(in_memory())
    await learn(memory, review("a#1"), review("a#2"), review("a#3", "Use no globals."))
    await memory.quarantine.revoke("reviewer:ann", by="me")
    assert await memory.count() == 0
    # What was kept of earlier changes is gone, too.
    await learn(memory, review("a#4"), review("a#5", "Use no globals."))
    assert await memory.count() == 0


async def test_a_revoked_change_counts_no_more():
    memory = Memory(in_memory())
    await learn(memory, review("a#1"), review("a#2"))
    await memory.quarantine.revoke("episode:change a#1", by="me")
    assert await memory.count() == 0
    await learn(memory, review("a#3"))
    [lesson] = await memory.top()
    assert lesson["seen"] == 2


async def test_clearing_a_memory_forgets_remarks():
    memory = Memory(in_memory())
    await learn(memory, review("a#1"))
    await memory.clear()
    await learn(memory, review("a#2"))
    assert await memory.store.read(memory.scope, lessons.count) == 0


async def test_a_suggestion_is_part_of_the_lesson():
    memory = Memory(in_memory())
    await memory.state("reviewer:ann", by="me")
    suggested = review("a#1", suggestion='fmt.Errorf("%w", err)')
    await learn(memory, suggested, review("a#2"))
    [text] = await told(memory)
    assert text.endswith('Suggested instead:\nfmt.Errorf("%w", err)')
