"""Branch coverage of each package, without its subfolders, from the data of `make test
COVER=1`.

Where there are none, or older ones than the code, it says so; with the environment
variable COVER it fails.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import coverage
from coverage.exceptions import CoverageException

from scripts.check import NOT_MEASURED
from scripts.workspace import ROOT, SOURCES, is_outdated

DATA = ROOT / ".coverage"
MIN_PERCENT = 85.0
# `make integrations` runs its modules, with the frameworks.
FRAMEWORKS = "heedful_frameworks"


@dataclass(kw_only=True)
class Room:
    """The counts of one folder's modules, without its subfolders."""

    statements: int = 0
    statements_run: int = 0
    branches: int = 0
    branches_taken: int = 0

    @property
    def of_branches(self) -> float:
        """Percent of branches taken; 100 for a room without branches."""
        return 100 * self.branches_taken / self.branches if self.branches else 100.0

    @property
    def of_both(self) -> float:
        """Percent of statements and branches together."""
        total = self.statements + self.branches
        if not total:
            return 100.0
        return 100 * (self.statements_run + self.branches_taken) / total


def rooms(data: coverage.Coverage) -> dict[str, Room]:
    """Every package's counts, including the modules that no test imported."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "coverage.json")
        data.json_report(outfile=str(report))
        files = json.loads(report.read_text(encoding="utf-8"))["files"]
    rooms_by_name: dict[str, Room] = defaultdict(Room)
    for name, file in sorted(files.items()):
        if Path(name).parent.name == FRAMEWORKS:
            continue
        counts = file["summary"]
        room = rooms_by_name[".".join(Path(name).parent.parts[3:])]
        room.statements += counts["num_statements"]
        room.statements_run += counts["covered_lines"]
        room.branches += counts["num_branches"]
        room.branches_taken += counts["covered_branches"]
    return dict(rooms_by_name)


def main() -> int:
    """Print each package's figures; return 1 if one is below the minimum."""
    reason = ""
    if not DATA.exists():
        reason = "there are no figures"
    elif is_outdated(DATA, SOURCES):
        reason = "the figures are older than the code"
    if reason:
        print(f"{NOT_MEASURED}: {reason}; `make test COVER=1` makes them")
        return 1 if os.environ.get("COVER") else 0

    data = coverage.Coverage(config_file=str(ROOT / "pyproject.toml"))
    try:
        data.load()
        measured = rooms(data)
    except CoverageException as problem:
        print(problem)
        return 1
    low = 0
    for name, room in measured.items():
        mark = ""
        if min(room.of_branches, room.of_both) < MIN_PERCENT:
            low += 1
            mark = f"  below {MIN_PERCENT:.0f} %"
        print(
            f"{name:<20} branches {room.of_branches:5.1f} %  all {room.of_both:5.1f} "
            f"%{mark}"
        )
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
