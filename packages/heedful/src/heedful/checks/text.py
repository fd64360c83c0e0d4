"""Checks of a text: its length, words that must or must not occur, patterns.

Every check reports a candidate that is not text, is empty, or has over
`MAX_CHECKED_CHARS` characters.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from heedful.checks.evaluate import Context, RemadeCheck, over_http, remade
from heedful.errors import InvalidInput
from heedful.faults import shorten
from heedful.loop.finding_key import relative_distance
from heedful.loop.record import Finding
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
    judge: Callable[[str, Context], Iterable[Finding]] = field(repr=False)
    pure: bool = True
    names: tuple[str, ...] = ()

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        """Return the findings."""
        text = read(check_names([self])[0], candidate)
        if isinstance(text, Finding):
            return [text]
        return list(self.judge(text, context))


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


@over_http("process")  # matching may take exponential time
@remade
def regex(pattern: str, fix: str = "", full: bool = True) -> TextCheck:
    """Check that the text matches `pattern`, a regular expression of Python.

    `fix` replaces the advice in the finding. With `full` the whole text must match,
    including whitespace at its ends. Matching has no limit of time. Raises InvalidInput
    for a pattern that does not compile.
    """
    is_text = isinstance(pattern, str) and pattern
    require(is_text, "pattern", pattern, "text that is not empty")
    require(isinstance(fix, str), "fix", fix, "text")
    require(isinstance(full, bool), "full", full, "true or false")

    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        allowed = f"a regular expression of Python's re ({error})"
        raise InvalidInput("pattern", pattern, allowed) from error
    match = compiled.fullmatch if full else compiled.search

    # The pattern is shown as written: `repr` would double each backslash.
    fault = f"does not match '{pattern}'"
    advice = f"answer with text that entirely matches '{pattern}'"
    if not full:
        fault = f"does not contain anything that matches '{pattern}'"
        advice = f"answer with text that matches '{pattern}'"
    rule = ": ".join(filter(None, [advice, fix]))

    def judge(text: str, _: Context) -> Iterator[Finding]:
        """Yield the finding about a text that does not match."""
        if match(text):
            return
        cure = fix or advice
        if full and text != text.strip():
            cure += "; there is whitespace around the answer, which counts"
        yield Finding(
            "regex",
            f"{shorten(text)} {fault}",
            fix=cure,
            key=f"regex {pattern}",
            rule=rule,
        )

    return TextCheck(name="regex", judge=judge)
