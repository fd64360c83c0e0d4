"""Which parameter of a function gets the feedback, and of a check the context."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

import heedful

RIGHT = heedful.checks.contains("right")


def recording(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    return wrapper


class Caller:
    def method(self, task: str, hint: str) -> str:
        return f"hint {hint}"

    def __call__(self, task: str, style: str = "short", hint: str = "") -> str:
        return f"{style} hint {hint}"

    @staticmethod
    def bare(task: str, feedback: str) -> str:
        return f"hint {feedback}"


def keyword_only(task: str, *, hint: str) -> str:
    return f"hint {hint}"


def after_defaults(task: str, style: str = "short", hint: str = "") -> str:
    return f"{style} hint {hint}"


def positional(task: str, what: str, /) -> str:
    return f"hint {what}"


def modelled(model: str, task: str, hint: str) -> str:
    return f"{model} hint {hint}"


async def coroutine(task: str, *, feedback: str = "") -> str:
    return f"hint {feedback}"


HEARING: list[Any] = [
    pytest.param(lambda task, text: f"hint {text}", id="a second one without default"),
    pytest.param(keyword_only, id="keyword-only"),
    pytest.param(after_defaults, id="after one with a default"),
    pytest.param(positional, id="positional-only"),
    pytest.param(coroutine, id="async, by the name feedback"),
    pytest.param(Caller().method, id="a method"),
    pytest.param(Caller(), id="an object"),
    pytest.param(recording(after_defaults), id="decorated"),
    pytest.param(functools.partial(modelled, "large"), id="partial, from the left"),
]


@pytest.mark.parametrize("generate", HEARING)
async def test_the_feedback_reaches_the_function(generate):
    result = await heedful.run(
        "t", generate=generate, checks=[RIGHT], max_attempts=2, store=None
    )
    first, second = result.loop.attempts
    assert "right" not in str(first.candidate.text)
    assert "right" in str(second.candidate.text)
    assert second.deaf == ""


def only_kept(task: str, code: str = "kept") -> str:
    return code


DEAF: list[Any] = [
    pytest.param(lambda task, code="kept": code, id="a default that keeps a value"),
    pytest.param(only_kept, id="a default"),
    pytest.param(lambda task, *, code="kept": code, id="keyword-only with a default"),
    pytest.param(recording(only_kept), id="decorated"),
]


@pytest.mark.parametrize("generate", DEAF)
async def test_a_default_is_not_overwritten(generate):
    result = await heedful.run(
        "t", generate=generate, checks=[RIGHT], max_attempts=2, store=None
    )
    assert [attempt.candidate.text for attempt in result.loop.attempts] == ["kept"] * 2
    assert result.loop.attempts[1].deaf


@pytest.mark.parametrize(
    "generate",
    [
        pytest.param(lambda task, hint: hint or "wrong", id="run"),
        pytest.param(lambda task, hint: f" {hint}\n" if hint else "no", id="blanks"),
    ],
)
async def test_our_feedback_is_no_answer(generate):
    result = await heedful.run(
        "t", generate=generate, checks=[RIGHT], max_attempts=2, store=None
    )
    assert not result.passed
    evaluation = result.loop.attempts[1].evaluation
    assert evaluation is not None
    finding = evaluation.errors[0]
    assert finding.key == "answer: feedback"


def with_limit(text: str, limit: int = 3) -> bool:
    return len(text) <= limit


def with_context(text: str, limit: int = 9, *, context: heedful.Context) -> bool:
    return len(text) <= limit and context.attempt == 1


async def yielding(text: str) -> Any:
    if len(text) > 3:
        yield "too long"


CHECKS: list[Any] = [
    pytest.param(with_limit, "abcd", id="a default that keeps a value"),
    pytest.param(with_context, "abc" * 9, id="keyword-only context"),
    pytest.param(yielding, "abcd", id="an async generator"),
]


@pytest.mark.parametrize(("check", "bad"), CHECKS)
async def test_a_check_gets_what_it_takes(check, bad):
    for text, passes in (("abc", True), (bad, False)):
        result = await heedful.run(
            "t",
            generate=lambda _, c=text: c,
            checks=[check],
            max_attempts=1,
            store=None,
        )
        assert result.passed is passes
