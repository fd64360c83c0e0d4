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

from heedful.lessons.lesson import Scope
from heedful.lessons.preconditions import (
    Precondition,
    Surroundings,
    arguments_of,
    describe,
    preconditions_of,
)
from heedful.lessons.reliability import (
    MIN_SPOKEN_BOUND,
    Form,
    Track,
    lower_bound,
)
from heedful.lessons.shipped_tests import SHIPPED_TESTS
from heedful.lessons.trust import SHELL_TOOLS
from heedful.loop.share import percent
from heedful.pages.report import counted
from heedful.store import preconditions as precondition_store
from heedful.store.connection import Db, bulk
from heedful.web import figures
from heedful.web.site import Document, Visit

MAX_NAMED_PRECONDITIONS = 5
MAX_NEAR_FAILURES = 3
MAX_TRIED_EXAMPLES = 5
MAX_READ_FAILURES = 300  # the newest ones, among which the nearest are looked for
MAX_READ_TRACES = 100  # the newest ones, in which the call is looked for
MAX_TRACE_CHARS = 50_000
MAX_NAMED_TRACES = 3
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
    """Something that calls of this project took for granted, and that made them fail.

    `surely` is the least share of such calls that fails again.
    """

    precondition: Precondition
    track: Track
    surely: float

    @property
    def is_told(self) -> bool:
        """Whether memory speaks of it before such a call."""
        return self.surely >= MIN_SPOKEN_BOUND

    @property
    def spelling(self) -> str:
        """An action that takes this for granted; "" if there is no simple one."""
        words = self.precondition.words
        match self.precondition.template:
            case "command" if "#" not in words[0]:
                return words[0]
            case "word":
                return f"{words[1]} {words[0]}"
            case "path":
                return f"Read {json.dumps({'file_path': words[0]})}"
            case _:
                return ""

    def likeness(self, asked_words: frozenset[str]) -> int:
        """Return how many words this shares with an action."""
        return len(_words_of(self.precondition) & asked_words)

    def plain(self, asked: Sequence[Precondition]) -> Document:
        """Return what the page says: what failed, how often, and why it is not told."""
        track = self.track
        history = f"failed in {counted(track.failed, 'run')}"
        if track.passed:
            history += f", worked in {counted(track.passed, 'call')}"
        why = "this action does not have it"
        if self.precondition in asked:
            why = (
                f"too rarely to be told: such calls fail again in at least "
                f"{percent(self.surely)}, {percent(MIN_SPOKEN_BOUND)} are needed"
            )
        return {
            "about": describe(self.precondition),
            "history": history,
            "why": why,
            "ask": self.spelling,
        }


def _words_of(*preconditions: Precondition) -> frozenset[str]:
    """Return the words of preconditions, in lower case."""
    text = " ".join(" ".join(precondition.words) for precondition in preconditions)
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

    fields = arguments_of(arguments)
    preconditions = preconditions_of(tool, fields, Surroundings())
    answer["searched"] = [
        describe(need) for need in preconditions[:MAX_NAMED_PRECONDITIONS]
    ]
    answer |= {"known": 0, "nearest": [], "example": "", "traces": []}
    # The words of other calls are those of traces.
    if warnings or not visit.may("read"):
        return answer

    failures = await visit.caller.read(_read_failures)
    words = _words_of(*preconditions)
    near = [failure for failure in failures if failure.likeness(words)]
    near.sort(key=lambda failure: (failure.likeness(words), failure.surely))
    # A part of a command and the whole are asked for in the same words.
    nearest = {failure.spelling or failure: failure for failure in near}
    newest_last = list(nearest.values())[-MAX_NEAR_FAILURES:]
    answer["known"] = len(failures)
    if not failures:
        answer["sentence"] = (
            "Nothing would be shown: memory has learnt of no action that failed"
        )
    answer["nearest"] = [
        failure.plain(preconditions) for failure in reversed(newest_last)
    ]
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
    for spelling in list(filter(None, spellings))[:MAX_TRIED_EXAMPLES]:
        tool, arguments = read_action(spelling)
        question = {"tool": tool, "arguments": arguments}
        if _count_warnings(await visit.ask("POST", "/v1/before", question)):
            return spelling
    return ""


def _read_failures(db: Db, scope: Scope) -> list[NearFailure]:
    """Return what made calls fail, the newest first."""
    rows = figures.rows(db, scope, "failed_calls", limit=MAX_READ_FAILURES)
    if not rows:
        return []

    tests = precondition_store.read_tests(db, scope)
    failures = []
    for row in rows:
        words = tuple(json.loads(row["words"]))
        need = Precondition(row["template"], words)
        track = Track(failed=row["failed"], since=row["since"], passed=row["passed"])
        surely = lower_bound(Form.of(need, track), tests, SHIPPED_TESTS)
        failures.append(NearFailure(precondition=need, track=track, surely=surely))
    return failures


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
        most=MAX_TRACE_CHARS,
        limit=MAX_NAMED_TRACES,
    )
    return [dict(row) for row in rows]
