"""A run on several processes says how far it is, and a failure at once."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests import progress

progress.SECONDS_BETWEEN_LINES = 0.0

def pytest_configure(config):
    if config.getoption("numprocesses", None):
        config.pluginmanager.register(progress.Progress(config))
"""
TESTS = """
def test_that_passes(): pass

def test_that_fails(): assert 1 == 2
"""


def test_a_run_on_workers_prints_its_progress_and_each_failure(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_two.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--numprocesses", "1"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert any(line.startswith("2 tests, collected in ") for line in lines)
    failure = lines.index("FAILED test_two.py::test_that_fails")
    assert lines[failure + 1].endswith("test_two.py:4: assert 1 == 2")
    progress = [line for line in lines[failure:] if "2 of 2 tests, 1 failed; " in line]
    assert len(progress) == 1
