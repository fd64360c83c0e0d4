"""What memory knows of an action, what is nearest to it, and how to ask for that.

An action is written as in a trace: the command alone, or `TOOL: COMMAND`, or a tool
with its arguments as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.lessons.before import Mark, marks_of
from heedful.lessons.lesson import Scope
from heedful.lessons.origin import SHELL_TOOLS
from heedful.lessons.render import mark_words
from heedful.pages.report import counted
from heedful.store.calls import MIN_COMMAND_RUNS
from heedful.store.connection import Db, bulk
from heedful.web import figures
from heedful.web.site import Document, Visit

MAX_READ_FAILURES = 300  # the newest ones, among which the nearest are looked for
MAX_READ_TRACES = 100  # the newest ones, in which the call is looked for
MIN_TRACED_CHARS = 4
_ASKED_CALL_PATTERN = re.compile(
    r"(?P<tool>[A-Za-z_][\w.-]{0,99})(?::\s+|\s*\(|\s+(?=\{))(?P<arguments>.*)",
    re.DOTALL,
)
_ASKED_WORD_PATTERN = re.compile(r"[\w.-]{2,}")


def read_action(text: str) -> tuple[str, dict[str, Any] | str]:
    """Return the tool and the arguments of an action that somebody wrote.

    >>> read_action("make test"), read_action("Bash: make test")
    (('', 'make test'), ('Bash', 'make test'))
    >>> read_action('Read {"file_path": "a.py"}')
    ('Read', {'file_path': 'a.py'})
    """
    call = _ASKED_CALL_PATTERN.fullmatch(text.strip())
    if call is None:
        return "", text

    arguments = call["arguments"].strip()
    if "(" in text[: call.start("arguments")]:
        arguments = arguments.removesuffix(")")
    try:
        fields = json.loads(arguments)
    except ValueError:
        fields = None
    if isinstance(fields, dict):
        return call["tool"], fields
    if call["tool"].lower() in (*SHELL_TOOLS, "sh"):
        return call["tool"], arguments
    return "", text


@dataclass(frozen=True, kw_only=True)
class NearFailure:
    """A mark of calls of this project that failed, in so many `runs`.

    It `stands` if no such call has worked since.
    """

    mark: Mark
    runs: int
    stands: bool

    @property
    def is_told(self) -> bool:
        """Whether memory speaks of it before such a call."""
        return self.stands and not self.silence

    @property
    def silence(self) -> str:
        """Why memory does not speak of it before such a call, "" if it does."""
        if not self.stands:
            return "such a call has worked since"
        if self.mark.kind == "command" and self.runs < MIN_COMMAND_RUNS:
            return "a command is told of when it failed in two runs"
        return ""

    @property
    def spelling(self) -> str:
        """An action that has the mark; "" if there is no simple one."""
        match self.mark.kind:
            case "command":
                return self.mark.name
            case "call":
                return f"{self.mark.tool} {self.mark.name}"
            case "name":
                return f"{self.mark.tool} {self.mark.name}"
            case "path":
                return f"Read {json.dumps({'file_path': self.mark.name})}"
            case _:
                return ""

    def likeness(self, asked_words: frozenset[str]) -> int:
        """Return how many words this shares with an action."""
        return len(_words_of(self.mark) & asked_words)

    def plain(self) -> Document:
        """Return what the page says: what failed, how often, and why it is not told."""
        return {
            "about": _named(self.mark),
            "history": f"failed in {counted(self.runs, 'run')}",
            "why": self.silence or "this action does not have it",
            "ask": self.spelling,
        }


def _named(mark: Mark) -> str:
    """Return a mark in words that hold without the call that has it."""
    if mark.kind == "command":
        return f"the command `{mark.name}`"
    return mark_words(mark)


def _words_of(*marks: Mark) -> frozenset[str]:
    """Return the words of marks, in lower case."""
    text = " ".join(f"{mark.tool} {mark.name}" for mark in marks)
    return frozenset(_ASKED_WORD_PATTERN.findall(text.lower()))


async def answer_action(visit: Visit, text: str) -> Document:
    """Return the warnings for an action, or what is nearest and where it occurred."""
    tool, arguments = read_action(text)
    question = {"tool": tool, "arguments": arguments}
    answer: Document = await visit.ask("POST", "/v1/before", question)
    warnings = _count_warnings(answer)
    answer["sentence"] = "Nothing would be shown: no known failure of this call"
    if warnings:
        answer["sentence"] = (
            f"{counted(warnings, 'warning')} would be shown before this runs"
        )

    marks = marks_of(tool, arguments)
    answer["searched"] = [_named(mark) for mark in marks[:5]]
    answer |= {"known": 0, "nearest": [], "example": "", "traces": []}
    # The words of other calls are those of traces.
    if warnings or not visit.may("read"):
        return answer

    failures = await visit.caller.read(_read_failures)
    words = _words_of(*marks)
    near = [failure for failure in failures if failure.likeness(words)]
    near.sort(key=lambda failure: (failure.likeness(words), failure.is_told))
    # A part of a command and the whole are asked for in the same words.
    nearest = {failure.spelling or failure: failure for failure in near}
    newest_last = list(nearest.values())[-3:]
    answer["known"] = len(failures)
    if not failures:
        answer["sentence"] = (
            "Nothing would be shown: memory has learnt of no action that failed"
        )
    answer["nearest"] = [failure.plain() for failure in reversed(newest_last)]
    answer["example"] = await _find_example(visit, failures)
    needle = arguments if isinstance(arguments, str) else text
    if len(needle.strip()) >= MIN_TRACED_CHARS:
        answer["traces"] = await visit.caller.read(find_traces, needle.strip())
    return answer


def _count_warnings(answer: Mapping[str, Any]) -> int:
    """Return how many warnings an answer of memory has for an action."""
    names = ("failures", "checks", "rules")
    return sum(len(answer.get(name) or ()) for name in names)


async def find_known_action(visit: Visit) -> str:
    """Return an action for which memory has a warning; "" if none is found."""
    failures = await visit.caller.read(_read_failures)
    return await _find_example(visit, failures)


async def _find_example(visit: Visit, failures: Sequence[NearFailure]) -> str:
    """Return one of the failures that memory warns of, as an action; "" if none."""
    spellings = [failure.spelling for failure in failures if failure.is_told]
    for spelling in list(filter(None, spellings))[:5]:
        tool, arguments = read_action(spelling)
        question = {"tool": tool, "arguments": arguments}
        if _count_warnings(await visit.ask("POST", "/v1/before", question)):
            return spelling
    return ""


def _read_failures(db: Db, scope: Scope) -> list[NearFailure]:
    """Return what calls that failed had in common, the newest first."""
    return [
        NearFailure(
            mark=Mark(row["kind"], row["name"], row["tool"]),
            runs=row["runs"],
            stands=bool(row["stands"]),
        )
        for row in figures.rows(db, scope, "failed_calls", limit=MAX_READ_FAILURES)
    ]


@bulk
def find_traces(db: Db, scope: Scope, text: str) -> list[Document]:
    """Return the newest traces that have a text, such as a command."""
    spellings = [json.dumps(text), json.dumps(text, ensure_ascii=False)]
    bare = [spelling[1:-1] for spelling in spellings]
    rows = figures.rows(
        db,
        scope,
        "traces_with",
        spellings=json.dumps(list(dict.fromkeys(bare))),
        window=MAX_READ_TRACES,
        most=50_000,
        limit=3,
    )
    return [dict(row) for row in rows]
