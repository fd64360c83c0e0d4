"""What the command line prints: results and JSON on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from typing import Annotated, Any

import typer

from errata.loop.feedback import clean

Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document.")]
Db = Annotated[str | None, typer.Option("--db", help="The database file. [errata.db]")]


def print_json(document: Any) -> None:
    """Print one JSON document, in ASCII, so that any terminal and any text can take it."""
    _write(json.dumps(document, default=_plain, indent=2))


def show(text: str = "") -> None:
    """Print a line of a result."""
    _write(text)


def say(text: str) -> None:
    """Tell the person at the terminal, beside the results."""
    stream = sys.stderr
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
    stream.flush()


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]], text: int = 1) -> None:
    """Print a table; the first `text` columns are words, the others numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, head in enumerate(heads):
        drawn.add_column(head, justify="left" if place < text else "right", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(short(str(cell), 200)) for cell in row))
    width = None if sys.stdout.isatty() else 120
    Console(file=sys.stdout, width=width, highlight=False).print(drawn)


def short(text: str, most: int) -> str:
    """One line without control characters, at most `most` characters."""
    return clean(text, most)


def when(seconds: float) -> str:
    """Seconds since 1970 as local time."""
    from datetime import datetime

    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _write(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding) + "\n")
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)
