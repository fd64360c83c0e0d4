"""The arms of the job `ladder`: who is asked, what it costs, and what is compared."""

import asyncio
import sqlite3
from dataclasses import replace

import pytest

from bench.quality import ladder, ladder_page
from bench.quality.answers import TABLE, KeptModel
from bench.quality.curve import Task
from bench.quality.streams import Stream
from heedful import Finding
from heedful.testing import FixedEmbedder, ScriptedModel


def make_task(number):
    def judge(answer):
        return [] if answer == "right" else [Finding("word", "wrong word")]

    return Task(id=f"t{number}", text=f"task {number}", system="Answer.", judge=judge)


@pytest.fixture
def run_arm(tmp_path, monkeypatch):
    """Return a function that runs an arm on four tasks, with these two models."""
    monkeypatch.setattr(
        "heedful.models.open_embedder", lambda name: FixedEmbedder(), raising=True
    )
    tasks = [make_task(number) for number in range(4)]
    source = Stream(name="words", tasks=tuple(tasks))

    def run(name, *models):
        db = sqlite3.connect(tmp_path / f"{name}.sqlite")
        db.execute(TABLE)
        models_of_arm = [
            KeptModel(f"model {place}", model, db) for place, model in enumerate(models)
        ]
        answerer = ladder.Answerer(name, source, tasks=tasks, models=models_of_arm)
        outcomes = asyncio.run(answerer.answer_all())
        db.close()
        return outcomes

    return run


@pytest.mark.parametrize("name", ["ladder", "ladder_ours"])
def test_the_large_model_is_asked_when_the_small_one_has_failed_twice(run_arm, name):
    small = ScriptedModel("wrong", "wronger", "right", forever=True)
    outcomes = run_arm(name, small, ScriptedModel("right", forever=True))
    assert [attempt.rung for attempt in outcomes[0].climb] == [1, 1, 2]
    assert [outcome.calls for outcome in outcomes] == [3, 1, 3, 1]
    assert [ladder.alone(outcome) for outcome in outcomes] == [False, True, False, True]


def test_no_arm_makes_more_calls_than_another(run_arm):
    wrong = [f"wrong {number}" for number in range(20)]
    for name in ("small", "large", "ladder"):
        outcomes = run_arm(name, ScriptedModel(*wrong), ScriptedModel(*wrong))
        assert {outcome.calls for outcome in outcomes} == {ladder.CALLS}


def test_a_token_of_the_large_model_costs_five_times_as_much(run_arm):
    costs = {}
    for name in ("small", "large"):
        small = ScriptedModel("right", forever=True)
        large = ScriptedModel("right", forever=True)
        outcomes = run_arm(name, small, large)
        costs[name] = sum(map(ladder.cost_of, outcomes))
    assert costs["large"] == 5 * costs["small"] > 0


def test_both_ways_to_spend_further_candidates_spend_the_same(run_arm, monkeypatch):
    monkeypatch.setattr(ladder, "EXTRA", 4)
    calls = {}
    for name in ("explore", "even"):
        small = ScriptedModel("right", forever=True)
        outcomes = run_arm(name, small, ScriptedModel())
        calls[name] = [outcome.calls for outcome in outcomes]
    assert calls["explore"] == [3, 3, 1, 1]
    assert calls["even"] == [1, 3, 1, 3]


def test_the_gains_and_the_figures_of_a_stream(run_arm):
    right = ScriptedModel("right", forever=True)
    wrong = [f"wrong {number}" for number in range(20)]
    results: ladder.Results = {"geo": {}}
    for name, small in (("ladder", ScriptedModel(*wrong)), ("ladder_ours", right)):
        outcomes = run_arm(name, small, right)
        results["geo"][name] = {(0, outcome.task.id): outcome for outcome in outcomes}
    gains = ladder.gains_of(results)
    assert gains["geo.ladder_ours_over_ladder.alone"]["gain"] == 1.0
    assert gains["geo.ladder_ours_over_ladder.solved"]["gain"] == 0.0
    assert 0 < gains["geo.ladder_ours_over_ladder.cost_ratio"]["ratio"] < 0.5
    figures = ladder.figures_of(results)["geo"]
    assert figures["ladder"]["alone"] == 0.0
    assert figures["ladder_ours"]["alone_quarter_4"] == 1.0
    assert len(ladder.report_of(results)["tasks"]) == 8


def test_every_expected_figure_names_streams_and_arms():
    for key in ladder.EXPECTED:
        group, _, comparison = key.partition(".")
        name, _, other = comparison.partition(".")[0].partition("_over_")
        assert group in ("open", *ladder.TASKS)
        assert (name, other) in ladder.COMPARED


def test_a_quarter_is_a_part_of_the_stream(run_arm):
    outcomes = run_arm("small", ScriptedModel("right", forever=True), ScriptedModel())
    outcome = replace(outcomes[0], late=True)
    assert [len(quarter) for quarter in ladder.quarters([outcome] * 10)] == [2, 3, 2, 3]


@pytest.fixture
def report(run_arm):
    """What a run leaves of two streams on which the large model is better."""
    results: ladder.Results = {"geo": {}, "spider": {}}
    for name in ("small", "large", "large_ours", "ladder", "ladder_ours"):
        small = ScriptedModel("wrong", "wronger", "wrongest", "right", forever=True)
        if name.startswith("large"):
            small = ScriptedModel("right", forever=True)
        for arms in results.values():
            outcomes = run_arm(name, small, ScriptedModel("right", forever=True))
            arms[name] = {(0, outcome.task.id): outcome for outcome in outcomes}
    return ladder.report_of(results)


def test_the_tables_say_where_a_ladder_can_help_and_what_it_costs(report):
    rows = [*ladder_page.help_table(report), *ladder_page.arm_table(report)]
    assert sum(row.startswith("| geo") and row.endswith("| yes |") for row in rows) == 1
    assert sum(row.startswith("| spider | ladder_ours |") for row in rows) == 1
    gains = list(ladder_page.gain_table(report))
    assert gains[0].count("|") == len(["", "figure", "geo", "spider", "all"])


def test_the_picture_of_the_quarters_is_a_png(report):
    assert ladder_page.draw(report).startswith(b"\x89PNG")
