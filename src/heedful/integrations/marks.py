"""A part of a text between two marks, which heedful writes and takes out again.

What is outside of the marks stays as it is. The first mark says what was added before
it, so that a text is the same, byte for byte, after the part was taken out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BEGIN = "heedful: begin"
_END = "heedful: end"
# What the first mark says of the text before it.
_WHOLE_FILE = " (this file)"
_NO_LINE_END = " (the line above had no end)"


@dataclass(frozen=True, slots=True)
class Marks:
    """How marks are written in a language: what opens and closes a comment."""

    opening: str
    closing: str = ""

    def begin(self, note: str = "") -> str:
        """Return the first mark."""
        return f"{self.opening}{_BEGIN}{note}{self.closing}"

    @property
    def end(self) -> str:
        """The last mark."""
        return f"{self.opening}{_END}{self.closing}"

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern of a part: its note, its line end, and what is between."""
        opening = re.escape(f"{self.opening}{_BEGIN}")
        notes = "|".join(map(re.escape, ("", _WHOLE_FILE, _NO_LINE_END)))
        closing = re.escape(self.closing)
        return re.compile(
            rf"^{opening}({notes}){closing}(\r?\n)(.*?)^{re.escape(self.end)}(?:\r?\n|\Z)",
            re.DOTALL | re.MULTILINE,
        )


HASH_MARKS = Marks("# ")
MARKDOWN_MARKS = Marks("<!-- ", " -->")


def marked_part(text: str | None, marks: Marks) -> str | None:
    """Return what is between the marks, None if there are none."""
    match = marks.pattern.search(text or "")
    return match[3].replace("\r\n", "\n") if match else None


def put_part(text: str | None, part: str, marks: Marks) -> str:
    """Return the text with a part, in the place of the one that it has, else at its
    end.
    """
    match = marks.pattern.search(text or "")
    line_end = "\r\n" if text and "\r\n" in text else "\n"
    if text is None:
        note = _WHOLE_FILE
        before = ""
        after = ""
    elif match is not None:
        note = match[1]
        line_end = match[2]
        before = text[: match.start()]
        after = text[match.end() :]
    else:
        note = ""
        before = text + line_end if text else text
        if text and not text.endswith("\n"):
            note = _NO_LINE_END
            before += line_end
        after = ""

    lines = [marks.begin(note), *part.rstrip("\n").split("\n"), marks.end, ""]
    return before + line_end.join(lines) + after


def take_part(text: str, marks: Marks) -> str | None:
    """Return the text without its part, None if nothing else was in the file."""
    match = marks.pattern.search(text)
    if match is None:
        return text

    before = text[: match.start()]
    after = text[match.end() :]
    if match[1] == _WHOLE_FILE and not before + after:
        return None
    if match[1] == _WHOLE_FILE:
        return before + after

    line_end = match[2]
    for _ in range(2 if match[1] else 1):
        before = before.removesuffix(line_end)
    return before + after
