"""The presets: their rules, and that each ends every loop."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from heedful import policies
from heedful.errors import InvalidInput, UnknownName
from heedful.loop.codec import policy_from, policy_to
from heedful.loop.decide import Done, Policy, decide
from heedful.loop.policies import PRESETS, policy, preset
from heedful.loop.record import Goal, Improvement
from heedful.loop.stop import All, Echo, Fatigue, MaxAttempts, NothingMet, Repeat
from tests.loop.support import DRIFT, tried
from tests.tables import cases

GOALS = (Goal("alignment", 0.75), DRIFT)
ORCHESTRATOR = (MaxAttempts(4), Fatigue(0.5, 0.15, decay=0.05), Echo(3, across="scope"))
default, thorough, orchestrator, reflection, stage = map(
    preset, ("default", "thorough", "orchestrator", "reflection", "stage")
)


@cases(
    ("name", "rules", "against", "goals"),
    {
        "default": (
            "default",
            (MaxAttempts(4), Repeat(2), All(Repeat(1, near=False), NothingMet())),
            "best",
            (),
        ),
        "thorough": ("thorough", (MaxAttempts(5), Repeat(2, near=False)), "best", ()),
        "orchestrator": ("orchestrator", ORCHESTRATOR, "previous", GOALS),
    },
)
def test_a_preset_holds_these_rules(name, rules, against, goals):
    assert preset(name) == Policy(
        rules, Improvement(0.05, against), unscored="stop", name=name, goals=goals
    )
    assert preset(name) is PRESETS[name] is getattr(policies, name)


def test_an_unknown_preset_names_those_there_are():
    with pytest.raises(UnknownName, match="there are: default, orchestrator") as caught:
        preset("Default")
    names = ("default", "orchestrator", "reflection", "stage", "thorough")
    assert caught.value.known == tuple(sorted(PRESETS)) == names


@given(st.sampled_from(sorted(PRESETS)), st.text("ab", max_size=5))
def test_every_preset_ends_every_loop(name, texts):
    limit = max(r.limit for r in preset(name).rules if isinstance(r, MaxAttempts))
    loop = replace(tried((texts + "abcde")[:limit]), goals=PRESETS[name].goals)
    assert isinstance(decide(loop, preset(name)), Done)


@cases(
    "value",
    {
        "text": "default, on_failure=take over",
        "text without a preset": "on_failure = take over",
        "text in quotes": 'default, on_failure="take over"',
        "object": {"on_failure": "take over"},
    },
)
def test_a_policy_says_what_happens_if_a_rung_fails(value):
    written = policy(value)
    assert written.on_failure == "take over"
    assert written.rules == default.rules
    assert policy_from(policy_to(written)) == written
    assert policy(policy_to(written)) == written


def test_a_rung_that_fails_raises_unless_the_policy_says_otherwise():
    assert policy("default, attempts.limit=2").on_failure == "raise"
    assert policy("on_failure=raise").on_failure == "raise"


@pytest.mark.parametrize("value", ["on_failure=skip", "on_failure=", "on_failure=1"])
def test_another_reaction_to_a_failure_is_refused(value):
    with pytest.raises(InvalidInput, match=r"on_failure is .* raise or take over"):
        policy(value)


def test_a_misspelled_field_names_those_there_are():
    with pytest.raises(UnknownName, match="on_failure"):
        policy("on_fail=take over")
