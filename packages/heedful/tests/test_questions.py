"""Questions about a run: which stages are meant, and that answers say what the report
says.
"""

from dataclasses import replace

import pytest

from heedful.loop.runs import Report
from heedful.pages.questions import answer, find_stage
from tests.reported import ACTUAL, FEEDBACK, MEANS, SPREAD, forecast

REPORT = forecast()
WHOLE = "which stages of run forecast-7 were retried, and why"


def test_why_stage_4_was_retried():
    answered = answer(REPORT, "why did the pipeline retry stage 4?")
    assert answered.understood == "why stage 4 (train, by its place) was retried"
    assert [(fact.cite, fact.text) for fact in answered.facts] == [
        ("[train]", "stage 4 (train) passed at attempt 2"),
        (
            "[train/attempt 1/hallucination_detection]",
            f"failed: {MEANS}; fix: {ACTUAL}",
        ),
        (
            "[train/attempt 1/variance_hallucination]",
            f"failed: {SPREAD}; fix: check for synthetic data",
        ),
        ("[train/attempt 1]", "fed back to attempt 2:"),
        ("[train/attempt 2]", "attempt 2 passed"),
    ]
    assert answered.facts[3].quote == FEEDBACK
    lines = str(answered).splitlines()
    assert lines[0] == "asked: why stage 4 (train, by its place) was retried"
    assert lines[2].startswith("2. [train/attempt 1/hallucination_detection] failed: ")


def test_why_a_stage_was_not_retried():
    answered = answer(REPORT, "Why was stage 1 right at once?")
    assert answered.understood.endswith(" was not retried")


@pytest.mark.parametrize(
    ("question", "stages"),
    [
        ("Can you tell me why TRAIN was retried?", "stage 4 (train)"),
        (
            "why were stages 4 and 5 retried",
            "stage 4 (train, by its place), stage 5 (insights, by its place)",
        ),
        ("why a second attempt at train?", "stage 4 (train)"),
        ("why was stage4 retried?", "stage 4 (train, by its place)"),
        ("Why did the 4th stage run again?", "stage 4 (train, by its place)"),
        ("why was stage four retried?", "stage 4 (train, by its place)"),
        ("Why did the fourth stage run again?", "stage 4 (train, by its place)"),
        ("why did the 4 stages before train fail?", "stage 4 (train)"),
    ],
)
def test_which_stages_are_meant(question, stages):
    answered = answer(REPORT, question)
    assert answered.understood == f"why {stages} was retried"
    assert answered.missing == ""


def renamed(*names: str) -> Report:
    """The report with other names for its first stages."""
    stages = list(REPORT.stages)
    for place, name in enumerate(names):
        stages[place] = replace(stages[place], name=name)
    return replace(REPORT, stages=tuple(stages))


@pytest.mark.parametrize("words", ["stage 1", "stage one", "first stage"])
def test_a_stage_named_by_a_number_word_comes_before_its_place(words):
    report = renamed("stage_two", "stage_one")
    place = "stage 2 (stage_one, by its name)"
    question = f"why was {words} retried?"
    assert answer(report, question).understood == f"why {place} was not retried"
    assert find_stage(report, words).name == "stage_one"


def test_a_stage_called_second_has_a_name_and_no_number():
    report = renamed("second")
    assert find_stage(report, "stage 2").name != "second"
    understood = answer(report, "why was second not retried?").understood
    assert understood == "why stage 1 (second) was not retried"


@pytest.mark.parametrize(
    ("question", "missing"),
    [
        ("", ""),
        ("which stages were retried?", ""),
        ("why was stage 9 retried?", "stage 9: the run has 5 stages"),
        ("why were one or two stages retried?", ""),
        ("why was one stage retried?", ""),
        ("why a second attempt?", ""),
    ],
)
def test_without_a_known_stage_the_whole_run_is_told(question, missing):
    answered = answer(REPORT, question)
    assert answered.understood == WHOLE
    assert answered.missing == missing
    assert answered.facts[0].cite == "[forecast-7]"
    assert answered.facts[0].text == (
        "run forecast-7 of pipeline forecast was degraded after insights; 5 stages, 8 "
        "attempts"
    )
    assert {fact.stage for fact in answered.facts[1:]} == {
        stage.name for stage in REPORT.stages
    }
