"""Each stop rule at its boundaries."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import heedful
from heedful.loop.record import (
    Attempt,
    Candidate,
    Evaluation,
    Finding,
    Goal,
    Loop,
    Usage,
)
from heedful.loop.stop import Budget, Echo, Fatigue, MaxAttempts, Plateau, Repeat
from heedful.loop.stop import find_near_repeat as near
from heedful.testing import history
from tests.loop import support
from tests.loop.support import QUALITY, evaluated, finding, loop_of, tried

X = evaluated("x")
BOTH = evaluated("x", "y")
FLOOR = Plateau(None, floor=0.3)


def tagged(errors: str, persistent: bool) -> Evaluation:
    tag = finding("bias", level="warning", persistent=persistent)
    return Evaluation((*evaluated(*errors).findings, tag))


def said(message: str, check: str = "c") -> Evaluation:
    return Evaluation((Finding(check, message),))


def severe(*severities: float, note: float = 0.0) -> Loop:
    findings = [finding(f"{n}", severity=s) for n, s in enumerate(severities)]
    return loop_of(Evaluation((*findings, finding("n", level="note", severity=note))))


def spending(**usage: float) -> Loop:
    """A loop that spends one half in its attempt and one half outside it."""
    half = Usage(**{name: value / 2 for name, value in usage.items()})  # type: ignore[arg-type]
    return Loop(
        "spending",
        attempts=(Attempt(1, Candidate.of("a"), evaluation=X, usage=half),),
        extra=half,
    )


# What each attempt finds wrong, a letter an error: histories in which the rule speaks,
# and others.
FOUND: list[tuple[heedful.StopRule, str, str]] = [
    (MaxAttempts(), "a,a,a,a a,a,a,a,a", "a a,a,a"),  # the first try counts
    *((Fatigue(limit), "a,a,a", "a,a") for limit in (0.299, 0.3, 0.1 + 0.2, 0.3004)),
    (Fatigue(0.301), "", "a,a,a"),
    # The last attempt has the finding; it counts once in an attempt, and from an
    # improvement on.
    (Echo(), "x,x,x x,y,x,x xz,x,x,x", "x,x x,y,x,y x,x,x,y xxx xx,x xz,x,x"),
    (Plateau(), "ab,cd,ef abc,abc,ab,ab,ab", "ab,ab abc,abc,ab,ab"),
    (Plateau(1), "ab,ab ab,cd ab,a,b", "ab ab,a"),
]
# Candidates that never improve; ~ is near the first, * was sampled greedily: of a
# greedy sample the first repeat does not count, since a warmer one is still to come.
TRIED: list[tuple[heedful.StopRule, str, str]] = [
    (
        Repeat(),
        "aa abcb abc~ a*a a*a*a* a*a*a a*b*a*b* a*b~*c~*",
        "a ab aab a*a* aa* a*b~*",
    ),
    (Repeat(2), "aaa aabb abc~c~ a*a*a*", "aa aba a*a*"),
    (Repeat(3), "aaaa", "a*a*a*"),
    (Repeat(near=False), "abc~c~ a*a*a*", "abc~ a*a* a*b~*b*"),
    (Repeat(2, near=False), "", "abc~c~"),
    (heedful.All(MaxAttempts(2), Repeat()), "aa", "ab"),
    (heedful.All(MaxAttempts(3), Repeat()), "", "aa"),
    (heedful.All(heedful.All(MaxAttempts(2), Repeat()), Plateau(1)), "aa", ""),
]


def marked(text: str) -> Loop:
    marks = re.findall(r"([a-z])(~?)(\*?)", text)
    near, cold = (
        "".join(f"{n}" for n, mark in enumerate(marks, 1) if mark[k]) for k in (1, 2)
    )
    return tried("".join(mark[0] for mark in marks), near, cold=cold)


CASES: list[tuple[heedful.StopRule, Loop, bool]] = [
    *(
        (rule, make(text), speaks)
        for table, make in (
            (FOUND, lambda text: history(*text.split(","))),
            (TRIED, marked),
        )
        for rule, spoken, silent in table
        for texts, speaks in ((spoken, True), (silent, False))
        for text in texts.split()
    ),
    (Echo(), loop_of(X, None, X, X), True),
    (Echo(), loop_of(X, X, X, None), False),
    (
        Echo(),
        loop_of(*[said("three units")] * 3),
        True,
    ),  # the key is check and exact text
    (
        Echo(),
        loop_of(said("three units"), said("four units"), said("three units")),
        False,
    ),
    (Echo(), loop_of(*(evaluated(f"e{n}", warnings=["w"]) for n in range(3))), True),
    (Echo(1), loop_of(Evaluation((finding("n", level="note"),))), False),
    # A persistent finding counts across the improvements.
    (
        Echo(),
        loop_of(*(tagged(keys, persistent=True) for keys in ("abc", "ab", "a"))),
        True,
    ),
    (
        Echo(),
        loop_of(*(tagged(keys, persistent=False) for keys in ("abc", "ab", "a"))),
        False,
    ),
    (Echo(3, across="scope"), loop_of(X, echoes={"x": 2, "y": 9}), True),
    (Echo(4, across="scope"), loop_of(X, echoes={"x": 2, "y": 9}), False),
    (Echo(3), loop_of(X, echoes={"x": 2, "y": 9}), False),
    (Repeat(1), loop_of(BOTH, BOTH, X, X, texts="aabb"), True),
    (
        Repeat(2),
        loop_of(BOTH, BOTH, X, X, texts="aabb"),
        False,
    ),  # one is before an improvement
    (
        Repeat(),
        loop_of(BOTH, X, texts="aa"),
        False,
    ),  # the same candidate was judged better
    (Plateau(1, floor=1), loop_of(X, X, None), False),
    (FLOOR, severe(0.0, note=1.0), True),
    (FLOOR, severe(0.299, note=1.0), True),
    (FLOOR, severe(0.2996), False),
    (FLOOR, severe(0.0, 0.3), False),  # the worst one counts
    (FLOOR, severe(), False),  # without findings there is no severity
    (Budget(tokens=100), spending(prompt_tokens=60, completion_tokens=38), False),
    (Budget(tokens=100), spending(prompt_tokens=60, completion_tokens=40), True),
    (Budget(cost=0.5), spending(cost=0.49), False),
    (Budget(cost=0.5), spending(cost=0.5), True),
    (Budget(calls=4), spending(calls=2), False),
    (Budget(calls=4), spending(calls=4), True),
    (Budget(tokens=9, calls=99), spending(calls=98, prompt_tokens=10), True),
]


@pytest.mark.parametrize(("rule", "loop", "speaks"), CASES)
def test_a_rule_speaks_exactly_at_its_boundary(rule, loop, speaks):
    assert bool(rule(loop)) is speaks


@pytest.mark.parametrize(
    ("rule", "loop", "words"),
    [
        (Fatigue(0.15), history("a", "a"), "fatigue 0.15 has reached 0.15"),
        (Repeat(), tried("abc", near="3"), "attempt 3 repeats attempt 1"),
        (Repeat(), tried("abcc", near="34"), "attempt 4 repeats attempt 3"),
        (
            Budget(tokens=1_000_000, calls=2, cost=1),
            spending(prompt_tokens=1_234_568, calls=2),
            "1234568 of 1000000 tokens, 2 of 2 calls spent",
        ),
        (
            heedful.All(MaxAttempts(2), Repeat()),
            tried("aa"),
            "2 of 2 attempts made and attempt 2 repeats attempt 1",
        ),
    ],
)
def test_a_rule_names_what_it_saw(rule, loop, words):
    assert rule(loop) == words


def test_an_echo_names_its_findings_in_bounded_words():
    words = Echo(1)(
        loop_of(Evaluation(tuple(finding(f"{n} " + "long" * 50) for n in range(9))))
    )
    assert words is not None
    assert words.startswith("the same finding again: 0 long")
    assert len(words) < 400
    assert Echo(3, across="scope").counts(loop_of(X, echoes={"x": 2, "y": 9})) == {
        "x": 3
    }


@pytest.mark.parametrize(
    ("rule", "errors", "level"),
    [
        (Fatigue(), ["ab"], 0.0),
        (Fatigue(), ["ab", "a"], 0.0),  # never below 0
        (Fatigue(), ["abc", "abc", "ab"], 0.10),
        (Fatigue(), ["abc", "abc", "ab", "ab", "ab"], 0.40),
        (Fatigue(), ["a"] * 8, 1.0),  # 7 × 0.15 = 1.05, never above 1
        (Fatigue(), ["ab"] * 8 + ["a"], 0.95),
        (Fatigue(increment=0.5, decay=0.2), ["ab", "ab", "a"], 0.3),
        (Fatigue(0.1, 0.5, decay=0.2, most=0.3), ["ab", "ab", "a"], 0.1),
    ],
)
def test_fatigue_rises_without_improvement_and_falls_with_one(rule, errors, level):
    assert rule.level(history(*errors)) == level


@given(support.loops(), st.integers(1, 3), st.booleans())
def test_fewer_repeats_count_without_near_ones_and_where_sampling_was_greedy(
    loop, times, near
):
    def repeats(loop: Loop, near: bool = near) -> bool:
        return bool(Repeat(times, near)(loop))

    cold = replace(loop, attempts=tuple(replace(a, greedy=True) for a in loop.attempts))
    warm = replace(
        loop, attempts=tuple(replace(a, greedy=False) for a in loop.attempts)
    )
    assert repeats(cold) <= repeats(loop) <= repeats(warm)
    assert repeats(loop, near=False) <= repeats(loop, near=True)
    assert times == 1 or repeats(cold) == repeats(warm)


def test_no_rule_stops_a_loop_that_has_not_begun():
    eager = (
        Echo(1),
        Repeat(),
        Fatigue(),
        Plateau(1),
        Budget(calls=1),
        heedful.NothingMet(),
    )
    assert [rule(Loop("new")) for rule in (MaxAttempts(), *eager)] == [None] * 7


@given(support.loops(), support.usages)
def test_spending_more_never_silences_a_budget(loop, usage):
    rule = Budget(tokens=300, cost=1.0, seconds=20, calls=4)
    assert not rule(loop) or rule(replace(loop, extra=loop.extra + usage))


def test_two_combinations_of_equal_rules_are_equal():
    first, same, other = (heedful.All(MaxAttempts(n), Repeat()) for n in (2, 2, 3))
    assert first == same != other
    assert len({first, same}) == 1
    assert repr(first) == "All(MaxAttempts(limit=2), Repeat(times=1, near=True))"


def test_a_goal_is_shown_as_it_is_compared():
    assert str(QUALITY) == "quality >= 0.75"
    assert str(Goal("drift", 1234567.8, "at_most")) == "drift <= 1234567.8"


# -- near repeats, which a host finds

TEXT = (
    "The parcel weighs 12.5 kg and must not leave the warehouse in Utrecht before 9 "
    "o'clock on "
    "Monday, because the customs form was signed by nobody and the broker said a + b "
    "is due."
)
TWENTY = [f"word{letter}" for letter in "abcdefghijklmnopqrst"]


def shout(count: int) -> str:
    """Twenty words, the first `count` of them changed."""
    return " ".join(
        word.upper() if n < count else word for n, word in enumerate(TWENTY)
    )


@pytest.mark.parametrize(
    ("one", "other", "is_near"),
    [
        (TEXT, TEXT, True),
        (TEXT, TEXT.replace("parcel", "packet"), True),
        (TEXT, TEXT.replace("12.5", "5.12"), False),  # the same digits in another order
        (TEXT, TEXT.replace("must not", "must"), False),  # a negation
        (TEXT, TEXT[: len(TEXT) // 2], False),
        (TEXT, "", False),
        (shout(0), shout(2), True),  # nine tenths of the tokens
        (shout(0), shout(3), False),
        ("it does work " * 5, "it doesn't work " * 5, False),
        ("it can work " * 9, "it can work " * 8 + "it can’t work ", False),
        ("if a < b: go()\n" * 9, "if a < b: go()\n" * 8 + "if a > b: go()\n", False),
        ("call f1 " * 9, "call f1 " * 8 + "call f2 ", False),
        (
            "word " * 30_000 + "a",
            "word " * 30_000 + "b",
            False,
        ),  # too much text to compare
    ],
)
def test_two_candidates_are_near_unless_what_differs_always_matters(
    one, other, is_near
):
    for first, second in ((one, other), (other, one)):
        earlier = [Attempt(1, Candidate("none")), Attempt(2, Candidate.of(first))]
        assert near(Candidate.of(second), earlier) == (2 if is_near else None)


@given(st.text(max_size=60), st.text(max_size=60))
def test_nearness_is_symmetric_and_every_text_is_near_itself(one, two):
    a = Candidate.of(one)
    b = Candidate.of(two)
    assert near(a, [Attempt(1, a)]) == 1
    assert near(a, [Attempt(1, b)]) == near(b, [Attempt(1, a)])
    assert (
        near(Candidate("d"), [Attempt(1, Candidate("d"))]) is None
    )  # there is no text
