"""Printing: results and JSON on stdout, everything else on stderr.

Exit codes: 0 success, 1 something did not pass, 2 usage, 3 not found, 4 storage, 5 model or
provider, 130 interrupted.
"""

from __future__ import annotations

import atexit
import json as jsonlib
import os
import shlex
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any, NoReturn

import typer

from heedful.errors import (
    HeedfulError,
    InvalidInput,
    ModelError,
    NotFound,
    StoreError,
    UsageError,
)
from heedful.loop.record import clean

Columns = Mapping[str, str | Callable[[Any], Any]]

MOST = 1_000_000_000  # upper bound of counts and ids; a database takes no integer above 2**63
WIDTH = 120  # columns of a table that is not printed to a terminal
NARROW = 72  # columns below which a table becomes lines
LEAST = 16  # columns that text needs at least; numbers are never cut
GRACE_SECONDS = 1.0  # how long cancelled work may clean up; a user's check may block for ever

Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document.")]
Db = Annotated[str | None, typer.Option("--db", "--store", help="The database. [heedful.db]")]
ModelName = Annotated[str | None, typer.Option("--model", help="The model. [embedded]")]
Newest = Annotated[
    int, typer.Option("--limit", min=1, max=MOST, help="How many, the newest first.")
]
Most = Annotated[int, typer.Option("--limit", min=1, max=MOST, help="How many at most.")]
By = Annotated[str, typer.Option(help="Who is responsible.")]
Why = Annotated[str, typer.Option(help="The reason.")]


class Interrupted(Exception):
    """Ctrl-C was pressed; the message says how to continue."""


INTERRUPTED = 130
# Arguments of Memory's methods that are options of the same name here.
OPTIONS = frozenset(("by", "why", "trust"))
CODES: tuple[tuple[type[BaseException], int], ...] = (
    (Interrupted, INTERRUPTED),
    (UsageError, 2),
    (NotFound, 3),
    (StoreError, 4),
    (OSError, 4),
    (ModelError, 5),
)


# Results


def show(text: str = "") -> None:
    """Print a line of a result to stdout."""
    print(text, flush=True)


def say(text: str) -> None:
    """Print a line for the person at the terminal to stderr."""
    print(text, file=sys.stderr, flush=True)


def print_json(document: Any) -> None:
    """Print one JSON document in ASCII, which every terminal can show."""
    show(jsonlib.dumps(document, default=str, indent=2))


def document(record: Any) -> Any:
    """Return a record as JSON data: a dataclass by its fields, everything else as it is."""
    return asdict(record) if is_dataclass(record) and not isinstance(record, type) else record


def answer(record: Any, *lines: str, json: bool) -> None:
    """Print one result: the record as JSON, or the lines; empty lines are left out."""
    if json:
        print_json(document(record))
    else:
        show("\n".join(line for line in lines if line))


def emit(
    records: Sequence[Any],
    columns: Columns,
    *,
    json: bool,
    key: str,
    text: int,
    empty: str,
    document: Callable[[Any], Any] = document,
) -> bool:
    """Print records as the JSON document `{key: [...]}` or as a table with these columns.

    A column is the name of a field, or a function of the record. The first `text` columns are
    words, the others numbers. Without records `empty` is printed. Returns True if a table was
    printed, so that the caller can add the next command.
    """
    if json:
        print_json({key: list(map(document, records))})
    elif not records:
        show(empty)
    else:
        print_table(records, columns, text)
        return True
    return False


def print_table(records: Iterable[Any], columns: Columns, text: int) -> None:
    """Print records as a table with these columns."""

    def cell(record: Any, column: str | Callable[[Any], Any]) -> Any:
        if not isinstance(column, str):
            return column(record)
        return record[column] if isinstance(record, Mapping) else getattr(record, column)

    table(list(columns), [[cell(one, it) for it in columns.values()] for one in records], text)


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]], text: int = 1) -> None:
    """Print a table; the first `text` columns are words, the others numbers.

    On a narrow terminal columns move closer and words are folded, numbers never. If that is not
    enough, each row becomes a line of words.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    cleaned = [[clean(str(cell), 200) for cell in row] for row in rows]
    columns = list(zip(heads, *cleaned, strict=True))
    whole = [max(map(cell_len, cells)) for cells in columns]
    least = [max(map(cell_len, " ".join(cells).split()), default=0) for cells in columns[text:]]
    room = console.width - 2 * len(heads) - sum(min(width, LEAST) for width in whole[:text])
    if console.width < NARROW or room < sum(least):
        for cells in cleaned:
            _show_row(heads, cells, console.width)
        return
    tight = console.width < sum(whole) + 3 * len(heads)
    numbers = whole[text:] if room >= sum(whole[text:]) else least
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, int(not tight)))
    for head in heads[:text]:
        drawn.add_column(head, overflow="fold")
    for head, width in zip(heads[text:], numbers, strict=True):
        drawn.add_column(head, justify="right", width=width, overflow="fold")
    for cells in cleaned:
        drawn.add_row(*map(Text, cells))
    console.print(drawn)


def _show_row(heads: Sequence[str], cells: Sequence[str], width: int) -> None:
    pairs = [f"{head} {cell}".strip() for head, cell in zip(heads, cells, strict=True) if cell]
    # A no-break space keeps a number with its name.
    words = [pair.replace(" ", "\xa0") if len(pair) <= 2 * LEAST else pair for pair in pairs]
    kept: Any = {"break_on_hyphens": False, "break_long_words": False}
    lines = fill(", ".join(words), max(LEAST, width - 1), subsequent_indent="  ", **kept)
    show(lines.replace("\xa0", " "))


def when(seconds: float) -> str:
    """Format seconds since 1970 as local time; a year beyond the calendar stays a number."""
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s after 1970"


def counted(number: int, noun: str) -> str:
    """Format a count with its noun: 1 loop, 2 loops."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def following(*words: str, db: str | None = None) -> str:
    """Return the line that names the next command, with the database unless it is the default."""
    from heedful.store import shown  # slow to import, and `heedful --help` needs no store

    more = ["--db", shown(db)] if db not in (None, "", "heedful.db") else []
    return f"Next: {shlex.join(['heedful', *words, *more])}"


# Errors


def report_error(error: BaseException, *, json: bool, debug: bool, **more: Any) -> int:
    """Print the error and return its exit code.

    With `json` it is one JSON document on stdout that also holds `more`. A traceback is printed
    only with `debug` or HEEDFUL_DEBUG.
    """
    message = _message(error, debug)
    if debug or os.environ.get("HEEDFUL_DEBUG", "") not in ("", "0", "false"):
        traceback.print_exception(error, file=sys.stderr)
    code = next((code for kind, code in CODES if isinstance(error, kind)), 1)
    if json:
        with suppress(OSError):  # stdout itself may be what is broken
            print_json({"error": {"type": type(error).__name__, "message": message}, **more})
            return code
    say(f"heedful: {message}")
    return code


def report_usage(error: Any, *, json: bool) -> int:
    """Print an error that the parser of the command line found; return 2."""
    message = error.format_message()
    if json:
        print_json({"error": {"type": "UsageError", "message": message}})
    elif type(error).__name__ == "NoArgsIsHelpError":  # the message is the help
        say(message)
    else:
        hint = f"; see {error.ctx.command_path} --help" if error.ctx is not None else ""
        say(f"heedful: {message.rstrip('.')}{hint}")
    return 2


def _message(error: BaseException, debug: bool) -> str:
    if isinstance(error, InvalidInput) and error.field in OPTIONS:
        return f"--{error}"
    if isinstance(error, HeedfulError | OSError | Interrupted):
        return "\n".join([str(error), *getattr(error, "__notes__", ())])
    hint = "" if debug else "; run it again with --debug for the traceback"
    return f"unexpected {type(error).__name__}: {error}{hint}"


def leave(code: int) -> NoReturn:
    """Exit the process, also while a cancelled call still runs in a thread.

    Python's own exit would tear down C++ libraries under such a thread, which aborts the process.
    """
    try:
        sys.stdout.flush()
    except OSError:  # Python would write again at exit, and use another exit code
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
    others = [t for t in threading.enumerate() if t is not threading.current_thread()]
    deadline = time.monotonic() + GRACE_SECONDS
    for thread in others:
        if not thread.daemon or thread.name == "heedful-leave":
            thread.join(max(0.0, deadline - time.monotonic()))
    if not any(thread.is_alive() for thread in others):
        sys.exit(code)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


# Pictures


class NoPictures(UsageError):
    """matplotlib is not installed."""


def check_picture_path(path: Path) -> None:
    """Raise before the work begins if no picture can be written: NoPictures, InvalidInput."""
    if path.suffix != ".png" or not path.parent.is_dir() or path.is_dir():
        allowed = "a file that ends in .png, in a folder that exists"
        raise InvalidInput("--plot", str(path), allowed)
    check_matplotlib()


def check_matplotlib() -> None:
    """Raise NoPictures if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        how = "pip install 'heedful[report]'; the table does without it"
        raise NoPictures(f"the picture needs matplotlib: {how}")
