"""The terminal: results and JSON go to stdout, messages, progress and errors to stderr.

Exit codes: 0 success, 1 not passed, 2 usage, 3 not found, 4 storage, 5 model, 130
interrupted.
"""

from __future__ import annotations

import atexit
import json
import os
import shlex
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import datetime
from typing import Any, NoReturn, TypeVar

from heedful import errors
from heedful.sanitize import clean

T = TypeVar("T")
Columns = Mapping[str, str | Callable[[Any], Any]]

MAX_TABLE_ROWS = 50  # rows of a table that may be very long
PIPE_WIDTH_COLUMNS = 120  # columns of a table that is not printed to a terminal
# Columns that contain times.
TIME_COLUMNS = {
    "at",
    "began",
    "ends",
    "last of use",
    "last seen",
    "made",
    "since",
    "updated",
}
MIN_PROGRESS_ITEMS = 1_000  # loops, lessons or files; fewer take only a few seconds
GRACE_SECONDS = (
    1.0  # how long cancelled work may clean up; a user's check may block for ever
)


class Interrupted(Exception):
    """Ctrl-C was pressed. The message says how to continue."""


INTERRUPTED_EXIT_CODE = 130
EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (Interrupted, INTERRUPTED_EXIT_CODE),
    (errors.UsageError, 2),
    (errors.NotFound, 3),
    (errors.StoreError, 4),
    (OSError, 4),
    (errors.ModelError, 5),
)


@dataclass(kw_only=True)
class CommandLine:
    """The running command line; `options` are the settings that are given as
    options.
    """

    arguments: Sequence[str] = ()
    json: bool = False
    debug: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    progress: Progress | None = None


CURRENT_COMMAND: ContextVar[CommandLine] = ContextVar("call")


def call() -> CommandLine:
    """Return the running command line, or one without options if no command is
    running.
    """
    return CURRENT_COMMAND.get(CommandLine())


def columns(names: str, **special: str | Callable[[Any], Any]) -> Columns:
    """Return the columns that `names` lists, separated by blanks; a table shows `_` as
    a blank.

    A column shows the field with its name, unless `special` gives another field or a
    function.
    """
    return {name.replace("_", " "): special.get(name, name) for name in names.split()}


def progress() -> Progress:
    """Return the progress of the running command, which ends when a result is
    printed.
    """
    running = call()
    running.progress = running.progress or Progress()
    return running.progress


def fetched(name: str, done: int, total: int, what: str) -> None:
    """Show how many bytes of the weights `name` are processed."""
    progress().counted(f"{name}: {what}", done, total=total, noun="MB", unit=1_000_000)


def show(text: object = "") -> None:
    """Print a result to stdout."""
    if call().progress:
        progress().__exit__()
    print(text, flush=True)


def say(text: str) -> None:
    """Print a message to stderr."""
    print(text, file=sys.stderr, flush=True)


def print_json(document: Any) -> None:
    """Print `document` as JSON in ASCII. Dataclasses become objects, other types become
    text.
    """

    def plain(value: Any) -> Any:
        return (
            asdict(value)
            if is_dataclass(value) and not isinstance(value, type)
            else str(value)
        )

    show(json.dumps(document, default=plain, indent=2))


def answer(record: Any, *lines: object) -> int:
    """With --json print `record` as JSON, else print the `lines` that are not empty.
    Return 0.
    """
    if call().json:
        print_json(record)
    else:
        show("\n".join(filter(None, map(str, lines))).lstrip("\n"))
    return 0


def page(template: str, **values: object) -> str:
    """Return the text of a template, whose values are made harmless for a terminal."""
    from heedful.pages import render  # slow to import

    return render(f"{template}.txt.j2", counted=counted, when=when, **values).rstrip()


def emit(
    records: Sequence[Any],
    columns: Columns,
    *,
    key: str,
    text: int,
    empty: str = "",
    then: str = "",
    document: Callable[[Any], Any] = lambda record: record,
) -> int:
    """Print `records`: as the JSON document `{key: [...]}` with --json, else as a
    Table. Return 0.

    `columns` and `text` are those of the Table. `then` is printed below it, `empty`
    instead of an empty table. `document` converts a record to JSON data.
    """
    lines = (TextTable(columns, records, text), then) if records else (empty,)
    return answer({key: list(map(document, records))}, *lines)


@dataclass(frozen=True)
class TextTable:
    """A table as text. The first `text` columns contain words, the other columns
    numbers.

    If `columns` is a mapping, each row is a record, and each column shows a field of
    the record or the result of a function. A narrow terminal folds words, never
    numbers.
    """

    columns: Columns | Sequence[str]
    rows: Sequence[Any]
    text: int = 1

    def __str__(self) -> str:
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        rows = self.rows
        if isinstance(self.columns, Mapping):
            rows = [
                [_cell(head, one, row) for head, one in self.columns.items()]
                for row in rows
            ]
        console = Console(
            width=None if sys.stdout.isatty() else PIPE_WIDTH_COLUMNS, highlight=False
        )
        lines = [[clean(str(cell), 200) for cell in row] for row in rows]
        cells = list(zip(self.columns, *lines, strict=True))
        longest = [max(map(len, column)) for column in cells]
        tight = console.width < sum(longest) + 3 * len(cells)
        drawn = RichTable(
            box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0 if tight else 1)
        )
        for place, (head, *_) in enumerate(cells):
            how: Any = {"justify": "right", "min_width": longest[place]}
            drawn.add_column(
                head, **(how if place >= self.text else {"overflow": "fold"})
            )
        for line in lines:
            drawn.add_row(*map(Text, line))
        with console.capture() as captured:
            console.print(drawn, crop=False)
        return captured.get().removesuffix("\n")


def shorten(columns: Columns, rows: Sequence[Any], text: int) -> Iterator[object]:
    """Yield a table of the first `MAX_TABLE_ROWS` rows, and how many others there are."""
    if rows:
        yield TextTable(columns, rows[:MAX_TABLE_ROWS], text)
    if (more := len(rows) - MAX_TABLE_ROWS) > 0:
        yield f"and {counted(more, 'other')}; --json shows them"


def _cell(head: str, column: str | Callable[[Any], Any], record: Any) -> Any:
    if not isinstance(column, str):
        value = column(record)
    else:
        value = (
            record[column] if isinstance(record, Mapping) else getattr(record, column)
        )
    if isinstance(value, float):
        return when(value) if head in TIME_COLUMNS else f"{value:.1f}"
    if isinstance(value, Mapping):
        return json.dumps(value) if value else ""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value


def when(seconds: float) -> str:
    """Format seconds since 1970 as local time. A time beyond the calendar stays a
    number.
    """
    try:
        return (
            datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        )
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s after 1970"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 loop, 2 loops."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def following(*words: object, db: str | None = None) -> str:
    """Return the line `Next: heedful …` with a command, and --db unless it is the
    default.
    """
    from heedful.store import (
        shown,
    )  # slow to import, and `heedful --help` needs no store

    db = db or call().options.get("db")
    more = ["--db", shown(db)] if db not in (None, "", "heedful.db") else []
    return f"Next: {shlex.join(['heedful', *map(str, words), *more])}"


def repeated() -> str:
    """Return the line `Next: heedful …` with the running command, but without
    --dry-run.
    """
    from heedful.store import shown

    kept = [
        shown(word) for word in call().arguments if word not in ("--dry-run", "--json")
    ]
    return f"Next: {shlex.join(['heedful', *kept])}"


class Progress:
    """A context manager that shows progress on stderr: lines, and bars on a
    terminal.
    """

    def __init__(self) -> None:
        from rich import progress
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self.live: bool = self._console.is_terminal
        words = progress.TextColumn("{task.description:<14}", markup=False)
        count = progress.TextColumn("{task.fields[count]}", markup=False)
        columns = (
            words,
            progress.BarColumn(bar_width=24),
            progress.TimeElapsedColumn(),
            count,
        )
        self._bars = progress.Progress(*columns, console=self._console, transient=True)
        self._lines: dict[str, Any] = {}  # the bar of each name
        self._last: dict[str, int] = {}  # what was last shown of each name

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._lines:
            self._bars.stop()

    def say(self, text: Any) -> None:
        """Print a line of text (or rich's Text) above the bars, cut at the terminal's
        width.
        """
        cut: Any = {"no_wrap": True, "overflow": "ellipsis", "crop": True}
        how = cut if self.live else {"soft_wrap": True}
        self._console.print(text, markup=False, **how)

    def bar(self, name: str, done: int, total: int, count: str) -> None:
        """On a terminal, update the bar `name` with `count` behind it."""
        if not self.live:
            return
        if name not in self._lines:
            self._bars.start()
            self._lines[name] = self._bars.add_task(name, count=count)
        self._bars.update(
            self._lines[name], completed=done, total=total or None, count=count
        )

    def counted(
        self, what: str, done: int, total: int, noun: str = "loops", unit: int = 1
    ) -> None:
        """Show `done` of `total` (0: unknown) as a bar on a terminal, else in ten lines
        at most.
        """
        least = (
            100 * unit if self.live else MIN_PROGRESS_ITEMS if unit == 1 else 5_000_000
        )
        step = done // max(least, total // (100 if self.live else 10))
        if step == self._last.get(what, -1 if self.live else 0):
            return
        self._last[what] = step
        count = (
            f"{done // unit} of {total // unit} {noun}"
            if total
            else f"{done // unit} {noun}"
        )
        self.bar(what, done, total, count)
        if not self.live:
            self.say(f"{what}: {count}")


def drive(
    work: Coroutine[Any, Any, T], last_words: Callable[[], str] = lambda: "interrupted"
) -> T:
    """Run a coroutine and return its result. Ctrl-C cancels it and raises Interrupted.

    The message of Interrupted is `last_words()`. If the coroutine has not ended a
    second after Ctrl-C, or if Ctrl-C is pressed again, the process exits with 130.
    Committed data is safe.
    """
    import asyncio  # slow to import, as is rich, and `heedful --help` needs neither

    def give_up() -> None:
        say(f"heedful: {last_words()}")
        os._exit(INTERRUPTED_EXIT_CODE)

    late = threading.Timer(GRACE_SECONDS, give_up)
    late.daemon = True
    late.name = "heedful-leave"

    def press(signum: int, frame: object) -> None:
        if late.is_alive():
            os._exit(INTERRUPTED_EXIT_CODE)
        late.start()
        loop.call_soon_threadsafe(task.cancel)

    before = signal.getsignal(signal.SIGINT)
    try:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            task = loop.create_task(work)
            signal.signal(signal.SIGINT, press)
            return loop.run_until_complete(task)
    except asyncio.CancelledError:
        raise Interrupted(last_words()) from None
    except SystemExit as error:
        raise errors.UserCodeError(
            f"a model or a check called sys.exit({error.code!r})"
        ) from error
    finally:
        late.cancel()
        signal.signal(signal.SIGINT, before)


def report_error(error: BaseException, **more: Any) -> int:
    """Print the error, with --json as one document that includes `more`. Return its
    exit code.
    """
    kind = type(error).__name__
    code = next((c for of, c in EXIT_CODES if isinstance(error, of)), 1)
    if isinstance(error, errors.HeedfulError | OSError | Interrupted):
        message = "\n".join([str(error), *getattr(error, "__notes__", ())])
    elif hasattr(error, "format_message"):  # an error in the command line
        message = error.format_message()
        code = 2
        command = getattr(error, "ctx", None)
        if kind == "NoArgsIsHelpError" and not call().json:  # the message is the help
            say(message)
            return code
        if command is not None and not call().json:
            message = f"{message.rstrip('.')} (see {command.command_path} --help)"
        kind = "UsageError"
    else:
        hint = "" if call().debug else "; run it again with --debug for the traceback"
        message = f"unexpected {kind}: {error}{hint}"
    if call().debug:
        traceback.print_exception(error, file=sys.stderr)
    if call().json:
        with suppress(OSError):  # stdout itself may be broken
            print_json({"error": {"type": kind, "message": message}, **more})
            return code
    say(f"heedful: {message}")
    return code


def leave(code: int) -> NoReturn:
    """Exit the process, even while a cancelled call still runs in a thread.

    Python's own exit takes 40 ms to destroy what was imported. It would also destroy
    C++ objects that the thread uses, and the process would abort.
    """
    try:
        sys.stdout.flush()
    except OSError:  # at exit Python would write again, and change the exit code
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
    deadline = time.monotonic() + GRACE_SECONDS
    for thread in threading.enumerate():
        named = not thread.daemon or thread.name == "heedful-leave"
        if named and thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
