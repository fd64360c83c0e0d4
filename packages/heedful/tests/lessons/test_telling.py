"""What is told, to whom, and why not the rest: each reason, the order, and the draw."""

from dataclasses import fields, replace
from typing import Any, get_args

import pytest
from hypothesis import given, strategies as st

from heedful.lessons.holdout import Holdout
from heedful.lessons.lesson import Cause
from heedful.lessons.reasons import Reason
from heedful.lessons.telling import (
    REASONS,
    LessonCandidate,
    Moment,
    Situation,
    Telling,
    TellingBudget,
    tell,
)
from tests.tables import cases

CANDIDATE = LessonCandidate(name="error/a", leg="likeness", lesson=7, is_checked=True)
LOOP = Situation(moment="first attempt")
PROMPT = Situation(moment="prompt")
BEFORE = Situation(moment="before call")
QUESTION = Situation(moment="question")
# Others come before it, or tell the same; all other reasons are its own.
CROWD = {"no room", "same", "answers", "other function"}


def reason_of(situation: Situation, **facts: Any) -> Reason | None:
    """Return why a candidate with these facts is not told; None if it is."""
    telling = tell(situation, [replace(CANDIDATE, **facts)])
    assert len(telling.told) + len(telling.refused) == 1
    return telling.refused[0][1] if telling.refused else None


KEPT_BACK: dict[str, tuple[Situation, dict[str, Any], str]] = {
    "its task is too far": (LOOP, {"could_help": False}, "distance"),
    "its task is too far by words": (
        LOOP,
        {"could_help": False, "is_by_words": True},
        "distance by words",
    ),
    "the loop wants examples only": (
        replace(LOOP, form="examples"),
        {"form": "rules"},
        "form",
    ),
    "it says what happened": (LOOP, {"is_account": True}, "no strategy"),
    "nobody put it right": (LOOP, {"only_refuses": True}, "no answer"),
    "another function's refusal": (
        replace(LOOP, memory_key="here"),
        {"only_refuses": True, "memory_key": "there"},
        "other key",
    ),
    "it waits for a person": (QUESTION, {"state": "quarantined"}, "quarantine"),
    "it was retired": (QUESTION, {"state": "retired"}, "retired"),
    "other words took its place": (LOOP, {"state": "superseded"}, "retired"),
    "its call works by now": (PROMPT, {"has_ended": True}, "ended"),
    "nothing shows that it holds": (LOOP, {"has_evidence": False}, "no evidence"),
    "a dream wrote it": (
        LOOP,
        {"has_evidence": False, "is_dreamt": True},
        "dreamt",
    ),
    "it hurts this model": (
        replace(LOOP, model="m"),
        {"unfit_for": ("m",)},
        "harmful",
    ),
    "it has more blanks than words": (LOOP, {"says_enough": False}, "particulars"),
    "its rule is of another check": (
        replace(LOOP, checks=["length"]),
        {
            "leg": "cause",
            "cause": Cause(memory_key="k", rule="r", checks=("unit",)),
        },
        "other check",
    ),
    "the loop refuses its answer": (
        replace(LOOP, refused=frozenset({3})),
        {"example": 3},
        "refused",
    ),
    "nothing put it right": (PROMPT, {"helps_before": False}, "no fix"),
    "the session has just met it": (
        replace(BEFORE, reader="s1"),
        {"run": "s1"},
        "own",
    ),
    "an edit put it right": (BEFORE, {"fix": "edit"}, "unsettled"),
    "it only had to be repeated": (
        BEFORE,
        {"fix": "waiting", "mark_kind": "command"},
        "unsettled",
    ),
    "a command failed in one run": (BEFORE, {"mark_kind": "command"}, "unsettled"),
    "its files are gone": (PROMPT, {"has_files": False}, "files"),
    "the reader was told it": (
        replace(PROMPT, told=frozenset({"told lesson 7"})),
        {"marks": frozenset({"told lesson 7"})},
        "told",
    ),
    "the reader knows it from the start": (
        replace(PROMPT, told=frozenset({"shown rules"})),
        {"known_by": frozenset({"shown rules"})},
        "told",
    ),
    "the loop began without it": (
        replace(LOOP, moment="retry", shown_before=frozenset()),
        {},
        "later",
    ),
}


@cases("situation, facts, code", KEPT_BACK)
def test_each_reason_keeps_a_lesson_back(situation, facts, code):
    reason = reason_of(situation, **facts)
    assert reason is not None
    assert reason.code == code
    assert reason.words


@cases(
    "situation, facts",
    {
        "a question is answered with an account": (QUESTION, {"is_account": True}),
        "a question is answered with a refusal": (QUESTION, {"only_refuses": True}),
        "a failure without a fix after it came again": (
            Situation(moment="after failure"),
            {"helps_before": False},
        ),
        "a command that another one put right": (
            BEFORE,
            {"mark_kind": "command", "fix": "command"},
        ),
        "a command that a step put right": (
            BEFORE,
            {"mark_kind": "command", "fix": "step"},
        ),
        "a command that failed in two runs": (
            BEFORE,
            {"mark_kind": "command", "runs": 2},
        ),
        "a call of a tool that failed once": (BEFORE, {"mark_kind": "call"}),
        "a person who asks about a command that failed once": (
            QUESTION,
            {"mark_kind": "command"},
        ),
        "what another session met": (replace(BEFORE, reader="s2"), {"run": "s1"}),
        "a resumed loop what it was, whatever a proof says now": (
            replace(
                LOOP,
                model="m",
                shown_before=frozenset({("error/a", 0)}),
                moment="retry",
            ),
            {"unfit_for": ("m",), "says_enough": False},
        ),
    },
)
def test_it_is_told(situation, facts):
    assert reason_of(situation, **facts) is None


def test_each_row_of_the_table_keeps_something_back():
    codes = {code for _, _, code in KEPT_BACK.values()}
    assert {code for code, _ in REASONS} <= codes


def names(telling: Telling) -> list[str]:
    return [candidate.name for candidate in telling.told]


def test_what_a_person_gated_comes_before_what_is_nearer():
    unchecked = replace(CANDIDATE, name="near", near=0.9, says=frozenset("a"))
    gated = replace(CANDIDATE, name="gated", near=0.5, is_gated=True)
    assert names(tell(LOOP, [unchecked, gated])) == ["gated", "near"]


def test_a_rule_of_the_function_comes_before_what_a_person_said_of_a_like_task():
    rule = replace(CANDIDATE, name="rule", leg="cause", near=0.1)
    gated = replace(CANDIDATE, name="gated", is_gated=True)
    assert names(tell(LOOP, [gated, rule])) == ["rule", "gated"]


def test_of_two_that_tell_the_same_the_nearer_one_is_told():
    far = replace(CANDIDATE, name="far", near=0.4, repeats=frozenset("x"))
    near = replace(
        CANDIDATE, name="near", near=0.8, repeats=frozenset("x"), says=frozenset("x")
    )
    telling = tell(LOOP, [far, near])
    assert names(telling) == ["near"]
    assert telling.refused == ((far, Reason("same")),)


def test_an_answer_of_another_function_makes_way_for_an_own_one():
    situation = replace(LOOP, memory_key="here", task="weigh it")
    answer = replace(
        CANDIDATE, name="own", form="examples", memory_key="here", near=0.4
    )
    other = replace(
        CANDIDATE, name="other", form="examples", memory_key="there", near=0.9
    )
    assert names(tell(situation, [other])) == ["other"]
    assert names(tell(situation, [other, answer])) == ["own"]
    assert names(tell(LOOP, [other, answer])) == ["other", "own"]


def test_a_withheld_place_stays_empty():
    lessons = [replace(CANDIDATE, name=f"error/{n}", near=1 / n) for n in range(1, 9)]
    everything = tell(LOOP, lessons)
    halved = tell(replace(LOOP, holdout=Holdout(0.5, 0.0), reader="l"), lessons)
    assert 0 < len(halved.told) < len(everything.told)
    assert {*halved.told, *halved.withheld} == {*everything.told}
    assert halved.refused == everything.refused


def test_what_has_no_lesson_is_never_withheld():
    mark = replace(CANDIDATE, name="mark/a", lesson=0)
    telling = tell(replace(BEFORE, holdout=Holdout(1.0, 0.0)), [mark, CANDIDATE])
    assert names(telling) == ["mark/a"]


def test_a_reader_who_is_shown_nothing_gets_no_mark():
    no_room = replace(BEFORE, budget=TellingBudget(lessons=0))
    candidate = replace(CANDIDATE, marks=frozenset({"told a"}))
    assert tell(BEFORE, [candidate]).marks == {"told a"}
    assert tell(no_room, [candidate]).marks == frozenset()


FLAGS = [item.name for item in fields(LessonCandidate) if item.type == "bool"]
candidates = st.builds(
    LessonCandidate,
    name=st.sampled_from(["error/a", "error/b", "check/c", "mark/d"]),
    leg=st.sampled_from(["cause", "likeness", "call", "error"]),
    lesson=st.integers(0, 3),
    example=st.integers(0, 5),
    near=st.floats(0.01, 1),
    worth=st.floats(0.5, 2),
    form=st.sampled_from(["rules", "examples"]),
    state=st.sampled_from(["unverified", "verified", "quarantined", "retired"]),
    memory_key=st.sampled_from(["", "k", "l"]),
    fix=st.sampled_from(["", "edit", "step"]),
    mark_kind=st.sampled_from(["", "command", "name"]),
    runs=st.integers(1, 2),
    run=st.sampled_from(["", "s"]),
    repeats=st.frozensets(st.sampled_from("xyz"), max_size=2),
    says=st.frozensets(st.sampled_from("xyz"), max_size=2),
    marks=st.frozensets(st.sampled_from(["told 1", "told 2"]), max_size=1),
    **{name: st.booleans() for name in FLAGS},
)
situations = st.builds(
    Situation,
    moment=st.sampled_from(get_args(Moment)),
    reader=st.sampled_from(["s", "t"]),
    told=st.frozensets(st.sampled_from(["told 1", "told 2"]), max_size=1),
    memory_key=st.sampled_from(["", "k"]),
    form=st.sampled_from(["both", "rules", "examples"]),
    holdout=st.builds(Holdout, st.sampled_from([0.0, 0.5]), st.just(0.0)),
)


@given(situations, st.lists(candidates, max_size=12))
def test_each_candidate_is_told_withheld_or_refused_with_a_reason(situation, found):
    telling = tell(situation, found)
    refused = [candidate for candidate, _ in telling.refused]
    assert len(telling.told) + len(telling.withheld) + len(refused) == len(found)
    assert all(reason.words for _, reason in telling.refused)
    lessons = [c for c in telling.chosen if c.leg != "cause"]
    assert len(lessons) <= situation.budget.lessons
    unchecked = [c for c in lessons if not c.is_checked]
    assert len(unchecked) <= situation.budget.unchecked


@given(situations, st.lists(candidates, max_size=12))
def test_no_reason_grows_with_the_number_of_lessons(situation, found):
    alone = {}
    for candidate in found:
        refused = tell(situation, [candidate]).refused
        alone[candidate] = refused[0][1] if refused else None
    for candidate, reason in tell(situation, found).refused:
        if reason.code not in CROWD:
            assert reason == alone[candidate]


@given(situations, st.lists(candidates, max_size=8), candidates)
def test_memory_is_never_silent_because_it_has_learnt_more(situation, found, another):
    if tell(situation, found).chosen:
        assert tell(situation, [*found, another]).chosen


@given(situations, st.lists(candidates, max_size=8), st.randoms())
def test_what_is_told_depends_on_no_order_of_the_search(situation, found, random):
    unique = [replace(c, example=n, name=f"error/{n}") for n, c in enumerate(found)]
    shuffled = list(unique)
    random.shuffle(shuffled)
    assert tell(situation, shuffled).told == tell(situation, unique).told


@pytest.mark.parametrize("moment", get_args(Moment))
def test_an_empty_memory_says_that_nothing_is_known(moment):
    telling = tell(Situation(moment=moment), [])
    assert telling.silence == Reason("nothing known").words
