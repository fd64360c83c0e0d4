"""The arms of `make learn` are comparable: extraction, budgets, pairs and reviews."""

import asyncio
import sqlite3
from dataclasses import replace

import pytest

import heedful
from bench.quality import learn
from bench.quality.answers import TABLE, KeptModel
from bench.quality.arms import Arm, run_arm
from bench.quality.curve import Answers, Outcome, Task
from bench.quality.methods import Past, RejectedPairs
from bench.quality.paired import gain, right_at_once
from bench.quality.streams import Stream
from heedful import Finding
from heedful.loop.record import Usage
from heedful.models.contract import Answer, Message
from heedful.testing import ScriptedModel


def make_task(number, right="right"):
    def judge(answer):
        return [] if answer == right else [Finding("word", "wrong word")]

    return Task(id=f"t{number}", text=f"task {number}", system="Answer.", judge=judge)


@pytest.fixture
def keep(tmp_path):
    """Return a function that keeps the answers of a model."""
    connection = sqlite3.connect(tmp_path / "answers.sqlite")
    connection.execute(TABLE)
    yield lambda model: KeptModel("scripted", model, connection)
    connection.close()


def test_an_arm_with_memory_shows_it_and_one_without_does_not(keep):
    tasks = [make_task(number) for number in range(3)]
    source = Stream(name="words", tasks=tuple(tasks))
    memory = Arm(memory=lambda: heedful.Memory(":memory:", holdout=0))
    had_memory = {}
    for name, arm in (("plain", Arm()), ("memory", memory)):
        model = ScriptedModel("wrong", "right", forever=True)
        outcomes = asyncio.run(
            run_arm(
                name,
                arm,
                source,
                tasks=tasks,
                late_ids=frozenset({"t2"}),
                model=keep(model),
            )
        )
        had_memory[name] = [outcome.had_memory for outcome in outcomes]
    assert had_memory["plain"] == [False, False, False]
    assert had_memory["memory"][-1]


def show(*pairs):
    """Return a context of an attempt with these tasks and answers as examples."""
    turns = []
    for task, answer in pairs:
        turns += [Message("user", task), Message("assistant", answer)]
    return heedful.Context("rivers of ohio", examples=tuple(turns), loop_id="loop")


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        pytest.param(1, ["x", "y", "z"], id="the first attempt"),
        pytest.param(2, ["y", "z", "right b"], id="a retry"),
    ],
)
def test_a_retry_is_shown_what_was_accepted_for_such_an_answer(attempt, expected):
    past = [
        Past(task="a", rejected=("unlike",), accepted="right a"),
        Past(task="b", rejected=("select one column",), accepted="right b"),
        Past(task="c", rejected=("select one column",), accepted=""),
    ]
    context = show(("1", "x"), ("2", "y"), ("3", "z"))
    context = replace(context, attempt=attempt, previous="select one row")
    prepared = RejectedPairs().prepare(context, past)
    assert [turn.content for turn in prepared.examples[1::2]] == expected


def make_outcomes(stream, firsts):
    outcomes = {}
    for number, first in enumerate(firsts):
        task = make_task(f"{stream}{number}")
        answers = Answers()
        answers.add(Answer("right" if first else "wrong", Usage(1, 10)))
        late = number >= len(firsts) // 2
        outcomes[0, task.id] = Outcome.of(task, answers, late=late)
    return outcomes


def test_streams_count_alike_however_many_tasks_they_have():
    long = list(
        zip(
            make_outcomes("a", [True] * 30).values(),
            make_outcomes("a", [False] * 30).values(),
            strict=True,
        )
    )
    short = list(
        zip(
            make_outcomes("b", [True, False]).values(),
            make_outcomes("b", [True, False]).values(),
            strict=True,
        )
    )
    figure = gain([long, short], right_at_once, late_only=False)
    assert figure is not None
    assert figure.gain == 0.5
    assert figure.low <= 0.5 <= figure.high
    assert figure.won == 30
    assert figure.lost == 0


def test_each_stream_has_the_variant_that_the_other_streams_choose():
    # `ours` wins on a and loses on b; its ablation is as good as the nearest answers.
    results = {
        "a": {
            "nearest": make_outcomes("a", [False, False]),
            "ours": make_outcomes("a", [True, True]),
            "ours_rules": make_outcomes("a", [False, False]),
        },
        "b": {
            "nearest": make_outcomes("b", [True, True]),
            "ours": make_outcomes("b", [False, False]),
            "ours_rules": make_outcomes("b", [True, True]),
        },
    }
    sources = [Stream(name=name, tasks=()) for name in results]
    gains = learn.compare_arms(sources, results)
    figure = gains["open"]["chosen_elsewhere_over_nearest.second_half"]
    assert figure is not None
    assert figure.gain == -0.5
