"""A full disk, a file or folder that may not be written, and 64 descriptors: each error
has a type and a reason, nothing acknowledged is lost, and work goes on afterwards.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import SOAK
from tests.hooks.support import environment
from tests.soak import workloads
from tests.soak.ledger import Ledger
from tests.soak.shortages import NOBODY
from tests.soak.workloads import Acknowledged, Damage, Work
from tests.store.support import WAITING, ended, opened, python, rows

pytestmark = [pytest.mark.soak, pytest.mark.nightly]
PROGRAM = "from tests.soak.shortages import main; main()"
HEALTHY = [("ok",)]
RUNS = max(1, SOAK // 10)  # of a program
ROUNDS = min(10, 2 + SOAK)  # of a run


def run(program: str, *arguments: object) -> tuple[str, list[str]]:
    """Run a program; return what it acknowledged, and the errors that came instead."""
    output = ended(python(PROGRAM, program, *arguments))
    lines = output.splitlines(keepends=True)
    refused = [line for line in lines if line.startswith("refused")]
    acknowledged = [line for line in lines if not line.startswith(("refused", "left"))]
    return "".join(acknowledged), refused


async def look(path: Path, output: str, in_flight: int) -> Damage:
    """Return what is not as it was acknowledged, before and after work goes on."""
    acknowledged = Acknowledged.of(output)
    assert len(acknowledged) > 0

    def select(sql: str) -> list[tuple[Any, ...]]:
        return rows(path, sql)

    with opened(path) as store:
        damage = workloads.find_damage(select, acknowledged, in_flight)
        damage.torn += workloads.find_torn_files(path.parent)
        work = Work(store, path.parent, say=lambda line: None)
        damage += await workloads.resume(work, acknowledged)
    if rows(path, "pragma integrity_check") != HEALTHY:
        damage.torn.append("the database")
    return damage


def settle(ledger: Ledger, what: str, times: int, damage: Damage) -> None:
    assert damage.torn == []
    ledger.settle(
        what=what,
        engine="SQLite",
        times=times,
        lost=len(damage.lost),
        doubled=len(damage.doubled),
    )


# -- a full disk


def test_a_disk_that_is_full_for_long_files_loses_nothing(
    tmp_path: Path, ledger: Ledger
):
    damage = Damage()
    times = 0
    for number in range(RUNS):
        path = tmp_path / f"{number}" / "a.db"
        path.parent.mkdir()
        output, refused = run("full", path, "w", ROUNDS, SOAK + number)
        for error in refused:
            assert error.startswith("refused StoreUnavailable"), error
            assert "disk" in error, error
        times += len(refused)
        damage += asyncio.run(look(path, output, in_flight=0))
        shutil.rmtree(path.parent)
    settle(ledger, "a file that cannot grow, at a random moment", times, damage)


# -- files that may not be written


def test_a_read_only_folder_or_file_loses_nothing(tmp_path: Path, ledger: Ledger):
    folder = tmp_path / "data"
    folder.mkdir()
    for parent in (folder, *folder.parents[:4]):  # anybody may pass
        parent.chmod(parent.stat().st_mode | 0o711)
    if os.getuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    output, refused = run("read_only", folder / "a.db", "w")
    assert len(refused) == 9
    for error in refused:
        assert error.startswith("refused StoreUnavailable"), error
        assert "write permission" in error or "is writable" in error, error
    damage = asyncio.run(look(folder / "a.db", output, in_flight=0))
    settle(ledger, "a folder or file that may not be written", len(refused), damage)


# -- 64 descriptors


# -- hooks: whatever goes wrong, the agent continues

EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("SessionStart", {"source": "startup"}),
    ("UserPromptSubmit", {"prompt": "Run the tests"}),
    (
        "PostToolUse",
        {
            "tool_name": "Bash",
            "tool_input": {"command": "pytest"},
            "tool_response": {"stdout": "", "stderr": "E: no such file x.py"},
        },
    ),
    ("Stop", {}),
    ("SessionEnd", {"reason": "exit"}),
]
SHORTAGES = [
    pytest.param("ulimit -f 0", id="no file can grow"),
    pytest.param("ulimit -n 10", id="10 descriptors"),
    pytest.param("chmod 555 $HOME/.heedful", id="a folder that is read-only"),
]


@pytest.mark.parametrize("shortage", SHORTAGES)
def test_a_hook_lets_the_agent_go_on(tmp_path: Path, shortage: str):
    home = tmp_path / "home"
    (home / ".heedful").mkdir(parents=True)
    shop = tmp_path / "shop"
    shop.mkdir()
    hook = f'"{sys.executable}" -P -m heedful_agents.hook "$@"'
    for event, data in EVENTS:
        result = subprocess.run(
            ["sh", "-c", f"{shortage}; exec {hook}", "sh", event],
            cwd=shop,
            env=environment(home),
            input=json.dumps({"session_id": "s1", "cwd": str(shop), **data}),
            capture_output=True,
            check=False,
            timeout=WAITING,
            encoding="utf-8",
        )
        assert result.returncode == 0, result
        assert result.stderr == ""
        assert not result.stdout or json.loads(result.stdout)
    subprocess.run(["chmod", "755", str(home / ".heedful")], check=True)
    if database := next(home.rglob("*.db"), None):
        assert rows(database, "pragma integrity_check") == HEALTHY
