"""The presets: their rules, and that each ends every loop."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful import policies
from heedful.errors import UnknownName
from heedful.loop.decide import Done, Policy, decide
from heedful.loop.policies import PRESETS, preset
from heedful.loop.record import Goal, Improvement
from heedful.loop.stop import (
    All,
    Echo,
    Fatigue,
    MaxAttempts,
    NothingMet,
    Plateau,
    Repeat,
)
from tests.loop.support import DRIFT, tried

GOALS = (Goal("alignment", 0.75), DRIFT)
ORCHESTRATOR = (MaxAttempts(4), Fatigue(0.5, 0.15, decay=0.05), Echo(3, across="scope"))
default, thorough, orchestrator, reflection, stage = map(
    preset, ("default", "thorough", "orchestrator", "reflection", "stage")
)


@pytest.mark.parametrize(
    ("name", "rules", "gain", "against", "goals"),
    [
        pytest.param(
            "default",
            (MaxAttempts(4), Repeat(2), All(Repeat(1, near=False), NothingMet())),
            0.05,
            "best",
            (),
            id="default",
        ),
        pytest.param(
            "thorough",
            (MaxAttempts(5), Repeat(2, near=False)),
            0.05,
            "best",
            (),
            id="thorough",
        ),
        pytest.param(
            "orchestrator", ORCHESTRATOR, 0.05, "previous", GOALS, id="orchestrator"
        ),
        pytest.param(
            "reflection",
            (MaxAttempts(3), Plateau(1, 0.3)),
            0.1,
            "best",
            (),
            id="reflection",
        ),
        pytest.param("stage", (MaxAttempts(3),), 0.05, "best", (), id="stage"),
    ],
)
def test_a_preset_holds_these_rules(name, rules, gain, against, goals):
    assert preset(name) == Policy(
        rules, Improvement(gain, against), unscored="stop", name=name, goals=goals
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
