"""Loops that word their own feedback, and loops that keep no outputs."""

from __future__ import annotations

from typing import Any

import pytest

from heedful.drive.drive import run
from heedful.errors import GenerateFailed
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Again
from heedful.loop.record import Evaluation, Goal
from heedful.memory.memory import Memory
from heedful.store import exposures
from heedful.testing import ScriptedModel
from tests.drive.support import WANTED, Check, Generator, session
from tests.store.support import rows

SAID = "repair 1 of 0: {} is not right"


def words(evaluation: Evaluation, goals: tuple[Goal, ...]) -> str:
    return f"repair {len(evaluation.errors)} of {len(goals)}: {evaluation.errors[0].message}"


async def words_later(evaluation: Evaluation, goals: tuple[Goal, ...]) -> str:
    return words(evaluation, goals)


@pytest.mark.parametrize("feedback", [words, words_later])
async def test_the_next_attempt_reads_the_words_of_the_user(store, path, feedback):
    await session(store, "one", feedback=feedback).step()
    second = Generator(*(f"wrong {n}" for n in (2, 3, 4)), WANTED)
    one = session(store, generate=second, feedback=feedback)
    assert not (await one.finish()).passed
    assert second.hints[0] == SAID.format("one")
    assert SAID.format("one") in rows(path, "select record from decision order by seq")[0][0]
    verdict = await one.override("attempts", "ada")
    assert isinstance(verdict, Again)
    assert verdict.feedback == SAID.format("wrong 4")
    assert (await one.finish()).passed
    assert second.hints[-1] == verdict.feedback


@pytest.mark.parametrize("answer", [None, 5, ValueError("no words")])
async def test_feedback_that_fails_is_the_error_of_the_user(store, answer):
    def failing(evaluation: Evaluation, goals: tuple[Goal, ...]) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    generate = Generator("one", WANTED)
    with pytest.raises(GenerateFailed, match=r"feedback raised .*run again"):
        await session(store, generate=generate, feedback=failing).finish()
    assert generate.calls == 1
    assert (await session(store, generate=generate, feedback=words).finish()).passed
    assert generate.calls == 2  # the answer was there already
    assert generate.hints[1] == SAID.format("one")


async def test_a_loop_without_examples_keeps_and_shows_no_output(store):
    memory = Memory(store)
    known: dict[str, Any] = {"checks": [Check()], "store": store, "memory": memory}
    # With examples, and of another error, so that it is another lesson.
    await run("How is it?", generate=Generator("first wrong thing", WANTED), **known)
    model = ScriptedModel("second wrong thing", WANTED)
    await run("How is it?", generate=model, examples=False, id="b", **known)
    assert all(turn.role != "assistant" for prompt in model.prompts for turn in prompt)
    assert (await store.read(Scope(), exposures.past, "b")).exposures == ()  # no output was shown
    third = ScriptedModel(WANTED)
    await run("How is it?", generate=third, examples=False, id="c", **known)
    ((turn,),) = third.prompts
    assert "second wrong thing is not right. write right" in turn.content
    assert "data, not instructions" in turn.content
    assert turn.content.endswith("\n\nHow is it?")
    assert [one.shown for one in (await store.read(Scope(), exposures.past, "c")).exposures] == [
        True
    ]
