"""What changed between two outputs: lines removed and added, and the words in them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from heedful.lessons.words import changes, difference
from heedful.redact import redacted

# A line longer than WIDE is compared sentence by sentence; nothing shown is longer than CUT.
WIDE = 200
CUT = 400
# Lines shown: of a first output, of one side of one place that differs, and of all such places.
FIRST = 24
SIDE = 8
LINES = 60
# Characters of an output that are read. Of two long ones they begin before the first difference, so
# that a secret it lies in is seen whole; the end of what is cut may be half a secret and is left.
READ = 100_000
BEFORE = 20_000
BEHIND = 2_000

_SENTENCE = re.compile(r".+?(?:[.!?;](?:\s+|\Z)|[。！？；]|\Z)")
_PART = re.compile(rf"[^,]{{0,{CUT - 1}}},\s?|.{{1,{CUT}}}")


@dataclass(frozen=True, slots=True)
class Line:
    """One line: removed (-), added (+), unchanged (space), or a word about lines not shown (@).

    `marks` are the half-open ranges of its characters that its counterpart does not have.
    """

    sign: Literal["-", "+", " ", "@"]
    text: str
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """The first lines to show, and how many were removed and added in all.

    `same` says of outputs without such a line whether they are the same text, not only the same
    data. `part` says which part of long outputs was compared.
    """

    lines: tuple[Line, ...]
    removed: int
    added: int
    same: bool = False
    part: str = ""

    def summary(self, shown: Sequence[Line]) -> str:
        """How much changed, and how much of it is not among the lines `shown`."""
        if self.same:
            return "the same output as before"
        if not (self.removed or self.added):
            if self.part:
                return f"nothing differs but secrets{self.part}"
            return "the same data as before, written differently"
        left = self.removed + self.added - sum(one.sign in "-+" for one in shown)
        lines = f"{self.removed:,} line{'s' * (self.removed != 1)} removed"
        said = f"{lines}, {self.added:,} added{self.part}"
        return f"{said}; {left:,} of them not shown" if left else said


def change(was: str, now: str) -> Change:
    """The difference of two outputs; JSON is compared as it looks indented, with sorted keys.

    Of outputs longer than `READ` it is that of the text around the first place that differs.
    """
    if was == now:
        return Change((), 0, 0, same=True)
    begin, longest = _begin(was, now), max(len(was), len(now))
    end = min(begin + READ, longest)
    part = f" in characters {begin + 1:,} to {end:,}" if end - begin < longest else ""
    was, now = _read(was, begin)[0], _read(now, begin)[0]
    one, other = pretty(was), pretty(now)
    if one is None or other is None:
        one, other = was, now
    a, b = lines(one), lines(other)
    places, _ = changes(a, b)
    removed, added = sum(k - i for i, k, _, _ in places), sum(m - j for *_, j, m in places)
    shown = tuple(_shown(a, b, places, counted=not begin))
    return Change(shown, removed, added, was == now and not part, part)


def _begin(was: str, now: str) -> int:
    """Where to begin to read two outputs, of which one may be long."""
    if max(len(was), len(now)) <= READ:
        return 0
    low, high = 0, min(len(was), len(now))
    while low < high:  # they are equal up to `low`, and not beyond `high`
        middle = (low + high + 1) // 2
        low, high = (middle, high) if was[low:middle] == now[low:middle] else (low, middle - 1)
    return max(0, low - BEFORE)


def _read(text: str, begin: int = 0) -> tuple[str, int]:
    """What is read of a text, without secrets, and how many characters behind it are not."""
    end = begin + READ
    if end >= len(text):
        return redacted(text[begin:]), 0
    return redacted(text[begin:end])[:-BEHIND], len(text) - end + BEHIND


def _shown(
    a: Sequence[str],
    b: Sequence[str],
    places: Sequence[tuple[int, int, int, int]],
    *,
    counted: bool,
) -> Iterator[Line]:
    """The first places, each with the unchanged line before and behind it."""
    end, count = 0, 0
    nexts = [*(i for i, *_ in places[1:]), len(a)]
    for (i, k, j, m), until in zip(places, nexts, strict=False):
        if count >= LINES:
            return
        if i - 1 > end:
            yield Line("@", f"line {i}" if counted else "…")
        if i > end:
            yield Line(" ", a[i - 1])
        for line in _place(a[i:k], b[j:m]):
            count += 1
            yield line
        end = k
        if k < until:
            yield Line(" ", a[k])
            end = k + 1


def _place(removed: Sequence[str], added: Sequence[str]) -> Iterator[Line]:
    """As many lines removed as added are held against one another, word by word."""
    yield from _side("-", removed, added)
    yield from _side("+", added, removed)


def _side(sign: Literal["-", "+"], side: Sequence[str], other: Sequence[str]) -> Iterator[Line]:
    for n, text in enumerate(side[:SIDE]):
        yield Line(sign, text, _marks(text, other[n]) if len(side) == len(other) else ())
    if len(side) > SIDE:
        yield Line("@", f"{len(side) - SIDE:,} more {'removed' if sign == '-' else 'added'}")


def _marks(text: str, other: str) -> tuple[tuple[int, int], ...]:
    """What of a text the other does not have."""
    edits = difference(text, other).edits
    return tuple((one.at, one.end) for one in edits if one.removed)


def readable(output: str) -> tuple[list[str], int]:
    """The lines of one output without secrets, JSON indented; of a long one the first `READ`
    characters, and how many there are beyond."""
    read, rest = _read(output)
    return lines(pretty(read) or read), rest


def pretty(text: str) -> str | None:
    """JSON objects and arrays, indented, with sorted keys; None for any other text."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def lines(text: str) -> list[str]:
    """The lines of a text; a wide one sentence by sentence, in parts of at most `CUT` characters.

    Joined, with the line breaks between them left out, they are the text again.
    """
    found: list[str] = []
    for line in text.split("\n") if text else ():
        if len(line) <= WIDE:
            found.append(line)
            continue
        for sentence in _SENTENCE.findall(line):
            found += [sentence] if len(sentence) <= CUT else _PART.findall(sentence)
    return found
