"""Each task does its work in its scope, once, whoever calls it and however often."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import heedful
from heedful.errors import (
    GenerateFailed,
    InvalidInput,
    LeaseLost,
    ModelUnavailable,
    NotFound,
    UnknownName,
)
from heedful.lessons.lesson import Scope
from heedful.loop.codec import policy_to, to_document
from heedful.memory.dream import Dreams
from heedful.memory.memory import Memory
from heedful.models.function import Function
from heedful.service.jobs import LONGEST, Job, Tools
from heedful.store import episodes, loops, search
from heedful.store import lessons as lesson_store
from heedful.store.records import Head
from heedful.testing import FixedEmbedder, ScriptedModel
from tests.engines import IN_SOAK, opened
from tests.service.jobs import OTHER, SCOPE, begun, put

pytestmark = IN_SOAK
run = asyncio.run


@pytest.fixture
def store(tmp_path):
    with opened(tmp_path / "w.db") as one:
        yield one


def done(tools: Tools, task: str, **arguments: str) -> None:
    run(Job(task, SCOPE, arguments).done(tools))


def states(store, scope: Scope = SCOPE) -> dict[str, int]:
    return dict(run(store.read(scope, episodes.counts)))


def test_an_episode_is_reflected_on_once_or_all_that_wait(store):
    one, *_ = run(put(store, SCOPE, "pot", "pan", "lid"))
    run(put(store, OTHER, "pot"))
    for _ in range(3):
        done(Tools(store), "reflect", digest=one)
    assert states(store) == {"reflected": 1, "waiting": 2}
    lessons = run(store.read(SCOPE, lesson_store.top, 9))
    assert {lesson["seen"] for lesson in lessons} == {1}
    done(Tools(store), "reflect")
    assert (states(store), states(store, OTHER)) == ({"reflected": 3}, {"waiting": 1})


def test_an_episode_that_fails_holds_up_no_other_and_is_raised(store):
    run(put(store, SCOPE, "pot", "pan"))
    model = ScriptedModel(ModelUnavailable("no connection"), forever=True)
    with pytest.raises(ModelUnavailable):
        done(Tools(store, model), "reflect")
    assert states(store) == {"failed": 2}
    done(Tools(store), "reflect")
    assert states(store) == {"reflected": 2}


def test_an_episode_that_another_worker_holds_is_left_to_it(store):
    (one,) = run(put(store, SCOPE, "pot"))
    assert run(store.write(SCOPE, episodes.take, 4e9, one)) is not None
    with pytest.raises(LeaseLost, match="try again"):
        done(Tools(store), "reflect", digest=one)
    with pytest.raises(NotFound):
        done(Tools(store), "reflect", digest="0" * 64)


def test_a_claim_is_renewed_while_an_episode_is_reflected_on(store, monkeypatch):
    (one,) = run(put(store, SCOPE, "pot"))
    monkeypatch.setattr("heedful.store.episodes.LEASE", 0.03)

    async def taken() -> Any:
        sql = "select taken from episode"
        return await store.read(SCOPE, lambda db, _: db.execute(sql).fetchone()[0])

    async def slow(messages):
        claimed = {await taken()}
        while len(claimed) < 3:
            claimed.add(await taken())
        raise ModelUnavailable("no connection")

    with pytest.raises(ModelUnavailable):
        done(Tools(store, Function(slow)), "reflect", digest=one)
    assert states(store) == {"failed": 1}


def test_the_tasks_of_memory_do_their_work_as_the_worker_is_set_up(store):
    memory = Memory(store, SCOPE)
    for text in ("Ask for the size of the pot", "Ask for the size of the pot!", "Say the colour"):
        run(memory.remember("k", text, importance=0.7))
    for task in ("embed", "prune", "prove"):  # without settings there is nothing to do
        done(Tools(store), task)
    assert run(store.read(SCOPE, search.spaces)) == {"": 3}
    for _ in range(2):
        done(Tools(store, embedder=FixedEmbedder()), "embed")
    assert run(store.read(SCOPE, search.spaces)) == {"fixed/64": 3}
    for tools, options in ((Tools(store), {"mode": "lite"}), (Tools(store, enabled=False), {})):
        done(tools, "dream", **options)
    assert [(one.mode, one.by) for one in run(Dreams(memory).log())] == [("lite", "heedful worker")]
    with pytest.raises(InvalidInput, match="mode"):
        done(Tools(store), "dream", mode="deep")
    done(Tools(store, keep=1), "prune")
    assert run(store.read(SCOPE, lesson_store.count)) == 1


def test_a_loop_is_driven_to_its_end_by_what_the_worker_knows(store):
    goal, policy = heedful.Goal("s", 0.9), heedful.Policy((heedful.MaxAttempts(2),))
    head = Head("t", [to_document(goal)], policy_to(policy))
    run(store.write(SCOPE, loops.claim, "l1", head, ""))

    def low(task, **given):
        def evaluate(candidate, at):
            return heedful.Evaluation(scores={"s": 0.1})

        return heedful.Run(task, generate=lambda task, hint: "x", evaluate=evaluate, **given)

    tools = Tools(store, loops={"low": low})
    for _ in range(2):
        done(tools, "drive", loop="l1", by="low")
    stored = run(store.read(SCOPE, loops.read, "l1"))
    assert [stop.rule for stop in stored.verdicts[-1].stopped_by] == ["attempts"]
    assert len(stored.values) == 2  # goals and policy are those it was stored with
    with pytest.raises(UnknownName, match="low"):
        done(tools, "drive", loop="l1", by="os:system")
    with pytest.raises(NotFound):
        done(tools, "drive", loop="l2", by="low")


@pytest.mark.parametrize(
    "wrong", [lambda task, **given: 1 / 0, lambda task, **given: None], ids=["raises", "returns"]
)
def test_a_function_that_opens_no_loop_is_the_users_to_mend(store, wrong):
    run(begun(store, SCOPE, "l1"))
    with pytest.raises(GenerateFailed, match="correct it"):
        done(Tools(store, loops={"wrong": wrong}), "drive", loop="l1", by="wrong")


@pytest.mark.parametrize(
    ("task", "arguments", "error"),
    [
        ("reflekt", {}, UnknownName),
        ("reflect", {"loop": "x"}, InvalidInput),
        ("drive", {"loop": "x"}, InvalidInput),
        ("reflect", {"digest": 3}, InvalidInput),
        ("reflect", {"digest": "x" * (LONGEST + 1)}, InvalidInput),
        ("reflect", {"digest": "a\x00b"}, InvalidInput),
    ],
)
def test_what_no_worker_could_do_is_refused_when_it_is_handed_over(task, arguments, error):
    with pytest.raises(error):
        Job(task, SCOPE, arguments)


def test_a_job_has_one_name_in_its_scope_and_memory_is_held_by_one_at_a_time():
    kinds: Any = (("reflect", {"digest": "a"}), ("reflect", {"digest": "b"}), ("dream", {}))
    scopes = (SCOPE, OTHER, Scope("acme", "other"))
    jobs = [Job(task, scope, arguments) for task, arguments in kinds for scope in scopes]
    assert len({job.name for job in jobs}) == len(jobs)
    assert [job.holds for job in jobs[:6]] == 6 * [None]
    assert [job.holds for job in jobs[6:]] == [Job("prune", scope, {}).holds for scope in scopes]
    assert len({job.holds for job in jobs[6:]}) == 3
