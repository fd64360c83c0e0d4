"""Whether a rule can fire: after how many attempts it alone ends a loop."""

import pytest

import heedful
from heedful.loop.decide import Policy
from heedful.loop.policies import PRESETS
from heedful.loop.record import Loop
from heedful.loop.stop import All, Budget, Echo, Fatigue, MaxAttempts, Plateau, Repeat
from tests.loop.reach import reach
from tests.tables import cases

USELESS = "cannot fire"
UNKNOWN = "was not seen to fire"
SLIGHT = All(MaxAttempts(2), Plateau(None, floor=0.3))


def mine(loop: Loop) -> str | None:
    raise AssertionError("a rule of the user is not called")


@cases(
    ("rules", "answers"),
    {
        "two budgets": ((Budget(tokens=10), Budget(cost=1.0)), [1, 1]),
        "both of two budgets": ((All(Budget(tokens=10), Budget(cost=1.0)),), [1]),
        "the stronger floor hides the weaker": (
            (Plateau(None, floor=0.5), Plateau(None, floor=0.3), MaxAttempts(3)),
            [1, USELESS, 3],
        ),
        "fatigue is too high": (
            (MaxAttempts(4), Fatigue(0.5), Plateau(1)),
            [4, USELESS, 2],
        ),
        "fatigue at 3": ((MaxAttempts(9), Fatigue(0.5, increment=0.25)), [9, 3]),
        "echo and repeat": (
            (MaxAttempts(9), Echo(2), Repeat(3, near=False)),
            [9, 2, 4],
        ),
        "the smaller limit hides the larger": (
            (MaxAttempts(3), MaxAttempts(2)),
            [USELESS, 2],
        ),
        "too many attempts to try": ((MaxAttempts(101),), [UNKNOWN]),
        "slight": ((SLIGHT, Plateau(1), MaxAttempts(9)), [2, 2, 9]),
        "nothing was met": ((heedful.NothingMet(), MaxAttempts(2)), [1, 2]),
        "a rule of the user": ((mine, MaxAttempts(2)), [UNKNOWN, 2]),
    },
)
def test_reach_names_the_first_attempt(rules, answers):
    for reached, answer in zip(reach(Policy(rules)), answers, strict=True):
        after = f"can fire, first after attempt {answer}"
        words = after if isinstance(answer, int) else answer
        assert words in str(reached)


FIRST = {
    "default": [4, 3, 2],
    "thorough": [5, 3],
    "orchestrator": [4, None, 1],
    "reflection": [3, 1],
    "stage": [3],
}


@pytest.mark.parametrize("name", PRESETS)
def test_every_rule_of_a_preset_can_fire_except_fatigue_of_the_orchestrator(name):
    assert [answer.attempts for answer in reach(PRESETS[name])] == FIRST[name]
