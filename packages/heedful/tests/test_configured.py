"""Policies and goals as people write them: what is meant, and what is refused by
name.
"""

import json
import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

import heedful
from heedful.errors import InvalidInput, UnknownName, UsageError
from heedful.loop import codec, stop
from heedful.loop.decide import Policy
from heedful.loop.policies import PRESETS, default, goal, policy, stage
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
from tests.tables import cases

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


TEXTS = [
    pytest.param(
        "thorough, attempts.limit=6, fatigue, -repeat, min_gain=0.1, quality >= 0.8",
        Policy((MaxAttempts(6), Fatigue()), Improvement(0.1), goals=(QUALITY,)),
        id="fields, a rule, a rule less and a goal",
    ),
    pytest.param(
        "default, -repeat", Policy((MaxAttempts(4), HOPELESS)), id="a rule less"
    ),
    pytest.param(
        "default, repeat.near=false",
        Policy((MaxAttempts(4), Repeat(2, near=False), HOPELESS)),
        id="a field of a rule of two",
    ),
    # there is none
    pytest.param("stage, fatigue=true", three(Fatigue()), id="a rule with true"),
    pytest.param("stage, fatigue=false, echo", three(Echo()), id="a rule with false"),
    pytest.param(
        "stage, plateau.patience=null, plateau.floor=0.3",
        three(Plateau(None, 0.3)),
        id="a field that is null",
    ),
    pytest.param(
        "stage, budget.tokens=50, budget.seconds=1.5",
        three(Budget(tokens=50, seconds=1.5)),
        id="limits of a budget",
    ),
    pytest.param(
        "stage, against=previous",
        three(improvement=Improvement(against="previous")),
        id="a field of the policy",
    ),
    pytest.param(
        "stage, a >= 0.5, b ≤ 2",
        three(goals=(Goal("a", 0.5), Goal("b", 2, "at_most"))),
        id="goals",
    ),
]


@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_a_text_is_a_preset_and_what_is_changed(text, expected):
    configured = policy(text)
    assert configured == replace(expected, name=text)
    assert (
        codec.policy_from(json.loads(json.dumps(codec.policy_to(configured))))
        == configured
    )


def test_a_changed_policy_is_named_by_its_text():
    assert policy(" thorough, fatigue ").name == "thorough, fatigue"
    assert policy("thorough, name=mine").name == "mine"
    assert policy({"fatigue": True}).name == ""
    assert policy({"fatigue": True, "name": "mine"}).name == "mine"


# -- objects

OBJECTS = {
    "a field of a rule": (
        {"preset": "stage", "attempts": {"limit": 2}},
        Policy((MaxAttempts(2),)),
    ),
    "a rule more and one less": (
        {"preset": "stage", "repeat": True, "attempts": False},
        Policy((Repeat(),)),
    ),
    "a field of the default": (
        {"repeat": {"near": False}},
        Policy((MaxAttempts(4), Repeat(2, near=False), HOPELESS)),
    ),
    "rules in place of a preset": (
        {"rules": [{"rule": "attempts", "limit": 2}]},
        Policy((MaxAttempts(2),)),
    ),
    "rules, a rule and a gain": (
        {"rules": [{"rule": "attempts"}], "fatigue": {"limit": 0.5}, "min_gain": 0.2},
        Policy((MaxAttempts(), Fatigue(0.5)), Improvement(0.2)),
    ),
    "goals as text and as objects": (
        {"preset": "stage", "goals": ["a >= 0.5", {"score": "b", "threshold": 1}]},
        three(goals=(Goal("a", 0.5), Goal("b", 1))),
    ),
}


@cases(("settings", "expected"), OBJECTS)
def test_an_object_has_a_preset_and_what_is_changed(settings, expected):
    before = json.dumps(settings)
    assert policy(settings) == expected
    assert json.dumps(settings) == before


# -- refused by name: the field, the value, what is allowed

INTEGER = "it must be an integer of at least 1"
REFUSED = {
    "nothing": (None, "policy is None; it must be a preset, text such as"),
    "a limit of 0": ("default, attempts.limit=0", f"attempts.limit is 0; {INTEGER}"),
    "a number for a rule": (
        "default, attempts=5",
        "attempts is 5; it must be an object with the rule's fields, true",
    ),
    "a goal with >": (
        "default, q > 0.5",
        "a goal is 'q > 0.5'; it must be written like \"alignment >= 0.75\"",
    ),
    "an unknown field": (
        "default, attempts.most=5",
        "rule attempts is {'limit': 4, 'most': 5}; it must be",
    ),
    "a word for a boolean": (
        "default, repeat.near=maybe",
        "repeat.near is 'maybe'; it must be true or false",
    ),
    "a budget of nothing": (
        "default, budget",
        "budget is 'empty'; it must be one or more of tokens, cost",
    ),
    "no rules": (
        "stage, -attempts",
        "rules is (); it must be at least one stop rule: a loop must end",
    ),
    "a goal above another": (
        "default, q >= 2, q <= 1",
        "threshold of q >= 2 is 2.0; it must be at most 1: another goal",
    ),
    "an unknown rule": (
        {"rules": [{"rule": "nope"}]},
        "rule is 'nope'; it must be one of attempts, budget, echo,",
    ),
}


@cases(("settings", "message"), REFUSED)
def test_a_wrong_value_is_refused_with_its_field_and_what_is_allowed(settings, message):
    with pytest.raises(InvalidInput) as caught:
        policy(settings)
    assert str(caught.value).startswith(message)


UNKNOWN = {
    "empty text": ("", "no policy is called ''; there are: default, orchestrator,"),
    "a comma at the end": (
        "default,",
        "no rule or field of a policy is called ''; there are: against, attempts,",
    ),
}


@cases(("settings", "message"), UNKNOWN)
def test_an_unknown_name_is_refused_with_the_names_there_are(settings, message):
    with pytest.raises(UnknownName) as caught:
        policy(settings)
    assert str(caught.value).startswith(message)
    assert set(caught.value.known) >= (
        {*PRESETS} if "no policy" in message else {*stop.STOP_RULES}
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
def test_anything_is_a_policy_or_refused(settings):
    configured = None
    with suppress(UsageError):
        configured = policy(settings)
    assert (
        configured is None
        or codec.policy_from(json.loads(json.dumps(codec.policy_to(configured))))
        == configured
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
# Those of later versions, with their defaults.
NAMED = {stop.rule_name(rule) for rule in RULES}
RULES += [make() for name, make in stop.STOP_RULES.items() if name not in NAMED]


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
def test_a_stored_policy_is_read_as_the_same(original):
    document = json.loads(json.dumps(codec.policy_to(original)))
    assert codec.policy_from(document) == policy(document) == original


# -- goals


@cases(
    ("text", "expected"),
    {
        "without spaces": ("quality>=0.8", QUALITY),
        "with spaces": ("  quality  >=  0.8 ", QUALITY),
        "with one sign for both": ("quality ≥ 0.8", QUALITY),
        "at most": ("drift <= 0.25", Goal("drift", 0.25, "at_most")),
        "at most with one sign": ("drift ≤ .25", Goal("drift", 0.25, "at_most")),
        "a score of two words": ("two words >= -1e3", Goal("two words", -1000.0)),
        "a score with a sign": ("a=b >= 1", Goal("a=b", 1)),
        "a score with an umlaut": ("größe >= 1", Goal("größe", 1)),
        "an object": ({"score": "quality", "threshold": 0.8}, QUALITY),
        "an object with a direction": (
            {"score": "d", "threshold": 1, "direction": "at_most"},
            Goal("d", 1, "at_most"),
        ),
    },
)
def test_a_goal_is_written_as_it_is_read(text, expected):
    assert goal(text) == expected
    assert goal(str(expected)) == expected


WRONG_GOALS: list[object] = [
    *("", "quality", "quality >= ", ">= 0.8", "quality > 0.8", "quality == 0.8"),
    *("quality >= 0.8 or so", "quality >= high", "quality >= nan", "quality >= inf"),
    *("quality >= 1e13", "quality >= true", "0.8"),
    *(None, 5, True, [], ["quality >= 0.8"], {}, {"score": "q"}, {"threshold": 1}),
    *({"score": score, "threshold": 1} for score in ("", 5)),
    *({"score": "q", "threshold": "0.8"}, {"score": "q", "threshold": True}),
    *({"score": "q", "threshold": None}, {"score": "q", "threshold": [1]}),
    {"score": "q", "threshold": math.nan},
    {"score": "q", "threshold": 1, "direction": "up"},
    {"score": "q", "threshold": 1, "weight": 2},
]


@pytest.mark.parametrize("wrong", WRONG_GOALS, ids=repr)
def test_a_wrong_goal_is_refused_with_the_right_form(wrong):
    with pytest.raises(InvalidInput) as caught:
        goal(wrong)
    assert caught.value.field == "a goal"
    assert caught.value.allowed.startswith(
        'written like "alignment >= 0.75", or an object with'
    )
