"""The page of what was broken: `scripts/reliability.py` writes it from the lines of
long runs.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from scripts import reliability

ROOT = Path(__file__).parent.parent
KILLS = {
    "test": "tests/soak/test_x.py::test_kill[sqlite]",
    "soak": 100,
    "day": "2026-01-01",
    "machine": "2 cores",
    "what": "kill -9 of a program",
    "engine": "SQLite",
    "times": 1_500,
    "at_work": 1_400,
    "lost": 0,
    "doubled": 0,
    "exceeded": None,
    "leaked": None,
    "note": "9 drawn",
    "seed": 100,
    "seconds": 61.5,
}


def write(folder: Path, *lines: dict[str, Any] | str) -> str:
    """Write the page from these lines of a ledger; return the page."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    ledger = folder / "soak.jsonl"
    ledger.write_text("\n".join(texts), "utf-8")
    page = folder / "page.md"
    assert reliability.main(ledger, page) == 0
    return page.read_text("utf-8")


def test_a_row_has_the_counts_and_the_command(tmp_path):
    page = write(tmp_path, KILLS)
    command = "make soak ARGS='tests/soak/test_x.py -k test_kill'"
    counts = "1,500 | 1,400 | 0 | 0 | – | – | 9 drawn | 100 | 61.5"
    row = f"| kill -9 of a program | SQLite | {counts} | 2026-01-01 | `{command}` |"
    assert row in page
    assert "**Lost 0 (1 rows), doubled 0 (1 rows), exceeded 0 (0 rows), leaked" in page
    assert "`kill -9` was sent 1,500 times" in page
    assert "2 cores" in page


def test_a_count_that_is_not_0_is_shown(tmp_path):
    page = write(tmp_path, KILLS | {"lost": 3})
    assert "| **3** | 0 |" in page
    assert "**Lost 3 (1 rows), doubled 0" in page
    assert "**Not 0**: kill -9 of a program (SQLite)" in page


def test_a_newer_line_replaces_an_older_one(tmp_path):
    page = write(tmp_path, KILLS | {"lost": 3}, KILLS | {"times": 7})
    assert page.count("kill -9 of a program") == 1
    assert "| SQLite | 7 |" in page


def test_each_row_of_the_page_names_a_test_that_there_is():
    page = reliability.PAGE.read_text("utf-8")
    commands = [row.again for row in reliability.read_page(page).rows.values()]
    assert commands
    for command in commands:
        match = re.search(r"ARGS='(\S+) -k (\w+)'", command)
        assert match is not None, command
        assert f"def {match[2]}(" in (ROOT / match[1]).read_text("utf-8")
