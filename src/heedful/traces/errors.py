"""The error lines in what people have: the output of a command, a traceback, a file, a log. Pure.

A line is an error line by its shape: the end of a traceback, a word for a failure before a colon, a
place in a file, the name of a program, or a status of HTTP. No format of a tool is known by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from heedful.traces.signals import error_line

# Error lines of one text, and characters of a line. Lines that are equal but for digits count once.
MOST = 200
LONGEST = 1_000
# In a text with fewer lines, every line may be the error.
SHORT = 40
_SHAPES = (
    re.compile(
        r"(?:error|exception|fail(?:ed|ure)?|fatal|panic)\b[^:\n]{0,40}: *\S", re.IGNORECASE
    ),
    re.compile(r"^[a-z][\w.+-]{0,20}: \S"),
    re.compile(r"^[\w./\\~@+-]{1,200}(?::\d+|\(\d+)(?:[:,]\d+)?\)?: \S"),
    re.compile(r"^(?:/[\w./+-]{1,80}|[A-Z]|[\w.]{1,60}(?:Error|Exception)): \S"),
    re.compile(r"\bERR\b|\bHTTP/[\d.]+ [45]\d\d\b|\bstatus\"?[ :=]{1,2}\"?[45]\d\d\b"),
    re.compile(r"[a-z]error\b|exception\b|\berror\b|\bfail|\btime[d ]{0,2}-?out", re.IGNORECASE),
)
_TRACEBACK = re.compile(r"^\s*Traceback \(")
# What tools write before a line, such as the time in a log.
_MARGIN = re.compile(r"^\s*(?:(?:E|>|\||\*|●|✗|✕)\s+)+|^\s+")
_TIME = re.compile(r"^\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]?\s+")
_DIGITS = re.compile(r"\d+")
_BANNER = re.compile(r"\s*([=_*#~!-])\1{2,}.*\1\s*\Z")


def error_lines(lines: Iterable[str], others: bool = True) -> list[str]:
    """Return the error lines of a text, the most telling first; of a short text, then the others.

    With `others` false, only error lines are returned.

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
        told = [_stripped(error_line("\n".join(start))), *told, *(start if others else ())]
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
