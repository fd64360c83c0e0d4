"""Practice: tasks that ended without passing are tried again, learnt, bounded, shared,
and counted nowhere as a user's.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import heedful
from heedful import errors
from heedful.checks.evaluate import Context
from heedful.drive.drive import run
from heedful.loop.decide import Policy
from heedful.loop.record import Finding, Usage
from heedful.loop.stop import Echo, MaxAttempts
from heedful.memory.memory import Memory
from heedful.memory.practice import Practice
from heedful.models.contract import Answer
from heedful.store import exposures, ladders, loops, practices
from heedful.store.connection import key_of
from heedful.store.store import Store
from tests.store.support import SCOPE

pytestmark = pytest.mark.both_nightly
KEY = "routing"
ONCE = Policy((MaxAttempts(1),), name="once")
TWICE = Policy((MaxAttempts(2),), name="twice")


@pytest.fixture
def memory(store: Store) -> Memory:
    return Memory(store, holdout=0.5)


def is_right(candidate: str, context: Context) -> list[Finding]:
    """The answer to a task is the task in capitals."""
    if candidate == context.task.upper():
        return []
    return [Finding("right", f"{candidate} is not right", fix="write capitals")]


class Worker:
    """A repeatable function that knows some answers, and counts its calls."""

    def __init__(self, memory: Any, *known: str, **options: Any) -> None:
        self.known = set(known)
        self.asked: list[str] = []
        self.usage = options.pop("usage", Usage(1, 5, completion_tokens=5, cost=0.5))
        options.setdefault("checks", [is_right])
        options.setdefault("policy", ONCE)
        options.setdefault("practice", True)
        options.setdefault("memory_key", KEY)
        options.setdefault("store", memory.store if memory is not None else None)
        options.setdefault("on_exhausted", "best")

        async def answer(task: str, hint: str = "") -> Any:
            self.asked.append(task)
            if "down" in self.known:
                raise ConnectionError("no model")
            text = task.upper() if task in self.known else f"not {task}"
            return Answer(text, self.usage)

        decorate = heedful.self_correcting(memory=memory, **options)
        self.function: Callable[..., Any] = decorate(answer)

    async def fail(self, *tasks: str) -> None:
        """Let users ask tasks that the function does not know yet."""
        for task in tasks:
            await self.function(task)
        self.asked.clear()


async def stored(memory: Memory, practised: bool = True) -> list[Any]:
    """The practices, or the loops of users, newest first."""
    newest, _ = await memory.store.read(
        memory.scope, loops.newest, 100, practices=practised
    )
    return [loop for loop in newest if bool(loop.head.practises) is practised]


# -- what is tried, and what is learnt


async def test_a_task_that_failed_is_tried_again_and_learnt(memory):
    worker = Worker(memory)
    await worker.fail("a", "b")
    worker.known.add("a")
    record = await memory.practice(worker.function, calls=9)
    assert worker.asked == ["a", "b"]
    assert record == Practice(
        memory_key=KEY,
        tried=2,
        passed=1,
        learnt=1,
        calls=2,
        tokens=20,
        cost=1.0,
        why="every task was tried",
    )
    matches = await memory.recall("a")
    assert matches[0].example.accepted == "A"


async def test_a_practice_is_linked_to_the_old_loop_whose_verdict_stays(memory):
    worker = Worker(memory)
    await worker.fail("a")
    worker.known.add("a")
    [old] = await stored(memory, practised=False)
    await memory.practice(worker.function)
    [practice] = await stored(memory)
    [same] = await stored(memory, practised=False)
    assert practice.head.practises == old.id
    assert practice.verdict.passed
    assert same == old
    read = memory.store.read
    assert await read(SCOPE, practices.practices_of, old.id) == [practice.id]


async def test_a_task_that_passed_in_practice_is_not_practised_again(memory):
    worker = Worker(memory)
    await worker.fail("a")
    worker.known.add("a")
    await memory.practice(worker.function)
    record = await memory.practice(worker.function)
    assert worker.asked == ["a"]
    assert record.why == "no task to practise"


async def test_a_loop_that_was_removed_is_in_the_way_of_no_practice(memory, store):
    worker = Worker(memory)
    await worker.fail("a", "b")
    await memory.practice(worker.function)
    # Both tasks are practised again: one lost its practice, and the other its loop.
    [_, first] = await stored(memory)
    [second, _] = await stored(memory, practised=False)
    for id in (first.id, second.id):
        key = {**key_of(SCOPE), "id": id}
        await store.write(SCOPE, lambda db, _, key=key: db.delete("loop", key))
    worker.asked.clear()
    worker.known |= {"a", "b"}
    record = await memory.practice(worker.function, on_passed=Listener())
    assert worker.asked == ["a"]
    assert record.errors == ()
    assert record.passed == 1


async def test_a_task_that_a_later_loop_of_a_user_solved_is_not_practised(memory):
    worker = Worker(memory)
    await worker.fail("a", "b")
    worker.known.add("a")
    await worker.fail("a")
    await memory.practice(worker.function)
    assert worker.asked == ["b"]


async def test_a_task_that_failed_again_after_it_was_solved_is_practised(memory):
    worker = Worker(memory, "a")
    await worker.fail("a")
    worker.known.clear()
    await worker.fail("a")
    await memory.practice(worker.function)
    assert worker.asked == ["a"]


async def test_a_task_that_failed_in_several_loops_is_practised_once(memory):
    worker = Worker(memory)
    await worker.fail("a", "a")
    await memory.practice(worker.function)
    assert worker.asked == ["a"]


async def test_a_cancelled_loop_is_not_practised(memory):
    worker = Worker(memory)
    loop = heedful.Run[str](
        "a", generate=len, memory=memory, store=memory.store, memory_key=KEY
    )
    await loop.cancel("ann")
    record = await memory.practice(worker.function)
    assert record.tried == 0


async def test_a_task_that_failed_three_times_rests_until_there_is_an_example(memory):
    worker = Worker(memory)
    await worker.fail("a")
    for resting in (0, 0, 1, 1):
        record = await memory.practice(worker.function)
        assert record.resting == resting
    assert worker.asked == ["a"] * 3

    worker.known.add("new")
    await worker.function("new")
    worker.asked.clear()
    for _ in range(4):
        await memory.practice(worker.function)
    assert worker.asked == ["a"] * 3


async def test_only_with_next_rung_do_further_generators_make_attempts(memory):
    tasks_of_large: list[str] = []

    def capitals(task: str) -> str:
        tasks_of_large.append(task)
        return task.upper()

    worker = Worker(memory, then=[capitals], policy=ONCE)
    small = Worker(memory)
    await small.fail("a")
    await memory.practice(worker.function)
    assert tasks_of_large == []
    record = await memory.practice(worker.function, next_rung=True)
    assert tasks_of_large == ["a"]
    assert record.passed == 1
    assert record.learnt >= 1


async def test_a_cleared_memory_practises_again_what_it_had_learnt(memory):
    worker = Worker(memory)
    await worker.fail("a")
    worker.known.add("a")
    await memory.practice(worker.function)
    await memory.clear()
    record = await memory.practice(worker.function)
    assert record.learnt == 1


# -- what is refused


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param({"practice": False}, "practice=True", id="not declared"),
        pytest.param({"checks": []}, "with checks", id="no checks"),
        pytest.param({"memory_key": ""}, "memory_key", id="no lasting key"),
        pytest.param({"store": None}, "with a store", id="loops that are not stored"),
    ],
)
async def test_a_function_that_cannot_be_practised_is_refused(memory, options, says):
    worker = Worker(memory, **options)
    with pytest.raises(errors.InvalidInput, match=says):
        await memory.practice(worker.function)


async def test_a_function_without_a_memory_is_refused(memory):
    worker = Worker(None, store=memory.store)
    with pytest.raises(errors.InvalidInput, match="with a memory"):
        await memory.practice(worker.function)


async def test_a_function_that_is_not_decorated_is_refused(memory):
    with pytest.raises(errors.InvalidInput, match="self_correcting"):
        await memory.practice(is_right)


async def test_a_check_that_needs_a_person_is_refused(memory):
    def ann_agrees(candidate: str) -> str:
        return ""

    ann_agrees.needs_person = True  # type: ignore[attr-defined]
    worker = Worker(memory, checks=[is_right, ann_agrees])
    with pytest.raises(errors.InvalidInput, match="ann_agrees"):
        await memory.practice(worker.function)


async def test_a_function_that_needs_more_than_its_task_is_refused(memory):
    @heedful.self_correcting(
        checks=[is_right], memory=memory, store=memory.store, practice=True
    )
    async def answer(task: str, language: str, hint: str = "") -> str:
        return task

    with pytest.raises(errors.InvalidInput, match="only its task"):
        await memory.practice(answer)


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"calls": 0}, id="no calls"),
        pytest.param({"tokens": 0}, id="no tokens"),
        pytest.param({"cost": 0.0}, id="no money"),
    ],
)
async def test_a_limit_of_nothing_is_refused(memory, limits):
    worker = Worker(memory)
    await worker.fail("a")
    with pytest.raises(errors.InvalidInput):
        await memory.practice(worker.function, **limits)
    assert worker.asked == []


# -- what it may cost


async def test_the_calls_of_a_practice_end_it_and_the_loop_is_resumed(memory):
    worker = Worker(memory, policy=TWICE)
    await worker.fail("a", "b")
    record = await memory.practice(worker.function, calls=3)
    assert worker.asked == ["a", "a", "b"]
    assert record.calls == 3
    assert record.tried == 1
    assert record.why == "3 of 3 calls spent"

    worker.asked.clear()
    record = await memory.practice(worker.function, calls=1)
    assert worker.asked == ["a"]
    await memory.practice(worker.function, calls=9)
    [first, *_] = [p for p in await stored(memory) if p.head.task == "b"]
    assert len(first.loop.attempts) == 2


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        pytest.param({"tokens": 15}, "20 of 15 tokens spent", id="tokens"),
        pytest.param({"cost": 0.6}, "1 of 0.6 cost spent", id="money"),
    ],
)
async def test_tokens_and_money_are_exceeded_by_one_attempt_at_most(
    memory, limits, why
):
    worker = Worker(memory)
    await worker.fail("a", "b", "c", "d")
    record = await memory.practice(worker.function, **limits)
    assert worker.asked == ["a", "b"]
    assert record.why == why


async def test_an_attempt_reserves_as_many_calls_as_the_task_needed(memory):
    worker = Worker(memory, usage=Usage(3))
    await worker.fail("a", "b", "c")
    record = await memory.practice(worker.function, calls=8)
    assert worker.asked == ["a", "b"]
    assert record.calls == 6


async def test_practices_with_one_allowance_share_its_calls(memory):
    worker = Worker(memory)
    await worker.fail("a", "b", "c")
    practise = memory.practice
    await practise(worker.function, calls=2, allowance="night")
    record = await practise(worker.function, calls=2, allowance="night")
    assert len(worker.asked) == 2
    assert record.why == "2 of 2 calls spent"
    record = await practise(worker.function, calls=2, allowance="another")
    assert record.calls == 2


async def test_calls_of_checks_count_too(memory):
    def judge(candidate: str, context: Context) -> heedful.Evaluation:
        return heedful.Evaluation(tuple(is_right(candidate, context)), usage=Usage(1))

    worker = Worker(memory, checks=[judge], usage=Usage(1))
    await worker.fail("a", "b", "c")
    record = await memory.practice(worker.function, calls=5)
    assert record.calls == 4
    assert worker.asked == ["a", "b"]


# -- two at once, and after a failure


async def test_two_practices_at_once_share_the_work(memory):
    tasks = [f"task {n}" for n in range(12)]
    worker = Worker(memory)
    await worker.fail(*tasks)
    worker.known.update(tasks)
    practise = memory.practice
    records = await asyncio.gather(
        practise(worker.function, calls=9, allowance="night"),
        practise(worker.function, calls=9, allowance="night"),
    )
    assert len(worker.asked) == 9
    assert len(set(worker.asked)) == 9
    assert sum(record.passed for record in records) == 9


async def test_a_function_that_raises_is_reported_and_its_loop_resumed(memory):
    worker = Worker(memory)
    await worker.fail("a")
    worker.known.add("down")
    record = await memory.practice(worker.function)
    assert record.tried == 1
    assert "no model" in record.errors[0]
    worker.known = {"a"}
    record = await memory.practice(worker.function)
    assert record.passed == 1
    assert len(await stored(memory)) == 1


async def test_three_failures_in_a_row_end_a_practice(memory):
    worker = Worker(memory)
    await worker.fail("a", "b", "c", "d")
    worker.known.add("down")
    record = await memory.practice(worker.function)
    assert len(worker.asked) == 3
    assert record.why == "3 tasks in a row failed with an error"


# -- telling


class Listener:
    """What `on_passed` was called with; it raises as often as it is told."""

    def __init__(self, raises: int = 0) -> None:
        self.raises = raises
        self.calls: list[tuple[Any, Any, str]] = []

    def __call__(self, task: Any, candidate: Any, loop_id: str) -> None:
        self.calls.append((task, candidate, loop_id))
        if len(self.calls) <= self.raises:
            raise OSError("no network")


async def test_on_passed_has_the_task_the_answer_and_the_loop(memory):
    worker = Worker(memory)
    await worker.fail("a", "b")
    worker.known.add("a")
    listener = Listener()
    await memory.practice(worker.function, on_passed=listener)
    [practice] = [p for p in await stored(memory) if p.verdict.passed]
    assert listener.calls == [("a", "A", practice.id)]
    await memory.practice(worker.function, on_passed=listener)
    assert len(listener.calls) == 1


async def test_on_passed_that_raises_is_called_again_with_the_same_loop(memory):
    worker = Worker(memory)
    await worker.fail("a")
    worker.known.add("a")
    listener = Listener(raises=1)
    record = await memory.practice(worker.function, on_passed=listener)
    assert record.passed == 1
    assert record.learnt == 1
    assert "no network" in record.errors[0]
    record = await memory.practice(worker.function)
    assert len(listener.calls) == 1
    record = await memory.practice(worker.function, on_passed=listener)
    assert record.calls == 0
    assert record.errors == ()
    assert listener.calls[0] == listener.calls[1]
    await memory.practice(worker.function, on_passed=listener)
    assert len(listener.calls) == 2


# -- a practice is counted nowhere as a loop of a user


async def test_a_practice_has_no_exposure_and_no_outcome(memory):
    worker = Worker(memory, "known")
    await worker.fail("known", "a", "b")
    evidence = await memory.store.read(SCOPE, exposures.evidence)
    worker.known.add("a")
    await memory.practice(worker.function)
    assert await memory.store.read(SCOPE, exposures.evidence) == evidence
    assert (await memory.prove()).pending == 0


async def test_a_practice_is_shown_what_memory_knows_today(memory):
    examples: list[Any] = []

    @heedful.self_correcting(
        checks=[is_right],
        memory=memory,
        store=memory.store,
        policy=ONCE,
        practice=True,
        memory_key=KEY,
        on_exhausted="best",
    )
    async def answer(task: str, hint: str = "") -> str:
        examples.append([turn.content for turn in heedful.context().examples])
        return "wrong"

    await answer("the red card")
    worker = Worker(memory, "a red card")
    await worker.fail("a red card")
    await memory.practice(answer)
    assert examples[0] == []
    assert "A RED CARD" in examples[-1]


async def test_a_practice_that_fails_teaches_nothing(memory):
    worker = Worker(memory)
    await worker.fail("a")
    before = await memory.top()
    await memory.practice(worker.function)
    assert await memory.top() == before


async def test_a_practice_adds_no_loop_to_the_rule_that_it_keeps_after_all(memory):
    worker = Worker(memory, policy=TWICE)
    await worker.fail("a")

    class Later(set[str]):
        def __contains__(self, task: object) -> bool:
            return task == "a" and len(worker.asked) > 1

    worker.known = Later()
    record = await memory.practice(worker.function)
    assert record.passed == 1
    assert record.learnt == 1
    briefing = await memory.brief("x", "loop", memory_key=KEY)
    assert "broken in 1 loop" in briefing.choices[0].why


async def test_echoes_across_the_scope_leave_practices_out(memory):
    worker = Worker(memory)
    await worker.fail("a")
    before = await memory.store.read(SCOPE, loops.echoes, "other", 20)
    await memory.practice(worker.function)
    assert await memory.store.read(SCOPE, loops.echoes, "other", 20) == before


async def test_a_replay_leaves_practices_out(memory):
    worker = Worker(memory)
    await worker.fail("a")
    await memory.practice(worker.function)
    chunk = await memory.store.read(SCOPE, loops.recorded, 50)
    assert len(chunk.loops) == 1


async def test_when_to_climb_is_not_learnt_from_practice(memory):
    def capitals(task: str) -> str:
        return task.upper()

    worker = Worker(memory, then=[capitals])
    await Worker(memory).fail("a")
    await memory.practice(worker.function, next_rung=True)
    record = await memory.store.read(SCOPE, ladders.read_record, KEY)
    assert record.rungs == ()


async def test_lists_leave_practices_out_unless_they_are_asked_for(memory):
    worker = Worker(memory)
    await worker.fail("a")
    await memory.practice(worker.function)
    newest, _ = await memory.store.read(SCOPE, loops.newest, 9)
    assert len(newest) == 1
    newest, _ = await memory.store.read(SCOPE, loops.newest, 9, practices=True)
    assert len(newest) == 2


async def test_how_often_a_key_is_asked_leaves_practices_out(memory):
    worker = Worker(memory)
    await worker.fail("a", "b")
    await memory.practice(worker.function)
    assert await memory.store.read(SCOPE, practices.asked, KEY) == 2


async def test_another_memory_has_other_tasks(store):
    worker = Worker(Memory(store))
    await worker.fail("a")
    other = Memory(store, heedful.Scope("other"))
    record = await other.practice(worker.function)
    assert record.why == "no task to practise"


async def test_loops_that_run_drives_are_tasks_of_their_key(memory):
    worker = Worker(memory, "a")
    await run(
        "a",
        generate=lambda task: "no",
        checks=[is_right],
        policy=Policy((Echo(), MaxAttempts(1))),
        memory=memory,
        store=memory.store,
        memory_key=KEY,
    )
    record = await memory.practice(worker.function)
    assert record.passed == 1
