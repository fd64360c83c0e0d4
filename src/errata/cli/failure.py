"""What went wrong, told in words or as a JSON document, and the exit code that says whose it is."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

from errata.cli.output import print_json, say
from errata.errors import ErrataError, ModelError, NotFound, StoreError, UsageError

INTERRUPTED = 130
CODES: tuple[tuple[type[BaseException], int], ...] = (
    (UsageError, 2),
    (NotFound, 3),
    (StoreError, 4),
    (OSError, 4),
    (ModelError, 5),
    (ErrataError, 1),
)


class Interrupted(Exception):
    """Ctrl-C; the message says how to go on."""


def told(error: BaseException, *, json: bool, debug: bool, **more: Any) -> int:
    """Tell of the error, on stdout as one JSON document with `more` in it; its exit code.

    A traceback is shown only with `debug` or ERRATA_DEBUG.
    """
    message = _message(error, debug)
    if debug or _debugging():
        traceback.print_exception(error, file=sys.stderr)
    if json:
        print_json({"error": {"type": type(error).__name__, "message": message}, **more})
    else:
        say(f"errata: {message}")
    if isinstance(error, Interrupted):
        return INTERRUPTED
    return next((code for kind, code in CODES if isinstance(error, kind)), 1)


def usage_told(error: Any, *, json: bool) -> int:
    """Tell of an error that the parser of the command line found."""
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":  # the message is the help
        say(message)
    elif json:
        print_json({"error": {"type": "UsageError", "message": message}})
    else:
        hint = f"; see {context.command_path} --help" if context is not None else ""
        say(f"errata: {message.rstrip('.')}{hint}")
    return 2


def _message(error: BaseException, debug: bool) -> str:
    notes = getattr(error, "__notes__", [])
    if isinstance(error, ErrataError | OSError | Interrupted):
        return "\n".join([str(error), *notes])
    hint = "" if debug else "; run it again with --debug for the traceback"
    return f"unexpected {type(error).__name__}: {error}{hint}"


def _debugging() -> bool:
    return os.environ.get("ERRATA_DEBUG", "") not in ("", "0", "false")
