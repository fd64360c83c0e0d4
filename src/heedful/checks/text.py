"""Checks of a text: its length, words that must or must not occur, patterns.

Every check reports a candidate that is no text, is empty, or has over
`MAX_CHECKED_CHARS` characters.

`regex` estimates how many steps a match may take. A pattern that could take long is
matched in another process with a time limit, because Python's `re` cannot be stopped.
"""

import json
import re
import sys
import unicodedata
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

from heedful.checks.evaluate import Context
from heedful.errors import InvalidInput
from heedful.loop.record import Finding
from heedful.loop.stop import check_names
from heedful.validation import check_integer, require

MAX_CHECKED_CHARS = 1_000_000  # a longer text is a finding


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TextCheck:
    """A check that passes the text to `judge`; a candidate that is not text is a
    finding.

    The findings are reported under the check names in `names`, by default only `name`.
    """

    name: str
    judge: Callable[[str, Context], Any] = field(repr=False)
    pure: bool = True
    names: tuple[str, ...] = ()

    def __call__(self, candidate: Any, context: Context) -> Any:
        """Return the findings, or an awaitable of the findings."""
        text = read(check_names([self])[0], candidate)
        if isinstance(text, Finding):
            return [text]
        findings = self.judge(text, context)
        return findings if hasattr(findings, "__await__") else list(findings)


def read(check: str, candidate: Any) -> str | Finding:
    """Return the candidate, or a finding if it is None, not text, empty or too long."""
    fix = "answer with text"
    if candidate is None:
        kind = "no answer"
        message = "there is no answer (None)"
    elif not isinstance(candidate, str):
        kind = "not text"
        message = f"the answer is a {type(candidate).__name__}, not text"
    elif len(candidate) > MAX_CHECKED_CHARS:
        message = (
            f"the answer has {len(candidate):,} characters, more than the limit of "
            f"{MAX_CHECKED_CHARS:,}"
        )
        kind = "too long"
        fix = f"answer in far fewer than {MAX_CHECKED_CHARS:,} characters"
    elif not candidate or candidate.isspace():
        kind = "empty"
        message = "the answer is empty or contains only whitespace"
    else:
        return candidate
    return Finding(check, message, fix=fix, severity=0.9, key=f"{check}: {kind}")


def shorten(value: object, most: int = 80) -> str:
    """Return the `repr` of a value, shortened to `most` characters.

    >>> shorten("a" * 100, 12)
    "'aaaaaaaaa…'"
    """
    if isinstance(value, str):
        value = value[:most]
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 2]}…{text[-1]}"


def words(at_least: int = 0, at_most: int | None = None) -> TextCheck:
    """Check that the text has from `at_least` to `at_most` words.

    Whitespace separates words; use `characters` for scripts without spaces. Raises
    InvalidInput without any bound, or for bounds that no text can meet.
    """
    return _length("words", lambda text: len(text.split()), at_least, at_most)


def characters(at_least: int = 0, at_most: int | None = None) -> TextCheck:
    """Check that the text has from `at_least` to `at_most` characters (code points).

    Raises what `words` raises.
    """
    return _length("characters", len, at_least, at_most)


def _length(
    unit: str, size: Callable[[str], int], at_least: int, at_most: int | None
) -> TextCheck:
    check_integer("at_least", at_least, least=0)
    if at_most is not None:
        check_integer("at_most", at_most, max(1, at_least))
    require(
        at_least or at_most is not None,
        "at_least",
        at_least,
        "above 0 if there is no at_most",
    )

    def finding(count: int, demand: str, key: str, fix: str) -> Finding:
        counted = unit if count != 1 else unit[:-1]
        return Finding(
            unit,
            f"{count} {counted}, {demand} asked for",
            fix=f"use {demand} {unit}: {fix} or more",
            key=unit + key,
        )

    def judge(text: str, _: Context) -> Iterator[Finding]:
        count = size(text)
        if count < at_least:
            missing = at_least - count
            yield finding(
                count, f"at least {at_least}", f">={at_least}", f"add {missing}"
            )
        if at_most is not None and count > at_most:
            surplus = count - at_most
            yield finding(count, f"at most {at_most}", f"<={at_most}", f"cut {surplus}")

    return TextCheck(name=unit, judge=judge)


def contains(*needles: str) -> TextCheck:
    """Check that every needle occurs in the text, ignoring case.

    Each missing needle is a finding. Raises InvalidInput without needles or for an
    empty needle.
    """
    return _occurrence("contains", needles)


def excludes(*needles: str) -> TextCheck:
    """Check that no needle occurs in the text, ignoring case.

    Each needle that occurs is a finding with its first position. Raises what `contains`
    raises.
    """
    return _occurrence("excludes", needles)


def _occurrence(name: str, needles: Sequence[str]) -> TextCheck:
    require(bool(needles), "needles", needles, "one text or more: it is required")
    for needle in needles:
        require(
            isinstance(needle, str) and needle,
            "needles",
            needle,
            "text that is not empty",
        )

    def judge(text: str, _: Context) -> Iterator[Finding]:
        folded = text.casefold()
        for needle in dict.fromkeys(needles):
            position = folded.find(needle.casefold())
            quoted = shorten(needle, 120)
            key = f"{name} {needle!r}"
            if name == "contains" and position < 0:
                yield Finding(
                    name, f"{quoted} is missing", fix=f"write {quoted} in it", key=key
                )
            if name == "excludes" and position >= 0:
                where = ""
                span = None
                # Folding can change the length ("ß" is "ss"), and with it the
                # positions.
                if len(folded) == len(text):
                    where = f" at character {position}"
                    span = (position, position + len(needle))
                message = f"{quoted} occurs{where}, which is not allowed"
                yield Finding(
                    name, message, fix=f"leave out {quoted}", key=key, span=span
                )

    return TextCheck(name=name, judge=judge)


def equals(expected: str) -> TextCheck:
    """Check that the text equals `expected`, ignoring case.

    Any run of whitespace counts as one space; whitespace at the ends is ignored.
    Full-width digits, ligatures and similar characters count as plain characters. The
    finding does not show `expected`, so a model cannot copy it. Raises InvalidInput if
    `expected` is empty or not text.
    """
    is_text = isinstance(expected, str) and expected.strip()
    require(is_text, "expected", expected, "text that is not empty")

    def normal(text: str) -> str:
        # Folding can undo the normalisation, so normalise again.
        folded = unicodedata.normalize("NFKC", text).casefold()
        return " ".join(unicodedata.normalize("NFKC", folded).split())

    wanted = normal(expected)

    def judge(text: str, _: Context) -> Iterator[Finding]:
        if normal(text) != wanted:
            message = f"{shorten(text)} is not the expected answer"
            fix = "work the answer out again; it must equal the expected one"
            yield Finding("equals", message, fix=fix, key="equals")

    return TextCheck(name="equals", judge=judge)


def not_empty() -> TextCheck:
    """Check that the text contains more than whitespace."""
    return TextCheck(name="not_empty", judge=lambda text, _: ())


# Python's `re` can take exponential time on a few dozen characters and cannot be
# interrupted, so a pattern is matched in this process only if its shape bounds the
# work.
MAX_IN_PROCESS_STEPS = 20_000_000  # of matching: a few tenths of a second
MATCH_TIMEOUT_SECONDS = 5.0  # of matching in another process
_ESCAPES_AND_CLASSES_PATTERN = re.compile(
    r"\\[^1-9]|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL
)
# A repeated group, a back reference, a comment, or ignored whitespace.
_BACKTRACKING_PATTERN = re.compile(r"\)[*+{]|\\[1-9]|\(\?P=|\(\?#|\(\?[aiLmsu]*x")
_MATCH_SCRIPT = """
import json, re, sys
pattern, text, full = json.load(sys.stdin)
found = re.compile(pattern)
print(bool(found.fullmatch(text) if full else found.search(text)))
"""


def regex(pattern: str, fix: str = "", full: bool = True) -> TextCheck:
    """Check that the text matches `pattern`, a regular expression of Python.

    `fix` replaces the advice in the finding. With `full` the whole text must match,
    including whitespace at its ends. If matching could take very long (repeated groups,
    several repeats over a long text), the check returns an awaitable and matches in a
    separate process; more than `MATCH_TIMEOUT_SECONDS` of wall time is a finding.
    Raises InvalidInput for a pattern that does not compile.
    """
    require(
        isinstance(pattern, str) and pattern,
        "pattern",
        pattern,
        "text that is not empty",
    )
    require(isinstance(fix, str), "fix", fix, "text")
    require(isinstance(full, bool), "full", full, "true or false")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        allowed = f"a regular expression of Python's re ({error})"
        raise InvalidInput("pattern", pattern, allowed) from error
    quoted = f"'{pattern}'"  # as written: `repr` would double each backslash
    max_steps = _step_estimate(pattern, full=full)

    def findings(text: str, *, matches: bool) -> list[Finding]:
        if matches:
            return []
        verb = "match" if full else "contain anything that matches"
        extent = "entirely " if full else ""
        advice = fix or f"answer with text that {extent}matches {quoted}"
        if full and text != text.strip():
            advice += "; there is whitespace around the answer, which counts"
        message = f"{shorten(text)} does not {verb} {quoted}"
        return [Finding("regex", message, fix=advice, key=f"regex {pattern}")]

    async def match_apart(text: str) -> list[Finding]:
        matches = await _matches_apart(pattern, text, full=full)
        if matches is not None:
            return findings(text, matches=matches)
        message = (
            f"matching {quoted} did not end within {MATCH_TIMEOUT_SECONDS:g} s on "
            f"{len(text)} characters"
        )
        advice = fix or f"answer with a shorter text that plainly matches {quoted}"
        return [Finding("regex", message, fix=advice, key=f"regex time-out {pattern}")]

    def judge(text: str, _: Context) -> list[Finding] | Awaitable[list[Finding]]:
        if max_steps(len(text)) > MAX_IN_PROCESS_STEPS:
            return match_apart(text)
        match = re.fullmatch(pattern, text) if full else re.search(pattern, text)
        return findings(text, matches=match is not None)

    return TextCheck(name="regex", judge=judge)


def _step_estimate(pattern: str, *, full: bool) -> Callable[[int], float]:
    """Return an estimate of the steps of matching a text of a length.

    It is infinite if the steps may be exponential.
    """
    literal = _ESCAPES_AND_CLASSES_PATTERN.sub("x", pattern)
    repeats = len(re.findall(r"[*+{]", literal))
    if not full:  # every position may begin a match
        repeats += 1
    forks = len(re.findall(r"\||(?<!\()\?", literal))
    steps = inf
    if not _BACKTRACKING_PATTERN.search(literal):
        steps = len(literal) * 2**forks

    def estimate(length: int) -> float:
        positions: int = length**repeats
        return steps * positions

    return estimate


async def _matches_apart(pattern: str, text: str, *, full: bool) -> bool | None:
    """Match in another process; None if it does not end in time."""
    import asyncio
    import subprocess

    run = partial(
        subprocess.run,
        [sys.executable, "-I", "-S", "-c", _MATCH_SCRIPT],
        input=json.dumps([pattern, text, full]),
        capture_output=True,
        check=True,
        text=True,
        timeout=MATCH_TIMEOUT_SECONDS,
    )
    try:
        ended = await asyncio.to_thread(run)
    except subprocess.TimeoutExpired:
        return None
    return ended.stdout.strip() == "True"
