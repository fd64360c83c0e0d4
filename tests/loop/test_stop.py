"""Each stop rule at its boundaries."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.loop.record import Attempt, Candidate, Evaluation, Finding, Goal, Loop, Usage
from heedful.loop.stop import (
    All,
    Budget,
    Echo,
    Fatigue,
    MaxAttempts,
    NothingMet,
    Plateau,
    Repeat,
    rule_name,
)
from heedful.loop.stop import find_near_repeat as near
from heedful.testing import history
from tests.loop import support
from tests.loop.support import evaluated, finding, loop_of, scored

# -- attempts


@pytest.mark.parametrize(("made", "speaks"), [(0, False), (3, False), (4, True), (5, True)])
def test_max_attempts_counts_the_first_try(made, speaks):
    assert bool(MaxAttempts()(history(*["a"] * made))) is speaks
    assert MaxAttempts().limit == 4


# -- fatigue: + for no improvement, − for one


@pytest.mark.parametrize(
    ("errors", "level"),
    [
        ([], 0.0),
        (["ab"], 0.0),
        (["ab", "ab"], 0.15),
        (["ab", "ab", "ab"], 0.30),
        (["ab", "a"], 0.0),  # never below 0
        (["abc", "abc", "ab"], 0.10),
        (["abc", "abc", "ab", "ab"], 0.25),
        (["abc", "abc", "ab", "ab", "ab"], 0.40),
        (["abcd", "abcd", "abc", "ab", "a", ""], 0.0),
        (["a"] * 8, 1.0),  # 7 × 0.15 = 1.05, never above 1
        (["ab"] * 8 + ["a"], 0.95),
    ],
)
def test_fatigue_level(errors, level):
    assert Fatigue().level(history(*errors)) == level


@pytest.mark.parametrize(
    ("limit", "speaks"),
    [(0.299, True), (0.3, True), (0.1 + 0.2, True), (0.3004, True), (0.301, False), (1, False)],
)
def test_fatigue_stops_at_the_limit_and_above_it_in_thousandths(limit, speaks):
    assert bool(Fatigue(limit)(history("a", "a", "a"))) is speaks


def test_fatigue_settings_take_effect():
    loop = history("ab", "ab", "a")
    assert Fatigue(increment=0.5, decay=0.2).level(loop) == 0.3
    assert Fatigue(decay=0).level(loop) == 0.15
    assert Fatigue(0.1, 0.5, 0.2, most=0.3).level(loop) == 0.1
    assert Fatigue(0.15)(history("a", "a")) == "fatigue 0.15 has reached 0.15"


@given(support.loops(), st.floats(0.001, 1), st.floats(0.001, 1), st.floats(0, 1))
def test_fatigue_stays_within_0_and_1(loop, limit, increment, decay):
    assert 0 <= Fatigue(limit, increment, decay).level(loop) <= 1


# -- echo


def echoes(*attempts: Evaluation | None, times: int = 3) -> bool:
    return bool(Echo(times)(loop_of(*attempts)))


X, Y, BOTH = evaluated("x"), evaluated("y"), evaluated("x", "y")


@pytest.mark.parametrize(
    ("attempts", "speaks"),
    [
        ([X, X], False),
        ([X, X, X], True),
        ([X, Y, X, X], True),
        ([X, Y, X, Y], False),
        ([X, Y, X, Y, X], True),
        ([X, X, Y, X], True),
        ([X, X, X, Y], False),  # the last one has another finding
        ([X, None, X, X], True),
        ([X, X, X, None], False),
        ([evaluated("x", "x", "x")], False),  # in one attempt it counts once
        ([evaluated("x", "x"), X], False),
        ([evaluated("x", "z"), X, X], False),  # X improved: counted from there
        ([evaluated("x", "z"), X, X, X], True),
    ],
)
def test_echo_is_the_same_key_in_three_attempts_since_the_last_improvement(attempts, speaks):
    assert echoes(*attempts) is speaks


def test_the_default_key_is_the_name_of_the_check_and_the_exact_text():
    def said(message: str, check: str = "c") -> Evaluation:
        return Evaluation((Finding(check, message),))

    assert Finding("c", "three units").key == "c: three units"
    assert echoes(*[said("three units")] * 3)
    assert not echoes(said("three units"), said("four units"), said("three units"))
    assert not echoes(said("a"), said("a", "d"), said("a"))


def test_warnings_echo_and_notes_do_not():
    assert echoes(*[evaluated("e" + str(n), warnings=["w"]) for n in range(3)])
    notes = Evaluation((finding("n", level="note"), finding("x")))
    assert Echo(1).counts(loop_of(notes)) == {"x": 1}


def test_a_persistent_finding_is_not_reset_by_an_improvement():
    def tagged(*errors: str, persistent: bool) -> Evaluation:
        tag = finding("bias", level="warning", persistent=persistent)
        return Evaluation((*evaluated(*errors).findings, tag))

    better = [("a", "b", "c"), ("a", "b"), ("a",)]
    assert echoes(*(tagged(*errors, persistent=True) for errors in better))
    assert not echoes(*(tagged(*errors, persistent=False) for errors in better))


def test_across_the_scope_earlier_loops_count():
    loop = loop_of(X, echoes={"x": 2, "y": 9})
    assert Echo(3, across="scope").counts(loop) == {"x": 3}
    assert Echo(3, across="scope")(loop)
    assert Echo(3)(loop) is None
    assert Echo(4, across="scope")(loop) is None


def test_echo_names_what_it_heard_in_bounded_words():
    many = Evaluation(tuple(finding(f"{n} " + "long" * 50) for n in range(9)))
    said = Echo(1)(loop_of(many))
    assert said is not None
    assert said.startswith("the same finding again: 0 long")
    assert len(said) < 400


# -- repeat


@pytest.mark.parametrize(
    ("texts", "speaks"),
    [
        ("a", False),
        ("ab", False),
        ("aa", True),
        ("aba", True),  # a cycle
        ("abcb", True),
        ("aab", False),  # the last one is new
        ("abca", True),
    ],
)
def test_repeat_speaks_where_the_last_candidate_was_seen_before(texts, speaks):
    assert bool(Repeat()(loop_of(*[X] * len(texts), texts=texts))) is speaks


@pytest.mark.parametrize(
    ("texts", "times", "speaks"),
    [
        ("aa", 2, False),
        ("aaa", 2, True),
        ("aabb", 2, True),
        ("abab", 2, True),
        ("aba", 2, False),
        ("aaaa", 3, True),
    ],
)
def test_repeat_can_wait_for_more_of_them(texts, times, speaks):
    assert bool(Repeat(times)(loop_of(*[X] * len(texts), texts=texts))) is speaks


def test_repeats_before_an_improvement_do_not_count():
    loop = loop_of(BOTH, BOTH, X, X, texts="aabb")
    assert Repeat(1)(loop)
    assert Repeat(2)(loop) is None


def test_a_repeat_without_near_ones_is_of_the_very_same_candidate():
    near_one = loop_of(X, X).then(Attempt(3, Candidate.of("three"), X, repeats=1))
    assert Repeat()(near_one) == "attempt 3 repeats attempt 1"
    assert Repeat(near=False)(near_one) is None
    exact = near_one.then(Attempt(4, Candidate.of("three"), X, repeats=1))
    assert Repeat(near=False)(exact) == "attempt 4 repeats attempt 3"
    assert Repeat(2, near=False)(exact) is None  # the near one before it does not count
    assert Repeat(2)(exact) == "attempt 4 repeats attempt 3"


def greedy(texts: str, warm: str = "", near: str = "") -> Loop:
    """A loop sampled greedily, but for the attempts in `warm`; those in `near` are near the 1st."""
    attempts = [
        Attempt(n, Candidate.of(text), X, greedy=str(n) not in warm, repeats=_first(n, near))
        for n, text in enumerate(texts, 1)
    ]
    return Loop("greedy", attempts=tuple(attempts))


def _first(number: int, near: str) -> int | None:
    return 1 if str(number) in near else None


@pytest.mark.parametrize(
    ("loop", "rule", "speaks"),
    [
        (greedy("aa"), Repeat(), False),  # a warmer sample is still to come
        (greedy("aa", warm="2"), Repeat(), True),
        (greedy("aa", warm="1"), Repeat(), False),  # the repeat was greedy, whatever came before
        (greedy("aaa"), Repeat(), True),
        (greedy("aaa", warm="3"), Repeat(), True),
        (greedy("aba"), Repeat(), False),
        (greedy("abab"), Repeat(), True),
        (greedy("aa"), Repeat(near=False), False),
        (greedy("aaa"), Repeat(near=False), True),
        (greedy("ab", near="2"), Repeat(), False),
        (greedy("abc", near="23"), Repeat(), True),
        (greedy("abb", near="2"), Repeat(near=False), False),  # the first exact one
        (greedy("aaa"), Repeat(2), True),
        (greedy("aa"), Repeat(2), False),
        (greedy("aaa"), Repeat(3), False),
    ],
)
def test_the_first_repeat_that_was_sampled_greedily_never_stops(loop, rule, speaks):
    assert bool(rule(loop)) is speaks


@given(support.loops(), st.integers(1, 3), st.booleans())
def test_less_counts_as_a_repeat_without_near_ones_and_where_it_was_greedy(loop, times, near):
    def repeats(loop: Loop, near: bool = near) -> bool:
        return bool(Repeat(times, near)(loop))

    cold = replace(loop, attempts=tuple(replace(a, greedy=True) for a in loop.attempts))
    warm = replace(loop, attempts=tuple(replace(a, greedy=False) for a in loop.attempts))
    assert repeats(cold) <= repeats(loop) <= repeats(warm)
    assert repeats(loop, near=False) <= repeats(loop, near=True)
    assert times == 1 or repeats(cold) == repeats(warm)


def test_the_same_candidate_judged_better_is_no_repeat():
    assert Repeat()(loop_of(BOTH, X, texts="aa")) is None


def test_a_near_repeat_is_marked_by_the_host():
    marked = Attempt(3, Candidate.of("three"), X, repeats=1)
    loop = loop_of(X, X).then(marked)
    assert Repeat()(loop) == "attempt 3 repeats attempt 1"
    assert loop.repeats == 1


TEXT = (
    "The parcel weighs 12.5 kg and must not leave the warehouse in Utrecht before 9 o'clock on "
    "Monday, because the customs form was signed by nobody and the broker said a + b is due."
)


@pytest.mark.parametrize(
    ("other", "is_near"),
    [
        (TEXT, True),
        (TEXT.replace("parcel", "packet"), True),
        (TEXT.replace("  ", " ") + "  ", True),
        (TEXT.replace("12.5", "12.6"), False),  # a digit
        (TEXT.replace("9", "8"), False),
        (TEXT.replace("must not", "must"), False),  # a negation
        (TEXT.replace("nobody", "somebody"), False),
        (TEXT.replace("a + b", "a - b"), False),  # an operator
        (TEXT.replace("12.5", "5.12"), False),  # the same digits in another order
        (TEXT[: len(TEXT) // 2], False),
        (TEXT.upper(), False),
        ("", False),
    ],
)
def test_near_is_alike_but_for_what_always_makes_a_difference(other, is_near):
    earlier = [Attempt(1, Candidate.of("other")), Attempt(2, Candidate.of(TEXT))]
    assert near(Candidate.of(other), earlier) == (2 if is_near else None)
    backwards = [Attempt(1, Candidate.of(other))]
    assert near(Candidate.of(TEXT), backwards) == (1 if is_near else None)


@pytest.mark.parametrize(("changed", "is_near"), [(1, True), (2, True), (3, False)])
def test_near_begins_at_nine_tenths_of_the_tokens(changed, is_near):
    words = [f"word{'abcdefghijklmnopqrst'[n]}" for n in range(20)]
    other = [word.upper() if n < changed else word for n, word in enumerate(words)]
    first = [Attempt(1, Candidate.of(" ".join(words)))]
    assert near(Candidate.of(" ".join(other)), first) == (1 if is_near else None)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("it does work " * 5, "it doesn't work " * 5),
        ("it can work " * 9, "it can work " * 8 + "it can’t work "),
        ("x = y\n" * 9, "x = y\n" * 8 + "x == y\n"),
        ("if a < b: go()\n" * 9, "if a < b: go()\n" * 8 + "if a > b: go()\n"),
        ("flags = a & b " * 9, "flags = a & b " * 8 + "flags = a | b "),
        ("call f1 " * 9, "call f1 " * 8 + "call f2 "),
    ],
)
def test_one_changed_sign_in_a_long_text_is_a_difference(one, two):
    assert near(Candidate.of(one), [Attempt(1, Candidate.of(two))]) is None


def test_near_leaves_out_what_has_no_text_or_too_much_of_it():
    assert near(Candidate("d"), [Attempt(1, Candidate("d"))]) is None
    long = "word " * 30_000
    assert near(Candidate.of(long + "a"), [Attempt(1, Candidate.of(long + "b"))]) is None


@given(st.text(max_size=60), st.text(max_size=60))
def test_near_is_symmetric_and_every_text_is_near_itself(one, two):
    a, b = Candidate.of(one), Candidate.of(two)
    assert near(a, [Attempt(1, a)]) == 1
    assert near(a, [Attempt(1, b)]) == near(b, [Attempt(1, a)])


@given(st.text("ab cd,.", min_size=30, max_size=80), st.integers(0, 9), st.integers(0, 9))
def test_another_digit_is_never_near(text, one, two):
    first, second = f"{text} {one}", f"{text} {two}"
    found = near(Candidate.of(first), [Attempt(1, Candidate.of(second))])
    assert (found == 1) is (one == two)


# -- plateau


@pytest.mark.parametrize(
    ("errors", "speaks"),
    [
        (["ab"], False),
        (["ab", "ab"], False),
        (["ab", "ab", "ab"], True),
        (["ab", "cd", "ef"], True),
        (["abc", "abc", "ab", "ab"], False),
        (["abc", "abc", "ab", "ab", "ab"], True),
    ],
)
def test_plateau_after_two_attempts_without_improvement(errors, speaks):
    assert bool(Plateau()(history(*errors))) is speaks


@pytest.mark.parametrize(
    ("errors", "speaks"),
    [
        (["ab"], False),
        (["ab", "ab"], True),
        (["ab", "ac"], False),  # c is new
        (["ab", "ac", "bc"], True),
        (["ab", "a"], False),  # it improved
        (["ab", "a", "b"], True),  # b was seen
    ],
)
def test_novelty_is_a_finding_not_seen_before(errors, speaks):
    assert bool(Plateau(patience=None, novelty=True)(history(*errors))) is speaks


@pytest.mark.parametrize(
    ("severity", "speaks"), [(0.0, True), (0.299, True), (0.3, False), (0.2996, False), (1, False)]
)
def test_floor_is_the_worst_severity(severity, speaks):
    rule = Plateau(patience=None, floor=0.3)
    worst = (finding("a", severity=severity), finding("b", severity=0.0), finding("w"))
    levels = (worst[0], worst[1], finding("n", level="note", severity=1.0))
    assert bool(rule(loop_of(Evaluation(levels)))) is speaks
    assert rule(loop_of(Evaluation(worst))) is None


def test_without_findings_there_is_no_severity_to_be_low():
    rule = Plateau(patience=None, floor=0.3)
    assert rule(scored(0.1)) is None
    assert rule(loop_of(evaluated(scores={}), goals=(support.QUALITY,))) is None


def test_plateau_says_nothing_about_an_attempt_that_was_not_evaluated():
    assert Plateau(1, novelty=True, floor=1)(loop_of(X, X, None)) is None
    assert Plateau(1)(Loop("empty")) is None


# -- nothing met


def met(*shares: float | None) -> Loop:
    return loop_of(*(Evaluation((finding("x"),), met=share) for share in shares))


@pytest.mark.parametrize(
    ("loop", "speaks"),
    [
        (Loop("new"), False),
        (met(0.0), True),
        (met(0.0, 0.0), True),
        (met(0), True),
        (met(0.001), False),
        (met(1.0), False),
        (met(0.5, 0.0), False),  # something was met once
        (met(0.0, 0.5), False),
        (met(None), False),  # unknown is not nothing
        (met(0.0, None), False),
        (loop_of(None), False),
        (loop_of(None, Evaluation(met=0.0)), True),  # of what was evaluated
        (loop_of(Evaluation(met=0.0), None), True),
    ],
)
def test_nothing_met_speaks_while_all_that_was_evaluated_met_nothing(loop, speaks):
    assert bool(NothingMet()(loop)) is speaks


@given(support.loops(), st.floats(0.001, 1))
def test_once_something_was_met_nothing_met_is_silent_for_good(loop, share):
    some = Evaluation(met=share)
    met_first = Loop("some", attempts=(Attempt(1, Candidate.of("a"), some),))
    for attempt in loop.attempts:
        met_first = met_first.then(replace(attempt, number=len(met_first.attempts) + 1))
        assert NothingMet()(met_first) is None


# -- budget


def spending(**usage: float) -> Loop:
    half = Usage(**{name: value / 2 for name, value in usage.items()})  # type: ignore[arg-type]
    attempts = (Attempt(1, Candidate.of("a"), X, half),)
    return Loop("spending", attempts=attempts, extra=half)


@pytest.mark.parametrize(
    ("budget", "usage", "speaks"),
    [
        (Budget(tokens=100), {"prompt_tokens": 60, "completion_tokens": 38}, False),
        (Budget(tokens=100), {"prompt_tokens": 60, "completion_tokens": 40}, True),
        (Budget(cost=0.5), {"cost": 0.49}, False),
        (Budget(cost=0.5), {"cost": 0.5}, True),
        (Budget(seconds=2), {"seconds": 1.999}, False),
        (Budget(seconds=2), {"seconds": 2.0}, True),
        (Budget(calls=4), {"calls": 2}, False),
        (Budget(calls=4), {"calls": 4}, True),
        (Budget(tokens=9, calls=99), {"calls": 98, "prompt_tokens": 10}, True),
    ],
)
def test_budget_is_reached_by_attempts_and_what_was_spent_outside_them(budget, usage, speaks):
    assert bool(budget(spending(**usage))) is speaks


def test_budget_names_every_limit_that_is_reached_in_full():
    loop = spending(prompt_tokens=1_234_568, calls=2)
    said = Budget(tokens=1_000_000, calls=2, cost=1)(loop)
    assert said == "1234568 of 1000000 tokens, 2 of 2 calls spent"


@given(support.loops(), support.usages)
def test_spending_more_never_silences_a_budget(loop, usage):
    rule = Budget(tokens=300, cost=1.0, seconds=20, calls=4)
    richer = Loop(loop.id, attempts=loop.attempts, extra=loop.extra + usage)
    assert not (rule(loop) and not rule(richer))


# -- all of them


def test_all_speaks_only_when_every_member_does():
    never, always = (lambda loop: None), (lambda loop: "yes")
    empty = Loop("empty")
    assert All(always, always)(empty) == "yes and yes"
    assert All(always, never)(empty) is None
    assert All(All(always, always), always)(empty) == "yes and yes and yes"
    assert All(MaxAttempts(2), Repeat()) == All(MaxAttempts(2), Repeat())
    assert All(MaxAttempts(2), Repeat()) != All(MaxAttempts(3), Repeat())
    assert len({All(MaxAttempts(2), Repeat()), All(MaxAttempts(2), Repeat())}) == 1
    assert (
        repr(All(MaxAttempts(2), Repeat()))
        == "All(MaxAttempts(limit=2), Repeat(times=1, near=True))"
    )


@pytest.mark.parametrize(
    "rule",
    [MaxAttempts(), Echo(1), Repeat(), Fatigue(), Plateau(1), Budget(calls=1), NothingMet()],
    ids=rule_name,
)
def test_no_rule_stops_a_loop_that_has_not_begun(rule):
    assert rule(Loop("new")) is None


@given(support.loops(), support.any_rule)
def test_a_rule_reads_and_never_raises_and_says_the_same_twice(loop, rule):
    said = rule(loop)
    assert said is None or said
    assert rule(loop) == said


# -- words


def test_goals_are_shown_as_they_are_compared():
    assert str(Goal("quality", 0.75)) == "quality >= 0.75"
    assert str(Goal("drift", 1234567.8, "at_most")) == "drift <= 1234567.8"
