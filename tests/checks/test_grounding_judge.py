"""A model judges what the rules of grounding leave open."""

from __future__ import annotations

import json

import pytest

from heedful.checks import grounding
from heedful.checks.evaluate import Context, evaluated
from heedful.drive.portal import run_sync
from heedful.errors import MalformedAnswer
from heedful.loop.record import Evaluation, Usage
from heedful.models.contract import Answer
from heedful.testing import ScriptedModel

ROWS = [
    {"model": "Naive", "rmse": 4.1, "remark": "It repeats the value of the day before."},
    {"model": "Ridge", "rmse": 3.25, "remark": "A linear model, tuned for an hour."},
]
PROSE = "The bridge was opened in 1932 by Ruth Alder. It is 310 metres long. Trams cross it."


def said(*verdicts: str) -> str:
    told = {f"claim {n}": {"reason": "so", "verdict": v} for n, v in enumerate(verdicts, 1)}
    return json.dumps(told)


def judged(text: str, evidence: object, *lines: object) -> tuple[Evaluation, ScriptedModel]:
    model = ScriptedModel(*lines)  # type: ignore[arg-type]
    check = grounding(evidence, judge=model)
    return run_sync(evaluated(text, Context("ground"), [check], None)), model


def test_what_was_not_found_is_judged_and_marked():
    text = "Ridge took 60 minutes in Zurich, with an RMSE of 4.1. Naive came second."
    answer, model = judged(text, ROWS, said("supported", "contradicted"))
    (prompt,) = model.prompts
    assert "1. '60' in: Ridge took 60 minutes" in prompt[1].content
    assert "2. 'Zurich' in: Ridge took" in prompt[1].content
    assert "'4.1' in" not in prompt[1].content
    found = [
        (one.level, text[slice(*one.span)], one.evidence) for one in answer.findings if one.span
    ]
    assert found == [
        ("note", "60", "judged by scripted"),
        ("error", "Zurich", "judged by scripted"),
        ("error", "4.1", "$[1].rmse = 3.25"),
    ]
    assert "is contradicted: so (judged by scripted)" in answer.findings[1].message
    assert answer.usage.calls == 1


@pytest.mark.parametrize("text", ["Ridge has an RMSE of 4.1.", "Ridge has an RMSE of 3.25."])
def test_nothing_else_is_put_to_it(text):
    answer, model = judged(text, ROWS)
    assert model.prompts == []
    assert answer.findings == tuple(grounding(ROWS)(text, Context("ground")))


def test_it_is_shown_the_nearest_evidence_within_bounds():
    rows = [{"name": f"Part {n}", "mass": n, "note": f"made of alloy {n}"} for n in range(10, 999)]
    text = "".join(f"Part {n} was cast by Smith{n} himself. " for n in range(10, 900))
    answer, model = judged(text, rows, said(*["not found"] * 8))
    (prompt,) = model.prompts
    assert "name = Part 18, " not in prompt[1].content
    assert "name = Part 17, mass = 17, note = made of alloy 17" in prompt[1].content
    assert len(prompt[0].content) + len(prompt[1].content) < 12_000
    assert sum(one.evidence == "judged by scripted" for one in answer.findings) == 8


def test_of_prose_it_is_shown_sentences():
    _, model = judged("Who crosses it: 77 trams?", f"{PROSE} " * 10, said("not found"))
    ((*_, prompt),) = model.prompts
    assert "Trams cross it." in prompt.content
    assert "Ruth Alder" not in prompt.content


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("no", "the answer is 'no'"),
        ("[]", "the answer is"),
        ("{}", "claim 1 is None"),
        (json.dumps({"claim 1": {"reason": "a", "verdict": "yes"}}), "verdict of claim 1 is 'yes'"),
        (json.dumps({"claim 1": {"verdict": "supported"}}), "reason of claim 1 is None"),
    ],
)
def test_a_malformed_answer_is_asked_for_once_more_and_counted(answer, why):
    text = "Ridge has 77 layers."
    good, model = judged(text, ROWS, answer, said("supported"))
    assert good.usage.calls == 2
    assert [one["seed"] for one in model.settings] == [0, 1]
    assert "Your last answer could not be used" in model.prompts[1][1].content
    with pytest.raises(MalformedAnswer, match="judge of grounding of model 'scripted'") as raised:
        judged(text, ROWS, answer, Answer(answer, Usage(1, 5, 2)))
    assert why in str(raised.value)
