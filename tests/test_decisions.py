"""What a decision rested on: a reading of what is recorded, true to what happened."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heedful
from heedful.drive.drive import Run
from heedful.lessons.lesson import Scope
from heedful.loop.decide import (
    Again,
    Decision,
    Done,
    Policy,
    Standing,
    decide,
    echoes_before,
    reasoning,
    standing_of,
    triggers,
)
from heedful.loop.policies import orchestrator
from heedful.loop.record import Evaluation, Finding, Goal, Improvement, Loop, Override
from heedful.loop.stop import All, Echo, Fatigue, MaxAttempts, Stop
from heedful.store import loops
from heedful.store.sqlite import in_file
from heedful.testing import history
from tests.drive.support import WANTED, Check, Generator
from tests.loop import support
from tests.loop.support import QUALITY, evaluated, loop_of, scored

SCOPE = Scope()
FOUR = Policy((MaxAttempts(4),))

# -- how worn a loop was


@pytest.mark.parametrize(
    ("errors", "policy", "level", "change"),
    [
        ([], FOUR, 0.0, 0.0),
        (["ab"], FOUR, 0.0, 0.0),
        (["ab", "ab"], FOUR, 0.15, 0.15),
        (["ab", "ab", "ab"], FOUR, 0.30, 0.15),
        (["abc", "abc", "ab"], FOUR, 0.10, -0.05),
        (["ab", "a"], FOUR, 0.0, 0.0),  # it cannot fall below 0
        (["a"] * 8, FOUR, 1.0, 0.1),  # nor rise above 1
        (["a"] * 9, FOUR, 1.0, 0.0),
        (["ab", "ab"], Policy((Fatigue(increment=0.4),)), 0.4, 0.4),
        (["ab", "ab"], Policy((All(MaxAttempts(9), Fatigue(increment=0.2)),)), 0.2, 0.2),
    ],
)
def test_the_level_of_fatigue_and_what_the_last_attempt_added(errors, policy, level, change):
    worn = standing_of(history(*errors), policy)
    assert (worn.fatigue, worn.change) == (level, change)


@given(support.loops(), support.policies)
def test_the_changes_add_up_to_the_level(loop, policy):
    parts = [
        standing_of(replace(loop, attempts=loop.attempts[:n]), policy)
        for n in range(len(loop.attempts) + 1)
    ]
    assert sum(round(one.change * 1000) for one in parts) == round(parts[-1].fatigue * 1000)
    assert all(0 <= one.fatigue <= 1 for one in parts)


def test_improvement_is_what_the_policy_says():
    loop = scored(0.1, 0.15)
    assert standing_of(loop, FOUR).fatigue == 0.0
    assert standing_of(loop, replace(FOUR, improvement=Improvement(0.1))).fatigue == 0.15


@pytest.mark.parametrize(
    ("loop", "policy", "echoes"),
    [
        (Loop("new"), FOUR, {}),
        (loop_of(None), FOUR, {}),
        (loop_of(evaluated("x")), FOUR, {"x": 1}),
        (loop_of(evaluated("x"), evaluated("x", warnings="w")), FOUR, {"x": 2, "w": 1}),
        (loop_of(evaluated("x"), evaluated("y")), FOUR, {"y": 1}),  # of the last attempt
        (loop_of(evaluated("x"), evaluated()), FOUR, {}),
        (loop_of(evaluated("x"), echoes={"x": 4}), FOUR, {"x": 1}),
        (loop_of(evaluated("x"), echoes={"x": 4}), orchestrator, {"x": 5}),
        (
            loop_of(evaluated("x"), echoes={"x": 4}),
            Policy((All(MaxAttempts(2), Echo(9, across="scope")),)),
            {"x": 5},
        ),
    ],
)
def test_how_often_each_finding_of_the_last_attempt_was_heard(loop, policy, echoes):
    assert standing_of(loop, policy).echoes == echoes


# -- why a decision fell as it did


def decided(loop: Loop, policy: Policy, at: float = 7.0) -> Any:
    verdict = decide(loop, policy)
    found = Decision(len(loop.attempts), verdict, standing_of(loop, policy), at)
    (told,) = reasoning(loop, [found])
    return told


BAD = Evaluation((Finding("words", "too many"),), {"quality": 0.5})


def test_again_is_told_by_its_triggers():
    loop = loop_of(BAD, goals=(QUALITY,))
    told = decided(loop, FOUR)
    assert (told.loop, told.attempt, told.rerun, told.decided) == ("loop", 1, 0, "again")
    assert told.reason == "words_failed"
    assert told.detail == "Triggered by words, quality"
    assert [trigger.reason for trigger in told.triggers] == [
        "words_failed",
        "quality_threshold_not_met",
    ]
    assert (told.spoke, told.lifted, told.at) == ((), (), 7.0)


def test_a_check_that_fails_twice_triggers_once():
    loop = loop_of(Evaluation((Finding("words", "many"), Finding("words", "long"))))
    assert decided(loop, FOUR).detail == "Triggered by words"


def test_a_stop_is_told_by_its_rules():
    loop = loop_of(*[BAD] * 4, goals=(QUALITY,))
    told = decided(loop, Policy((Fatigue(0.45), MaxAttempts(4))))
    assert (told.decided, told.reason, told.rerun) == ("stopped", "attempts", 3)
    assert told.detail == "4 of 4 attempts made; fatigue 0.45 has reached 0.45"
    assert [stop.rule for stop in told.spoke] == ["attempts", "fatigue"]
    assert told.standing == Standing(0.45, 0.15, {"words: too many": 4})
    assert told.triggers == triggers(BAD, (QUALITY,))


def test_what_was_lifted_spoke():
    loop = loop_of(BAD, goals=(QUALITY,), overrides=(Override("attempts", "ada"),))
    told = decided(loop, Policy((MaxAttempts(1), Echo(9))))
    assert (told.decided, told.reason) == ("again", "words_failed")
    assert told.spoke == (Stop("attempts", "1 of 1 attempts made"),)
    assert [(one.stop.rule, one.by) for one in told.lifted] == [("attempts", "ada")]


def test_a_pass_is_a_pass():
    told = decided(loop_of(evaluated(warnings="w")), FOUR)
    assert (told.decided, told.reason, told.detail, told.triggers) == ("passed", "passed", "", ())


def test_before_the_first_attempt_and_without_an_evaluation():
    told = decided(Loop("new", cancelled="ada"), FOUR)
    assert (told.attempt, told.rerun, told.decided, told.reason) == (0, 0, "stopped", "cancelled")
    assert (told.triggers, told.labels) == ((), {})
    told = decided(loop_of(None), replace(FOUR, unscored="again"))
    assert (told.decided, told.reason, told.detail) == ("again", "", "")
    unscored = decided(loop_of(Evaluation(), goals=(QUALITY,)), FOUR)
    assert (unscored.reason, unscored.triggers[0].reason) == ("unscored", "quality_unscored")


@settings(max_examples=60)
@given(support.loops(), support.policies)
def test_it_is_a_reading_of_verdict_and_attempts(loop, policy):
    decisions = []
    for end in range(len(loop.attempts) + 1):
        part = replace(loop, attempts=loop.attempts[:end])
        verdict = decide(part, policy)
        decisions.append(Decision(end, verdict, standing_of(part, policy), float(end)))
    told = reasoning(loop, decisions)
    assert len(told) == len(decisions)
    for one, decision in zip(told, decisions, strict=True):
        verdict, number = decision.verdict, decision.attempt
        kind = "again" if isinstance(verdict, Again) else "passed" if verdict.passed else "stopped"
        assert (one.decided, one.attempt, one.at) == (kind, number, decision.at)
        assert one.standing is decision.standing
        assert one.lifted == verdict.lifted
        assert set(one.spoke) == {
            *(verdict.stopped_by if isinstance(verdict, Done) else ()),
            *(lifted.stop for lifted in verdict.lifted),
        }
        assert one.labels == (loop.attempts[number - 1].labels if number else {})
        if isinstance(verdict, Again) and verdict.reasons:
            assert one.triggers == verdict.reasons
            assert one.reason == verdict.reasons[0].reason


# -- as a store keeps it


def kept(path: Any, policy: Policy, *answers: str, **options: Any) -> Any:
    async def scenario() -> Any:
        store = in_file(str(path))
        run = Run[str](
            "t",
            generate=Generator(*answers),
            checks=[Check()],
            policy=policy,
            store=store,
            id="a",
            **options,
        )
        result = await run.finish()
        stored = await store.read(SCOPE, loops.read, "a")
        await store.close()
        return result, stored

    return asyncio.run(scenario())


def test_each_decision_is_stored_with_what_it_rested_on(tmp_path):
    policy = Policy((MaxAttempts(3),))
    labels = {"orchestrator": "SAGE", "reflection": "SKEPTIC"}
    result, stored = kept(tmp_path / "a.db", policy, "x", "y", "z", labels=labels)
    assert [one.attempt for one in stored.decisions] == [1, 2, 3]
    assert stored.verdicts == tuple(one.verdict for one in stored.decisions)
    assert stored.verdicts[-1] == result.verdict
    for one in stored.decisions:
        part = replace(result.loop, attempts=result.loop.attempts[: one.attempt])
        assert one.standing == standing_of(part, policy)
        assert stored.created <= one.decided <= one.at <= stored.updated
    assert [one.standing.fatigue for one in stored.decisions] == [0.0, 0.15, 0.3]
    told = heedful.reasoning(stored.loop, stored.decisions)
    assert [one.labels for one in told] == [labels] * 3
    assert [one.decided for one in told] == ["again", "again", "stopped"]
    assert [one.rerun for one in told] == [0, 1, 2]
    assert [dict(attempt.labels) for attempt in stored.loop.attempts] == [labels] * 3


def test_what_nobody_took_part_in_by_name_has_no_labels(tmp_path):
    result, stored = kept(tmp_path / "a.db", FOUR, WANTED)
    assert result.loop.attempts[0].labels == {}
    (told,) = heedful.reasoning(stored.loop, stored.decisions)
    assert (told.decided, told.labels) == ("passed", {})


@pytest.mark.parametrize(
    "labels", [["SAGE"], "SAGE", {"persona": 5}, {5: "SAGE"}, {"persona": None}, 5]
)
def test_labels_are_names_and_texts(labels):
    with pytest.raises(heedful.errors.InvalidInput, match="labels") as caught:
        Run("t", generate=Generator("x"), labels=labels, store=None)
    assert caught.value.field == "labels"


@given(st.lists(support.evaluations, max_size=3), st.sampled_from([(), (Goal("quality", 0.5),)]))
@settings(max_examples=25)
def test_reading_again_tells_the_same(evaluations, goals):
    loop = loop_of(*evaluations, goals=goals)
    found = [Decision(len(evaluations), decide(loop, FOUR))]
    assert reasoning(loop, found) == reasoning(loop, iter(found))


# -- what was counted in loops before it


@given(support.loops(least=1), st.sampled_from([2, 3]), support.improvements)
def test_what_echo_counted_in_the_loops_before_is_read_out_of_its_decisions(loop, times, better):
    policy = Policy((MaxAttempts(9), All(Echo(times, "scope"), MaxAttempts(1))), better)
    parts = [loop.upto(end) for end in range(1, len(loop.attempts) + 1)]
    made = [
        Decision(len(part.attempts), decide(part, policy), standing_of(part, policy))
        for part in parts
    ]
    stored = replace(loop, echoes={})
    before = echoes_before(stored, policy, made)
    for part, decision in zip(parts, made, strict=True):
        assert decide(replace(part, echoes=before), policy) == decision.verdict
    assert all(loop.echoes.get(key, 0) == count for key, count in before.items())


def test_an_echo_within_the_loop_counted_nothing_before():
    loop = loop_of(evaluated("x"))
    decision = Decision(1, decide(loop, FOUR), Standing(echoes={"x": 7}))
    for policy in (FOUR, Policy((Echo(3),)), Policy((Echo(3), Echo(3, "scope")))):
        assert echoes_before(loop, policy, [decision]) == {}
    assert echoes_before(loop, Policy((Echo(3, "scope"),)), [decision]) == {"x": 6}
