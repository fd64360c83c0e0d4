"""Count the words of the pages that people write.

`scripts/words.py` prints the words of each page, `scripts/weight.py` those of all
together. Words in fenced blocks do not count: a program that runs is worth
its length. What a reader must read does.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Reports of what was measured, and pages that only callers of earlier systems read.
UNCOUNTED = ("docs/appendix/*", "docs/earlier-systems/*")
FENCED = re.compile(r"^ *(```+)[^\n]*\n.*?^ *\1 *$", re.DOTALL | re.MULTILINE)
# A table that a program writes into a page.
GENERATED = re.compile(r"<!-- (\w+) begins -->.*?<!-- \1 ends -->", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
TARGET = re.compile(r"\]\([^)\s]*\)")
WORD = re.compile(r"\S*\w\S*")


def count(text: str) -> int:
    """Return the number of words in a page.

    Fenced blocks, generated tables and addresses of links do not count.
    """
    for part in (FENCED, GENERATED, COMMENT):
        text = part.sub("", text)
    return len(WORD.findall(TARGET.sub("]", text)))


def pages() -> list[Path]:
    """Return the pages at the root and those of `docs` that are counted."""
    found = [
        ROOT / "README.md",
        ROOT / "ARCHITECTURE.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
    return [
        page
        for page in found
        if not any(page.relative_to(ROOT).match(name) for name in UNCOUNTED)
    ]


if __name__ == "__main__":
    for page in pages():
        words = count(page.read_text(encoding="utf-8"))
        print(f"{words:>7,}  {page.relative_to(ROOT)}")
