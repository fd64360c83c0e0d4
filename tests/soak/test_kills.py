"""Killed at any moment and resumed, a run ends as if nothing had happened."""

import random
import signal
import time
from pathlib import Path

import pytest

from tests.cli.support import CHECKS, MODEL, Desk, rows, task, words
from tests.conftest import SOAK

# `make test` does the small version, `make soak` the full one.
KILLS = min(50, 3 * SOAK)
TASKS = 6 if SOAK == 1 else 20
SECONDS_A_CALL = 0.05


def entries() -> list[dict[str, object]]:
    """Every other task has a check that is not pure, so that its answers are journalled apart."""
    impure = {"checks": [{"name": "mychecks:impure"}]}
    return [task(word) | (impure if n % 2 else {}) for n, word in enumerate(words(TASKS))]


def kill(desk: Desk, command: tuple[str, ...], chance: random.Random) -> bool:
    """Start the command, let it make some calls, and kill it at any moment; False: it had ended."""
    before, more = len(desk.calls()), chance.randint(0, max(1, 2 * TASKS // KILLS))
    process = desk.start(*command, SLEEP=str(SECONDS_A_CALL))
    while len(desk.calls()) < before + more and process.poll() is None:
        time.sleep(0.002)
    time.sleep(chance.uniform(0, 2 * SECONDS_A_CALL))
    killed = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return killed


@pytest.mark.soak
@pytest.mark.parametrize("jobs", [1, 3])
def test_kill_9_repeats_and_loses_nothing(tmp_path: Path, jobs: int) -> None:
    desk = Desk(tmp_path)
    desk.write("toy.py", MODEL)
    desk.write("mychecks.py", CHECKS)
    desk.tasks(*entries())
    # Without memory: what it brings back depends on which loops ended first.
    command = ("run", "tasks.jsonl", "--model", "toy:answer", "--no-memory", "--jobs", str(jobs))
    quiet = desk.heedful(*command, "--run", "r", "--json", "--db", "quiet.db", CALLS="quiet.log")
    assert quiet.code == 0
    chance, kills = random.Random(jobs), 0
    for _ in range(KILLS):
        again = ("--resume",) if desk.heedful("loops", "--json").json.get("loops") else ()
        kills += kill(desk, (*command, "--run", "r", *again), chance)
    done = desk.heedful(*command, "--run", "r", "--resume", "--json")
    assert done.code == 0, done
    assert rows(done) == rows(quiet)
    assert len(desk.calls("quiet.log")) == done.json["calls"] == 2 * TASKS
    assert 2 * TASKS <= len(desk.calls()) <= 2 * TASKS + jobs * kills
    doctor = desk.heedful("doctor", "--model", "toy:answer", "--json")
    assert doctor.code == 0, doctor
