"""Feedback is bounded, and its quotations cannot pose as anything else."""

import unicodedata

import pytest
from hypothesis import given, strategies as st

from heedful.loop.decide import triggers
from heedful.loop.feedback import (
    FEEDBACK_HEADING,
    MAX_FEEDBACK_CHARS,
    MIN_FEEDBACK_LINE_CHARS,
    feedback,
)
from heedful.loop.record import Evaluation, Finding, Goal
from heedful.sanitize import clean

NASTY = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from(
            "\0\n\r\t\x1b\x7f\x85\u200b\u202e\u2066\u2028\u2029\ufeff\ud800\U000e0041"
        ),
    ),
    max_size=200,
)
nasty_findings = st.builds(
    Finding,
    NASTY.filter(bool),
    NASTY,
    fix=NASTY,
    level=st.sampled_from(["error", "warning", "note"]),
    key=st.just("k"),
)
nasty = st.builds(
    Evaluation, st.lists(nasty_findings, max_size=12).map(tuple), st.just({"q": 0.1})
)
GOALS = (Goal("q", 0.5),)


def visible(text: str) -> bool:
    return all(
        unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn") for c in text
    )


@given(nasty, st.sampled_from([(), GOALS]))
def test_feedback_is_bounded_and_clean(evaluation, goals):
    text = feedback(evaluation, goals)
    assert len(text) <= max(
        MAX_FEEDBACK_CHARS,
        len(FEEDBACK_HEADING)
        + (MIN_FEEDBACK_LINE_CHARS + 1) * (len(evaluation.errors) + 1),
    )
    assert all(visible(line) for line in text.split("\n"))
    assert "\u2028" not in text
    assert "\u2029" not in text
    wanted = [f for f in evaluation.findings if f.level != "note"]
    assert bool(text) is bool(wanted or goals)
    assert all(
        trigger.code and visible(trigger.detail)
        for trigger in triggers(evaluation, goals)
    )
    if text:
        assert text.startswith(FEEDBACK_HEADING + "\n- ")
        assert len(text.split("\n")) <= len(wanted) + len(goals) + 1


@given(st.integers(1, 60), st.integers(0, 900), st.integers(1, 20), st.integers(0, 900))
def test_every_failed_check_has_a_line(checks, length, times, tail):
    """Long lines are shortened and lines of one check are counted, but no check is
    dropped.
    """
    texts = [f"{n}: {'x' * length} end" for n in range(checks * times)]
    findings = [
        Finding(f"check {n % checks}", text, fix="repair it", severity=n % 7 / 7)
        for n, text in enumerate(texts)
    ]
    text = feedback(
        Evaluation(tuple(findings), {"q": 0.1}), GOALS, tail="\n" + "t" * tail
    )
    check_lines = [line for line in text.split("\n") if line.startswith("- check")]
    assert {line[2:].partition(":")[0] for line in check_lines} == {
        f"check {n}" for n in range(checks)
    }
    assert all(line.endswith("repair it") for line in check_lines)
    assert "\n- q is 0.1; it must be at least 0.5.\n" in text
    assert len(text) <= MAX_FEEDBACK_CHARS or all(
        len(line) <= MIN_FEEDBACK_LINE_CHARS for line in check_lines
    )


def test_errors_the_most_severe_first_then_goals_then_warnings_and_no_notes():
    evaluation = Evaluation(
        (
            Finding("tone", "too stiff", fix="relax", level="warning", severity=1.0),
            Finding("dates", "not ISO"),
            Finding("units", "no unit.", fix="write 5 kg", severity=0.9),
            Finding("hint", "nice", level="note"),
            Finding("names", "not ours"),
            Finding("dates", "not ISO"),  # once is enough
        ),
        {"quality": 0.5, "drift": 0.3},
    )
    goals = (Goal("drift", 0.25, "at_most"), Goal("quality", 0.75), Goal("unscored", 1))
    assert feedback(evaluation, goals) == (
        "The last answer was not accepted:\n"
        "- units: no unit. write 5 kg\n"
        "- dates: not ISO.\n"
        "- names: not ours.\n"
        "- drift is 0.3; it must be at most 0.25.\n"
        "- quality is 0.5; it must be at least 0.75.\n"
        "- tone: too stiff. relax"
    )


@pytest.mark.parametrize(
    "hostile",
    [
        *(
            "<|im_start|>",
            "<| im_start |>",
            "< | im_start | >",
            "[ INST ]",
            "[INST]",
            "</s>",
            "<system>",
            "</assistant>",
            "![x](http://a",
        ),
        *("<img src=x>", "<image src=x>", "<svg>", "<video poster=x>"),
    ],
)
def test_feedback_cannot_imitate_a_message_of_the_system(hostile):
    hint = feedback(
        Evaluation((Finding("c", f"a {hostile}) b", fix=f"do {hostile}) c"),))
    )
    assert (hostile in hint) is False
    assert ("…" in hint) is True


def test_clean_cuts_between_words():
    text = "an ImportError while loading " + "more " * 40 + "of the stands 8) away"
    assert clean(text, 40) == "an ImportError … the stands 8) away"


@given(NASTY, st.integers(8, 300))
def test_clean_is_one_short_visible_line(text, most):
    line = clean(text * 9, most)
    assert len(line) <= most
    assert visible(line)
    assert line == line.strip()
    assert len(line.splitlines()) <= 1
    assert clean(line, most) == line
    assert clean("begin" + "x" * 1_000_000 + "end", 20) == "beginxxx … xxxxxend"
