"""The error lines in what people have: the output of a command, a traceback, a file, a log. Pure.

A line is an error line by its shape: the end of a traceback, a word for a failure before a colon, a
place in a file, the name of a program, or a status of HTTP. No format of a tool is known by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from heedful.traces.signals import _BANNER, _NAMED, error_line

# Error lines of one text, and characters of a line. Lines that are equal but for digits count once.
MOST = 200
LONGEST = 1_000
# In a text with fewer lines, every line may be the error.
SHORT = 40
_SHAPES = (
    *_NAMED[:2],
    re.compile(r"^[\w./\\~@+-]{1,200}(?::\d+|\(\d+)(?:[:,]\d+)?\)?: \S"),
    re.compile(r"^(?:/[\w./+-]{1,80}|[A-Z]|[\w.]{1,60}(?:Error|Exception)): \S"),
    re.compile(r"\bERR\b|\bHTTP/[\d.]+ [45]\d\d\b|\bstatus\"?[ :=]{1,2}\"?[45]\d\d\b"),
    _NAMED[2],
)
_TRACEBACK = re.compile(r"^\s*Traceback \(")
# What tools write before a line, such as the time in a log.
_MARGIN = re.compile(r"^\s*(?:(?:E|>|\||\*|●|✗|✕)\s+)+|^\s+")
_TIME = re.compile(r"^\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]?\s+")
_DIGITS = re.compile(r"\d+")


def error_lines(lines: Iterable[str]) -> list[str]:
    """Return the error lines of a text, the most telling first; of a short text, then the others.

    Of more than `MOST` error lines, the first and the last ones are returned. Takes one pass, and
    memory for `MOST` lines.

    >>> error_lines(["Traceback (most recent call last):", "  f()", "KeyError: 'a'", "done"])[0]
    "KeyError: 'a'"
    """
    ranks: list[dict[str, str]] = [{} for _ in range(len(_SHAPES) + 1)]
    start, count = list[str](), 0
    for line, rank in _ranked(lines):
        count += 1
        if count <= SHORT:
            start.append(line)
        if rank is None:
            continue
        found = ranks[rank]
        found.setdefault(_DIGITS.sub("0", line), line)
        if len(found) > MOST:  # the first half stays, of the other half the oldest goes
            del found[list(found)[MOST // 2]]
    told = [line for found in ranks for line in found.values()][:MOST]
    if count <= SHORT and start:
        told = [_stripped(error_line("\n".join(start))), *told, *start]
    return list(dict.fromkeys(filter(None, told)))


def _ranked(lines: Iterable[str]) -> Iterator[tuple[str, int | None]]:
    """Yield each line without its margin, and its rank as an error line, from 0, or None."""
    trace = False
    for raw in lines:
        if _TRACEBACK.match(raw):
            trace = True
            continue
        line = _stripped(raw)
        if not line or _BANNER.match(line):
            continue
        ended, trace = trace and not raw[:1].isspace(), trace and raw[:1].isspace()
        if ended:
            yield line, 0
        else:
            yield line, next((n for n, p in enumerate(_SHAPES, 1) if p.search(line)), None)


def _stripped(line: str) -> str:
    return _TIME.sub("", _MARGIN.sub("", line[:LONGEST])).rstrip()
