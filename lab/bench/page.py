"""Sections of a page that a program writes: tables in Markdown, and a picture."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"


def row(cells: Sequence[str]) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def head(cells: Sequence[str]) -> Iterator[str]:
    """Yield the two lines with which a table in Markdown begins."""
    yield row(cells)
    yield f"|{'---|' * len(cells)}"


def replace_section(page: str, section: str, *, begin: str, end: str) -> str:
    """Return the page with another text between its marks. Raises ValueError."""
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f"the page has no marks {begin!r} and {end!r}; write them")
    return f"{before}{begin}\n{section}\n{end}{after}"


def write_section(name: str, section: str, picture: bytes, path: str) -> None:
    """Write a section of docs/benchmarks.md, and its picture into a file beside it."""
    page = replace_section(
        PAGE.read_text("utf-8"),
        section,
        begin=f"<!-- {name} begins -->",
        end=f"<!-- {name} ends -->",
    )
    PAGE.write_text(page, "utf-8")
    PAGE.with_name(path).write_bytes(picture)


def png(picture: Picture, dpi: int = 150) -> bytes:
    """Return a drawn picture as PNG."""
    file = io.BytesIO()
    picture.savefig(file, format="png", dpi=dpi)
    return file.getvalue()
