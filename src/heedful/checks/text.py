"""Checks of a text: its length, words that must or must not occur, patterns.

Every check reports a candidate that is not text, is empty, or has over
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
from math import inf
from typing import Any, Literal

from heedful.checks.evaluate import Context, RemadeCheck, over_http, remade
from heedful.errors import InvalidInput
from heedful.faults import shorten
from heedful.loop.record import Finding, relative_distance
from heedful.loop.stop import check_names
from heedful.validation import check_integer, require

MAX_CHECKED_CHARS = 1_000_000  # a longer text is a finding


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TextCheck(RemadeCheck):
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
    """Return the candidate, or a finding if it is None, not text, empty or too long.

    `check` is the name of the check that reports it.
    """
    fix = "answer with text"
    if candidate is None:
        kind = "no answer"
        message = "there is no answer (None)"
    elif not isinstance(candidate, str):
        kind = "not text"
        message = f"the answer is of type {type(candidate).__name__}, not text"
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


@over_http("thread")
@remade
def words(at_least: int = 0, at_most: int | None = None) -> TextCheck:
    """Check that the text has from `at_least` to `at_most` words.

    Whitespace separates words; use `characters` for scripts without spaces. Raises
    InvalidInput without any bound, or for bounds that no text can meet.
    """
    return _make_length_check(
        "words", lambda text: len(text.split()), at_least, at_most
    )


@over_http("thread")
@remade
def characters(at_least: int = 0, at_most: int | None = None) -> TextCheck:
    """Check that the text has from `at_least` to `at_most` characters (code points).

    Raises what `words` raises.
    """
    return _make_length_check("characters", len, at_least, at_most)


def _make_length_check(
    unit: str, size: Callable[[str], int], at_least: int, at_most: int | None
) -> TextCheck:
    """Make the check `words` or `characters`; `size` counts the units of a text."""
    check_integer("at_least", at_least, least=0)
    if at_most is not None:
        check_integer("at_most", at_most, max(1, at_least))

    require(
        at_least or at_most is not None,
        "at_least",
        at_least,
        "above 0 if there is no at_most",
    )

    def judge(text: str, _: Context) -> Iterator[Finding]:
        """Yield a finding if the text is too short or too long."""
        count = size(text)
        size_text = f"{count} {unit}" if count != 1 else f"1 {unit[:-1]}"

        if count < at_least:
            yield Finding(
                unit,
                f"{size_text}, at least {at_least} asked for",
                fix=f"use at least {at_least} {unit}: add {at_least - count} or more",
                key=f"{unit}>={at_least}",
                rule=f"use at least {at_least} {unit}",
                off_by=relative_distance(count, at_least),
            )

        if at_most is not None and count > at_most:
            yield Finding(
                unit,
                f"{size_text}, at most {at_most} asked for",
                fix=f"use at most {at_most} {unit}: cut {count - at_most} or more",
                key=f"{unit}<={at_most}",
                rule=f"use at most {at_most} {unit}",
                off_by=relative_distance(count, at_most),
            )

    return TextCheck(name=unit, judge=judge)


@over_http("thread")
@remade
def contains(*needles: str) -> TextCheck:
    """Check that every needle occurs in the text, ignoring case.

    Each missing needle is a finding. Raises InvalidInput without needles or for an
    empty needle.
    """
    return _make_occurrence_check("contains", needles)


@over_http("thread")
@remade
def excludes(*needles: str) -> TextCheck:
    """Check that no needle occurs in the text, ignoring case.

    Each needle that occurs is a finding with its first position. Raises what `contains`
    raises.
    """
    return _make_occurrence_check("excludes", needles)


def _make_occurrence_check(
    name: Literal["contains", "excludes"], needles: Sequence[str]
) -> TextCheck:
    """Make the check `contains` or `excludes`."""
    require(bool(needles), "needles", needles, "one text or more: it is required")
    for needle in needles:
        is_text = isinstance(needle, str) and needle
        require(is_text, "needles", needle, "text that is not empty")

    def judge(text: str, _: Context) -> Iterator[Finding]:
        """Yield a finding for each needle that is missing, or that must not occur."""
        folded = text.casefold()
        for needle in dict.fromkeys(needles):
            position = folded.find(needle.casefold())
            quoted = shorten(needle, 120)
            key = f"{name} {needle!r}"

            if name == "contains" and position < 0:
                yield Finding(
                    name,
                    f"{quoted} is missing",
                    fix=f"write {quoted} in it",
                    key=key,
                    rule=f"write {quoted} in the answer",
                )

            if name == "excludes" and position >= 0:
                where = ""
                span = None
                # Folding can change the length ("ß" is "ss"), and so the positions.
                if len(folded) == len(text):
                    where = f" at character {position}"
                    span = (position, position + len(needle))
                message = f"{quoted} occurs{where}, which is not allowed"
                yield Finding(
                    name,
                    message,
                    fix=f"leave out {quoted}",
                    key=key,
                    span=span,
                    rule=f"leave {quoted} out of the answer",
                )

    return TextCheck(name=name, judge=judge)


@over_http("thread")
@remade
def equals(expected: str) -> TextCheck:
    """Check that the text equals `expected`, ignoring case.

    Any run of whitespace counts as one space; whitespace at the ends is ignored.
    Full-width digits, ligatures and similar characters count as plain characters. The
    finding does not show `expected`, so a model cannot copy it. Raises InvalidInput if
    `expected` is empty or not text.
    """
    is_text = isinstance(expected, str) and expected.strip()
    require(is_text, "expected", expected, "text that is not empty")
    expected_text = _normalize(expected)

    def judge(text: str, _: Context) -> Iterator[Finding]:
        """Yield a finding if the text differs."""
        if _normalize(text) != expected_text:
            message = f"{shorten(text)} is not the expected answer"
            fix = "work the answer out again; it must equal the expected one"
            yield Finding("equals", message, fix=fix, key="equals")

    return TextCheck(name="equals", judge=judge)


def _normalize(text: str) -> str:
    """Return the text as `equals` compares it."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    # Folding can undo the normalisation, so normalise again.
    return " ".join(unicodedata.normalize("NFKC", folded).split())


@over_http("thread")
@remade
def not_empty() -> TextCheck:
    """Check that the text contains more than whitespace."""
    return TextCheck(name="not_empty", judge=lambda text, _: ())


# Python's `re` can take exponential time on a few dozen characters and cannot be
# interrupted, so a pattern is matched in this process only if its shape bounds the
# work.
MAX_IN_PROCESS_STEPS = 20_000_000  # of matching: a few tenths of a second
MATCH_TIMEOUT_SECONDS = 5.0  # of matching in another process
# What may take exponential time: a repeated group as in "(a+)+", a back reference, a
# comment, or ignored whitespace.
_BACKTRACKING_PATTERN = re.compile(r"\)[*+{]|\\[1-9]|\(\?P=|\(\?#|\(\?[aiLmsu]*x")
_MATCH_SCRIPT = """
import json, re, sys
try:
    import resource
    # The process that asked may be killed before it can stop this one.
    resource.setrlimit(resource.RLIMIT_CPU, (6, 6))
except ImportError:
    pass  # Windows has no such limit
pattern, text, full = json.load(sys.stdin)
found = re.compile(pattern)
print(bool(found.fullmatch(text) if full else found.search(text)))
"""


@over_http("thread")
@remade
def regex(pattern: str, fix: str = "", full: bool = True) -> TextCheck:
    """Check that the text matches `pattern`, a regular expression of Python.

    `fix` replaces the advice in the finding. With `full` the whole text must match,
    including whitespace at its ends. If matching could take very long (repeated groups,
    several repeats over a long text), the check returns an awaitable and matches in a
    separate process; more than `MATCH_TIMEOUT_SECONDS` of wall time is a finding.
    Raises InvalidInput for a pattern that does not compile.
    """
    is_text = isinstance(pattern, str) and pattern
    require(is_text, "pattern", pattern, "text that is not empty")
    require(isinstance(fix, str), "fix", fix, "text")
    require(isinstance(full, bool), "full", full, "true or false")

    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        allowed = f"a regular expression of Python's re ({error})"
        raise InvalidInput("pattern", pattern, allowed) from error

    rule = _RegexRule(
        pattern=pattern,
        fix=fix,
        full=full,
        estimate_steps=_step_estimate(pattern, full=full),
    )
    return TextCheck(name="regex", judge=rule.judge)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RegexRule:
    """What `regex` checks: the fields are its arguments.

    `estimate_steps` estimates the steps of matching a text of a length.
    """

    pattern: str
    fix: str
    full: bool
    estimate_steps: Callable[[int], float]

    def judge(self, text: str, _: Context) -> list[Finding] | Awaitable[list[Finding]]:
        """Return the findings, or an awaitable if matching may take long."""
        if self.estimate_steps(len(text)) > MAX_IN_PROCESS_STEPS:
            return self.judge_apart(text)
        match = re.fullmatch if self.full else re.search
        return self.findings(text, matches=match(self.pattern, text) is not None)

    async def judge_apart(self, text: str) -> list[Finding]:
        """Return the findings by a match in another process."""
        matches = await _matches_apart(self.pattern, text, full=self.full)
        if matches is not None:
            return self.findings(text, matches=matches)

        message = (
            f"matching '{self.pattern}' did not end within {MATCH_TIMEOUT_SECONDS:g} s "
            f"on {len(text)} characters"
        )
        advice = f"answer with a shorter text that plainly matches '{self.pattern}'"
        key = f"regex time-out {self.pattern}"
        return [Finding("regex", message, fix=self.fix or advice, key=key)]

    def findings(self, text: str, *, matches: bool) -> list[Finding]:
        """Return the finding about a text that does not match."""
        if matches:
            return []

        # The pattern is shown as written: `repr` would double each backslash.
        message = f"{shorten(text)} does not match '{self.pattern}'"
        advice = f"answer with text that entirely matches '{self.pattern}'"
        if not self.full:
            message = (
                f"{shorten(text)} does not contain anything that matches "
                f"'{self.pattern}'"
            )
            advice = f"answer with text that matches '{self.pattern}'"

        fix = self.fix or advice
        rule = ": ".join(filter(None, [advice, self.fix]))
        if self.full and text != text.strip():
            fix += "; there is whitespace around the answer, which counts"
        key = f"regex {self.pattern}"
        return [Finding("regex", message, fix=fix, key=key, rule=rule)]


def _step_estimate(pattern: str, *, full: bool) -> Callable[[int], float]:
    """Return a function that estimates the steps of matching a text of a length.

    The estimate is infinite if the steps may be exponential.
    """
    if _BACKTRACKING_PATTERN.search(pattern):
        return lambda length: inf

    # Escaped characters count too: at worst, another process matches.
    repeats = sum(map(pattern.count, "*+{"))
    if not full:  # every position may begin a match
        repeats += 1
    # Each "|", and each "?" that does not begin a group as in "(?:", is tried twice.
    forks = pattern.count("|") + pattern.count("?") - pattern.count("(?")
    # A class of many characters compares each of them.
    steps = len(pattern) * 2**forks
    return lambda length: steps * length**repeats


async def _matches_apart(pattern: str, text: str, *, full: bool) -> bool | None:
    """Return whether a text matches, by another process; None after the time limit."""
    import asyncio
    import subprocess

    try:
        process = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-I", "-S", "-c", _MATCH_SCRIPT],
            input=json.dumps([pattern, text, full]),
            capture_output=True,
            check=True,
            text=True,
            timeout=MATCH_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return None

    return process.stdout.strip() == "True"
