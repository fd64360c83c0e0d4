"""`heedful run`: runs, batches, Ctrl-C, and progress on a terminal."""

import re
import signal
from typing import Any

import pytest

from tests.cli.support import Desk, Done, await_end, rows, task

TASKS = (task("red", context={"family": "colours"}), task("green"), task("never"))
RUN = "run tasks.jsonl --model toy:answer"


def test_a_run_as_json_and_a_failed_call_that_is_resumed(desk):
    desk.tasks(TASKS[:2])
    failed = desk.heedful("run tasks.jsonl --model toy:raises --json").json
    assert failed["error"]["type"] == "ModelError"
    assert failed["run"] == "tasks-1"
    assert failed["rows"] == []
    done = desk.heedful(f"{RUN} --resume --json --jobs 2")
    document = done.json
    seconds = document.pop("seconds")
    assert sum(row["seconds"] for row in document.pop("rows")) == pytest.approx(
        seconds, abs=0.01
    )
    assert done.code == 0
    assert document == {
        "run": "tasks-1",
        "db": "heedful.db",
        "model": "toy:answer",
        "tasks": 2,
        "at_once": 0,
        "report": "reports/tasks-1.html",
        "solved": 2,
        "calls": 5,
        "tokens": 60,  # the call that failed was one, too
        "rungs": [],
        "overhead": None,
    }
    assert rows(done)[1] == {
        "id": "green",
        "loop": "tasks-1/green",
        "group": "",
        "passed": True,
        "at_once": False,
        "attempts": 2,
        "calls": 2,
        "tokens": 30,
        "stopped_by": "",
        "candidate": "green",
        "memory": "shown nothing",
        "climb": None,
    }


# Several models: the answers of toy:nothing never pass

LADDER = "run tasks.jsonl --model toy:nothing,toy:answer --policy attempts.limit=2"


def test_the_models_of_a_run_take_over_in_their_order(desk):
    desk.tasks(TASKS[:2])
    done = desk.heedful(f"{LADDER} --no-memory --prices 0,0.01")
    assert done.code == 0
    assert "2 tasks, models toy:nothing, toy:answer" in done.err
    assert "✓ red  3 attempts, calls: 3" in done.err
    assert ", rung 2" in done.err
    table = [line.split() for line in done.out.splitlines() if " toy:" in line]
    assert table[0][:6] == ["1", "toy:nothing", "0", "(0%)", "4", "4"]
    assert table[0][7] == "0"
    assert table[1][:8] == ["2", "toy:answer", "2", "(100%)", "2", "2", "30", "0.3"]


@pytest.mark.parametrize("place", ["option", "settings"])
def test_the_next_model_takes_over_from_one_that_fails(desk, place):
    command = "run tasks.jsonl --model toy:raises,toy:answer --json"
    if place == "option":
        command += " --policy 'on_failure=take over'"
    else:
        desk.write("heedful.toml", 'policy = "default, on_failure=take over"')
    desk.tasks([TASKS[0]])
    done = desk.heedful(command)
    [row] = rows(done)
    text = desk.heedful("why tasks-1/red").out
    assert done.code == 0
    assert row["passed"]
    assert "closed: rung 1 (toy:raises): ModelError: " in text
    assert "; rung 2 (toy:answer) made attempt 1" in text


BAD_LADDERS = {
    "the same model twice": (
        "toy:answer,toy:answer",
        "it must have another name on each side",
    ),
    "no model among others": ("toy:answer,none", "none is no model"),
    "a model that does not open": (
        "toy:answer,nope",
        "no model is called 'nope'; there are: embedded",
    ),
    "fewer prices": (
        "toy:answer,toy:nothing --prices 0.1",
        "prices is '0.1'; it must be one price of a token",
    ),
}


@pytest.mark.parametrize("case", BAD_LADDERS)
def test_a_wrong_ladder_is_refused_before_anything_is_written(desk, case):
    options, message = BAD_LADDERS[case]
    desk.tasks(TASKS[:2])
    done = desk.heedful(f"run tasks.jsonl --model {options}")
    assert done.code == 2
    assert message in done.err
    assert not (desk.folder / "heedful.db").exists()


@pytest.mark.parametrize(
    "command", ["reflect x.json", "worker --once", "demo", "serve"]
)
def test_a_command_that_asks_one_model_names_the_first_of_several(desk, command):
    done = desk.heedful(f"{command} --model toy:answer,toy:nothing")
    assert done.code == 2
    assert "this command asks one model; give one: --model toy:answer" in done.err


def test_names_of_runs_and_what_a_resumed_run_does(desk, session):
    desk.tasks([TASKS[0]])
    session((f"{RUN} --resume", 3, "no database 'heedful.db'"))
    assert not (desk.folder / "heedful.db").exists()
    session(
        (f"{RUN} --run mine", 0, "run mine: 1 task"),
        (f"{RUN} --resume", 3, "no run 'tasks-…'"),
        (f"{RUN} --run mine", 2, "run 'mine' exists; add --resume"),
        (f"{RUN} --resume --run other", 3, "no run 'other' in heedful.db"),
        (f"{RUN} --run a/b", 2),
        (f"{RUN} --run ''", 2),
        (f"{RUN} --run {'x' * 201}", 2),
        (RUN, 0, "run tasks-1: "),
        (RUN, 0, "run tasks-2: "),
    )
    calls = len(desk.calls())
    session((f"{RUN} --resume", 0, "run tasks-2: "))
    assert len(desk.calls()) == calls  # what has ended is not run again
    desk.tasks(TASKS[:2])
    done = session((f"{RUN} --resume --json", 0))
    assert [row["id"] for row in rows(done)] == ["red", "green"]
    desk.tasks([{**TASKS[0], "task": "Say blue"}])
    session((f"{RUN} --resume", 2, "is about another task"))


BAD_MODELS = {
    "toy:raises": (5, "raised OSError: the model fell over"),
    "toy:huge": (5, "answered 10000000 bytes"),
    "toy:slow": (5, "no answer within|no result within"),
    "toy:nothing": (1, "stopped by attempts|stopped by repeat"),
    "toy:nowhere": (2, "no attribute 'nowhere'"),
    "nope": (2, "no model is called 'nope'; there are: embedded"),
}


@pytest.mark.parametrize("model", BAD_MODELS)
def test_a_bad_model_is_a_clear_error(desk, model):
    code, pattern = BAD_MODELS[model]
    desk.tasks(TASKS[:2])
    done = desk.heedful(f"run tasks.jsonl --model {model} --timeout 1")
    assert done.code == code
    assert re.search(pattern, done.out + done.err)
    assert "Traceback" not in done.err
    assert (desk.folder / "heedful.db").exists() is (code != 2)
    if code == 5:
        again = (
            f"heedful run tasks.jsonl --model {model} --timeout 1 --run tasks-1 "
            "--resume"
        )
        assert again in done.err


def test_a_model_that_ends_the_process_is_named_and_a_traceback_only_on_request(desk):
    desk.tasks([TASKS[0]])
    for command in ("--debug run", "run --debug"):
        done = desk.heedful(f"{command} tasks.jsonl --model toy:raises")
        assert done.code == 5
        assert "Traceback" in done.err
    done = desk.heedful("run tasks.jsonl --model toy:exits --json --run e")
    assert done.code == 1
    assert "called sys.exit(0)" in done.json["error"]["message"]
    assert "--run e --resume" in done.json["error"]["message"]


# Ctrl-C: at once, with code 130 and the command that goes on

COLOURS = tuple(task(word) for word in ("red", "green", "blue"))


def resuming_line(err: str) -> str:
    """Return the command line that the message shows, without the program's name."""
    command = err.split("continue with:\n", 1)[1].splitlines()[0]
    program, _, line = command.strip().partition(" ")
    assert program == "heedful"
    return line


def interrupt(desk: Desk, line: str, *, calls: int, **more: Any) -> Done:
    """Run the command line and interrupt it once it has made so many calls."""
    process = desk.start(line, **more)
    desk.wait_for(lambda: len(desk.calls()) >= calls, process)
    process.send_signal(signal.SIGINT)
    return await_end(process)


def test_ctrl_c_shows_how_to_go_on_and_does_not_wait_for_the_model(desk):
    desk.tasks(COLOURS)
    line = f"{RUN} --timeout 50 --run 'a name'"
    stopped = interrupt(desk, line, calls=4, SLEEP="0.3")
    assert stopped.code == 130
    assert "heedful: interrupted; stored results stay" in stopped.err
    assert "Traceback" not in stopped.err
    resuming = resuming_line(stopped.err)
    assert resuming == f"{line} --resume"
    assert "heedful why 'a name/green'" in stopped.err
    why = stopped.err.split("look at an open loop with:\n  heedful ")[1]
    assert "a name/green" in desk.heedful(why).out
    assert desk.heedful("doctor --model toy:answer").code == 0
    done = desk.heedful(f"{resuming} --json")
    assert done.code == 0
    assert done.json["calls"] == 7
    assert [row["candidate"] for row in rows(done)] == ["red", "green", "blue"]
    assert len(desk.calls()) == 7  # the one in flight is asked again, no other


def test_a_file_that_was_only_found_names_no_model_in_python(desk, session):
    desk.tasks(
        [
            {
                "id": "a",
                "task": "Say red",
                "checks": [{"name": "contains", "needles": "red"}],
            }
        ]
    )
    desk.write("heedful.toml", 'model = "toy:model"')
    refusal = "model in heedful.toml names Python code"
    session(
        ("run tasks.jsonl", 2, refusal, "--settings heedful.toml"),
        ("model judge toy:nothing", 1, f"!{refusal}"),
    )
