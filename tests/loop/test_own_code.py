"""Rules and improvement that are code of the user's own are not taken for the shipped ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from heedful.errors import InvalidInput
from heedful.loop.codec import policy_from, policy_to, rule_to
from heedful.loop.decide import Policy, decide
from heedful.loop.reach import reach
from heedful.loop.record import Evaluation, Goal, Improvement, Loop
from heedful.loop.stop import All, Echo, Fatigue, MaxAttempts, Plateau
from tests.loop.support import evaluated, loop_of, rules


@dataclass(frozen=True)
class Tired:
    """A rule of the user's own that has the name of a shipped one, and fields of its own."""

    threshold: int = 2
    name: ClassVar[str] = "fatigue"

    def __call__(self, loop: Loop) -> str | None:
        return "tired" if len(loop.attempts) >= self.threshold else None


class Louder(Echo):
    def __call__(self, loop: Loop) -> str | None:
        return "loud" if loop.attempts[-1].labels else None


class Kinder(Improvement):
    def __call__(self, best: Evaluation, new: Evaluation, goals: tuple[Goal, ...]) -> bool:
        return True


def test_a_rule_with_the_name_of_a_shipped_one_is_stored_as_code():
    assert rule_to(Tired()) == {"rule": "fatigue", "custom": True}
    assert rule_to(Louder()) == {"rule": "echo", "custom": True}
    assert rule_to(Echo()) == {"rule": "echo", "times": 3, "across": "loop"}
    stored = policy_to(Policy((Tired(), Louder(), MaxAttempts(3)), Kinder()))
    assert stored["min_gain"] is None
    assert policy_from(stored).rules == (MaxAttempts(3),)


def test_of_a_shipped_rule_with_another_call_nothing_is_proven():
    for rule in (Louder(), All(Louder(), MaxAttempts(2))):
        one, other = reach(Policy((rule, MaxAttempts(3))))
        assert (one.history, one.proof, other.proof) == (None, "", "")
        assert "no proof" in str(one)
    (fatigue, _) = reach(Policy((MaxAttempts(4), Echo()), Kinder()))
    assert fatigue.proof == ""


def test_what_a_rule_finds_need_not_make_the_attempt_worse():
    """An attempt may improve and bring a finding that the ones before it had not."""
    slight = All(MaxAttempts(2), Plateau(None, floor=0.3))
    for other in (Plateau(1), Fatigue(0.15)):
        assert str(reach(Policy((slight, other)))[0]) == (
            "attempts+plateau can fire, first after attempt 2"
        )
    novel = All(Plateau(None, novelty=True), Fatigue(0.3, decay=0))
    assert str(reach(Policy((novel,)))[0]) == "plateau+fatigue can fire, first after attempt 3"


def answering(answer: Any) -> Any:
    def rule(loop: Loop) -> Any:
        return answer

    return rule


@pytest.mark.parametrize("answer", [True, False, 1, 0, ["why"], {}, object()])
def test_a_rule_that_answers_no_text_is_named(answer):
    loop = loop_of(evaluated("x"))
    with pytest.raises(
        InvalidInput, match=r"the rule 'rule' answers.*it must be text that says why"
    ):
        decide(loop, Policy((answering(answer),)))


def test_a_rule_that_answers_with_nothing_at_all_is_silent():
    loop = loop_of(evaluated("x"))
    for answer in (None, ""):
        decide(loop, Policy((answering(answer),)))
    assert rules(decide(loop, Policy((answering("enough"),)))) == ["rule"]


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("rule", {"rules": (MaxAttempts,)}),  # the class, not a rule
        ("rule", {"rules": ("attempts",)}),
        ("rules", {"rules": MaxAttempts()}),
        ("rules", {"rules": [MaxAttempts()]}),
        ("improvement", {"improvement": 0.1}),
        ("improvement", {"improvement": Improvement}),
        ("improvement", {"improvement": None}),
    ],
)
def test_what_is_no_rule_or_improvement_is_refused_before_anything_is_spent(field, fields):
    with pytest.raises(InvalidInput) as caught:
        Policy(**{"rules": (MaxAttempts(),), **fields})
    assert caught.value.field == field
