"""Policies and goals as people write them: what is meant, and what is refused by
name.
"""

import json
import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import heedful
from heedful.errors import InvalidInput, UnknownName, UsageError
from heedful.loop import codec, stop
from heedful.loop.decide import Policy
from heedful.loop.policies import PRESETS, default, goal, orchestrator, policy, stage
from heedful.loop.record import Goal, Improvement
from heedful.loop.stop import (
    All,
    Budget,
    Echo,
    Fatigue,
    MaxAttempts,
    NothingMet,
    Plateau,
    Repeat,
)
from tests.loop import support

HOPELESS = All(Repeat(1, near=False), NothingMet())
QUALITY = Goal("quality", 0.8)


def three(*rules: heedful.StopRule, **fields: Any) -> Policy:
    return Policy((MaxAttempts(3), *rules), **fields)


# -- text


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_itself(name):
    for written in (name, f"  {name}\n", {"preset": name}, PRESETS[name]):
        assert policy(written) is PRESETS[name]


def test_an_empty_object_is_the_default_and_a_policy_stays_itself():
    assert policy({}) is default
    mine = Policy((lambda loop: "no",))
    assert policy(mine) is mine
    assert heedful.policy("stage") is stage


TEXTS: list[tuple[str, Policy]] = [
    (
        "thorough, attempts.limit=6, fatigue, -repeat, min_gain=0.1, quality >= 0.8",
        Policy((MaxAttempts(6), Fatigue()), Improvement(0.1), goals=(QUALITY,)),
    ),
    ("default, -repeat", Policy((MaxAttempts(4), HOPELESS))),
    ("default, -repeat+nothing_met", Policy((MaxAttempts(4), Repeat(2)))),
    (
        "default, repeat.near=false",
        Policy((MaxAttempts(4), Repeat(2, near=False), HOPELESS)),
    ),
    ("default, -fatigue", Policy(default.rules)),  # there is none
    ("stage, fatigue=true", three(Fatigue())),
    ("stage, fatigue=false, echo", three(Echo())),
    ("stage, fatigue.limit=0.5, fatigue.decay=0", three(Fatigue(0.5, decay=0))),
    ("stage, fatigue.limit=0.5, -fatigue", three()),
    ("stage, -fatigue, fatigue.limit=0.5", three(Fatigue(0.5))),
    ("stage, -attempts, repeat", Policy((Repeat(),))),
    ("stage, echo.across=scope", three(Echo(across="scope"))),
    ("stage, plateau.patience=null, plateau.floor=0.3", three(Plateau(None, 0.3))),
    (
        "stage, budget.tokens=50, budget.seconds=1.5",
        three(Budget(tokens=50, seconds=1.5)),
    ),
    ("stage, against=previous", three(improvement=Improvement(against="previous"))),
    ("stage, unscored=again", three(unscored="again")),
    (
        "orchestrator, against=best",
        Policy(orchestrator.rules, goals=orchestrator.goals),
    ),
    ("stage, a >= 0.5, b ≤ 2", three(goals=(Goal("a", 0.5), Goal("b", 2, "at_most")))),
    (
        "orchestrator, alignment >= 0.9",
        replace(orchestrator, goals=(orchestrator.goals[1], Goal("alignment", 0.9))),
    ),
]


@pytest.mark.parametrize(("text", "meant"), TEXTS)
def test_a_text_is_a_preset_and_what_is_changed(text, meant):
    made = policy(text)
    assert made == replace(meant, name=text)
    assert codec.policy_from(json.loads(json.dumps(codec.policy_to(made)))) == made


def test_a_changed_policy_is_named_by_its_text():
    assert policy(" thorough, fatigue ").name == "thorough, fatigue"
    assert policy("thorough, name=mine").name == "mine"
    assert policy({"fatigue": True}).name == ""
    assert policy({"fatigue": True, "name": "mine"}).name == "mine"


# -- objects

OBJECTS: list[tuple[dict[str, Any], Policy]] = [
    ({"preset": "stage", "attempts": {"limit": 2}}, Policy((MaxAttempts(2),))),
    ({"preset": "stage", "attempts": {}}, three()),
    ({"preset": "stage", "repeat": {"times": 2}}, three(Repeat(2))),
    ({"preset": "stage", "repeat": True, "attempts": False}, Policy((Repeat(),))),
    (
        {"repeat": {"near": False}},
        Policy((MaxAttempts(4), Repeat(2, near=False), HOPELESS)),
    ),
    ({"rules": [{"rule": "attempts", "limit": 2}]}, Policy((MaxAttempts(2),))),
    (
        {
            "rules": [
                {
                    "rule": "all",
                    "rules": [{"rule": "attempts"}, {"rule": "nothing_met"}],
                }
            ]
        },
        Policy((All(MaxAttempts(), NothingMet()),)),
    ),
    (
        {"rules": [{"rule": "attempts"}], "fatigue": {"limit": 0.5}, "min_gain": 0.2},
        Policy((MaxAttempts(), Fatigue(0.5)), Improvement(0.2)),
    ),
    (
        {"preset": "stage", "goals": ["a >= 0.5", {"score": "b", "threshold": 1}]},
        three(goals=(Goal("a", 0.5), Goal("b", 1))),
    ),
]


@pytest.mark.parametrize(("given_", "meant"), OBJECTS)
def test_an_object_has_a_preset_and_what_is_changed(given_, meant):
    before = json.dumps(given_)
    assert policy(given_) == meant
    assert json.dumps(given_) == before


# -- refused by name: the field, the value, what is allowed

INTEGER = "it must be an integer of at least 1"
REFUSED: list[tuple[Any, str]] = [
    (None, "policy is None; it must be a preset, text such as"),
    (5, "policy is 5; it must be a preset"),
    ("default, attempts.limit=0", f"attempts.limit is 0; {INTEGER}"),
    (
        "default, attempts=5",
        "attempts is 5; it must be an object with the rule's fields, true",
    ),
    (
        "default, q > 0.5",
        "a goal is 'q > 0.5'; it must be written like \"alignment >= 0.75\"",
    ),
    (
        "default, attempts.most=5",
        "rule attempts is {'limit': 4, 'most': 5}; it must be",
    ),
    ("default, repeat.near=maybe", "repeat.near is 'maybe'; it must be true or false"),
    (
        "default, plateau.patience=null",
        "plateau is 'silent'; it must be a rule with patience",
    ),
    ("default, budget", "budget is 'empty'; it must be one or more of tokens, cost"),
    ("default, min_gain=0", "min_gain is 0; it must be a number in 0.001..1e+12"),
    ("default, against=first", "against is 'first'; it must be best or previous"),
    ("default, goals", "goals is True; it must be a list such as"),
    ("default, rules", "rules is True; it must be a list of objects such as"),
    ("default, -name", "name is False; it must be text"),
    (
        "stage, -attempts",
        "rules is (); it must be at least one stop rule: a loop must end",
    ),
    (
        "default, q >= 2, q <= 1",
        "threshold of q >= 2 is 2.0; it must be at most 1: another goal",
    ),
    ({"min_gain": "0.1"}, "min_gain is '0.1'; it must be a number in"),
    ({"unscored": []}, "unscored is []; it must be stop or again"),
    (
        {"rules": ["attempts"]},
        "rules is ['attempts']; it must be a list of objects such as",
    ),
    (
        {"rules": [{"rule": "nope"}]},
        "rule is 'nope'; it must be one of attempts, budget, echo,",
    ),
    (
        {"rules": [{"rule": "attempts", "most": 2}]},
        "rule attempts is {'most': 2}; it must be",
    ),
    (
        {"rules": [{"rule": "all", "rules": [{"rule": "attempts"}]}]},
        "All is (MaxAttempts(limit",
    ),
    ({"rules": [{"rule": "all"}]}, "rules is None; it must be a list of objects"),
    (
        {"rules": [{"rule": []}]},
        "rule is []; it must be one of attempts, budget, echo,",
    ),
    (
        {"attempts": {5: 1}},
        "rule attempts is {'limit': 4, 5: 1}; it must be settings of",
    ),
]


@pytest.mark.parametrize(("given_", "said"), REFUSED)
def test_a_wrong_value_is_refused_with_its_field_and_what_is_allowed(given_, said):
    with pytest.raises(InvalidInput) as caught:
        policy(given_)
    assert str(caught.value).startswith(said)


UNKNOWN: list[tuple[Any, str]] = [
    ("", "no policy is called ''; there are: default, orchestrator,"),
    ({"preset": None}, "no policy is called 'None'; there are: default,"),
    (
        "default,",
        "no rule or field of a policy is called ''; there are: against, attempts,",
    ),
    (
        "default, nope",
        "no rule or field of a policy is called 'nope'; there are: against,",
    ),
    (
        "default, preset=stage",
        "no rule or field of a policy is called 'preset'; there are:",
    ),
    (
        {"presett": "stage"},
        "no rule or field of a policy is called 'presett'; there are:",
    ),
    (
        {5: True},
        "no rule or field of a policy is called 5; there are: against, attempts,",
    ),
]


@pytest.mark.parametrize(("given_", "said"), UNKNOWN)
def test_an_unknown_name_is_refused_with_the_names_there_are(given_, said):
    with pytest.raises(UnknownName) as caught:
        policy(given_)
    assert str(caught.value).startswith(said)
    assert set(caught.value.known) >= (
        {*PRESETS} if "no policy" in said else {*stop.STOP_RULES}
    )


pieces = st.sampled_from(
    [
        *(
            "attempts",
            "repeat",
            "fatigue",
            "echo",
            "budget",
            "plateau",
            "nothing_met",
            "min_gain",
        ),
        *(
            "against",
            "goals",
            "rules",
            "name",
            "unscored",
            "preset",
            "",
            "all",
            "limit",
        ),
    ]
)
literals = st.sampled_from(
    ["0", "1", "2", "-1", "0.5", "NaN", "true", "null", "[]", "{}", "x", ""]
)
parts = st.one_of(
    pieces,
    pieces.map("-{}".format),
    st.builds("{}={}".format, pieces, literals),
    st.builds(
        "{}.{}={}".format,
        pieces,
        st.sampled_from(["limit", "times", "tokens"]),
        literals,
    ),
    st.builds(
        "{} {} {}".format,
        pieces,
        st.sampled_from([">=", "<=", "≥", "≤", ">"]),
        literals,
    ),
    st.text(max_size=8),
)
json_data = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-2, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner)
    ),
    max_leaves=6,
)


@given(
    st.lists(parts, max_size=4).map(lambda written: ", ".join(["default", *written]))
    | st.dictionaries(pieces, json_data, max_size=3)
    | json_data
)
def test_anything_is_a_policy_or_refused(given_):
    made = None
    with suppress(UsageError):
        made = policy(given_)
    assert (
        made is None
        or codec.policy_from(json.loads(json.dumps(codec.policy_to(made)))) == made
    )


RULES: list[heedful.StopRule] = [
    MaxAttempts(7),
    Budget(tokens=5, cost=0.5, seconds=2.5, calls=3),
    Echo(2, "scope"),
    Repeat(3, near=False),
    Fatigue(0.75, 0.25, decay=0.125),
    Plateau(None, 0.25),
    NothingMet(),
    All(Repeat(), All(NothingMet(), Echo())),
]


@given(support.with_goals | st.sampled_from(list(PRESETS.values())))
@example(
    Policy(
        tuple(RULES),
        Improvement(0.125, "previous"),
        unscored="again",
        name="m",
        goals=(QUALITY,),
    )
)
def test_a_stored_policy_is_read_as_the_same(made):
    plain = json.loads(json.dumps(codec.policy_to(made)))
    assert codec.policy_from(plain) == policy(plain) == made
    assert {stop.rule_name(rule) for rule in RULES[:-1]} == set(stop.STOP_RULES)


# -- goals


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("quality>=0.8", QUALITY),
        ("  quality  >=  0.8 ", QUALITY),
        ("quality ≥ 0.8", QUALITY),
        ("drift <= 0.25", Goal("drift", 0.25, "at_most")),
        ("drift ≤ .25", Goal("drift", 0.25, "at_most")),
        ("two words >= -1e3", Goal("two words", -1000.0)),
        ("a=b >= 1", Goal("a=b", 1)),
        ("größe >= 1", Goal("größe", 1)),
        ({"score": "quality", "threshold": 0.8}, QUALITY),
        (
            {"score": "d", "threshold": 1, "direction": "at_most"},
            Goal("d", 1, "at_most"),
        ),
    ],
)
def test_a_goal_is_written_as_it_is_read(written, meant):
    assert goal(written) == meant
    assert goal(str(meant)) == meant


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "quality", "quality >= ", ">= 0.8", "quality > 0.8", "quality == 0.8"),
        *(
            "quality >= 0.8 or so",
            "quality >= high",
            "quality >= nan",
            "quality >= inf",
        ),
        *("quality >= 1e13", "quality >= true", "0.8"),
        *(None, 5, True, [], ["quality >= 0.8"], {}, {"score": "q"}, {"threshold": 1}),
        *({"score": score, "threshold": 1} for score in ("", 5)),
        *(
            {"score": "q", "threshold": number}
            for number in ("0.8", True, None, [1], math.nan)
        ),
        *(
            {"score": "q", "threshold": 1, **more}
            for more in ({"direction": "up"}, {"weight": 2})
        ),
    ],
)
def test_a_wrong_goal_is_refused_with_the_right_form(wrong):
    with pytest.raises(InvalidInput) as caught:
        goal(wrong)
    assert caught.value.field == "a goal"
    assert caught.value.allowed.startswith(
        'written like "alignment >= 0.75", or an object with'
    )
