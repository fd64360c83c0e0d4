"""Tables at any width, times, and errors where the output itself is broken."""

import re
import sys
from datetime import datetime

import pytest

from heedful.cli.output import WIDTH, counted, following, table, when
from heedful.cli.output import report_error as told
from heedful.cli.progress import MANY, Progress

HEADS = ("loop", "why", "attempts", "÷ oracle", "at")
ROWS = [
    ("r/first", "alignment_threshold_not_met, drift_threshold_exceeded", 12, "0.25 (+0.15)",
     "2026-11-20 08:09:27"),
    ("r/2", "", 1, "0.00", "2026-11-20 08:09:28"),
]  # fmt: skip


@pytest.fixture
def shown(capsys, monkeypatch):
    """The lines of a table on a terminal so wide; None: no terminal."""

    def lines(width: int | None) -> list[str]:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: width is not None, raising=False)
        monkeypatch.setenv("COLUMNS", str(width or 40))
        table(HEADS, ROWS, text=2)
        out = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
        return [line.rstrip() for line in out.splitlines() if line.strip()]

    return lines


@pytest.mark.parametrize("width", [None, 200, 120, 100, 90, 80, 73, 72, 60, 40, 20, 5, 1])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(shown, width):
    lines = shown(width)
    longest = max(len(word) for line in lines for word in line.split() if "─" not in word)
    assert max(map(len, lines)) <= max(width or WIDTH, longest + 2)
    text = " ".join(lines)
    for number in ("12", "0.25", "(+0.15)", "0.00", "2026-11-20", "08:09:27", "08:09:28"):
        assert re.search(rf"(^|\s){re.escape(number)}($|\s|,)", text)


def test_a_wide_table_has_a_line_a_row(shown):
    heads, rule, first, second = shown(200)
    assert re.split(r"\s{2,}", heads.strip()) == list(HEADS)
    assert set(rule) == {" ", "─"}
    assert re.split(r"\s{2,}", first.strip()) == list(map(str, ROWS[0]))
    assert second.split()[:2] == ["r/2", "1"]


def test_a_narrow_terminal_has_words_and_keeps_a_number_with_its_name(shown):
    lines = shown(40)
    assert lines[0].startswith("loop r/first,")
    assert all(line.startswith(("  ", "loop ")) for line in lines)
    assert any("÷ oracle 0.25 (+0.15)" in line for line in lines)
    assert lines[-2:] == ["loop r/2, attempts 1, ÷ oracle 0.00,", "  at 2026-11-20 08:09:28"]


def test_times():
    noon = datetime(2026, 11, 20, 12).timestamp()  # noqa: DTZ001 - local time is meant
    assert when(noon) == "2026-11-20 12:00:00"
    assert when(1e17) == "1e+17 s after 1970"
    assert when(float("inf")) == "inf s after 1970"


def test_words():
    assert [counted(n, "loop") for n in (0, 1, 2)] == ["0 loops", "1 loop", "2 loops"]
    assert following("why", "a b") == "Next: heedful why 'a b'"
    assert following("log", db="heedful.db") == "Next: heedful log"
    assert following("log", db="x y.db") == "Next: heedful log --db 'x y.db'"


class Full:
    """An output that takes nothing."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")

    def flush(self) -> None:
        """Nothing is there to flush."""


def test_an_error_is_told_where_no_document_can_be(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Full())
    assert told(OSError("the disk is full"), json=True, debug=False) == 4
    assert capsys.readouterr().err == "heedful: the disk is full\n"


@pytest.mark.parametrize(
    ("total", "lines"), [(0, 0), (MANY - 1, 0), (MANY, 1), (3 * MANY, 3), (40 * MANY, 10)]
)
def test_many_loops_are_counted_in_a_few_lines(capsys, total, lines):
    with Progress() as progress:
        for done in range(0, total + 1, 100):
            progress.counted("reading", done, total)
        progress.counted("reading", total, total)
    err = capsys.readouterr().err.splitlines()
    assert len(err) == lines
    assert all(line.endswith(f" of {total} loops") for line in err)
