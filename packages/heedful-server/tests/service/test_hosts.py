"""The core, a driver, a pipeline and a reporter over HTTP decide the same."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import assume, given, settings, strategies as st

from heedful.checks.evaluate import Context
from heedful.drive.report import override
from heedful.drive.run_loop import Run
from heedful.lessons.lesson import Scope
from heedful.loop.codec import policy_to, to_document
from heedful.loop.decide import Done, Policy, Verdict, consume_overrides, decide
from heedful.loop.record import Evaluation, Goal, Override
from heedful.loop.replay import replay
from heedful.loop.stop import MaxAttempts
from heedful.pipeline import Pipeline
from heedful.store import loops
from heedful.store.postgres import in_database
from heedful.store.records import StoredLoop
from heedful.store.sqlite import in_file
from heedful.store.store import Store
from heedful_server.setup import Setup
from tests.engines import NIGHTLY_ENGINES
from tests.loop import support
from tests.postgres import drop, fresh
from tests.service.support import TENANT, Api

# Long enough that the frame in which a pipeline keeps an output makes no two of them
# alike.
WORDS = "amber basil cedar delta ember frost grape hazel ivory jade karst lemon".split()
TEXTS = [" ".join(f"{word}{place}x" for word in WORDS) for place in "abcd"]
TEXTS.append(f"{' '.join(f'{TEXTS[0]} again' for _ in range(3))}")
TEXTS.append(f"{TEXTS[-1]} and again")  # nearly the same
tries = st.lists(
    st.tuples(st.sampled_from(TEXTS), support.evaluations), min_size=1, max_size=6
)
_numbers = count(1)
Made = list[tuple[str, Evaluation]]


def bounded(policy: Policy, limit: int) -> Policy:
    """With its budgets left out, whose seconds are real, and with an end."""
    rules = [r for r in policy.rules if "budget" not in str(getattr(r, "name", ""))]
    return replace(policy, rules=(*rules, MaxAttempts(limit)))


@pytest.fixture(scope="module", params=NIGHTLY_ENGINES)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    urls = fresh() if request.param == "postgres" else None
    store = in_database(urls.service) if urls else in_file(":memory:")
    api = Api(Setup(store=store))
    yield api
    api.close()
    if urls:
        drop(urls)


@dataclass(kw_only=True)
class Hosts:
    """One history, to be gone through by each host in a scope of its own."""

    api: Api
    made: Made
    goals: tuple[Goal, ...]
    policy: Policy
    lift: Override | None
    rungs: int = 1

    def __post_init__(self) -> None:
        self.store: Store = self.api.setup.store
        self.key = self.api.key("read", "write", "approve", projects=())

    def scope(self) -> Scope:
        return Scope(TENANT, f"project {next(_numbers)}")

    @property
    def judged(self) -> dict[str, Any]:
        def evaluate(candidate: Any, context: Context) -> Evaluation:
            return self.made[context.attempt - 1][1]

        return {"evaluate": evaluate, "goals": self.goals, "policy": self.policy}

    async def driven(self) -> StoredLoop:
        scope = self.scope()
        seen = count()
        options: Any = {
            **self.judged,
            "store": self.store,
            "scope": scope,
            "id": "loop",
        }
        generators = [
            lambda task, hint: self.made[next(seen)][0] for _ in range(self.rungs)
        ]
        run = Run[str]("task", generate=generators, **options)
        if lift := self.lift:
            await run.override(lift.rule, lift.by, lift.why, lift.decisions)
        await run.finish()
        return await self.store.read(scope, loops.read, "loop")

    async def piped(self) -> StoredLoop:
        scope = self.scope()
        seen = count()
        pipeline = Pipeline("line", store=self.store, scope=scope, progress=False)

        def work(state: Any) -> str:
            return self.made[next(seen)][0]

        then = [lambda state: work(state) for _ in range(self.rungs - 1)]

        @pipeline.stage(**self.judged, then=then)
        def stage(state: Any) -> str:
            return work(state)

        await pipeline.run({}, id="run")
        return await self.store.read(scope, loops.read, "run/stage")

    async def reported(self) -> StoredLoop:
        scope = self.scope()
        path = "/v1/loops/a%2Floop"
        where = f"?project={scope.project}"
        body = {"task": "task", "goals": list(map(to_document, self.goals))}
        if self.rungs > 1:
            body["rungs"] = [f"rung {number}" for number in range(1, self.rungs + 1)]
        await self._asked(
            "PUT", f"{path}{where}", {**body, "policy": policy_to(self.policy)}
        )
        if lift := self.lift:
            options: Any = {"by": lift.by, "why": lift.why, "decisions": lift.decisions}
            await override(
                "a/loop", lift.rule, **options, store=self.store, scope=scope
            )
        answer: dict[str, Any] = {}
        for n, (text, evaluation) in enumerate(self.made, 1):
            if answer.get("decision") == "done":
                break
            report = {"output": text, "evaluation": to_document(evaluation)}
            answer = await self._asked("PUT", f"{path}/attempts/{n}{where}", report)
            same = await self._asked("PUT", f"{path}/attempts/{n}{where}", report)
            assert answer == same
            verdict = (await self.store.read(scope, loops.read, "a/loop")).verdict
            assert answer["rung"] == getattr(verdict, "rung", 0)
        result = await self.store.read(scope, loops.read, "a/loop")
        last = result.verdicts[-1]
        assert isinstance(last, Done)
        assert answer["best"] == last.best
        assert answer["passed"] == last.passed
        stops = [stop["rule"] for stop in answer["stopped_by"]]
        assert stops == [stop.rule for stop in last.stopped_by]
        return result

    async def _asked(self, method: str, path: str, body: Any) -> Any:
        answer = await self.api.ask(method, path, json=body, key=self.key)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()


def shape(result: StoredLoop) -> dict[str, Any]:
    loop = result.loop
    return {
        "attempts": [
            (item.number, item.evaluation, item.repeats, item.rung)
            for item in loop.attempts
        ],
        "best": loop.best,
        "end": result.verdicts[-1],
        "decided": [type(verdict).__name__ for verdict in result.verdicts],
        "standing": [decision.standing for decision in result.decisions],
        "used": [item.used for item in loop.overrides],
    }


def folded(result: StoredLoop, policy: Policy) -> list[Verdict]:
    """What the core decides after each attempt."""
    fresh = tuple(replace(lifted, used=0) for lifted in result.loop.overrides)
    loop = replace(result.loop, attempts=(), overrides=fresh)
    verdicts = []
    for attempt in result.loop.attempts:
        loop = loop.then(attempt)
        verdicts.append(decide(loop, policy))
        loop = consume_overrides(loop, verdicts[-1])
    assert loop.overrides == result.loop.overrides
    return verdicts


@settings(max_examples=25)
@given(
    attempts=tries,
    goals=support.goals,
    policy=support.with_goals,
    lift=st.none() | st.none() | support.overrides,
    rungs=st.sampled_from([1, 1, 2, 3]),
)
def test_the_three_hosts_come_to_the_same_end(
    api, attempts, goals, policy, lift, rungs
):
    assume("\\x00" not in repr(attempts))
    assume(rungs <= len(attempts))
    policy = bounded(policy, len(attempts) // rungs)
    liftable = {n for r in policy.rules for n in str(getattr(r, "name", "")).split("+")}
    if lift is not None and (lift.rule not in liftable or lift.rule == "attempts"):
        lift = None
    hosts = Hosts(
        api=api,
        made=attempts,
        goals=goals or policy.goals,
        policy=policy,
        lift=lift,
        rungs=rungs,
    )
    driven = api.run(hosts.driven())
    assert folded(driven, policy) == list(driven.verdicts)
    assert shape(api.run(hosts.reported())) == shape(driven)
    if hosts.lift is None:
        again = replay(driven.loop, policy)
        assert again.verdict == driven.verdicts[-1]
        assert again.exact is True
        assert shape(api.run(hosts.piped())) == shape(driven)
