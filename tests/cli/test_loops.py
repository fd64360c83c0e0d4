"""`heedful why`, `loops`, `log`, `override`, `ask` and `runs`: what is stored, for
people.
"""

import pytest

import heedful
from heedful.store import DEFAULT_DATABASE_FILE


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
            "kept: attempt 1",
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
    assert lines[2] == "task: Say red"
    assert lines[3] == "memory, before each attempt:"
    assert lines[4].startswith("  silent: no memory key")
    assert lines[6] == "attempt 1: blue"
    assert lines[8] == "  => again"
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
