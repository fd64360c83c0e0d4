"""Records <-> JSON data: exact in both directions, through real JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata import codec
from errata.errors import InvalidInput
from errata.loop.decide import Policy, decide
from errata.loop.record import Attempt, Candidate, Override
from errata.loop.stop import All, Echo, MaxAttempts, Repeat
from tests.loop import support

candidates = st.text().map(Candidate.of) | st.builds(Candidate, st.text())
attempts = st.builds(
    Attempt,
    st.integers(1, 9),
    candidates,
    st.none() | support.evaluations,
    support.usages,
    st.none() | st.integers(1, 9),
)


def through_json(plain: Any) -> Any:
    return json.loads(json.dumps(plain))


@given(support.findings)
def test_findings(finding):
    assert codec.finding_from(through_json(codec.finding_to(finding))) == finding


@given(st.none() | support.evaluations)
def test_evaluations(evaluation):
    assert codec.evaluation_from(through_json(codec.evaluation_to(evaluation))) == evaluation


@given(attempts)
def test_attempts(attempt):
    assert codec.attempt_from(through_json(codec.attempt_to(attempt))) == attempt


@given(support.goals)
def test_goals(goals):
    assert tuple(codec.goal_from(through_json(codec.goal_to(g))) for g in goals) == goals


@given(support.overrides)
def test_overrides(override):
    assert Override(**through_json(codec.override_to(override))) == override


@given(support.policies)
def test_policies(policy):
    assert codec.policy_from(through_json(codec.policy_to(policy))) == policy


@given(support.loops(), support.policies)
def test_verdicts(loop, policy):
    verdict = decide(loop, policy)
    assert codec.verdict_from(through_json(codec.verdict_to(verdict))) == verdict


def mine(loop: Any) -> str | None:
    return None


def test_a_rule_of_the_users_is_named_and_not_kept():
    whole = Policy((MaxAttempts(2), mine, All(mine, Echo()), All(Echo(), All(Repeat(), mine))))
    plain = through_json(codec.policy_to(whole))
    assert [r["rule"] for r in plain["rules"]] == ["attempts", "mine", "all", "all"]
    assert codec.policy_from(plain) == Policy((MaxAttempts(2),))
    (silent,) = codec.policy_from(codec.policy_to(Policy((mine,)))).rules
    assert silent(support.loop_of(support.evaluated("x"))) is None


@pytest.mark.parametrize(
    ("plain", "field"),
    [
        ({"rule": "nope"}, "rule"),
        ({}, "rule"),
        ({"rule": "attempts", "most": 3}, "rule attempts"),
        ({"rule": "attempts", "limit": 0}, "limit"),
        ({"rule": "all", "rules": [{"rule": "attempts"}]}, "All"),
        ({"rule": "all"}, "rules"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_by_name(plain, field):
    with pytest.raises(InvalidInput) as caught:
        codec.rule_from(plain)
    assert caught.value.field == field


def test_what_is_written_holds_only_what_differs_from_the_default():
    assert codec.finding_to(support.finding("k")) == {"check": "check", "message": "k", "key": "k"}
    assert asdict(Override("echo", "ada")) == codec.override_to(Override("echo", "ada"))
