"""Sections of a page that a program writes: tables in Markdown, and a picture."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

PAGE = Path(__file__).resolve().parents[2] / "docs" / "appendix" / "benchmarks.md"


def read_report(path: Path, command: str) -> Any:
    """Return what a run has left.

    Raises SystemExit with the command that leaves it.
    """
    if not path.exists():
        raise SystemExit(f"{path} is absent: {command} writes it")
    return json.loads(path.read_text("utf-8"))


def row(cells: Sequence[str]) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def head(cells: Sequence[str]) -> Iterator[str]:
    """Yield the two lines with which a table in Markdown begins."""
    yield row(cells)
    yield f"|{'---|' * len(cells)}"


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join([*head(heading), *map(row, rows)])


def replace_section(page: str, name: str, section: str) -> str:
    """Return the page with another text in a section. Raises ValueError.

    The section is what is between `<!-- name begins -->` and `<!-- name ends -->`.
    """
    begin = f"<!-- {name} begins -->"
    end = f"<!-- {name} ends -->"
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f"the page has no marks {begin!r} and {end!r}; write them")
    return f"{before}{begin}\n\n{section.strip()}\n\n{end}{after}"


def write_text(name: str, section: str) -> None:
    """Write a section of docs/appendix/benchmarks.md."""
    PAGE.write_text(replace_section(PAGE.read_text("utf-8"), name, section), "utf-8")


def write_section(name: str, section: str, picture: bytes, path: str) -> None:
    """Write a section of docs/appendix/benchmarks.md, and its picture beside it."""
    write_text(name, section)
    PAGE.with_name(path).write_bytes(picture)


def png(picture: Picture, dpi: int = 150) -> bytes:
    """Return a drawn picture as PNG."""
    file = io.BytesIO()
    picture.savefig(file, format="png", dpi=dpi)
    return file.getvalue()
