"""Patterns match alike on every Python that heedful runs on."""

from __future__ import annotations

import re
from pathlib import Path

import heedful

GROUP_HELD = re.compile(r"\)(?:[*+?]|\{[\d,]+\})\+")


def test_no_group_is_repeated_possessively():
    """Before Python 3.11.5 that matches wrongly (gh-106052); an atomic group says the same."""
    for path in Path(heedful.__file__).parent.rglob("*.py"):
        assert not GROUP_HELD.search(path.read_text(encoding="utf-8")), path
