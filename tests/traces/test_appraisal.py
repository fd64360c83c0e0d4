"""A finished run is judged by code, and by critics where code cannot tell."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful import Episode, Event, Expected, appraise
from heedful.checks import critique as checks
from heedful.checks import text as checks_text
from heedful.errors import InvalidInput
from heedful.loop.record import Evaluation, Finding, Usage
from heedful.testing import ScriptedModel
from heedful.traces.appraisal import MOST_FINDINGS, SCORES
from tests.traces.test_signals import TRACES, WORDS, call, chat, result, said

KEY = "AKIAIOSFODNN7EXAMPLE"


def judged(*events: Event, of: dict[str, Any] | None = None, **given: Any) -> Evaluation:
    return asyncio.run(appraise(Episode(events, **(of or {})), **given))


def score(name: str, *events: Event, **given: Any) -> float | None:
    return judged(*events, **given).scores.get(name)


def problems(name: str, found: Evaluation) -> list[tuple[str, str]]:
    those = (one for one in found.findings if one.check == name and one.level != "note")
    return [(one.level, one.evidence) for one in those]


def why(name: str, found: Evaluation) -> Finding:
    (note,) = [one for one in found.findings if one.key == f"{name}: why"]
    assert note.level == "note"
    return note


def book(**arguments: Any) -> Event:
    return Event("tool_call", tool="book", arguments=arguments)


def acts(*events: Event) -> tuple[Event, ...]:
    return tuple(part for event in events for part in (event, Event("tool_response", "done")))


# The answer

ANSWERS: list[tuple[Any, str, float | None]] = [
    ("The Hague", "**the  hague.**", 1.0),
    ("The Hague", "It is The Hague, I think.", None),
    ("The Hague", "Amsterdam", 0.0),
    ("Hague", "The Haguenauer", 0.0),
    (41.9, "It costs $41.90.", 1.0),
    (41.9, "41.90, reduced from 50.00", None),
    (1200, "1,200 in all", 1.0),
    (17, "the 17th", 0.0),
    (0.3, "0.30000000000000004", 1.0),
    (True, "True", 1.0),
    ({"a": 1, "b": [1, 2.0]}, '{"b": [1.0, 2], "a": 1}', 1.0),
    ({"a": 1}, 'Here:\n```json\n{"a": 1}\n```\nBye', 1.0),
    ({"a": 1}, '{"a": 1, "b": 2}', 0.0),
    ({"a": 1}, "a is 1", 0.0),
    ([1], "[" * 100_000, 0.0),
]


@pytest.mark.parametrize(("expected", "answer", "correct"), ANSWERS)
def test_an_answer_is_right_wrong_or_left_open(expected, answer, correct):
    found = judged(said("Let me see."), said(answer), expected=expected)
    assert found.scores.get("correctness") == correct
    assert problems("correctness", found) == ([("error", "event 1")] if correct == 0 else [])
    assert why("correctness", found).message.startswith(
        "unscored: " if correct is None else f"{correct:g}, judged by code: "
    )


def test_the_answer_is_the_last_words_of_an_agent():
    thought = replace(said("50"), meta={"part": "thinking"})
    events = (said("41.90"), call(), result("12"), said("  "), thought)
    assert score("correctness", *events, expected="41.90") == 1.0
    assert score("correctness", chat("41.90"), expected="41.90") == 1.0
    assert problems("correctness", judged(call(), result(), expected="41.90")) == [("error", "")]
    found = judged(said(f"I found {KEY}"), expected="41.90")
    assert "41.90" not in str(found)  # the finding does not give the expected answer away
    assert KEY not in str(found)


# Actions

ONE, TWO, THREE = book(n=1), book(n=2), book(n=3)
LOOK = Event("tool_call", tool="look", arguments={"n": 1})
LOST = (ONE, Event("tool_response", "Error: refused"))
TEXT = replace(ONE, arguments="to Rome")
ACTIONS: list[tuple[tuple[Event, ...], tuple[Event, ...], float, float | None]] = [
    ((TWO, ONE), (ONE, TWO), 1.0, 1.0),
    ((ONE,), (ONE, TWO), 1 / 2, 1 / 2),
    ((ONE, TWO), (ONE,), 1 / 2, 1.0),
    ((), (), 1.0, None),
    ((ONE,), (), 0.0, None),
    ((ONE,), (LOOK, ONE), 1.0, 1 / 2),
    ((book(n=1.0),), (ONE,), 1.0, 1.0),
    ((replace(ONE, arguments='{"n": 1}'),), (ONE,), 1.0, 1.0),
    ((replace(ONE, arguments=None, content='{"n":1.0}'),), (ONE,), 1.0, 1.0),
    ((ONE, TWO), (replace(ONE, arguments=None), ONE), 1.0, 1.0),
]


@pytest.mark.parametrize(("made", "actions", "correct", "complete"), ACTIONS)
def test_actions_are_held_against_those_expected(made, actions, correct, complete):
    found = judged(*acts(*made), expected=Expected(actions=actions, reads=["look"]))
    assert found.scores["correctness"] == pytest.approx(correct)
    assert found.scores.get("completeness") == complete
    assert bool(found.errors) == (correct < 1)


def test_reading_changes_nothing_and_a_call_that_failed_was_not_made():
    found = judged(said("4"), expected=Expected(actions=(LOOK,), reads=["look"]))
    assert (found.scores["correctness"], found.scores["completeness"]) == (1.0, 0.0)
    assert problems("completeness", found) == [("warning", "")]
    for then, correct in (((), 0.0), (acts(ONE), 1.0)):
        assert score("correctness", *LOST, *then, expected=Expected(actions=(ONE,))) == correct


def test_what_is_wrong_with_an_action_is_named():
    wanted = Expected(actions=(book(n=1, to="Rome"), Event("tool_call", tool="pay")))
    events = (replace(book(n=1, to="Oslo"), id="e1"), result(), call("drop"), result())
    assert [(one.message, one.evidence) for one in judged(*events, expected=wanted).errors] == [
        ("book was called with other arguments than expected: to", "e1"),
        ("pay was expected and not called: any arguments", ""),
        ('drop was called and not expected: {"item": "kettle"}', "event 2"),
    ]
    (error,) = judged(*acts(TEXT), expected=Expected(actions=(ONE,))).errors
    assert error.message == 'book was called with other arguments than expected: "to Rome"'
    many = tuple(book(n=n) for n in range(50))
    assert len(judged(*acts(*many), expected=Expected(actions=())).errors) == MOST_FINDINGS


BOTH = [([ONE], "yes", 1.0), ([ONE], "no", 0.0), ([ONE], "yes, sir", None)]
BOTH += [([TWO], "yes, sir", 0.0), ([ONE, TWO], "yes", 0.5), ([ONE, TWO], "yes, sir", None)]


@pytest.mark.parametrize(("made", "answer", "correct"), BOTH)
def test_the_lower_of_answer_and_actions_counts_and_open_is_not_0(made, answer, correct):
    wanted = Expected("yes", actions=(ONE,))
    assert score("correctness", *acts(*made), said(answer), expected=wanted) == correct


# Checks


def test_checks_of_the_answer_score_its_correctness():
    asked = [checks_text.contains("blue", "red"), checks_text.words(at_most=9)]
    found = judged(said("It is blue.", id="end"), checks=asked)
    assert (found.scores["correctness"], found.met) == (0.5, 0.5)
    assert [(one.check, one.evidence) for one in found.errors] == [("contains", "end")]
    assert why("correctness", found).message.startswith("0.5, judged by checks: ")
    assert judged(call(), checks=asked).scores["correctness"] == 0.0
    assert judged(said("red blue"), checks=asked, expected="green").scores["correctness"] == 0.0


def test_a_check_may_give_scores():
    def rated(candidate: Any, context: Any) -> Evaluation:
        assert context.task == "Ask.\nBriefly."
        return Evaluation(scores={"helpfulness": 0.7, "style": 3.0})

    found = judged(said("hello"), of={"task": "Ask.", "goal": "Briefly."}, checks=[rated])
    assert found.scores == {"helpfulness": 0.7, "style": 3.0, "safety": 1.0}
    with pytest.raises(InvalidInput, match="score helpfulness"):
        judged(said("hello"), checks=[lambda *_: Evaluation(scores={"helpfulness": 7})])


# Safety

FAILED = Event("tool_response", "Error: no such tool")
OFFERED = {"of": {"tools": ("look",)}}
SAFETY: list[tuple[tuple[Event, ...], dict[str, Any], float, list[tuple[str, str]]]] = [
    (acts(call("find")), OFFERED, 0.0, [("error", "event 0")]),
    ((call("find"), FAILED), OFFERED, 0.5, [("warning", "event 0")]),
    ((said(f"The key is {KEY}"),), {}, 0.0, [("error", "event 0")]),
    ((said("The key is [redacted: aws_key]"),), {}, 0.0, [("error", "event 0")]),
    ((call(arguments={"key": KEY}), result()), {}, 1.0, []),
]


@pytest.mark.parametrize(("events", "given", "safe", "found"), SAFETY)
def test_safety_is_0_with_an_error_and_a_half_with_a_warning(events, given, safe, found):
    evaluation = judged(*events, **given)
    assert (evaluation.scores["safety"], problems("safety", evaluation)) == (safe, found)


def test_the_reason_says_what_was_looked_for_and_nothing_is_scored_without_an_agent():
    wide = judged(said("hello"), of={"tools": ("look",)})
    assert "secrets, tools that were not offered" in why("safety", wide).message
    found = judged(Event("user_message", "Hello?"))
    assert found.scores == {}
    assert [one.key for one in found.findings] == [f"{name}: why" for name in SCORES]
    assert all(one.message.startswith("unscored: ") for one in found.findings)


# Efficiency

GOOD = Episode(acts(ONE, TWO), "success", usage=Usage(4, 60, 40))


def test_steps_that_failed_or_brought_nothing_new_are_waste():
    assert score("efficiency", *acts(ONE, TWO)) == 1.0
    found = judged(*acts(ONE, ONE), *LOST, *acts(TWO))
    assert found.scores["efficiency"] == 0.5
    assert problems("efficiency", found) == [("warning", "event 4"), ("warning", "event 2")]
    assert score("efficiency", *acts(ONE, ONE), polls=["book"]) == 1.0
    assert score("efficiency", ONE, result("a"), ONE, result("b")) == 1.0
    assert score("efficiency", said("done")) is None


@pytest.mark.parametrize(
    ("best", "usage", "efficient"),
    [
        (GOOD, Usage(), 2 / 4),
        (GOOD, Usage(4, 200, 200), 100 / 400),
        (GOOD, Usage(40, 60, 40), 4 / 40),
        (Usage(0, 100), Usage(0, 300), 1 / 3),
        (Usage(0, 100), Usage(), 1.0),
        (Usage(0, 900), Usage(0, 300), 1.0),
    ],
)
def test_the_best_known_run_is_the_measure(best, usage, efficient):
    many = acts(ONE, TWO, THREE, LOOK)
    found = score("efficiency", *many, of={"usage": usage}, best=best)
    assert found == pytest.approx(efficient)
    if usage == Usage():  # steps that were left out are not compared
        assert score("efficiency", *many, of={"omitted": 9}, best=best) == 1.0


def test_actions_may_be_among_the_events_that_were_left_out():
    wanted, of = Expected(actions=(ONE, TWO)), {"omitted": 7}
    found = judged(*acts(ONE), of=of, expected=wanted)
    assert not {"correctness", "completeness"} & found.scores.keys()
    assert not found.errors
    assert score("correctness", *acts(ONE, TWO), of=of, expected=wanted) == 1.0


# Critics


def opinion(**keys: Any) -> str:
    return json.dumps({"reason": "Since it is so.", "confidence": 0.8} | keys)


def role(name: str, *lines: Any) -> tuple[checks.Critic, ScriptedModel]:
    model = ScriptedModel(*lines)
    return checks.critic(name, model), model


def test_only_a_critic_gives_helpfulness_and_it_is_named():
    helpful, model = role("helpfulness", opinion(helpfulness=0.6))
    found = judged(call(), result(), said("41.90", id="end"), critics=[helpful])
    assert (found.scores["helpfulness"], found.usage.calls) == (0.6, 1)
    note = why("helpfulness", found)
    assert note.message.startswith("0.6, judged by critic helpfulness (scripted): ")
    assert note.evidence == "end"
    (reason,) = [one for one in found.findings if one.message == "Since it is so."]
    assert reason.evidence == "end: judged by scripted, confidence 0.8"
    assert "0. tool_call price: {'item': 'kettle'}" in model.prompts[0][1].content


def test_a_critic_settles_what_code_left_open_and_nothing_else():
    right, model = role("correctness", opinion(correctness=0.9))
    assert score("correctness", said("41.90"), expected="41.90", critics=[right]) == 1.0
    assert not model.prompts
    found = judged(said("It is 41.90."), expected="41.90", critics=[right])
    assert found.scores["correctness"] == 0.9
    assert (
        "code cannot tell: the answer contains the expected text"
        in why("correctness", found).message
    )
    both = checks.Role("both", "Judge.", {"correctness": "at_least", "helpfulness": "at_least"})
    critic = checks.critic(both, ScriptedModel(*2 * [opinion(correctness=1.0, helpfulness=0.4)]))
    found = judged(said("no"), expected="yes", critics=[critic])
    assert (found.scores["correctness"], found.scores["helpfulness"]) == (0.0, 0.4)
    drift, _ = role("drift", opinion(drift=0.1))
    second, unasked = role("helpfulness")
    found = judged(*(said(f"line {n}") for n in range(130)), critics=[critic, second, drift])
    assert found.scores == {"correctness": 1.0, "helpfulness": 0.4, "safety": 1.0, "drift": 0.1}
    assert not unasked.prompts


# Input that is refused


WRONG: list[dict[str, Any]] = [
    *({"answer": answer} for answer in (" ", float("nan"), 10**400, {1})),
    *({"actions": (action,)} for action in (said("hello"), Event("tool_call"), "book")),
    {"reads": "look"},
    {"polls": "look"},
    {"best": [1]},
    {"critics": [1]},
]


@pytest.mark.parametrize("given", WRONG)
def test_arguments_that_mean_nothing_are_refused(given):
    (field,) = given
    make = Expected if field in Expected.__dataclass_fields__ else partial(judged, call())
    with pytest.raises(InvalidInput, match=field):
        make(**given)


# Properties

SOME = st.sampled_from([None, 41.9, "yes", True, [1], {"a": 1}]) | WORDS.filter(str.strip)
CALLS = TRACES.map(lambda events: tuple(e for e in events if e.type == "tool_call" and e.tool))
WANTED = st.builds(Expected, SOME, st.none() | CALLS, st.sampled_from([(), ("look",)]))
BEST = st.none() | TRACES.map(lambda e: Episode(e, "success")) | st.just(Usage(3, 10, 10))


@given(TRACES, WANTED, BEST, WORDS, st.integers(0, 3))
def test_any_run_is_judged_and_every_score_says_why(events, wanted, best, task, omitted):
    of = {"task": task, "tools": ("look",), "omitted": omitted, "usage": Usage(len(events), 9)}
    found = judged(*events, of=of, expected=wanted, best=best, polls=("look",))
    assert all(0 <= one <= 1 for one in found.scores.values())
    assert set(found.scores) <= set(SCORES) - {"helpfulness"}
    notes = [one for one in found.findings if one.key.endswith(": why")]
    assert [one.check for one in notes] == list(SCORES)
    for note in notes:
        assert note.message.startswith("unscored") == (note.check not in found.scores)
    assert all("\n" not in one.message for one in found.findings)
    assert found.scores.get("safety") != 1.0 or not problems("safety", found)


@given(TRACES, BEST)
def test_another_tool_error_never_raises_efficiency(events, best):
    more = (*events, Event("tool_call", tool="x", call="x"), result("", call="x", error="refused"))
    before, after = (judged(*e, best=best).scores.get("efficiency", 1.0) for e in (events, more))
    assert after <= before
