"""Killed at any moment and resumed, a pipeline's run and its reports are as if nothing had been."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from heedful.lessons.lesson import Scope
from heedful.store.runs import report_of
from heedful.store.sqlite import shared_store
from tests.conftest import SOAK
from tests.pipeline.support import timeless
from tests.soak.killing import killed_until_done
from tests.soak.piping import LAST, SECONDS
from tests.store.support import ended, python

KILLS = min(30, 3 * SOAK)
PROGRAM = "from tests.soak.piping import main; main()"
# What a page says of time: dates, clocks, and how long it took.
TIMES = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?|[\d.,]+ ?(ms|s|min)\b")


def finished(folder: Path) -> Counter[tuple[str, int]]:
    """How often each attempt of each stage ended; the last line may be torn."""
    lines = (folder / "ended.log").read_text().rpartition("\n")[0].splitlines()
    return Counter((name, at) for name, at, _ in map(json.loads, lines))


def written(folder: Path) -> dict[str, Any]:
    """The reports in the folder, without times."""
    found: dict[str, Any] = {}
    for path in sorted((folder / "reports").glob("[!.]*")):  # a file half written is hidden
        text = path.read_text()
        if path.suffix == ".json":
            found[path.name] = timeless(json.loads(text))
        elif path.suffix == ".md":
            found[path.name] = TIMES.sub("…", text)
        else:  # its drawing is to scale
            found[path.name] = re.findall(r"Critical issues|attempt \d", text)
    return found


@pytest.mark.soak
def test_kill_9_repeats_and_loses_nothing(tmp_path: Path) -> None:
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    ended(python(PROGRAM, quiet, 0))
    once = Counter({(name, at): 1 for name, last in LAST.items() for at in range(1, last + 1)})
    assert finished(quiet) == once
    chance, kills, tries = random.Random(7), 0, 0
    while kills < KILLS:
        folder = tmp_path / f"run {tries}"
        folder.mkdir()
        tries += 1
        here = killed_until_done(PROGRAM, folder, chance=chance, seconds=0.4 + SECONDS * 40)
        kills += here
        counts = finished(folder)
        assert counts.keys() == once.keys()
        assert counts.total() <= once.total() + here  # at most what was in flight
        assert written(folder) == written(quiet)
        assert (folder / "state.json").read_text() == (quiet / "state.json").read_text()
        reports = [
            asyncio.run(report_of(shared_store(str(one / "a.db")), Scope(), "r"))
            for one in (quiet, folder)
        ]
        assert timeless(reports[0]) == timeless(reports[1])
