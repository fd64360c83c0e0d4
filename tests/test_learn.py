"""The arms of `make learn` are comparable: extraction, budgets, pairs and reviews."""

import asyncio
import sqlite3
from dataclasses import replace

import pytest

import heedful
from bench.quality import learn, learn_page, sql
from bench.quality.answers import TABLE, KeptModel
from bench.quality.arms import Arm, run_arm
from bench.quality.curve import Answers, Outcome, Task
from bench.quality.methods import (
    OtherArm,
    Past,
    RejectedPairs,
)
from bench.quality.paired import gain, right_at_once, summarize
from bench.quality.streams import Stream
from heedful import Finding
from heedful.loop.record import Usage
from heedful.models.contract import Answer, Message
from heedful.testing import ScriptedModel


@pytest.fixture
def db():
    connection = sqlite3.connect(":memory:")
    connection.executescript(
        "CREATE TABLE city (name TEXT, state TEXT);"
        "INSERT INTO city VALUES ('austin', 'texas'), ('dallas', 'texas')"
    )
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("answer", "message", "fix"),
    [
        pytest.param(
            "SELECT name FROM city WHERE state = 'Texas'",
            "no rows: names are written in lower case",
            "write 'texas', not 'Texas'",
            id="a name in capitals",
        ),
        pytest.param(
            "SELECT name FROM city WHERE state = 'ohio'",
            "the statement returns no rows",
            "compare with values that the table has",
            id="no rows",
        ),
        pytest.param(
            "SELECT name, state FROM city",
            "the number of columns is wrong",
            "select only what is asked for: 1 of 2 columns",
            id="a column too many",
        ),
        pytest.param(
            "SELECT a.name FROM city a, city b",
            "rows are repeated",
            "use SELECT DISTINCT",
            id="repeated rows",
        ),
        pytest.param(
            "SELECT state FROM city",
            "the rows are not those that are asked for",
            "",
            id="other rows",
        ),
    ],
)
def test_a_reviewer_says_what_a_person_sees(db, answer, message, fix):
    reviewer = sql.Reviewer(
        db=db,
        right_rows=lambda width: [("austin",), ("dallas",)],
        ordered=False,
        limit=lambda connection: None,
    )
    (finding,) = sql.findings(lambda text: (False, "2 rows"), reviewer, answer)
    assert finding.message == message
    assert finding.fix == fix


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


def test_the_second_attempt_of_the_other_arm_has_no_memory():
    method = OtherArm()
    first = show(("a", "b"))
    assert method.prepare(first, ()) == first

    second = replace(first, attempt=2, hint="first hint", previous="c")
    prepared = method.prepare(second, ())
    assert (prepared.examples, prepared.hint) == ((), "")

    third = method.prepare(replace(first, attempt=3, hint="second hint"), ())
    assert (third.examples, third.hint) == (first.examples, "first hint")


def test_an_attempt_without_memory_may_keep_the_feedback():
    context = replace(show(("a", "b")), attempt=2, hint="hint")
    prepared = OtherArm(keeps_feedback=True).prepare(context, ())
    assert (prepared.examples, prepared.hint) == ((), "hint")


def test_without_memory_there_is_no_other_arm():
    context = heedful.Context("task", 2, hint="hint")
    assert OtherArm().prepare(context, ()) == context


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


def test_without_pairs_there_is_no_gain():
    assert gain([], right_at_once, late_only=True) is None


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


def test_an_arm_with_memory_that_told_nothing_is_named():
    outcomes = make_outcomes("a", [True, True])
    summary = summarize(outcomes, outcomes)
    summaries = {"geo": {"nothing": summary, "nearest": summary, "ours": summary}}
    assert list(learn.silent_arms(summaries)) == ["geo nearest", "geo ours"]


@pytest.fixture
def report():
    results = {
        "geo": {
            "nothing": make_outcomes("a", [True, True, True, False]),
            "nearest": make_outcomes("a", [True, True, False, False]),
            "ours": make_outcomes("a", [True, True, True, True]),
        },
        "spider": {
            name: make_outcomes("b", [True, False])
            for name in ("nothing", "nearest", "ours")
        },
    }
    sources = [Stream(name=name, tasks=()) for name in results]
    summaries = learn.summaries_of(results)
    gains = learn.compare_arms(sources, results)
    return learn.report_of("a model", summaries, gains, results)


def test_the_picture_of_the_gains_is_a_png(report):
    assert learn_page.draw(report).startswith(b"\x89PNG")
