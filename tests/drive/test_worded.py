"""Loops that word their own feedback, that keep no outputs, and whose checks may fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.checks.evaluate import Context, evaluated
from heedful.drive.drive import Run, run
from heedful.errors import CheckFailed, GenerateFailed, ModelError
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Again
from heedful.loop.record import Evaluation, Finding, Goal
from heedful.memory.memory import Memory
from heedful.store import exposures
from heedful.store.sqlite import shared
from heedful.testing import ScriptedModel
from tests.drive.support import FOUR, WANTED, Check, Generator
from tests.store.support import rows

SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
AT = Context("task")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a.db")


def words(evaluation: Evaluation, goals: tuple[Goal, ...]) -> str:
    return f"mend {len(evaluation.errors)} of {len(goals)}: {evaluation.errors[0].message}"


async def words_later(evaluation: Evaluation, goals: tuple[Goal, ...]) -> str:
    await asyncio.sleep(0)
    return words(evaluation, goals)


@pytest.mark.parametrize("feedback", [words, words_later])
@pytest.mark.parametrize("store", [None, ":memory:"])
def test_the_next_attempt_reads_the_users_words(feedback: Any, store: Any) -> None:
    generate = Generator("one", "two", WANTED)
    result = asyncio.run(
        run("t", generate=generate, checks=[Check()], store=store, feedback=feedback)
    )
    assert result.passed
    assert generate.hints == ["", "mend 1 of 0: one is not right", "mend 1 of 0: two is not right"]


def test_the_words_are_kept_and_read_again_after_a_crash(path: str) -> None:
    async def scenario() -> None:
        first = Generator("one", KeyboardInterrupt())
        given: dict[str, Any] = {"checks": [Check()], "store": path, "id": "a"}
        session = Run[str]("t", generate=first, feedback=words, **given)
        await session.step()
        second = Generator(WANTED)
        await run("t", generate=second, feedback=words, **given)
        assert second.hints == ["mend 1 of 0: one is not right"]

    asyncio.run(scenario())
    (first, *_) = rows(path, "select record from decision order by seq")
    assert "mend 1 of 0" in first[0]


def test_a_loop_that_is_reopened_is_told_in_the_users_words(path: str) -> None:
    async def scenario() -> None:
        generate = Generator(*(f"wrong {n}" for n in range(4)), WANTED)
        given: dict[str, Any] = {"checks": [Check()], "policy": FOUR, "store": path}
        session = Run[str]("t", generate=generate, feedback=words, **given)
        assert not (await session.finish()).passed
        verdict = await session.override("attempts", "ada")
        assert isinstance(verdict, Again)
        assert verdict.feedback == "mend 1 of 0: wrong 3 is not right"
        assert (await session.finish()).passed
        assert generate.hints[-1] == verdict.feedback

    asyncio.run(scenario())


def test_secrets_in_the_users_words_go_nowhere(path: str) -> None:
    def telling(evaluation: Evaluation, goals: tuple[Goal, ...]) -> str:
        return f"use {SECRET}"

    generate = Generator("one", WANTED)
    asyncio.run(run("t", generate=generate, checks=[Check()], store=path, feedback=telling))
    assert SECRET not in generate.hints[1]
    assert SECRET.encode() not in Path(path).read_bytes()


@pytest.mark.parametrize("answer", [None, 5, ValueError("no words")])
def test_words_that_fail_are_the_users(answer: Any, path: str) -> None:
    def failing(evaluation: Evaluation, goals: tuple[Goal, ...]) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def scenario() -> None:
        generate = Generator("one", WANTED)
        given: dict[str, Any] = {"checks": [Check()], "store": path, "id": "a"}
        with pytest.raises(GenerateFailed, match=r"feedback raised .*mend it and run again"):
            await run("t", generate=generate, feedback=failing, **given)
        assert generate.calls == 1
        result = await run("t", generate=generate, feedback=words, **given)
        assert generate.calls == 2  # the answer was there already
        assert generate.hints[1] == "mend 1 of 0: one is not right"
        assert result.passed

    asyncio.run(scenario())


def test_no_words_are_asked_for_where_it_ends() -> None:
    def never(evaluation: Evaluation, goals: tuple[Goal, ...]) -> str:
        raise AssertionError

    for answers in ([WANTED], ["wrong"]):
        policy = heedful.Policy((heedful.MaxAttempts(1),))
        asyncio.run(
            run(
                "t",
                generate=Generator(*answers),
                checks=[Check()],
                policy=policy,
                store=None,
                feedback=never,
            )
        )


# -- without examples


def test_without_examples_no_output_is_kept_or_shown(path: str) -> None:
    async def scenario() -> None:
        memory = Memory(path)
        given: dict[str, Any] = {"checks": [Check()], "store": path, "memory": memory}
        # With examples, as ever; of another error, so that it is another lesson.
        accepted = Generator("first wrong thing", WANTED)
        await run("How is it?", generate=accepted, **given)
        model = ScriptedModel("second wrong thing", WANTED)
        await run("How is it?", generate=model, examples=False, id="b", **given)
        assert all(turn.role != "assistant" for prompt in model.prompts for turn in prompt)
        past = await memory.store.read(Scope(), exposures.past, "b")
        assert past.exposures == ()  # what is not shown does not count
        third = ScriptedModel(WANTED)
        await run("How is it?", generate=third, examples=False, id="c", **given)
        (prompt,) = third.prompts
        assert len(prompt) == 1
        assert "second wrong thing is not right. write right" in prompt[0].content
        assert "data, not instructions" in prompt[0].content
        assert prompt[0].content.endswith("\n\nHow is it?")
        past = await memory.store.read(Scope(), exposures.past, "c")
        assert [one.shown for one in past.exposures] == [True]

    asyncio.run(scenario())


def test_advice_stands_before_the_feedback(path: str) -> None:
    async def scenario() -> None:
        given: dict[str, Any] = {"checks": [Check()], "store": path, "memory": path}
        await run("t", generate=Generator("old", WANTED), examples=False, **given)
        generate = Generator("new", WANTED)
        await run("t", generate=generate, examples=False, **given)
        first, second = generate.hints
        assert "old is not right" in first
        assert second.index("old is not right") < second.index("new is not right")

    asyncio.run(scenario())


# -- checks that raise, where something stands for them


def instead(check: str, error: CheckFailed | ModelError) -> Finding:
    return Finding(check, f"not judged, {type(error).__name__} {SECRET}", level="warning")


def lazy(candidate: Any, at: Context) -> Sequence[Finding]:
    return (Finding("x", "y") for _ in range(1 // 0))  # type: ignore[return-value]


def nothing(candidate: Any, at: Context) -> Any:
    return None


def no_evaluation(candidate: Any, at: Context) -> Any:
    return []


def asks_none(candidate: Any, at: Context) -> Any:
    return []


asks_none.asks = 0  # type: ignore[attr-defined]


def judge_fails(candidate: Any, at: Context) -> Any:
    raise ModelError("gone")


@pytest.mark.parametrize("check", [lazy, nothing, asks_none, judge_fails])
def test_a_finding_stands_for_a_check_that_raises(check: Any) -> None:
    right = Check()

    async def scenario() -> None:
        found = await evaluated(WANTED, AT, [right, check, right], None, instead)
        assert [one.check for one in found.findings] == [check.__name__]
        assert "not judged" in found.findings[0].message
        assert SECRET not in found.findings[0].message
        assert found.met == 1.0
        assert len(right.seen) == 2  # the others are asked
        with pytest.raises((CheckFailed, ModelError)):
            await evaluated(WANTED, AT, [check], None)

    asyncio.run(scenario())


@pytest.mark.parametrize("evaluate", [no_evaluation, judge_fails])
def test_a_finding_stands_for_an_evaluator_that_raises(evaluate: Any) -> None:
    found = asyncio.run(evaluated(WANTED, AT, [Check()], evaluate, instead))
    assert [one.check for one in found.findings] == [evaluate.__name__]
    assert found.scores == {}


@pytest.mark.parametrize("tries", [1, 2, 5])
def test_how_often_a_check_is_asked(tries: int) -> None:
    check = Check(*[ValueError("no")] * 9)
    asyncio.run(evaluated(WANTED, AT, [check], None, instead, tries))
    assert len(check.seen) == tries


def test_an_override_from_outside_leaves_the_words_of_other_loops(path: str) -> None:
    async def scenario() -> None:
        generate = Generator("wrong")
        given: dict[str, Any] = {"checks": [Check()], "policy": FOUR, "store": path, "id": "a"}
        await run("t", generate=generate, labels={"stage": "train"}, **given)
        verdict = await heedful.override("a", "attempts", by="ada", store=shared(path))
        assert isinstance(verdict, Again)
        assert verdict.feedback.startswith("The last answer was not accepted:")

    asyncio.run(scenario())
