"""What users write by instinct works, or says what to do: the decorator, checks,
policies.
"""

import asyncio
import functools
from typing import Any, cast

import numpy as np
import pytest

import heedful
from heedful import errors
from heedful.drive.portal import run_sync, self_correcting
from heedful.integrations import Host
from heedful.loop.record import Evaluation, Finding
from heedful.testing import FixedEmbedder
from tests.drive.support import WANTED, Check
from tests.tables import cases


def lower(answer: str) -> bool:
    """Names are written in lower case."""
    return answer.islower()


class Invoice:
    """An answer, which somebody gives as a check."""


class Group:
    def method(self, answer: str) -> str:
        return "method"

    async def __call__(self, answer: str) -> str:
        return "object"


HOLDS = "must hold: Names are written in lower case."
# A check, and what it says about the candidate "Ann Miller": message by message.
ANSWERS = {
    "False of a function with a docstring": (lower, [HOLDS]),
    "a text": (lambda answer: "too long" if len(answer) > 3 else "", ["too long"]),
    "a list": (lambda answer, context: ["one", Finding("own", "two")], ["one", "two"]),
    "a finding": (lambda answer: Finding("own", "single"), ["single"]),
    "an object with a call": (Group(), ["object"]),
    "a partial function": (
        functools.partial(lambda answer, at, mark: f"{at.task} {mark}", mark="bound"),
        ["t bound"],
    ),
    "False of numpy": (
        lambda answer: np.bool_(len(answer) < 3),
        ["<lambda> returned False"],
    ),
    "True of numpy": (lambda answer: np.bool_(True), []),
    "None": (lambda answer: None, []),
    "an empty text": (lambda answer: "", []),
    "an evaluation": (
        lambda answer: Evaluation((Finding("own", "judged"),)),
        ["judged"],
    ),
    "True": (lambda answer: True, []),
    "True with a remark": (lambda answer: (True, "looks good"), []),
    "False with a remark": (lambda answer: (False, "too long"), ["too long"]),
}


@cases(("check", "messages"), ANSWERS)
async def test_what_a_check_answers_becomes_findings(check, messages):
    policy = "default, attempts.limit=1"
    result = await heedful.run(
        "t",
        generate=lambda task: "Ann Miller",
        checks=[check],
        policy=policy,
        store=None,
    )
    judged = result.loop.attempts[0].evaluation
    assert judged is not None
    assert [finding.message for finding in judged.findings] == messages
    assert result.passed is not bool(messages)


# -- the decorator


def test_a_plain_function_works_inside_a_running_loop_and_in_one_of_its_own():
    @self_correcting(checks=[Check()], store=None)
    def inner(task: str, hint: str) -> str:
        return WANTED if hint else task

    @self_correcting(checks=[Check()], store=None)
    def outer(task: str, hint: str) -> str:
        return inner(task)

    async def main() -> list[str]:
        return [inner("a"), outer("b")]

    assert asyncio.run(main()) == run_sync(main()) == [WANTED] * 2


# -- values of the wrong type


class Blocking(FixedEmbedder):
    def embed(self, texts: Any) -> Any:
        return [[1.0] * self.dimensions for _ in texts]


def once(**options: Any) -> Any:
    return run_sync(heedful.run("t", generate=lambda *_: "x", store=None, **options))


# A name that is public, an option as it is misspelt, and as it is called.
MISSPELT_OPTIONS: list[tuple[Any, str, str]] = [
    (heedful.AttemptReport, "ouput", "output"),
    (heedful.Budget, "tokns", "tokens"),
    (heedful.Memory.remember, "lessn", "lesson"),
    (heedful.Pipeline, "memry", "memory"),
    (heedful.Policy, "ruls", "rules"),
    (heedful.checks.regex, "fixx", "fix"),
]
EMBEDDER = r"heedful\.models\.open_embedder\(\)"
REFUSED: list[tuple[Any, type[Exception], str]] = [
    *(
        (
            lambda e=e: heedful.Memory(":memory:", embedder=e),
            errors.InvalidInput,
            EMBEDDER,
        )
        for e in ("minilm", FixedEmbedder)
    ),
    (
        lambda: run_sync(heedful.Memory(":memory:", embedder=Blocking()).recall("t")),
        errors.InvalidInput,
        "async",
    ),
    *(
        (
            lambda findings=findings: Evaluation(findings=findings),
            errors.InvalidInput,
            "findings",
        )
        for findings in ("bad", ["bad"])
    ),
    (lambda: Evaluation(scores=cast("Any", 0.7)), errors.InvalidInput, "scores"),
    (lambda: once(evaluate=lambda *_: 0.7), errors.CheckFailed, r"Evaluation\(scores="),
    *(
        (
            lambda a=a: once(checks=[lambda _: a]),
            errors.CheckFailed,
            "Finding.*texts.*Evaluation",
        )
        for a in (0.7, [3])
    ),
    (lambda: self_correcting(check=[]), errors.UnknownName, r"did you mean 'checks'\?"),
    (
        lambda: self_correcting(holdout=0),
        errors.UnknownName,
        r'memory=Memory\("heedful.db", holdout=0\)',
    ),
    (
        lambda: cast("Any", heedful.Memory)(tell="ruls"),
        errors.UnknownName,
        "option of Memory is called 'tell'; it is an option of run",
    ),
    (
        lambda: self_correcting(policy="attempts=2"),
        errors.InvalidInput,
        r"as in attempts\.limit=2",
    ),
    (
        lambda: once(checks=[cast(Any, Invoice)]),
        errors.InvalidInput,
        "checks is .'Invoice'.*pass output=Invoice, or .*json_schema.Invoice",
    ),
    (
        lambda: Host(memory=None, checks=[cast(Any, Invoice)]),
        errors.InvalidInput,
        "Invoice is a class",
    ),
    (
        lambda: heedful.Pipeline("p", store=None).stage(checks=[Invoice])(len),
        errors.InvalidInput,
        "Invoice is a class",
    ),
    (
        lambda: cast("Any", heedful.checks).schema(Invoice),
        errors.MissingAttribute,
        "no attribute 'schema' .did you mean 'json_schema'",
    ),
    (
        lambda: heedful.open_model("gpt-4o"),
        errors.UnknownName,
        "no model is called 'gpt-4o'; .* openai:gpt-4o, anthropic:gpt-4o, google:gpt-4",
    ),
    (
        lambda: once(scope="mine", memory=":memory:"),
        errors.InvalidInput,
        r"scope is 'mine'; it must be heedful\.Scope",
    ),
    (
        lambda: once(retries=3),
        errors.UnknownName,
        "option of run is .*max_attempts=3 makes 3 attempts at most",
    ),
    (
        lambda: run_sync(cast("Any", heedful.open_loop)("a", "t", max_attempts=3)),
        errors.UnknownName,
        r'option of open_loop is .*policy="default, attempts\.limit=3"',
    ),
    (
        lambda: heedful.Pipeline("p", store=None).stage(max_attempts=3),
        errors.UnknownName,
        "option of a stage is .*retries=2 makes 3 attempts at most",
    ),
    *(
        (
            lambda target=target, name=name: target(**{name: 1}),
            errors.UnknownName,
            f"option of {target.__name__} is called '{name}' .did you mean '{meant}'",
        )
        for target, name, meant in MISSPELT_OPTIONS
    ),
    (
        lambda: self_correcting(goals=["quality"]),
        errors.InvalidInput,
        "alignment >= 0.75",
    ),
    (
        lambda: self_correcting(checks=[heedful.checks.regex]),
        errors.InvalidInput,
        "checks.regex",
    ),
    (
        lambda: cast("Any", self_correcting(lower))("t", "x"),
        TypeError,
        "loop passes the hint to the parameter named hint",
    ),
    *(
        (lambda c=c: once(checks=[c]), errors.CheckFailed, r"takes \(candidate\) or")
        for c in (lambda: "", lambda a, b, c: "")
    ),
]


REFUSED_NAMES = [
    "a name as embedder",
    "a class as embedder",
    "an embedder that is not async",
    "findings as text",
    "a finding as text",
    "scores as number",
    "a judge that answers a number",
    "a check that answers a number",
    "a check that answers a list of numbers",
    "check for checks",
    "the share of a memory that is withheld, for a loop",
    "what a loop is told, for a memory",
    "a rule with a number in the place of a field",
    "a class as a check of a loop",
    "a class as a check of a host",
    "a class as a check of a stage",
    "a module of checks as a check",
    "a model without its provider",
    "a text as scope",
    "retries for run in the place of max_attempts",
    "max_attempts for open_loop in the place of a policy",
    "max_attempts for a stage in the place of retries",
    *(f"a misspelt option of {target.__name__}" for target, _, _ in MISSPELT_OPTIONS),
    "a goal without a threshold",
    "a check that was not made",
    "the hint by position",
    "a check of nothing",
    "a check of three",
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED, ids=REFUSED_NAMES)
def test_a_wrong_value_is_refused_with_what_to_give(call, error, message):
    with pytest.raises(error, match=message):
        call()
