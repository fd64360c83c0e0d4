"""What a loop is shown of memory, what a coin withholds, and what is written down of it when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest

import heedful
from heedful.checks.evaluate import Context
from heedful.drive.drive import Run, run
from heedful.errors import InvalidInput, UserCodeError
from heedful.lessons.lesson import Example, Exposure, Outcome, Reflection, Scope
from heedful.lessons.ranking import FIRST, is_pooled, is_withheld
from heedful.lessons.signature import signature
from heedful.loop.decide import Done, Policy
from heedful.loop.record import Evaluation, Finding, Goal
from heedful.loop.stop import Budget, MaxAttempts
from heedful.memory.memory import Memory
from heedful.store import exposures, loops
from heedful.store import lessons as lesson_store
from heedful.store.sqlite import in_file
from heedful.store.store import Store
from heedful.testing import ScriptedModel
from tests.drive.support import FOUR, WANTED, Check, Generator
from tests.engines import opened, rows

pytestmark = pytest.mark.both

SCOPE = Scope()
SEED = "default\0default"
TASK = "How heavy is the parcel with the number 9?"
NAMES = ("unit", "comma", "space", "sign")
WHOLE = [f"check/{signature(name, name).digest}" for name in NAMES]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.db"


@pytest.fixture
def store(path):
    with opened(path) as one:
        yield one


@pytest.fixture(params=["same store", "another store"])
def kept(request, store, tmp_path):
    """The store of the loops and that of the memory."""
    if request.param == "same store":
        yield store, store
    else:
        with opened(tmp_path / "memory.db") as other:
            yield store, other


def lesson(name: str, number: int = 0, **fields: Any) -> Reflection:
    """About one of the names; the lower the number the nearer its task."""
    words = " ".join("bridge river mountain lake desert forest".split()[: 2 * number])
    example = Example(f"{TASK.replace('9', str(number))} {words}", f"{name} {number} kg", "7", name)
    given: dict[str, Any] = {"state": "verified", "example": example, **fields}
    return Reflection("check", signature(name, name), name, name, name, **given)


def taught(store: Store, *lessons: Reflection, ended: int = FIRST, scope: Scope = SCOPE) -> None:
    """A memory with these lessons, in which so many loops have ended."""

    async def fill() -> None:
        await store.write(
            scope, exposures.remember, lessons or [lesson(name, n) for n, name in enumerate(NAMES)]
        )
        for n in range(ended):
            before = [Exposure("check/0", f"before {n}", True, "0", 0.0)]
            end = Outcome(f"before {n}", True, 1)
            await store.write(scope, exposures.remember, (), exposures=before, outcome=end)

    asyncio.run(fill())


def coins(id: str, share: float = 0.5, seed: str = SEED) -> list[bool]:
    return [is_withheld(seed, id, name, share) for name in WHOLE[:3]]


def named(wanted: Callable[[str], bool]) -> str:
    return next(id for n in count() if wanted(id := f"loop {n}"))


def alone(*arms: bool) -> str:
    """A loop in which each lesson has a coin of its own, that falls so."""
    return named(lambda id: not is_pooled(SEED, id) and coins(id) == list(arms))


def shown(model: ScriptedModel, prompt: int = 0) -> list[str]:
    """Of the examples in a prompt, which lesson's they are."""
    turns = [m.content for m in model.prompts[prompt] if m.role == "assistant"]
    return [text.split()[0] for text in turns]


def exposed(path: Any, loop: str) -> dict[str, tuple[int, float, int]]:
    found = rows(
        path, "select signature, shown, share, together from exposure where loop = ?", loop
    )
    return {name: tuple(rest) for name, *rest in found}


def outcomes(path: Any) -> list[tuple[Any, ...]]:
    say = "select loop, right_at_once, calls, signatures from outcome"
    return rows(path, f"{say} where loop not like 'before %' order by n")


async def drive(store: Any, memory: Memory, id: str, **options: Any) -> ScriptedModel:
    model = options.pop("model", None) or ScriptedModel(WANTED, forever=True)
    given: dict[str, Any] = {"checks": [Check()], "generate": model, **options}
    await run(TASK, store=store, memory=memory, id=id, **given)
    return model


# -- the coin


def test_the_first_loops_of_a_scope_are_shown_everything_and_then_a_coin_decides(store, path):
    taught(store, lesson("unit"), ended=0)
    memory = Memory(store, holdout=0.999)

    async def scenario() -> None:
        for n in range(FIRST + 3):
            model = await drive(store, memory, f"loop {n}")
            hidden = n >= FIRST and is_withheld(SEED, f"loop {n}", WHOLE[0], 0.999)
            assert hidden is (n >= FIRST)
            assert ("unit" in shown(model)) is not hidden

    asyncio.run(scenario())
    shares = dict(rows(path, "select distinct loop, share from exposure"))
    assert [shares[f"loop {n}"] for n in range(FIRST + 3)] == [0.0] * FIRST + [0.999] * 3


@pytest.mark.parametrize("holdout", [-0.1, 1.0, float("nan")])
def test_a_share_that_cannot_be_is_refused(store, holdout):
    with pytest.raises(InvalidInput, match="holdout is"):
        Memory(store, holdout=holdout)


def test_the_place_of_a_lesson_that_is_withheld_stays_empty(store, path):
    taught(store)
    id = alone(False, True, False)
    model = asyncio.run(drive(store, Memory(store, holdout=0.5), id))
    assert shown(model) == ["space", "unit"]  # neither "comma", nor "sign" in its place
    assert exposed(path, id) == {
        WHOLE[0][6:]: (1, 0.5, 0),
        WHOLE[1][6:]: (0, 0.5, 0),
        WHOLE[2][6:]: (1, 0.5, 0),
    }
    ids = rows(path, "select examples from exposure where loop = ? and not shown", id)
    assert ids == [("[]",)]


@pytest.mark.parametrize("hidden", [True, False])
def test_one_coin_decides_over_all_in_one_loop_of_four(store, path, hidden):
    taught(store)
    id = named(lambda id: is_pooled(SEED, id) and coins(id)[0] is hidden)
    model = asyncio.run(drive(store, Memory(store, holdout=0.5), id))
    assert len(shown(model)) == (0 if hidden else 3)
    assert set(exposed(path, id).values()) == {(not hidden, 0.5, 1)}


def test_examples_of_one_lesson_are_one_exposure(store, path):
    taught(store, lesson("unit", 0), lesson("unit", 1), lesson("comma", 2))
    id = alone(True, False, False)
    model = asyncio.run(drive(store, Memory(store, holdout=0.5), id))
    assert shown(model) == ["comma"]
    other = alone(False, True, False)
    assert shown(asyncio.run(drive(store, Memory(store, holdout=0.5), other))) == ["unit", "unit"]
    ids = rows(path, "select examples from exposure where loop = ? and shown", other)
    assert ids == [("[1, 2]",)]


def test_an_accepted_first_try_is_a_lesson_too(store, path):
    accepted = Example(TASK.replace("9", "1"), "first 1 kg")
    mark = signature("accepted", "first try")
    one = Reflection("example", mark, "accepted", "accepted", "accepted", example=accepted)
    taught(store, one)
    name = f"example/{mark.digest}"
    id = named(lambda id: is_withheld(SEED, id, name, 0.5))
    assert shown(asyncio.run(drive(store, Memory(store, holdout=0.5), id))) == []
    found = "select kind, signature, shown from exposure where loop = ?"
    assert rows(path, found, id) == [("example", mark.digest, 0)]


def test_scopes_toss_coins_of_their_own(store):
    memories = [Memory(store, Scope("t", name), holdout=0.5) for name in "ab"]
    for memory in memories:
        taught(store, lesson("unit"), scope=memory.scope)

    async def scenario() -> list[tuple[bool, ...]]:
        briefings = [[await m.brief(TASK, f"loop {n}") for m in memories] for n in range(40)]
        return [tuple(bool(one.shown) for one in pair) for pair in briefings]

    arms = asyncio.run(scenario())
    assert arms == [
        tuple(not is_withheld(f"t\0{name}", f"loop {n}", WHOLE[0], 0.5) for name in "ab")
        for n in range(40)
    ]
    assert len(set(arms)) == 4


def test_without_a_holdout_all_is_shown_and_written_down(store, path):
    taught(store)
    ids = [alone(True, True, True), alone(False, True, False)]

    async def scenario() -> None:
        for id in ids:
            model = await drive(store, Memory(store, holdout=0), id, checks=[])
            assert shown(model) == ["space", "comma", "unit"]
            assert set(exposed(path, id).values()) == {(1, 0.0, 0)}

    asyncio.run(scenario())


# -- a loop that is resumed


def test_a_resumed_loop_is_shown_what_it_was_shown_whatever_was_learnt_since(kept, tmp_path):
    store, other = kept
    path = tmp_path / ("a.db" if other is store else "memory.db")
    taught(other)
    id = alone(False, True, False)
    memory = Memory(other, holdout=0.5)

    def at_the_second(task: Any, hint: str) -> str:
        if heedful.context().attempt == 2:
            raise ValueError("the model fell over")
        return "wrong"

    async def scenario() -> None:
        with pytest.raises(UserCodeError):
            await drive(store, memory, id, generate=at_the_second, policy=FOUR)
        before = exposed(path, id)
        nearer = lesson("sign", example=Example(TASK, "sign of another one"))
        await other.remember(SCOPE, [nearer])
        assert shown(await drive(store, Memory(other, holdout=0), "new"))[-1] == "sign"
        for holdout in (0.5, 0.0, 0.9):
            again = ScriptedModel("still wrong", forever=True)
            one = Run[Any](
                TASK,
                generate=again,
                checks=[Check()],
                policy=FOUR,
                store=store,
                memory=Memory(other, holdout=holdout),
                id=id,
            )
            await one.step()
            assert shown(again) == ["space", "unit"]
            assert exposed(path, id) == before

    asyncio.run(scenario())


# -- written with the first entry, whatever it is


async def a_step(one: Run[Any]) -> None:
    with pytest.raises(UserCodeError):
        await one.step()


async def an_attempt(one: Run[Any]) -> None:
    await one.step()


async def an_override(one: Run[Any]) -> None:
    await one.override("attempts", "ada")


async def a_cancelling(one: Run[Any]) -> None:
    await one.cancel("ada")


FIRSTS: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "an answer that waits for its check": lambda: (
        Generator("x"),
        Check(*[ValueError()] * 2),
        a_step,
    ),
    "a generator that fails": lambda: (Generator(ValueError()), Check(), a_step),
    "a pure attempt": lambda: (Generator("x"), Check(pure=True), an_attempt),
    "an attempt that passed": lambda: (Generator(WANTED), Check(), an_attempt),
    "an override": lambda: (Generator("x"), Check(), an_override),
    "a cancelling": lambda: (Generator("x"), Check(), a_cancelling),
}


@pytest.mark.parametrize("first", FIRSTS)
def test_what_a_loop_is_shown_is_written_with_its_first_entry(kept, tmp_path, first):
    store, other = kept
    taught(other)
    generate, check, act = FIRSTS[first]()
    one = Run[Any](
        TASK, generate=generate, checks=[check], policy=FOUR, store=store, memory=other, id="l"
    )
    asyncio.run(act(one))
    path = tmp_path / ("a.db" if other is store else "memory.db")
    assert set(exposed(path, "l")) == {name[6:] for name in WHOLE[:3]}


def test_memory_without_a_journal_is_told_too(store, path):
    taught(store)

    async def scenario() -> None:
        await drive(None, Memory(store, holdout=0), "l", model=ScriptedModel("x", WANTED))

    asyncio.run(scenario())
    assert len(exposed(path, "l")) == 3
    (end,) = outcomes(path)
    assert end[:3] == ("l", 0, 2)


def test_a_loop_that_nothing_was_ranked_for_leaves_no_trace(store, path):
    taught(store)

    async def scenario() -> None:
        await run("Name a river", generate=Generator(WANTED), store=store, memory=store, id="l")

    asyncio.run(scenario())
    assert (exposed(path, "l"), outcomes(path)) == ({}, [])


# -- outcomes


def ends(*digests: str) -> str:
    return "[" + ", ".join(f'"{one}"' for one in sorted(digests)) + "]"


WRONG = signature("wanted", "wanted: x is not right").digest


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ((WANTED,), (1, 1, ends())),
        (("x", WANTED), (0, 2, ends(WRONG))),
        (("x", "x y", "x z", "x w"), (0, 4, None)),
    ],
)
def test_the_outcome_is_written_with_the_last_decision(kept, tmp_path, answers, expected):
    store, other = kept
    taught(other)
    path = tmp_path / ("a.db" if other is store else "memory.db")

    async def scenario() -> None:
        one = Run[Any](
            TASK,
            generate=Generator(*answers),
            checks=[Check()],
            policy=FOUR,
            store=store,
            memory=Memory(other, holdout=0),
            id="l",
        )
        steps = []
        for _ in answers:
            assert outcomes(path) == []
            steps.append(await one.step())
        assert isinstance(steps[-1], Done)

    asyncio.run(scenario())
    ((loop, *found),) = outcomes(path)
    assert loop == "l"
    assert found[:2] == list(expected[:2])
    assert found[2] == expected[2] or expected[2] is None


@pytest.mark.sqlite
def test_both_kinds_of_memory_write_the_same(store, tmp_path):
    other = in_file(str(tmp_path / "memory.db"))
    for one in (store, other):
        taught(one)

    async def scenario() -> None:
        for n in range(12):
            for where in (store, other):
                model = ScriptedModel(*(["x"] * (n % 3)), WANTED, forever=True)
                await drive(store, Memory(where, holdout=0.5), f"loop {n}", model=model)
                # The loop of the other one is another loop.
                await store.write(Scope(), lambda db, _: db.execute("delete from loop"))

    asyncio.run(scenario())
    for table in ("exposure", "outcome", "reflection"):
        columns = [
            name
            for (name,) in rows(tmp_path / "a.db", f"select name from pragma_table_info('{table}')")
            if name not in ("at", "first_seen", "last_seen", "last_shown")
        ]
        say = f"select {', '.join(columns)} from {table} order by 1, 2, 3, 4, 5"
        assert rows(tmp_path / "a.db", say) == rows(tmp_path / "memory.db", say)
    asyncio.run(other.close())


def test_the_lesson_of_an_error_has_the_name_by_which_the_outcome_knows_it(store, path):
    taught(store)
    goal = Goal("length", 0.5)

    def judge(candidate: str, context: Context) -> Evaluation:
        errors = [] if candidate == WANTED else [Finding("E", "bad", key="bad")]
        return Evaluation(tuple(errors), {"length": len(candidate) / 10})

    async def scenario() -> None:
        await run(
            TASK,
            generate=Generator("x", WANTED),
            evaluate=judge,
            goals=[goal],
            store=store,
            memory=Memory(store, holdout=0),
            id="l",
        )

    asyncio.run(scenario())
    learnt = rows(path, "select signature from reflection where error_type in ('E', 'length')")
    assert outcomes(path) == [("l", 0, 2, ends(*(digest for (digest,) in learnt)))]
    assert len(learnt) == 2


def test_an_override_after_the_end_does_not_change_the_outcome(store, path):
    taught(store)
    policy = Policy((MaxAttempts(1),), name="one")

    async def scenario() -> None:
        memory = Memory(store, holdout=0)
        await drive(store, memory, "l", model=ScriptedModel("x"), policy=policy)
        before = outcomes(path)
        assert before[0][1:3] == (0, 1)
        await heedful.override("l", "attempts", by="ada", store=store)
        await drive(store, memory, "l", policy=policy)
        assert (await store.read(SCOPE, loops.read, "l")).verdicts[-1].passed
        assert outcomes(path) == before

    asyncio.run(scenario())


def test_a_budget_that_is_spent_is_an_end(store, path):
    taught(store)
    policy = Policy((MaxAttempts(9), Budget(calls=2)), name="two")

    async def scenario() -> None:
        one = Run[Any](
            TASK,
            generate=Generator("x", ValueError()),
            checks=[Check()],
            policy=policy,
            store=store,
            memory=store,
            id="l",
        )
        await one.step()
        with pytest.raises(UserCodeError):
            await one.step()
        assert outcomes(path) == []
        assert isinstance(await one.step(), Done)

    asyncio.run(scenario())
    assert outcomes(path) == [("l", 0, 2, ends(WRONG))]


def test_how_a_cancelled_loop_would_have_ended_is_not_known(store, path):
    taught(store)

    async def scenario() -> None:
        one = Run[Any](
            TASK, generate=Generator("x"), checks=[Check()], store=store, memory=store, id="l"
        )
        await one.step()
        await one.cancel("ada")
        assert (await Memory(store).prove()).pending == 1

    asyncio.run(scenario())
    assert outcomes(path) == []


def test_what_helped_and_what_hurt_is_counted(store):
    taught(store)
    wrong = Finding("unit", "unit", key="unit")

    def check(candidate: str, context: Context) -> Sequence[Finding]:
        return [] if candidate == WANTED else [wrong]

    async def scenario() -> None:
        memory = Memory(store, holdout=0)
        for n in range(2):
            await drive(store, memory, f"l{n}", checks=[])
        await drive(store, memory, "l2", model=ScriptedModel("x", WANTED), checks=[check])
        counts = {}
        for name in NAMES:
            (one,) = (await memory.seen(name, name)).lessons
            counts[name] = (one["helped"], one["hurt"])
        both = {"unit": (2, 1), "comma": (2, 0), "space": (2, 0), "sign": (0, 0)}
        assert counts == both

    asyncio.run(scenario())


def test_memory_cleared_while_a_loop_runs_is_told_nothing_of_it(store, path):
    taught(store)

    async def scenario() -> None:
        one = Run[Any](
            TASK, generate=Generator("x", WANTED), checks=[Check()], store=store, memory=store
        )
        await one.step()
        await store.write(SCOPE, lesson_store.clear)
        assert (await one.finish()).passed

    asyncio.run(scenario())
    assert rows(path, "select * from outcome") == []


# -- looks


def test_a_look_comes_after_the_outcomes_that_are_due(store, path):
    """79 loops have ended; the 80th looks, and finds what was proven long ago."""
    taught(store, lesson("unit"), ended=0)

    async def scenario() -> None:
        for n in range(19):
            one = Exposure(WHOLE[0], f"b{n}", n < 15, WHOLE[0][6:], 0.5)
            end = Outcome(f"b{n}", n >= 15, 1)
            await store.write(SCOPE, exposures.remember, (), exposures=[one], outcome=end)
        memory = Memory(store, holdout=0.5)
        for n in range(60):
            one = Exposure(WHOLE[0], f"c{n}", n % 2 == 0, WHOLE[0][6:], 0.5)
            end = Outcome(f"c{n}", n % 2 == 1, 1)
            await store.write(SCOPE, exposures.remember, (), exposures=[one], outcome=end)
        state = "select state, useful from reflection"
        assert (await memory.prove()).retire == (WHOLE[0],)
        assert rows(path, state) == [("verified", 1.0)]  # the 79th; nobody has looked
        await drive(store, memory, "l", checks=[])
        ((now, useful),) = rows(path, state)
        assert now == "retired"
        assert 0.5 <= useful < 1
        (ruling,) = await store.read(SCOPE, exposures.rulings, 9)
        assert (ruling["action"], ruling["by"]) == ("retire", "proof")
        assert (await memory.brief(TASK, "m")).exposures == ()
        (found,) = (await memory.seen("unit", "unit")).lessons
        await memory.restore(found["id"], by="ada", why="the model was changed")
        assert len((await memory.brief(TASK, "m")).exposures) == 1
        assert not await memory.look("l")  # it is not retired again by the same

    asyncio.run(scenario())


def test_messages_of_a_briefing_are_those_that_are_shown(store):
    taught(store)
    id = alone(True, True, False)
    briefing = asyncio.run(Memory(store, holdout=0.5).brief(TASK, id))
    assert [m.content.split()[0] for m in briefing.examples] == ["How", "space"]
    assert briefing.shown == (3,)
    assert [one.shown for one in briefing.exposures] == [False, False, True]
