"""Driving a loop: attempts, hints, candidates, revision, what they cost."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest

import heedful
from heedful.checks.evaluate import Context
from heedful.drive.drive import Run, run
from heedful.drive.generate import Writer, generator, targeted
from heedful.errors import (
    CheckFailed,
    GenerateFailed,
    InvalidInput,
    MalformedAnswer,
    ModelError,
    ModelTimeout,
    NotJournalable,
    OverrideRefused,
)
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Again, Done, Policy
from heedful.loop.record import Evaluation, Finding, Goal, Usage
from heedful.loop.stop import All, Budget, Echo, Fatigue, MaxAttempts, Repeat
from heedful.models.contract import Answer
from heedful.store.sqlite import in_file
from heedful.testing import ScriptedModel
from tests.drive.support import FOUR, WANTED, Check, Generator, counted


def numbered(cases: Sequence[Any]) -> list[str]:
    return [str(n) for n in range(len(cases))]


@pytest.fixture(params=["no store", "store"])
def kept(request, tmp_path):
    """Both journals: none, and a file."""
    if request.param == "no store":
        yield None
        return
    store = in_file(str(tmp_path / "a.db"))
    yield store
    asyncio.run(store.close())


def test_it_goes_on_with_feedback_until_it_passes(kept):
    generate = Generator("wrong", "worse", WANTED)
    result = asyncio.run(run("task", generate=generate, checks=[Check()], store=kept))
    assert (result.passed, result.candidate, result.best) == (True, WANTED, 3)
    assert result.stopped_by == ()
    assert generate.hints == [
        "",
        "The last answer was not accepted:\n- wanted: wrong is not right. write right",
        "The last answer was not accepted:\n- wanted: worse is not right. write right",
    ]
    assert result.usage.calls == 3
    assert result.loop.usage.seconds > 0
    assert str(result.explain()).endswith("attempt 3 -> passed")


def test_exhausted_is_a_result_with_the_best_candidate(kept):
    def check(candidate: Any, context: Context) -> list[Finding]:
        return [Finding("c", letter) for letter in candidate]

    generate = Generator("abc", "ab", "abcd", "abx")
    result = asyncio.run(run("t", generate=generate, checks=[check], policy=FOUR, store=kept))
    assert (result.passed, result.candidate, result.best) == (False, "ab", 2)
    assert [s.rule for s in result.stopped_by] == ["attempts"]


def test_several_candidates_are_all_evaluated_and_the_best_is_the_attempts(kept):
    check = Check()
    generate = Generator(["a", "b"], ["c", WANTED, "d"])
    result = asyncio.run(run("t", generate=generate, checks=[check], store=kept))
    assert check.seen == ["a", "b", "c", WANTED, "d"]
    assert result.candidate == WANTED
    assert [a.candidate.text for a in result.loop.attempts] == ["a", WANTED]
    assert result.usage.calls == 5


def test_of_equal_candidates_the_first_is_kept_and_goals_count():
    def judge(candidate: Any, context: Context) -> Evaluation:
        return Evaluation(scores={"quality": len(candidate) / 10})

    result = asyncio.run(
        run(
            "t",
            generate=Generator(["aaa", "aaaaa", "bbbbb", "b"]),
            evaluate=judge,
            goals=[Goal("quality", 0.9)],
            policy=Policy((MaxAttempts(1),)),
            store=None,
        )
    )
    assert result.candidate == "aaaaa"


def test_an_initial_candidate_counts_as_attempt_1(kept):
    generate = Generator(WANTED)
    result = asyncio.run(run("t", generate=generate, initial="draft", checks=[Check()], store=kept))
    assert [a.candidate.text for a in result.loop.attempts] == ["draft", WANTED]
    assert generate.calls == 1
    assert result.loop.attempts[0].usage.calls == 0
    assert "draft is not right" in generate.hints[0]


def test_a_good_initial_candidate_costs_no_call(kept):
    generate = Generator("never asked")
    result = asyncio.run(run("t", generate=generate, initial=WANTED, checks=[Check()], store=kept))
    assert (result.passed, generate.calls, result.usage.calls) == (True, 0, 0)


def test_a_reviser_takes_task_candidate_and_findings(kept):
    seen = []

    async def revise(task: Any, candidate: Any, findings: Any) -> str:
        seen.append((task, candidate, [f.message for f in findings]))
        return "better" if candidate == "first" else WANTED

    result = asyncio.run(
        run("t", generate=Generator("first"), revise=revise, checks=[Check()], store=kept)
    )
    assert seen == [
        ("t", "first", ["first is not right"]),
        ("t", "better", ["better is not right"]),
    ]
    assert result.candidate == WANTED


@pytest.mark.parametrize(
    ("spans", "rewritten", "revised"),
    [
        ([(0, 3)], ["one"], "ONE two three"),
        ([(8, 13), (0, 3)], ["three", "one"], "ONE two THREE"),
        ([(0, 5), (4, 7)], ["one two"], "ONE TWO three"),  # overlapping spans are one
        ([(0, 3), (3, 4)], [" ", "one"], "ONE two three"),  # touching ones are two
        ([(8, 99)], ["three"], "one two THREE"),  # beyond the end
        ([(-5, 3)], ["one"], "ONE two three"),
        ([(99, 120)], [""], "one two three"),
        ([None], ["one two three"], "ONE TWO THREE"),
        ([None, (4, 7)], ["two"], "one TWO three"),
        ([(4, 4)], [""], "one two three"),
        ([(-5, -3)], [""], "one two three"),
        ([(7, 4)], [""], "one two three"),
    ],
)
def test_a_targeted_reviser_gets_only_the_flagged_spans(spans, rewritten, revised):
    seen = []

    def rewrite(task: Any, text: str, findings: Any) -> str:
        seen.append(text)
        return text.upper()

    found = [Finding("c", str(n), span=span) for n, span in enumerate(spans)]
    assert asyncio.run(_revised(rewrite, "one two three", found)) == revised
    assert seen == rewritten


async def _revised(rewrite: Any, candidate: Any, found: Any) -> Any:
    return await targeted(rewrite)("task", candidate, found)


def test_a_targeted_reviser_may_be_async_and_needs_text():
    async def rewrite(task: Any, text: str, findings: Any) -> str:
        return f"<{text}>"

    found = [Finding("c", "m", span=(0, 1))]
    assert asyncio.run(_revised(rewrite, "abc", found)) == "<a>bc"
    with pytest.raises(InvalidInput, match="candidate"):
        asyncio.run(_revised(rewrite, ["abc"], found))


def test_what_a_model_rewrote_in_places_is_text_and_has_its_cost():
    def rewrite(task: Any, text: str, findings: Any) -> Answer:
        return Answer(text.upper(), Usage(1, 5, 2))

    found = [Finding("c", "m", span=(0, 1)), Finding("c", "n", span=(2, 3))]
    assert asyncio.run(_revised(rewrite, "abc", found)) == Answer("AbC", Usage(2, 10, 4))


def test_a_repeat_raises_the_temperature_and_every_attempt_has_another_seed():
    model = ScriptedModel("same", forever=True)
    policy = Policy((MaxAttempts(5),))
    asyncio.run(run("t", generate=model, checks=[Check()], policy=policy, store=None, seed=7))
    assert [s["temperature"] for s in model.settings] == [0.0, 0.0, 0.5, 1.0, 1.0]
    assert [s["seed"] for s in model.settings] == [7, 8, 9, 10, 11]
    fresh = ScriptedModel("alpha one", "beta two", "gamma three")
    three = Policy((MaxAttempts(3),))
    asyncio.run(
        run("t", generate=fresh, checks=[Check()], policy=three, store=None, temperature=0.3)
    )
    assert [s["temperature"] for s in fresh.settings] == [0.3, 0.3, 0.3]


def test_a_warm_generator_is_never_cooled_by_a_repeat():
    model = ScriptedModel("same", forever=True)
    asyncio.run(
        run("t", generate=model, checks=[Check()], policy=FOUR, store=None, temperature=1.4)
    )
    assert {s["temperature"] for s in model.settings} == {1.4}


def test_a_model_and_a_writer_are_generators():
    model = ScriptedModel("wrong", WANTED)
    writer = Writer(model, system="Be brief.", schema={"type": "string"}, max_tokens=9)
    result = asyncio.run(run("Say it.", generate=writer, checks=[Check()], store=None))
    assert result.passed
    assert [m.role for m in model.prompts[1]] == ["system", "user"]
    assert model.prompts[1][1].content == (
        "The last answer was not accepted:\n- wanted: wrong is not right. write right\n\nSay it."
    )
    assert model.settings[0]["max_tokens"] == 9
    assert result.usage.tokens > 0


def test_a_retry_shows_a_long_answer_and_not_a_short_one():
    long = "wrong " * 60
    model = ScriptedModel(long, WANTED)
    asyncio.run(run("Say it.", generate=model, checks=[Check()], store=None))
    assert model.prompts[1][0].content.startswith(f"Your last answer:\n{long}\n\nThe last answer")
    assert model.prompts[1][0].content.endswith("\n\nSay it.")


def test_a_prompt_does_not_grow_with_the_answers():
    def long(messages: Any) -> str:
        return f"{len(messages)} " + "x" * 50_000 + str(next(numbers))

    numbers = itertools.count()
    model = ScriptedModel(long, forever=True)
    asyncio.run(run("t" * 500, generate=model, checks=[Check()], policy=FOUR, store=None))
    assert len(model.prompts) == 4
    assert max(sum(len(m.content) for m in p) for p in model.prompts) < 4_000


# -- generators of all kinds


def plain(task: Any, hint: str) -> str:
    return WANTED


async def coroutine(task: Any, hint: str) -> str:
    return WANTED


def unasked(task: Any, hint: str) -> Any:
    yield "one"
    yield WANTED


class Callable:
    def __call__(self, task: Any, hint: str) -> str:
        return WANTED


class Bound:
    async def method(self, task: Any, hint: str) -> str:
        return WANTED


ALL_KINDS: list[Any] = [
    plain,
    coroutine,
    unasked,
    lambda task, hint: WANTED,
    lambda task, hint: coroutine(task, hint),
    Callable(),
    Bound().method,
    lambda task, hint: Answer(WANTED, Usage(2, 30, 40, 0.5)),
    lambda task, hint: (WANTED,),
]


@pytest.mark.parametrize("generate", ALL_KINDS, ids=numbered(ALL_KINDS))
def test_every_kind_of_callable_generates(generate, kept):
    result = asyncio.run(run("t", generate=generate, checks=[Check()], store=kept))
    assert result.candidate == WANTED


def test_an_answer_tells_what_it_cost(kept):
    answers = [Answer("wrong", Usage(2, 30, 40, 0.5)), Answer(WANTED, Usage(1, 3, 4, 0.25))]
    result = asyncio.run(run("t", generate=Generator(*answers), checks=[Check()], store=kept))
    usage = result.usage
    assert (usage.calls, usage.prompt_tokens, usage.completion_tokens, usage.cost) == (
        3,
        33,
        44,
        0.75,
    )


@pytest.mark.parametrize("kind", ["generate", "check", "revise"])
def test_context_is_known_inside_the_users_code(kind, kept):
    seen: list[Context] = []

    def generate(task: Any, hint: str) -> str:
        if kind == "generate":
            seen.append(heedful.context())
        return "wrong"

    async def revise(task: Any, candidate: Any, findings: Any) -> str:
        if kind == "revise":
            seen.append(heedful.context())
        return WANTED

    def check(candidate: Any, context: Context) -> list[Finding]:
        if kind == "check":
            assert heedful.context() is context
            seen.append(context)
        return [] if candidate == WANTED else [Finding("c", "no")]

    result = asyncio.run(
        run("t", generate=generate, revise=revise, checks=[check], store=kept, data={"a": 1})
    )
    assert {(c.task, c.loop_id, c.data["a"]) for c in seen} == {("t", result.id, 1)}
    last = seen[-1]
    assert (last.attempt, last.previous) == ((1, None) if kind == "generate" else (2, "wrong"))
    with pytest.raises(LookupError):
        heedful.context()


# -- checks and judges


def test_a_check_that_raises_once_is_asked_again(kept):
    check = Check(ValueError("flaky"))
    generate = Generator(WANTED)
    result = asyncio.run(run("t", generate=generate, checks=[check], store=kept))
    assert result.passed
    assert (check.seen, generate.calls) == ([WANTED, WANTED], 1)


@pytest.mark.parametrize("pure", [False, True])
def test_a_check_that_raises_twice_fails_and_the_candidate_is_not_blamed(kept, pure):
    check = Check(ValueError("one"), ValueError("two"), pure=pure)
    generate = Generator(WANTED)
    session = Run[str]("t", generate=generate, checks=[check], store=kept)

    async def scenario() -> None:
        with pytest.raises(CheckFailed, match="check 'wanted' raised ValueError: 'two'") as caught:
            await session.step()
        assert isinstance(caught.value.__cause__, ValueError)
        result = await session.finish()
        assert result.passed
        assert len(result.loop.attempts) == 1

    asyncio.run(scenario())
    assert generate.calls == 1  # the answer was paid for, so it is kept, also where checks are pure


def test_a_judge_whose_model_fails_is_asked_again(kept):
    answers = iter([MalformedAnswer("no JSON"), MalformedAnswer("no JSON"), ModelError("gone")])
    rest = itertools.repeat(Evaluation(scores={"q": 1.0}))

    def judge(candidate: Any, context: Context) -> Evaluation:
        error = next(answers, None)
        if error is not None:
            raise error
        return next(rest)

    session = Run[str](
        "t", generate=Generator("x"), evaluate=judge, goals=[Goal("q", 1)], store=kept
    )

    async def scenario() -> None:
        with pytest.raises(MalformedAnswer):  # twice
            await session.step()
        result = await session.finish()  # once, and then it answers
        assert result.passed

    asyncio.run(scenario())


def yielding(candidate: Any, context: Context) -> Any:
    yield Finding("c", "one")
    raise ValueError("in the middle")


async def lazy(candidate: Any, context: Context) -> Any:
    return (Finding("c", 1 // 0) for _ in candidate)  # type: ignore[arg-type]


async def asynchronous(candidate: Any, context: Context) -> Any:
    await asyncio.sleep(0)
    return [Finding("c", "one")]


WRONG_CHECKS: list[tuple[Any, str]] = [
    (lambda c, x: None, "it returned NoneType"),
    (lambda c, x: "an error", "it returned str"),
    (lambda c, x: 5, "it returned int"),
    (lambda c, x: ["an error"], "it returned str; it has to return Finding objects"),
    (yielding, "in the middle"),
    (lazy, "ZeroDivisionError"),
    (lambda c, x: next(iter([])), "StopIteration"),
    (lambda c, x: Finding("c", "m", severity=9), "severity is 9"),
]


@pytest.mark.parametrize(("check", "what"), WRONG_CHECKS, ids=numbered(WRONG_CHECKS))
def test_what_a_check_may_not_do(check, what):
    with pytest.raises((CheckFailed, InvalidInput), match=what):
        asyncio.run(run("t", generate=plain, checks=[check], store=None))


GOOD_CHECKS: list[Any] = [
    lambda c, x: [],
    lambda c, x: (),
    lambda c, x: iter([]),
    lambda c, x: (f for f in c if f is None),
    lambda c, x: map(Finding, [], []),
    lambda c, x: Evaluation(),
]


@pytest.mark.parametrize("check", GOOD_CHECKS, ids=numbered(GOOD_CHECKS))
def test_what_a_check_may_return(check):
    assert asyncio.run(run("t", generate=plain, checks=[check], store=None)).passed


def test_an_async_check_is_awaited():
    result = asyncio.run(run("t", generate=plain, checks=[asynchronous], policy=FOUR, store=None))
    assert not result.passed


def test_an_evaluator_has_to_return_an_evaluation():
    with pytest.raises(CheckFailed, match="has to return an Evaluation"):
        asyncio.run(run("t", generate=plain, evaluate=lambda c, x: {"q": 1}, store=None))  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("empty", ["", "  \n"])
def test_an_empty_answer_never_passes(empty, kept):
    generate = Generator(empty, WANTED)
    result = asyncio.run(run("t", generate=generate, store=kept))
    assert result.passed
    assert len(result.loop.attempts) == 2
    assert "the answer is empty" in generate.hints[1]


# -- generators that fail


def broken(task: Any, hint: str) -> Any:
    yield "one"
    raise RuntimeError("half way")


async def half_way(task: Any, hint: str) -> Any:
    return broken(task, hint)


FAILING: list[tuple[Any, str]] = [
    (Generator(ValueError("no luck")), "generate raised ValueError: no luck"),
    (Generator(None), "generate returned None"),
    (Generator([]), "generate returned an empty list"),
    (Generator(["a", None]), "generate returned None"),
    (lambda task, hint: next(iter([])), "StopIteration"),
    (broken, "half way"),
    (half_way, "half way"),
    (lambda task: "wrong arity", "TypeError"),
]


@pytest.mark.parametrize(("generate", "what"), FAILING, ids=numbered(FAILING))
def test_a_generator_that_fails_leaves_the_loop_open(generate, what, kept):
    session = Run[str]("t", generate=generate, checks=[Check()], store=kept)

    async def scenario() -> None:
        with pytest.raises(GenerateFailed, match=what):
            await session.step()
        session._generate = generator(plain)
        result = await session.finish()
        assert (result.passed, len(result.loop.attempts)) == (True, 1)
        assert result.usage.calls == 2  # the one that failed was a call, too

    asyncio.run(scenario())


def test_calls_that_failed_count_towards_a_budget(kept):
    generate = Generator(ModelError("gone"), ModelError("gone"), "wrong")
    policy = Policy((MaxAttempts(9), Budget(calls=3)))
    session = Run[str]("t", generate=generate, checks=[Check()], policy=policy, store=kept)

    async def scenario() -> None:
        for _ in range(2):
            with pytest.raises(ModelError):
                await session.step()
        result = await session.finish()
        assert [s.rule for s in result.stopped_by] == ["budget"]
        assert (len(result.loop.attempts), result.usage.calls) == (1, 3)

    asyncio.run(scenario())


@pytest.mark.parametrize("candidate", [object(), {"a": {1, 2}}, {1: "a"}, b"bytes", float("nan")])
@pytest.mark.parametrize("pure", [False, True])
def test_a_candidate_that_cannot_be_stored_is_said_to_be_one(tmp_path, candidate, pure):
    generate = Generator(candidate)
    check = Check(pure=pure)
    store, _ = counted(tmp_path / "a.db")
    with pytest.raises(NotJournalable, match="run with store=None"):
        asyncio.run(run("t", generate=generate, checks=[check], store=store))
    result = asyncio.run(run("t", generate=generate, checks=[check], policy=FOUR, store=None))
    assert not result.passed
    asyncio.run(store.close())


@pytest.mark.parametrize("candidate", [{"a": [1, 2.5, None, True]}, {}, 0, 5, "\ud800", False])
def test_json_data_and_odd_text_are_stored_exactly(tmp_path, candidate):
    store, _ = counted(tmp_path / "a.db")

    def check(value: Any, context: Context) -> list[Finding]:
        return [] if context.attempt == 2 else [Finding("c", "again")]

    generate = Generator(candidate)
    first = asyncio.run(run("t", generate=generate, checks=[check], store=store, id="a"))
    again = asyncio.run(run("t", generate=generate, checks=[check], store=store, id="a"))
    assert again.candidate == first.candidate == candidate
    assert type(again.candidate) is type(candidate)
    assert again.loop.attempts == first.loop.attempts
    asyncio.run(store.close())


def test_a_task_that_cannot_be_stored_costs_nothing(tmp_path):
    generate = Generator(WANTED)
    store, commits = counted(tmp_path / "a.db")
    with pytest.raises(InvalidInput, match="task"):
        asyncio.run(run(object(), generate=generate, store=store))
    assert (generate.calls, commits()) == (0, 0)
    assert asyncio.run(run(object(), generate=generate, checks=[Check()], store=None)).passed
    asyncio.run(store.close())


# -- limits


@pytest.mark.parametrize(
    ("budget", "attempts"),
    [
        (Budget(calls=2), 2),
        (Budget(tokens=70), 1),
        (Budget(tokens=71), 2),
        (Budget(cost=0.5), 1),
        (Budget(cost=1.1), 3),
        (Budget(calls=99, tokens=141), 3),
    ],
)
def test_budgets_end_a_loop_at_the_attempt_that_reaches_them(budget, attempts, kept):
    generate = Generator(Answer("wrong", Usage(1, 30, 40, 0.5)))
    policy = Policy((MaxAttempts(9), budget))
    result = asyncio.run(run("t", generate=generate, checks=[Check()], policy=policy, store=kept))
    assert result.stopped_by[0].rule == "budget"
    assert generate.calls == len(result.loop.attempts) == attempts


async def forever(task: Any, hint: str) -> str:
    await asyncio.Event().wait()
    return "never"


def test_the_budget_of_seconds_ends_an_attempt_that_hangs(kept):
    policy = Policy((MaxAttempts(4), Budget(seconds=0.05)))
    result = asyncio.run(run("t", generate=forever, policy=policy, store=kept))
    assert (result.passed, result.candidate, result.best) == (False, None, None)
    assert [s.rule for s in result.stopped_by] == ["budget"]
    assert result.usage.seconds >= 0.05
    assert result.usage.calls == 1


def test_out_of_time_after_an_answer_keeps_the_best_and_counts_what_the_answer_cost(kept):
    cost = Usage(1, 10, 10, 0.1)

    async def slow(candidate: Any, context: Context) -> list[Finding]:
        if context.attempt == 2:
            await asyncio.Event().wait()
        return [Finding("c", "no")]

    policy = Policy((MaxAttempts(4), Budget(seconds=0.3)))
    generate = Generator(Answer("one", cost), Answer("two", cost))
    result = asyncio.run(run("t", generate=generate, checks=[slow], policy=policy, store=kept))
    assert (result.candidate, result.best) == ("one", 1)
    assert (result.usage.calls, result.usage.tokens, result.usage.cost) == (2, 40, 0.2)
    told = str(result.explain()).splitlines()
    assert told[0].startswith("attempt 1: no -> stopped by budget")
    assert len(result.loop.attempts) == 1


def test_a_timeout_of_one_attempt_leaves_the_loop_open_and_what_was_spent_counts(kept):
    policy = Policy((MaxAttempts(4), Budget(calls=3)))
    session = Run[str]("t", generate=forever, policy=policy, store=kept, timeout=0.02)

    async def scenario() -> None:
        for _ in range(2):
            with pytest.raises(ModelTimeout, match=r"attempt 1 had no result within 0\.02 s"):
                await session.step()
        session._generate, session._timeout = generator(Generator("wrong")), None
        result = await session.finish()
        assert [s.rule for s in result.stopped_by] == ["budget"]
        assert result.usage.calls == 3
        assert result.usage.seconds >= 0.04

    session._checks = (Check(),)
    asyncio.run(scenario())


@pytest.mark.parametrize("pure", [False, True])
def test_a_timeout_while_evaluating_keeps_the_answer(kept, pure):
    hang = [True]

    async def check(candidate: Any, context: Context) -> list[Finding]:
        if hang:
            await asyncio.Event().wait()
        return []

    check.pure = pure  # type: ignore[attr-defined]
    generate = Generator(Answer("one", Usage(1, 5, 5)))
    session = Run[str]("t", generate=generate, checks=[check], store=kept, timeout=0.3)

    async def scenario() -> None:
        with pytest.raises(ModelTimeout):
            await session.step()
        hang.clear()
        session._timeout = 30
        result = await session.finish()
        assert result.passed
        assert (generate.calls, result.usage.calls, result.usage.tokens) == (1, 1, 10)
        assert result.usage.seconds >= 0.3

    asyncio.run(scenario())


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_timeout_is_a_number_of_seconds_above_0(timeout):
    with pytest.raises(InvalidInput, match="timeout"):
        Run("t", generate=plain, store=None, timeout=timeout)


def test_what_cannot_generate_is_refused_at_once():
    with pytest.raises(InvalidInput, match="generate"):
        Run("t", generate="not callable", store=None)  # type: ignore[arg-type]


# -- one attempt at a time, cancel and override


def test_step_by_step(kept):
    session = Run[str]("t", generate=Generator("wrong", WANTED), checks=[Check()], store=kept)

    async def scenario() -> None:
        first = await session.step()
        assert isinstance(first, Again)
        assert [r.code for r in first.reasons] == ["wanted"]
        assert await session.step() == Done(2, passed=True)
        assert await session.step() == Done(2, passed=True)
        result = await session.finish()
        assert len(result.loop.attempts) == 2

    asyncio.run(scenario())


def test_cancel_ends_a_loop_on_request_and_for_good(kept):
    session = Run[str]("t", generate=Generator("wrong"), checks=[Check()], store=kept)

    async def scenario() -> None:
        await session.step()
        verdict = await session.cancel("ada")
        assert isinstance(verdict, Done)
        assert [(s.rule, s.detail) for s in verdict.stopped_by] == [("cancelled", "ada")]
        assert await session.step() == verdict
        assert await session.cancel("bo") == verdict
        with pytest.raises(OverrideRefused):
            await session.override("cancelled", "ada")
        result = await session.finish()
        assert (result.candidate, len(result.loop.attempts)) == ("wrong", 1)

    asyncio.run(scenario())


def test_cancel_before_the_first_attempt(kept):
    session = Run[str]("t", generate=Generator("wrong"), checks=[Check()], store=kept)
    verdict = asyncio.run(session.cancel(""))
    assert isinstance(verdict, Done)
    assert verdict.best is None
    assert verdict.stopped_by[0].detail == "cancelled"


def test_an_override_reopens_a_stopped_loop_and_is_consumed(kept):
    policy = Policy((MaxAttempts(1), Budget(calls=9)))
    generate = Generator("one", "two", "three", "four")
    session = Run[str]("t", generate=generate, checks=[Check()], policy=policy, store=kept)

    async def scenario() -> None:
        first = await session.step()
        assert isinstance(first, Done)
        again = await session.override("attempts", "ada", "one more", decisions=2)
        assert isinstance(again, Again)
        assert again.feedback
        assert isinstance(await session.step(), Again)
        assert isinstance(await session.step(), Done)
        assert generate.calls == 3
        result = await session.finish()
        assert [(o.used, o.decisions, o.why) for o in result.loop.overrides] == [(2, 2, "one more")]
        for rule in ("budget", "echo", "nonsense"):
            with pytest.raises(OverrideRefused):
                await session.override(rule, "ada")
        with pytest.raises(OverrideRefused):
            await session.override("attempts", "")

    asyncio.run(scenario())


def test_an_override_given_ahead_waits_for_its_rule_and_a_second_one_does_not_spend_the_first(kept):
    policy = Policy((MaxAttempts(2), Fatigue(0.9)))
    session = Run[str]("t", generate=Generator("one"), checks=[Check()], policy=policy, store=kept)

    async def scenario() -> None:
        await session.step()
        await session.override("attempts", "ada", decisions=3)
        assert isinstance(await session.step(), Again)  # spends one
        await session.override("fatigue", "bo")
        await session.override("fatigue", "bo")
        assert isinstance(await session.step(), Again)
        assert isinstance(await session.step(), Again)
        assert isinstance(await session.step(), Done)
        result = await session.finish()
        assert [o.used for o in result.loop.overrides] == [3, 0, 0]

    asyncio.run(scenario())


def test_an_override_of_one_of_two_reasons_changes_nothing_yet(kept):
    policy = Policy((MaxAttempts(2), Repeat()))
    session = Run[str]("t", generate=Generator("same"), checks=[Check()], policy=policy, store=kept)

    async def scenario() -> None:
        result = await session.finish()
        assert [s.rule for s in result.stopped_by] == ["attempts", "repeat"]
        verdict = await session.override("attempts", "ada")
        assert isinstance(verdict, Done)
        assert [s.rule for s in verdict.stopped_by] == ["repeat"]
        assert isinstance(await session.override("repeat", "bo"), Again)
        result = await session.finish()
        assert [o.used for o in result.loop.overrides] == [1, 1]

    asyncio.run(scenario())


def test_a_loop_that_passed_cannot_be_reopened(kept):
    session = Run[str]("t", generate=plain, checks=[Check()], store=kept)

    async def scenario() -> None:
        await session.finish()
        with pytest.raises(OverrideRefused, match="passed"):
            await session.override("attempts", "ada")
        assert await session.cancel("ada") == Done(1, passed=True)

    asyncio.run(scenario())


# -- rules that need the scope


@pytest.mark.parametrize("inside", [False, True])
def test_echo_across_the_scope_counts_earlier_loops(tmp_path, inside):
    echo = Echo(3, across="scope")
    policy = Policy((All(echo, MaxAttempts(1)) if inside else echo, MaxAttempts(2)))
    store, _ = counted(tmp_path / "a.db")

    async def scenario() -> None:
        async def one(**options: Any) -> list[str]:
            result = await run(
                "t",
                generate=Generator("same"),
                checks=[Check()],
                policy=policy,
                store=store,
                **options,
            )
            return [s.rule for s in result.stopped_by]

        assert await one() == ["attempts"]  # 2 attempts
        assert await one() == (["echo+attempts"] if inside else ["echo"])
        assert await one(scope=Scope("another")) == ["attempts"]

    asyncio.run(scenario())
    asyncio.run(store.close())


def test_many_loops_at_once(kept):
    async def scenario() -> None:
        results = await asyncio.gather(
            *(
                run(f"t{n}", generate=Generator("a", WANTED), checks=[Check()], store=kept)
                for n in range(50)
            )
        )
        assert all(r.passed and len(r.loop.attempts) == 2 for r in results)
        assert len({r.id for r in results}) == 50

    asyncio.run(scenario())
