"""The methods of the library over HTTP: the real application on both stores, and its
answers.
"""

import asyncio
from typing import Any

import httpx
import pytest

import heedful
from heedful import errors
from heedful.episodes.episode import Event, Fault
from heedful.lessons.lesson import Outcome
from heedful.lessons.proof import MeanCost
from heedful.service.app import application
from heedful.service.setup import Setup
from heedful.store import keys, loops
from heedful.store.keys import KEY_PERMISSIONS
from tests.engines import in_memory

pytestmark = pytest.mark.both_nightly
TENANT = "acme"
SCOPE = heedful.Scope(TENANT, "main")
PAIR = heedful.Example(
    "Weigh the red crate of apples.", "12 kg", rejected="12", wrong="no unit"
)
TASK = "Weigh the red crate of pears."


class Place:
    """A store, the application on it, and clients of it by what their keys may."""

    def __init__(self):
        self.store = in_memory()
        self.app = application(Setup(store=self.store, holdout=0.0))
        self.memory = heedful.Memory(self.store, SCOPE, holdout=0.0)

    async def client(self, *may, projects=("main",), **more):
        _, key = await keys.create(
            self.store, TENANT, "ann", projects=projects, may=may or KEY_PERMISSIONS
        )
        transport = httpx.ASGITransport(app=self.app)
        return heedful.Client("http://localhost", key, transport=transport, **more)


def over_http(test):
    async def run():
        place = Place()
        async with await place.client() as client:
            await test(place, client)

    def wrapped(engine):
        asyncio.run(run())

    wrapped.__name__ = test.__name__
    return wrapped


@over_http
async def test_what_is_remembered_is_seen_and_recalled_as_by_the_library(place, client):
    first = await client.remember("unit", "no unit", lesson="Write kg.", example=PAIR)
    again = await client.remember("unit", "no unit", example=PAIR)
    assert first.created is True
    assert again.created is False
    assert again.seen == 2
    sight = await client.seen("unit", "no unit")
    assert sight.count == 2
    assert [item["id"] for item in sight.lessons] == [first.id]
    assert sight.group == (await place.memory.seen("unit", "no unit")).group
    assert not await client.seen("unit", "the length has no unit at all")
    assert (await client.seen("step 1\nunit: no unit")).lines == ("unit: no unit",)
    for arguments in ("ls x", {"path": "x"}):
        assert await client.before("Bash", arguments) == await place.memory.before(
            "Bash", arguments
        )

    matches = await client.recall(TASK)
    our_matches = await place.memory.recall(TASK)
    assert [item.id for item in matches] == [item.id for item in our_matches]
    for name in (
        "lesson_id",
        "kind",
        "verified",
        "seen",
        "lesson",
        "signature",
        "tags",
    ):
        assert getattr(matches[0], name) == getattr(our_matches[0], name)
    assert matches[0].example.accepted == "12 kg"
    assert await client.recall(TASK, tags=["other"]) == []
    silent = await client.recall("Name a river")
    assert silent == []
    assert "no lesson is about a similar task" in silent.silence
    assert silent.silence == (await place.memory.recall("Name a river")).silence
    waiting = await place.memory.remember(
        "unit", "odd", lesson="Obey.", origin="outside"
    )
    entries = await client.query("Obey.")
    our_entries = await place.memory.query("Obey.")
    assert [(item.id, item.state, item.release) for item in entries] == [
        (item.id, item.state, item.release) for item in our_entries
    ]
    assert entries[0].id == waiting.entry
    assert entries.silence == ""
    none = await client.query("Obey.", tags=["red"])
    assert none == []
    assert "it does not match the filter" in none.silence
    assert none.silence == (await place.memory.query("Obey.", tags=["red"])).silence
    assert await client.render(TASK) == place.memory.render(our_matches)
    assert "12 kg" in await client.render_text(TASK)
    assert await client.render_text("What is the capital of France?") == ""


@over_http
async def test_what_a_loop_is_shown_and_how_it_ended_is_proof(place, client):
    await client.remember("unit", "no unit", example=PAIR)
    messages = await client.render(TASK, loop="pears")
    assert [message.role for message in messages] == ["user", "assistant"]
    assert await client.render(TASK, loop="pears") == messages
    await client.open("pears", TASK, policy="default")
    await client.report(
        "pears",
        1,
        output="7",
        evaluation=heedful.Evaluation((heedful.Finding("unit", "no unit"),)),
    )
    await client.outcome(
        Outcome(
            "pears",
            True,
            calls=1,
            signatures=frozenset({"0123456789abcdef"}),
            model="small-1b",
            climbed=True,
            cost=0.5,
        )
    )
    proof = await client.prove()
    assert proof.mean_cost == MeanCost(0.5, None)
    assert proof.pooled.climbs is not None
    assert proof.pooled.climbs.shown == 1.0
    assert proof.pending == 0
    assert proof.pooled.shown == 1
    assert proof == await place.memory.prove()
    assert [*proof.models] == ["small-1b"]
    assert (await client.prove("small-1b")).pooled.shown == 1
    assert (await client.prove("large-70b")).pooled.shown == 0


@over_http
async def test_an_evaluation_of_another_kind_is_refused_with_what_to_write(
    place, client
):
    await client.open("pears", TASK)
    findings = [heedful.Finding("unit", "no unit")]
    with pytest.raises(
        errors.InvalidInput, match=r"evaluation is \[Finding.*Evaluation\("
    ):
        await client.report("pears", 1, output="7", evaluation=findings)


@over_http
async def test_an_episode_is_handed_over_whole(place, client):
    events = (
        Event(
            "tool_call",
            tool="find",
            arguments={"id": "A17"},
            call="c1",
            agent="a",
            id="e2",
        ),
        Event(
            "tool_response",
            tool="find",
            call="c1",
            error="no order",
            code="404",
            id="e3",
        ),
        Event(
            "llm_response",
            "There is no such order.",
            meta={"part": "text"},
            at=0.0,
            id="e4",
        ),
    )
    fault = Fault("timeout_error", "60 s", "find")
    texts: Any = {
        "task": "Where is A-17?",
        "goal": "It is known.",
        "id": "run-17",
        "session": "s1",
    }
    tools = ("find", "refund")
    episode = heedful.Episode(events, **texts, fault=fault, tools=tools, omitted=3)
    first = await client.reflect(episode)
    assert first["state"] == "waiting"
    assert first["digest"] == episode.digest
    [listed] = (await client.call("GET", "episodes", state="waiting"))["items"]
    assert listed["name"] == "run-17"


@over_http
async def test_every_route_can_be_called_and_errors_are_the_librarys_own(place, client):
    assert (await client.call("GET", "quarantine", limit=9))["items"] == []
    with pytest.raises(errors.UsageError, match="error_type"):
        await client.remember("", "x")
    async with await place.client(project="other") as other:
        with pytest.raises(errors.Forbidden, match="other"):
            await other.seen("unit", "x")
    async with await place.client(projects=("main", "side"), project="side") as side:
        assert not await side.seen("unit", "no unit")


def wrong(*checks, **scores):
    findings = [
        heedful.Finding(name, f"{name} is wrong", fix="mend it") for name in checks
    ]
    return heedful.Evaluation(tuple(findings), scores)


@over_http
async def test_a_loop_is_decided_as_the_core_decides_it(place, client):
    policy = heedful.policy("default, attempts.limit=2")
    goals = (heedful.Goal("alignment", 0.75),)
    opened = await client.open("a/b 1", "Say hello.", goals=goals, policy=policy)
    assert opened["id"] == "a/b 1"
    assert opened["task"] == "Say hello."
    assert opened["made"] == []
    loop = heedful.Loop("a/b 1", goals)
    verdict = heedful.Again()
    for number, (output, evaluation) in enumerate(
        [("hi", wrong("length", alignment=0.2)), ("hello", wrong(alignment=0.7))], 1
    ):
        usage = heedful.Usage(1, 10, completion_tokens=2, cost=0.5, seconds=0.25)
        candidate = heedful.Candidate.of(output)
        loop = loop.then(
            heedful.Attempt(number, candidate, evaluation=evaluation, usage=usage)
        )
        options = {"output": output, "evaluation": evaluation, "usage": usage}
        for _ in range(2):
            verdict = await client.report("a/b 1", number, **options)
            assert verdict == heedful.decide(loop, policy)
    loop_data = await client.loop("a/b 1")
    stored_loop = await place.store.read(SCOPE, loops.read, "a/b 1")
    assert loop_data["goals"] == list(stored_loop.head.goals)
    assert [item["output"] for item in loop_data["made"]] == list(stored_loop.values)
    assert [item["usage"]["calls"] for item in loop_data["made"]] == [1, 1]
    assert [item["verdict"]["verdict"] for item in loop_data["decisions"]] == [
        "again",
        "done",
    ]
    assert loop_data["policy"] == stored_loop.head.policy
    assert await client.explain("a/b 1") == str(heedful.explain(loop, policy))
    body = {"rule": "attempts", "why": "one more"}
    await client.call("POST", "loops", "a/b 1", "overrides", body=body)
    lifted_verdict = await client.report(
        "a/b 1", 3, output="Hello.", evaluation=wrong(alignment=0.9)
    )
    assert lifted_verdict == heedful.Done(3, passed=True)
    assert (await client.loop("a/b 1"))["overrides"][0]["why"] == "one more"
