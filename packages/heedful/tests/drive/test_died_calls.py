"""A call counts before it is made, so processes that it kills reach a limit."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import heedful
from heedful.store import loops, open_store
from tests.tables import cases

PROGRAM = """
import os, signal, sys
import heedful

def generate(task, hint):
    number = heedful.context().attempt
    with open("calls", "a") as file:
        file.write(f"{number}\\n")
    if number in map(int, sys.argv[2].split(",")):
        os.kill(os.getpid(), signal.SIGKILL)
    return f"no {'x' * number ** 2}"

def check(candidate):
    return "wrong"

check.pure = sys.argv[3] == "pure"
result = heedful.run_sync(heedful.run(
    "t", generate=generate, checks=[check], store="a.db", id="a",
    policy="attempts.limit=3, -repeat, " + sys.argv[1],
))
print(",".join(stop.rule for stop in result.stopped_by))
"""


def start(folder: Path, policy: str, dies_in: str, kind: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, policy, dies_in, kind],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return process.stdout.strip() or str(process.returncode)


KILLED = "-9"
# The policy, whether the check is pure, the attempts in whose call the process dies,
# how the processes end, and the number of calls.
LIVES = {
    "attempts": ("min_gain=0.1", "pure", ["1"] * 4, [KILLED] * 3 + ["attempts"], 3),
    "budget of calls": (
        "budget.calls=2",
        "impure",
        ["1"] * 3,
        [KILLED] * 2 + ["budget"],
        2,
    ),
    "attempts between them": (
        "min_gain=0.1",
        "impure",
        ["2", "3", "9"],
        [KILLED, KILLED, "attempts"],
        5,
    ),
}


@cases(("policy", "kind", "dies_in", "ends", "calls"), LIVES)
def test_processes_that_die_in_calls_reach_a_limit(
    tmp_path: Path,
    policy: str,
    kind: str,
    dies_in: Sequence[str],
    ends: Sequence[str],
    calls: int,
) -> None:
    assert [start(tmp_path, policy, place, kind) for place in dies_in] == ends
    call_lines = (tmp_path / "calls").read_text().split()
    assert len(call_lines) == calls
    store = open_store(str(tmp_path / "a.db"))
    stored_loop = heedful.run_sync(store.read(heedful.Scope(), loops.read, "a"))
    assert stored_loop.loop.usage.calls == calls
