"""Records <-> JSON data: exact in both directions, through real JSON."""

import json
from dataclasses import asdict, fields, replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from heedful.loop import codec, stop
from heedful.loop.decide import (
    Again,
    Decision,
    Policy,
    Standing,
    Trigger,
    decide,
    standing_of,
)
from heedful.loop.policies import PRESETS
from heedful.loop.record import Attempt, Candidate, Override
from heedful.loop.stop import All, Budget, Echo, MaxAttempts, Repeat
from heedful.redact import redact_data
from tests.loop import support

candidates = st.text().map(Candidate.of) | st.builds(Candidate, st.text())
number = st.integers(1, 9)
labels = st.dictionaries(support.words, support.words, max_size=2)
attempts = st.builds(
    Attempt,
    number,
    candidates,
    evaluation=st.none() | support.evaluations,
    usage=support.usages,
    repeats=st.none() | number,
    labels=labels,
    judged_by=st.lists(support.words, max_size=2).map(tuple),
    greedy=st.booleans(),
)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


some_goal = support.goals.filter(bool).map(lambda goals: goals[0])


@given(support.findings | support.evaluations | attempts | support.expiring | some_goal)
def test_any_record_survives_json(record):
    document = through_json(codec.to_document(record))
    assert codec.from_document(type(record), document) == record


@given(attempts, st.sampled_from(("AKIAIOSFODNN7EXAMPLE", "x7Qp2mZk9hunter2")))
def test_a_redacted_record_is_what_the_redaction_of_its_data_returns(attempt, secret):
    names = ("--password", secret)
    record = replace(attempt, judged_by=names, labels={"password": secret}, deaf=secret)
    document = redact_data(codec.to_document(record))
    assert codec.to_document(record, redacts=True) == document


@pytest.mark.parametrize("rule", stop.STOP_RULES.values(), ids=stop.STOP_RULES)
def test_a_shipped_rule_is_stored_with_all_its_settings(rule):
    instance = Budget(tokens=1, cost=0.5) if rule is Budget else rule()
    document = through_json(codec.rule_to(instance))
    assert codec.rule_from(document) == instance
    names = {field.name for field in fields(rule)} - {"rungs"}  # it has none
    assert document.keys() == {"rule", *names}
    assert document["rule"] == rule.name


@given(support.loops(), support.policies, st.integers(0, 9), st.floats(0, 1e12))
def test_every_decision_survives_json(loop, policy, attempt, at):
    verdict = decide(loop, policy)
    worn = standing_of(loop, policy)
    document = through_json(codec.decision_to(verdict, worn, decided=0.5))
    assert codec.decision_from(document, attempt, at) == Decision(
        attempt, verdict, standing=worn, at=at, decided=0.5
    )
    assert codec.verdict_from(through_json(codec.verdict_to(verdict))) == verdict
    bare = Decision(attempt, verdict, standing=Standing(), at=at, decided=at)
    document = through_json(codec.decision_to(verdict, None))
    assert codec.decision_from(document, attempt, at) == bare


def test_an_older_record_is_read():
    old: dict[str, Any] = {"verdict": "again", "feedback": "", "lifted": []}
    old["reasons"] = [{"code": "words", "detail": "too many"}]
    decision = codec.decision_from(old, 1, at=0.0)
    assert decision.verdict == Again((Trigger("words", "too many", ""),))
    assert decision.standing == Standing(0.0, 0.0, {})
    record = Attempt(1, Candidate.of("x"), evaluation=support.evaluated("k"))
    attempt = codec.to_document(record)
    assert not {"labels", "greedy"} & attempt.keys()
    assert not {"met", "preference", "usage"} & attempt["evaluation"].keys()
    assert "against" not in codec.policy_to(PRESETS["default"])
    assert codec.to_document(support.finding("k")) == {
        "check": "check",
        "message": "k",
        "key": "k",
    }
    assert asdict(Override("echo", "ada")) == codec.to_document(Override("echo", "ada"))


def mine(loop: Any) -> str | None:
    return None


def test_a_rule_of_the_user_is_named_and_not_kept():
    policy = Policy(
        (MaxAttempts(2), mine, All(mine, Echo()), All(Echo(), All(Repeat(), mine)))
    )
    document = through_json(codec.policy_to(policy))
    assert [r["rule"] for r in document["rules"]] == ["attempts", "mine", "all", "all"]
    assert codec.policy_from(document) == Policy((MaxAttempts(2),))
    (silent,) = codec.policy_from(codec.policy_to(Policy((mine,)))).rules
    assert silent(support.loop_of(support.evaluated("x"))) is None
