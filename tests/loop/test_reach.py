"""Each history of `reach` shows its rule alone; each proof holds for all short
histories.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heedful
from heedful import Reach, reach
from heedful.loop.decide import Again, Policy, decide
from heedful.loop.policies import PRESETS
from heedful.loop.record import (
    NO_USAGE,
    Evaluation,
    Finding,
    Goal,
    Improvement,
    Loop,
    Usage,
)
from heedful.loop.stop import (
    All,
    Budget,
    Echo,
    Fatigue,
    MaxAttempts,
    Plateau,
    Repeat,
    flat,
)
from tests.loop import support

# -- every history of an alphabet of its own: what an attempt may be, for the rules
#  there are

# Better or not; fresh, near or same; what it finds: p and o are the same ones each
# time, n is new, p is persistent; how severe that is; how much is met; what it costs;
# whether it is judged.
Letter = tuple[bool, str, str, float, float, Usage, bool]


def letters(policy: Policy) -> list[Letter]:
    """All attempts that could matter to one of the rules."""
    rules = list(flat(policy.rules))
    plateaus = [rule for rule in rules if isinstance(rule, Plateau)]
    floors = {rule.floor for rule in plateaus if rule.floor}
    repeat = any(isinstance(rule, Repeat) for rule in rules)
    echo = any(isinstance(rule, Echo) for rule in rules)
    stale = (
        echo or repeat or plateaus or any(isinstance(rule, Fatigue) for rule in rules)
    )
    better = (True, False) if stale else (True,)
    seen = ("fresh", "near", "same", "greedy") if repeat else ("fresh",)
    finds = ("", "n", "p", "o", "np", "no") if echo else ("", "n") if floors else ("",)
    severity = (1.0, *(floor - 0.001 for floor in floors))
    met = (0.0, 0.5) if heedful.NothingMet() in rules else (0.5,)
    budgets = [rule for rule in rules if isinstance(rule, Budget)]
    judged = (True, False) if policy.unscored == "again" and stale else (True,)
    combinations = product(
        better, seen, finds, severity, met, usages_of(budgets), judged
    )
    return [
        letter
        for letter in combinations
        if letter[6] or (letter[2:5] == ("", 1.0, 0.5) and not letter[0])
    ]


def usages_of(budgets: Sequence[Budget]) -> list[Usage]:
    """Nothing, and each limit of each budget, alone and with each of another."""
    usages = [Usage(prompt_tokens=budget.tokens) for budget in budgets if budget.tokens]
    usages += [Usage(cost=budget.cost) for budget in budgets if budget.cost]
    return list(
        dict.fromkeys(
            [NO_USAGE, *usages, *(a + b for a, b in product(usages, usages) if a != b)]
        )
    )


def add_attempt(loop: Loop, letter: Letter, step: float) -> Loop:
    """The loop with one more attempt, which never passes and whose findings are
    warnings.
    """
    better, seen, finds, severity, met, usage, judged = letter
    number = len(loop.attempts) + 1
    last = next((a.evaluation for a in reversed(loop.attempts) if a.evaluation), None)
    score = last.scores["quality"] if last else 0.0
    if better:
        score += step
    keys = [f"new {number}" if key == "n" else key for key in finds]
    findings = [
        Finding(
            "c",
            k,
            fix="",
            level="warning",
            severity=severity,
            key=k,
            persistent=k == "p",
        )
        for k in keys
    ]
    evaluation = (
        Evaluation(tuple(findings), {"quality": score}, met=met) if judged else None
    )
    text = heedful.Candidate.of(f"text {1 if seen in ('same', 'greedy') else number}")
    near = 1 if seen == "near" and number > 1 else None
    cold = seen == "greedy"
    return loop.then(
        heedful.Attempt(
            number, text, evaluation=evaluation, usage=usage, repeats=near, greedy=cold
        )
    )


def without(policy: Policy, place: int) -> Policy:
    rules = policy.rules[:place] + policy.rules[place + 1 :]
    return replace(policy, rules=rules or (MaxAttempts(10**9),))


def stops_alone(loop: Loop, policy: Policy) -> list[int]:
    """The places of the rules without each of which the loop goes on."""
    places = range(len(policy.rules))
    return [n for n in places if isinstance(decide(loop, without(policy, n)), Again)]


def first_fires(policy: Policy, max_histories: int) -> tuple[dict[int, int], int]:
    """Rule by place -> the shortest history that shows it, up to which length all were
    tried.

    `max_histories` bounds the number of histories.
    """
    alphabet = letters(policy)
    lengths = dict[int, int]()
    tried = 0
    times = [
        r.times
        for r in flat(policy.rules)
        if isinstance(r, Echo) and r.across == "scope"
    ]
    goal = (Goal("quality", 1e6),)
    step = policy.improvement.min_gain + 0.001
    waiting = [
        Loop("every", goal, echoes={"p": n} if n else {}, improves=policy.improvement)
        for n in range(max(times, default=0) + 1)
    ]
    for length in range(1, 8):
        tried += len(waiting) * len(alphabet)
        if tried > max_histories or not waiting:
            return lengths, length - 1 if waiting else 99
        longer = [
            add_attempt(loop, letter, step) for loop in waiting for letter in alphabet
        ]
        waiting = [loop for loop in longer if isinstance(decide(loop, policy), Again)]
        going = set(map(id, waiting))
        for place in {
            n
            for loop in longer
            if id(loop) not in going
            for n in stops_alone(loop, policy)
        }:
            lengths.setdefault(place, length)
    return lengths, 7


def check_history(answer: Reach, policy: Policy, place: int) -> None:
    """The history is what it is given for: Done by that rule alone, Again before and
    without it.
    """
    loop = answer.history
    assert loop is not None
    assert answer.proof == ""
    assert answer.rule == policy.rules[place]
    assert support.rules(decide(loop, policy)) == [answer.name]
    assert isinstance(decide(loop, without(policy, place)), Again)
    for end in range(1, len(loop.attempts)):
        assert isinstance(decide(loop.upto(end), policy), Again)
    assert loop.overrides == ()
    assert loop.cancelled == ""


def check_reach(policy: Policy, max_histories: int) -> None:
    lengths, tried = first_fires(policy, max_histories)
    for place, answer in enumerate(reach(policy)):
        if answer.history is not None:
            check_history(answer, policy, place)
            length = len(answer.history.attempts)
            assert lengths.get(place, length) >= length, answer
            assert place in lengths or length > tried, answer
        elif policy.unscored == "stop":
            assert answer.proof
            assert place not in lengths, answer
        else:
            assert not answer.proof


# -- the alphabet against many policies

few: st.SearchStrategy[heedful.StopRule] = st.one_of(
    st.builds(MaxAttempts, st.integers(1, 4)),
    st.builds(
        Fatigue,
        st.sampled_from([0.1, 0.15, 0.3]),
        decay=st.sampled_from([0, 0.05, 0.15]),
    ),
    st.builds(Echo, st.integers(1, 3), st.sampled_from(["loop", "scope"])),
    st.builds(Repeat, st.integers(1, 2), st.booleans()),
    st.just(heedful.NothingMet()),
    st.builds(Plateau, st.integers(1, 2), st.sampled_from([None, 0.3, 0.5])),
    st.builds(
        Budget, tokens=st.sampled_from([10, 20]), cost=st.sampled_from([None, 1.0])
    ),
)
small = st.builds(
    Policy,
    st.lists(few | few | st.builds(All, few, few), min_size=1, max_size=3).map(tuple),
    st.builds(
        Improvement,
        st.sampled_from([0.05, 0.0015]),
        st.sampled_from(["best", "previous"]),
    ),
    unscored=st.sampled_from(["stop", "stop", "again"]),
)


@settings(max_examples=40)
@given(small)
def test_reach_agrees_with_every_history_for_any_small_policy(policy):
    check_reach(policy, 600)


# -- by hand: the first attempt after which a rule can fire, or why it cannot

NO_PROOF = "no history of up to 100 attempts was found, and no proof"
SLIGHT = All(MaxAttempts(2), Plateau(None, floor=0.3))


def before(name: str) -> str:
    return f"{name} ends every loop before it alone would"


@pytest.mark.parametrize(
    ("policy", "answers"),
    [
        pytest.param(
            Policy((heedful.Budget(tokens=10), heedful.Budget(cost=1.0))),
            [1, 1],
            id="two budgets",
        ),
        pytest.param(
            Policy((Plateau(None, floor=0.5), Plateau(None, floor=0.3))),
            [1, before("plateau")],
            id="the stronger floor hides the weaker",
        ),
        pytest.param(
            Policy((MaxAttempts(4), Fatigue(0.5), Plateau(1))),
            [4, "3 reruns reach 0.45 < 0.5", 2],
            id="fatigue is too high",
        ),
        pytest.param(
            Policy((MaxAttempts(5), Fatigue(0.5), Plateau(1))),
            [5, before("plateau"), 2],
            id="the plateau comes before fatigue",
        ),
        pytest.param(
            Policy((MaxAttempts(9), Fatigue(0.5, increment=0.25))),
            [9, 3],
            id="fatigue at 3",
        ),
        pytest.param(
            Policy((MaxAttempts(9), Fatigue(0.45), Plateau(4))),
            [9, 4, before("fatigue")],
            id="fatigue comes before the plateau",
        ),
        pytest.param(
            Policy((MaxAttempts(1), Fatigue(1.0))),
            [1, "0 reruns reach 0 < 1"],
            id="one attempt never tires",
        ),
        pytest.param(
            Policy((MaxAttempts(3), MaxAttempts(2))),
            [before("attempts"), 2],
            id="the smaller limit hides the larger",
        ),
        pytest.param(Policy((MaxAttempts(101),)), [""], id="too many attempts to try"),
        # an attempt may improve and bring a finding that the ones before it had not
        pytest.param(
            Policy((SLIGHT, Plateau(1))),
            [2, 2],
            id="a finding the ones before had not, plateau",
        ),
        pytest.param(
            Policy((SLIGHT, Fatigue(0.15))),
            [2, 2],
            id="a finding the ones before had not, fatigue",
        ),
        pytest.param(
            Policy((All(Plateau(1), Fatigue(0.3, decay=0)),)),
            [3],
            id="a plateau with fatigue",
        ),
    ],
)
def test_reach_names_the_first_attempt_or_the_reason(policy, answers):
    for reached, answer in zip(reach(policy), answers, strict=True):
        after = f" can fire, first after attempt {answer}"
        words = after if isinstance(answer, int) else f" cannot fire: {answer}"
        assert str(reached) == reached.name + (words if answer else f": {NO_PROOF}")


FIRST = {
    "default": [4, 3, 2],
    "thorough": [5, 3],
    "orchestrator": [4, None, 1],
    "reflection": [3, 1],
    "stage": [3],
}


@pytest.mark.parametrize("name", PRESETS)
def test_every_rule_of_a_preset_can_fire_except_fatigue_of_the_orchestrator(name):
    policy = PRESETS[name]
    answers = reach(policy)
    lengths = [
        len(answer.history.attempts) if answer.history else None for answer in answers
    ]
    assert lengths == FIRST[name]
    for place, answer in enumerate(answers):
        if answer.history is not None:
            check_history(answer, policy, place)
    if name != "orchestrator":  # which has goals on two scores: see below
        check_reach(policy, 600)


def mine(loop: Loop) -> str | None:
    return "enough" if len(loop.attempts) == 2 else None


def test_nothing_is_proven_about_code_of_the_user():
    custom, shipped = reach(Policy((mine, MaxAttempts(2))))
    assert custom.history is None
    assert shipped.history is None
    assert str(custom) == f"mine: {NO_PROOF}"  # it might be silent another time
    assert str(shipped) == f"attempts: {NO_PROOF}"
