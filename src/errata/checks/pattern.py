"""`regex`: a text matches a pattern, with a bound on the time that backtracking may take.

Python's `re` can take exponential time on a few dozen characters and cannot be interrupted. So a
pattern is matched in this process only where a plain reading of it bounds the work; otherwise it is
matched in a process of its own, which is killed when its time is up.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, log2
from typing import Any

from errata.checks.reading import flag, positive, read, shorten, written
from errata.errors import InvalidInput
from errata.loop.record import Finding
from errata.protocols import Context

CHEAP = 20_000_000
"""Steps of backtracking that are allowed in this process: well under a second."""

_FEW = 8
_SCRIPT = """
import json, re, sys
pattern, text, full = json.load(sys.stdin)
found = re.compile(pattern)
print(bool(found.fullmatch(text) if full else found.search(text)))
"""


@dataclass(frozen=True, slots=True)
class Regex:
    """The text matches `pattern`: all of it with `full`, else some part of it."""

    pattern: str
    message: str = ""
    fix: str = ""
    full: bool = True
    seconds: float = 5.0
    name: str = field(default="regex", init=False)
    pure: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        written("pattern", self.pattern)
        written("message", self.message, empty=True)
        written("fix", self.fix, empty=True)
        flag("full", self.full)
        positive("seconds", self.seconds)
        try:
            re.compile(self.pattern)
        except (re.error, OverflowError, RecursionError) as error:
            allowed = f"a regular expression of Python's re ({error})"
            raise InvalidInput("pattern", self.pattern, allowed) from error

    def __call__(
        self, candidate: Any, context: Context
    ) -> list[Finding] | Awaitable[list[Finding]]:
        text, findings = read(self.name, candidate)
        if text is None:
            return findings
        if steps(self.pattern, len(text), self.full) > CHEAP:
            return self._apart(text, findings)
        return findings + self._judge(text, self._matches(text))

    def _matches(self, text: str) -> bool:
        found = re.compile(self.pattern)
        return bool(found.fullmatch(text) if self.full else found.search(text))

    async def _apart(self, text: str, findings: list[Finding]) -> list[Finding]:
        return findings + self._judge(text, await _match(self, text))

    def _judge(self, text: str, matches: bool | None) -> list[Finding]:
        if matches:
            return []
        pattern = shorten(self.pattern, 200)
        if matches is None:
            took = f"did not end within {self.seconds:g} s on {len(text)} characters"
            what = f"matching {pattern} {took}"
            fix = self.fix or f"answer with a shorter text that plainly matches {pattern}"
            return [Finding(self.name, what, fix, key=f"regex time-out {self.pattern}")]
        how = "match" if self.full else "hold anything that matches"
        what = self.message or f"{shorten(text)} does not {how} {pattern}"
        fix = self.fix or f"answer with text that {'as a whole ' * self.full}matches {pattern}"
        if self.full and text != text.strip():
            fix += "; there is whitespace around the answer, which counts"
        return [Finding(self.name, what, fix, key=f"regex {self.pattern}")]


def regex(
    pattern: str, message: str = "", fix: str = "", full: bool = True, seconds: float = 5.0
) -> Regex:
    """The text matches `pattern` (Python's `re`, flags inline as in `(?i)yes|no`).

    `message` and `fix` replace the words of the finding. With `full` the whole text must match,
    whitespace at its ends included. Where the pattern could backtrack for more than about a second
    (repeats inside repeats, several of them over a long text) the check answers with an awaitable,
    matches in a process of its own and reports what takes more than `seconds` of wall time as a
    finding. Text above `errata.checks.reading.LONGEST` characters is a finding, not matched. Raises
    InvalidInput for a pattern that does not compile.
    """
    return Regex(pattern, message, fix, full, seconds)


def steps(pattern: str, length: int, full: bool) -> float:
    """A bound on the steps of backtracking over `length` characters; infinite where unknown."""
    degree, forks = _shape(pattern)
    if degree == inf or forks > 24:
        return inf
    return float(2.0**forks * float(max(length, 1)) ** (degree + (not full)))


@lru_cache(maxsize=256)
def _shape(pattern: str) -> tuple[float, float]:
    """How often an unbounded repeat follows another, and how many bounded choices there are."""
    try:
        # The parser is not a public module; where it is gone every pattern is matched apart.
        from re import _parser  # type: ignore[attr-defined]
    except ImportError:
        return inf, inf
    return _sequence(_parser.parse(pattern))


def _sequence(items: Sequence[tuple[Any, Any]]) -> tuple[float, float]:
    shapes = [_item(str(op), value) for op, value in items]
    return sum(s[0] for s in shapes), sum(s[1] for s in shapes)


def _item(op: str, value: Any) -> tuple[float, float]:
    if op in ("LITERAL", "NOT_LITERAL", "ANY", "IN", "AT"):
        return 0, 0
    if op == "SUBPATTERN":
        return _sequence(value[-1])
    if op in ("ASSERT", "ASSERT_NOT"):
        return _sequence(value[1])
    if op == "BRANCH":
        shapes = [_sequence(branch) for branch in value[1]]
        return max(s[0] for s in shapes), max(s[1] for s in shapes) + log2(len(shapes))
    if op in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _repeat(*value)
    return inf, inf


def _repeat(low: int, high: int, body: Sequence[tuple[Any, Any]]) -> tuple[float, float]:
    single = len(body) == 1 and str(body[0][0]) in ("LITERAL", "NOT_LITERAL", "ANY", "IN")
    if single:
        return (0, log2(high - low + 1)) if low == high or high <= _FEW else (1, 0)
    if high > _FEW:
        return inf, inf
    degree, forks = _sequence(body)
    return degree * high, forks * high + log2(high - low + 1)


async def _match(check: Regex, text: str) -> bool | None:
    """Whether the text matches, found in a process of its own; None where the time ran out."""
    import asyncio

    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", _SCRIPT, stdin=pipe, stdout=pipe
    )
    try:
        payload = json.dumps([check.pattern, text, check.full]).encode()
        async with asyncio.timeout(check.seconds):
            output, _ = await process.communicate(payload)
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise ChildProcessError(f"the process that matches ended with {process.returncode}")
    return output.strip() == b"True"
