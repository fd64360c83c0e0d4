"""What a page draws: the difference of two outputs, and a timeline of attempts. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

from heedful.lessons.words import changes, difference
from heedful.pages.words import counted
from heedful.redact import redact
from heedful.store.runs import Report

# A line longer than WIDE is split into sentences; no line shown is longer than CUT.
WIDE = 200
CUT = 400
# Lines shown: of a first output, of one side of one difference, and of all differences.
FIRST = 24
SIDE = 8
LINES = 60
# Characters of an output that are read. Two long outputs are read from BEFORE characters before
# their first difference, so that a secret there is seen whole; the last BEHIND characters of a cut
# text may be half a secret and are dropped.
READ = 100_000
BEFORE = 20_000
BEHIND = 2_000
# Shares of the time axis: the least of an attempt (all together at most half), the most of a pause.
NARROW = 0.016
PAUSE = 0.06
TICKS = 6
STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300)
LONG_STEPS = (600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400, 604_800)

_SENTENCE = re.compile(r".+?(?:[.!?;](?:\s+|\Z)|[。！？；]|\Z)")
_PART = re.compile(rf"[^,]{{0,{CUT - 1}}},\s?|.{{1,{CUT}}}")


@dataclass(frozen=True, slots=True)
class Line:
    """A line that was removed (-) or added (+), is unchanged (space), or is a remark (@).

    `marks` are the half-open ranges of characters that the other side of the difference lacks.
    """

    sign: Literal["-", "+", " ", "@"]
    text: str
    marks: tuple[tuple[int, int], ...] = ()

    def pieces(self) -> Iterator[tuple[str, bool]]:
        """Yield the text in pieces, and whether each is marked."""
        end = 0
        for begin, stop in self.marks:
            yield self.text[end:begin], False
            yield self.text[begin:stop], True
            end = stop
        yield self.text[end:], False


@dataclass(frozen=True, slots=True)
class Change:
    """The first lines of a difference, and how many lines were removed and added in all.

    `same` is True for equal texts, not only equal data. `part` names the part of long outputs that
    was compared.
    """

    lines: tuple[Line, ...]
    removed: int
    added: int
    same: bool = False
    part: str = ""

    def summary(self, shown: Sequence[Line]) -> str:
        """Say how much changed, and how much of it is not among the lines `shown`."""
        if self.same:
            return "the same output as before"
        if not (self.removed or self.added):
            if self.part:
                return f"nothing differs but secrets{self.part}"
            return "the same data as before, written differently"
        left = self.removed + self.added - sum(line.sign in "-+" for line in shown)
        said = f"{counted(self.removed, 'line')} removed, {self.added:,} added{self.part}"
        return f"{said}; {left:,} of them not shown" if left else said


def change(was: str, now: str) -> Change:
    """Compare two outputs line by line; JSON is compared indented, with sorted keys.

    Of outputs longer than `READ` characters only the text around the first difference is compared.
    """
    if was == now:
        return Change((), 0, 0, same=True)
    longest = max(len(was), len(now))
    first = (n for n, (a, b) in enumerate(zip(was, now, strict=False)) if a != b)
    same = next(first, min(len(was), len(now))) if longest > READ else 0
    begin = max(0, same - BEFORE)
    end = min(begin + READ, longest)
    part = f" in characters {begin + 1:,} to {end:,}" if end - begin < longest else ""
    was, now = _read(was, begin)[0], _read(now, begin)[0]
    one, other = pretty(was), pretty(now)
    if one is None or other is None:
        one, other = was, now
    a, b = lines(one), lines(other)
    places, _ = changes(a, b)
    removed, added = sum(k - i for i, k, _, _ in places), sum(m - j for *_, j, m in places)
    shown = tuple(_draw(a, b, places, numbered=not begin))
    return Change(shown, removed, added, was == now and not part, part)


def _read(text: str, begin: int = 0) -> tuple[str, int]:
    """Return the text that is read, without secrets, and the number of characters behind it."""
    end = begin + READ
    if end >= len(text):
        return redact(text[begin:]), 0
    return redact(text[begin:end])[:-BEHIND], len(text) - end + BEHIND


def _draw(
    a: Sequence[str],
    b: Sequence[str],
    places: Sequence[tuple[int, int, int, int]],
    *,
    numbered: bool,
) -> Iterator[Line]:
    """Yield the first differences, each with the unchanged line before and after it."""
    end, count = 0, 0
    for (i, k, j, m), until in zip(places, [*(i for i, *_ in places[1:]), len(a)], strict=False):
        if count >= LINES:
            return
        if i - 1 > end:
            yield Line("@", f"line {i}" if numbered else "…")
        if i > end:
            yield Line(" ", a[i - 1])
        for line in (*_side("-", a[i:k], b[j:m]), *_side("+", b[j:m], a[i:k])):
            count += 1
            yield line
        end = k
        if k < until:
            yield Line(" ", a[k])
            end = k + 1


def _side(sign: Literal["-", "+"], side: Sequence[str], other: Sequence[str]) -> Iterator[Line]:
    """Yield one side of a difference; two sides of equal length are compared word by word."""
    for n, text in enumerate(side[:SIDE]):
        edits = difference(text, other[n]).edits if len(side) == len(other) else ()
        yield Line(sign, text, tuple((edit.at, edit.end) for edit in edits if edit.removed))
    if len(side) > SIDE:
        yield Line("@", f"{len(side) - SIDE:,} more {'removed' if sign == '-' else 'added'}")


def readable(output: str) -> tuple[list[str], int]:
    """Return the lines of an output without secrets, JSON indented.

    Of a long output they are those of the first `READ` characters; the number counts the rest.
    """
    read, rest = _read(output)
    return lines(pretty(read) or read), rest


def pretty(text: str) -> str | None:
    """Return a JSON object or array indented, with sorted keys; None for any other text."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def lines(text: str) -> list[str]:
    """Split a text into lines, and wide lines into sentences of at most `CUT` characters.

    Joined, and without the line breaks between them, they are the text again.
    """
    found: list[str] = []
    for line in text.split("\n") if text else ():
        for sentence in [line] if len(line) <= WIDE else _SENTENCE.findall(line):
            found += [sentence] if len(sentence) <= CUT else _PART.findall(sentence)
    return found


@dataclass(frozen=True, slots=True)
class Axis:
    """A piecewise linear, growing map from seconds since 1970 to 0..1.

    It widens short attempts and shortens long pauses; `even` is True if neither was needed.
    """

    times: tuple[float, ...]
    places: tuple[float, ...]
    even: bool = True

    def place(self, at: float) -> float:
        """Return the place of a time; times outside the axis stand at its ends."""
        for (left, right), (low, high) in zip(
            pairwise(self.times), pairwise(self.places), strict=True
        ):
            if at <= right:
                share = (at - left) / (right - left) if right > left else 0.0
                return low + max(0.0, share) * (high - low)
        return self.places[-1]

    def ticks(self) -> Iterator[tuple[float, float]]:
        """Yield round numbers of seconds since the beginning, and their places, well apart."""
        length = self.times[-1] - self.times[0]
        step = next((s for s in (*STEPS, *LONG_STEPS) if s * TICKS >= length), length / TICKS)
        last = -1.0
        for n in range(TICKS + 1):
            place = self.place(self.times[0] + n * step)
            if n * step <= length and place - last >= 0.5 / TICKS:
                last = place
                yield n * step, place


def spans(report: Report) -> list[list[tuple[float, float]]]:
    """Return when each attempt of each stage began and ended, in seconds since 1970.

    An attempt ends when it is decided; one without a decision begins where the one before ended.
    No attempt begins before that, because two clocks measure it.
    """
    at, found = report.began, []
    for stage in report.stages:
        row = []
        for attempt in stage.attempts:
            length = attempt.execution_time_ms / 1000
            end = attempt.timestamp or at + length
            row.append((min(max(end - length, at), end), end))
            at = max(at, end)
        found.append(row)
    return found


def axis(report: Report, rows: Sequence[Sequence[tuple[float, float]]]) -> Axis | None:
    """Return the time axis of the attempts of a report; None without an attempt."""
    bars = [bar for row in rows for bar in row]
    if not bars:
        return None
    edges = sorted({at for bar in bars for at in bar} | {report.began, report.ended} - {0.0})
    if len(edges) == 1:
        edges.append(edges[0] + 0.001)
    total = edges[-1] - edges[0]
    narrow = min(NARROW, 0.5 / len(bars))
    shares = [(right - left) / total for left, right in pairwise(edges)]
    widths = []
    for share, (left, right) in zip(shares, pairwise(edges), strict=True):
        busy = any(begin <= left and right <= end for begin, end in bars)
        widths.append(max(share, narrow) if busy else min(share, PAUSE))
    places = [width / sum(widths) for width in accumulate(widths, initial=0.0)]
    return Axis(tuple(edges), (*places[:-1], 1.0), widths == shares)
