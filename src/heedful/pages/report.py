"""The report of a run as Markdown and as one HTML page, and its files, each written whole.

The HTML page loads nothing: it has no script and no address. Every text in a page is data: secrets
are redacted, hidden characters shown, markup escaped, and long texts cut with a count. The second
half draws the difference of two outputs, and a timeline of attempts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal

from heedful.errors import StoreUnavailable
from heedful.lessons.words import changes, difference
from heedful.pages import words
from heedful.pages.words import counted, cut, visible
from heedful.redact import redact, redact_data
from heedful.store.runs import CheckResult, Report, StageAttempt, StageReport, iso

if TYPE_CHECKING:
    from jinja2 import Environment

# What has a meaning in a line of Markdown, and what makes an address or a mention of a text.
_SPECIAL = re.compile(r"[\\`*_\[\]<>|&~$#@]|:(?=//)|(?<=www)\.")


@dataclass(frozen=True, slots=True)
class AttemptView:
    """What a page shows of an attempt: as many checks and lines as fit.

    `before` is the attempt that its output is compared with, 0 for the first. `note` says what
    changed, or how much of a first output is not shown. `room` is the number of characters of the
    feedback.
    """

    attempt: StageAttempt
    before: int
    checks: tuple[CheckResult, ...]
    lines: tuple[Line, ...]
    note: str
    room: int

    @property
    def diff(self) -> str:
        """The lines with their signs."""
        return "\n".join(f"{line.sign} {visible(line.text)}" for line in self.lines)

    @property
    def text(self) -> str:
        """The lines of a first output."""
        return "\n".join(visible(line.text) for line in self.lines)


def html(report: Report) -> str:
    """Render the report as one HTML page."""
    return render("report.html.j2", **_values(report))


def markdown(report: Report) -> str:
    """Render the report as Markdown."""
    return render("report.md.j2", **_values(report))


def render(template: str, **values: object) -> str:
    """Render a template of `heedful/pages/templates`; HTML is escaped, all text made visible."""
    return _environment().get_template(template).render(**values)


def _values(report: Report) -> dict[str, object]:
    attempts = sum(len(stage.attempts) for stage in report.stages)
    room = max(2_000, min(12_000, words.PAGE // max(1, 2 * attempts)))
    rows = spans(report)
    views = [list(_views(stage, room)) for stage in report.stages]
    return {"report": report, "views": views, "rows": rows, "axis": axis(report, rows)}


def _views(stage: StageReport, room: int) -> Iterator[AttemptView]:
    for before, attempt in zip((None, *stage.attempts), stage.attempts, strict=False):
        checks = words.fitting(attempt.checks, room, _check_text)
        if before is None:
            found, rest = readable(attempt.output)
            first = [Line(" ", line) for line in found[:FIRST]]
            lines = words.fitting(first, room, lambda line: visible(line.text))
            note = words.unseen(len(found) - len(lines), rest)
        else:
            compared = change(before.output, attempt.output)
            lines = words.fitting(compared.lines, room, lambda line: visible(line.text))
            note = compared.summary(lines)
        compared_with = before.attempt if before else 0
        yield AttemptView(attempt, compared_with, tuple(checks), tuple(lines), note, room // 2)


def _check_text(check: CheckResult) -> str:
    details = (text for pair in words.details(check) for text in pair)
    return "".join(map(cut, (check.check_name, check.message, check.suggestion, *details)))


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("heedful.pages"),
        autoescape=lambda name: bool(name and name.endswith(".html.j2")),
        finalize=_harmless,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {"words": words}
    environment.filters |= {"cut": cut, "line": line, "fence": fence, "iso": iso}
    environment.filters |= {"duration": words.lasted, "status": lambda name: name.replace("_", " ")}
    environment.tests["quiet"] = lambda check: check == CheckResult(check.check_name)
    return environment


def _harmless(value: object) -> object:
    """Make plain text visible before a template shows it, whatever filters it forgot."""
    return visible(value) if type(value) is str else value


def line(text: str, most: int = 400) -> str:
    """Return a text as one line that Markdown shows as it is, in a table too."""
    found = re.sub(r"\s*\n\s*", " ⏎ ", cut(text, most).strip()).replace("\t", " ")
    return _SPECIAL.sub(lambda special: f"\\{special[0]}", found)


def fence(text: str, kind: str = "") -> str:
    """Return a fenced block of code; the fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{kind}\n{text}\n{ticks}"


def write_attempt(attempt: StageAttempt, folder: str | os.PathLike[str]) -> Path:
    """Write the JSON file of one attempt, and make the folder if it is missing.

    Raises StoreUnavailable.
    """
    return _write(Path(folder) / attempt.file, _json(attempt.plain()))


def write(report: Report, folder: str | os.PathLike[str]) -> list[Path]:
    """Write a file for each attempt, and the whole run as JSON, Markdown and HTML.

    Raises StoreUnavailable; files written before that stay, each of them whole.
    """
    attempts = [attempt for stage in report.stages for attempt in stage.attempts]
    paths = [write_attempt(attempt, folder) for attempt in attempts]
    pages = {
        "json": _json(report.plain()),
        "md": markdown(report).encode("utf-8", "replace"),
        "html": html(report).encode("utf-8", "replace"),
    }
    named = {Path(folder) / f"{report.stem}.{kind}": page for kind, page in pages.items()}
    return paths + [_write(path, page) for path, page in named.items()]


def _json(plain: Mapping[str, Any]) -> bytes:
    text = json.dumps(redact_data(plain), indent=2, ensure_ascii=False)
    # Half of a surrogate pair has no UTF-8; JSON reads its escape.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _write(path: Path, content: bytes) -> Path:
    """Write a file beside the path and rename it when it is complete; leave nothing half."""
    part = path.with_name(f".{token_hex(8)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("xb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        why = error.strerror or error
        what = f"the report {path} cannot be written ({why}); check the folder and the disk"
        raise StoreUnavailable(what) from error
    return path


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
    places = changes(a, b)
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

    An attempt ends when it is decided. Without a decision, its start is the end of the previous
    one. No attempt starts earlier than that, because two clocks measure it.
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
