"""Each stop rule at its boundaries."""

import math
import re
from dataclasses import replace
from typing import Any

import pytest

import heedful
from heedful.loop.record import Attempt, Candidate, Evaluation, Finding, Loop, Usage
from heedful.loop.similarity import find_near_repeat as near
from heedful.loop.stop import Budget, Echo, Fatigue, MaxAttempts, Plateau, Repeat
from heedful.testing import history
from tests.loop.support import evaluated, finding, loop_from, loop_of, tried
from tests.tables import cases

X = evaluated("x")
BOTH = evaluated("x", "y")
FLOOR = Plateau(None, floor=0.3)
PREVIOUS = heedful.Improvement(against="previous")


def tagged(errors: str, persistent: bool) -> Evaluation:
    tag = finding("bias", level="warning", persistent=persistent)
    return Evaluation((*evaluated(*errors).findings, tag))


def falling_errors(persistent: bool) -> Loop:
    """Each attempt has one error fewer, and all have the same warning."""
    return loop_of(
        tagged("abc", persistent), tagged("ab", persistent), tagged("a", persistent)
    )


def finding_says(message: str) -> Evaluation:
    return Evaluation((Finding("c", message),))


def severe(*severities: float, note: float = 0.0) -> Loop:
    findings = [finding(f"{n}", severity=s) for n, s in enumerate(severities)]
    return loop_of(Evaluation((*findings, finding("n", level="note", severity=note))))


def spending(**usage: Any) -> Loop:
    """A loop that spends one half in its attempt and one half outside it."""
    half = Usage()
    for name, value in usage.items():
        half = replace(half, **{name: value / 2})
    return Loop(
        "spending",
        attempts=(Attempt(1, Candidate.of("a"), evaluation=X, usage=half),),
        extra=half,
    )


# What each attempt finds wrong: a comma between attempts, a letter an error, a space
# between histories. The rule, histories in which it speaks, and others.
FOUND: list[tuple[heedful.StopRule, str, str]] = [
    (MaxAttempts(), "a,a,a,a a,a,a,a,a", "a a,a,a"),  # the first try counts
    (Fatigue(0.299), "a,a,a", "a,a"),
    (Fatigue(0.3), "a,a,a", "a,a"),
    (Fatigue(0.1 + 0.2), "a,a,a", "a,a"),
    (Fatigue(0.3004), "a,a,a", "a,a"),
    (Fatigue(0.301), "", "a,a,a"),
    # The last attempt has the finding; it counts once in an attempt, and from an
    # improvement on.
    (Echo(), "x,x,x x,y,x,x xz,x,x,x", "x,x x,y,x,y x,x,x,y xxx xx,x xz,x,x"),
    (Plateau(), "ab,cd,ef abc,abc,ab,ab,ab", "ab,ab abc,abc,ab,ab"),
    (Plateau(1), "ab,ab ab,cd ab,a,b", "ab ab,a"),
]
# Attempts that never improve, a letter a candidate: ~ behind it is near the first,
# * was sampled greedily, a space between histories. Of a greedy sample the first repeat
# does not count, since a warmer one is still to come.
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


NAN = math.nan
# A setting, and values just outside what is allowed.
WRONG_SETTINGS: list[tuple[Any, str, list[Any]]] = [
    (MaxAttempts, "limit", [0, -1, 1.5, "4", None, True]),
    (Echo, "times", [0, 2.0, "3"]),
    (Echo, "across", ["world"]),
    (Repeat, "times", [0, None]),
    (Repeat, "near", [None, 1, "yes"]),
    (Fatigue, "limit", [0, 0.0004, 1.1, NAN, "0.3"]),
    (Fatigue, "increment", [0, -0.1, 2, NAN]),
    (Fatigue, "most", [0.2, 1.1, NAN]),
    (Fatigue, "decay", [-0.1, 1.1, None]),
    (Plateau, "patience", [0, -1, 1.0]),
    (Plateau, "floor", [0, 1.1, NAN, "0.3", True]),
    *[(Budget, name, [0, NAN, "5"]) for name in ("tokens", "cost", "seconds", "calls")],
]


def loop_of_errors(text: str) -> Loop:
    """Expand a history of `FOUND`."""
    loop: Loop = history(*text.split(","))
    return loop


def loop_of_candidates(text: str) -> Loop:
    """Expand a history of `TRIED`."""
    attempts = re.findall(r"([a-z])(~?)(\*?)", text)
    candidates = ""
    near = ""
    cold = ""
    for number, (candidate, is_near, is_cold) in enumerate(attempts, 1):
        candidates += candidate
        if is_near:
            near += str(number)
        if is_cold:
            cold += str(number)
    return tried(candidates, near, cold=cold)


def boundary_cases() -> dict[str, tuple[heedful.StopRule, Loop, bool]]:
    """Every history of `FOUND` and `TRIED` with its rule, by a name of both."""
    cases: dict[str, tuple[heedful.StopRule, Loop, bool]] = {}
    for table, expand in ((FOUND, loop_of_errors), (TRIED, loop_of_candidates)):
        for rule, spoken, silent in table:
            for text in spoken.split():
                cases[f"{rule} speaks at {text}"] = (rule, expand(text), True)
            for text in silent.split():
                cases[f"{rule} is silent at {text}"] = (rule, expand(text), False)
    return cases


TAGGED = Evaluation((finding("x", persistent=True), finding("y")))
ECHOED = loop_of(TAGGED, echoes={"x": 2, "z": 9})
BETTER_THEN_SAME = loop_of(BOTH, BOTH, X, X, texts="aabb")
CASES: dict[str, tuple[heedful.StopRule, Loop, bool]] = {
    **boundary_cases(),
    "an echo skips what was not evaluated": (Echo(), loop_of(X, None, X, X), True),
    "an echo is of the last evaluation": (Echo(), loop_of(X, X, X, None), False),
    "the key of an echo is check and exact text": (
        Echo(),
        loop_of(
            finding_says("three units"),
            finding_says("three units"),
            finding_says("three units"),
        ),
        True,
    ),
    "a persistent finding counts across improvements": (
        Echo(),
        falling_errors(persistent=True),
        True,
    ),
    "echoes of the scope count": (Echo(3, across="scope"), ECHOED, True),
    "echoes of the scope do not count in a loop": (Echo(3), ECHOED, False),
    "a reason that is not persistent is no echo of the scope": (
        Echo(3, across="scope"),
        loop_of(X, X, X, echoes={"x": 9}),
        False,
    ),
    "one repeat after an improvement": (Repeat(1), BETTER_THEN_SAME, True),
    "of two repeats one is before an improvement": (Repeat(2), BETTER_THEN_SAME, False),
    "the same candidate was judged better": (
        Repeat(),
        loop_of(BOTH, X, texts="aa"),
        False,
    ),
    "the last attempt was not evaluated": (
        Plateau(1, floor=1),
        loop_of(X, X, None),
        False,
    ),
    "a note is not severe": (FLOOR, severe(0.0, note=1.0), True),
    "at the floor in thousandths": (FLOOR, severe(0.2996), False),
    "without findings there is no severity": (FLOOR, severe(), False),
    "tokens below the budget": (
        Budget(tokens=100),
        spending(prompt_tokens=60, completion_tokens=38),
        False,
    ),
    "tokens at the budget": (
        Budget(tokens=100),
        spending(prompt_tokens=60, completion_tokens=40),
        True,
    ),
    "cost at the budget": (Budget(cost=0.5), spending(cost=0.5), True),
    "calls at the budget": (Budget(calls=4), spending(calls=4), True),
}


@pytest.mark.parametrize(("rule", "loop", "speaks"), CASES.values(), ids=CASES)
def test_a_rule_speaks_exactly_at_its_boundary(rule, loop, speaks):
    assert bool(rule(loop)) is speaks


@cases(
    ("rule", "loop", "words"),
    {
        "fatigue": (
            Fatigue(0.15),
            history("a", "a"),
            "too many attempts without improvement (fatigue 0.15, limit 0.15)",
        ),
        "a near repeat": (
            Repeat(),
            tried("ab", near="2"),
            "the answer nearly repeats attempt 1 (minimal change)",
        ),
        "an equal repeat": (
            Repeat(),
            tried("abcc", near="34"),
            "the answer repeats attempt 3 (minimal change)",
        ),
        "the 2nd repeat": (
            Repeat(2),
            tried("abab"),
            "the answer repeats attempt 2 (a cycle of 2), the 2nd of 2 repeats",
        ),
        "a near cycle": (
            Repeat(),
            tried("abcd", near="4"),
            "the answer nearly repeats attempt 1 (a cycle of 3)",
        ),
        "a cycle of near repeats": (
            Repeat(),
            tried("xabab", near="24"),
            "the answer repeats attempt 3 (a cycle of 2)",
        ),
        "a plateau": (
            Plateau(2),
            history("a", "a", "a"),
            "no improvement since attempt 1: 2 of at most 2 attempts",
        ),
        "budgets": (
            Budget(tokens=1_000_000, calls=2, cost=1),
            spending(prompt_tokens=1_234_568, calls=2),
            "1234568 of 1000000 tokens, 2 of 2 calls spent",
        ),
        "a combination": (
            heedful.All(MaxAttempts(2), Repeat()),
            tried("aa"),
            "all 2 attempts are made and the answer repeats attempt 1 (minimal change)",
        ),
    },
)
def test_a_rule_names_what_it_saw(rule, loop, words):
    assert rule(loop).detail == words


@cases(
    ("texts", "stops"),
    {
        "another answer": (["a", "b"], False),
        "a copy of the last": (["a", "a"], True),
        "another, after a copy": (["a", "a", "b"], False),
        "a copy of an earlier one": (["a", "b", "a"], True),
    },
)
def test_a_copy_that_is_judged_milder_is_no_gain_for_a_plateau(texts, stops):
    severities = (0.9, 0.7, 0.5)[: len(texts)]
    milder = [Evaluation((finding("blunt", severity=s),)) for s in severities]
    assert (Plateau(1)(loop_from(milder, texts)) is not None) is stops


def test_an_echo_names_its_findings_in_bounded_words():
    stop = Echo(1)(
        loop_of(Evaluation(tuple(finding(f"{n} " + "long" * 50) for n in range(9))))
    )
    assert stop is not None
    words = stop.detail
    assert words.startswith("the same finding again: 0 long")
    assert len(words) < 400
    assert Echo(3, across="scope").counts(ECHOED) == {"x": 3}


LEVELS = {
    "one attempt": (Fatigue(), "ab", 0.0),
    "never below 0": (Fatigue(), "ab,a", 0.0),
    "once up and once down": (Fatigue(), "abc,abc,ab", 0.10),
    "7 × 0.15 = 1.05, never above 1": (Fatigue(), "a,a,a,a,a,a,a,a", 1.0),
    "other steps": (Fatigue(increment=0.5, decay=0.2), "ab,ab,a", 0.3),
    "another top": (Fatigue(0.1, 0.5, decay=0.2, most=0.3), "ab,ab,a", 0.1),
}


@pytest.mark.parametrize(("rule", "errors", "level"), LEVELS.values(), ids=LEVELS)
def test_fatigue_rises_without_improvement_and_falls_with_one(rule, errors, level):
    assert rule.level(loop_of_errors(errors)) == level


def test_two_combinations_of_equal_rules_are_equal():
    first, same, other = (heedful.All(MaxAttempts(n), Repeat()) for n in (2, 2, 3))
    assert first == same != other
    assert len({first, same}) == 1
    assert repr(first) == "All(MaxAttempts(limit=2), Repeat(times=1, near=True))"


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


NEAR = {
    "the same text": (TEXT, TEXT),
    "one word of many": (TEXT, TEXT.replace("parcel", "packet")),
}
NOT_NEAR = {
    "the same digits in another order": (TEXT, TEXT.replace("12.5", "5.12")),
    "a negation less": (TEXT, TEXT.replace("must not", "must")),
    "no text": (TEXT, ""),
    "less than nine tenths of the words": (shout(0), shout(3)),
    "a sign": ("if a < b: go()\n" * 9, "if a < b: go()\n" * 8 + "if a > b: go()\n"),
    "a digit in a name": ("call f1 " * 9, "call f1 " * 8 + "call f2 "),
    "too much text to compare": ("word " * 30_000 + "a", "word " * 30_000 + "b"),
}


@pytest.mark.parametrize("case", [*NEAR, *NOT_NEAR])
def test_two_candidates_are_near_unless_what_differs_always_matters(case):
    text, other = {**NEAR, **NOT_NEAR}[case]
    is_near = case in NEAR
    for first, second in ((text, other), (other, text)):
        earlier = [Attempt(1, Candidate("none")), Attempt(2, Candidate.of(first))]
        expected = 2 if is_near else None
        assert near(Candidate.of(second), earlier) == expected


def cycle(texts: str, *errors: int, **fields) -> Loop:
    """A loop of these candidates, each with its number of errors."""
    evaluations = [evaluated(*"wxyz"[:count]) for count in errors]
    return loop_from(evaluations, texts=list(texts), **fields)


@cases(
    ("rule", "loop", "ends"),
    {
        "of two": (Repeat(), cycle("ababab", 1, 1, 1, 1, 1, 1), 3),
        "after an improvement": (Repeat(2), cycle("ababab", 2, 1, 2, 1, 2, 1), 4),
        "of which every second attempt is better than the previous one": (
            Repeat(2),
            cycle("ababab", 2, 1, 2, 1, 2, 1, improves=PREVIOUS),
            4,
        ),
    },
)
def test_a_cycle_is_a_repeat(rule, loop, ends):
    silent = [end for end in range(1, 7) if not rule(loop.upto(end))]
    assert silent == list(range(1, ends or 7))[: len(silent)]
    assert ends is None or rule(loop.upto(ends))
