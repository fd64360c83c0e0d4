"""Batches: order, several at once, and what a failure leaves."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from heedful import open_store
from heedful.checks import contains
from heedful.cli.run import Row, batch
from heedful.cli.tasks import Task
from heedful.drive.generate import Writer
from heedful.errors import (
    MalformedAnswer,
    ModelUnavailable,
    StoreUnavailable,
)
from heedful.loop.policies import default
from heedful.store.store import Store
from heedful.testing import ScriptedModel


def tasks(*words: str, **more: Any) -> list[Task]:
    made = [Task(word, f"Say {word}", None, (), (contains(word),), None, 0) for word in words]
    return [Task(**{**vars(one), **more}) for one in made]


def echo(messages):
    """The last word of the task, which is right."""
    return messages[-1].content.split()[-1]


class Echo(ScriptedModel):
    """Raises for the tasks in `failing`; counts how many calls run at once."""

    def __init__(
        self, failing: Mapping[str, Exception] | None = None, seconds: float = 0.0
    ) -> None:
        super().__init__(echo, forever=True, seconds=seconds)
        self.failing, self.asked = failing or {}, list[str]()
        self.now = self.most = 0
        self.second = asyncio.Event()

    async def complete(self, messages, **settings):
        word = echo(messages)
        self.asked.append(word)
        if len(self.asked) == 2:
            self.second.set()
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            answer = await self.answer(messages, **settings)
            if word in self.failing:
                raise self.failing[word]
            return answer
        finally:
            self.now -= 1

    async def answer(self, messages, **settings):
        return await super().complete(messages, **settings)


async def go(store: Store, model: Any, todo: list[Task], **options: Any) -> list[Row]:
    given: dict[str, Any] = {"run": "r", "memory": None, "policy": default, **options}
    return await batch(todo, generate=Writer(model), store=store, **given)


@pytest.fixture
def store(tmp_path):
    store = open_store(str(tmp_path / "heedful.db"))
    yield store
    asyncio.run(store.close())


def test_rows_in_task_order_however_they_end(store):
    ended: list[Row] = []
    last = asyncio.Event()

    class Uneven(Echo):
        async def complete(self, messages, **settings):
            if "one" in messages[-1].content:
                await last.wait()
            return await super().complete(messages, **settings)

    def watch(row: Row) -> None:
        ended.append(row)
        if row.id == "three":
            last.set()

    todo = tasks("one", "two", "three", context={"family": "numbers"})
    rows = asyncio.run(go(store, Uneven(), todo, jobs=2, watch=watch))
    assert [row.id for row in rows] == ["one", "two", "three"]
    assert [row.id for row in ended] == ["two", "three", "one"]
    assert {(row.group, row.passed, row.at_once, row.calls) for row in rows} == {
        ("numbers", True, True, 1)
    }


@pytest.mark.parametrize("jobs", [1, 2, 9])
def test_as_many_at_once_as_asked(store, jobs):
    begun = asyncio.Event()

    class Together(Echo):
        async def answer(self, messages, **settings):
            if self.now == min(jobs, 4):
                begun.set()
            await asyncio.wait_for(begun.wait(), 60)
            return await super().answer(messages, **settings)

    model = Together()
    asyncio.run(go(store, model, tasks("a", "b", "c", "d"), jobs=jobs))
    assert model.most == min(jobs, 4)
    assert model.asked == ["a", "b", "c", "d"]


def test_a_failure_of_one_task_leaves_the_others_alone(store):
    failing = {"b": MalformedAnswer("no answer"), "d": MalformedAnswer("no answer")}
    model, ended = Echo(failing), list[str]()
    todo = tasks(*"abcde")
    with pytest.raises(MalformedAnswer) as caught:
        asyncio.run(go(store, model, todo, watch=lambda row: ended.append(row.id)))
    assert caught.value is failing["b"]
    assert caught.value.__notes__ == [
        "task 'b' did not end (nor did 1 more: d); all others are stored"
    ]
    assert ended == ["a", "c", "e"]


def test_a_model_that_is_gone_ends_the_batch_after_what_runs(store):
    class Gone(Echo):
        async def complete(self, messages, **settings):
            if "b" in messages[-1].content.split():
                self.asked.append("b")
                self.second.set()
                raise ModelUnavailable("no connection")
            await self.second.wait()
            return await super().complete(messages, **settings)

    model, ended = Gone(seconds=0.05), list[str]()
    todo = tasks(*"abcd")
    with pytest.raises(ModelUnavailable):
        asyncio.run(go(store, model, todo, jobs=2, watch=lambda row: ended.append(row.id)))
    assert (sorted(model.asked), ended) == (["a", "b"], ["a"])


def test_a_store_error_stops_at_once(store):
    class Broken(Echo):
        async def complete(self, messages, **settings):
            if "a" in messages[-1].content.split():
                raise StoreUnavailable("the disk is full")
            return await super().complete(messages, **settings)

    ended: list[str] = []
    todo, model = tasks("a", "b", "c"), Broken(seconds=30)
    with pytest.raises(StoreUnavailable):
        asyncio.run(go(store, model, todo, jobs=2, watch=lambda row: ended.append(row.id)))
    assert ended == []


def test_cancelled_it_can_be_resumed(store):
    model = Echo(seconds=0.1)

    async def cancelled() -> None:
        work = asyncio.create_task(go(store, model, tasks("a", "b", "c")))
        await model.second.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(cancelled())
    rows = asyncio.run(go(store, model, tasks("a", "b", "c")))
    assert [row.calls for row in rows] == [1, 1, 1]
    assert model.asked == ["a", "b", "b", "c"]
