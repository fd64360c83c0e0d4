"""Run the commands of `make check`, two at a time.

`scripts/check.py name …` runs only those named.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What the output of a check begins with that had nothing to look at.
NOT_MEASURED = "not measured"
PYTHON = sys.executable
BIN = Path(PYTHON).parent
# Those of these that hold Python are checked for types; style is checked everywhere.
CODE = ("packages", "scripts", "tests", "lab", "examples", "conftest.py")


def script(name: str) -> tuple[str, ...]:
    """The command that runs another script of this folder."""
    return (PYTHON, f"scripts/{name}.py")


# The slow ones first, so that both workers end at about the same time.
CHECKS: dict[str, tuple[str, ...]] = {
    "docs": script("run_docs"),
    "types": (PYTHON, "-m", "scripts.check_types", *CODE),
    "public-types": (PYTHON, "-m", "scripts.public_types"),
    "imports": (str(BIN / "lint-imports"), "--no-logo"),
    "coverage": (PYTHON, "-m", "scripts.room_coverage"),
    "style": (PYTHON, "-m", "ruff", "check", "."),
    "format": (PYTHON, "-m", "ruff", "format", "--check", "."),
    "budgets": (PYTHON, "-m", "scripts.budgets"),
    "weight": (PYTHON, "-m", "scripts.weight"),
    "dependencies": script("dependencies"),
    "addresses": script("addresses"),
    "lock": (PYTHON, "-m", "scripts.lock", "--check"),
    "workflows": script("workflows"),
    "openapi": (*script("openapi"), "--check"),
    "site": (PYTHON, "-m", "scripts.docs_site"),
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one check."""

    name: str
    passed: bool
    seconds: float
    output: str


def run(name: str) -> Outcome:
    """Run one check and keep its output."""
    began = time.perf_counter()
    done = subprocess.run(
        CHECKS[name],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return Outcome(
        name=name,
        passed=done.returncode == 0,
        seconds=time.perf_counter() - began,
        output=done.stdout,
    )


def main(names: Sequence[str]) -> int:
    """Run the named checks, or all; print a line for each, and the output of those that
    failed.
    """
    unknown = sorted(set(names) - set(CHECKS))
    if unknown:
        print(
            f"no check is called {', '.join(unknown)}; there are: {', '.join(CHECKS)}"
        )
        return 2
    failed: list[Outcome] = []
    with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        for outcome in pool.map(run, names or CHECKS):
            mark = "✓" if outcome.passed else "✗"
            note = ""
            if outcome.output.startswith(NOT_MEASURED):
                note = f"  {outcome.output.strip()}"
                mark = "–" if outcome.passed else mark
            print(
                f"{mark} {outcome.name:<13}{outcome.seconds:6.1f} s{note}", flush=True
            )
            if not outcome.passed:
                failed.append(outcome)
    for outcome in failed:
        print(f"\n── {outcome.name} ──\n{outcome.output.rstrip()}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
