"""What a run teaches reaches the next run, and what is kept back says why.

The gate is evidence and trust, whatever the outcome of the run and its importance.
"""

import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import heedful
from heedful import Episode, Event
from heedful.lessons import render
from heedful.lessons.lesson import Example
from heedful.lessons.mistake import Call, Fix, Mistake
from heedful.memory import reflect as reflecting
from heedful.memory.memory import Memory
from heedful.store import editions
from heedful.testing import ScriptedModel
from tests.memory.loops import run_loop
from tests.memory.reflections import answer
from tests.tables import cases

pytestmark = pytest.mark.both_nightly

reflect: Any = reflecting.reflect
TASK = "What does the red kettle cost?"
RULE = render.rule(
    Mistake(
        action=Call(tool="price", arguments=(("item", "kettle"),)),
        error="Error: no such item",
        fix=Fix(kind="arguments", changes=(("item", "red kettle"),)),
    )
)
OUTCOMES = ["success", "partial", "failure", "error", "timeout"]


def call(item: str, result: str = "", error: str = "") -> tuple[Event, Event]:
    """Return a call of the tool `price` with what came back."""
    return (
        Event("tool_call", tool="price", arguments={"item": item}),
        Event("tool_response", result, error=error),
    )


MENDED = Episode(
    (*call("kettle", error="Error: no such item"), *call("red kettle", "41.90")),
    "success",
    task=TASK,
)
# What failed here was never put right, and the run did not fail all the same.
UNMENDED = replace(MENDED, events=MENDED.events[:2], outcome="partial")
# Nothing failed, and the rules find nothing to do next time.
SMOOTH = Episode((Event("llm_response", "It costs 41.90."),), "success", task=TASK)


async def hint_of(memory: Memory, task: str = TASK) -> str:
    """Return what a loop with this task is told before its first attempt."""

    def generate(task: str, hint: str) -> str:
        return hint or "no hint"

    result = await run_loop(memory, task, generate, [], store=None)
    return str(result.candidate)


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_a_run_that_mended_itself_is_told_whatever_its_outcome(memory, outcome):
    await reflect(replace(MENDED, outcome=outcome), memory=memory)

    recalled = await memory.recall(TASK)
    assert recalled[0].lesson == RULE
    assert recalled.silence == ""
    assert RULE in memory.render(recalled, form="text")
    assert RULE in await hint_of(memory)
    assert RULE in str((await memory.seen("Error: no such item")).lessons)


async def test_the_strategy_of_a_success_that_a_model_wrote_is_told(memory):
    strategy = "If price `kettle` says “Error: no such item”, call price `red kettle`."
    sentence = "price `kettle` failed with “Error: no such item”; `red kettle` worked."
    model = ScriptedModel(answer(sentence, strategy=strategy))
    reflected = await reflect(MENDED, memory=memory, model=model)
    assert reflected.by != "rules"
    assert reflected.strategy.text == strategy
    assert strategy in await hint_of(memory)


@cases("has_run_again", {"at once": False, "once the failure came back": True})
async def test_the_fix_that_was_seen_is_told_before_a_models_rule(
    memory, has_run_again
):
    rule = "Always handle errors gracefully."
    model = ScriptedModel(answer("It took two calls.", strategy=rule))
    reflected = await reflect(MENDED, memory=memory, model=model)
    assert reflected.strategy.text == rule
    if has_run_again:
        await reflect(replace(MENDED, session="s2"), memory=memory, model=model)
    hint = await hint_of(memory)
    assert f"{RULE}\n{rule}" in hint


async def test_a_run_that_shows_no_cure_is_told_once_the_failure_comes_back(memory):
    reflected = await reflect(UNMENDED, memory=memory)
    recalled = await memory.recall(TASK)
    assert recalled == []
    assert "nothing in its run shows that it helps" in recalled.silence
    assert f"heedful lessons edit {reflected.stored[1].id} " in recalled.silence
    assert await hint_of(memory) == "no hint"

    again = replace(UNMENDED, id="another run")
    assert (await reflect(again, memory=memory)).known == 1
    assert reflected.strategy.text in await hint_of(memory)


async def test_a_person_who_words_a_lesson_confirms_it(memory):
    reflected = await reflect(UNMENDED, memory=memory)
    words = "Ask for the colour of the kettle, too."
    await memory.edit(reflected.stored[1].id, words, by="ada")
    assert words in await hint_of(memory)


async def test_a_lesson_without_a_strategy_is_for_no_prompt(memory):
    code = Event("error_event", "", error="no such item", code="price")
    run = replace(SMOOTH, events=(*SMOOTH.events, code), outcome="failure")
    reflected = await reflect(run, memory=memory)
    assert reflected.strategy is None
    recalled = await memory.recall(TASK)
    assert [match.lesson for match in recalled] == [reflected.text]
    assert memory.render(recalled, form="text") == ""

    briefing = await memory.brief(TASK, "loop")
    assert f"lesson {reflected.stored[0].id} is not shown" in briefing.silence
    assert "it has no strategy" in briefing.silence
    assert f"heedful lessons edit {reflected.stored[0].id} TEXT" in briefing.silence

    words = "Ask price for the red kettle."
    await memory.edit(reflected.stored[0].id, words, by="ada")
    assert words in await hint_of(memory)


async def test_a_retired_lesson_is_named_with_what_brings_it_back(memory):
    example = Example(TASK, "41.90")
    lesson = await memory.remember("price", "no price", example=example)
    row = await memory.store.read(memory.scope, editions.one, lesson.id)
    retire = partial(editions.amend, edition=row["edition"], by="ada", why="old")
    await memory.store.write(memory.scope, retire, lesson.id, retired=True)
    command = f"heedful proof --restore {lesson.id} --by NAME"
    reason = f"it was retired; to change that: {command}"
    assert reason in (await memory.recall(TASK)).silence
    assert reason in (await memory.brief(TASK, "l")).silence


async def test_a_lesson_about_another_task_is_named_with_what_is_missing(memory):
    await reflect(MENDED, memory=memory)
    task = "Paint one big wooden kettle of a friend blue"
    silence = (await memory.brief(task, "loop")).silence
    assert (
        "it is about another task; to compare meanings: "
        "HEEDFUL_EMBEDDER=minilm heedful lessons reembed"
    ) in silence


async def test_only_examples_asked_for_says_so(memory):
    await reflect(MENDED, memory=memory)
    silence = (await memory.brief(TASK, "loop", tell="examples")).silence
    assert "it is one of the rules, and the loop wants only examples" in silence


async def test_an_empty_memory_says_that_nothing_is_similar(memory):
    assert "no lesson is about a similar task" in (await memory.recall(TASK)).silence
    assert "no lesson is about a similar task" in (await memory.brief(TASK, "")).silence


# What the open gate never lets through


async def test_an_untrusted_sighting_brings_no_words_of_its_own(memory):
    """It counts, so that the trusted lesson comes back; its own words wait."""
    await reflect(UNMENDED, memory=memory)
    stranger = Memory(memory.store, holdout=0)
    again = replace(UNMENDED, id="another run", task="Obey the evil page")
    await reflect(again, memory=stranger)
    assert "evil" not in await hint_of(memory)
    assert "evil" not in str(await memory.recall("Obey the evil page"))


FORMS = {"form": r"P\d", "fix": "use P0 to P3"}


def level(answer: str):
    """Find what is no level; what it wants changes."""
    if not re.fullmatch(FORMS["form"], answer):
        yield heedful.Finding("level", f"{answer!r} is no level", fix=FORMS["fix"])


async def test_an_answer_that_a_check_refuses_now_is_not_told(monkeypatch):
    memory = heedful.Memory(":memory:", holdout=0)
    texts_told = []

    async def answer(task, hint):
        texts_told.append(hint)
        advised = re.findall(r"use ([PS])", hint)
        return f"{advised[-1]}1" if advised else "high"

    async def run(number):
        task = f"report {number}: the shop answers 500 for the cart of a customer"
        await heedful.run(
            task, generate=answer, checks=[level], memory=memory, memory_key="k"
        )

    for number in range(3):
        await run(number)
    assert "P1" in texts_told[-1]
    monkeypatch.setitem(FORMS, "form", r"S\d")
    monkeypatch.setitem(FORMS, "fix", "use S1 to S4")
    texts_told.clear()
    await run(3)
    assert "P1" not in texts_told[0]
    texts_told.clear()
    await run(4)
    assert "P1" not in texts_told[0]
    assert not any("P0" in lesson["text"] for lesson in await memory.top())


ALLOWED = {"form": "P1"}


def allowed_level(answer: str):
    """Find what is not the level that is allowed; its rule does not name it."""
    if answer != ALLOWED["form"]:
        yield heedful.Finding("level", "no level", fix="answer with a level")


async def test_a_rule_is_told_without_an_answer_that_a_check_refuses_now(monkeypatch):
    memory = heedful.Memory(":memory:", holdout=0)

    async def told_of(task):
        texts_told = []

        async def answer(task, hint):
            texts_told.append(hint)
            return ALLOWED["form"] if hint else "high"

        await heedful.run(
            task,
            generate=answer,
            checks=[allowed_level],
            memory=memory,
            memory_key="k",
        )
        return texts_told[0]

    await told_of("The printer jams")
    assert "accepted: P1" in await told_of("Checkout is slow")
    monkeypatch.setitem(ALLOWED, "form", "S1")
    text = await told_of("A login fails")
    assert "answer with a level" in text
    assert "P1" not in text


def queue(answer: str, context: heedful.Context):
    """Find what is not the queue that the data of the loop has."""
    if answer != context.data:
        yield heedful.Finding("queue", f"{answer} is not the queue of this ticket")


async def test_a_check_that_reads_the_data_of_a_loop_judges_no_other_loop():
    memory = heedful.Memory(":memory:", holdout=0)
    told = []

    async def answer(task, hint):
        told.append(hint)
        return "card_lost" if hint else "other"

    for task in ("My lost card of today", "A lost card of today"):
        await heedful.run(
            task,
            generate=answer,
            checks=[queue],
            data="card_lost",
            memory=memory,
            memory_key="k",
        )
    assert len(told) == 3
    assert "card_lost" in told[2]
