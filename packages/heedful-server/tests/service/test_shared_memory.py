"""A service as the memory of loops that other machines drive and decide."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

import httpx
import pytest

import heedful
from heedful import client as client_module, errors
from heedful.lessons.briefing import Briefing
from heedful.loop.stop import Stop
from heedful.store import loops, open_store
from heedful.store.store import Store
from heedful_server.app import application
from heedful_server.setup import Setup
from tests.engines import in_memory
from tests.memory.test_harden import KEY, harden, not_empty
from tests.service.running import listening
from tests.service.support import served

pytestmark = pytest.mark.both_nightly


@pytest.fixture
def store(engine: str) -> Store:
    return in_memory()


@asynccontextmanager
async def service(store: Store, requests: int = 1_000) -> AsyncIterator[heedful.Client]:
    """Open a client of a service on this store, which is lost after some requests."""
    app = application(Setup(store=store, holdout=0.0, open=True))
    there = httpx.ASGITransport(app=app)
    numbers = count(1)

    async def answer(request: httpx.Request) -> httpx.Response:
        if next(numbers) > requests:
            raise httpx.ConnectError("down")
        return await there.handle_async_request(request)

    options: Any = {"transport": httpx.MockTransport(answer), "retries": 0}
    async with heedful.Client("http://localhost", **options) as client:
        yield client


def in_kilograms(answer: str, context: heedful.Context) -> Any:
    if "kg" not in answer:
        yield heedful.Finding("unit", f"{answer!r} has no unit", fix="write kg")


class Scale:
    """A function that makes the mistake until a prompt says how to avoid it."""

    def __init__(self) -> None:
        self.hints: list[str] = []

    def __call__(self, task: str, hint: str) -> str:
        self.hints.append(hint)
        return f"{len(task)} kg" if "kg" in hint else f"{len(task)}"


TASKS = ("Weigh the red crate.", "Weigh the blue crate.", "Is a horse heavy?")
CHECKS: dict[str, Any] = {
    "a check with a finding": [in_kilograms],
    "two checks": [heedful.checks.contains("kg"), heedful.checks.words(at_most=1)],
}


async def run_once(
    memory: Any, task: str = TASKS[0], **options: Any
) -> tuple[Scale, heedful.Result[Any]]:
    scale = Scale()
    settings = {"generate": scale, "checks": [in_kilograms], "memory_key": "scales"}
    result = await heedful.run(task, memory=memory, **{**settings, **options})
    return scale, result


async def run_all(memory: Any, **options: Any) -> list[Any]:
    """Run loops one after another; return what each was told and what it did."""
    facts = []
    for number, task in enumerate(TASKS):
        options |= {"memory_key": f"scales {number // 2}", "id": f"loop {number}"}
        scale, result = await run_once(memory, task, store=None, **options)
        attempts = result.loop.attempts
        steps = [(attempt.candidate, attempt.evaluation) for attempt in attempts]
        facts += [scale.hints, steps, result.verdict, result.briefing]
    return facts


@pytest.mark.parametrize("tell", ["both", "rules", "examples"])
@pytest.mark.parametrize("checks", CHECKS.values(), ids=CHECKS)
async def test_a_service_tells_loops_what_a_local_memory_tells(store, checks, tell):
    local = heedful.Memory(in_memory(), holdout=0.0)
    expected = await run_all(local, checks=checks, tell=tell)
    async with service(store) as client:
        assert await run_all(client, checks=checks, tell=tell) == expected
        stored_loops = [await client.loop(f"loop {n}") for n in range(len(TASKS))]
    assert (stored_loops[0]["made"][0]["output"] is None) is (tell == "rules")
    told = [Briefing.of(stored_loop["briefing"]) for stored_loop in stored_loops]
    assert [briefing.lines for briefing in told] == [b.lines for b in expected[3::4]]


def test_what_one_machine_is_corrected_for_another_does_right_at_once(tmp_path):
    check = heedful.checks.contains("kg")
    correcting = partial(heedful.self_correcting, checks=[check])

    def machines(url: str) -> list[int]:
        address = url.replace("://", f"://:{key}@")
        counts = []
        for memory_key in ("scales.weigh", "scales.weigh", "crates.weigh"):
            scale = Scale()

            @correcting(memory=address, memory_key=memory_key)
            def weigh(task: str, hint: str, scale: Scale = scale) -> str:
                return scale(task, hint)

            assert weigh(TASKS[0]).endswith("kg")
            counts.append(len(scale.hints))
        return counts

    with served(tmp_path, holdout=0.0) as api:
        key = api.key("recall", "write")
        assert listening(api, machines) == [2, 1, 1]


async def test_a_loop_that_lost_its_service_is_reported_later(store, tmp_path):
    path = str(tmp_path / "loops.db")
    scale = Scale()
    async with service(store, requests=0) as client:
        with pytest.raises(errors.Unreachable):
            await run_once(client, generate=scale)
    assert scale.hints == []
    async with service(store, requests=3) as client:
        with pytest.raises(errors.Unreachable):
            await run_once(client, store=path, id="l")
    async with service(store) as client:
        scale, result = await run_once(client, store=path, id="l")
        assert scale.hints == []
        assert result.passed
        await run_once(client, store=path, id="l")
        (lesson,) = await client.query("no unit")
        assert lesson.seen == 1
        stored_loop = await client.loop("l")
        assert len(stored_loop["made"]) == 2
        assert stored_loop["state"] == "passed"
    here = await open_store(path).read(heedful.Scope(), loops.read, "l")
    assert "silent: no rule was broken under the key 'scales'" in str(here.briefing)


async def test_a_judged_loop_is_kept_at_the_service_alone(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with service(store) as client:
        await run_once(client, checks=[], id="nobody judged it")
        await run_once(client, id="here")
        rows = (await client.call("GET", "loops"))["items"]
    assert [row["id"] for row in rows] == ["here"]
    assert list(tmp_path.iterdir()) == []


async def test_a_policy_with_a_function_of_its_own_decides_here(store):
    def never_twice(loop: heedful.Loop) -> Stop | None:
        return Stop("never_twice") if loop.attempts else None

    policy = heedful.Policy((never_twice,))
    async with service(store) as client:
        _, result = await run_once(client, policy=policy, id="l")
        assert [stop.rule for stop in result.stopped_by] == ["never_twice"]
        assert (await client.loop("l"))["state"] == "stopped"


async def test_a_cancelled_loop_is_cancelled_at_the_service(store):
    async with service(store) as client:
        settings: Any = {"generate": Scale(), "checks": [in_kilograms], "id": "l"}
        loop = heedful.Run(TASKS[0], memory=client, **settings)
        await loop.step()
        await loop.cancel("ann")
        stored_loop = await client.loop("l")
        assert stored_loop["cancelled"].endswith("ann")
        assert len(stored_loop["made"]) == 1


async def test_a_pipeline_takes_a_service_as_its_memory(store):
    async with service(store) as client:
        counts = []
        for _ in range(2):
            scale = Scale()
            pipeline = heedful.Pipeline("crates", memory=client, progress=False)

            @pipeline.stage(checks=[in_kilograms], memory_key="weigh")
            def weigh(state: Any, feedback: Any, scale: Scale = scale) -> str:
                return scale("a crate", feedback or "")

            report = await pipeline.run({})
            assert report.passed
            counts.append(len(scale.hints))
        assert counts == [2, 1]


async def test_a_check_of_a_lesson_judges_here_and_counts_there_once(store):
    memory = heedful.Memory(store, holdout=0.0)
    check = await harden(memory)
    answers = iter(["medium", "P2"])
    options = {"generate": lambda task, hint: next(answers), "memory_key": KEY}
    async with service(store) as client:
        _, result = await run_once(client, "Backups", checks=[not_empty], **options)
    first = result.loop.attempts[0].evaluation
    assert first is not None
    assert [finding.check for finding in first.findings] == [check.name]
    assert result.passed
    assert f"checked: {check.name}" in str(result.briefing)
    [measured] = await heedful.LessonChecks(memory).list()
    assert measured.hits == 1
    assert measured.false_alarms == 0


@pytest.mark.parametrize(
    "place", ["http://:heedful_k3y@example.com", "http://:k3y@[::1]:9"]
)
async def test_an_address_that_fails_is_named_without_its_key(place, monkeypatch):
    monkeypatch.setattr(client_module, "FIRST_PAUSE_SECONDS", 0.0)
    with pytest.raises((errors.InvalidInput, errors.Unreachable)) as failure:
        await run_once(place)
    assert "k3y" not in str(failure.value)
