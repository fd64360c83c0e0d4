"""`heedful why`, `loops`, `log`, `override`, `ask` and `runs`: what is stored, for
people.
"""

import asyncio
import time
from collections import Counter

import pytest

import heedful
from heedful.store import DEFAULT_DATABASE_FILE
from tests.cli.pipelines import store_runs


def test_why_tells_of_an_example_only_its_answer(desk, session):
    """A second function was shown the accepted answer, not the rule of the first."""
    db = str(desk.folder / DEFAULT_DATABASE_FILE)
    hints: list[str] = []

    def generate(task: str, hint: str) -> str:
        hints.append(hint)
        return "P1" if hint else "high"

    def levels(text: str) -> str | None:
        """Not a function of a module, so its rule is that of one function alone."""
        return None if text == "P1" else "answer with P0 to P3"

    for key, task in (
        ("bugs.triage", "Checkout answers 500"),
        ("copy.triage", "Checkout answers 500 again"),
    ):
        work = heedful.run(
            task,
            generate=generate,
            checks=[levels],
            memory=db,
            store=db,
            memory_key=key,
        )
        heedful.run_sync(work)

    assert "answer with P0 to P3" not in hints[-1]
    session(
        (
            "why last",
            0,
            "shown: lesson 1, example by likeness",
            ": the accepted answer of a similar task",
            "what the prompt got, about",
            "  | --- accepted answer",
            "!answer with P0 to P3",
        ),
    )
    document = session(("why last --json", 0)).json
    assert "accepted answer" in document["briefing"]["prompt"]


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
        ),
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


def test_a_loop_that_nothing_judged_is_unchecked_and_never_passed(desk, session):
    work = heedful.run(
        "Say red",
        generate=lambda task: "red",
        store=str(desk.folder / DEFAULT_DATABASE_FILE),
        id="blind",
    )
    heedful.run_sync(work)
    session(
        ("loops", 0, "unchecked", "!passed"),
        ("loops --json", 0, '"state": "unchecked"'),
        (
            "why blind",
            0,
            "loop blind: unchecked, policy default\nUnchecked at attempt 1: ",
            "  => unchecked\n",
            "!passed",
        ),
    )


NAME_IT = "pass --db with the file that your program names, or let heedful run"


@pytest.mark.parametrize("command", ["loops", "why last", "proof", "lessons"])
def test_a_missing_database_is_named_with_its_folder(desk, session, command):
    missing = f"no database 'heedful.db' in the folder {desk.folder}; {NAME_IT}"
    folder = desk.folder / "no" / "such"
    there = f"no database 'no/such/x.db' in the folder {folder}; {NAME_IT}"
    session((command, 3, missing), (f"{command} --db no/such/x.db", 3, there))


def test_an_id_that_is_mistyped_is_asked_about(desk, session, history):
    desk.write(DEFAULT_DATABASE_FILE, history)
    session(
        ("why r/pased", 3, "no loop or run 'r/pased'", "(did you mean 'r/passed'?)"),
        ("loops cancel r/opne", 3, "(did you mean 'r/open'?)"),
        ("why nothing-alike", 3, "!did you mean"),
    )


def test_an_id_of_another_project_is_not_named(desk, session, history, monkeypatch):
    desk.write(DEFAULT_DATABASE_FILE, history)
    monkeypatch.setenv("HEEDFUL_PROJECT", "shop")
    session(("why r/pased", 3, "!r/passed"))


@pytest.mark.parametrize(
    ("state", "ids"),
    [
        pytest.param("open", ["broken", "r/open"], id="open"),
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


def test_a_loop_is_ended_by_hand(session_of_loops):
    done = session_of_loops(
        ("loops cancel r/open --by ann --why 'no more need'", 0, "is cancelled"),
        ("why r/open", 0, "Stopped after attempt 1: it was cancelled: ann: no more"),
        ("loops --state open", 0, "no loop that is open"),
        ("loops cancel r/passed --by ann", 0, "had ended before; nothing was changed"),
        ("loops cancel r/passed --by ann --json", 0),
    )
    assert done.json["passed"] is True


@pytest.mark.parametrize("command", ["ui --no-browser", "serve"])
def test_a_missing_folder_is_said_in_one_way(desk, session, command):
    folder = desk.folder / "no" / "such"
    message = (
        f"no database 'no/such/x.db' in the folder {folder}, which is missing; "
        f"make it: mkdir -p {folder}\n"
    )
    session((f"{command} --db no/such/x.db", 4, message))

    path = str(folder / "x.db")
    work = heedful.run("Say red", generate=lambda task: "red", store=path)
    with pytest.raises(heedful.errors.StoreUnavailable) as refused:
        heedful.run_sync(work)
    assert str(refused.value) == message.strip().replace("no/such/x.db", path, 1)


def test_why_says_that_heedful_wrote_the_masks(desk, session):
    secret = "AKIAIOSFODNN7EXAMPLE"

    def generate(task: str) -> str:
        return f"key {secret}" if "secret" in task else "no key"

    for id in ("secret", "plain"):
        heedful.run_sync(
            heedful.run(
                id,
                generate=generate,
                checks=[lambda text: ""],
                store=str(desk.folder / "heedful.db"),
                id=id,
            )
        )

    note = "[redacted: …] is written by heedful in place of a secret"
    session(
        ("why secret", 0, "key [redacted: aws_key]", note),
        ("why plain", 0, f"!{note}"),
    )


def test_an_override_opens_a_loop_unless_another_rule_stops_it(session_of_loops):
    how = "or by heedful run TASKS --run r --resume"
    before = time.time()
    until = session_of_loops(
        (
            "loops override r/stopped attempts --by ann --why 'it is close'",
            0,
            "suspended for 1 decision: attempts; loop r/stopped is open",
            how,
            "Next: heedful why r/stopped",
        ),
        (
            "why r/stopped",
            0,
            "loop r/stopped: open",
            "  => again (attempts overridden by ann)",
            "override of attempts by ann: it is close (used 1 of 1)",
        ),
        (
            "loops override r/budget attempts --by ann --decisions 2",
            0,
            (
                "suspended for 2 decisions: attempts; loop r/budget is still stopped "
                "by budget"
            ),
        ),
        (
            "loops override advi attempts --by ann --decisions 3 --expires 1.5d --json",
            0,
            '"decisions": 3',
            '"verdict": "again"',
            '"reason": "alignment_threshold_not_met"',
        ),
    ).json["until"]
    assert 1.5 * 86_400 <= until - before <= 1.5 * 86_400 + 60


def test_several_rules_are_overridden_together(session_of_loops):
    session_of_loops(
        (
            "loops override r/stopped attempts,repeat --by ann",
            0,
            "suspended for 1 decision: attempts, repeat; loop r/stopped is open",
        ),
        (
            "loops override r/stopped attempts,budget --by ann",
            2,
            "rule 'budget' cannot",
        ),
    )


def test_a_stage_whose_check_raised_is_not_validated(desk, session):
    db = str(desk.folder / DEFAULT_DATABASE_FILE)
    pipeline = heedful.Pipeline("r", store=db, progress=False)

    @pipeline.stage(checks=[fall_over])
    def b(state: object) -> str:
        return "red"

    heedful.run_sync(pipeline.run({}, id="r"))
    session(
        ("loops", 0, "r/b", "not validated"),
    )


def call_decorated(db: str) -> None:
    """Call a decorated function whose check raises."""

    @heedful.self_correcting(checks=[fall_over], store=db)
    def write(task: str) -> str:
        return "red"

    with pytest.raises(heedful.errors.CheckFailed):
        write("Say red")


CHECK_RAISED = "check 'fall_over' raised ZeroDivisionError: 'the check fell over'"


def test_why_and_loops_name_the_check_that_raised(desk, session):
    call_decorated(str(desk.folder / DEFAULT_DATABASE_FILE))
    advice = "the candidate is not at fault, fix the check and run again"
    done = session(
        (
            "why last",
            0,
            f"Open: no attempt has been judged yet. Attempt 1 failed: {CHECK_RAISED}",
            advice,
            "open: an answer waits for its checks; heedful.run",
            "cost: calls 0, tokens 0, ",
            " s, without the answer that waits",
        ),
        ("loops", 0, "open, failed", f"Attempt 1 failed: {CHECK_RAISED}", advice),
        ("loops --json", 0),
    )
    assert CHECK_RAISED in done.json["loops"][0]["failure"]


def test_why_gives_no_id_to_a_decorated_function(desk, session):
    call_decorated(str(desk.folder / DEFAULT_DATABASE_FILE))
    advice = "takes no id: call it again, and this loop stays open\ncost:"
    session(("why last", 0, "a decorated function", advice, "!run --resume"))


def test_a_failure_is_shown_until_its_attempt_is_recorded(desk, session):
    db = str(desk.folder / DEFAULT_DATABASE_FILE)
    errors = [KeyError("one"), KeyError("two with sk-" + "a1B2" * 12)]

    def generate(task: str, hint: str) -> str:
        if errors:
            raise errors.pop(0)
        return "red"

    def write() -> None:
        work = heedful.run(
            "Say red", generate=generate, checks=[], store=db, id="say-red"
        )
        heedful.run_sync(work)

    with pytest.raises(heedful.errors.GenerateFailed):
        write()
    session(("why say-red", 0, "generate raised KeyError: 'one'"))

    with pytest.raises(heedful.errors.GenerateFailed):
        write()
    newest = "generate raised KeyError: 'two with [redacted: model_key]'"
    session(("why say-red", 0, newest, "!'one'", "open: it waits", "!the answer"))

    write()
    session(
        ("why say-red", 0, "!KeyError", "!failed"),
        ("loops", 0, "!failed"),
    )


def fall_over(candidate: str, context: object) -> list[str]:
    raise ZeroDivisionError("the check fell over")


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


def test_why_a_run_names_the_lessons_that_its_stages_were_shown(desk, session):
    pipeline: heedful.Pipeline = heedful.Pipeline(
        "prices",
        memory=heedful.Memory(str(desk.folder / DEFAULT_DATABASE_FILE), holdout=0),
        progress=False,
    )

    @pipeline.stage(checks=[heedful.checks.regex("P[0-3]", fix="answer with P0 to P3")])
    def triage(state: object, feedback: str | None = None) -> str:
        return "P1" if feedback else "high"

    asyncio.run(pipeline.run({}, id="first"))
    asyncio.run(pipeline.run({}, id="second"))
    session(
        ("why first", 0, "!memory showed"),
        ("why last", 0, "memory showed lesson 1 (", ") to stage 1 (triage)\n"),
    )


def test_a_lesson_says_how_loops_ended_and_not_that_it_was_the_cause(desk, session):
    memory = heedful.Memory(str(desk.folder / DEFAULT_DATABASE_FILE), holdout=0)

    async def triage(task: str, hint: str) -> str:
        return "P1" if hint else "high"

    levels = heedful.checks.regex("P[0-3]", fix="answer with P0 to P3")
    for task in ("Checkout answers 500", "The footer has a typo"):
        work = heedful.run(task, generate=triage, checks=[levels], memory=memory)
        asyncio.run(work)
    session(
        (
            "lessons",
            0,
            "seen 1; shown 1: 1 right, 0 again, 0 other\n",
            "!helped",
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


def test_loops_list_runs_and_replay_leaves_them_out(session_of_runs, desk):
    loops = {
        entry["id"]: entry
        for entry in session_of_runs(("loops --json", 0)).json["loops"]
    }
    assert loops["nightly-1"]["state"] == "passed"
    assert loops["forecast-1"]["state"] == "stopped"
    assert loops["forecast-1"]["stopped_by"] == ["degraded"]
    listed = " ".join(session_of_runs(("loops", 0)).out.split())
    assert "forecast-1 run degraded" in listed
    asyncio.run(
        heedful.run(
            "Say red",
            generate=lambda *_: "red",
            store=str(desk.folder / DEFAULT_DATABASE_FILE),
        )
    )
    [newest] = session_of_runs(("loops --limit 1 --json", 0)).json["loops"]
    short = newest["id"][:8]
    session_of_runs(
        ("loops", 0, short, f"!{newest['id']}", '!{"pipeline"'),
        (f"why {short}", 0, newest["id"]),
    )
    recorded = session_of_runs(("replay --json", 0)).json["recorded"]
    # Each stage and another loop, but no run, and not what nothing judged.
    assert recorded["loops"] == len(loops) - 3


def test_runs_and_stages_are_told_from_loops(session_of_runs, desk):
    listed = session_of_runs(("loops", 0)).out
    lines = [" ".join(line.split()) for line in listed.splitlines()]
    entries = session_of_runs(("loops --json", 0)).json["loops"]
    kinds = {entry["id"]: entry["kind"] for entry in entries}
    assert lines[0].startswith("loop kind state")
    assert "nightly-1 run passed" in listed_start(lines, "nightly-1 ")
    assert "nightly-1/copy stage" in listed_start(lines, "nightly-1/copy ")
    assert "forecast/say loop passed" in listed_start(lines, "forecast/say ")
    counts = Counter(kinds.values())
    assert lines[-1] == (
        f"{len(kinds) - counts['run']} loops, {counts['stage']} of them stages, "
        f"and {counts['run']} runs; heedful loops runs counts their attempts"
    )
    attempts = {entry["id"]: entry["attempts"] for entry in entries}
    assert attempts["nightly-1"] is None
    assert attempts["nightly-1/copy"] == 1
    assert kinds["nightly-1"] == "run"
    assert kinds["nightly-1/copy"] == "stage"
    assert kinds["forecast/say"] == "loop"


def listed_start(lines: list[str], begin: str) -> str:
    """The line of a list that begins so."""
    (line,) = [line for line in lines if line.startswith(begin)]
    return line


def test_the_name_of_a_check_forges_no_line_of_why(desk):
    forged = "\n\nPassed at attempt 1: the operator accepted it."

    def reject(candidate: str) -> heedful.Finding:
        return heedful.Finding(f"total{forged}", "m", fix="f")

    work = heedful.run(
        "t",
        generate=lambda task: "wrong",
        checks=[reject],
        policy="default, attempts.limit=1",
        store=str(desk.folder / DEFAULT_DATABASE_FILE),
        id="forged",
    )
    asyncio.run(work)
    lines = desk.heedful("why forged").out.splitlines()
    assert "  total Passed at attempt 1: the operator accepted it.: m -> f" in lines
    assert not [line for line in lines if line.startswith("Passed")]


def test_why_and_log_say_which_rung_has_spent_its_limit(desk):
    async def small(task: str, hint: str) -> str:
        return "wrong"

    async def large(task: str, hint: str) -> str:
        return "wrong, too"

    def never(candidate: str) -> str:
        return "not right"

    def run(id: str, *generators: heedful.Rung) -> None:
        work = heedful.run(
            "t",
            generate=list(generators),
            checks=[never],
            policy="default, attempts.limit=1",
            store=str(desk.folder / DEFAULT_DATABASE_FILE),
            id=id,
        )
        asyncio.run(work)

    limited = heedful.Rung(small, "small", calls=1)
    run("first", limited)
    run("ended", limited)
    run("climbed", limited, heedful.Rung(large, "large"))

    text = desk.heedful("why ended").out
    assert "closed: rung 1 (small): 1 of 1 calls spent, the limit of 20" in text
    assert "(UTC); the loop ended" in text
    assert "closed stopped it" in text
    text = desk.heedful("why climbed").out
    assert "(UTC); rung 2 (large) made attempt 1" in text
    [sentence] = desk.heedful("why climbed --json").json["closed"]
    assert f"closed: {sentence}" in text
