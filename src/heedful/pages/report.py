"""The report of a run as Markdown, as one HTML page, and as files that are never half
written.

The HTML page has the look of the pages of `web/`, but no script, and loads nothing.
Texts of a run are data on every page: secrets are redacted, hidden characters are
shown, markup is escaped, and long texts are cut with a count. Policies are drawn with
their Pareto front as an SVG file.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher, unified_diff
from functools import cache, partial
from itertools import count, pairwise
from math import ceil, floor, log10
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.errors import StoreUnavailable
from heedful.loop.replay import Figures
from heedful.loop.runs import CheckResult, Report, StageAttempt, StageReport, iso
from heedful.redact import redact, redact_data
from heedful.sanitize import clean

if TYPE_CHECKING:
    from jinja2 import Environment

STYLE_FILE = Path(__file__).parent / "templates/ui.css"  # the look of every page
_CHECK_SIGNS = {
    "passed": "✓",
    "warning": "!",
    "failed": "✗",
    "not_validated": "?",
}  # of a check
_END_SIGNS = {
    "degraded": "!",
    "halted": "✗",
    "stopped": "■",
    "open": "…",
    "not_run": "–",
}
STATUS_SIGNS: Mapping[str, str] = _CHECK_SIGNS | _END_SIGNS
STAGE_TABLE_HEADS = (
    "#",
    "stage",
    "status",
    "attempts",
    "time",
    "checks failed",
    "what happened",
)
MAX_ATTEMPT_CHECKS = 20  # checks of an attempt on a page
MAX_PAGE_OUTPUT_LINES = 40  # lines of its output
MAX_PAGE_FEEDBACK_CHARS = 3_000  # characters of its feedback
MAX_OUTPUT_READ_CHARS = 100_000  # characters of an output that are read
CUT_MARGIN_CHARS = (
    2_000  # characters dropped at the end of a cut text: they may be half a secret
)
MAX_OUTPUT_READ_LINES = (
    2_000  # lines of an output that are read: a diff of more can take minutes
)
MIN_SPLIT_LINE_CHARS = 200  # characters from which a line is split into sentences
MAX_PAGE_LINE_CHARS = 400  # characters after which a line or text is cut
MAX_WORD_DIFF_CHARS = (
    600  # characters of an output that is compared word by word, in less than 10 ms
)
MAX_WORD_DIFF_WORDS = (
    800  # words of a text that are compared; the rest counts as unchanged
)
# ("same", "gone", "new" or "place" in a long text, what is wrong with it, text)
Part = tuple[str, str, str]

_DIFF_WORD_PATTERN = re.compile(r"\w+(?:[.,]\w+)*|\s+|[^\w\s]")
_SENTENCE_PATTERN = re.compile(r".+?(?:[.!?;](?:\s+|\Z)|[。！？；]|\Z)")
# Characters that are markup in Markdown, or that make a text an address or a mention.
_MARKUP_PATTERN = re.compile(r"[\\`*_\[\]<>|&~$#@]|:(?=//)|(?<=www)\.")
# Invisible letters; controls, formats and separators are found by their category.
_BLANK_LETTERS = "\u034f\u115f\u1160\u17b4\u17b5\u2028\u2029\u3164\uffa0"


def html(report: Report) -> str:
    """Return the report as one HTML page."""
    return render("report.html.j2", report=report)


def markdown(report: Report, escape: bool = True) -> str:
    """Return the report as Markdown; without `escape`, for a terminal, names stay as
    they are.
    """
    return environment(escape).get_template("report.md.j2").render(report=report)


def render(template: str, **values: object) -> str:
    """Render a template in `heedful/pages/templates`; escape HTML and show hidden
    characters.
    """
    return environment(True).get_template(template).render(**values)


def write_html(report: Report, folder: str | os.PathLike[str]) -> Path:
    """Write the report as one HTML page; return its path. Raises StoreUnavailable."""
    return _write(Path(folder) / f"{report.stem}.html", html(report))


def write_attempt(attempt: StageAttempt, folder: str | os.PathLike[str]) -> Path:
    """Write one attempt as JSON; create `folder` if it is missing. Raises
    StoreUnavailable.
    """
    return _write(Path(folder) / attempt.file, _json(attempt.plain()))


def write(report: Report, folder: str | os.PathLike[str]) -> list[Path]:
    """Write each attempt as JSON, and the whole run as JSON, Markdown and HTML. Return
    the paths.

    Raises StoreUnavailable. Files that were written before the error are complete.
    """
    attempts = [attempt for stage in report.stages for attempt in stage.attempts]
    paths = [write_attempt(attempt, folder) for attempt in attempts]
    pages = {
        "json": _json(report.plain()),
        "md": markdown(report),
        "html": html(report),
    }
    return paths + [
        _write(Path(folder) / f"{report.stem}.{k}", pages[k]) for k in pages
    ]


def _json(plain: Mapping[str, Any]) -> str:
    text = json.dumps(redact_data(plain), indent=2, ensure_ascii=False)
    # Half of a surrogate pair has no UTF-8, but JSON has an escape for it.
    return text.encode("utf-8", "backslashreplace").decode() + "\n"


def _write(path: Path, text: str) -> Path:
    """Write a file beside `path` and rename it when it is complete."""
    part = path.with_name(f".{token_hex(8)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(text.encode("utf-8", "replace"))
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        why = error.strerror or error
        what = (
            f"the report {path} cannot be written ({why}); check the folder and the "
            "disk"
        )
        raise StoreUnavailable(what) from error
    return path


def output(
    before: StageAttempt | None, attempt: StageAttempt
) -> tuple[Sequence[str], str]:
    """Return the first lines of the attempt's output, and a note on what is left out.

    If there is an attempt `before`, the lines are a unified diff between the two
    outputs.
    """
    lines, rest = _read(attempt.output)
    notes = []
    if before is not None:
        if before.output == attempt.output:
            return (), "the same output as before"
        was, other = _read(before.output)
        rest = max(rest, other)
        lines = list(unified_diff(was, lines, n=1, lineterm=""))[
            2:
        ]  # without the file names
        signs = Counter(line[0] for line in lines)
        changed = f"{counted(signs['-'], 'line')} removed, {signs['+']:,} added"
        notes.append(
            changed if lines else "no line differs, except for secrets or formatting"
        )
    shown = list(map(cut, lines[:MAX_PAGE_OUTPUT_LINES]))
    left = len(lines) - MAX_PAGE_OUTPUT_LINES
    notes += [f"{counted(left, 'more line')} not shown"] * (left > 0)
    notes += [f"{counted(rest, 'character')} not read"] * bool(rest)
    return shown, "; ".join(notes)


def _read(text: str) -> tuple[list[str], int]:
    """Return the lines of `text` without secrets, and how many characters at its end
    were not read.

    JSON is indented, with sorted keys. Wide lines are split into sentences.
    """
    rest = (
        len(text) - MAX_OUTPUT_READ_CHARS + CUT_MARGIN_CHARS
        if len(text) > MAX_OUTPUT_READ_CHARS
        else 0
    )
    text = redact(text[:MAX_OUTPUT_READ_CHARS])[: -CUT_MARGIN_CHARS if rest else None]
    with suppress(ValueError, RecursionError):  # other text
        data = json.loads(text) if text.lstrip()[:1] in ("{", "[") else None
        text = (
            json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False)
            if data
            else text
        )
    lines: list[str] = []
    for line in text.split("\n") if text else ():
        lines += (
            [line]
            if len(line) <= MIN_SPLIT_LINE_CHARS
            else _SENTENCE_PATTERN.findall(line)
        )
    return lines[:MAX_OUTPUT_READ_LINES], rest + len(
        "\n".join(lines[MAX_OUTPUT_READ_LINES:])
    )


def changes(
    before: StageAttempt | None, attempt: StageAttempt
) -> tuple[Sequence[Part], str]:
    """Return the parts of the attempt's output, and a note on what is left out.

    A short output is compared with the output `before` word by word, and what the
    findings of the checks name is faulty. A long one is compared line by line, as in
    `output`.
    """
    lines, note = output(before, attempt)
    was, now = ("\n".join(_read(one.output)[0]) for one in (before or attempt, attempt))
    if (
        not 0 < len(lines) < MAX_PAGE_OUTPUT_LINES
        or max(len(was), len(now)) > MAX_WORD_DIFF_CHARS
    ):
        kinds = {"-": "gone", "+": "new", "@": "place"} if before else {}
        return [(kinds.get(line[:1], "same"), "", f"{line}\n") for line in lines], note
    checks = (one for one in attempt.checks if "span" in one.details)
    spans = [
        (*one.details["span"], f"{one.check_name}: {one.message}") for one in checks
    ]
    return marked(was, now, spans if now == attempt.output else ()), note


def marked(
    before: str, after: str, spans: Sequence[tuple[int, int, str]] = ()
) -> list[Part]:
    """Return the parts of two texts. They differ word by word.

    `spans` are the first faulty character of `after`, the first behind it, and what is
    wrong.

    >>> marked("high", "P1"), marked("a b", "a b", [(2, 3, "late")])
    ([('gone', '', 'high'), ('new', '', 'P1')], [('same', '', 'a '), ('same', 'late',
    'b')])
    """
    old, new = (
        _DIFF_WORD_PATTERN.findall(one)[:MAX_WORD_DIFF_WORDS] for one in (before, after)
    )
    changed = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    new.append(after[sum(map(len, new)) :])
    ends = {end for span in spans for end in span[:2]}
    parts = list[Part]()
    at = 0
    for kind, a, b, c, d in [*changed, ("equal", 0, 0, len(new) - 1, len(new))]:
        if a < b and kind != "equal":
            parts.append(("gone", "", "".join(old[a:b])))
        stop = at + sum(map(len, new[c:d]))
        for low, high in pairwise(
            sorted({at, stop, *(end for end in ends if at < end < stop)})
        ):
            faulty = "; ".join(
                why for first, behind, why in spans if first <= low < behind
            )
            parts.append(
                ("same" if kind == "equal" else "new", faulty, after[low:high])
            )
        at = stop
    return parts


@cache
def environment(escape: bool) -> Environment:
    """Return the environment of all templates; `escape` also escapes names in
    Markdown.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("heedful.pages"),
        autoescape=lambda name: bool(name and name.endswith((".html.j2", ".svg.j2"))),
        # Hidden characters are shown even if a template forgets the filter.
        finalize=lambda value: visible(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    facts = (changes, cost, counted, failures, happened, iso, lasted, marked, output)
    made.globals |= {fact.__name__: fact for fact in (*facts, verdict, worked)}
    made.globals |= {
        "SIGNS": STATUS_SIGNS,
        "HEADS": STAGE_TABLE_HEADS,
        "CHECKS": MAX_ATTEMPT_CHECKS,
        "FEEDBACK": MAX_PAGE_FEEDBACK_CHARS,
    }
    made.filters |= {one.__name__: one for one in (clean, counted, cut, iso, text)}
    made.filters |= {"fence": _fence, "line": partial(_line, escape=escape)}
    made.tests["quiet"] = lambda check: check == CheckResult(check.check_name)
    return made


def _line(text: str, escape: bool) -> str:
    """Return the text as one line, with `escape` as Markdown that is safe in tables,
    too.
    """
    plain = re.sub(r"\s*\n\s*", " ⏎ ", cut(text).strip()).replace("\t", " ")
    return (
        _MARKUP_PATTERN.sub(lambda special: f"\\{special[0]}", plain)
        if escape
        else plain
    )


def _fence(text: str, kind: str = "") -> str:
    """Return a fenced code block. The fence is longer than any run of backticks in the
    text.
    """
    ticks = max(["``", *re.findall("`+", text)], key=len) + "`"
    return f"{ticks}{kind}\n{text}\n{ticks}"


def visible(text: str) -> str:
    """Return the text without secrets; hidden characters are replaced by their code
    points.

    Line breaks and tabs stay.

    >>> visible("safe\\u202etxt.exe")
    'safe[U+202E]txt.exe'
    """
    text = redact(text)
    hidden = {
        c for c in set(text) if c in _BLANK_LETTERS or unicodedata.category(c)[0] == "C"
    } - {*"\n\t"}
    if not hidden:
        return text
    mark = re.escape("".join(hidden))
    # A joiner between visible characters outside ASCII belongs to a script or an emoji.
    shown = f"[^\\x00-\\x7f{mark}]"
    pattern = re.compile(f"((?<={shown})[\u200c\u200d](?={shown}))|[{mark}]")
    return pattern.sub(lambda found: found[1] or f"[U+{ord(found[0]):04X}]", text)


def cut(text: str, most: int = MAX_PAGE_LINE_CHARS) -> str:
    """Return the visible text. If it is longer than `most` characters, cut it and add a
    count.
    """
    text = visible(text)
    left = len(text) - most
    return f"{text[:most]} … and {counted(left, 'character')}" if left > 0 else text


def counted(number: int, noun: str, nouns: str = "") -> str:
    """Return a number with its noun.

    >>> counted(1, "retry", "retries"), counted(1200, "line")
    ('1 retry', '1,200 lines')
    """
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


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
    return (
        f"{minutes} min {seconds} s"
        if minutes < 60
        else f"{minutes // 60} h {minutes % 60} min"
    )


def verdict(report: Report) -> str:
    """Describe how the run ended."""
    recovered = sum(stage.recovered for stage in report.stages)
    how = (
        f"{recovered} of them after a retry"
        if recovered
        else "each at its first attempt"
    )
    return {
        "passed": f"Passed: every {report.noun}, {how}",
        "degraded": f"Degraded: the run went on after a {report.noun} that did not pass",
        "halted": "Halted: a stage did not pass, and the run stopped there",
        "open": "Open: the run was interrupted, or is still going on",
    }[report.status]


def happened(stage: StageReport) -> str:
    """Describe in a few words how a stage ended."""
    count = len(stage.attempts)
    tries = f"after {counted(count, 'attempt')}"
    unjudged = "not validated, " if stage.status == "not_validated" else ""
    if stage.action == "passed" and unjudged:
        return "not validated: it has no check"
    warned = ", with warnings" if stage.status == "warning" else ""
    return {
        "passed": f"passed at attempt {stage.kept or count}{warned}",
        "continued": f"{unjudged}continued degraded {tries}",
        "best": f"{unjudged}continued degraded {tries}, with attempt {stage.kept}",
        "halted": f"{unjudged}halted {tries}",
        "stopped": f"stopped {tries}",
        "open": f"interrupted {tries}",
        "not_run": "not run",
    }[stage.action]


def failures(stage: StageReport) -> list[str]:
    """Return the names of the checks that failed in any attempt, without duplicates."""
    return list(
        dict.fromkeys(
            check.check_name for one in stage.attempts for check in one.failed
        )
    )


def cost(report: Report) -> list[str]:
    """Return texts with the numbers of stages, attempts and retries, the time and the
    usage.
    """
    made = [len(stage.attempts) for stage in report.stages]
    usage = report.usage
    retries = sum(max(0, count - 1) for count in made)
    parts = [counted(len(made), report.noun), counted(sum(made), "attempt")]
    parts += [
        counted(retries, "retry", "retries"),
        f"{lasted(worked(report))} in attempts",
    ]
    parts += [counted(usage.calls, "call")] * bool(usage.calls)
    parts += [f"{usage.tokens:,} tokens"] * bool(usage.tokens)
    return parts + [f"cost {usage.cost:,.4g}"] * bool(usage.cost)


def worked(of: Report | StageReport) -> float:
    """Return how many milliseconds the attempts of a run or a stage took."""
    stages = of.stages if isinstance(of, Report) else (of,)
    return sum(
        attempt.execution_time_ms for stage in stages for attempt in stage.attempts
    )


def text(value: Any) -> str:
    """Return a value as text: a text as it is, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(
        value, ensure_ascii=False, indent=1 if isinstance(value, Mapping) else None
    )


MAX_DRAWING_NAME_CHARS = 60  # characters of a name in a drawing


def axis(label: str, values: Sequence[float]) -> dict[str, Any]:
    """Return an axis that contains all `values`; its ticks are round numbers with their
    texts.
    """
    span = max(values) - min(values) or 0.1
    power = 10 ** floor(log10(span / 4))
    step = next(
        power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= 6
    )
    first = floor(min(values) / step)
    last = max(ceil(max(values) / step), first + 1)  # also if all values are equal
    digits = max(0, ceil(-log10(step)))
    ticks = [(n * step, f"{n * step:.{digits}f}") for n in range(first, last + 1)]
    return {"label": label, "low": first * step, "high": last * step, "ticks": ticks}


class Point(NamedTuple):
    """A policy: `cost` is its attempts ÷ the oracle's, `solved` is solved ÷ solvable
    loops.
    """

    name: str
    cost: float
    solved: float

    @classmethod
    def of(cls, figures: Figures) -> Point:
        """Return the point for the figures of a policy."""
        cost = figures.attempts / figures.oracle if figures.oracle else 1.0
        solved = figures.solved / figures.solvable if figures.solvable else 1.0
        return cls(figures.policy, cost, solved)


def front(points: Iterable[Point]) -> list[Point]:
    """Return the Pareto front by rising cost: each point solves more than every cheaper
    point.
    """
    best: list[Point] = []
    for point in sorted(points, key=lambda one: (one.cost, -one.solved)):
        if not best or point.solved > best[-1].solved:
            best.append(point)
    return best


def frontier(
    named: Sequence[Point], others: Sequence[Point] = (), marks: Iterable[str] = ()
) -> dict[str, Any]:
    """Return what draws policies. At its place, a named point has its mark, or its
    number.
    """
    line = front([*named, *others])
    labels = defaultdict[tuple[float, float], list[str]](list)
    dots = [
        *(("other", one) for one in others),
        ("oracle", Point("oracle", 1.0, solved=1.0)),
    ]
    for mark, one in zip(marks or map(str, count(1)), named, strict=False):
        best = any(one[1:] == each[1:] for each in line)
        dots.append(("front" if best else "dot", one))
        labels[round(one.cost, 3), round(one.solved, 3)].append(mark)
    x = axis("attempts ÷ the oracle's", [one.cost for _, one in dots])
    y = axis("solved ÷ solvable", [one.solved for _, one in dots])
    places = [(*place, ", ".join(those)) for place, those in sorted(labels.items())]
    return {"x": x, "y": y, "dots": dots, "labels": places, "line": line}


def draw_front(named: Sequence[Point], title: str, others: Sequence[Point] = ()) -> str:
    """Draw the cost and the quality of policies. `others` are small dots without a
    name.
    """
    chart = frontier(named, others)
    key = [("oracle", "oracle: stops at the right one"), ("front", "Pareto front")]
    for number, (kind, one) in enumerate(chart["dots"][len(others) + 1 :], 1):
        key.append((kind, f"{number}  {cut(one.name, MAX_DRAWING_NAME_CHARS)}"))
    return render("plot.svg.j2", title=title, chart=chart, key=key)
