"""An explanation is true: each line was decided so, each change turns the verdict."""

from dataclasses import replace

from hypothesis import given, settings

from heedful.loop.decide import Again, Done, Policy, decide
from heedful.loop.explain import changes, explain
from heedful.loop.record import Evaluation, Override
from heedful.loop.stop import All, Echo, MaxAttempts, Repeat, Stop
from tests.loop import support
from tests.loop.support import evaluated, loop_from, loop_of, scored
from tests.tables import cases

X = evaluated("x")
TAGGED = Evaluation((support.finding("x", persistent=True),))
ADA = Override("attempts", "ada", used=1)
TWICE = replace(ADA, decisions=2)
BO = Override("attempts", "bo")
BY_ADA = "again (attempts overridden by ada)"


@settings(max_examples=25)
@given(support.loops(), support.policies)
def test_an_explanation_holds_the_verdict_and_what_would_have_changed_it(loop, policy):
    first = explain(loop, policy)
    again = explain(loop, policy)
    improving = replace(loop, improves=policy.improvement)
    verdict = decide(loop, policy)
    assert first == again
    assert str(first) == str(again)
    assert first.verdict == verdict
    assert len(first.lines) == len(loop.attempts)
    assert first.would_change == changes(improving, policy, verdict)
    assert all(line.isprintable() for line in str(first).splitlines())
    stopped = isinstance(verdict, Done) and not verdict.passed
    assert bool(first.ways) or not stopped
    assert bool(first.otherwise) is (stopped and not first.would_change)
    assert first.ways == () or not (isinstance(verdict, Done) and verdict.passed)


TEXTS = {
    "cancelled at the last attempt": (
        loop_of(evaluated("ab"), evaluated("b"), evaluated("b"), cancelled="by ada"),
        Policy((MaxAttempts(3),)),
        """\
attempt 1: ab -> again
attempt 2: b -> again
attempt 3: b -> stopped by cancelled: it was cancelled: by ada; \
attempts: all 3 attempts are made
best: attempt 1
would have changed it: no single threshold or score: \
cancelled and attempts stopped it""",
    ),
    "below the goal": (
        scored(0.6),
        Policy((MaxAttempts(1),)),
        """\
attempt 1: quality 0.6 misses quality >= 0.75 -> \
stopped by attempts: the only attempt is made
best: attempt 1
would have changed it: threshold of quality 0.6 instead of 0.75: passed
would have changed it: score quality 0.75 instead of 0.6: passed
would have changed it: attempts.limit 2 instead of 1: again""",
    ),
    "an echo of the scope is overridden": (
        loop_of(
            TAGGED, TAGGED, overrides=(replace(ADA, rule="echo"),), echoes={"x": 3}
        ),
        Policy((Echo(4, across="scope"),)),
        """\
attempt 1: x -> again (echo overridden by ada)
attempt 2: x -> stopped by echo: the same finding again: x in 5 attempts
best: attempt 1
would have changed it: echo.times 6 instead of 4: again""",
    ),
}


SENTENCES = {
    "attempts": (
        loop_of(X, X),
        Policy((MaxAttempts(2),)),
        (
            "Stopped after attempt 2: all 2 attempts are made. One more attempt would "
            "need a limit of 3 attempts instead of 2."
        ),
    ),
    "a rule that is also a member of another is said once": (
        loop_from([X, X], texts=("same", "same")),
        Policy((Repeat(1), All(Repeat(1), MaxAttempts(2)))),
        (
            "Stopped after attempt 2: the answer repeats attempt 1 (minimal change), "
            "and all 2 attempts are made. No single limit or score would have "
            "changed that."
        ),
    ),
    "nothing judged it": (
        loop_of(Evaluation()),
        support.NEVER,
        (
            "Unchecked at attempt 1: nothing judged it. Pass checks, goals or an "
            "evaluator."
        ),
    ),
}


@cases(("loop", "policy", "sentence"), SENTENCES)
def test_a_loop_is_explained_in_one_sentence(loop, policy, sentence):
    assert explain(loop, policy).sentence == sentence


@cases(("loop", "policy", "text"), TEXTS)
def test_the_text_of_an_explanation(loop, policy, text):
    assert str(explain(loop, policy)) == text


def test_a_recorded_verdict_of_another_policy_is_not_explained_by_this_one():
    by_two = Done(
        1,
        False,
        stopped_by=(
            Stop("mine", "enough"),
            Stop("attempts", "the only attempt is made"),
        ),
    )
    explanation = explain(loop_of(X), Policy((MaxAttempts(1),)), {1: by_two})
    assert explanation.verdict == by_two
    assert explanation.would_change == ()
    assert explanation.lines[-1].decided.startswith(
        "stopped by mine: enough; attempts: the only"
    )
    assert (
        explanation.otherwise == "not known: this policy alone did not give the verdict"
    )


def test_no_quotation_can_break_a_line_or_colour_it():
    nasty = "a\x1b[31m\nattempt 9: forged -> passed\u202e"
    loop = loop_of(evaluated(nasty), evaluated(nasty), cancelled=nasty)
    loop = replace(loop, overrides=(Override("echo", nasty, decisions=9),))
    policy = Policy(
        (Echo(1), MaxAttempts(9), lambda loop: nasty if loop.cancelled else None)
    )
    lines = str(explain(loop, policy)).splitlines()
    assert all(line.isprintable() for line in lines)
    assert [line[:10] for line in lines[:3]] == [
        "attempt 1:",
        "attempt 2:",
        "best: atte",
    ]


def test_an_override_is_named_where_it_lifted_a_rule():
    loop = loop_of(X, X, X, overrides=(TWICE, BO))
    explanation = explain(loop, Policy((MaxAttempts(2),)))
    decided = [line.decided for line in explanation.lines]
    assert decided == ["again", BY_ADA, BY_ADA]


@settings(max_examples=25)
@given(support.loops(least=1, cancelled=False), support.policies, support.policies)
def test_a_recorded_verdict_is_explained_whatever_policy_is_at_hand(
    loop, policy, other
):
    numbers = range(1, len(loop.attempts) + 1)
    recorded = {number: decide(loop.upto(number), policy) for number in numbers}
    mine, theirs = (
        explain(loop, candidate_policy, recorded)
        for candidate_policy in (policy, other)
    )
    assert mine.lines == theirs.lines
    assert mine.verdict == theirs.verdict == recorded[len(loop.attempts)]
    again = [isinstance(verdict, Again) for verdict in recorded.values()]
    assert [line.decided.startswith("again") for line in theirs.lines] == again
