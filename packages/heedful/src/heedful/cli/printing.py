"""What a command prints: results and JSON on stdout, messages and progress on stderr.

A command returns `answer(document, …)` or `emit(records, columns, …)`: with --json the
document is printed, and nothing else; otherwise the texts or the table.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import KW_ONLY, asdict, dataclass, field, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from typer import confirm

from heedful.display import counted
from heedful.lessons.commands import option_words, quote_words
from heedful.sanitize import clean, without_controls
from heedful.store import DEFAULT_DATABASE_FILE, shown
from heedful.validation import MAX_SHOWN_ITEMS, MAX_SHOWN_ROWS, Document

# A line is printed after this many loops, lessons or files, or megabytes of weights;
# fewer take only a few seconds.
MIN_PROGRESS_ITEMS = 1_000
MIN_PROGRESS_MEGABYTES = 5


# What a row of a table shows, by the names of its fields.
Row = Mapping[str, Any]
# What a column of a table shows: the field with this name, or the result of a function
# of the record.
Column = str | Callable[[Any], Any]
# The columns of a table by their heads.
Columns = Mapping[str, Column]

PIPE_WIDTH_COLUMNS = 120  # characters of a line that is not printed to a terminal


@dataclass(kw_only=True)
class CommandLine:
    """The running command line: its words, and what the words say.

    `options` are the settings that are given as options. With `as_hooks`, only
    what hooks follow counts. `settings_file` is the file of the option --settings, read
    instead of those in the current folder. `has_named_db` is True once the user was
    told which database a command uses by default. `steps` are the last steps of
    progress, by the name of what goes on.
    """

    arguments: Sequence[str] = ()
    json: bool = False
    debug: bool = False
    as_hooks: bool = False
    settings_file: Path | None = None
    has_named_db: bool = False
    options: Document = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)


CURRENT_COMMAND: ContextVar[CommandLine] = ContextVar("call")


def current_command() -> CommandLine:
    """Return the running command line, or one without options if no command is
    running.
    """
    return CURRENT_COMMAND.get(CommandLine())


def show_progress(
    name: str,
    done: int,
    total: int,
    noun: str = "loops",
    min_step: int = MIN_PROGRESS_ITEMS,
) -> None:
    """Print `done` of `total` (0: unknown), in ten lines at most if it is known.

    Both are numbers of the `noun`; after less than `min_step` nothing is printed.
    """
    steps = current_command().steps
    step = done // max(min_step, total // MAX_SHOWN_ITEMS)
    # A line about nothing says nothing.
    if step != steps.get(name, 0):
        steps[name] = step
        say(f"{name}: {done} of {total} {noun}" if total else f"{name}: {done} {noun}")


def fetched(name: str, done: int, total: int, what: str) -> None:
    """Show how many bytes of the weights `name` are processed."""
    show_progress(
        f"{name}: {what}",
        done // 1_000_000,
        total=total // 1_000_000,
        noun="MB",
        min_step=MIN_PROGRESS_MEGABYTES,
    )


def show(text: object = "") -> None:
    """Print a result to stdout."""
    print(text, flush=True)


def say(text: str) -> None:
    """Print a message to stderr."""
    print(without_controls(text), file=sys.stderr, flush=True)


def agrees(question: str) -> bool:
    """Return True if the user can read a question on a terminal, and agrees."""
    is_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    return is_terminal and confirm(question, err=True)


def print_json(document: Any) -> None:
    """Print `document` as JSON in ASCII.

    Dataclasses become objects; values of other types that JSON lacks become text.
    """
    show(json.dumps(document, default=_json_value, indent=2))


def _json_value(value: Any) -> Any:
    """Return JSON data for a value of a type that JSON lacks."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)


def answer(document: Any, *texts: object) -> int:
    """With --json print `document` as JSON, else print the `texts`. Return 0.

    An empty text is left out. A list has a line in each item. Others may have chosen
    words of the texts, so none moves the cursor.
    """
    if current_command().json:
        print_json(document)
        return 0

    lines: list[str] = []
    for text in texts:
        items = text if isinstance(text, list) else [text]
        lines += [without_controls(str(item)) for item in items]

    show("\n".join(filter(None, lines)).lstrip("\n"))
    return 0


def emit(
    records: Sequence[Any],
    columns: Columns,
    *,
    key: str,
    text_columns: int,
    empty: str = "",
    then: str = "",
    document: Callable[[Any], Any] = lambda record: record,
) -> int:
    """Print `records` as a table, or with --json as the document `{key: [...]}`.

    `columns` and `text_columns` are those of `TextTable`. `then` is printed below the
    table, `empty` instead of a table without rows. `document` converts a record to
    JSON data. Returns 0.
    """
    documents = {key: [document(record) for record in records]}
    if not records:
        return answer(documents, empty)
    return answer(documents, TextTable(columns, records, text_columns), then)


def page(template: str, **values: object) -> str:
    """Return the text of a template, whose values are made harmless for a terminal."""
    from heedful.pages import render  # slow to import

    return render(f"{template}.txt.j2", counted=counted, when=when, **values).rstrip()


def columns(names: str, **special: Column) -> Columns:
    """Return the columns that `names` lists, separated by blanks.

    A table shows `_` in a name as a blank. A column shows the field with its name,
    unless `special` gives another field, or a function of the record.
    """
    return {name.replace("_", " "): special.get(name, name) for name in names.split()}


@dataclass(frozen=True)
class TextTable:
    """A table as text.

    The first `text_columns` contain words, the other columns numbers, which are aligned
    right. A narrow terminal folds words, never numbers. If `columns` is a mapping, each
    row is a record, and each column shows a field of the record or the result of a
    function; otherwise a row is a sequence of cells.

    With a `cut_column`, each row is one line: this column contains words, too, and ends
    with … where it is too wide.
    """

    columns: Columns | Sequence[str]
    rows: Sequence[Any]
    text_columns: int = 1
    _: KW_ONLY
    cut_column: str = ""

    def __str__(self) -> str:
        from rich import box  # slow to import
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        for place, head in enumerate(self.columns):
            is_cut = head == self.cut_column
            is_number = place >= self.text_columns and not is_cut
            is_whole = is_number or bool(self.cut_column and not is_cut)
            table.add_column(head, no_wrap=is_whole)
            if is_number:
                table.columns[-1].justify = "right"
        # A text is no markup.
        style: Document = {"overflow": "fold"}
        if self.cut_column:
            style = {"overflow": "ellipsis", "no_wrap": True}
        for row in self.rows:
            cells = row
            if isinstance(self.columns, Mapping):
                cells = [_cell_of(row, column) for column in self.columns.values()]
            texts = [Text(clean(str(cell), 200), **style) for cell in cells]
            table.add_row(*texts)

        width = None if sys.stdout.isatty() else PIPE_WIDTH_COLUMNS
        console = Console(width=width, color_system=None)
        if not self.cut_column:
            # A narrower terminal has no room for the numbers: it breaks the lines.
            console.width = max(console.width, 80)
        with console.capture() as captured:
            console.print(table, crop=False)
        # A blank beyond the last column of a terminal would make an empty line.
        return "\n".join(map(str.rstrip, captured.get().splitlines()))


def _cell_of(record: Any, column: Column) -> Any:
    """Return what a column shows of a record."""
    if not isinstance(column, str):
        value = column(record)
    elif isinstance(record, Mapping):
        value = record[column]
    else:
        value = getattr(record, column)

    if isinstance(value, float):
        # In a table, only times, in seconds since 1970, are as large.
        return when(value) if value > 1e9 else f"{value:.1f}"
    if isinstance(value, Mapping):
        return json.dumps(value) if value else ""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return value


def shorten(columns: Columns, rows: Sequence[Any], text_columns: int) -> list[object]:
    """Return a table of the first `MAX_SHOWN_ROWS` rows, and a line that counts the
    others.

    `columns` and `text_columns` are those of `TextTable`. Without rows the list is
    empty.
    """
    lines: list[object] = []
    if rows:
        lines.append(TextTable(columns, rows[:MAX_SHOWN_ROWS], text_columns))

    others = len(rows) - MAX_SHOWN_ROWS
    if others > 0:
        lines.append(f"and {counted(others, 'other')}; --json shows them")
    return lines


def when(seconds: float) -> str:
    """Format seconds since 1970 as local time. A time beyond the calendar stays a
    number.
    """
    try:
        time = datetime.fromtimestamp(seconds).astimezone()
        return f"{time:%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s after 1970"


def following(*words: object, db: str | None = None, **options: object) -> str:
    """Return the line `Next: heedful …`, which names the command to run next.

    The command is that of `command_line`.
    """
    return f"Next: {command_line(*words, db=db, **options)}"


def command_line(*words: object, db: str | None = None, **options: object) -> str:
    """Return a command of heedful as a person types it.

    The command ends with its options, with --tenant if the running command has it, and
    with --db unless the database is the default.
    An option that is True has no value; one that is False or "" is left out.
    """
    command = ["heedful", *map(str, words)]
    options["tenant"] = current_command().options.get("tenant")
    for name, value in options.items():
        if value is True:
            command.append(f"--{name}")
        elif value:
            command += option_words(name, str(value))

    return f"{quote_words(command)}{_db_option(db)}"


def name_database(text: str, db: str | None = None) -> str:
    """Return a command of memory with its option --db, or a text that names commands
    with what to add to them. A text that speaks of --db stays as it is.
    """
    option = _db_option(db)
    if not option or "heedful " not in text or " --db " in text:
        return text
    return f"{text}{option}" if text.startswith("heedful ") else f"{text} (add{option})"


def _db_option(db: str | None) -> str:
    """Return the option --db with a space before it, or "" for the default."""
    db = db or current_command().options.get("db")
    if db in (None, "", DEFAULT_DATABASE_FILE):
        return ""
    return f" --db {quote_words([shown(db)])}"


def repeated() -> str:
    """Return the line `Next: heedful …` with the running command, but without
    --dry-run.
    """
    words = [
        shown(word)
        for word in current_command().arguments
        if word not in ("--dry-run", "--json")
    ]
    return f"Next: {quote_words(['heedful', *words])}"
