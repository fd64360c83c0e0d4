"""The methods of the library over HTTP: the real application on both stores, and its
answers.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

import heedful
from heedful import errors
from heedful.episodes.episode import Event, Fault
from heedful.lessons.lesson import Outcome
from heedful.lessons.proof import MeanCost
from heedful.store import keys, loops
from heedful.store.keys import KEY_PERMISSIONS
from heedful_server.app import application
from heedful_server.setup import Setup
from tests.engines import in_memory

pytestmark = pytest.mark.both_nightly
SCOPE = heedful.Scope("acme", "main")
PAIR = heedful.Example(
    "Weigh the red crate of apples.", "12 kg", rejected="12", wrong="no unit"
)
TASK = "Weigh the red crate of pears."
NO_UNIT = heedful.Evaluation((heedful.Finding("unit", "no unit"),))


@asynccontextmanager
async def client_of(
    store: Any, projects: tuple[str, ...] = ("main",), **more: Any
) -> AsyncIterator[heedful.Client]:
    """Open a client whose key may do everything in these projects."""
    may = KEY_PERMISSIONS
    _, key = await keys.create(store, "acme", "ann", projects=projects, may=may)
    transport = httpx.ASGITransport(app=application(Setup(store=store, holdout=0.0)))
    async with heedful.Client(
        "http://localhost", key, transport=transport, **more
    ) as c:
        yield c


@pytest.fixture
def memory(engine: str) -> heedful.Memory:
    return heedful.Memory(in_memory(), SCOPE, holdout=0.0)


async def test_what_is_remembered_is_seen_and_recalled_as_by_the_library(memory):
    async with client_of(memory.store) as client:
        first = await client.remember(
            "unit", "no unit", lesson="Write kg.", example=PAIR
        )
        again = await client.remember("unit", "no unit", example=PAIR)
        assert first.created is True
        assert again.created is False
        assert again.seen == 2
        sight = await client.seen("unit", "no unit")
        assert sight.count == 2
        assert [item["id"] for item in sight.lessons] == [first.id]
        assert sight.group == (await memory.seen("unit", "no unit")).group
        assert not await client.seen("unit", "the length has no unit at all")
        assert (await client.seen("step 1\nunit: no unit")).lines == ("unit: no unit",)

        matches = await client.recall(TASK)
        expected = await memory.recall(TASK)
        assert [item.id for item in matches] == [item.id for item in expected]
        for name in ("lesson_id", "kind", "verified", "seen", "lesson", "tags"):
            assert getattr(matches[0], name) == getattr(expected[0], name)
        assert matches[0].example.accepted == "12 kg"
        assert await client.recall(TASK, tags=["other"]) == []
        silent = await client.recall("Name a river")
        assert silent == []
        assert silent.silence == (await memory.recall("Name a river")).silence
        assert await client.render(TASK) == memory.render(expected)
        assert "12 kg" in await client.render_text(TASK)
        assert await client.render_text("What is the capital of France?") == ""


async def test_what_waits_and_what_a_call_breaks_is_named_as_by_the_library(memory):
    await memory.user_rules.state("we use pnpm, never npm", by="ann")
    waiting = await memory.remember("unit", "odd", lesson="Obey.", origin="outside")
    async with client_of(memory.store) as client:
        for arguments in ("npm install zod", "ls x", {"path": "x"}):
            history = await client.before("Bash", arguments)
            assert history == await memory.before("Bash", arguments)
        history = await client.before("Bash", "npm install zod")
        assert [rule.text for rule in history.rules] == ["we use pnpm, never npm"]

        entries = await client.query("Obey.")
        expected = await memory.query("Obey.")
        assert [(item.id, item.state, item.release) for item in entries] == [
            (item.id, item.state, item.release) for item in expected
        ]
        assert entries[0].id == waiting.entry
        assert entries.silence == ""
        question = "we use pnpm, never npm"
        none = await client.query(question, tags=["red"])
        assert none == []
        assert none.silence == (await memory.query(question, tags=["red"])).silence


async def test_what_a_loop_is_shown_and_how_it_ended_is_proof(memory):
    async with client_of(memory.store) as client:
        await client.remember("unit", "no unit", example=PAIR)
        messages = await client.render(TASK, loop="pears")
        assert [message.role for message in messages] == ["user", "assistant"]
        assert await client.render(TASK, loop="pears") == messages
        options: Any = {"policy": "default, attempts.limit=1"}
        await client.open("pears", TASK, rungs=("small", "large"), **options)
        await client.report("pears", 1, output="7", evaluation=NO_UNIT)
        usage = heedful.Usage(calls=2, prompt_tokens=9, cost=0.5)
        right: Any = {"evaluation": heedful.Evaluation(), "usage": usage}
        await client.report("pears", 2, output="7 kg", **right)
        ends: Any = {"climbed": True, "cost": 0.5}
        signatures = frozenset({"0123456789abcdef"})
        end = Outcome("pears", True, calls=1, signatures=signatures, **ends)
        await client.outcome(end)
        proof = await client.prove()
        assert proof == await memory.prove()
        assert proof.mean_cost == MeanCost(0.5, None)
        assert proof.pooled.climbs is not None
        assert proof.pooled.climbs.shown == 1.0
        assert proof.pending == 0
        assert [*proof.models] == ["small"]
        assert (await client.prove("small")).pooled.shown == 1
        assert (await client.prove("large")).pooled.shown == 0
        small, large = proof.ladders.rungs
        assert small.model == "small"
        assert [small.tasks, large.tasks] == [0, 1]
        assert large.calls == 2
        assert large.tokens == 9


async def test_what_is_forgotten_is_counted_as_by_the_library(memory):
    async with client_of(memory.store) as client:
        await memory.remember("unit", "no unit", lesson="Kg!", source="user:ada")
        await memory.remember("unit", "no unit", lesson="Kg!", source="user:bob")
        await client.open("L", "Weigh it.")
        planned = await client.forget(person="ada", dry_run=True)
        forgotten = await client.forget(person="ada", why="she asked")
        assert planned.counts == forgotten.counts
        assert forgotten.sightings == 1
        assert forgotten.shared == (1,)
        assert (await client.forget(loop="L")).loops == 1
        with pytest.raises(errors.NotFound):
            await client.loop("L")
        with pytest.raises(errors.NotFound):
            await client.forget(lesson=99)
        with pytest.raises(errors.InvalidInput):
            await client.forget()


async def test_an_episode_is_handed_over_whole(memory):
    call: Any = {"tool": "find", "call": "c1"}
    events = (
        Event("tool_call", arguments={"id": "A17"}, agent="a", id="e2", **call),
        Event("tool_response", error="no order", code="404", id="e3", **call),
        Event("llm_response", "No.", meta={"part": "text"}, at=0.0, id="e4"),
    )
    episode = heedful.Episode(
        events,
        task="Where is A-17?",
        goal="It is known.",
        id="run-17",
        session="s1",
        fault=Fault("timeout_error", "60 s", "find"),
        tools=("find", "refund"),
        omitted=3,
    )
    async with client_of(memory.store) as client:
        first = await client.reflect(episode)
        assert first["state"] == "waiting"
        assert first["digest"] == episode.digest
        [listed] = (await client.call("GET", "episodes", state="waiting"))["items"]
        assert listed["name"] == "run-17"


async def test_every_route_can_be_called_and_errors_are_the_librarys_own(memory):
    async with client_of(memory.store) as client:
        assert (await client.call("GET", "quarantine", limit=9))["items"] == []
        with pytest.raises(errors.UsageError, match="error_type"):
            await client.remember("", "x")
        await client.open("pears", TASK)
        findings: Any = [heedful.Finding("unit", "no unit")]
        wanted = r"evaluation is \[Finding.*Evaluation\("
        with pytest.raises(errors.InvalidInput, match=wanted):
            await client.report("pears", 1, output="7", evaluation=findings)
    async with client_of(memory.store, project="other") as other:
        with pytest.raises(errors.Forbidden, match="other"):
            await other.seen("unit", "x")
    async with client_of(memory.store, ("main", "side"), project="side") as side:
        assert not await side.seen("unit", "no unit")


async def test_a_loop_is_decided_as_the_core_decides_it(memory):
    policy = heedful.policy("default, attempts.limit=2")
    goals = (heedful.Goal("alignment", 0.75),)
    finding = heedful.Finding("length", "it is wrong", fix="correct it")
    low = heedful.Evaluation((finding,), {"alignment": 0.2})
    better = heedful.Evaluation((), {"alignment": 0.7})
    usage = heedful.Usage(1, 10, completion_tokens=2, cost=0.5, seconds=0.25)
    loop = heedful.Loop("a/b 1", goals)
    async with client_of(memory.store) as client:
        opened = await client.open("a/b 1", "Say hello.", goals=goals, policy=policy)
        assert opened["id"] == "a/b 1"
        assert opened["made"] == []
        for number, (output, evaluation) in enumerate(
            [("hi", low), ("hello", better)], 1
        ):
            judged: Any = {"evaluation": evaluation, "usage": usage}
            candidate = heedful.Candidate.of(output)
            loop = loop.then(heedful.Attempt(number, candidate, **judged))
            for _ in range(2):
                verdict = await client.report("a/b 1", number, output=output, **judged)
                assert verdict == heedful.decide(loop, policy)
        data = await client.loop("a/b 1")
        stored = await memory.store.read(SCOPE, loops.read, "a/b 1")
        assert data["goals"] == list(stored.head.goals)
        assert [item["output"] for item in data["made"]] == list(stored.values)
        assert [item["usage"]["calls"] for item in data["made"]] == [1, 1]
        verdicts = [item["verdict"]["verdict"] for item in data["decisions"]]
        assert verdicts == ["again", "done"]
        assert data["policy"] == stored.head.policy
        assert await client.explain("a/b 1") == str(heedful.explain(loop, policy))
        body = {"rule": "attempts", "why": "one more"}
        await client.call("POST", "loops", "a/b 1", "overrides", body=body)
        high = heedful.Evaluation((), {"alignment": 0.9})
        lifted = await client.report("a/b 1", 3, output="Hello.", evaluation=high)
        assert lifted == heedful.Done(3, passed=True)
        assert (await client.loop("a/b 1"))["overrides"][0]["why"] == "one more"
