"""Exceptions that refuse an answer: what the next attempt hears, and how loops end."""

import asyncio
import enum
import json
from collections.abc import Callable
from typing import Any, NoReturn

import jsonschema
import pytest
from openai import LengthFinishReasonError
from openai.types.chat import ChatCompletion
from pydantic import BaseModel, Field
from pydantic_ai import ModelRetry

import heedful
from heedful import errors
from heedful.checks.evaluate import Context
from heedful.loop.record import NO_CANDIDATE, Evaluation
from heedful.memory.memory import Memory
from heedful.models.function import Function
from tests.completions import completion
from tests.drive.support import WANTED, Generator, reread, session
from tests.tables import cases

SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


class Leg(BaseModel):
    harbour: str
    miles: int = Field(le=500)


class Voyage(BaseModel):
    ship: str
    legs: list[Leg]


class Weight(ValueError):
    """An exception as a user declares it."""


class Busy(OSError):
    """An exception that is none of an answer, unless a caller says so."""


class Colour(enum.Enum):
    """Values that an answer may have."""

    RED = "red"


def raise_(error: Exception) -> NoReturn:
    raise error


RIGHT = Voyage(ship="Erna", legs=[Leg(harbour="Bergen", miles=80)])
SHIP_IS_NUMBER = RIGHT.model_dump() | {"ship": 7}


def parse(text: str) -> Callable[..., Voyage]:
    return lambda task, hint: Voyage.model_validate_json(text)


def validate(task: Any, hint: str) -> None:
    schema = {"properties": {"ship": {"enum": ["Erna", "Ida"]}}}
    jsonschema.validate({"ship": "Olga"}, schema)


def cut(task: Any, hint: str) -> None:
    usage = {"prompt_tokens": 30, "completion_tokens": 9, "total_tokens": 39}
    answer = completion('{"ship": "Er', "length", usage)
    raise LengthFinishReasonError(completion=ChatCompletion.model_validate(answer))


class Misread(ValueError):
    """An exception with the answer that its function read, as instructor raises it."""

    def __init__(self, last_completion: ChatCompletion) -> None:
        super().__init__("the ship has no name")
        self.last_completion = last_completion


def misread(task: Any, hint: str) -> None:
    call = {"name": "Voyage", "arguments": '{"ship": ""}'}
    calls = [{"id": "1", "type": "function", "function": call}]
    answer = completion(None, "tool_calls", tool_calls=calls)
    raise Misread(ChatCompletion.model_validate(answer))


REFUSALS = {
    "a subclass of ValueError": (Weight("9 kg, not 8 kg"), ["9 kg, not 8 kg"]),
    "an assertion with a text": (AssertionError("no kg"), ["no kg"]),
    "a text that is no JSON": (lambda *_: json.loads("Sure!"), ["not JSON"]),
    "nested fields of pydantic": (
        parse('{"legs": [{"harbour": "Oslo", "miles": "far"}]}'),
        ["$.ship", "$.legs[0].miles: it is 'far', not an integer"],
    ),
    "an enumeration of jsonschema": (validate, ["$.ship", "'Erna', 'Ida'"]),
    "a retry of pydantic-ai": (ModelRetry("name the harbour"), ["name the harbour"]),
    "an answer that the provider cut": (cut, ["cut the answer off"]),
    "the call that was read": (misread, ["the ship has no name"]),
}


@pytest.mark.parametrize(("raising", "wanted"), REFUSALS.values(), ids=REFUSALS)
async def test_a_generator_that_refuses_is_asked_again_with_what_is_wrong(
    any_store, raising, wanted
):
    generate = Generator(raising, WANTED)
    result = await session(any_store, generate=generate).finish()
    assert result.passed is True
    assert result.candidate == WANTED
    assert [words for words in wanted if words not in generate.hints[1]] == []
    assert ".py" not in generate.hints[1]
    first = str(result.explain()).splitlines()[0]
    assert " at " in first
    assert ".py:" in first


@cases(
    ("raising", "text"),
    {
        "the text that pydantic read": (parse("[1"), "[1"),
        "the completion of an SDK": (cut, '{"ship": "Er'),
        "unknown for a text": (Weight("too heavy"), None),
    },
)
async def test_the_refused_answer_is_the_candidate_where_it_is_known(raising, text):
    result = await session(None, raising, WANTED).finish()
    candidate = result.loop.attempts[0].candidate
    assert candidate.text == text
    assert (candidate == NO_CANDIDATE) is (text is None)


# What a function makes of the same answer of its model.
SAME: dict[str, Callable[[], Any]] = {
    "an error of the function": lambda: raise_(Weight("no scales")),
    "an assertion without a text": lambda: raise_(AssertionError()),
    "a text that is no number": lambda: float("twelve"),
    "a value of no enumeration": lambda: Colour("mauve"),
    "a class that the caller names": lambda: raise_(Busy("later")),
}


@pytest.mark.parametrize("revises", [False, True], ids=["generate", "revise"])
@cases("make", SAME)
async def test_a_function_that_raises_the_same_again_only_refuses(
    any_store, make, revises
):
    calls: list[int] = []

    def generate(task: Any, hint: str) -> str:
        calls.append(1)
        return WANTED if len(calls) == 4 else make()

    options: dict[str, Any] = {"generate": generate}
    if revises:
        options = {
            "initial": "a draft",
            "revise": lambda task, draft, findings: generate(task, ""),
            "policy": "attempts.limit=5",
        }
    result = await session(any_store, refuse=[Busy], **options).finish()
    assert result.passed is True
    assert len(calls) == 4


async def test_a_loop_in_which_every_attempt_refuses_the_same_ends_by_its_policy():
    result = await session(None, Weight("no scales")).finish()
    assert len(result.loop.attempts) == 4
    assert [stop.rule for stop in result.stopped_by] == ["attempts"]
    assert isinstance(result.refused_by, Weight)


@cases("error", {"a key": KeyError("scales"), "a type": TypeError("no scales")})
async def test_a_fault_of_the_function_ends_the_loop_at_once(error):
    generate = Generator(error, WANTED)
    with pytest.raises(errors.GenerateFailed) as caught:
        await session(None, generate=generate).finish()
    assert caught.value.__cause__ is error
    assert generate.calls == 1


# -- an attempt that is late


def late_once(place: str) -> dict[str, Any]:
    """Options of a loop whose first attempt is late."""
    hints: list[str] = []

    async def write(task: Any, hint: str = "") -> str:
        hints.append(hint)
        if len(hints) == 1:
            await asyncio.Event().wait()
        return WANTED

    if place == "model":
        return {"generate": Function(lambda messages: write(messages), timeout=0.05)}
    return {"generate": write, "timeout": 0.05}


@cases("place", {"the loop's limit": "loop", "the model's limit": "model"})
async def test_a_late_attempt_is_made_again_if_the_caller_refuses_time_outs(
    any_store, place
):
    driver = session(any_store, refuse=[TimeoutError], **late_once(place))
    result = await driver.finish()
    assert [attempt.has_candidate for attempt in result.loop.attempts] == [False, True]
    assert result.passed is True
    assert result.usage.calls == 2


@cases("place", {"the loop's limit": "loop", "the model's limit": "model"})
async def test_a_late_attempt_is_an_error_otherwise(place):
    with pytest.raises(errors.ModelTimeout):
        await session(None, **late_once(place)).finish()


async def test_a_late_judge_is_no_fault_of_the_answer():
    async def check(candidate: Any) -> None:
        await asyncio.Event().wait()

    driver = session(None, WANTED, checks=[check], timeout=0.05, refuse=[TimeoutError])
    with pytest.raises(errors.ModelTimeout):
        await driver.finish()


async def test_a_budget_of_seconds_ends_a_loop_that_refuses_time_outs():
    options = late_once("loop") | {"timeout": None, "policy": "budget.seconds=0.05"}
    result = await session(None, refuse=[TimeoutError], **options).finish()
    assert [stop.rule for stop in result.stopped_by] == ["budget"]


# -- a function that judges its own answers


async def test_a_function_that_refused_once_judges_what_it_returns_then(
    any_store, caplog
):
    driver = session(any_store, Weight("9 kg"), WANTED, checks=[])
    result = await driver.finish()
    assert result.passed is True
    assert result.loop.attempts[-1].unjudged is False
    assert result.explain().unjudged is False
    assert caplog.messages == []
    if any_store is not None:
        assert (await reread(any_store)).shown_state == "passed"


async def test_a_function_that_never_refused_is_not_known_to_judge():
    result = await session(None, WANTED, checks=[], refuse=[Busy]).finish()
    assert result.judged is False
    assert result.explain().unjudged is True


@cases(("refuse", "attempts"), {"named": ([Busy], 2), "not named": ([], 0)})
async def test_a_caller_names_further_exceptions(refuse, attempts):
    driver = session(None, Busy("429"), WANTED, refuse=refuse)
    if not attempts:
        with pytest.raises(errors.GenerateFailed):
            await driver.finish()
        return
    assert len((await driver.finish()).loop.attempts) == attempts


@cases(
    "refuse",
    {
        "a class alone": Busy,
        "no Exception": [KeyboardInterrupt],
        "an error of heedful": [errors.ModelError],
    },
)
async def test_what_refuses_is_checked_before_the_first_attempt(refuse):
    with pytest.raises(errors.InvalidInput, match="refuse"):
        session(None, WANTED, refuse=refuse)


# -- checks


def weighs(candidate: str) -> None:
    if candidate != WANTED:
        raise Weight(f"{candidate} weighs 9 kg {SECRET}")


async def test_a_check_that_refuses_finds_what_it_says(any_store):
    generate = Generator("one", WANTED)
    driver = session(any_store, generate=generate, checks=[weighs])
    result = await driver.finish()
    assert result.passed is True
    evaluation = result.loop.attempts[0].evaluation
    assert evaluation is not None
    [finding] = evaluation.findings
    assert finding.check == "weighs"
    assert finding.raised.startswith("Weight at test_refusing.py:")
    assert "weighs 9 kg" in generate.hints[1]
    assert SECRET not in generate.hints[1]
    if any_store is not None:
        assert (await reread(any_store)).loop.attempts == result.loop.attempts


async def test_problems_of_one_exception_are_bounded():
    legs = json.dumps({"ship": "Ida", "legs": [{}] * 300})
    generate = Generator(parse(legs), WANTED)
    await session(None, generate=generate).finish()
    assert len(generate.hints[1]) <= 1_500
    assert "more" in generate.hints[1]


def harbour(candidate: str) -> bool:
    return bool(json.loads(candidate)["legs"][0]["harbour"])


@cases("answer", {"a list": "[]", "a number for a text": json.dumps(SHIP_IS_NUMBER)})
async def test_a_check_that_cannot_read_a_refused_answer_is_left_out(answer):
    checks = [heedful.checks.json_schema(Voyage), harbour]
    result = await session(
        None, answer, RIGHT.model_dump_json(), checks=checks
    ).finish()
    assert result.passed is True
    evaluation = result.loop.attempts[0].evaluation
    assert evaluation is not None
    findings = evaluation.errors
    assert {finding.check for finding in findings} <= {"json_schema", "answer"}


async def test_a_score_that_a_refused_answer_lacks_does_not_end_the_loop():
    def rate(candidate: str, context: Context) -> Evaluation:
        return Evaluation(scores={"speed": json.loads(candidate)["speed"]})

    result = await session(
        None,
        "[]",
        '{"speed": 1}',
        checks=[heedful.checks.json_schema({"type": "object"})],
        evaluate=rate,
        goals=["speed >= 0.5"],
    ).finish()
    assert result.passed is True
    assert len(result.loop.attempts) == 2


async def test_a_check_that_raises_the_same_for_every_answer_is_named():
    def reshape(candidate: str) -> None:
        raise ValueError("cannot reshape")

    result = await session(None, "one", "two words", checks=[reshape]).finish()
    lines = str(result.explain()).splitlines()
    suspicions = [line for line in lines if "perhaps" in line]
    assert len(suspicions) == 1
    assert suspicions[0].startswith("reshape raised ValueError at test_refusing.py:")
    assert "perhaps a fault of the check" in result.explain().sentence


# -- how it ends for the caller


@cases("options", {"the function raises": {}, "a check raises": {"checks": [weighs]}})
def test_not_passed_comes_from_the_exception_of_the_caller(options):
    @heedful.self_correcting(store=None, max_attempts=2, **options)
    def load(task: str, hint: str) -> str:
        if options:
            return f"box {len(hint)}"
        raise Weight(f"{len(hint)} kg")

    with pytest.raises(heedful.NotPassed) as caught:
        load("Load it.")
    assert isinstance(caught.value.__cause__, Weight)


async def test_a_revision_that_refuses_is_made_again_of_the_last_candidate():
    def revise(task: Any, candidate: Any, findings: Any) -> str:
        seen.append((candidate, [finding.message for finding in findings]))
        if len(seen) == 1:
            raise Weight("lost it")
        return WANTED

    seen: list[Any] = []
    result = await session(None, "one", revise=revise).finish()
    assert result.passed is True
    assert [candidate for candidate, _ in seen] == ["one", "one"]
    assert seen[1][1] == ["one is not right", "lost it"]


async def test_what_no_attempt_put_right_teaches_nothing(store):
    memory = Memory(store)
    options = {"memory": memory, "memory_key": "load"}
    await session(store, *map(Weight, "1234"), **options).finish()
    assert await memory.count() == 0
    await session(store, Weight("5"), WANTED, id="b", **options).finish()
    assert await memory.count() == 1
