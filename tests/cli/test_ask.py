"""`heedful ask`: facts first, and a model that may put them into words."""

import pytest

from tests.cli.pipelines import MEANS, runs
from tests.cli.support import following

QUESTION = "why did the pipeline retry stage 2?"
WRITERS = """
def honest(messages):
    return "Attempt 1 was 15.3 standard deviations off [2]. Attempt 2 passed [4]."

def formal(messages):
    return '{"sentences": [{"text": "Attempt 2 passed.", "facts": [4]}]}'

def liar(messages):
    return "Attempt 1 was 99.9 standard deviations off [2]."

def fails(messages):
    raise ValueError("the model fell over")
"""


@pytest.fixture
def ask(desk, monkeypatch):
    """Calls `heedful ask` in a folder whose database has runs."""
    runs(desk.folder)
    desk.write("writers.py", WRITERS)
    return lambda *arguments: desk.invoke(monkeypatch, "ask", *arguments)


def test_the_facts_and_what_to_type_next(ask, desk, monkeypatch):
    done = ask("forecast-1", QUESTION)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[:2] == [
        "asked: why stage 2 (train) was retried",
        "1. [train] stage 2 (train) passed at attempt 2, after 1 retry",
    ]
    assert lines[2].startswith(f"2. [train/attempt 1/hallucination_detection] failed: {MEANS}; ")
    assert "   | - hallucination_detection: " + MEANS in done.out
    assert "4. [train/attempt 2] attempt 2 passed" in lines
    assert "guardrail_train_forecast-1_attempt1.json" in done.out
    assert following(done.out) == ["why", "forecast-1", "train"]
    assert desk.invoke(monkeypatch, *following(done.out)).code == 0


def test_without_a_question_it_is_the_summary(ask):
    done = ask("last")
    assert "1. [nightly-1] run nightly-1 of pipeline nightly passed; 1 stage, 1 attempt" in done.out
    assert following(ask("forecast-1").out) == ["why", "forecast-1"]


def test_what_is_not_there_is_said(ask):
    done = ask("forecast-1", "why was stage 7 retried?")
    assert done.code == 0
    assert done.out.startswith("not in the report: stage 7: the run has 3 stages; what there is:\n")
    assert ask("forecast-1", "hello").out.startswith("the question was not understood; ask why")


def test_a_loop_is_no_run(ask):
    done = ask("forecast/say", "why?")
    assert done.code == 2
    assert "heedful why forecast/say explains it, heedful runs lists runs" in done.err
    assert ask("nothing", "why?").code == 3


def test_as_json(ask):
    found = ask("forecast-1", QUESTION, "--json").json
    assert (found["run"], found["question"], found["missing"]) == ("forecast-1", QUESTION, "")
    fact = found["facts"][1]
    assert (fact["number"], fact["stage"], fact["attempt"]) == (2, "train", 1)
    assert fact["cite"] == "[train/attempt 1/hallucination_detection]"
    assert found["phrased"] is None


def test_a_model_words_the_facts_below_them(ask):
    done = ask("forecast-1", QUESTION, "--model", "writers:honest")
    assert done.code == 0
    words = "Attempt 1 was 15.3 standard deviations off [2]. Attempt 2 passed [4]."
    facts, said, _ = done.out.partition(f"\n\n{words}\n")
    assert said
    assert "1. [train] stage 2 (train) passed" in facts


def test_a_model_may_answer_as_asked_for(ask):
    found = ask("forecast-1", QUESTION, "--model", "writers:formal", "--json").json["phrased"]
    assert (found["text"], found["why"]) == ("Attempt 2 passed. [4]", "")


def test_a_model_that_lies_is_not_shown(ask):
    done = ask("forecast-1", QUESTION, "--model", "writers:liar")
    assert done.code == 0
    assert "standard deviations off" not in done.out
    why = "its number 99.9 is not in the facts that it cites there; the facts stand"
    assert f"what writers:liar wrote is not shown: {why}" in done.out
    found = ask("forecast-1", QUESTION, "--model", "writers:liar", "--json").json["phrased"]
    assert (found["model"], found["text"]) == ("writers:liar", "")


def test_the_facts_stand_where_the_model_fails(ask):
    done = ask("forecast-1", QUESTION, "--model", "writers:fails")
    assert done.code == 5
    assert "1. [train] stage 2 (train) passed" in done.out
    assert "the model fell over" in done.err
    found = ask("forecast-1", QUESTION, "--model", "writers:fails", "--json")
    assert (found.code, found.json["error"]["type"]) == (5, "ModelError")
    assert found.json["facts"][0]["stage"] == "train"
