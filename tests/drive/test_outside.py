"""Overrides from outside: a stored loop reopens, its record stays, and it can be driven on."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heedful
from heedful.checks.evaluate import Context
from heedful.drive.drive import Run
from heedful.errors import LeaseLost, NotFound, OverrideRefused
from heedful.lessons.lesson import Scope
from heedful.loop.codec import decision_to, policy_to
from heedful.loop.decide import Again, Done, Policy, Verdict, standing_of
from heedful.loop.record import Evaluation, Goal, Loop, Override
from heedful.loop.stop import LIFTABLE, All, Budget, MaxAttempts, Plateau, Repeat, Stop
from heedful.store import loops
from heedful.store.loops import new_owner
from heedful.store.records import Head, StoredLoop
from heedful.store.sqlite import in_file
from heedful.store.store import Store
from tests.drive.support import FOUR, WANTED, Check, Generator, counted
from tests.loop import support
from tests.store.support import ended, python, rows

SCOPE = Scope()
TABLES = ("loop", "attempt", "decision", "override", "step")
HOUR = 3600.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.db"


@pytest.fixture
def store(path):
    one = in_file(str(path))
    yield one
    asyncio.run(one.close())


def session(store: Store, *answers: Any, policy: Policy = FOUR, id: str = "a") -> Run[Any]:
    generate = Generator(*answers) if answers else Generator("one", "two", "three", "four", "five")
    return Run("task", generate=generate, checks=[Check()], policy=policy, store=store, id=id)


async def given_by_ada(store: Store, rule: str = "attempts", **options: Any) -> Verdict:
    options = {"by": "ada", "store": store, **options}
    return await heedful.override("a", rule, **options)


def everything(path: Path) -> list[Any]:
    return [rows(path, f"select * from {table}") for table in TABLES]


def used(stored: StoredLoop) -> list[int]:
    return [override.used for override in stored.loop.overrides]


# -- a loop that has stopped


def test_a_stopped_loop_reopens_and_can_be_driven_on(store, path):
    async def scenario() -> None:
        stopped = (await session(store).finish()).verdict
        verdict = await given_by_ada(store, why="it is close")
        assert isinstance(verdict, Again)
        assert "four is not right" in verdict.feedback
        assert [(one.stop.rule, one.by, one.override) for one in verdict.lifted] == [
            ("attempts", "ada", 0)
        ]
        stored = await store.read(SCOPE, loops.read, "a")
        assert stored.verdicts[3:] == (stopped, verdict)  # the first verdict stays on record
        assert [d.attempt for d in stored.decisions] == [1, 2, 3, 4, 4]
        assert stored.loop.overrides == (Override("attempts", "ada", "it is close", used=1),)
        assert rows(path, "select state from loop") == [("open",)]
        later = Generator(WANTED)
        result = await Run[Any](
            "task", generate=later, checks=[Check()], policy=FOUR, store=store, id="a"
        ).finish()
        assert (result.passed, len(result.loop.attempts)) == (True, 5)
        assert later.hints == [verdict.feedback]

    asyncio.run(scenario())


def test_its_decision_rests_on_what_the_stopped_one_did(store):
    policy = Policy((MaxAttempts(2), Plateau(5)))

    async def scenario() -> None:
        await session(store, policy=policy).finish()
        await given_by_ada(store)
        stored = await store.read(SCOPE, loops.read, "a")
        stopped, reopened = stored.decisions[1:]
        assert reopened.standing == stopped.standing == standing_of(stored.loop, policy)
        assert reopened.standing.fatigue == 0.15
        assert stopped.at <= reopened.at <= time.time()
        told = heedful.reasoning(stored.loop, stored.decisions)
        assert [one.decided for one in told] == ["again", "stopped", "again"]
        assert [[one.stop.rule for one in each.lifted] for each in told] == [[], [], ["attempts"]]
        assert [[stop.rule for stop in each.spoke] for each in told] == [
            [],
            ["attempts"],
            ["attempts"],
        ]

    asyncio.run(scenario())


@pytest.mark.parametrize(("decisions", "more"), [(1, 1), (2, 2), (3, 3)])
def test_it_lifts_as_many_decisions_as_were_given(store, decisions, more):
    policy = Policy((MaxAttempts(1),))

    async def scenario() -> None:
        await session(store, policy=policy).finish()
        await given_by_ada(store, decisions=decisions)
        result = await session(store, policy=policy).finish()
        assert len(result.loop.attempts) == 1 + more
        assert used(await store.read(SCOPE, loops.read, "a")) == [decisions]

    asyncio.run(scenario())


def test_the_override_and_the_decision_are_one_transaction(path):
    store, commits = counted(path)

    async def scenario() -> None:
        await session(store).finish()
        before = commits()
        await given_by_ada(store)
        assert commits() - before == 1
        await store.close()

    asyncio.run(scenario())


def test_a_rule_that_is_not_lifted_still_stops_it_and_consumes_nothing(store):
    policy = Policy((MaxAttempts(2), Repeat()))

    async def scenario() -> None:
        await session(store, "same", policy=policy).finish()
        verdict = await given_by_ada(store)
        assert isinstance(verdict, Done)
        assert support.rules(verdict) == ["repeat"]
        assert [one.stop.rule for one in verdict.lifted] == ["attempts"]
        stored = await store.read(SCOPE, loops.read, "a")
        assert used(stored) == [0]
        assert [support.rules(v) for v in stored.verdicts[1:]] == [
            ["attempts", "repeat"],
            ["repeat"],
        ]
        assert isinstance(await given_by_ada(store, "repeat", by="bo"), Again)
        assert used(await store.read(SCOPE, loops.read, "a")) == [1, 1]

    asyncio.run(scenario())


@pytest.mark.parametrize("final", ["cancelled", "budget"])
def test_what_is_final_stays_final(store, final):
    policy = Policy((MaxAttempts(1), Budget(calls=2 if final == "cancelled" else 1)))

    async def scenario() -> None:
        run = session(store, policy=policy)
        if final == "cancelled":
            await run.cancel("bo")
        else:
            await run.finish()
        verdict = await given_by_ada(store)
        assert isinstance(verdict, Done)
        assert support.rules(verdict) == [final]
        assert used(await store.read(SCOPE, loops.read, "a")) == [0]

    asyncio.run(scenario())


def test_a_task_with_secrets_and_a_scope_of_its_own(path):
    secret, scope = "AKIA" + "IOSFODNN7EXAMPLE", Scope("acme", "mail")
    options: dict[str, Any] = {"checks": [Check()], "store": str(path), "scope": scope}
    task = {"q": f"use {secret}", "n": [1, 2.5, None], "é": "\ud800"}

    async def scenario() -> None:
        kept = {"policy": Policy((MaxAttempts(1),)), "id": "a", **options}
        await heedful.run(task, generate=Generator("no"), **kept)
        with pytest.raises(NotFound):
            await heedful.override("a", "attempts", by="ada", store=str(path))
        verdict = await heedful.override("a", "attempts", by="ada", store=str(path), scope=scope)
        assert isinstance(verdict, Again)
        result = await heedful.run(task, generate=Generator(WANTED), **kept)
        assert (result.passed, len(result.loop.attempts)) == (True, 2)

    asyncio.run(scenario())


# -- a loop that goes on


def test_one_given_ahead_waits_for_its_rule(store):
    async def scenario() -> None:
        await session(store).step()
        verdict = await given_by_ada(store)
        stored = await store.read(SCOPE, loops.read, "a")
        assert verdict == stored.verdicts[-1]  # no decision was asked for, none was made
        assert (len(stored.decisions), used(stored)) == (1, [0])
        result = await session(store).finish()
        assert len(result.loop.attempts) == 5
        assert used(await store.read(SCOPE, loops.read, "a")) == [1]

    asyncio.run(scenario())


def test_a_loop_of_which_nothing_was_decided_yet_can_be_given_one(store):
    async def scenario() -> None:
        head = Head("task", (), policy_to(FOUR))
        await store.write(SCOPE, loops.claim, "a", head, new_owner())
        assert await given_by_ada(store) == Again()
        result = await session(store).finish()
        assert len(result.loop.attempts) == 5

    asyncio.run(scenario())


# -- refused

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"rule": "budget"}, r"rule 'budget' cannot be overridden; these can: attempts$"),
    ({"rule": "cancelled"}, "these can: attempts"),
    ({"rule": "echo"}, "rule 'echo' .* these can: attempts"),
    ({"rule": ""}, "rule '' .* these can: attempts"),
    ({"by": ""}, "by is ''; it must name the actor"),
    ({"by": " \n"}, r"by is ' \\n'; it must name the actor"),
    ({"by": None}, "by is None; it must name the actor"),
    ({"decisions": 0}, "decisions is 0; it must be an integer of at least 1"),
    ({"decisions": -1}, "decisions is -1; it must be an integer of at least 1"),
    ({"decisions": 1.5}, "decisions is 1.5; it must be an integer of at least 1"),
    ({"decisions": True}, "decisions is True; it must be an integer of at least 1"),
    ({"until": 1.0}, "until is 1, .* before now; it must lie in the future"),
    ({"until": float("nan")}, "until is nan, .* it must lie in the future"),
    ({"until": "tomorrow"}, "until is 'tomorrow'; it must be in seconds since 1970"),
]


@pytest.mark.parametrize(("wrong", "why"), REFUSED)
@pytest.mark.parametrize("outside", [True, False])
def test_what_cannot_be_given_is_refused_by_name_and_leaves_no_trace(
    store, path, wrong, why, outside
):
    policy = Policy((MaxAttempts(1), Budget(calls=99)))
    options = {"rule": "attempts", "by": "ada"} | wrong

    async def scenario() -> None:
        run = session(store, policy=policy)
        await run.finish()
        before = everything(path)
        if outside:
            refused = heedful.override("a", store=store, **options)
        else:
            refused = run.override(**options)
        with pytest.raises(OverrideRefused, match=why):
            await refused
        assert everything(path) == before

    asyncio.run(scenario())


def test_a_loop_that_passed_stays_done(store, path):
    async def scenario() -> None:
        await session(store, WANTED).finish()
        before = everything(path)
        with pytest.raises(OverrideRefused, match="the loop passed; there is nothing to lift"):
            await given_by_ada(store)
        assert everything(path) == before

    asyncio.run(scenario())


def test_an_unknown_loop_is_not_created(store, path):
    async def scenario() -> None:
        with pytest.raises(NotFound, match="no loop 'a'"):
            await given_by_ada(store)
        await session(store).finish()
        with pytest.raises(NotFound, match="no loop 'a'"):
            await given_by_ada(store, scope=Scope("other"))
        with pytest.raises(NotFound):
            await heedful.override("A", "attempts", by="ada", store=store)

    asyncio.run(scenario())
    assert rows(path, "select id, tenant from loop") == [("a", "default")]


def test_one_that_is_refused_takes_the_loop_from_nobody(store):
    async def scenario() -> None:
        run = session(store)
        await run.step()
        with pytest.raises(OverrideRefused):
            await given_by_ada(store, by="")
        assert isinstance(await run.step(), Again)
        assert len((await store.read(SCOPE, loops.read, "a")).values) == 2

    asyncio.run(scenario())


def mine(loop: Loop) -> str | None:
    return "two are enough" if len(loop.attempts) >= 2 else None


def never_better(best: Evaluation, new: Evaluation, goals: tuple[Goal, ...]) -> bool:
    return False


OWN: dict[str, Policy] = {
    "'mine', a rule": Policy((mine, MaxAttempts(3))),
    r"'mine', a rule ": Policy((MaxAttempts(2), mine)),
    r"'attempts\+mine', a rule": Policy((All(MaxAttempts(2), mine), MaxAttempts(3))),
    "'plateau' under an improvement": Policy(
        (Plateau(1), MaxAttempts(3)), improvement=never_better
    ),
}


@pytest.mark.parametrize("what", OWN)
def test_what_was_stopped_by_code_of_its_host_is_overridden_there(store, path, what):
    policy = OWN[what]

    async def scenario() -> None:
        run = session(store, policy=policy)
        await run.finish()
        before = everything(path)
        with pytest.raises(OverrideRefused, match=rf"{what}.* code of its host.* Run\.override"):
            await given_by_ada(store)
        assert everything(path) == before
        assert isinstance(await run.override("attempts", "ada"), Done | Again)

    asyncio.run(scenario())


def test_a_rule_of_the_host_that_was_silent_keeps_nobody_from_lifting_another(store):
    policy = Policy((MaxAttempts(1), mine))

    async def scenario() -> None:
        await session(store, policy=policy).finish()
        assert isinstance(await given_by_ada(store), Again)
        result = await session(store, policy=policy).finish()
        assert [stop.rule for stop in result.stopped_by] == ["attempts", "mine"]

    asyncio.run(scenario())


# -- while somebody drives it


def test_while_it_is_driven_nothing_is_given(store, path):
    begun, gate = asyncio.Event(), asyncio.Event()

    async def slow(task: Any, hint: str) -> str:
        begun.set()
        await gate.wait()
        return WANTED

    async def scenario() -> None:
        driving = Run[str](
            "task", generate=slow, checks=[Check()], policy=FOUR, store=store, id="a"
        )
        task = asyncio.create_task(driving.finish())
        await begun.wait()
        before = everything(path)
        with pytest.raises(LeaseLost, match="driven by another process"):
            await given_by_ada(store)
        assert everything(path) == before
        gate.set()
        assert (await task).passed

    asyncio.run(scenario())


DRIVEN = """
import asyncio, sys
from heedful.drive.drive import Run
from tests.drive.support import FOUR, Check, Generator

async def hang(task, hint):
    if hint:
        print("at work", flush=True)
        await asyncio.Event().wait()
    return "wrong"

run = Run("task", generate=hang, checks=[Check()], policy=FOUR, store=sys.argv[1], id="a")
asyncio.run(run.finish())
"""


def test_another_process_that_drives_it_is_not_disturbed_and_one_that_is_gone_is_no_obstacle(
    store, path
):
    other = python(DRIVEN, path)
    assert other.stdout is not None
    assert other.stdout.readline() == "at work\n"
    before = everything(path)
    with pytest.raises(LeaseLost, match="driven by another process"):
        asyncio.run(given_by_ada(store))
    assert everything(path) == before
    other.kill()
    other.communicate()
    assert isinstance(asyncio.run(given_by_ada(store)), Again)
    assert used(asyncio.run(store.read(SCOPE, loops.read, "a"))) == [0]


RESUMED = """
import asyncio, sys
from heedful.drive.drive import Run
from tests.drive.support import FOUR, WANTED, Check, Generator

known = {"policy": FOUR, "store": sys.argv[1], "id": "a"}
run = Run("task", generate=Generator(WANTED), checks=[Check()], **known)
print(asyncio.run(run.finish()).best)
"""


def test_another_process_may_drive_it_on_at_once_though_this_one_lives(store, path):
    async def scenario() -> None:
        await session(store).finish()
        await given_by_ada(store)

    asyncio.run(scenario())
    assert ended(python(RESUMED, path)) == "5\n"


# -- expiry


@pytest.mark.parametrize("outside", [True, False])
def test_until_it_expires_it_lifts(store, path, outside):
    until = time.time() + HOUR

    async def scenario() -> None:
        run = session(store)
        await run.finish()
        options: dict[str, Any] = {"until": until, "decisions": 2}
        if outside:
            verdict = await given_by_ada(store, **options)
        else:
            verdict = await run.override("attempts", "ada", **options)
        assert isinstance(verdict, Again)
        assert len((await session(store).finish()).loop.attempts) == 6
        (override,) = (await store.read(SCOPE, loops.read, "a")).loop.overrides
        assert override == Override("attempts", "ada", decisions=2, used=2, until=until)

    asyncio.run(scenario())
    assert rows(path, "select until from override") == [(until,)]


@pytest.mark.parametrize(("expires", "attempts"), [(None, 5), (-HOUR, 4), (0, 4), (HOUR, 5)])
def test_one_that_expires_between_giving_and_deciding_lifts_nothing(store, expires, attempts):
    async def scenario() -> None:
        await session(store).step()
        await given_by_ada(store, until=time.time() + HOUR)
        # The time passes: what is stored says when. At 0 it expires after the last decision.
        until = None if expires is None else time.time() + expires
        await store.write(
            Scope(), lambda db, _: db.execute("update override set until = ?", (until,)).rowcount
        )
        result = await session(store).finish()
        assert len(result.loop.attempts) == attempts
        stored = await store.read(SCOPE, loops.read, "a")
        assert used(stored) == [attempts - 4]
        last = stored.verdicts[-1]
        assert isinstance(last, Done)
        assert last.lifted == ()
        assert str(heedful.explain(stored.loop, FOUR)) == str(result.explain())
        assert [line.decided[:5] for line in result.explain().lines] == [
            *["again"] * (attempts - 1),
            "stopp",
        ]

    asyncio.run(scenario())


def test_one_that_has_expired_and_another_that_has_not(store):
    async def scenario() -> None:
        await session(store).step()
        await given_by_ada(store, until=time.time() + HOUR)
        await store.write(
            Scope(), lambda db, _: db.execute("update override set until = 1.0").rowcount
        )
        await given_by_ada(store, by="bo")
        result = await session(store).finish()
        assert len(result.loop.attempts) == 5
        assert used(await store.read(SCOPE, loops.read, "a")) == [0, 1]
        assert result.explain().lines[3].decided == "again (attempts overridden by bo)"

    asyncio.run(scenario())


# -- inside and outside are one

tries = st.lists(
    st.tuples(st.sampled_from(["alpha", "beta", "gamma"]), support.evaluations),
    min_size=1,
    max_size=4,
)


@settings(max_examples=25)
@given(tries, support.goals, support.policies, st.data())
def test_given_outside_it_is_decided_as_inside(made, goals, policy, data):
    rules = [r for r in policy.rules if "budget" not in str(getattr(r, "name", ""))]
    policy = replace(policy, rules=(*rules, MaxAttempts(len(made))))

    def generate(task: Any, hint: str) -> str:
        return str(made[heedful.context().attempt - 1][0])

    def evaluate(candidate: Any, at: Context) -> Evaluation:
        evaluation: Evaluation = made[at.attempt - 1][1]
        return evaluation

    async def scenario() -> None:
        stores = [in_file(":memory:"), in_file(":memory:")]
        options: dict[str, Any] = {"goals": goals, "policy": policy, "id": "a"}
        inside, outside = (
            Run[str]("task", generate=generate, evaluate=evaluate, store=store, **options)
            for store in stores
        )
        verdict = (await inside.finish()).verdict
        assert (await outside.finish()).verdict == verdict
        stops = verdict.stopped_by
        names = sorted({n for s in stops for n in s.rule.split("+")} & LIFTABLE)
        for rule in data.draw(st.permutations(names)) if names else ():
            one = await inside.override(rule, "ada", "why", 2)
            assert await given_by_ada(stores[1], rule, why="why", decisions=2) == one
        stored = [await store.read(SCOPE, loops.read, "a") for store in stores]
        plain = [[decision_to(d.verdict, d.standing) for d in one.decisions] for one in stored]
        assert plain[0] == plain[1]
        assert stored[0].loop.overrides == stored[1].loop.overrides
        for store in stores:
            await store.close()

    asyncio.run(scenario())


def test_the_verdict_of_a_loop_that_was_overridden_in_vain_is_the_last_one(store):
    policy = Policy((MaxAttempts(2), Repeat()))

    async def scenario() -> None:
        await session(store, "same", policy=policy).finish()
        verdict = await given_by_ada(store)
        result = await session(store, "never asked", policy=policy).finish()
        assert result.verdict == verdict
        assert result.stopped_by == (Stop("repeat", "attempt 2 repeats attempt 1"),)

    asyncio.run(scenario())
