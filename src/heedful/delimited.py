"""What somebody else wrote, shown to a model as data: between delimiters, and bounded. Pure.

The delimiters are made of a digest of all of it, so that no text can end them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping


def between(mark: str, shown: Mapping[str, str]) -> list[str]:
    """Each text between its delimiters."""
    return [f"<{label} {mark}>\n{text}\n</{label} {mark}>" for label, text in shown.items()]


def mark_of(name: str, shown: Mapping[str, str]) -> str:
    """A digest of all that is shown, which occurs in none of it: no text can end its delimiters."""
    said = "\0".join((name, *shown, *shown.values()))
    while True:
        said = hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()
        if not any(said[:12] in text for text in shown.values()):
            return said[:12]


def cut(text: str, most: int) -> str:
    """Its beginning and end, at most `most` characters (200 or more) in all, where it is longer."""
    if len(text) <= most:
        return text
    half = (most - 60) // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters are left out]\n{text[-half:]}"
