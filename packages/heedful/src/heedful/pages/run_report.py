"""The report of a run as one HTML page, and as files.

A file is never half written. The HTML page has the look of the pages of `web/`, but no
script, and loads nothing.

Texts of a run are data on every page: secrets are redacted, hidden characters are
shown, markup is escaped, and long texts are cut with a count.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import unified_diff
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from heedful.display import counted
from heedful.errors import StoreUnavailable
from heedful.lessons.render import seen_words
from heedful.loop.decide import distance_note
from heedful.loop.ladder import Ladder
from heedful.loop.record import DEFAULT_SEVERITY, format_off_by
from heedful.loop.runs import CheckResult, Report, StageAttempt, StageReport, iso
from heedful.loop.share import percent, points, say_doubt, signed, without
from heedful.pages.attempt_table import (
    bars,
    compared,
    finding_of,
    first_equal,
    hidden_checks,
    opened,
    read_lines,
    worked,
)
from heedful.pages.difference import marked
from heedful.redact import MARK_START, redact, redact_data
from heedful.sanitize import clean, without_controls
from heedful.validation import MAX_SHOWN_ROWS, MAX_SHOWN_TEXT_CHARS, Document, Fields

if TYPE_CHECKING:  # most pages have no figures of a replay
    from jinja2 import Environment


# The look of every page, which the pages of `web/` have, too.
STYLE_FILE = Path(__file__).parent / "templates/ui.css"
_CHECK_SIGNS = {
    "passed": "✓",
    "warning": "!",
    "failed": "✗",
    "not_validated": "?",
    "unchecked": "?",
}
_END_SIGNS = {
    "degraded": "!",
    "halted": "✗",
    "stopped": "■",
    "open": "…",
    "not_run": "–",
}
STATUS_SIGNS: Mapping[str, str] = _CHECK_SIGNS | _END_SIGNS
# Said elsewhere.
SAID_DETAILS = ("span", "score", "threshold", "direction", "more")


def html(report: Report, sentence: str = "", *, with_data: bool = False) -> str:
    """Return the report as one HTML page; the `sentence` says why a loop ended.

    With its data, the page has the report as JSON, too.
    """
    data = json_text(report.plain()) if with_data else ""
    return render("report.html.j2", report=report, sentence=sentence, data=data)


def render(template: str, **values: object) -> str:
    """Render a template of this room; escape HTML and show hidden characters."""
    return environment().get_template(template).render(**values)


def write_html(report: Report, folder: str | os.PathLike[str]) -> Path:
    """Write the report as one HTML page; return its path. Raises StoreUnavailable."""
    return _write(Path(folder) / f"{report.stem}.html", html(report))


def write_bundle(report: Report, sentence: str, path: str | os.PathLike[str]) -> Path:
    """Write a run or a loop with its data as one HTML page; return its path.

    Raises StoreUnavailable.
    """
    return _write(Path(path), html(report, sentence, with_data=True))


def write_attempt(attempt: StageAttempt, folder: str | os.PathLike[str]) -> Path:
    """Write one attempt as JSON; create a missing folder. Raises StoreUnavailable."""
    return _write(Path(folder) / attempt.file, json_text(attempt.plain()))


def write(report: Report, folder: str | os.PathLike[str]) -> list[Path]:
    """Write each attempt as JSON, and the run as JSON and HTML.

    Returns the paths. Raises StoreUnavailable. Files that were written before the error
    are complete.
    """
    paths = []
    for stage in report.stages:
        paths += [write_attempt(attempt, folder) for attempt in stage.attempts]

    pages = {"json": json_text(report.plain()), "html": html(report)}
    for suffix, text in pages.items():
        paths.append(_write(Path(folder) / f"{report.stem}.{suffix}", text))

    return paths


def json_text(document: Fields) -> str:
    """Return data as indented JSON, without secrets."""
    text = json.dumps(redact_data(document), indent=2, ensure_ascii=False)
    # Half of a surrogate pair has no UTF-8, but JSON has an escape for it.
    return text.encode("utf-8", "backslashreplace").decode() + "\n"


def _write(path: Path, text: str) -> Path:
    """Write a file beside `path`, and rename it to `path` when it is complete.

    Returns `path`. Raises StoreUnavailable.
    """
    part = path.with_name(f".{token_hex(8)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The content is on the disk before it has the name, or a power cut could leave
        # an empty report.
        with part.open("wb") as file:
            file.write(text.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise StoreUnavailable(
            f"the report {path} cannot be written ({error.strerror or error}); check "
            "the folder and the disk"
        ) from error
    return path


def output(
    before: StageAttempt | None, attempt: StageAttempt
) -> tuple[Sequence[str], str]:
    """Return the first lines of the attempt's output, and a note on what is left out.

    If there is an attempt `before`, the lines are a unified diff between the two
    outputs. The note is "" if nothing is left out and there is no diff.
    """
    lines, unread = read_lines(attempt.output)
    notes = []
    if before is not None:
        if before.output == attempt.output:
            return (), "the same output as before"

        lines_before, unread_before = read_lines(before.output)
        unread = max(unread, unread_before)
        # Without the names of files, which are the first two lines.
        lines = list(unified_diff(lines_before, lines, n=1, lineterm=""))[2:]
        signs = Counter(line[0] for line in lines)
        note = "no line differs, except for secrets or formatting"
        if lines:
            note = f"{counted(signs['-'], 'line')} removed, {signs['+']:,} added"
        notes.append(note)

    hidden = len(lines) - MAX_SHOWN_ROWS
    if hidden > 0:
        notes.append(f"{counted(hidden, 'more line')} not shown")
    if unread:
        notes.append(f"{counted(unread, 'character')} not read")

    return list(map(cut, lines[:MAX_SHOWN_ROWS])), "; ".join(notes)


@cache
def environment() -> "Environment":
    """Return the environment of templates."""
    from jinja2 import (
        Environment,
        PackageLoader,
        StrictUndefined,
        select_autoescape,
    )

    environment = Environment(
        loader=PackageLoader("heedful.pages"),
        autoescape=select_autoescape(("html.j2", "svg.j2"), default_for_string=False),
        # Hidden characters are shown even if a template forgets the filter.
        finalize=_finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )

    # Templates call these functions by their names.
    functions: tuple[Callable[..., Any], ...] = (
        bars,
        compared,
        cost,
        counted,
        find_failing,
        finding_of,
        first_equal,
        happened,
        hidden_checks,
        iso,
        lasted,
        marked,
        opened,
        output,
        say_doubt,
        shown_details,
        verdict,
        rung_name,
        without,
        worked,
    )
    environment.globals |= {function.__name__: function for function in functions}
    environment.globals |= {
        "SIGNS": STATUS_SIGNS,
        "CHECKS": MAX_SHOWN_ROWS,
        "FEEDBACK": 3_000,
    }

    filters: tuple[Callable[..., Any], ...] = (
        at_masks,
        clean,
        counted,
        cut,
        distance_note,
        iso,
        moment,
        percent,
        points,
        seen_words,
        signed,
        text,
    )
    environment.filters |= {function.__name__: function for function in filters}
    environment.tests["quiet"] = is_quiet
    return environment


def _finalized(value: Any) -> Any:
    """Return a value as a template writes it: a text with hidden characters shown."""
    # A Markup is a text, too, but of another type: it is safe already.
    return visible(value) if type(value) is str else value


def is_quiet(check: CheckResult) -> bool:
    """Return whether a check has passed and said nothing."""
    return check == CheckResult(check.check_name)


def visible(text: str) -> str:
    """Return the text without secrets, with escapes in place of hidden characters.

    Line breaks and tabs stay.

    >>> visible("safe\\u202etxt.exe")
    'safe\\\\u202etxt.exe'
    """
    return without_controls(redact(text))


def cut(text: str, most: int = MAX_SHOWN_TEXT_CHARS, left_out: int = 0) -> str:
    """Return the visible text, cut after `most` characters, with a count of others.

    `left_out` is the number of characters that `text` lacks already. A text that is no
    longer than what says so is not cut.

    >>> cut("temperature-07", 12), cut(30 * "x", 2)
    ('temperature-07', 'xx … and 28 characters')
    """
    text = visible(text)
    others = len(text) + left_out - most
    if others <= 0:
        return text

    shortened = f"{text[:most]} … and {counted(others, 'character')}"
    if not left_out and len(text) <= len(shortened):
        return text
    return shortened


def lasted(ms: float) -> str:
    """Format a duration in milliseconds.

    >>> [lasted(ms) for ms in (0.42, 15, 1240, 65_000, 7_380_000)]
    ['0.42 ms', '15 ms', '1.24 s', '1 min 5 s', '2 h 3 min']
    """
    if ms < 999.5:
        return f"{ms:.3g} ms"

    minutes, seconds = divmod(round(ms / 1000), 60)
    if not minutes:
        return f"{ms / 1000:.3g} s"
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def moment(seconds: float) -> str:
    """Return a time in UTC as people read it, to the second.

    >>> moment(0.5)
    '1970-01-01 00:00:00 UTC'
    """
    date, _, clock = iso(seconds).partition("T")
    return f"{date} {clock[:8]} UTC"


def shown_details(check: CheckResult) -> Document:
    """Return the details of a check that tell something beside its message.

    The key that a check has by default repeats its message, a severity that nobody set
    is the same everywhere, the message has a score, and the output a place.
    """
    details = {
        name: value for name, value in check.details.items() if name not in SAID_DETAILS
    }
    if str(details.get("key", "")).startswith(f"{check.check_name}:"):
        del details["key"]
    if details.get("severity") == DEFAULT_SEVERITY:
        del details["severity"]
    if isinstance(details.get("off_by"), float):
        details["off_by"] = format_off_by(details["off_by"])
    return details


def verdict(report: Report) -> str:
    """Describe how the run ended, first which check could not judge, and why."""
    troubled = find_failing(report)
    failing = describe_failing(troubled) if troubled else ""
    others = len(report.degraded) - 1
    if others > 0:
        failing += f"; {counted(others, f'other {report.noun}')} did not pass, too"
    ending = {
        "passed": _passed(report),
        "degraded": f"Degraded: the run went on after {failing}",
        "halted": f"Halted: {failing}",
        "failed": f"Failed: {failing}",
        "open": "Open: the run was interrupted, or is still going on",
    }[report.status]

    for stage in report.stages:
        for check in stage.attempts[-1].checks if stage.attempts else ():
            if check.status == "not_validated":
                words = "; ".join(filter(None, (check.message, check.suggestion)))
                return f"{stage.name} was not validated: {words}. {ending}"
    return ending


def find_failing(report: Report) -> StageReport | None:
    """Return the stage that ended a run, or else the first that did not pass."""
    troubled = [stage for stage in report.stages if stage.degraded]
    halted = [stage for stage in report.stages if stage.action in ("halted", "raised")]
    return next(iter([*halted, *troubled]), None)


def describe_failing(stage: StageReport) -> str:
    """Return in words by which check or exception a stage failed."""
    if stage.failure is not None:
        error = cut(stage.failure.error)
        return f"{cut(stage.name)} raised {error}, {moment(stage.failure.at)}"
    finding = finding_of(stage.attempts[-1]) if stage.attempts else ""
    name = cut(stage.name)
    return f"{name} failed by {cut(finding)}" if finding else f"{name} failed"


def _passed(report: Report) -> str:
    """Describe a run that went through, and which stages no check judged."""
    silent = unjudged(report)
    if silent and len(silent) == len(report.stages):
        stages = counted(len(silent), report.noun)
        return f"No check judged this run: its {stages} went through unchecked"

    recovered = sum(stage.recovered for stage in report.stages)
    tries = "each at its first attempt"
    if recovered:
        tries = f"{recovered} of them after a retry"
    doubt = f"; {cut(silent[0])} has no check" if silent else ""
    if len(silent) > 1:
        doubt = f"; {len(silent)} of them have no check"
    return f"Passed: every {report.noun}, {tries}{doubt}"


def unjudged(report: Report) -> list[str]:
    """Return the names of the stages that ended without a check, goal or evaluator."""
    return [stage.name for stage in report.stages if stage.status == "unchecked"]


def happened(stage: StageReport) -> str:
    """Describe in a few words how a stage ended."""
    count = len(stage.attempts)
    tries = f"after {counted(count, 'attempt')}"
    if stage.status == "unchecked":
        return "it has no check"

    unjudged = "not validated, " if stage.status == "not_validated" else ""
    warned = ", with warnings" if stage.status == "warning" else ""
    return {
        "passed": f"passed at attempt {stage.kept or count}{warned}",
        "continued": f"{unjudged}continued degraded {tries}",
        "best": f"{unjudged}continued degraded {tries}, with attempt {stage.kept}",
        "halted": f"{unjudged}halted {tries}",
        "stopped": f"stopped {tries}",
        "raised": f"failed {tries}",
        "open": f"interrupted {tries}",
        "not_run": "not run",
    }[stage.action]


def cost(report: Report) -> list[str]:
    """Return texts on the stages, attempts and retries, their time and their usage."""
    attempts = [len(stage.attempts) for stage in report.stages]
    retries = sum(number - 1 for number in attempts if number)
    parts = [
        counted(len(attempts), report.noun),
        counted(sum(attempts), "attempt"),
        counted(retries, "retry", "retries"),
        f"{lasted(worked(report))} in attempts",
    ]

    usage = report.usage
    if usage.calls:
        parts.append(counted(usage.calls, "call"))
    if usage.tokens:
        parts.append(f"{usage.tokens:,} tokens")
    if usage.cost:
        parts.append(f"cost {usage.cost:,.4g}")
    return parts


def rung_name(stage: StageReport, attempt: StageAttempt) -> str:
    """Return the name of the rung that made an attempt, "" without a ladder."""
    if stage.climb is None:
        return ""
    return Ladder(names=stage.climb.names).name(attempt.rung)


def text(value: Any) -> str:
    """Return a value as text: a text as it is, anything else as JSON; "" for None."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value

    indent = 1 if isinstance(value, Mapping) else None
    return json.dumps(value, ensure_ascii=False, indent=indent)


def at_masks(text: str) -> list[str]:
    """Return a text parted at the marks of secrets; every second part is a kind.

    >>> at_masks("key [redacted: aws_key] in use")
    ['key ', 'aws_key', ' in use']
    """
    return re.split(rf"{re.escape(MARK_START)}([\w -]+)\]", text)
