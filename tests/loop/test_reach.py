"""Whether a rule can fire: after how many attempts it alone ends a loop."""

import pytest

import heedful
from heedful import reach
from heedful.loop.decide import Policy
from heedful.loop.policies import PRESETS
from heedful.loop.record import Loop
from heedful.loop.stop import All, Budget, Echo, Fatigue, MaxAttempts, Plateau, Repeat

USELESS = "cannot fire"
UNKNOWN = "was not seen to fire"
SLIGHT = All(MaxAttempts(2), Plateau(None, floor=0.3))


def mine(loop: Loop) -> str | None:
    raise AssertionError("a rule of the user is not called")


@pytest.mark.parametrize(
    ("rules", "answers"),
    [
        pytest.param((Budget(tokens=10), Budget(cost=1.0)), [1, 1], id="two budgets"),
        pytest.param(
            (All(Budget(tokens=10), Budget(cost=1.0)),), [1], id="both of two budgets"
        ),
        pytest.param(
            (Plateau(None, floor=0.5), Plateau(None, floor=0.3), MaxAttempts(3)),
            [1, USELESS, 3],
            id="the stronger floor hides the weaker",
        ),
        pytest.param(
            (MaxAttempts(4), Fatigue(0.5), Plateau(1)),
            [4, USELESS, 2],
            id="fatigue is too high",
        ),
        pytest.param(
            (MaxAttempts(9), Fatigue(0.5, increment=0.25)), [9, 3], id="fatigue at 3"
        ),
        pytest.param(
            (MaxAttempts(9), Echo(2), Repeat(3, near=False)),
            [9, 2, 4],
            id="echo and repeat",
        ),
        pytest.param(
            (MaxAttempts(3), MaxAttempts(2)),
            [USELESS, 2],
            id="the smaller limit hides the larger",
        ),
        pytest.param((MaxAttempts(101),), [UNKNOWN], id="too many attempts to try"),
        pytest.param((SLIGHT, Plateau(1), MaxAttempts(9)), [2, 2, 9], id="slight"),
        pytest.param(
            (heedful.NothingMet(), MaxAttempts(2)), [1, 2], id="nothing was met"
        ),
        pytest.param((mine, MaxAttempts(2)), [UNKNOWN, 2], id="a rule of the user"),
    ],
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
