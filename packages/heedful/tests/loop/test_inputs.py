"""A value outside what is allowed raises InvalidInput, which names the field."""

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, cast

import pytest

import heedful
from heedful.drive.run_loop import Run
from heedful.errors import InvalidInput
from heedful.lessons.lesson import Scope
from heedful.loop.codec import policy_from, policy_to, rule_to
from heedful.loop.decide import Policy, decide
from heedful.loop.policies import default
from heedful.loop.record import (
    Evaluation,
    Finding,
    Goal,
    Improvement,
    Loop,
    Usage,
    check_goals,
)
from heedful.loop.replay import replay
from heedful.loop.stop import All, Budget, Echo, MaxAttempts, Plateau
from tests.loop.support import evaluated, loop_of
from tests.loop.test_stop import NAN, WRONG_SETTINGS
from tests.tables import cases

INF = math.inf
RULES = {"rules": (MaxAttempts(),)}
WRONG: list[tuple[Any, str, list[Any]]] = [
    (Finding, "severity", [-0.1, 1.1, NAN, "high", None]),
    (Finding, "level", ["fatal"]),
    (Goal, "threshold", [NAN, INF, -INF, 1e300, "0.5", None, True]),
    (Goal, "direction", ["up"]),
    (Evaluation, "met", [-0.1, 1.1, NAN, True, "1"]),
    (Evaluation, "preference", [NAN, INF, None, True, "1"]),
    (Improvement, "min_gain", [0, -1, 0.0004, NAN, INF, "0.05", True]),
    (Improvement, "against", ["first", None, 1]),
    (Usage, "calls", [-1]),
    (Usage, "cost", [-0.1, NAN, INF]),
    (Usage, "seconds", [-0.1, NAN, INF]),
    (Scope, "tenant", ["", "x" * 201, "a\nb", "a\u202eb"]),
    (Scope, "project", ["\0"]),
    (Policy, "rules", [(), MaxAttempts(), [MaxAttempts()]]),
    (Policy, "rule", [(3,), (MaxAttempts,), ("attempts",)]),  # the class is no rule
    (Policy, "unscored", ["maybe"]),
    (Policy, "goals", [("q >= 1",), (None,)]),
    (Policy, "improvement", [0.1, Improvement, None]),
    *WRONG_SETTINGS,
]
REQUIRED: dict[Any, dict[str, Any]] = {
    Finding: {"check": "c", "message": "m"},
    Goal: {"score": "s", "threshold": 1},
    Policy: RULES,
}
# What an error calls a field, where it is not the field's own name.
FIELD_NAMES = {
    Usage: "usage",
    Budget: "budget {}",
    (Goal, "threshold"): "threshold of s",
}


def wrong_cases() -> Iterator[Any]:
    """Yield each value of `WRONG`: what the error calls it, the record, the fields."""
    for record, name, values in WRONG:
        by_record = FIELD_NAMES.get(record, "{}")
        error_name = FIELD_NAMES.get((record, name), by_record).format(name)
        field = "rules" if name == "rule" else name
        for value in values:
            case = f"{record.__name__}({name}={value!r})"
            yield pytest.param(error_name, record, {field: value}, id=case)


@pytest.mark.parametrize(
    ("field", "record", "fields"),
    [
        *wrong_cases(),
        pytest.param("plateau", Plateau, {"patience": None}, id="Plateau of nothing"),
        pytest.param("budget", Budget, {}, id="Budget of nothing"),
        pytest.param("All", All, {}, id="All of nothing"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(field, record, fields):
    required = REQUIRED.get(record, {})
    with pytest.raises(InvalidInput) as caught:
        record(**required | fields)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field} is ")
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("score", [NAN, INF, 1e300, "1", None], ids=repr)
def test_a_wrong_score_is_refused_by_its_name(score):
    with pytest.raises(InvalidInput, match=r"^score s is ") as caught:
        Evaluation(scores={"s": score})
    assert caught.value.field == "score s"


LOW = Goal("q", 0.5)
HIGH = Goal("q", 0.5, "at_most")


@cases(
    ("goals", "wrong"),
    {
        "exactly there": ((LOW, HIGH), ""),
        "the same thousandth": ((Goal("q", 0.1 + 0.2), Goal("q", 0.3, "at_most")), ""),
        "above": (
            (Goal("q", 0.501), HIGH),
            "threshold of q >= 0.501 is 0.501; it must be at most 0.5: ",
        ),
        "the other order": (
            (HIGH, Goal("q", 0.9)),
            "threshold of q >= 0.9 is 0.9; it must be at most 0.5: another",
        ),
    },
)
def test_goals_that_no_score_can_meet_together_are_refused(goals, wrong):
    makers: list[Any] = [
        lambda: check_goals(goals),
        lambda: Policy((MaxAttempts(),), goals=goals),
        lambda: Run("t", generate=lambda task, hint: "", goals=goals, store=None),
    ]
    for make in makers:
        with pytest.raises(InvalidInput) if wrong else nullcontext() as caught:
            make()
        if caught is not None:
            assert str(caught.value).startswith(wrong)
            assert caught.value.field == wrong.split(" is ")[0]


@cases("numbers", {"from 2": [2], "from 0": [0, 1]})
def test_attempts_are_numbered_from_1_without_gaps(numbers):
    attempts = tuple(heedful.Attempt(n, heedful.Candidate.of("x")) for n in numbers)
    with pytest.raises(InvalidInput, match="attempt numbers"):
        Loop("loop", attempts=attempts)


NO_LOOP: Any = None
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "decide without a loop": (lambda: decide(NO_LOOP, default), "loop"),
    "decide with a name": (lambda: decide(Loop("x"), cast("Any", "default")), "policy"),
    "replay of a dict": (lambda: replay(cast("Any", {}), default), "loop"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_anything_but_a_loop_and_a_policy_is_refused(case):
    call, field = REFUSED[case]
    with pytest.raises(InvalidInput) as caught:
        call()
    assert caught.value.field == field


# -- code of the user's own


def fatigue(loop: Loop) -> None:
    """A rule of a user that has the name of a shipped one."""


class Louder(Echo):
    """A shipped rule that a user made another of; it has the same name."""


def test_a_rule_with_the_name_of_a_shipped_one_is_stored_as_code():
    assert rule_to(fatigue) == {"rule": "fatigue", "custom": True}
    assert rule_to(Louder()) == {"rule": "echo", "custom": True}
    document = policy_to(Policy((fatigue, Louder(), MaxAttempts(3))))
    assert policy_from(document).rules == (MaxAttempts(3),)


@cases("answer", {"True": True, "an object": object()})
def test_a_rule_that_answers_no_text_is_refused_by_name(answer):
    def rule(loop: Loop) -> Any:
        return answer

    with pytest.raises(
        InvalidInput, match=r"result of rule 'rule' is.*it must be a text"
    ):
        decide(loop_of(evaluated("x")), Policy((rule,)))
