"""Tables at any width, times, counts, and errors where the output itself is broken."""

import re
import sys
import time

import pytest

from heedful.cli.exits import report_error
from heedful.cli.output import (
    CURRENT_COMMAND,
    MIN_PROGRESS_ITEMS,
    PIPE_WIDTH_COLUMNS,
    CommandLine,
    Progress,
    TextTable,
    counted,
    following,
    when,
)

HEADS = ("loop", "why", "attempts", "÷ oracle", "at")
ROWS = [
    (
        "r/first",
        "alignment_threshold_not_met, drift_threshold_exceeded",
        12,
        "0.25 (+0.15)",
        "2026-11-20 08:09:27",
    ),
    ("r/2", "", 1, "0.00", "2026-11-20 08:09:28"),
]


@pytest.mark.parametrize(
    "width", [None, 200, 120, 90, 73, 60, 40], ids=lambda width: f"{width} columns"
)
def test_no_number_is_cut_at_any_width(capsys, monkeypatch, width):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: width is not None, raising=False)
    monkeypatch.setenv("COLUMNS", str(width or 40))
    print(TextTable(HEADS, ROWS, text_columns=2))
    out = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    text = " ".join(out.split())
    for number in (
        "12",
        "0.25",
        "(+0.15)",
        "0.00",
        "2026-11-20",
        "08:09:27",
        "08:09:28",
    ):
        assert re.search(rf"(^|\s){re.escape(number)}($|\s|,)", text)
    if width in (None, 200, 120, 90):
        assert max(map(len, out.splitlines())) <= (width or PIPE_WIDTH_COLUMNS)


def test_words_and_times():
    noon = time.mktime((2026, 11, 20, 12, 0, 0, 0, 0, -1))  # local time
    assert when(noon) == "2026-11-20 12:00:00"
    assert when(float("inf")) == "inf s after 1970"
    assert [counted(n, "loop") for n in (0, 1, 2)] == ["0 loops", "1 loop", "2 loops"]
    assert following("loops", db="heedful.db") == "Next: heedful loops"
    assert (
        following("why", "a b", db="x y.db") == "Next: heedful why 'a b' --db 'x y.db'"
    )


class Full:
    """An output that takes nothing."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")

    def flush(self) -> None:
        """Nothing is there to flush."""


def test_an_error_is_shown_where_no_document_can_be(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Full())
    token = CURRENT_COMMAND.set(CommandLine(json=True))
    assert report_error(OSError("the disk is full")) == 4
    CURRENT_COMMAND.reset(token)
    assert capsys.readouterr().err == "heedful: the disk is full\n"


@pytest.mark.parametrize(
    ("total", "lines"),
    [
        (MIN_PROGRESS_ITEMS - 1, 0),
        (MIN_PROGRESS_ITEMS, 1),
        (40 * MIN_PROGRESS_ITEMS, 10),
    ],
    ids=["too few", "just enough", "many"],
)
def test_progress_is_shown_in_a_few_lines(capsys, total, lines):
    progress = Progress()
    for done in range(0, total + 1, 100):
        progress.counted("reading", done, total)
    progress.counted("reading", total, total)
    err = capsys.readouterr().err.splitlines()
    assert len(err) == lines
    assert all(line.endswith(f" of {total} loops") for line in err)
