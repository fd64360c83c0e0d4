"""A full disk, a file or folder that may not be written, and 64 descriptors: each error
has a type and a reason, nothing acknowledged is lost, and work goes on afterwards.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import SOAK
from tests.hooks.support import environment
from tests.service.running import Service
from tests.soak import workloads
from tests.soak.ledger import Ledger, Trial
from tests.soak.shortages import NOBODY
from tests.soak.workloads import Acknowledged, Damage, Work
from tests.store.support import WAITING, ended, opened, python, rows

pytestmark = [pytest.mark.soak, pytest.mark.nightly]
PROGRAM = "from tests.soak.shortages import main; main()"
HEALTHY = [("ok",)]
RUNS = max(1, SOAK // 10)  # of a program
ROUNDS = min(10, 2 + SOAK)  # of a run
CLIENTS = 40
STRANGERS = 100  # who open a connection and say nothing
MAX_CALLS = 500
WRONG = {"findings": [{"check": "unit", "message": "no unit"}]}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few MB, where this user may make one."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("a small disk needs the program mount")
    if mounted.returncode:
        pytest.skip("a small disk needs the right to mount one: run it as root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


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
        Trial(
            what=what,
            engine="SQLite",
            times=times,
            seed=SOAK,
            lost=len(damage.lost),
            doubled=len(damage.doubled),
        )
    )


# -- a full disk


def fill_again_and_again(folder: Path, kind: str) -> tuple[int, Damage]:
    """Let a disk become full at random moments; return how often it was noticed."""
    damage = Damage()
    times = 0
    for number in range(RUNS):
        path = folder / f"{number}" / "a.db"
        path.parent.mkdir()
        output, refused = run("full", path, kind, "w", ROUNDS, SOAK + number)
        for error in refused:
            assert error.startswith("refused StoreUnavailable"), error
            assert "disk" in error, error
        times += len(refused)
        damage += asyncio.run(look(path, output, in_flight=0))
        shutil.rmtree(path.parent)
    return times, damage


def test_a_disk_that_is_full_for_long_files_loses_nothing(
    tmp_path: Path, ledger: Ledger
):
    times, damage = fill_again_and_again(tmp_path, "limited")
    settle(ledger, "a file that cannot grow, at a random moment", times, damage)


def test_a_disk_without_a_free_block_loses_nothing(small_disk: Path, ledger: Ledger):
    times, damage = fill_again_and_again(small_disk, "small")
    settle(ledger, "a full disk, at a random moment", times, damage)


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


def test_a_program_with_64_descriptors_loses_nothing(tmp_path: Path, ledger: Ledger):
    damage = Damage()
    times = 0
    for number in range(RUNS):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        output, refused = run("few_files", folder / "a.db", "w", number)
        for error in refused:
            assert error.startswith("refused StoreUnavailable"), error
            assert "open more files" in error, error
        times += len(refused)
        damage += asyncio.run(look(folder / "a.db", output, in_flight=0))
        shutil.rmtree(folder)
    settle(ledger, "no descriptor left of 64", times, damage)


class Reports:
    """Loops that clients report to a service, each call on a connection of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.acknowledged: set[tuple[str, int]] = set()
        self.failures = 0

    def run(self, id: str) -> None:
        """Open a loop and report five attempts; repeat a call until it is answered."""
        self.call(f"{self.url}/v1/loops/{id}", {"task": "t"})
        for number in range(1, 3):
            attempt = {"output": f"{id} {number}", "evaluation": WRONG}
            self.call(f"{self.url}/v1/loops/{id}/attempts/{number}", attempt)
            self.acknowledged.add((id, number))

    def call(self, url: str, body: Any) -> None:
        for _ in range(MAX_CALLS):
            try:
                answer = httpx.put(url, json=body, timeout=WAITING)
            except httpx.TransportError:
                self.failures += 1
                continue
            if answer.is_success:
                return
            assert answer.status_code == 503, answer.text
            self.failures += 1
        raise AssertionError(f"never answered: {url}")


def test_a_service_with_64_descriptors_loses_no_report(tmp_path: Path, ledger: Ledger):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
    try:
        service = Service(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    reports = Reports(service.url)
    ids = [f"l{number}" for number in range(CLIENTS * min(SOAK, 20))]
    address = ("127.0.0.1", int(service.url.rpartition(":")[2]))
    try:
        with ExitStack() as strangers, ThreadPoolExecutor(CLIENTS) as clients:
            done = [clients.submit(reports.run, id) for id in ids]
            for _ in range(STRANGERS):
                strangers.enter_context(socket.create_connection(address))
            for future in done:
                future.result()
    finally:
        code = service.end()
    assert code == 0

    path = tmp_path / "heedful.db"
    sql = "select l.id, a.number from attempt a join loop l on l.n = a.loop"
    stored_rows = rows(path, sql)
    assert rows(path, "pragma integrity_check") == HEALTHY
    ledger.settle(
        Trial(
            what="a service with 64 descriptors: more clients, and strangers who wait",
            engine="SQLite",
            times=len(ids) + STRANGERS,
            seed=SOAK,
            lost=len(reports.acknowledged - set(stored_rows)),
            doubled=len(stored_rows) - len(reports.acknowledged),
        )
    )


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
    pytest.param("ulimit -f 64", id="no file can grow beyond 32 or 64 kB"),
    pytest.param("ulimit -n 64", id="64 descriptors"),
    pytest.param("ulimit -n 10", id="10 descriptors"),
    pytest.param("chmod 555 $HOME/.heedful", id="a folder that is read-only"),
]


@pytest.mark.parametrize("shortage", SHORTAGES)
def test_a_hook_lets_the_agent_go_on(tmp_path: Path, shortage: str):
    home = tmp_path / "home"
    (home / ".heedful").mkdir(parents=True)
    shop = tmp_path / "shop"
    shop.mkdir()
    hook = f'"{sys.executable}" -P -m heedful.integrations.hook "$@"'
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
