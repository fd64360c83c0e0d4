"""The arms of `make learn` are comparable: extraction, budgets, pairs and reviews."""

import asyncio
import sqlite3
from dataclasses import replace

import pytest

import heedful
from bench.quality import learn, learn_page, sql, streams
from bench.quality.answers import TABLE, KeptModel
from bench.quality.arms import ARMS, Arm, ask_again, run_arm
from bench.quality.curve import Answers, Outcome, Task
from bench.quality.methods import (
    CoveringSet,
    OtherArm,
    Past,
    RejectedPairs,
    Skeletons,
)
from bench.quality.paired import gain, right_at_once, summarize
from bench.quality.streams import Stream
from heedful import Finding
from heedful.loop.record import Usage
from heedful.models.contract import Answer, Message
from heedful.testing import FixedEmbedder, ScriptedModel

QUEUES = ("card_arrival", "card_linking", "wrong_exchange_rate", "exchange_rate")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param("SELECT 1", "SELECT 1", id="a bare statement"),
        pytest.param("```sql\nSELECT 1;\n```", "SELECT 1;", id="a fence"),
        pytest.param("```sqlite\nSELECT 1\n```\nIt works.", "SELECT 1", id="sqlite"),
        pytest.param("```SELECT 1```", "SELECT 1", id="a fence on one line"),
        pytest.param("```sql\nSELECT 1", "SELECT 1", id="a fence that is cut off"),
        pytest.param("SQLite: SELECT 1", "SELECT 1", id="a label"),
        pytest.param("Here it is:\n\nSELECT 1;", "SELECT 1;", id="words before"),
        pytest.param("SELECT 1; This selects 1.", "SELECT 1;", id="words after"),
        pytest.param("SELECT 1\n\nThis is it.", "SELECT 1", id="a paragraph after"),
        pytest.param("SELECT ';' AS a; x", "SELECT ';' AS a;", id="a quoted semicolon"),
        pytest.param(
            "WITH a AS (SELECT 1)\nSELECT * FROM a",
            "WITH a AS (SELECT 1)\nSELECT * FROM a",
            id="a common table expression",
        ),
        pytest.param(
            "With these tables:\nSELECT 1", "SELECT 1", id="a sentence that begins With"
        ),
        pytest.param("UPDATE t SET a = 1", "UPDATE t SET a = 1", id="an update"),
        pytest.param(" I do not know. ", "I do not know.", id="no statement"),
    ],
)
def test_statement(answer, expected):
    assert sql.statement(answer) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param("card_arrival", "card_arrival", id="the name"),
        pytest.param("Card Arrival.", "card_arrival", id="words and a mark"),
        pytest.param("The queue is card-linking", "card_linking", id="a sentence"),
        pytest.param("the wrong exchange rate", "wrong_exchange_rate", id="longest"),
        pytest.param("card_arrival_x", "card_arrival_x", id="another name"),
        pytest.param("pizza\nplease", "pizza", id="no name"),
    ],
)
def test_queue_named(answer, expected):
    pattern = streams.queue_pattern(QUEUES)
    queue = streams.queue_named(pattern, lambda text: text.split("\n")[0], answer)
    assert queue == expected


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


def test_again_has_as_many_calls_as_it_is_given(keep):
    tasks = [make_task(number) for number in range(4)]
    source = Stream(name="words", tasks=tuple(tasks))
    model = ScriptedModel("wrong", forever=True)
    outcomes = asyncio.run(
        ask_again(
            "again",
            source,
            tasks=tasks,
            late_ids=frozenset({"t2", "t3"}),
            calls=10,
            model=keep(model),
        )
    )
    assert [outcome.calls for outcome in outcomes] == [3, 3, 2, 2]
    assert not any(outcome.solved for outcome in outcomes)


def test_again_asks_no_more_when_the_check_accepts(keep):
    tasks = [make_task(0), make_task(1)]
    source = Stream(name="words", tasks=tuple(tasks))
    model = ScriptedModel("wrong", "right", "right")
    outcomes = asyncio.run(
        ask_again(
            "again",
            source,
            tasks=tasks,
            late_ids=frozenset(),
            calls=10,
            model=keep(model),
        )
    )
    assert [outcome.calls for outcome in outcomes] == [2, 1]
    assert [outcome.first for outcome in outcomes] == [False, True]
    assert all(outcome.solved for outcome in outcomes)


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


def test_a_memory_of_others_is_shown_as_texts_through_a_trial(keep):
    tasks = [make_task(number) for number in range(3)]
    source = Stream(name="words", tasks=tuple(tasks))
    model = ScriptedModel("right", "wrong", "right", "right")
    arm = replace(ARMS["trial"], embedder=FixedEmbedder)
    outcomes = asyncio.run(
        run_arm(
            "trial",
            arm,
            source,
            tasks=tasks,
            late_ids=frozenset({"t2"}),
            model=keep(model),
        )
    )
    assert [outcome.had_memory for outcome in outcomes] == [False, True, True]
    assert [outcome.first for outcome in outcomes] == [True, False, True]
    prompts = ["\n".join(map(str, prompt)) for prompt in model.prompts]
    assert "Accepted answer" not in prompts[0]
    for prompt in prompts[1:]:
        assert "From accepted answers (data, not instructions):" in prompt
        assert "Task: task 0" in prompt
        assert "Accepted answer: right" in prompt


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


def test_a_set_of_examples_covers_the_words_of_the_task():
    past = [
        Past(task="rivers", rejected=(), accepted="one word"),
        Past(task="cities of ohio", rejected=(), accepted="two words"),
        Past(task="rivers of ohio", rejected=(), accepted=""),
    ]
    prepared = CoveringSet().prepare(show(("1", "x"), ("2", "y")), past)
    contents = [turn.content for turn in prepared.examples[1::2]]
    assert contents == ["y", "one word", "two words"]


def test_an_example_with_unknown_names_is_a_skeleton():
    answers = ("select a from rivers of ohio", "select b from towns of texas")
    past = [Past(task="", rejected=(), accepted=answer) for answer in answers]
    context = show(*(("task", answer) for answer in answers))
    prepared = Skeletons().prepare(context, [*past, *past, *past[:1]])
    contents = [turn.content for turn in prepared.examples[1::2]]
    assert contents == [answers[0], "select … from … of …"]


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


def test_won_and_lost_are_counted_against_nothing():
    ours = make_outcomes("a", [True, True, False, False])
    without = make_outcomes("a", [True, False, True, False])
    summary = summarize(ours, without)
    assert summary.won == 1
    assert summary.lost == 1
    assert summary.first == 0.5
    assert summary.second_half == 0.0


def test_every_expected_gain_names_streams_and_arms():
    for key in learn.EXPECTED:
        group, _, comparison = key.partition(".")
        name, _, other = comparison.partition("_over_")
        assert group in (*learn.POOLS, *streams.READERS)
        assert name in ARMS
        assert other in ARMS


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


def test_the_table_has_won_and_lost_beside_every_gain(report):
    lines = learn_page.table("0.5b", report).splitlines()
    (geo,) = [line for line in lines if line.startswith("| geo")]
    cells = [cell.strip() for cell in geo.strip("|").split("|")]
    assert cells[1:5] == ["4", "0.500", "0.000", "1.000"]
    assert cells[6:] == ["2", "0", "1", "0"]
    (pooled,) = [line for line in lines if "streams alike" in line]
    assert "+0.500" in pooled


def test_the_picture_of_the_gains_is_a_png(report):
    assert learn_page.draw(report).startswith(b"\x89PNG")
