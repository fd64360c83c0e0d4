"""The lessons of a loop."""

from dataclasses import replace
from functools import partial

from hypothesis import given

from heedful.lessons.lesson import Example
from heedful.lessons.loop_lessons import RERUN_REASON_LABEL, learn
from heedful.lessons.signature import signature
from heedful.loop.record import Candidate, Evaluation, Finding, Loop
from heedful.validation import MAX_STORED_TEXT_CHARS
from tests.loop import support
from tests.loop.support import QUALITY, evaluated, loop_of, scored
from tests.tables import cases

PASSED = evaluated()


@cases("rung, mended", {"the same model": (1, 1), "a larger one": (2, 0)})
def test_only_the_model_that_erred_shows_that_words_put_it_right(rung, mended):
    loop = loop_of(Evaluation((Finding("units", "no unit"),)), PASSED)
    last = replace(loop.attempts[1], rung=rung, judged_by=("units",))
    loop = replace(loop, attempts=(loop.attempts[0], last))
    (lesson,) = learn(loop, "t", memory_key="K")
    assert lesson.cause is not None
    assert lesson.cause.mended == mended


def test_one_verified_lesson_for_each_distinct_finding_that_was_mended():
    unit = partial(Finding, "units", fix="write the unit", key="units")
    first = Evaluation(
        (unit("12 has no unit", evidence="[12]"), Finding("dates", "no date.")),
        {"quality": 0.5},
    )
    second = Evaluation((unit("13 has no unit", evidence="[13]"),))
    loop = loop_of(
        first, second, Evaluation(scores={"quality": 0.9}), texts=["12", "13", "13 kg"]
    )
    units, dates = learn(loop, "How heavy?")
    assert units.kind == "check"
    assert units.state == "verified"
    assert units.trust == "local"
    assert units.loop == "loop"
    assert units.signature == signature("units", "units")
    assert units.text == "13 has no unit. write the unit"
    assert units.example == Example(
        "How heavy?",
        "13 kg",
        rejected="13",
        wrong="13 has no unit",
        before={},
        after={"quality": 0.9},
        evidence="[13]",
        fix="write the unit",
    )
    assert dates.example == Example(
        "How heavy?",
        "13 kg",
        rejected="12",
        wrong="no date.",
        before={"quality": 0.5},
        after={"quality": 0.9},
    )
    assert dates.text == "no date. Accepted: 12 -> 13 kg"
    assert units.tags == ("units",)
    assert units.sighting == "13 has no unit"


@cases(
    "loop",
    {
        "empty": Loop("empty"),
        "no pass": loop_of(evaluated("a"), evaluated("b")),
        "same output": loop_of(
            evaluated("a"), PASSED, texts=["same", "same"]
        ),  # the output did not change
        "no evaluation": loop_of(None, PASSED),
        "at once": loop_of(PASSED, goals=(QUALITY,)),
    },
)
def test_nothing_to_learn(loop):
    assert learn(loop, "task") == ()


@cases(
    "scores, gains",
    {
        "a large gain": ([0.5, 0.75], True),
        "a gain that is too small": ([0.71, 0.75], False),
        "the least gain": ([0.70, 0.75], True),
        "over three attempts": ([0.5, 0.74, 0.76], True),
    },
)
def test_a_missed_goal_that_is_met_by_a_gain_that_counts_is_a_lesson(scores, gains):
    lessons = learn(scored(*scores), "task")
    assert bool(lessons) is gains
    if gains:
        (lesson,) = lessons
        assert lesson.error_type == "quality"
        assert lesson.state == "verified"
        assert lesson.kind == "check"
        assert lesson.signature.pattern == "quality >= <N>"
        assert lesson.example is not None
        assert lesson.example.before == {"quality": scores[0]}
        assert lesson.example.after["quality"] >= 0.75
        assert lesson.text == (
            f"quality {scores[0]} misses quality >= 0.75. Accepted: text 1 -> text "
            f"{len(scores)}"
        )


@cases(
    "fix, rejected, accepted, text",
    {
        "a fix": (
            "Write a decimal.",
            "12 km",
            "12.0 km",
            "no decimal. Write a decimal.",
        ),
        "a short change": (
            "",
            "12 km",
            "12.0 km",
            "no decimal. Accepted: 12 km -> 12.0 km",
        ),
        "two changes": (
            "",
            "12 a b c d 12",
            "12.0 a b c d 12.0",
            "no decimal.",
        ),  # two places: no one line
        "a long change": ("", "12 " + "km" * 60, "12.0", "no decimal."),
        "a change of a secret": (
            "",
            "AKIA" + "IOSFODNN7EXAMPLE",
            "AKIA" + "IOSFODNN7EXAMPLF",
            "no decimal.",
        ),  # all that differs is secret
    },
)
def test_what_was_changed_is_told_where_no_fix_is_and_one_short_line_tells_it(
    fix, rejected, accepted, text
):
    evaluation = Evaluation((Finding("units", "no decimal.", fix=fix),))
    (lesson,) = learn(loop_of(evaluation, PASSED, texts=[rejected, accepted]), "task")
    assert lesson.text == text


def test_a_secret_is_neither_cut_nor_told_by_halves():
    secret = "AKIA" + "IOSFODNN7EXAMPLE"
    long = "x" * (MAX_STORED_TEXT_CHARS - 12) + f" {secret} is wrong"
    evaluation = Evaluation((Finding("c", long, key="k", evidence=long),))
    loop = loop_of(
        evaluation, PASSED, texts=[f"use {secret} now", f"use {secret[::-1]} now"]
    )
    (lesson,) = learn(loop, "task")
    assert lesson.example is not None
    texts = (
        lesson.text,
        lesson.sighting,
        lesson.example.rejected,
        lesson.example.wrong,
        lesson.example.evidence,
    )
    assert not any("AKIA" in text for text in texts)


def test_an_example_knows_what_it_changed_and_gained():
    example = Example(
        "t",
        "12.0 km",
        rejected="12 km",
        wrong="w",
        before={"a": 0.1, "b": 1, "c": 2},
        after={"a": 0.3, "b": 0.5},
    )
    assert example.difference == "12 km -> 12.0 km"
    first = Example("t", "12.0 km", after={"a": 1.0})
    assert first.difference == ""
    assert first.digest == example.digest != Example("t1", "2.0 km").digest
    assert Example("\ud800", "a").digest


def test_an_accepted_first_try_is_an_example_that_nothing_verified():
    (lesson,) = learn(
        loop_of(Evaluation(scores={"quality": 1.0}), texts=["right"]), "task"
    )
    assert lesson.kind == "example"
    assert lesson.state == "unverified"
    assert lesson.example == Example("task", "right", after={"quality": 1.0})
    (other,) = learn(loop_of(PASSED, texts=["another"]), "another task")
    assert other.signature == lesson.signature


@cases("task", {"empty": "", "too long": "x" * (MAX_STORED_TEXT_CHARS + 1)})
def test_what_is_no_use_in_a_prompt_is_not_kept(task):
    assert learn(loop_of(PASSED), task) == ()
    long = Candidate.of("y" * (MAX_STORED_TEXT_CHARS + 1))
    loop = loop_of(PASSED)
    assert (
        learn(Loop("x", attempts=(replace(loop.attempts[0], candidate=long),)), "task")
        == ()
    )
    bare = Candidate("digest")
    assert (
        learn(Loop("x", attempts=(replace(loop.attempts[0], candidate=bare),)), "task")
        == ()
    )


@given(support.loops())
def test_only_a_loop_that_passed_teaches_and_only_what_changed(loop):
    lessons = learn(loop, "task")
    last = loop.attempts[-1] if loop.attempts else None
    if (
        last is None
        or last.evaluation is None
        or not last.evaluation.passes(loop.goals)
    ):
        assert lessons == ()
        return
    assert len(lessons) == len({lesson.signature.exact for lesson in lessons})
    for lesson in lessons:
        assert lesson.example is not None
        if lesson.kind == "strategy":
            assert lesson.example.accepted == ""
            continue
        assert lesson.example.accepted == last.candidate.text
        if lesson.kind == "check":
            assert lesson.example.rejected != lesson.example.accepted
        else:
            assert len(loop.attempts) == 1


BIAS = Finding("pessimist", "overconfidence", level="warning", key="b", persistent=True)


@cases(
    "findings, labels, expected",
    {
        "a bias that is gone": ([BIAS], {}, ["overconfidence"]),
        "a reason": ([], {RERUN_REASON_LABEL: "Name it."}, ["Name it."]),
        "both": (
            [BIAS],
            {RERUN_REASON_LABEL: "Name it."},
            ["overconfidence", "Name it."],
        ),
        "a warning is no bias": ([replace(BIAS, persistent=False)], {}, []),
    },
)
def test_what_a_caller_said_of_an_attempt_is_a_rule_in_his_words(
    findings, labels, expected
):
    loop = loop_of(Evaluation(tuple(findings)), PASSED)
    first, last = loop.attempts
    loop = replace(loop, attempts=(first, replace(last, labels=labels)))
    lessons = [lesson for lesson in learn(loop, "task") if lesson.kind == "strategy"]
    assert [lesson.text for lesson in lessons] == expected
    assert {lesson.state for lesson in lessons} <= {"verified"}


def test_a_bias_that_stayed_and_the_reason_of_a_loop_that_failed_teach_nothing():
    stays = Evaluation((BIAS,))
    assert [lesson.kind for lesson in learn(loop_of(stays, stays), "task")] == []
    failed = loop_of(
        Evaluation((Finding("c", "wrong"),)), Evaluation((Finding("c", "wrong"),))
    )
    first, last = failed.attempts
    last = replace(last, labels={RERUN_REASON_LABEL: "Name it."})
    assert learn(replace(failed, attempts=(first, last)), "task") == ()
