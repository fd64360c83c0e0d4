"""Briefs: what most often costs the sessions of a project calls.

Only what failed in several of the newest sessions qualifies. What a lesson says that
waits in quarantine is not told; the contract of a tool may be, and the words of a call
that never worked, unless an untrusted text had them first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from heedful.lessons import render
from heedful.lessons.contracts import contract_of
from heedful.lessons.mistake import Mistake, from_json
from heedful.lessons.preconditions import Precondition, describe
from heedful.lessons.scope import Scope, Trust
from heedful.lessons.signature import MASK
from heedful.sanitize import clean
from heedful.store import aging, substitutions
from heedful.store.connection import Db, Row

# A brief has at most so many lines, and looks at so many of the newest sessions.
MAX_BRIEF_LINES = 10
BRIEF_SESSIONS = 40
MAX_BRIEF_LINE_CHARS = 280
# A line that cost a session less was needed in one of sixty recorded sessions.
MIN_SESSION_CALLS = 1 / 8
# What two sessions have in common was read as a particular of theirs.
MIN_LESSON_SESSIONS = 3
# More candidates than lines: several errors may break the same contract.
MAX_CANDIDATES = 40
# The messages of linters in a brief, all in one line.
MAX_RULE_MESSAGES = 3
# The message of a linter at a place, with the name of its rule at one end:
# "<PATH>: Error return value is not checked (errcheck)" or "a.py:<N>: E501 Too long".
_RULE_MESSAGE_PATTERN = re.compile(
    r"(?:\[[\w:-]+\] )?\S*<(?:PATH|N)>\S* "
    r"(?P<message>(?:error:? )?[A-Z]{1,6}\d{2,5}:? \S.*|.*\S +[(\[][a-z][\w/-]*[)\]])"
)
_MASKED_NUMBER_PATTERN = re.compile(r"<\w+>")
# What a call takes for granted that an agent can be told before it makes the call.
BRIEF_TEMPLATES = frozenset({"path", "folder", "word", "shape", "options", "argument"})


@dataclass(frozen=True, slots=True)
class BriefLine:
    """A line of a brief: what to do, and how often it was not done.

    `calls` were lost in `sessions` of the newest `of` sessions, last at the time
    `failed`, in seconds since 1970. `lesson` is the id of its lesson, 0 without one.
    """

    text: str
    _: KW_ONLY
    sessions: int
    of: int
    calls: int
    failed: float
    lesson: int = 0
    mistake: Mistake | None = None

    @property
    def has_fix(self) -> bool:
        """True if it has all that put the error of its lesson right."""
        is_whole = len(self.text) < MAX_BRIEF_LINE_CHARS
        return bool(self.lesson) and self.mistake is not None and is_whole

    def __str__(self) -> str:
        day = datetime.fromtimestamp(self.failed, UTC).strftime("%d %b %Y")
        often = f"{self.sessions} of {self.of} sessions, {self.calls} calls lost"
        return f"- {self.text} ({often}, last {day})"


def read_brief(
    db: Db, scope: Scope, trust: Mapping[str, Trust] = {}
) -> tuple[BriefLine, ...]:
    """Return the lines of a brief, those first that save most calls.

    `trust` is that of the memory in the sources of substitutions.
    """
    window = db.one("brief_since", scope, sessions=BRIEF_SESSIONS)
    if window is None or not window["sessions"]:
        return ()

    lines = list(_error_lines(db, scope, window))
    lines += _precondition_lines(db, scope, window, trust)
    least = MIN_SESSION_CALLS * window["sessions"]
    lines = [line for line in lines if line.calls >= least]
    lines.sort(key=lambda line: line.calls, reverse=True)
    return tuple(lines[:MAX_BRIEF_LINES])


def _error_lines(db: Db, scope: Scope, window: Row) -> Iterator[BriefLine]:
    """Yield a line for each error that came back; one for all of a contract.

    There is one for all that linters found, too.
    """
    by_text: dict[str, list[Row]] = {}
    by_message: dict[str, list[Row]] = {}
    mistakes: dict[str, Mistake] = {}
    since = {"since": window["since"], "limit": MAX_CANDIDATES}
    for row in db.all("brief_errors", scope, **since):
        mistake = from_json(row["mistake"])
        message = _rule_message(row)
        text = "" if message else _line_of(db, scope, row, mistake)
        if message:
            by_message.setdefault(message, []).append(row)
        elif text:
            by_text.setdefault(text, []).append(row)
            if mistake is not None:
                mistakes.setdefault(text, mistake)

    # The rows are in the order of what they cost.
    messages = [f"“{message}”" for message in list(by_message)[:MAX_RULE_MESSAGES]]
    if messages:
        text = clean(
            f"Linters here reject {', '.join(messages)}.", MAX_BRIEF_LINE_CHARS
        )
        by_text[text] = list(chain.from_iterable(by_message.values()))

    for text, rows in by_text.items():
        lessons = [row["id"] for row in rows if row["state"] != "quarantined"]
        yield BriefLine(
            text,
            sessions=max(row["sessions"] for row in rows),
            of=window["sessions"],
            calls=sum(row["calls"] for row in rows),
            failed=max(row["failed"] for row in rows),
            lesson=lessons[0] if lessons else 0,
            mistake=mistakes.get(text),
        )


def _is_usable(row: Row) -> bool:
    """Return True if what an error says may be told."""
    return row["state"] in ("unverified", "verified")


def _rule_message(row: Row) -> str:
    """Return the message of a linter's rule, without its place; "" if it is none."""
    is_known = row["sessions"] >= MIN_LESSON_SESSIONS and _is_usable(row)
    match = _RULE_MESSAGE_PATTERN.fullmatch(row["pattern"]) if is_known else None
    return _MASKED_NUMBER_PATTERN.sub(MASK, match["message"]) if match else ""


def _line_of(db: Db, scope: Scope, row: Row, mistake: Mistake | None) -> str:
    """Return what a brief says about an error; "" if nothing may be told.

    Without a contract and without a call that put it right, an error is the work
    itself, or says nothing that an agent could do otherwise.
    """
    contract = contract_of(row["text"] or row["pattern"])
    if contract:
        return contract
    if row["sessions"] < MIN_LESSON_SESSIONS or not _is_usable(row):
        return ""
    if mistake is None or aging.has_failed_fix(db, scope, mistake):
        return ""
    return render.brief_line(mistake)


def _precondition_lines(
    db: Db, scope: Scope, window: Row, trust: Mapping[str, Trust]
) -> Iterator[BriefLine]:
    """Yield a line for each thing that calls took for granted and that never worked.

    It says what worked in its place, if that is known.
    """
    since = {"since": window["since"], "limit": MAX_CANDIDATES}
    rows = [
        row
        for row in db.all("brief_preconditions", scope, **since)
        if row["template"] in BRIEF_TEMPLATES
    ]
    digests = [row["digest"] for row in rows]
    best = substitutions.find_best(db, scope, digests, trust) if digests else {}
    for row in rows:
        words: tuple[Any, ...] = tuple(json.loads(row["words"]))
        name = describe(Precondition(row["template"], words))
        text = f"{name} never worked"
        change = best.get(row["digest"])
        if change is not None:
            text += f"; {change} did" if change.new else f"; {change} it did"
        yield BriefLine(
            clean(f"{text}.", MAX_BRIEF_LINE_CHARS),
            sessions=row["sessions"],
            of=window["sessions"],
            calls=row["calls"],
            failed=row["failed"],
        )
