"""`heedful reflect`: traces of any format, each run once; what failed is told and tried
again.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

import heedful
from heedful import Episode, Event
from heedful.episodes.readers import heedful as traces
from heedful.lessons import render
from heedful.lessons.mistake import Call, Fix, Mistake
from tests.memory.reflections import FAILED, GOOD, MENDED, TASK, with_task
from tests.tables import cases

MODEL = f"""
import os
from heedful.errors import ModelTimeout, ModelUnavailable

GOOD = {GOOD!r}

def good(messages):
    return GOOD

def wild(messages):
    return GOOD.replace("name the item in full", "ask 17 sellers")

def late(messages):
    raise ModelTimeout("no answer within 3 s")

def gone(messages):
    raise ModelUnavailable("no key")
"""
POT = Mistake(
    action=Call(tool="price", arguments=(("item", "pot"),)),
    error="Error: 3 items match",
)
CHAT = {
    "messages": [
        {"role": "user", "content": TASK},
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "id": "1",
                    "function": {"name": "price", "arguments": '{"item": "pot"}'},
                }
            ],
        },
        {
            "role": "tool",
            "tool_call_id": "1",
            "content": "Error: 3 items match\x1b[31m",
        },
    ],
    "outcome": "failure",
}


@pytest.fixture
def session_of_traces(desk, session):
    desk.write("runs.jsonl", b"".join(traces.write([FAILED, MENDED])))
    desk.write("reflectors.py", MODEL)
    return session


def test_each_run_is_shown_with_the_events_that_prove_it_and_counts_once(
    session_of_traces, desk
):
    again = session_of_traces(
        (
            "reflect runs.jsonl --each",
            0,
            f"runs.jsonl:run 1  error, 4 events: {TASK}",
            "signal   cause [e3]: fails first here: Error: 3 items match",
            f"lesson   {render.lesson(POT)}",
            f"rule     {render.rule(POT)[:60]}",
            "by rules; kept\n",
            "runs.jsonl:2  failure, 6 events",
            "known, seen 2 times now",
            "2 episodes: 1 new, 1 known",
            "agents will be told of 1",
            "Next: heedful lessons",
        ),
        ("reflect runs.jsonl", 0, "2 episodes: 0 new, 2 known"),
        ("reflect runs.jsonl --json", 0),
    ).json["episodes"]
    for entry in again:
        assert entry["again"]
        assert not any(item["created"] for item in entry["stored"])
        assert entry["release"] == ""
    lessons = session_of_traces(("lessons --json", 0)).json["lessons"]
    assert [entry["seen"] for entry in lessons] == [2, 2]
    desk.write("build.log", "step 3\n" * 9_000 + "Error: 3 items match\n")
    desk.write("well.log", "step 3\n" * 9_000)
    desk.write("any.bin", b"PK\0\1")
    session_of_traces(
        ("before -- price pot", 1, "no known failure"),
        (
            "seen build.log",
            0,
            "seen: 2",
            "  Error: 3 items match",
            "lesson 2, strategy, unverified",
        ),
        ("seen any.bin", 2, "any.bin is not a text"),
        ("seen well.log", 1, "no line looks like an error"),
    )
    desk.write("chat.json", json.dumps(CHAT))
    desk.write("other.jsonl", '{"type": "session_meta", "payload": {}}\n')
    session_of_traces(
        ("reflect chat.json --origin user", 0, "Error: 3 items match", "!\x1b"),
        ("reflect other.jsonl runs.jsonl", 0, "other.jsonl\n  nothing to reflect on"),
        ("lessons edit 2 Stir --by ann", 0, "with its own words: lesson 1"),
    )


@pytest.mark.parametrize(
    ("right", "is_believed"),
    [
        pytest.param(3, False, id="failed its check"),
        pytest.param(18, True, id="passed its check"),
    ],
)
def test_a_model_that_failed_the_judge_check_is_checked_word_by_word(
    session_of_traces, desk, right, is_believed
):
    (desk.folder / "cache").mkdir()
    desk.write("cache/judges.json", json.dumps({"reflectors:wild": [right, 20]}))
    command = "reflect runs.jsonl --model reflectors:wild --no-store --each"
    refused = (
        "refused  AnswerRefused: the text of model"
        in session_of_traces((command, 0)).out
    )
    assert refused is not is_believed


def test_what_failed_is_listed_and_tried_again(session_of_traces):
    late = "failed: no answer within 3 s"
    session_of_traces(
        ("reflect runs.jsonl --model reflectors:gone", 5, "no key", "!episode"),
        (
            "reflect runs.jsonl --model reflectors:late",
            1,
            late,
            "2 episodes: 0 new, 0 known, 2 fa",
        ),
        ("lessons", 0, "no lesson in project"),
        ("worker jobs", 0, "ModelTimeout: "),
        ("worker --once --model reflectors:late", 0, "0 jobs done, 0 given up"),
        ("worker --once --model reflectors:good", 0, "2 jobs done, 0 given up"),
        ("worker jobs", 0, "!ModelTimeout: "),
    )


def test_damage_is_named_after_what_is_whole(session_of_traces, desk):
    content = b"".join(traces.write([FAILED, with_task("another")]))
    desk.write("cut.jsonl", content[:-40])
    done = session_of_traces(
        ("reflect none.jsonl", 1, "failed: none.jsonl", "0 episodes: "),
        (
            "reflect cut.jsonl runs.jsonl",
            1,
            "3 episodes: 1 new, 2 known, 1 failed",
            "cut.jsonl:2",
        ),
        ("reflect cut.jsonl --json", 1),  # one document, with what is whole
    )
    assert done.json["failed"] == 1
    assert done.err == ""
    errors = [result["error"] for result in done.json["episodes"]]
    assert ["cut.jsonl" in error for error in errors] == [False, True]


def test_of_a_folder_what_is_of_no_known_format_is_named(session_of_traces, desk):
    (desk.folder / "runs").mkdir()
    (desk.folder / "notes").mkdir()
    desk.write("notes/README.md", "# notes")
    refused = ("reflect notes", 0, "1 file of no known format: README.md", "!Next: ")
    session_of_traces(("reflect runs", 1, "the folder has no file"), refused)
    desk.write("runs/README.md", "# notes")
    desk.write("runs/a.jsonl", b"".join(traces.write([FAILED])))
    done = session_of_traces(
        ("reflect runs/README.md", 1, "failed: "),
        (
            "reflect runs",
            0,
            "1 episode: 1 new",
            "1 file of no known format: README.md",
            "Next: heedful lessons",
        ),
        ("reflect runs --json", 0),
    )
    assert (done.json["failed"], done.json["unknown"]) == (0, ["README.md"])


KETTLE_TASK = "What does the red kettle cost?"
KETTLE_RUN = Episode(
    (
        Event("tool_call", tool="price", arguments={"item": "kettle"}),
        Event("tool_response", error="Error: no such item"),
        Event("tool_call", tool="price", arguments={"item": "red kettle"}),
        Event("tool_response", "41.90"),
    ),
    "success",
    task=KETTLE_TASK,
)


def fetched(run: Episode, **fields: Any) -> Episode:
    """Return a run with a tool of an MCP server, and these fields of its results."""
    events = [
        replace(event, tool="mcp__shop__price")
        if event.tool
        else replace(event, **fields)
        for event in run.events
    ]
    return replace(run, events=tuple(events))


@cases("origin, is_told", {"of the caller": ("", True), "outside": ("outside", False)})
def test_words_from_outside_are_left_out_and_no_names_of_tools_count(
    desk, session, origin, is_told
):
    run = fetched(KETTLE_RUN, origin=origin)
    desk.write("kettle.jsonl", b"".join(traces.write([run])))
    error = "no such item" if is_told else "!no such item"
    mistake = Mistake(
        action=Call(tool="mcp__shop__price", arguments=(("item", "kettle"),)),
        error="Error: no such item" if is_told else "",
        fix=Fix(kind="arguments", changes=(("item", "red kettle"),)),
    )
    failed = render.account(mistake)
    [fix] = render.fix_lines(mistake)
    session(
        ("reflect kettle.jsonl", 0),
        (f"recall '{KETTLE_TASK}'", 0, failed, fix, error),
        (
            """before --tool mcp__shop__price -- '{"item": "kettle"}'""",
            0,
            f"fix: {fix}",
            error,
        ),
    )


@pytest.mark.parametrize(
    "arguments",
    ["room", "'[1]'", "'{'", "null", """'{"room": "Aurora"}' more"""],
    ids=["a word", "a list", "a part", "null", "more after the object"],
)
def test_before_refuses_arguments_that_are_no_json_object(session, arguments):
    line = f"before --tool rooms -- {arguments}"
    session((line, 2, "JSON after --tool NAME --", "must be a JSON object of arg"))


def test_the_list_of_stated_names_makes_no_database(desk, session):
    where = f"no database 'other.db' in the folder {desk.folder}"
    session(("trust --list --db other.db", 3, where))
    assert not (desk.folder / "other.db").exists()


def test_commands_about_what_waits_name_the_database(desk, session):
    desk.write("kettle.jsonl", b"".join(traces.write([KETTLE_RUN])))
    release = "heedful quarantine release 2 --by NAME (add --db r.db)"
    waits = f"outside; to change that: {release}"
    done = session(("reflect kettle.jsonl --origin outside --db r.db --json", 0))
    [episode] = done.json["episodes"]
    assert episode["release"] == "heedful quarantine release 1 2 --by NAME --db r.db"
    session(
        (f"recall '{KETTLE_TASK}' --db r.db", 0, waits),
        (f"recall '{KETTLE_TASK}' --db r.db --json", 0, waits),
        (f"recall --why '{KETTLE_TASK}' --db r.db", 0, waits),
        (
            "seen price 'Error: no such item' --db r.db",
            0,
            "Next: heedful quarantine release",
            "--by NAME --db r.db",
        ),
    )


def test_recall_with_a_key_shows_the_prompt_of_its_function(desk, session):
    def generate(task: str, hint: str) -> str:
        return "P1" if "P0 to P3" in hint else "high"

    levels = heedful.checks.regex("P[0-3]", fix="answer with P0 to P3")
    db = str(desk.folder / "heedful.db")
    run: heedful.Run[str] = heedful.Run(
        "Checkout answers 500",
        generate=generate,
        checks=[levels],
        memory=db,
        store=db,
        memory_key="bugs.triage",
    )
    heedful.run_sync(run.finish())

    session(
        (
            "recall 'A typo'",
            0,
            "!answer with P0 to P3",
            "nothing to show: ",
            "heedful recall TASK --key KEY",
        ),
        (
            "recall 'A typo' --key bugs.triage",
            0,
            "Lessons from earlier tasks",
            "answer with P0 to P3",
            "!heedful recall TASK",
        ),
        (
            "recall 'A typo' --key bugs.triage --json",
            0,
            '"memory_key": "bugs.triage"',
            "answer with P0 to P3",
        ),
        (
            "recall 'A typo' --key triage",
            2,
            "no memory key is called 'triage' (did you mean 'bugs.triage'?)",
        ),
        (
            "recall 'A typo' --key others --why",
            2,
            "no memory key is called 'others'; there are: ",
        ),
        ("why last", 0, "memory, before each attempt, under the key bugs.triage:"),
        ("loops --json", 0, '"memory_key": "bugs.triage"', '"model"'),
        ("lessons 1 --json", 0, '"memory_keys": [\n'),
    )
