"""What instructor, pydantic-ai and guardrails-ai do with a refused answer, and that a
loop around the same code does it, too. Each model answers wrongly, then rightly.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import date
from enum import Enum
from typing import Any, Literal, cast

import pytest
from pydantic import BaseModel, field_validator

import heedful
from tests.completions import completion
from tests.tables import cases

Ask = Callable[[str], Any]


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Parcel(BaseModel):
    """An answer whose code has to begin with P."""

    code: str

    @field_validator("code")
    @classmethod
    def begin_with_p(cls, code: str) -> str:
        if not code.startswith("P"):
            raise ValueError("the code has to begin with P")
        return code


class Load(BaseModel):
    parcels: list[Parcel]


class Weighed(BaseModel):
    weight: int | Literal["unknown"]


class Sized(BaseModel):
    size: Size


class Sent(BaseModel):
    by: Literal["air", "sea"]


class Due(BaseModel):
    due: date


class Way:
    """One way to say no: the type of the answer, two answers, a word of the reason."""

    def __init__(self, kind: Any, wrong: str, right: Any, reason: str) -> None:
        self.kind = kind
        self.answers = [wrong, json.dumps(right)]
        self.right = right
        self.reason = reason


WAYS = {
    "raise in a validator": Way(
        Parcel, '{"code": "X1"}', {"code": "P1"}, "begin with P"
    ),
    "nested models": Way(
        Load,
        '{"parcels": [{"code": "X1"}]}',
        {"parcels": [{"code": "P1"}]},
        "begin with P",
    ),
    "unions": Way(Weighed, '{"weight": "heavy"}', {"weight": 3}, "weight"),
    "enums": Way(Sized, '{"size": "huge"}', {"size": "small"}, "'small'"),
    "Literal": Way(Sent, '{"by": "rail"}', {"by": "sea"}, "'sea'"),
    "dates": Way(Due, '{"due": "tomorrow"}', {"due": "2026-05-03"}, "date"),
    "partial JSON": Way(Parcel, '{"code": "P', {"code": "P1"}, "JSON"),
}


class Double:
    """A model that gives the answers in turn, and keeps what it was asked."""

    def __init__(self, answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.prompts: list[str] = []

    def answer(self, prompt: str) -> str:
        self.prompts.append(prompt.replace("\\", ""))
        return self.answers[len(self.prompts) - 1]


def ask_instructor(double: Double, kind: Any, retries: int) -> Ask:
    """Return a function that asks by instructor, in its mode for JSON."""
    instructor = pytest.importorskip("instructor")
    import httpx
    import openai

    def respond(request: httpx.Request) -> httpx.Response:
        messages = json.loads(request.content)["messages"]
        body = completion(double.answer(json.dumps(messages)))
        return httpx.Response(200, json=body)

    client = instructor.from_openai(
        openai.OpenAI(
            api_key="none",
            http_client=cast(
                "Any", httpx.Client(transport=httpx.MockTransport(respond))
            ),
        ),
        mode=instructor.Mode.JSON,
    )

    def ask(prompt: str) -> Any:
        return client.chat.completions.create(
            model="m",
            response_model=kind,
            max_retries=retries,
            messages=[{"role": "user", "content": prompt}],
        )

    return ask


def ask_pydantic_ai(double: Double, kind: Any, retries: int) -> Ask:
    """Return a function that asks an agent of pydantic-ai."""
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.function import FunctionModel

    def respond(messages: Any, info: Any) -> Any:
        answer = double.answer(str(messages))
        return pydantic_ai.ModelResponse([pydantic_ai.TextPart(answer)])

    agent = pydantic_ai.Agent(
        FunctionModel(respond),
        output_type=pydantic_ai.PromptedOutput(kind),
        retries=retries,
    )
    # `run_sync` of an agent leaves the event loop that it makes open.
    return lambda prompt: asyncio.run(agent.run(prompt)).output


LIBRARIES = {"instructor": ask_instructor, "pydantic-ai": ask_pydantic_ai}


@cases("library", LIBRARIES)
@cases("way", WAYS)
def test_a_loop_around_the_same_code_asks_again_as_the_library_does(
    library: Callable[[Double, Any, int], Ask], way: Way
) -> None:
    alone = Double(way.answers)
    expected = library(alone, way.kind, 1)("Go.")
    assert expected.model_dump(mode="json") == way.right
    assert way.reason in alone.prompts[1]

    within = Double(way.answers)
    ask = library(within, way.kind, 0)

    @heedful.self_correcting(max_attempts=2, store=None)
    def answer(task: str, hint: str) -> Any:
        return ask(f"{task}\n{hint}")

    assert answer("Go.").model_dump(mode="json") == way.right
    assert way.reason in within.prompts[1]


# guardrails-ai judges by the JSON Schema of a class alone, and passes these answers.
PASSED_BY_GUARDRAILS = ("Parcel", "Load", "Due")


@cases("way", WAYS)
def test_a_loop_around_a_guard_of_guardrails_refuses_what_the_class_refuses(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise it asks the network for prices.
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    guardrails = pytest.importorskip("guardrails")
    guard = guardrails.Guard.for_pydantic(way.kind)
    guard.configure(allow_metrics_collection=False)

    def ask(double: Double, prompt: str, num_reasks: int) -> Any:
        def respond(*, messages: Any, **options: Any) -> str:
            return double.answer(str(list(messages)))

        messages = [{"role": "user", "content": prompt}]
        return guard(respond, messages=messages, num_reasks=num_reasks)

    alone = Double(way.answers)
    outcome = ask(alone, "Go.", num_reasks=1)
    is_readable = way.reason != "JSON"
    passes_wrong = is_readable and way.kind.__name__ in PASSED_BY_GUARDRAILS
    assert outcome.validation_passed
    assert (len(alone.prompts) == 1) is passes_wrong
    assert (outcome.validated_output == way.right) is not passes_wrong

    within = Double(way.answers)

    @heedful.self_correcting(
        checks=[heedful.checks.json_schema(way.kind)], max_attempts=2, store=None
    )
    def answer(task: str, hint: str) -> Any:
        outcome = ask(within, f"{task}\n{hint}", num_reasks=0)
        if not outcome.validation_passed:
            raise ValueError(outcome.error or outcome.reask)
        return outcome.validated_output

    assert answer("Go.") == way.right
    assert len(within.prompts) == 2


@cases("library", LIBRARIES)
def test_after_the_last_attempt_the_error_of_the_library_is_the_cause(
    library: Callable[[Double, Any, int], Ask],
) -> None:
    wrong = '{"code": "X1"}'
    with pytest.raises(Exception, match=r"begin with P|retries") as given_up:
        library(Double([wrong] * 2), Parcel, 1)("Go.")

    ask = library(Double([wrong] * 2), Parcel, 0)

    @heedful.self_correcting(max_attempts=2, store=None)
    def answer(task: str, hint: str) -> Any:
        return ask(f"{task}\n{hint}")

    with pytest.raises(heedful.NotPassed) as not_passed:
        answer("Go.")
    assert type(not_passed.value.__cause__) is given_up.type


async def test_an_async_validator_and_model_retry_of_pydantic_ai_refuse() -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.function import FunctionModel

    async def begin_with_p(code: str) -> str:
        if not code.startswith("P"):
            raise pydantic_ai.ModelRetry("the code has to begin with P")
        return code

    def agent_of(double: Double, retries: int) -> Any:
        def respond(messages: Any, info: Any) -> Any:
            answer = double.answer(str(messages))
            return pydantic_ai.ModelResponse([pydantic_ai.TextPart(answer)])

        agent = pydantic_ai.Agent(FunctionModel(respond), retries=retries)
        agent.output_validator(begin_with_p)
        return agent

    alone = Double(["X1", "P1"])
    expected = (await agent_of(alone, 1).run("Go.")).output
    assert expected == "P1"
    assert "begin with P" in alone.prompts[1]

    within = Double(["X1", "P1"])
    agent = agent_of(within, 0)
    judged = Double(["X1", "P1"])

    async def ask(task: str, hint: str) -> str:
        return (await agent.run(f"{task}\n{hint}")).output

    async def answer(task: str, hint: str) -> str:
        return judged.answer(hint)

    # The same validator, inside the function and as a check.
    loops = ((ask, (), within), (answer, (begin_with_p,), judged))
    for generate, checks, double in loops:
        result = await heedful.run(
            "Go.",
            generate=generate,
            checks=checks,
            store=None,
        )
        assert result.candidate == expected
        assert "begin with P" in double.prompts[1]
