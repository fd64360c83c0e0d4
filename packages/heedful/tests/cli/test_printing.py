"""Tables at any width, times, counts, and errors where the output itself is broken."""

import sys

from heedful.cli.exits import report_error
from heedful.cli.printing import (
    CURRENT_COMMAND,
    MIN_PROGRESS_ITEMS,
    CommandLine,
    show_progress,
)
from tests.tables import cases


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


@cases(
    ("total", "lines"),
    {
        "too few": (MIN_PROGRESS_ITEMS - 1, 0),
        "just enough": (MIN_PROGRESS_ITEMS, 1),
        "many": (40 * MIN_PROGRESS_ITEMS, 10),
    },
)
def test_progress_is_shown_in_a_few_lines(capsys, total, lines):
    token = CURRENT_COMMAND.set(CommandLine())
    for done in range(0, total + 1, 100):
        show_progress("reading", done, total)
    show_progress("reading", total, total)
    CURRENT_COMMAND.reset(token)
    err = capsys.readouterr().err.splitlines()
    assert len(err) == lines
    assert all(line.endswith(f" of {total} loops") for line in err)
