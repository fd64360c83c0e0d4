"""What the command line prints: results and JSON on stdout, everything else on stderr.

Exit codes: 0 all is well, 1 something did not pass, 2 usage, 3 not found, 4 storage, 5 model or
provider, 130 interrupted.
"""

from __future__ import annotations

import json as jsonlib
import os
import shlex
import sys
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any

import typer

from heedful.errors import HeedfulError, InvalidInput, ModelError, NotFound, StoreError, UsageError
from heedful.loop.feedback import clean
from heedful.store import shown

Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document.")]
Db = Annotated[str | None, typer.Option("--db", "--store", help="The database. [heedful.db]")]
ModelName = Annotated[str | None, typer.Option("--model", help="The model. [embedded]")]
MOST = 1_000_000_000  # of what is counted: a database takes no larger number than 2**63
WIDTH = 120  # of a table that goes to no terminal
NARROW = 72  # columns; a table needs as many
LEAST = 16  # columns for words; numbers need all of theirs


class Interrupted(Exception):
    """Ctrl-C; the message says how to go on."""


class NoPictures(UsageError):
    """matplotlib is not installed."""


INTERRUPTED = 130
# Arguments of the memory that are options of the same name here.
OPTIONS = frozenset(("by", "why", "trust"))
CODES: tuple[tuple[type[BaseException], int], ...] = (
    (Interrupted, INTERRUPTED),
    (UsageError, 2),
    (NotFound, 3),
    (StoreError, 4),
    (OSError, 4),
    (ModelError, 5),
)


def can_draw(path: Path) -> None:
    """Raises before the work begins. NoPictures, InvalidInput."""
    if path.suffix != ".png" or not path.parent.is_dir() or path.is_dir():
        allowed = "a file that ends in .png, in a folder that exists"
        raise InvalidInput("--plot", str(path), allowed)
    if find_spec("matplotlib") is None:
        how = "pip install 'heedful[report]'; the table does without it"
        raise NoPictures(f"the picture needs matplotlib: {how}")


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

    Where a terminal is narrow, columns stand closer and words are folded, numbers never; where it
    is too narrow for that, every row is words.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    told = [[clean(str(cell), 200) for cell in row] for row in rows]
    columns = list(zip(heads, *told, strict=True))
    whole = [_longest(cells) for cells in columns]
    least = [_longest(" ".join(cells).split()) for cells in columns[text:]]
    room = console.width - 2 * len(heads) - sum(min(width, LEAST) for width in whole[:text])
    if console.width < NARROW or room < sum(least):
        for cells in told:
            _say_row(heads, cells, console.width)
        return
    tight = console.width < sum(whole) + 3 * len(heads)
    numbers = whole[text:] if room >= sum(whole[text:]) else least
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, int(not tight)))
    for head in heads[:text]:
        drawn.add_column(head, overflow="fold")
    for head, width in zip(heads[text:], numbers, strict=True):
        drawn.add_column(head, justify="right", width=width, overflow="fold")
    for cells in told:
        drawn.add_row(*map(Text, cells))
    console.print(drawn)


def _longest(words: Iterable[str]) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, words), default=0)


def _say_row(heads: Sequence[str], cells: Sequence[str], width: int) -> None:
    pairs = [f"{head} {cell}".strip() for head, cell in zip(heads, cells, strict=True) if cell]
    # A no-break space keeps a number with its name.
    words = [pair.replace(" ", "\xa0") if len(pair) <= 2 * LEAST else pair for pair in pairs]
    kept: Any = {"break_on_hyphens": False, "break_long_words": False}
    lines = fill(", ".join(words), max(LEAST, width - 1), subsequent_indent="  ", **kept)
    show(lines.replace("\xa0", " "))


def when(seconds: float) -> str:
    """Seconds since 1970 as local time; a year that no calendar has is told as it is."""
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s after 1970"


def counted(number: int, noun: str) -> str:
    """So many of something: 1 loop, 2 loops."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def following(*words: str, db: str = "") -> str:
    """The command to type next, with the database where it is not the usual one."""
    more = ["--db", shown(db)] if db not in ("", "heedful.db") else []
    return f"Next: {shlex.join(['heedful', *words, *more])}"


def told(error: BaseException, *, json: bool, debug: bool, **more: Any) -> int:
    """Tell of the error, on stdout as one JSON document with `more` in it; its exit code.

    A traceback is shown only with `debug` or HEEDFUL_DEBUG.
    """
    message = _message(error, debug)
    if debug or os.environ.get("HEEDFUL_DEBUG", "") not in ("", "0", "false"):
        traceback.print_exception(error, file=sys.stderr)
    code = next((code for kind, code in CODES if isinstance(error, kind)), 1)
    if json:
        with suppress(OSError):  # the very output may be what is broken
            print_json({"error": {"type": type(error).__name__, "message": message}, **more})
            return code
    say(f"heedful: {message}")
    return code


def drop_unwritten() -> None:
    """Leave what cannot be written: Python would try again, and exit with a code of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def usage_told(error: Any, *, json: bool) -> int:
    """Tell of an error that the parser of the command line found."""
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
