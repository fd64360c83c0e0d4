"""`heedful why`, `loops`, `log`, `override`, `ask`, `runs`: what is stored."""

import pytest

import heedful
from heedful.store import DEFAULT_DATABASE_FILE
from tests.cli.pipelines import store_runs


def test_why_in_words(session_of_loops):
    done = session_of_loops(
        (
            "why lif",
            0,
            "  => stopped by attempts: 5 of 4 attempts made",
            "best: attempt 1",
            "  => again (attempts overridden by ann)",
            "override of attempts by ann: it is close",
            "would have changed it: attempts.limit 6 instead of 4: again",
            "to go on: heedful.run with id='lifted' and such a limit (",
            ", or heedful loops override lifted attempts --by NAME",
        ),
        ("why r/budget", 0, "to go on: heedful.run with id='r/budget'", "!override"),
        (
            "why r/o",
            0,
            "loop r/open: open",
            (
                "open: it waits; call it again with id='r/open' (tasks in a file: run "
                "--resume)"
            ),
        ),
        (
            "why r/p",
            0,
            "  | - contains: 'red' is missing. write 'red' in it",
            "  => passed",
            "!to go on",
        ),
    )
    lines = done.out.splitlines()
    assert lines[0] == "loop r/passed: passed, policy default"
    assert lines[1] == "Passed at attempt 2."
    assert lines[2] == "failed: contains failed in attempt 1 ('red' is missing)"
    assert lines[3] == "task: Say red"
    assert lines[4] == "memory, before each attempt:"
    assert lines[5].startswith("  silent: no memory key")
    assert lines[7] == "attempt 1: blue"
    assert lines[9] == "  => again"
    document = session_of_loops(("why lifted --json", 0)).json
    assert [attempt["output"] for attempt in document["made"]] == [*"abcde"]
    assert document["made"][0]["evaluation"]["findings"][0]["check"] == "contains"
    assert "'red' is missing" in document["decisions"][0]["verdict"]["feedback"]
    assert document["lines"][-1]["decided"].startswith("stopped by attempts")
    assert document["would_change"][0].startswith("attempts.limit 6 instead of 4")
    assert document["sentence"] == (
        "Stopped after attempt 5: 5 of 4 attempts made. One more attempt would need a "
        "limit of 6 attempts instead of 4."
    )


def test_an_id_that_is_mistyped_is_asked_about(desk, session, history):
    desk.write(DEFAULT_DATABASE_FILE, history)
    session(
        ("why r/pased", 3, "no loop or run 'r/pased'", "(did you mean 'r/passed'?)"),
        ("loops cancel r/opne", 3, "(did you mean 'r/open'?)"),
        ("why nothing-alike", 3, "!did you mean"),
    )


@pytest.mark.parametrize(
    ("state", "ids"),
    [
        pytest.param("open", ["r/open"], id="open"),
        pytest.param("failed", ["broken"], id="its driver failed"),
        pytest.param("passed", ["r/passed"], id="passed"),
        pytest.param("unchecked", ["blind"], id="nothing judged it"),
        pytest.param("not_validated", [], id="no such loop"),
        pytest.param(
            "stopped", ["advice", "lifted", "r/budget", "r/stopped"], id="stopped"
        ),
    ],
)
def test_loops_are_listed_by_their_state(desk, session, history, state, ids):
    desk.write(DEFAULT_DATABASE_FILE, history)
    db = str(desk.folder / DEFAULT_DATABASE_FILE)

    def broken(candidate: str, context: heedful.Context) -> None:
        raise OSError("the net is down")

    def answer_once(task: str) -> str:
        return "x"

    unjudged = heedful.run("Say red", generate=answer_once, id="blind", store=db)
    heedful.run_sync(unjudged)
    failing = heedful.run(
        "Say red", generate=answer_once, checks=[broken], id="broken", store=db
    )
    with pytest.raises(heedful.errors.UserCodeError):
        heedful.run_sync(failing)

    for limit in (1, 50):
        done = session((f"loops --state {state} --limit {limit} --json", 0))
        listed = [loop["id"] for loop in done.json["loops"]]
        assert listed == ids[:limit]
    if not ids:
        session((f"loops --state {state}", 0, "no loop that is not validated in"))


def test_the_right_answer_of_a_loop_is_given_by_hand(session_of_loops):
    right = "loops correct r/stopped 'it is red' --by ann --why 'read it'"
    session_of_loops(
        (right, 0, "the answer is in lesson ", "Next: heedful why r/stopped"),
        (right, 0, "this answer is known already"),
        ("loops correct zzz red --by ann", 3, "no loop"),
    )


def test_a_loop_is_ended_by_hand(session_of_loops):
    done = session_of_loops(
        ("loops cancel r/open --by ann --why 'no more need'", 0, "is cancelled"),
        ("why r/open", 0, "Stopped after attempt 1: it was cancelled: ann: no more"),
        ("loops --state open", 0, "no loop that is open"),
        ("loops cancel r/passed --by ann", 0, "had ended before; nothing was changed"),
        ("loops cancel r/passed --by ann --json", 0),
    )
    assert done.json["passed"] is True


# Runs of pipelines


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A database with runs of pipelines."""
    return store_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def session_of_runs(desk, session, runs):
    """Sessions in a folder whose database has runs."""
    desk.write("heedful.db", runs)
    return session


def test_why_a_run_or_one_of_its_stages(session_of_runs, monkeypatch):
    head = (
        "run forecast-1 of pipeline forecast was degraded after insights; 3 stages, 6 "
        "attempts"
    )
    stage = "stage 2 (train) passed at attempt 2\n"
    only = "stage 2 (train): ✓ passed at attempt 2\n"
    several = "forecast-1, forecast-2, forecast/say; give more of the id\n"
    document = session_of_runs(
        (
            "why forecast-1",
            0,
            head,
            "Degraded: the run went on",
            stage.strip() + "; ",
            "!attempt 2 of",
            "Next: heedful why forecast-1 --full",
        ),
        (
            "why forecast-1 --full",
            0,
            head,
            "!guardrail_",
            "attempt 2 of train: ✓ passed, its output went on",
            "  | @@ -",
            "  ✗ insight_hallucination: ",
            "!###",
            "!| --- |",
            "mean 1234.56 against 89.23",
        ),
        ("why forecast-1 train", 0, only, f"!{stage}", "!insights", "!###"),
        ("why forecast-1 2", 0, only, f"!{stage}"),
        ("why forecast-1 trian", 2, "did you mean 'train'"),
        ("why last", 0, "loop forecast/say: passed"),
        ("why nightly", 0, "run nightly-1 of pipeline nightly passed"),
        ("why forecast-1/train", 0, "loop forecast-1/train: passed"),
        ("why forecast", 2, f"several loops begin with 'forecast': {several}"),
        (
            "why forecast/say 2",
            2,
            "loop 'forecast/say' is not a run of a pipeline: it has no sta",
        ),
        ("why zzz", 3, "heedful loops lists them"),
        ("why forecast-2 2 --json", 0),
    ).json
    assert document["run"] == "forecast-2"
    assert document["name"] == "train"
    assert document["action"] == "passed"
    monkeypatch.setenv("HEEDFUL_PROJECT", "other")
    session_of_runs(
        ("why last", 3, "no loop or run 'last' in project 'other' of heedful.db")
    )


def test_a_stage_that_is_lifted_goes_on_in_the_program_of_its_pipeline(
    session_of_runs,
):
    session_of_runs(
        (
            "loops override forecast-2/insights attempts --by ann",
            0,
            "is open; run the program of the pipeline again with id='forecast-2'",
            "!TASKS",
        ),
    )


def test_ask(session_of_runs):
    session_of_runs(
        (
            "why forecast-1 'why did the pipeline retry stage 2?'",
            0,
            "asked: why stage 2 (train, by its place) was retried\n",
            "\n1. [train] stage 2 (train)",
            "Next: heedful why forecast-1 train",
        ),
        (
            "why forecast-1 'what is the weather?'",
            0,
            "why stages were retried, and the question names none of them: load, train",
            "asked: which stages of run forecast-1 were retried, and why\n",
        ),
        ("why forecast-1 'why did it retry stage 2?' --json", 0, '"missing": ""'),
    )


def test_runs_and_their_statistics(session_of_runs):
    listed = session_of_runs(
        ("loops runs", 0, "Next: heedful why nightly-1"),
        (
            "loops runs weekly",
            3,
            "'weekly' in project 'default' of heedful.db; heedful loops runs lists all",
        ),
        ("loops runs forecast --limit 1 --json", 0, '"forecast-2"', "!forecast-1"),
        ("loops runs --json", 0),
    ).json["runs"]
    names = ("run", "state", "stages", "attempts", "retries")
    assert [tuple(row[name] for name in names) for row in listed] == [
        ("nightly-1", "passed", {"passed": 1}, 1, 0),
        ("forecast-2", "degraded", {"passed": 2, "failed": 1}, 6, 3),
        ("forecast-1", "degraded", {"passed": 2, "failed": 1}, 6, 3),
    ]
