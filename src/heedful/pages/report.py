"""The report of a run as Markdown and as one HTML page, and its files, each written whole.

The HTML page loads nothing: it has no script and no address. Every text in a page is data: secrets
are redacted, hidden characters shown, markup escaped, and long texts cut with a count.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from heedful.errors import StoreUnavailable
from heedful.pages import words
from heedful.pages.drawing import FIRST, Line, axis, change, readable, spans
from heedful.pages.words import cut, visible
from heedful.redact import redact_data
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
    """Return a block of code whose fence is longer than any run of backticks inside."""
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
