"""Questions about a run: which stages are meant, and that answers say what the report
says.
"""

import json
import re
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import UnknownName
from heedful.loop.runs import Report, StageReport
from heedful.pages.questions import answer, find_stage, statistics
from tests.reported import (
    ACTUAL,
    FEEDBACK,
    MEANS,
    SPREAD,
    attempt,
    fails,
    forecast,
    passes,
)

REPORT = forecast()
WHOLE = "which stages of run forecast-7 were retried, and why"


def texts(question: str, report: Report = REPORT) -> list[str]:
    return [fact.text for fact in answer(report, question).facts]


def test_why_stage_4_was_retried():
    found = answer(REPORT, "why did the pipeline retry stage 4?")
    assert found.understood == "why stage 4 (train, by its place) was retried"
    assert [(fact.cite, fact.text) for fact in found.facts] == [
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
    assert found.facts[3].quote == FEEDBACK
    lines = str(found).splitlines()
    assert lines[0] == "asked: why stage 4 (train, by its place) was retried"
    assert lines[2].startswith("2. [train/attempt 1/hallucination_detection] failed: ")


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
    ],
)
def test_which_stages_are_meant(question, stages):
    found = answer(REPORT, question)
    assert found.understood == f"why {stages} was retried"
    assert found.missing == ""


@pytest.mark.parametrize(
    ("question", "missing"),
    [
        ("", ""),
        ("which stages were retried?", ""),
        ("why was stage 9 retried?", "stage 9: the run has 5 stages"),
    ],
)
def test_without_a_known_stage_the_whole_run_is_told(question, missing):
    found = answer(REPORT, question)
    assert found.understood == WHOLE
    assert found.missing == missing
    assert found.facts[0].cite == "[forecast-7]"
    assert found.facts[0].text == (
        "run forecast-7 of pipeline forecast was degraded after insights; 5 stages, 8 "
        "attempts"
    )
    assert {fact.stage for fact in found.facts[1:]} == {
        one.name for one in REPORT.stages
    }


@pytest.mark.parametrize("name", ["stage_{}", "stage{}", "{}", "Stage 0{}"])
@pytest.mark.parametrize(
    ("question", "taken"),
    [
        ("why did the pipeline retry stage 4?", {4: "name"}),
        ("why did the pipeline retry stage_4?", {4: "name"}),
        ("why were stages 4 and 5 retried?", {5: "name", 4: "name"}),
        ("stages 1 and 5", {5: "name", 1: "name"}),
    ],
)
def test_a_name_comes_before_a_place(name, question, taken):
    stages = tuple(
        replace(one, name=name.format(6 - n)) for n, one in enumerate(REPORT.stages, 1)
    )
    report = replace(REPORT, stages=stages)
    said = (
        f"stage {6 - n} ({name.format(n)}, by its {how})" for n, how in taken.items()
    )
    found = answer(report, question)
    assert found.understood == f"why {', '.join(said)} was retried"
    assert found.missing == ""
    assert find_stage(report, "5") == find_stage(report, name.format(5)) == stages[0]


def test_find_stage():
    assert find_stage(REPORT, "train") == find_stage(REPORT, "4") == REPORT.stages[3]
    for name in ("0", "6", "trian", ""):
        with pytest.raises(UnknownName, match="load, clean, features, train, insights"):
            find_stage(REPORT, name)


def test_what_no_check_could_judge():
    raised = replace(
        passes("schema"), status="not_validated", message="it raised: boom 7"
    )
    made = replace(
        attempt("judge", 1), overall_status="not_validated", checks=(raised,)
    )
    tries = (made, replace(made, attempt=2))
    report = Report(
        "p",
        "p-1",
        stages=(
            StageReport(
                "judge", "not_validated", action="continued", attempts=tries, kept=2
            ),
        ),
    )
    found = texts("why?", report)
    assert found[2] == "could not judge: it raised: boom 7"
    assert "attempt 2 not validated" in found


WORDS = st.sampled_from(
    "why did was the pipeline retry stage 4 5 9 train insights 1 2 99 first last and".split()
)
QUESTIONS = st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=9).map(" ".join))


@given(QUESTIONS, st.text(max_size=12), st.text(max_size=30))
def test_any_text_is_answered_with_what_the_report_says(question, name, message):
    made = attempt(name, 1, fails(name, message, message), output=message, fed=message)
    after = attempt(name, 2, passes(name), output=name)
    odd = Report(
        name,
        name,
        stages=(
            StageReport(
                name, "passed", action="passed", attempts=(made, after), kept=2
            ),
        ),
    )
    for report in (REPORT, odd, Report(name, name, stages=())):
        found = answer(report, f"{question} {name} {message}")
        assert found.facts
        assert str(found)
        json.dumps(found.plain())
    known = json.dumps(REPORT.plain(), ensure_ascii=False)
    for fact in answer(REPORT, question).facts:
        figures = set(re.findall(r"\d+(?:\.\d+)?", f"{fact.text} {fact.quote}"))
        assert figures <= {*re.findall(r"\d+(?:\.\d+)?", known), *map(str, range(9))}


def test_statistics():
    halted = replace(REPORT.stages[4], action="halted")
    second = replace(forecast("forecast-8"), stages=(*REPORT.stages[:4], halted))
    found = statistics([REPORT, second])
    assert found.runs == 2
    assert found.retries == 6
    assert found.seconds == 6.5
    assert found.tokens == 720
    worst, *rest = found.checks
    assert worst.name == "insight_hallucination"
    assert worst.failed == 6
    assert worst.stages == 2
    assert worst.recovered == 0
    means = next(one for one in rest if one.name == "hallucination_detection")
    assert means.failed == 2
    assert means.stages == 2
    assert means.recovered == 2
    assert json.loads(json.dumps(asdict(found)))["checks"][0]["failed"] == 6
    made = (attempt("a", 1, fails("c", "m")), attempt("a", 2, passes("c")))
    (going,) = statistics(
        [
            Report(
                "p",
                "r",
                stages=(StageReport("a", "open", action="open", attempts=made),),
            )
        ]
    ).checks
    assert going.failed == 1
    assert going.stages == 0
    assert going.recovered == 0
    assert statistics([]).runs == 0
