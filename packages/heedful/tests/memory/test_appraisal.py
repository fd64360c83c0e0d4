"""A judge scores a finished run, and nobody does without one."""

import json

import pytest

import heedful
from heedful import Episode
from heedful.errors import InvalidInput, MalformedAnswer
from heedful.testing import ScriptedModel
from tests.memory.reflections import FAILED, TASK
from tests.tables import cases

SCORES = {
    "correctness": 0.2,
    "helpfulness": 0.4,
    "safety": 1.0,
    "completeness": 0.5,
    "efficiency": 0.6,
}
OPINION = json.dumps({"reason": "Three items match.", **SCORES, "confidence": 0.8})


async def test_a_judge_gives_five_scores_and_its_reason():
    judge = ScriptedModel(OPINION)
    evaluation = await heedful.appraise(FAILED, judge=judge)
    assert evaluation.scores == SCORES
    (finding,) = evaluation.findings
    assert finding.message == "Three items match."
    assert evaluation.usage.calls == 1
    prompt = judge.prompts[0][-1].content
    assert TASK in prompt
    assert "Error: 3 items match" in prompt
    assert "The kettle costs 41.90." in prompt


@cases(
    "episode, judge, field",
    {
        "no event": (Episode(()), ScriptedModel(OPINION), "events"),
        "a text as run": ("a run", ScriptedModel(OPINION), "episode"),
        "no judge": (FAILED, None, "model of role 'run'"),
    },
)
async def test_what_cannot_be_judged_is_refused(episode, judge, field):
    with pytest.raises(InvalidInput) as caught:
        await heedful.appraise(episode, judge=judge)
    assert caught.value.field == field


async def test_a_judge_without_an_opinion_is_an_error_and_no_score():
    with pytest.raises(MalformedAnswer):
        await heedful.appraise(FAILED, judge=ScriptedModel("It was well.", "Fine."))
