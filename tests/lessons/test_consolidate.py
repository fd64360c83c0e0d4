"""What says the same, what may not be merged, what contradicts, and when recall is
worse.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.lessons.consolidate import (
    PERSON_OUTCOME,
    VETO_REASONS,
    DreamLesson,
    Proposal,
    first_difference,
    propose,
    veto,
)
from heedful.lessons.signature import signature, strategy_signature

NOW = 1_000_000_000.0
TEXT = (
    "When a parcel is heavy, weigh it on the large scale and write its weight on the "
    "label"
)


def lesson(id: int = 1, text: str = TEXT, **fields: Any) -> DreamLesson:
    fields = {"kind": "error", "signature": f"{id:016x}", "error_type": "k", **fields}
    fields = {"state": "unverified", "trust": "operator", "last_seen": NOW, **fields}
    return DreamLesson(id=id, text=text, **fields)


@pytest.mark.parametrize(
    ("first", "second", "differs"),
    [
        ("weigh it first", "weigh it first, then", ""),
        ("Upon reflection, I weigh it", "I weigh it upon reflection", ""),
        ("wait 5 seconds", "wait 50 seconds", "digits"),
        ("wait five seconds", "wait six seconds", "digits"),
        ("it is 3 of 5", "it is 5 of 3", "digits"),
        ("x < 3", "x <= 3", "digits"),
        ("a well-known step", "a well known step", ""),
        ("do weigh it", "do not weigh it", "negation"),
        ("it does weigh it", "it doesn't weigh it", "negation"),
        ("weigh it before lunch", "weigh it after lunch", "wording"),
        ("so ask Ada first", "so ask Bo first", "names"),
        ("read 'size' of it", "read 'weight' of it", "names"),
        ("call parcel_of(it)", "call label_of(it)", "names"),
        ("it is 'Ada', not 'Bo'", "it is 'Bo', not 'Ada'", "names"),
        ("Ada asked Bo", "Bo asked Ada", "names"),
        ("it fails at [n-1]", "it fails at [-1]", "names"),
        ("for i in it: it", "for it: it", "names"),
        ("if size(it) and it", "if it and it", "names"),
        ("write metres", "write feet", "wording"),
        ("重量", "長さ", "wording"),
        ("", "", ""),
    ],
)
def test_two_texts_differ_in_what_they_say_of_particulars(first, second, differs):
    assert first_difference(first, second) == first_difference(second, first) == differs


@pytest.mark.parametrize(
    ("both", "fields", "why"),
    [
        pytest.param({}, {}, "", id="none"),
        pytest.param({}, {"kind": "check"}, "kind", id="kind"),
        pytest.param({}, {"error_type": "other"}, "error_type", id="error_type"),
        pytest.param({}, {"trust": "model"}, "trust", id="trust"),
        pytest.param({}, {"held": True}, "held", id="held"),
        pytest.param({"trust": "tool"}, {}, "held", id="both are of a tool"),
        pytest.param({}, {"apart": True}, "apart", id="apart"),
        pytest.param({}, {"pinned": True}, "", id="pinned is no reason"),
        pytest.param({}, {"text": TEXT + " twice"}, "digits", id="digits"),
        pytest.param({}, {"text": "never " + TEXT}, "negation", id="negation"),
        pytest.param({}, {"text": TEXT + " of Ada"}, "names", id="names"),
        pytest.param(
            {}, {"text": TEXT.replace("large", "small")}, "wording", id="wording"
        ),
    ],
)
def test_a_veto_says_why(both, fields, why):
    first = lesson(**both)
    other = lesson(2, **{**both, **fields})
    assert veto(first, other) == veto(other, first) == why
    plan = propose([first, other], [[1.0, 0.0], [1.0, 0.0]], "lite", NOW)
    assert [p.action for p in plan.merges] == ([] if why else ["merge"])
    assert plan.vetoes == ({why: 1} if why else {})
    assert bool(plan.nothing) is bool(why)
    assert not why or VETO_REASONS[why] in plan.nothing


@pytest.mark.parametrize(
    ("lessons", "why"),
    [
        pytest.param(
            [lesson()], "too few lessons: 1, and it takes two to merge", id="one lesson"
        ),
        pytest.param(
            [lesson(), lesson(2, text="wholly other words")],
            "no two lessons say the same",
            id="two unlike lessons",
        ),
    ],
)
def test_without_a_pair_there_is_a_reason(lessons, why):
    assert propose(lessons, None, "lite", NOW).nothing == why


def rule(id: int, text: str, failure: str = "timeout", **fields: Any) -> DreamLesson:
    """A strategy of the reflection on this failure."""
    name = strategy_signature(signature("error", failure), text)
    kind = {
        "kind": "strategy",
        "signature": name.digest,
        "pattern": name.pattern,
        **fields,
    }
    return lesson(id, text, **kind)


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("Retry the call", "Do not retry the call", "negation"),
        ("Retry the call", "Don't retry the call", "negation"),
        ("Do not retry the call", "Never retry the call", ""),
        ("Avoid the call", "Do not avoid the call", "negation"),
        ("Retry at most 3 times", "Retry at most 5 times", "digits"),
        ("Retry at most three times", "Retry at most five times", "digits"),
        (
            "Retry the call",
            "Retry the call 3 times",
            "",
        ),  # a number that only one gives
        ("Retry the call", "Never read the page before you ask", ""),
        ("So ask Ada at once", "So do not ask Bo at once", ""),
        ("Use kilograms", "Use pounds", ""),
        ("", "", ""),
    ],
)
def test_rules_for_one_failure_contradict_each_other(first, second, why):
    contradictions = propose(
        [rule(1, first, seen=2), rule(2, second)], None, "lite", NOW
    ).contradictions
    assert contradictions == (
        (
            Proposal(
                "contradict",
                (1, 2),
                survivor=0,
                why=VETO_REASONS[why],
                outcome=PERSON_OUTCOME,
            ),
        )
        if why
        else ()
    )


AGAINST = "Never retry the call"
TIMEOUT = signature("error", "timeout").digest


@pytest.mark.parametrize(
    ("lessons", "expected"),
    [
        pytest.param(
            [rule(1, "Retry 3 times"), rule(2, "Retry 5 times", "no such file")],
            [],
            id="rules of two failures",
        ),
        pytest.param(
            [rule(n, f"Retry {n} times", seen=n) for n in (3, 4, 5)],
            [(5, 4), (5, 3)],
            id="rules of one failure",
        ),
        pytest.param(
            [
                lesson(1, "Retry the call", signature="a", kind="check"),
                *(
                    lesson(2, AGAINST, signature="a", kind=kind)
                    for kind in ("reflection", "error")
                ),
            ],
            [],
            id="lessons that are no rules",
        ),
        pytest.param(
            [
                lesson(1, "Retry the call", signature=TIMEOUT, kind="check"),
                rule(2, AGAINST, trust="model", seen=2),
            ],
            [(2, 1)],
            id="a check and a rule",
        ),
    ],
)
def test_each_rule_is_compared_with_the_best_one_for_its_failure(lessons, expected):
    for those in (lessons, lessons[::-1]):
        listed = propose(those, None, "lite", NOW).contradictions
        assert [contradiction.members for contradiction in listed] == expected


@pytest.mark.parametrize(
    "better",
    [
        pytest.param({"pinned": True}, id="pinned"),
        pytest.param({"state": "verified"}, id="verified"),
        pytest.param({"useful": 1.2}, id="useful"),
        pytest.param({"seen": 2}, id="seen"),
    ],
)
def test_the_survivor_is_the_one_with_the_best_evidence(better):
    two = [lesson(1), lesson(2, **better)]
    for lessons in (two, two[::-1]):
        (merge,) = propose(lessons, None, "lite", NOW).merges
        assert merge.survivor == 2
        assert merge.members == (1,)


def test_a_periodic_run_needs_three_fresh_and_important_ones_of_others():
    fresh = [lesson(n, importance=0.6) for n in (1, 2)]
    old = lesson(3, importance=0.9, last_seen=NOW - 86_401)
    poor = lesson(4, importance=0.59)
    plan = propose([*fresh, old, poor], None, "full", NOW)
    assert plan.merges == ()
    assert plan.nothing.endswith("hours: 2, and a periodic run needs 3")
    third = lesson(6, importance=0.6, text="something else")
    (merge,) = propose([*fresh, old, poor, third], None, "full", NOW).merges
    assert {merge.survivor, *merge.members} == {1, 2, 3}
    others = [
        lesson(n, text="an old story that two tell alike", importance=0.1)
        for n in (7, 8)
    ]
    (merge,) = propose([*fresh, third, *others], None, "full", NOW).merges
    assert {merge.survivor, *merge.members} == {1, 2}


def test_every_member_is_near_its_survivor():
    """No chain: the first is near the second, that near the third, but not the
    first.
    """
    vectors = [[1.0, 0.0], [0.96, 0.28], [0.8432, 0.5376]]
    lessons = [lesson(1, seen=2), lesson(2), lesson(3)]
    (merge,) = propose(lessons, vectors, "lite", NOW).merges
    assert merge.survivor == 1
    assert merge.members == (2,)


PART = st.sampled_from(
    (
        "weigh the parcel then label not never 3 5 three before after Ada Bo 'big' it"
    ).split()
)
FIELDS = st.fixed_dictionaries(
    {
        "text": st.lists(PART, min_size=1, max_size=6).map(" ".join),
        "kind": st.sampled_from(["error", "check"]),
        "error_type": st.sampled_from(["k", "l"]),
        "trust": st.sampled_from(["operator", "model", "tool"]),
        "pinned": st.booleans(),
        "apart": st.booleans(),
        "held": st.booleans(),
        "seen": st.integers(1, 3),
    }
)


@given(st.lists(FIELDS, max_size=10), st.randoms(), st.booleans())
def test_nothing_is_merged_across_a_veto_whatever_the_order(fields, chance, by_words):
    lessons = [lesson(n, **merge) for n, merge in enumerate(fields)]
    vectors = None if by_words else [[1.0]] * len(lessons)
    plan = propose(lessons, vectors, "lite", NOW)
    merges = plan.merges
    merged = [id for merge in merges for id in (*merge.members, merge.survivor)]
    assert len(merged) == len(set(merged))
    for merge in merges:
        survivor = lessons[merge.survivor]
        for id in merge.members:
            assert not lessons[id].pinned
            assert veto(lessons[id], survivor) == ""
    shuffled = chance.sample(lessons, len(lessons))
    again = propose(shuffled, vectors, "lite", NOW)
    same = {(merge.survivor, merge.members) for merge in again.merges}
    assert same == {(merge.survivor, merge.members) for merge in merges}
    assert again.vetoes == plan.vetoes
