"""What became of a text that was to be remembered, in the log `heedful`: never its content."""

from __future__ import annotations

import logging

from heedful.protocols import Remembered

_log = logging.getLogger("heedful")


def noted(answer: Remembered | None) -> None:
    """One line: stored, duplicate, or skipped where nothing was learnt or there was no room."""
    if answer is None or not answer.id:
        _log.info("skipped")
    elif answer.created:
        _log.info("stored: lesson %d", answer.id)
    else:
        _log.info("duplicate: lesson %d, seen %d times", answer.id, answer.seen)
