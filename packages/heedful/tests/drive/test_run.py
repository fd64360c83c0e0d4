"""Driving a loop: attempts, hints, candidates, revision, limits, and what they cost."""

import asyncio
import itertools
import threading
from typing import Any

import pytest

import heedful
from heedful import errors
from heedful.checks.evaluate import Context
from heedful.drive.generate import Writer, targeted
from heedful.drive.run_loop import Run, run
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Again, Done, Policy
from heedful.loop.record import Evaluation, Finding, Goal, Usage
from heedful.loop.stop import Budget, MaxAttempts
from heedful.memory.memory import Memory
from heedful.models.contract import Answer
from heedful.store import exposures
from heedful.testing import ScriptedModel
from heedful.validation import MAX_LISTED_ITEMS
from tests.drive.support import WANTED, Check, Generator, reread, session
from tests.tables import cases

ONCE = Policy((MaxAttempts(1),))
SAID = "The last answer was not accepted:\n- wanted: {} is not right. write right"


async def drive(*answers: Any, **options: Any) -> heedful.Result[Any]:
    options.setdefault("generate", Generator(*answers))
    options.setdefault("checks", [Check()])
    options.setdefault("store", None)
    return await run("t", **options)


async def test_all_candidates_of_an_attempt_are_evaluated_and_the_best_counts(
    any_store,
):
    check = Check()
    result = await drive(
        ["a", "b"], ["c", WANTED, "d"], checks=[check], store=any_store
    )
    assert check.seen == ["a", "b", "c", WANTED, "d"]
    assert result.candidate == WANTED
    assert [a.candidate.text for a in result.loop.attempts] == ["a", WANTED]
    assert result.usage.calls == 5


@cases(
    ("first", "asked"),
    {
        "None beside a right one": ([None, WANTED, "b"], 1),
        "an exception beside a right one": ([OSError("no luck"), WANTED], 1),
        "only None": ([None, None], 2),
        "an empty list": ([], 2),
        "an empty tuple": ((), 2),
        "an empty list with its usage": (([], Usage(3)), 2),
    },
)
@cases("output", {"no type": None, "a type": str})
async def test_a_missing_candidate_is_refused_and_the_others_count(
    first, asked, output, any_store
):
    generate = Generator(first, WANTED)
    result = await drive(generate=generate, output=output, store=any_store)
    assert result.passed
    assert result.candidate == WANTED
    assert generate.calls == asked
    assert all("the answer is empty" in hint for hint in generate.hints[1:])


async def test_without_any_candidate_there_is_no_answer():
    result = await drive([], policy=ONCE)
    assert not result.passed
    assert result.candidate is None
    assert result.best is None
    assert result.usage.calls == 1


SPENT = Usage(1, 10, cost=0.5)
SPENT_TWICE = Usage(2, 20, cost=1.0)


@cases(
    "returned",
    {
        "a list of pairs": [("a", SPENT), (WANTED, SPENT)],
        "a tuple of pairs": (("a", SPENT), (WANTED, SPENT)),
        "a list with the usage of all": (["a", WANTED], SPENT_TWICE),
        "a list of pairs with the usage of all": (
            [("a", Usage()), (WANTED, SPENT)],
            SPENT_TWICE,
        ),
    },
)
async def test_several_candidates_may_come_with_their_usage(returned, any_store):
    result = await drive(returned, store=any_store)
    assert result.candidate == WANTED
    assert len(result.loop.attempts) == 1
    usage = result.usage
    assert usage == Usage(2, 20, cost=1.0, seconds=usage.seconds)


async def test_a_list_of_the_declared_type_with_its_usage_is_one_candidate():
    result = await drive(([1, 2], SPENT), checks=[], output=list[int])
    assert result.candidate == [1, 2]
    assert result.usage.tokens == 10


@cases(
    ("candidates", "judged"),
    {
        "equal texts": (["a", "b", "a", "a"], 2),
        "equal data": ([{"x": 1, "y": 2}, {"y": 2, "x": 1}], 1),
        "data that only compare equal": ([{"x": 1}, {"x": True}], 2),
        "what cannot be stored": ([object(), object()], 2),
    },
)
async def test_equal_candidates_are_judged_once(candidates, judged):
    seen = []

    def judge(candidate: Any) -> Evaluation:
        seen.append(candidate)
        return Evaluation((), {"quality": 0.5}, usage=Usage(1, cost=1.0))

    goals = [Goal("quality", 0.9)]
    result = await drive(
        candidates, checks=[], evaluate=judge, goals=goals, policy=ONCE
    )
    assert len(seen) == judged
    assert result.usage.cost == judged
    assert result.usage.calls == len(candidates) + judged


async def test_an_attempt_says_what_was_wrong_with_its_other_candidates(store):
    result = await drive(
        ["a", "b", "b"], [*"cdefghi", WANTED], store=store, id="several"
    )
    stored_loop = await reread(store, "several")
    for attempts in (result.loop.attempts, stored_loop.loop.attempts):
        assert [attempt.candidates for attempt in attempts] == [3, 8]
        assert attempts[0].lost == ("b is not right",)
        assert len(attempts[1].lost) == MAX_LISTED_ITEMS
    lines = str(result.explain()).splitlines()
    start = "attempt 1, best of 3 (others: b is not right): a is not right"
    assert lines[0].startswith(start)
    assert lines[1].startswith("attempt 2, best of 8 (others: c is not right; ")


async def test_an_attempt_with_one_candidate_names_no_others():
    result = await drive("a", WANTED)
    assert "best of" not in str(result.explain())


@pytest.mark.parametrize("waiting", ["generate", "check"])
async def test_as_many_plain_functions_run_at_once_as_the_caller_has_loops(waiting):
    at_once = 40
    barrier = threading.Barrier(at_once, timeout=60)

    def generate(task: Any, hint: str) -> str:
        if waiting == "generate":
            barrier.wait()
        return WANTED

    def check(candidate: Any, context: Context) -> None:
        if waiting == "check":
            barrier.wait()

    loops = [drive(generate=generate, checks=[check]) for _ in range(at_once)]
    results = await asyncio.gather(*loops)
    assert all(result.passed for result in results)


@cases(
    ("initial", "calls"), {"a wrong draft": ("draft", 1), "a right draft": (WANTED, 0)}
)
async def test_an_initial_candidate_is_attempt_1_and_costs_no_call(
    any_store, initial, calls
):
    generate = Generator(WANTED)
    result = await drive(generate=generate, initial=initial, store=any_store)
    assert [a.candidate.text for a in result.loop.attempts] == [initial, WANTED][
        : calls + 1
    ]
    assert result.passed is True
    assert generate.calls == calls
    assert result.usage.calls == calls
    assert generate.hints == [SAID.format("draft")][:calls]


async def test_a_retry_is_told_what_earlier_attempts_put_right(any_store):
    def judge(answer: str) -> list[Finding]:
        rules = {"topic": "name a topic", "date": "say the day"}
        return [Finding(word, rules[word]) for word in rules if word not in answer]

    def generate(task: str, hint: str) -> str:  # it knows what its hint says
        words = {"topic": "name a topic" in hint, "date": "say the day" in hint}
        return " ".join(word for word in words if words[word]) or "topic"

    result = await drive(generate=generate, checks=[judge], store=any_store)
    answers = [attempt.candidate.text for attempt in result.loop.attempts]
    assert answers == ["topic", "date", "topic date"]


async def test_a_reviser_takes_task_candidate_and_findings(any_store):
    seen = []

    async def revise(task: Any, candidate: Any, findings: Any) -> str:
        seen.append((task, candidate, [f.message for f in findings]))
        return "better" if candidate == "first" else WANTED

    result = await drive("first", revise=revise, store=any_store)
    expected = [("t", word, [f"{word} is not right"]) for word in ("first", "better")]
    assert seen == expected
    assert result.candidate == WANTED


@cases(
    ("spans", "rewritten", "revised"),
    {
        "two spans": ([(8, 13), (0, 3)], ["three", "one"], "ONE two THREE"),
        "overlapping spans are one": ([(0, 5), (4, 7)], ["one two"], "ONE TWO three"),
        "no span: all": ([None], ["one two three"], "ONE TWO THREE"),
    },
)
async def test_a_targeted_reviser_gets_only_the_flagged_spans(
    spans, rewritten, revised
):
    seen = []

    def rewrite(task: Any, text: str, findings: Any) -> str:
        seen.append(text)
        return text.upper()

    async def costly(task: Any, text: str, findings: Any) -> Answer:
        return Answer(text.upper(), Usage(1, 5, completion_tokens=2))

    flagged = [Finding("c", str(n), span=span) for n, span in enumerate(spans)]
    assert await targeted(rewrite)("task", "one two three", flagged) == revised
    assert seen == rewritten
    calls = len(rewritten)
    answer = Answer(revised, Usage(calls, 5 * calls, completion_tokens=2 * calls))
    assert await targeted(costly)("task", "one two three", flagged) == answer
    with pytest.raises(errors.InvalidInput, match="candidate"):
        await targeted(rewrite)("task", ["one"], flagged)


# -- models


@cases(
    ("temperature", "temperatures"),
    {
        "the same answer": (0.0, [0.0, 0.0, 0.5, 1.0, 1.0]),
        "a warm model is not cooled": (1.4, [1.4] * 5),
    },
)
async def test_a_repeat_raises_the_temperature_and_every_attempt_the_seed(
    temperature, temperatures
):
    model = ScriptedModel("same", forever=True)
    policy = Policy((MaxAttempts(5),))
    await drive(generate=Writer(model, temperature=temperature), policy=policy)
    assert [s["temperature"] for s in model.settings] == temperatures
    assert [s["seed"] for s in model.settings] == [0, 1, 2, 3, 4]


async def test_a_model_and_a_writer_are_generators():
    model = ScriptedModel("wrong", WANTED)
    writer = Writer(model, system="Be brief.", schema={"type": "string"}, max_tokens=9)
    result = await run("Say it.", generate=writer, checks=[Check()], store=None)
    assert result.passed
    assert [m.role for m in model.prompts[1]] == ["system", "user"]
    assert model.prompts[1][1].content == f"{SAID.format('wrong')}\n\nSay it."
    assert model.settings[0]["max_tokens"] == 9
    assert result.usage.tokens > 0
    long = "wrong " * 60  # a long answer is shown with its feedback
    model = ScriptedModel(long, WANTED)
    await run("Say it.", generate=model, checks=[Check()], store=None)
    assert model.prompts[1][0].content.startswith(
        f"Your last answer:\n{long}\n\nThe last answer"
    )
    assert model.prompts[1][0].content.endswith("\n\nSay it.")


# -- generators of all kinds


def plain(task: Any, hint: str) -> str:
    return WANTED


async def test_the_users_code_knows_its_context(any_store):
    seen: dict[str, Context] = {}

    def generate(task: Any, hint: str) -> str:
        seen["generate"] = heedful.context()
        return "wrong"

    async def revise(task: Any, candidate: Any, findings: Any) -> str:
        seen["revise"] = heedful.context()
        return WANTED

    def check(candidate: Any, context: Context) -> list[Finding]:
        assert heedful.context() is context
        seen["check"] = context
        return [] if candidate == WANTED else [Finding("c", "no")]

    result = await drive(
        generate=generate, revise=revise, checks=[check], data={"a": 1}, store=any_store
    )
    contexts = [(c.task, c.loop_id, c.data["a"]) for c in seen.values()]
    assert contexts == [("t", result.id, 1)] * 3
    last = {name: (c.attempt, c.previous) for name, c in seen.items()}
    assert last == {
        "generate": (1, None),
        "check": (2, "wrong"),
        "revise": (2, "wrong"),
    }
    with pytest.raises(LookupError):
        heedful.context()


# -- checks and judges


@cases("pure", {"other checks": False, "pure checks": True})
async def test_a_check_that_raises_is_asked_twice_and_the_answer_is_kept(
    any_store, pure
):
    check = Check(OSError("one"), OSError("two"), OSError("three"), pure=pure)
    generate = Generator(WANTED)
    driver = session(any_store, generate=generate, checks=[check])
    with pytest.raises(
        errors.CheckFailed, match="'wanted' raised OSError: 'two'"
    ) as caught:
        await driver.step()
    assert isinstance(caught.value.__cause__, OSError)
    result = await driver.finish()
    assert result.passed is True
    assert len(result.loop.attempts) == 1
    assert check.seen == [WANTED] * 4
    assert generate.calls == 1


@cases("empty", {"nothing": "", "spaces": "  \n"})
async def test_an_empty_answer_never_passes(empty, any_store):
    generate = Generator(empty, WANTED)
    result = await drive(generate=generate, checks=[], store=any_store)
    assert result.passed is True
    assert len(result.loop.attempts) == 2
    assert "the answer is empty" in generate.hints[1]


# -- generators that fail


def broken(task: Any, hint: str) -> Any:
    yield "one"
    raise RuntimeError("half way")


async def half_way(task: Any, hint: str) -> Any:
    return broken(task, hint)


FAILING = {
    "an error": (Generator(OSError("no luck")), "generate raised OSError: no luck"),
    "only exceptions": (Generator([OSError("no luck")]), "raised OSError: no luck"),
    "None": (Generator(None), "generate returned None: does the function lack a ret"),
    "an error half way": (half_way, "half way"),
}


@cases(("failing", "message"), FAILING)
async def test_a_generator_that_fails_leaves_the_loop_open(failing, message, any_store):
    calls = itertools.count()

    def generate(task: Any, hint: str) -> Any:
        return plain(task, hint) if next(calls) else failing(task, hint)

    driver = session(any_store, generate=generate)
    with pytest.raises(errors.GenerateFailed, match=message):
        await driver.step()
    result = await driver.finish()
    assert result.passed is True
    assert len(result.loop.attempts) == 1
    assert result.usage.calls == 2  # the one that failed was a call, too


@cases("pure", {"other checks": False, "pure checks": True})
async def test_a_candidate_that_cannot_be_stored_is_refused(store, pure):
    checks = [Check(pure=pure)]
    with pytest.raises(errors.NotJournalable, match="run with store=None"):
        await drive(float("nan"), checks=checks, store=store)
    assert not (await drive(float("nan"), checks=checks, policy=ONCE)).passed


# -- limits


@cases(
    ("budget", "attempts"),
    {"tokens": (Budget(tokens=70), 1), "cost": (Budget(cost=1.1), 3)},
)
async def test_a_budget_ends_a_loop_at_the_attempt_that_reaches_it(
    budget, attempts, any_store
):
    policy = Policy((MaxAttempts(9), budget))
    result = await drive(
        Answer("wrong", Usage(1, 30, completion_tokens=40, cost=0.5)),
        policy=policy,
        store=any_store,
    )
    assert result.stopped_by[0].rule == "budget"
    assert len(result.loop.attempts) == attempts
    usage = Usage(
        attempts,
        30 * attempts,
        completion_tokens=40 * attempts,
        cost=0.5 * attempts,
        seconds=result.usage.seconds,
    )
    assert result.usage == usage


async def forever(task: Any, hint: str) -> str:
    await asyncio.Event().wait()
    return "never"


async def test_a_budget_of_seconds_keeps_the_best_and_counts_the_answer(any_store):
    async def slow(candidate: Any, context: Context) -> list[Finding]:
        if context.attempt == 2:
            await asyncio.Event().wait()
        return [Finding("c", "no")]

    cost = Usage(1, 10, completion_tokens=10, cost=0.1)
    policy = Policy((MaxAttempts(4), Budget(seconds=1.0)))
    answers = Answer("one", cost), Answer("two", cost)
    result = await drive(*answers, checks=[slow], policy=policy, store=any_store)
    assert result.candidate == "one"
    assert result.best == 1
    assert result.usage.calls == 2
    assert result.usage.tokens == 40
    assert result.usage.cost == 0.2
    assert str(result.explain()).startswith("attempt 1: no -> stopped by budget")
    assert len(result.loop.attempts) == 1


async def test_a_timeout_leaves_the_loop_open_and_counts(any_store):
    calls = itertools.count()

    async def generate(task: Any, hint: str) -> str:
        return "wrong" if next(calls) == 2 else await forever(task, hint)

    policy = Policy((MaxAttempts(4), Budget(calls=3)))
    driver = session(any_store, generate=generate, policy=policy, timeout=0.3)
    for _ in range(2):
        with pytest.raises(
            errors.ModelTimeout, match=r"attempt 1 had no result within 0\.3 s"
        ):
            await driver.step()
    result = await driver.finish()
    assert [s.rule for s in result.stopped_by] == ["budget"]
    assert result.usage.calls == 3
    assert (result.usage.seconds >= 0.6) is True


# -- one attempt at a time


async def test_a_loop_is_driven_step_by_step(any_store):
    driver = session(any_store, "wrong", WANTED)
    first = await driver.step()
    assert isinstance(first, Again)
    assert [r.code for r in first.reasons] == ["wanted"]
    assert [await driver.step() for _ in range(2)] == [Done(2, passed=True)] * 2
    assert len((await driver.finish()).loop.attempts) == 2
    with pytest.raises(errors.OverrideRefused, match="passed"):
        await driver.override("attempts", "ada")
    assert await driver.cancel("ada") == Done(2, passed=True)


async def test_a_cancelled_loop_stays_cancelled(any_store):
    driver = session(any_store, "wrong")
    await driver.step()
    verdict = await driver.cancel("ada")
    assert isinstance(verdict, Done)
    (stop,) = verdict.stopped_by
    assert stop.rule == "cancelled"
    assert stop.figures == {"why": "ada"}
    assert [await driver.step(), await driver.cancel("bo")] == [verdict, verdict]
    result = await driver.finish()
    assert result.candidate == "wrong"
    assert len(result.loop.attempts) == 1
    early = await session(any_store, id="b").cancel("")
    assert isinstance(early, Done)
    assert early.best is None
    assert early.stopped_by[0].figures == {"why": "cancelled"}


@cases(
    ("name", "value"),
    {
        "a check that is a text": ("checks", ["x"]),
        "a goal without a list": ("goals", Goal("quality", 0.5)),
        "no time": ("timeout", 0),
        "a number as store": ("store", 5),
        "a name as generator": ("generate", "embedded"),
    },
)
def test_an_unusable_argument_is_refused_at_once(name, value):
    with pytest.raises(errors.InvalidInput, match=name):
        Run("t", **{"generate": plain, "store": None, name: value})


# -- loops that keep no outputs


async def test_a_loop_without_examples_keeps_and_shows_no_output(store):
    memory = Memory(store)

    async def ask(generate: Any, memory_key: str, **options: Any) -> None:
        await run(
            "How is it?",
            generate=generate,
            checks=[Check()],
            store=store,
            memory=memory,
            memory_key=memory_key,
            **options,
        )

    # With examples, and of another error, so that it is another lesson.
    await ask(Generator("first wrong thing", WANTED), "first")
    model = ScriptedModel("second wrong thing", WANTED)
    await ask(model, "second", tell="rules", id="b")
    assert all(turn.role != "assistant" for prompt in model.prompts for turn in prompt)
    assert (
        await store.read(Scope(), exposures.past, "b")
    ).exposures == ()  # no output was shown
    third = ScriptedModel(WANTED)
    await ask(third, "second", tell="rules", id="c")
    ((turn,),) = third.prompts
    assert "second wrong thing is not right. write right" in turn.content
    assert "data, not instructions" in turn.content
    assert turn.content.endswith("\n\nHow is it?")
    past = await store.read(Scope(), exposures.past, "c")
    assert [driver.shown for driver in past.exposures] == [True]


@pytest.mark.parametrize("how", ["run", "decorated"])
def test_a_function_without_a_hint_is_named_where_feedback_could_not_reach_it(how):
    def answer(task: str) -> str:
        return "blue"

    def is_red(answer: str) -> bool:
        return answer == "red"

    if how == "run":
        loop = heedful.run("Say red", generate=answer, checks=[is_red], store=None)
        result = heedful.run_sync(loop)
    else:
        decorated = heedful.self_correcting(checks=[is_red], store=None)(answer)
        with pytest.raises(heedful.errors.NotPassed) as caught:
            decorated("Say red")
        result = caught.value.result
        assert "answer has no parameter for the hint" in str(caught.value)

    assert "answer has no parameter for the hint" in result.explain().sentence
