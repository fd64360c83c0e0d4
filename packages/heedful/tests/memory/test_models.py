"""What a lesson belongs to: the model that was corrected is recorded with it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import heedful
from heedful import Answer
from heedful.errors import InvalidInput
from heedful.lessons.briefing import Briefing
from heedful.lessons.lesson import Exposure, Match, Outcome
from heedful.memory.memory import Memory
from heedful.models.answers import answer_of
from heedful.store import exposures, loops
from heedful.testing.conformance import CURE as FIX, severity
from tests.engines import change_rows, rows
from tests.tables import cases

pytestmark = pytest.mark.both_nightly

USAGE = SimpleNamespace(prompt_tokens=7, completion_tokens=2)
SMALL = "small-1b"
LARGE = "large-70b"
DIGEST = "0123456789abcdef"
LESSON = f"check/{DIGEST}"


def answer(task: str, hint: str) -> str:
    return "P1" if FIX in hint else "high"


def completion(text: str) -> Any:
    """Return the answer of an SDK, which names its model."""
    message = SimpleNamespace(content=text, parsed=None)
    choices = [SimpleNamespace(message=message)]
    return SimpleNamespace(choices=choices, usage=USAGE, model=SMALL)


async def drive(
    memory: Memory, task: str = "checkout answers 500", **options: Any
) -> heedful.Result[Any]:
    """Run a loop that fails the check `severity` until it is told the rule."""
    settings = {
        "generate": answer,
        "checks": [severity],
        "memory": memory,
        "memory_key": "triage",
        "store": memory.store,
        **options,
    }
    return await heedful.run(task, **settings)


def stored_models(path: Path) -> set[str]:
    """Return the models of the stored examples."""
    records = rows(path, "select record from example")
    return {json.loads(record)["model"] for (record,) in records}


@cases(
    "options, model",
    {
        "nobody names it": ({}, ""),
        "the option": ({"model": SMALL}, SMALL),
        "an Answer": (
            {"generate": lambda task, hint: Answer(answer(task, hint), model=SMALL)},
            SMALL,
        ),
        "the answer of an SDK": (
            {"generate": lambda task, hint: completion(answer(task, hint))},
            SMALL,
        ),
        "the option before the answer": (
            {
                "generate": lambda task, hint: completion(answer(task, hint)),
                "model": LARGE,
            },
            LARGE,
        ),
    },
)
async def test_attempts_lessons_and_the_outcome_name_the_model(
    memory, path, options, model
):
    result = await drive(memory, **options)

    stored_loop = await memory.store.read(memory.scope, loops.read, result.id)
    assert [attempt.model for attempt in stored_loop.loop.attempts] == [model, model]
    assert stored_loop.head.model == model
    assert stored_models(path) == {model}


async def test_the_lesson_names_the_model_that_was_corrected(memory, path):
    def escalate(task: str, hint: str) -> Answer:
        return Answer("P1", model=LARGE) if hint else Answer("high", model=SMALL)

    result = await drive(memory, generate=escalate)

    assert [attempt.model for attempt in result.loop.attempts] == [SMALL, LARGE]
    assert stored_models(path) == {SMALL}


async def record_loop(memory: Memory, loop: str, model: str, shown: bool) -> None:
    """Record a loop of a model that passes at once if it is shown the lesson."""
    exposure = Exposure(LESSON, loop, shown=shown, signature=DIGEST, share=0.5)
    outcome = Outcome(loop, shown, calls=1, model=model)
    await memory.store.write(
        memory.scope, exposures.remember, (), exposures=[exposure], outcome=outcome
    )


async def test_proof_is_split_by_model(memory):
    for number in range(4):
        await record_loop(memory, f"small/{number}", SMALL, shown=number < 3)
    await record_loop(memory, "large/0", LARGE, shown=False)
    await record_loop(memory, "unknown/0", "", shown=True)

    of_all = await memory.prove()
    of_small = await memory.prove(SMALL)
    of_other = await memory.prove("other")

    assert (of_all.pooled.shown, of_all.pooled.withheld) == (4, 2)
    assert [*of_all.models] == [LARGE, SMALL, ""]
    assert of_all.models[SMALL] == of_small.pooled
    assert of_small.models == of_all.models
    (lesson,) = of_small.lessons
    assert lesson.lesson == LESSON
    assert (lesson.shown, lesson.withheld) == (3, 1)
    assert of_other.lessons == ()
    assert of_other.pooled.shown == 0


@cases(
    "named",
    {"the loop names the model": "loop", "its first attempt names it": "attempt"},
)
async def test_a_loop_without_an_outcome_counts_for_its_model(memory, path, named):
    loop = await heedful.open_loop(
        "given up",
        "a typo",
        checks=[severity],
        store=memory.store,
        model=SMALL if named == "loop" else "",
    )
    if named == "attempt":
        await loop.report("high", model=SMALL)
    exposure = Exposure(
        LESSON,
        "given up",
        shown=True,
        signature=DIGEST,
        share=0.5,
    )
    await memory.store.write(
        memory.scope,
        exposures.remember,
        (),
        exposures=[exposure],
    )
    pending = await memory.prove(SMALL)
    change_rows(path, "update exposure set at = 1")

    given_up = await memory.prove(SMALL)

    assert pending.pending == 1
    assert pending.pooled.shown == 0
    assert given_up.pending == 0
    assert given_up.pooled.shown == 1


def shown_line(briefing: Briefing | None) -> str:
    """Return the line about the first lesson that a loop was shown."""
    assert briefing is not None
    return briefing.lines[0]


async def record_evidence(
    memory: Memory, lesson: Match, model: str, helps: bool
) -> None:
    """Record loops of a model that prove that a lesson helps them, or hurts them."""
    name = f"{lesson.kind}/{lesson.signature}"
    for number in range(80):
        loop = f"{model}/{number}"
        is_shown = number % 2 == 0
        exposure = Exposure(
            name, loop, shown=is_shown, signature=lesson.signature, share=0.5
        )
        outcome = Outcome(loop, is_shown is helps, calls=1, model=model)
        await memory.store.write(
            memory.scope, exposures.remember, (), exposures=[exposure], outcome=outcome
        )


async def test_what_hurts_one_model_is_kept_from_it_alone(memory):
    await drive(memory, model=SMALL)
    [lesson] = (await memory.brief("x", "l", memory_key="triage")).found
    await record_evidence(memory, lesson, LARGE, helps=False)
    await record_evidence(memory, lesson, SMALL, helps=True)

    assert await memory.look() == []
    of_large = await drive(memory, "a typo", model=LARGE)
    of_small = await drive(memory, "another typo", model=SMALL)
    of_other = await drive(memory, "one more typo", model="other")

    assert f"the proof says that it hurts loops of {LARGE}" in str(of_large.briefing)
    assert f"proof --restore {lesson.lesson_id} --by NAME" in str(of_large.briefing)
    assert shown_line(of_small.briefing).startswith("shown: lesson 1, rule")
    assert shown_line(of_other.briefing).startswith("shown: lesson 1, rule")
    (ruling,) = await memory.store.read(memory.scope, exposures.rulings, 9)
    assert ruling["action"] == "withhold"
    assert ruling["record"]["model"] == LARGE
    # The same evidence is recorded once.
    await memory.look()
    assert len(await memory.store.read(memory.scope, exposures.rulings, 9)) == 1


async def test_a_person_brings_back_what_is_kept_from_a_model(memory):
    await drive(memory, model=SMALL)
    [lesson] = (await memory.brief("x", "l", memory_key="triage")).found
    await record_evidence(memory, lesson, LARGE, helps=False)
    await record_evidence(memory, lesson, SMALL, helps=True)
    await memory.look()

    await memory.quarantine.restore(
        lesson.lesson_id, by="Ada", why="the model was changed"
    )
    await memory.look()

    result = await drive(memory, "a typo", model=LARGE)
    assert shown_line(result.briefing).startswith("shown: lesson 1, rule")


@pytest.mark.sqlite
@cases("name", {"not printable": "a\nb", "a secret": "sk-ant-api03-" + "a1B2" * 22})
async def test_a_name_that_cannot_be_stored_is_refused(memory, name):
    with pytest.raises(InvalidInput, match="model"):
        await drive(memory, model=name)


@pytest.mark.sqlite
@cases(
    "answered, model",
    {
        "OpenAI, LiteLLM, Anthropic": ({"model": "gpt-5"}, "gpt-5"),
        "Google": ({"model_version": "gemini-3"}, "gemini-3"),
        "no name that can be shown": ({"model": "a\nb"}, ""),
    },
)
def test_the_answer_of_an_sdk_names_its_model(answered, model):
    sdk_answer = SimpleNamespace(output_text="hi", usage=USAGE, **answered)

    result = answer_of(sdk_answer)

    assert result is not None
    assert result.model == model
