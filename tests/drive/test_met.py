"""How much of what was asked is met, which of several candidates is preferred, what is greedy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heedful
from heedful.checks import python_tests
from heedful.checks.evaluate import Context, evaluated
from heedful.drive.drive import Run
from heedful.drive.generate import Writer
from heedful.errors import CheckFailed
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Done, Policy
from heedful.loop.record import Evaluation, Finding, Goal, Usage
from heedful.loop.stop import All, MaxAttempts, NothingMet, Repeat
from heedful.store import loops
from heedful.store.sqlite import in_file
from heedful.testing import ScriptedModel
from tests.drive.support import WANTED, Check, Generator

AT = Context("task")


class Asking:
    """A check that asks for `asks` things, of which so many are errors."""

    pure = True
    name = "asking"

    def __init__(self, asks: Any, errors: int, level: Any = "error") -> None:
        if asks is not None:
            self.asks = asks
        self._found = [Finding("c", f"{n}", level=level) for n in range(errors)]

    def __call__(self, candidate: Any, at: Context) -> Sequence[Finding]:
        return self._found


def giving(**fields: Any) -> Any:
    """A check, or an evaluator, that answers with an Evaluation."""

    def judge(candidate: Any, at: Context) -> Evaluation:
        return Evaluation(**fields)

    return judge


def weighing(asks: int, **fields: Any) -> Any:
    judge = giving(**fields)
    judge.asks = asks
    return judge


def judged(*checks: Any, evaluate: Any = None, candidate: Any = "x") -> Evaluation:
    return asyncio.run(evaluated(candidate, AT, checks, evaluate))


ONE_ERROR = (Finding("c", "m"),)


@pytest.mark.parametrize(
    ("checks", "met"),
    [
        ([], None),  # nothing was asked
        ([Asking(None, 0)], 1.0),
        ([Asking(None, 1)], 0.0),
        ([Asking(None, 3)], 0.0),
        ([Asking(None, 3, "warning")], 1.0),
        ([Asking(None, 3, "note")], 1.0),
        ([Asking(None, 0), Asking(None, 1)], 0.5),
        ([Asking(4, 1)], 0.75),
        ([Asking(4, 4)], 0.0),
        ([Asking(4, 9)], 0.0),  # more errors than there are things asked
        ([Asking(3, 0), Asking(None, 1)], 0.75),  # who asks more weighs more
        ([Asking(3, 3), Asking(None, 0)], 0.25),
        ([giving()], None),  # an evaluation that does not say it
        ([giving(findings=ONE_ERROR, scores={"q": 1.0})], None),
        ([giving(met=0.25)], 0.25),
        ([giving(met=0.25, findings=ONE_ERROR)], 0.25),
        ([giving(met=0.0), Asking(None, 0)], 0.5),
        ([giving(), Asking(None, 0)], 1.0),
        ([weighing(3, met=1.0), Asking(None, 1)], 0.75),
    ],
)
def test_the_share_that_is_met(checks, met):
    assert judged(*checks).met == met


def test_the_evaluator_says_how_much_it_asks_like_a_check():
    assert judged(evaluate=giving(met=0.5)).met == 0.5
    assert judged(Asking(None, 0), evaluate=giving(met=0.5)).met == 0.75
    assert judged(Asking(None, 0), evaluate=giving(findings=ONE_ERROR)).met == 1.0


@pytest.mark.parametrize("empty", ["", " \n"])
def test_an_empty_answer_meets_nothing(empty):
    assert judged(Asking(None, 0), candidate=empty).met == 0.0
    assert judged(candidate=empty).met is None
    assert judged(python_tests("assert f() == 1\nassert f() > 0", "f"), candidate=empty).met == 0.0


@pytest.mark.parametrize(("answer", "met"), [(1, 1.0), (2, 0.5), (-1, 0.0)])
def test_python_tests_ask_as_many_things_as_there_are_tests(answer, met):
    check = python_tests("assert f() > 0\nassert f() == 1", "f")
    assert check.asks == 2
    assert judged(check, candidate=f"def f(): return {answer}").met == met


@pytest.mark.parametrize("asks", [0, -1, 1.5, True, "2", float("nan")])
def test_a_check_that_asks_for_no_number_of_things_is_named(asks):
    with pytest.raises(CheckFailed, match=r"'asking' raised ValueError: .its `asks` is .*at least"):
        judged(Asking(asks, 1))


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6)), max_size=4))
@settings(max_examples=50)
def test_the_share_is_the_mean_over_all_that_is_asked(made):
    met = judged(*(Asking(asks, errors) for asks, errors in made)).met
    if not made:
        assert met is None
        return
    total = sum(asks for asks, _ in made)
    assert met == pytest.approx(sum(max(0, asks - errors) for asks, errors in made) / total)
    assert (met == 1) == all(errors == 0 for _, errors in made)


def test_the_share_is_stored(tmp_path):
    checks = [Asking(4, 1), giving(preference=-0.5)]
    options: dict[str, Any] = {"checks": checks, "policy": Policy((MaxAttempts(1),))}

    async def scenario() -> None:
        store = in_file(str(tmp_path / "a.db"))
        made = await heedful.run("t", generate=Generator("x"), store=store, id="a", **options)
        stored = await store.read(Scope(), loops.read, "a")
        assert stored.loop.attempts == made.loop.attempts
        evaluation = stored.loop.attempts[0].evaluation
        assert evaluation is not None
        assert (evaluation.met, evaluation.preference) == (0.75, -0.5)
        await store.close()

    asyncio.run(scenario())


def test_where_nothing_was_ever_met_the_same_again_is_hopeless():
    def driven(met: float) -> Any:
        policy = Policy((MaxAttempts(4), All(Repeat(near=False), NothingMet())))
        evaluate = giving(findings=ONE_ERROR, met=met)
        return asyncio.run(
            heedful.run("t", generate=Generator("x"), evaluate=evaluate, policy=policy, store=None)
        )

    hopeless, hopeful = driven(0.0), driven(0.1)
    assert [stop.rule for stop in hopeless.stopped_by] == ["repeat+nothing_met"]
    assert [len(one.loop.attempts) for one in (hopeless, hopeful)] == [2, 4]


# -- several candidates of one attempt

GOALS = (Goal("quality", 0.5), Goal("drift", 0.5, "at_most"))


def chosen(candidates: dict[str, Evaluation], goals: Sequence[Goal] = GOALS) -> Any:
    def judge(candidate: Any, at: Context) -> Evaluation:
        return candidates[candidate]

    return asyncio.run(
        heedful.run(
            "t",
            generate=lambda task, hint: list(candidates),
            evaluate=judge,
            goals=goals,
            policy=Policy((MaxAttempts(1),)),
            store=None,
        )
    )


def of(quality: float, drift: float, preference: float = 0.0, errors: int = 0) -> Evaluation:
    found = tuple(Finding("c", f"{n}") for n in range(errors))
    return Evaluation(found, {"quality": quality, "drift": drift}, Usage(1), preference)


@pytest.mark.parametrize(
    ("candidates", "best"),
    [
        ([of(0.6, 0.4), of(0.6, 0.4, 0.1)], 1),
        ([of(0.6, 0.4), of(0.6, 0.4, -0.1)], 0),
        ([of(0.9, 0.1), of(0.6, 0.4, 0.1)], 1),  # it comes before the margin
        ([of(0.3, 0.4), of(0.1, 0.4, 0.1)], 1),
        ([of(0.6, 0.4), of(0.4, 0.4, 9.0)], 0),  # but after the goals
        ([of(0.6, 0.4), of(0.9, 0.1, 9.0, errors=1)], 0),  # and after the errors
        ([of(0.6, 0.4, errors=2), of(0.1, 0.9, errors=1)], 1),
        ([of(0.6, 0.4, 0.5), of(0.9, 0.1, 0.5)], 1),  # equally preferred: the margin
        ([of(0.6, 0.4, 0.5), of(0.6, 0.4, 0.5)], 0),  # then the first
        ([of(0.6, 0.4, -1e9), of(0.6, 0.4, 1e9), of(0.6, 0.4, 1.0)], 1),
    ],
)
def test_of_candidates_equal_in_errors_and_goals_the_preferred_is_chosen(candidates, best):
    named = {f"candidate {n}": one for n, one in enumerate(candidates)}
    result = chosen(named)
    assert result.candidate == f"candidate {best}"
    evaluation = result.loop.attempts[0].evaluation
    assert evaluation.preference == candidates[best].preference
    assert evaluation.usage.calls == len(candidates)  # judging the others cost as much


def test_between_attempts_preference_decides_nothing():
    made = iter([of(0.3, 0.9, 5.0), of(0.4, 0.8, 0.0)])
    result = asyncio.run(
        heedful.run(
            "t",
            generate=Generator("one", "two"),
            evaluate=lambda candidate, at: next(made),
            goals=GOALS,
            policy=Policy((MaxAttempts(2),)),
            store=None,
        )
    )
    assert result.best == 2


def test_the_preferences_of_several_judges_add_up():
    checks = [giving(preference=0.5), giving(preference=-0.25)]
    assert judged(*checks, evaluate=giving(preference=1.0)).preference == 1.25
    assert judged().preference == 0.0


# -- greedy samples

AT_THE_FIRST = Policy((MaxAttempts(6), Repeat()))


def sampled(generate: Any, **options: Any) -> tuple[int, list[bool]]:
    options = {"checks": [Check()], "policy": AT_THE_FIRST, "store": None, **options}
    result = asyncio.run(heedful.run("t", generate=generate, **options))
    assert isinstance(result.verdict, Done)
    return len(result.loop.attempts), [attempt.greedy for attempt in result.loop.attempts]


def model() -> ScriptedModel:
    return ScriptedModel("the same", forever=True)


async def revise(task: Any, candidate: Any, findings: Any) -> str:
    return "the same"


@pytest.mark.parametrize(
    ("generate", "options", "greedy"),
    [
        (model(), {}, [True, True, False]),  # the first repeat was greedy: a warmer one is asked
        (Writer(model()), {}, [True, True, False]),
        (model(), {"temperature": 0.2}, [False, False]),
        (model(), {"revise": revise}, [False, False]),
        (Generator("the same"), {}, [False, False]),  # who knows how it samples
        (model(), {"initial": "the same"}, [True, True, False]),
    ],
)
def test_the_first_repeat_of_a_greedy_sample_gets_a_warmer_one(generate, options, greedy):
    assert sampled(generate, **options) == (len(greedy), greedy)


def test_what_was_greedy_is_known_after_a_resume(tmp_path):
    async def scenario() -> list[str]:
        store = in_file(str(tmp_path / "a.db"))
        options: dict[str, Any] = {"checks": [Check()], "policy": AT_THE_FIRST, "store": store}
        for _ in range(2):  # another session each time
            await Run[str]("t", generate=model(), id="a", **options).step()
        stored = await store.read(Scope(), loops.read, "a")
        assert [attempt.greedy for attempt in stored.loop.attempts] == [True, True]
        result = await Run[str]("t", generate=model(), id="a", **options).finish()
        await store.close()
        return [stop.rule for stop in result.stopped_by]

    assert asyncio.run(scenario()) == ["repeat"]


# -- the goals of a policy


def scoring(*scores: float) -> Any:
    made = iter(scores)
    return lambda candidate, at: Evaluation(scores={"quality": next(made)})


@pytest.mark.parametrize(
    ("given_", "attempts", "passed"),
    [((), 2, True), ((Goal("quality", 0.5),), 1, True), ((Goal("quality", 0.9),), 3, False)],
)
def test_a_loop_without_goals_has_those_of_its_policy(tmp_path, given_, attempts, passed):
    policy = Policy((MaxAttempts(3),), goals=(Goal("quality", 0.7),))

    async def scenario() -> None:
        store = in_file(str(tmp_path / "a.db"))
        result = await heedful.run(
            "t",
            generate=Generator("a", "b", "c"),
            evaluate=scoring(0.6, 0.7, 0.8),
            goals=given_,
            policy=policy,
            store=store,
            id="a",
        )
        assert (len(result.loop.attempts), result.passed) == (attempts, passed)
        stored = await store.read(Scope(), loops.read, "a")
        assert stored.loop.goals == result.loop.goals == (given_ or policy.goals)
        assert str(heedful.explain(stored.loop, policy)) == str(result.explain())
        await store.close()

    asyncio.run(scenario())


def test_the_orchestrator_preset_drives_a_loop():
    made = iter([(0.72, 0.28), (0.72, 0.23), (0.76, 0.25)])

    def judge(candidate: Any, at: Context) -> Evaluation:
        alignment, drift = next(made)
        return Evaluation(scores={"alignment": alignment, "drift": drift})

    result = asyncio.run(
        heedful.run(
            "t",
            generate=Generator("a", "b", WANTED),
            evaluate=judge,
            policy=heedful.policies.orchestrator,
            store=None,
        )
    )
    assert (result.passed, result.candidate) == (True, WANTED)
    assert result.loop.improved == (True, True, False)
