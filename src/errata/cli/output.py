"""What the command line prints: results and JSON on stdout, everything else on stderr.

Exit codes: 0 all is well, 1 something did not pass, 2 usage, 3 not found, 4 storage, 5 model or
provider, 130 interrupted.
"""

from __future__ import annotations

import json as jsonlib
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from errata.errors import ErrataError, ModelError, NotFound, StoreError, UsageError
from errata.loop.feedback import clean

Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document.")]
Db = Annotated[str | None, typer.Option("--db", help="The database file. [errata.db]")]
ModelName = Annotated[str | None, typer.Option("--model", help="The model. [embedded]")]
WIDTH = 120  # of a table that goes to no terminal
NARROW = 72  # columns; a table needs as many


class Interrupted(Exception):
    """Ctrl-C; the message says how to go on."""


INTERRUPTED = 130
CODES: tuple[tuple[type[BaseException], int], ...] = (
    (Interrupted, INTERRUPTED),
    (UsageError, 2),
    (NotFound, 3),
    (StoreError, 4),
    (OSError, 4),
    (ModelError, 5),
)


def print_json(document: Any) -> None:
    """Print one JSON document, in ASCII, so that any terminal and any text can take it."""
    show(jsonlib.dumps(document, default=str, indent=2))


def show(text: str = "") -> None:
    """Print a line of a result."""
    print(text, flush=True)


def say(text: str) -> None:
    """Tell the person at the terminal, beside the results."""
    print(text, file=sys.stderr, flush=True)


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]], text: int = 1) -> None:
    """Print a table; the first `text` columns are words, the others numbers.

    On a terminal that is too narrow for columns every row is a line of words.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, head in enumerate(heads):
        drawn.add_column(head, justify="left" if place < text else "right", overflow="fold")
    for row in rows:
        cells = [clean(str(cell), 200) for cell in row]
        drawn.add_row(*map(Text, cells))
        if console.width < NARROW:
            pairs = zip(heads, cells, strict=True)
            show(", ".join(f"{head} {cell}".strip() for head, cell in pairs if cell))
    if console.width >= NARROW:
        console.print(drawn)


def when(seconds: float) -> str:
    """Seconds since 1970 as local time."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def told(error: BaseException, *, json: bool, debug: bool, **more: Any) -> int:
    """Tell of the error, on stdout as one JSON document with `more` in it; its exit code.

    A traceback is shown only with `debug` or ERRATA_DEBUG.
    """
    message = _message(error, debug)
    if debug or os.environ.get("ERRATA_DEBUG", "") not in ("", "0", "false"):
        traceback.print_exception(error, file=sys.stderr)
    if json:
        print_json({"error": {"type": type(error).__name__, "message": message}, **more})
    else:
        say(f"errata: {message}")
    return next((code for kind, code in CODES if isinstance(error, kind)), 1)


def usage_told(error: Any, *, json: bool) -> int:
    """Tell of an error that the parser of the command line found."""
    message = error.format_message()
    if json:
        print_json({"error": {"type": "UsageError", "message": message}})
    elif type(error).__name__ == "NoArgsIsHelpError":  # the message is the help
        say(message)
    else:
        hint = f"; see {error.ctx.command_path} --help" if error.ctx is not None else ""
        say(f"errata: {message.rstrip('.')}{hint}")
    return 2


def _message(error: BaseException, debug: bool) -> str:
    if isinstance(error, ErrataError | OSError | Interrupted):
        return "\n".join([str(error), *getattr(error, "__notes__", ())])
    hint = "" if debug else "; run it again with --debug for the traceback"
    return f"unexpected {type(error).__name__}: {error}{hint}"
