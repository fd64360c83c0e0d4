"""Ctrl-C: at once, with code 130 and the command that goes on."""

import json
import shlex
import signal

import pytest

from tests.cli.support import Desk, ended, rows, task

TASKS = tuple(task(word) for word in ("red", "green", "blue"))
SLOW = """
import time
from toy import note

def check(candidate, context):
    note("check")
    time.sleep(60)
"""


def resumed(err: str) -> list[str]:
    """The command that the message shows, without the name of the program."""
    shown = err.split("continue with:\n", 1)[1].splitlines()[0]
    program, *arguments = shlex.split(shown)
    assert program == "heedful"
    return arguments


def interrupted(desk: Desk, *arguments: str, calls: int, **more: str):
    """The command, interrupted once it has made so many calls."""
    process = desk.start(*arguments, **more)
    desk.wait_for(lambda: len(desk.calls()) >= calls, process)
    process.send_signal(signal.SIGINT)
    return ended(process)


def test_ctrl_c_shows_how_to_go_on_and_does_not_wait_for_the_model(desk):
    desk.tasks(*TASKS)
    run = ("run", "tasks.jsonl", "--model", "toy:answer", "--timeout", "50", "--run", "a name")
    stopped = interrupted(desk, *run, calls=4, SLEEP="0.3")
    assert stopped.code == 130
    assert "heedful: interrupted; stored results stay" in stopped.err
    assert "Traceback" not in stopped.err
    arguments = resumed(stopped.err)
    assert arguments == [*run[:-2], "--run", "a name", "--resume"]
    assert desk.heedful("doctor", "--model", "toy:answer").code == 0
    done = desk.heedful(*arguments, "--json")
    assert (done.code, done.json["calls"]) == (0, 6)
    assert [row["candidate"] for row in rows(done)] == ["red", "green", "blue"]
    assert len(desk.calls()) == 7  # the one in flight is asked again, no other


def test_ctrl_c_as_json(desk):
    desk.tasks(*TASKS)
    run = ("run", "tasks.jsonl", "--model", "toy:slow", "--json")
    stopped = interrupted(desk, *run, calls=1)
    assert stopped.code == 130
    error = json.loads(stopped.out)["error"]
    assert error["type"] == "Interrupted"
    again = ["run", "tasks.jsonl", "--model", "toy:slow", "--run", "tasks-1", "--resume"]
    assert resumed(error["message"]) == again
    (loop,) = desk.heedful("loops", "--json").json["loops"]
    assert (loop["id"], loop["state"]) == ("tasks-1/red", "open")


def test_ctrl_c_does_not_wait_for_a_check_that_blocks(desk):
    desk.write("blocking.py", SLOW)
    desk.tasks({**TASKS[0], "checks": [{"name": "blocking:check"}]})
    run = ("run", "tasks.jsonl", "--model", "toy:at_once")
    stopped = interrupted(desk, *run, calls=2)
    assert stopped.code == 130
    assert resumed(stopped.err)[-3:] == ["--run", "tasks-1", "--resume"]


@pytest.mark.parametrize("model", ["toy:slow", "toy:at_once"])
def test_ctrl_c_twice_exits_at_once(desk, model):
    desk.write("blocking.py", SLOW)
    desk.tasks({**TASKS[0], "checks": [{"name": "blocking:check"}]})
    process = desk.start("run", "tasks.jsonl", "--model", model)
    desk.wait_for(lambda: len(desk.calls()) >= 1 + (model == "toy:at_once"), process)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    assert ended(process).code == 130
    assert desk.heedful("doctor", "--model", "toy:answer").code == 0


def test_options_with_an_equals_sign_are_replaced_too(desk):
    desk.tasks(*TASKS)
    run = ("run", "tasks.jsonl", "--model=toy:slow", "--run=x", "--system", "be brief")
    stopped = interrupted(desk, *run, calls=1)
    first = ["run", "tasks.jsonl", "--model=toy:slow", "--system", "be brief"]
    assert resumed(stopped.err) == [*first, "--run", "x", "--resume"]
