"""A call that is made again with its key has its effect once, and its first answer."""

import pytest

import heedful
from heedful.errors import Conflict, InvalidInput, StoreInDoubt
from heedful.lessons.scope import Scope
from heedful.loop.record import Evaluation, Finding
from heedful.store import loops
from tests.engines import change_rows, rows
from tests.tables import cases

pytestmark = pytest.mark.both_nightly
WORSE = Evaluation((Finding("unit", "no unit"),))
TWO_TRIES = heedful.Policy((heedful.MaxAttempts(2),), name="two tries")


@pytest.fixture
def memory(store):
    return heedful.Memory(store, holdout=0)


async def test_a_sighting_with_a_key_counts_once(memory):
    await memory.remember("E", "the build fails")
    first = await memory.remember("E", "the build fails", key="order-7")
    again = await memory.remember("E", "the build fails", key="order-7")
    assert again == first
    assert first.seen == 2
    assert (await memory.remember("E", "the build fails")).seen == 3


async def test_a_key_belongs_to_one_call(memory):
    await memory.remember("E", "the build fails", key="order-7")
    with pytest.raises(Conflict, match="already used for another call"):
        await memory.remember("E", "another error", key="order-7")
    with pytest.raises(Conflict, match="already used for another call"):
        await memory.user_rules.state("Always run the tests.", by="a", key="order-7")
    assert await memory.count() == 1


async def test_tenants_have_their_own_keys(memory):
    await memory.remember("E", "the build fails", key="order-7")
    other = heedful.Memory(memory.store, Scope("other"))
    assert (await other.remember("E", "the build fails", key="order-7")).created


async def test_a_key_is_forgotten_after_a_day(memory):
    await memory.remember("E", "the build fails", key="order-7")
    change_rows(memory.store.url, "update answer set at = at - 86401")
    assert (await memory.remember("E", "the build fails", key="order-7")).seen == 2
    await memory.remember("E", "the build fails", key="order-8")
    change_rows(memory.store.url, "update answer set at = at - 86401")
    await memory.remember("E", "the build fails", key="order-9")
    assert rows(memory.store.url, "select count(*) from answer") == [(1,)]


async def test_a_revocation_removes_the_answer_but_not_that_it_was_given(memory):
    await memory.remember("E", "the build fails", key="order-7", source="a page")
    await memory.quarantine.revoke("a page", by="ana")
    with pytest.raises(Conflict, match="its answer was removed"):
        await memory.remember("E", "the build fails", key="order-7", source="a page")
    assert await memory.count() == 0


@cases(
    ("key",),
    {
        "a number": (7,),
        "a line break": ("a\nb",),
        "too long": ("a" * 256,),
    },
)
async def test_what_is_no_key_is_refused(memory, key):
    with pytest.raises(InvalidInput, match="key"):
        await memory.remember("E", "the build fails", key=key)


async def test_an_override_with_a_key_is_given_once_and_keeps_its_answer(store):
    loop = await heedful.open_loop("L", "task", policy=TWO_TRIES, store=store)
    await loop.report("12", evaluation=WORSE)
    await loop.report("13", evaluation=WORSE)

    async def override() -> heedful.Again | heedful.Done:
        return await heedful.override("L", "attempts", by="a", store=store, key="once")

    first = await override()
    assert isinstance(first, heedful.Again)
    assert await override() == first
    # The loop has passed: a new override would be refused.
    await loop.report("12 kg", evaluation=Evaluation(), attempt=3)
    assert await override() == first
    stored_loop = await store.read(Scope(), loops.read, "L")
    assert len(stored_loop.loop.overrides) == 1
    assert len(stored_loop.decisions) == 4


async def test_a_run_gives_an_override_with_a_key_once(store):
    run: heedful.Run[str] = heedful.Run(
        "task",
        generate=lambda task, hint: "12",
        checks=[lambda answer: "kg" in answer],
        policy=heedful.Policy((heedful.MaxAttempts(1),), name="one try"),
        id="L",
        store=store,
    )
    await run.step()
    first = await run.override("attempts", "ana", key="once")
    assert await run.override("attempts", "ana", key="once") == first
    assert len(run.loop.overrides) == 1


async def test_a_loop_without_a_store_refuses_a_key():
    run: heedful.Run[str] = heedful.Run(
        "task", generate=lambda task, hint: "12", store=None
    )
    with pytest.raises(InvalidInput, match="remembers no calls"):
        await run.override("attempts", "ana", key="once")


@cases(
    ("doubt", "remedy"),
    {
        "a key": (
            StoreInDoubt("lost", key="order-7"),
            "call again with key='order-7': it is not written twice",
        ),
        "the id of a loop": (
            StoreInDoubt("lost", key="L", argument="id"),
            "call again with id='L': it is not written twice",
        ),
        "harmless": (
            StoreInDoubt("lost"),
            "make the same call again: what is done already is not done twice",
        ),
        "counts": (
            StoreInDoubt("lost", counts=True),
            "see whether it was written before you make the same call again",
        ),
    },
)
def test_a_doubt_says_what_to_do(doubt, remedy):
    assert str(doubt).endswith(remedy)
