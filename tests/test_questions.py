"""Questions about a run: what is understood, and that answers say what the report says."""

import json
import re
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import UnknownName
from heedful.pipeline.questions import AttemptCost, answer, find_stage, statistics
from heedful.store.runs import Report, StageReport
from tests.reported import ACTUAL, FEEDBACK, MEANS, SPREAD, attempt, fails, forecast, passes

REPORT = forecast()


def texts(question: str, report: Report = REPORT) -> list[str]:
    return [fact.text for fact in answer(report, question).facts]


def test_why_stage_4_was_retried():
    found = answer(REPORT, "why did the pipeline retry stage 4?")
    assert (found.understood, found.missing) == ("why stage 4 (train) was retried", "")
    assert [(fact.cite, fact.text) for fact in found.facts] == [
        ("[train]", "stage 4 (train) passed at attempt 2, after 1 retry"),
        ("[train/attempt 1/hallucination_detection]", f"failed: {MEANS}; fix: {ACTUAL}"),
        (
            "[train/attempt 1/variance_hallucination]",
            f"failed: {SPREAD}; fix: check for synthetic data",
        ),
        ("[train/attempt 1]", "fed back to attempt 2:"),
        ("[train/attempt 2]", "attempt 2 passed"),
    ]
    assert found.facts[3].quote == FEEDBACK
    assert found.facts[1].file == "guardrail_train_forecast-7_attempt1.json"
    lines = str(found).splitlines()
    assert lines[0] == "asked: why stage 4 (train) was retried"
    assert lines[2].startswith("2. [train/attempt 1/hallucination_detection] failed: ")
    assert lines[-1].startswith("reports: guardrail_train_forecast-7_attempt1.json, guardrail_")


@pytest.mark.parametrize(
    ("question", "understood"),
    [
        ("Why was the 4th stage run again?", "why stage 4 (train) was retried"),
        ("Can you tell me why TRAIN was retried?", "why stage 4 (train) was retried"),
        ("why were stages 4 and 5 retried", "why stage 4 (train), stage 5 (insights) was retried"),
        ("why a second attempt at train?", "why stage 4 (train), attempt 2 was retried"),
        ("which stages were retried?", "why run forecast-7 was retried"),
        ("what went wrong the first time in train?", "what failed in stage 4 (train), attempt 1"),
        ("why did train not pass at once?", "what failed in stage 4 (train)"),
        ("which stage misbehaved and failed", "what failed in run forecast-7"),
        ("what did variance_hallucination say", "what happened in check variance_hallucination"),
        ("did the last attempt of train pass?", "whether stage 4 (train), attempt 2 passed"),
        ("why did the pipeline continue despite failures?", "how run forecast-7 ended, and why"),
        ("why did it stop retrying stage 5", "how stage 5 (insights) ended, and why"),
        ("what feedback did stage 5 get after attempt 2",
         "what was fed back in stage 5 (insights), attempt 2"),
        ("how did attempt 2 differ?", "what changed between the attempts of attempt 2"),
        ("", "what happened in run forecast-7"),
    ],
)  # fmt: skip
def test_what_is_asked(question, understood):
    found = answer(REPORT, question)
    assert (found.understood, found.missing) == (understood, "")


@pytest.mark.parametrize(
    ("question", "missing"),
    [
        ("why was stage 9 retried?", "stage 9: the run has 5 stages"),
        ("why did stage trian fail?", "'trian' (did you mean train?)"),
        ("why did mae_check fail", "'mae_check' (there are: load,"),
        ("why attempt 7 of train", "attempt 7: at most 2 attempts made there"),
    ],
)
def test_what_is_not_in_the_report_is_named_and_not_guessed(question, missing):
    found = answer(REPORT, question)
    assert found.missing.startswith(f"not in the report: {missing}")
    assert (found.understood, found.facts) == ("", answer(REPORT).facts)
    assert str(found).splitlines()[0] == f"{found.missing}; what there is:"
    found = answer(REPORT, "what is the meaning of life?")
    assert found.missing.startswith("the question was not understood; ask why")
    assert found.facts == answer(REPORT).facts


def test_a_stage_with_the_name_of_a_common_word_is_named_beside_stage():
    stages = (StageReport("check", "passed", "passed", (attempt("check", 1),), 1), *REPORT.stages)
    report = replace(REPORT, stages=stages)
    assert answer(report, "which check fails").understood == "what failed in run forecast-7"
    for question in ("did the check stage pass", "did 'check' pass"):
        assert answer(report, question).understood == "whether stage 1 (check) passed"


def test_a_name_comes_before_a_number():
    stages = tuple(replace(one, name=f"stage_{6 - n}") for n, one in enumerate(REPORT.stages, 1))
    found = answer(replace(REPORT, stages=stages), "why was stage 4 retried?")
    assert found.understood == "why stage 2 (stage_4) was retried"
    assert find_stage(REPORT, "train") == find_stage(REPORT, "4") == REPORT.stages[3]
    numbered = [replace(one, name=str(6 - n)) for n, one in enumerate(REPORT.stages, 1)]
    assert find_stage(replace(REPORT, stages=tuple(numbered)), "5") == numbered[0]
    for name in ("0", "6", "trian", ""):
        with pytest.raises(UnknownName, match="load, clean, features, train, insights"):
            find_stage(REPORT, name)


def test_which_attempts_and_checks_are_answered_for():
    assert texts("why was clean retried") == [
        "stage 2 (clean) passed at attempt 1",
        "it was not retried",
    ]
    calm = replace(REPORT, stages=REPORT.stages[:3])
    assert texts("which stages were retried", calm) == ["no stage was retried"]
    cites = [fact.cite for fact in answer(REPORT, "why was attempt 3 of insights needed").facts]
    assert cites == [
        "[insights]",
        "[insights/attempt 2/insight_hallucination]",
        "[insights/attempt 2]",
        "[insights/attempt 3]",
        "[insights/attempt 3/insight_hallucination]",
    ]
    facts = answer(REPORT, "did the variance check pass").facts
    assert {fact.check for fact in facts} == {"", "variance_hallucination"}
    assert (facts[-1].attempt, facts[-1].text) == (2, "passed")
    assert "warned: 3 rows dropped" in texts("what happened at attempt 1 of clean")
    assert "warned: 3 rows dropped" not in texts("what failed in clean")


def test_how_it_ended():
    assert texts("why did it continue?") == [
        "run forecast-7 of pipeline forecast went on degraded from insights; 5 stages, 8 attempts",
        "stage 5 (insights) did not pass in 3 attempts; the run went on with attempt 3, degraded",
        "failed: MAE is cited, and the run has no metrics",
    ]
    assert texts("is load ok") == ["stage 1 (load) passed at attempt 1"]


@pytest.mark.parametrize(
    ("status", "action", "kept", "said"),
    [
        ("failed", "halted", 1, "did not pass in 3 attempts; the run was halted"),
        ("failed", "best", 2,
         "did not pass in 3 attempts; the run went on with the best, attempt 2, degraded"),
        ("open", "open", None, "is open after 3 attempts: it was interrupted, or goes on now"),
        ("not_run", "not_run", None, "was not run"),
        ("not_validated", "continued", 1,
         "could not be judged; the run went on with attempt 1, degraded"),
        ("not_validated", "passed", 1, "has no check: it went on unjudged"),
    ],
)  # fmt: skip
def test_how_a_stage_ended(status, action, kept, said):
    stage = replace(REPORT.stages[4], status=status, action=action, kept=kept)
    report = replace(REPORT, stages=(*REPORT.stages[:4], stage))
    assert texts("did insights finish?", report)[0] == f"stage 5 (insights) {said}"


def test_what_no_check_could_judge():
    raised = replace(passes("schema"), status="not_validated", message="it raised: boom 7")
    made = replace(attempt("judge", 1), overall_status="not_validated", checks=(raised,))
    tries = (made, replace(made, attempt=2))
    report = Report("p", "p-1", (StageReport("judge", "not_validated", "continued", tries, 2),))
    found = texts("what failed?", report)
    assert found[2] == "could not judge: it raised: boom 7"
    assert "attempt 2 could not be judged by schema" in found


def test_what_changed():
    found = answer(REPORT, "what changed between attempt 1 and attempt 2 of train?").facts
    assert found[1].text == f"attempt 1: failed {MEANS}; attempt 2: passed"
    assert found[-1].text == "the output of attempt 2 differs:"
    assert found[-1].quote == '{"mean": 1234.56} -> {"mean": 90.1}'
    same = tuple(attempt("a", n, fails("c", "m"), output="x") for n in (1, 2))
    report = Report("p", "r", (StageReport("a", "failed", "continued", same, 2),))
    assert texts("what changed?", report)[-1] == (
        "the output of attempt 2 is the same as that of attempt 1"
    )


WORDS = st.sampled_from(
    "why did was the pipeline retry retried fail stage 4 5 9 train insights attempt 1 2 99 first"
    " last check hallucination_detection variance fed back changed stop pass 'x' ? -3".split()
)
QUESTIONS = st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=9).map(" ".join))


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+(?:\.\d+)?", text))


@given(QUESTIONS)
def test_any_text_is_answered_and_no_number_is_made_up(question):
    found = answer(REPORT, question)
    assert found.facts
    json.dumps(found.plain())
    known = numbers(json.dumps(REPORT.plain(), ensure_ascii=False)) | {str(n) for n in range(9)}
    files = {made.file for stage in REPORT.stages for made in stage.attempts}
    for fact in found.facts:
        assert numbers(f"{fact.text} {fact.quote}") <= known
        assert fact.file == "" or fact.file in files


def test_statistics():
    halted = replace(REPORT.stages[4], action="halted")
    second = replace(forecast("forecast-8"), stages=(*REPORT.stages[:4], halted))
    found = statistics([REPORT, second])
    assert (found.runs, found.cost) == (2, AttemptCost(6, 6.5, 720))
    worst, *rest = found.checks
    assert (worst.name, worst.judged, worst.failed) == ("insight_hallucination", 6, 6)
    assert (worst.stages, worst.recovered, worst.cost) == (2, 0, AttemptCost(4, 2.0, 480))
    means = next(one for one in rest if one.name == "hallucination_detection")
    assert (means.judged, means.failed, means.stages, means.recovered) == (4, 2, 2, 2)
    assert means.cost == AttemptCost(2, 4.5, 240)
    assert means.success is not None
    assert (means.success.value, round(means.success.low, 2)) == (1.0, 0.34)
    calm = next(one for one in rest if one.name == "missing_results")
    assert (calm.failed, calm.success) == (0, None)
    train = next(one for one in found.stages if one.name == "train")
    assert (train.runs, train.passed, train.attempts) == (2, 2, 4)
    assert json.loads(json.dumps(asdict(found)))["checks"][0]["share"]["value"] == 1.0
    assert statistics([]).runs == 0


def test_statistics_leave_out_what_has_not_ended_and_what_could_not_judge():
    raised = replace(passes("c"), status="not_validated")
    made = (attempt("a", 1, fails("c", "m")), attempt("a", 2, raised))
    (found,) = statistics([Report("p", "r", (StageReport("a", "open", "open", made),))]).checks
    assert (found.judged, found.failed, found.stages, found.success) == (1, 1, 0, None)
    stage = StageReport("a", "open", "open", (attempt("a", 1, raised),))
    (never,) = statistics([Report("p", "r", (stage,))]).checks
    assert (never.judged, never.share) == (0, None)
    blind = attempt("a", 1, fails("missing_results", "no file")), attempt("a", 2, passes("c"))
    stage = StageReport("a", "passed", "passed", blind, 2)
    lost, found = statistics([Report("p", "r", (stage,))]).checks
    assert (lost.name, lost.judged, lost.failed) == ("missing_results", 2, 1)
    assert (found.name, found.judged, found.failed) == ("c", 1, 0)
