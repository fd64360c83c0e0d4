"""`regex`: a text matches a pattern, which cannot hold up the event loop for ever.

Python's `re` can take exponential time on a few dozen characters and cannot be interrupted. So a
pattern is matched in this process only where a glance at it bounds the work; otherwise it is
matched in a process of its own, which is killed when its time is up.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from errata.checks.reading import read, require, shorten
from errata.errors import InvalidInput
from errata.loop.record import Finding
from errata.protocols import Context

CHEAP = 20_000_000
"""Steps of matching that are allowed in this process: a few tenths of a second."""

SECONDS = 5.0
"""Wall time that a process may take to match."""

_ESCAPES_AND_CLASSES = re.compile(r"\\[^1-9]|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
# A repeated group, a reference back, a comment, spaces that do not count.
_RISKY = re.compile(r"\)[*+{]|\\[1-9]|\(\?P=|\(\?#|\(\?[aiLmsu]*x")
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
    fix: str
    full: bool
    name: ClassVar[str] = "regex"
    pure: ClassVar[bool] = True

    def __call__(
        self, candidate: Any, context: Context
    ) -> list[Finding] | Awaitable[list[Finding]]:
        text = read(self.name, candidate)
        if isinstance(text, Finding):
            return [text]
        if not self._cheap(len(text)):
            return self._apart(text)
        match = re.fullmatch if self.full else re.search
        return self._judge(text, match(self.pattern, text) is not None)

    def _cheap(self, length: int) -> bool:
        """Whether matching so many characters is sure to end soon, by counting all choices."""
        plain = _ESCAPES_AND_CLASSES.sub("x", self.pattern)
        if _RISKY.search(plain):
            return False
        repeats = len(re.findall(r"[*+{]", plain)) + (not self.full)
        forks = len(re.findall(r"\||(?<!\()\?", plain))
        return bool(len(plain) * 2**forks * length**repeats <= CHEAP)

    async def _apart(self, text: str) -> list[Finding]:
        import asyncio
        import subprocess

        command = [sys.executable, "-I", "-S", "-c", _SCRIPT]
        payload = json.dumps([self.pattern, text, self.full])
        run = partial(subprocess.run, input=payload, capture_output=True, check=True, text=True)
        try:
            ended = await asyncio.to_thread(run, command, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            pattern = shorten(self.pattern, 200)
            what = f"matching {pattern} did not end within {SECONDS:g} s on {len(text)} characters"
            fix = self.fix or f"answer with a shorter text that plainly matches {pattern}"
            return [Finding(self.name, what, fix, key=f"regex time-out {self.pattern}")]
        return self._judge(text, ended.stdout.strip() == "True")

    def _judge(self, text: str, matches: bool) -> list[Finding]:
        if matches:
            return []
        pattern = shorten(self.pattern, 200)
        how = "match" if self.full else "hold anything that matches"
        what = f"{shorten(text)} does not {how} {pattern}"
        fix = self.fix or f"answer with text that {'as a whole ' * self.full}matches {pattern}"
        if self.full and text != text.strip():
            fix += "; there is whitespace around the answer, which counts"
        return [Finding(self.name, what, fix, key=f"regex {self.pattern}")]


def regex(pattern: str, fix: str = "", full: bool = True) -> Regex:
    """The text matches `pattern` (Python's `re`, flags inline as in `(?i)yes|no`).

    `fix` replaces the words that say how to mend it. With `full` the whole text must match,
    whitespace at its ends included. Where the pattern could backtrack for long (repeated groups,
    several repeats over a long text) the check answers with an awaitable, matches in a process of
    its own and reports what takes more than `SECONDS` of wall time as a finding. Raises
    InvalidInput for a pattern that does not compile.
    """
    given = isinstance(pattern, str) and pattern != ""
    require(given, "pattern", pattern, "text that is not empty")
    require(isinstance(fix, str), "fix", fix, "text")
    require(isinstance(full, bool), "full", full, "true or false")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        allowed = f"a regular expression of Python's re ({error})"
        raise InvalidInput("pattern", pattern, allowed) from error
    return Regex(pattern, fix, full)
