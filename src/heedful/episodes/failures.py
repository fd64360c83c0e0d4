"""Failures: which results of calls say that the call failed. Pure.

A result fails by the first of these that says anything: the mark of its format, an exit
or return code in one of the usual places, and then its text. A text alone counts only
if the tool marks no failure in the run: it begins as an error, or it is the output of a
command that begins or ends as programs report one. A command that looks prints texts of
others, so only what the program itself says counts there. A call that a person did not
let run is no failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from heedful.episodes.episode import Event, failure
from heedful.episodes.error_lines import output
from heedful.episodes.looks import looks

# The fields of a result that may have an exit code, and those that mark an error.
EXIT_CODE_FIELDS = ("exit_code", "exitCode", "returncode", "return_code")
ERROR_FIELDS = ("is_error", "isError", "error")
# A code that says that a call failed, in one of the usual places of a text: a line with
# an exit status, the last line or the first, or a flag in JSON.
_EXIT_CODE_PATTERN = re.compile(
    # "exit code 2", "Command exit status 1", "Process exited with code 2".
    r"(?m)^\W{0,4}(?i:process )?(?i:exit ?(?:code|status)|exited with code)[: ]{0,2}"
    r"(?!0\b)-?\d|^\$\? ?= ?(?!0\b)\d{1,3}$"
    r"|^\W?[\w ]{1,40} (?i:exit ?(?:code|status)) (?!0\b)-?\d+\W{0,2}$"
    # The last line holds it alone: "exit: 81"; or the first, as "HTTP/1.1 428" does.
    r"|^\W?(?:exit|rc)[:= ]{1,2}(?!0\b)-?\d{1,3}\W{0,2}\Z"
    r"|\AHTTP(?:/[\d.]+)? [45]\d\d\b"
    # A flag in JSON, such as {"exit_code": 1}, {"status": 404} or {"ok": false}.
    r"|\"(?:exit_?code|return_?code)\": ?(?!0\b)-?\d"
    r"|\A\{(?:.{0,400}, ?)?\"status\": ?\"?[45]\d\d\b"
    r"|\A\{\s*\"error_(?:code|message|type)\": ?(?!null|0\b|\"\")"
    r"|\"(?:status|type)\": ?\"error\"|\"(?:success|ok)\": ?false\b"
    r"|\"is_?error\": ?true\b"
)
# A text that begins as an error, or names one on a line. On the 24,951 recorded tool
# results that it was chosen on, with the codes it finds 81 % of the failures at 0.1 %
# false positives; a list of error phrases finds 82 % at 0.4 % there.
_TEXT_PATTERN = re.compile(
    # The text begins with an error, as "KeyError: 'a'" or "fatal: no such branch" do,
    r"(?m)\A\W{0,9}(?:[\w.]{0,80}(?:Error|Exception)|(?i:error|fatal|failed))\b"
    # but not with the name of a file or a key, as in "error.log",
    r"(?!\.\w|['\"](?! *:))"
    # nor with a report of no error, as in "error: null" or "Failed: 0".
    r"(?!\W{0,5}[:=]\s?(?i:null|none|false|0|\"\"|\[\]|\{\})(?![\w.]))"
    # A line says what was refused, or which program is missing.
    r"|^denied: \S|^(?:[\w./-]+: )*(?:line \d+: )?(?i:command not found): \S"
    r"|^(?:[\w./-]+: )+(?:line \d+: )?\S+: (?:command )?not found$"
    # The text begins with a program and the number of its error: "MCP error -32602:".
    r"|\A[\w.-]{1,40} ?:? (?i:error) -?[A-Z]{0,9}\d+: \S"
    # The text begins by saying what failed: "craft failed: no table".
    r"|\A[\w.-]{1,40}(?: [\w.-]{1,40})? failed: (?!0\b)\S"
    # The whole text says that time ran out: "Query timed out after 30 seconds".
    r"|\A(?:[\w'-]{1,20} ){0,4}(?i:timed out|time-?out(?= after))"
    r"(?: after \d[\d.]{0,9} ?[a-z]{1,9})?\.?\s*\Z"
    # A line begins a traceback.
    r"|^Traceback \(most recent call last\)"
)
# What a program says of itself: its name, or that of a shell, and what is wrong.
_OWN_LINE_PATTERN = re.compile(
    r"(?:[\w./+-]*/)?(?P<program>[\w.+-]+)(?:\[\d+\])?: (?P<message>.+)"
)
_SHELLS = frozenset({"bash", "sh", "zsh"})
_WRONG_PATTERN = re.compile(
    r"(?i)\b(?:not|no|can(?:no|')t|could ?n[o']t|unable|undefined|unknown|unrecognized"
    r"|unexpected|invalid|missing|denied|refused|fail(?:ed|ure)?|error|illegal"
    r"|ambiguous|must)\b|\*\*\*"
)
# How an output of a command begins or ends that failed: an error by its type or label,
# a place in a file with a message, a count of tests, or who refused.
_FAILED_OUTPUT_PATTERN = re.compile(
    r"(?m)^[\W_]{0,12}(?:[\w.]*(?:Error|Exception)\b: "
    r"|(?i:error|fatal|failure|panic)(?:\[\w+\])?(?::| code | )\s?\S"
    r"|(?:FAIL|FAILED|ERROR)\b(?!\W*0\b))"
    r"|^\S+\.\w{1,5}(?::\d+(?::\d+)?|\(\d+(?:,\d+)?\)):? "
    r"(?!warning|note|info)(?:\w+: )?\S"
    r"|\(\w+(?:Error|Exception)\)$|^npm (?:ERR!|error) "
)
_REFUSAL_PATTERN = re.compile(
    r"(?i)\b(?:connection|permission|access|was) (?:refused|denied)\b"
)
OUTPUT_HEAD_LINES = 4
OUTPUT_TAIL_LINES = 3
# The names of statuses of HTTP: errors of a server, and of a request.
SERVER_ERROR_NAMES = (
    "internal server error",
    "bad gateway",
    "service unavailable",
    "gateway timeout",
)
CLIENT_ERROR_NAMES = (
    "bad request",
    "unauthorized",
    "payment required",
    "forbidden",
    "not found",
    "method not allowed",
    "not acceptable",
    "request timeout",
    "conflict",
    "gone",
    "precondition failed",
    "unsupported media type",
    "unprocessable entity",
    "unprocessable content",
    "locked",
    "precondition required",
    "too many requests",
)
# A last line that is only a status in brackets, as "[1]" is.
_STATUS_LINE_PATTERN = re.compile(r"(?:\A|\n)\[(\d{1,3})\]\s*\Z")
# A call that was not run or not finished because a person did not want it. What begins
# with such words says nothing about the tool.
REFUSED_BY_PERSON_PATTERN = re.compile(
    r"\A.{0,200}?\b(?:"
    r"(?:reject|declin|deni|refus|cancel|abort|interrupt|stopp|not approv|not allow)"
    r"\w* by (?:the |a )?(?:human |\w+ )?(?:user|human|person|reviewer|operator)\b"
    r"|user (?:doesn't|does not|didn't|did not) (?:want|wish|allow|approve|accept)\b"
    r"|user (?:has )?(?:rejected|declined|refused|cancell?ed|aborted|interrupted)\b)",
    re.IGNORECASE | re.DOTALL,
)
# The words of a status beside its name: "exit code 1", "HTTP/1.1 404", "error 500".
_STATUS_WORD_PATTERN = re.compile(
    r"\b(?:http(?:/[\d.]+)?|exit(?:ed)?|with|code|status|command|process|error|failed"
    r"|returned|sqlstate|\w*\d\w*)\b|[^\w\s]"
)
# A status in another language: "Fehler 12", but not "KeyError: 7".
_WORD_AND_NUMBER_PATTERN = re.compile(r"\W*[^\W\d_]+[ :=#]{1,2}-?\d{1,5}\W*")


def failure_text(event: Event, text: str, command: str = "", *, marked: bool) -> str:
    """Return the text of the failure that a result reports, "" if it reports none.

    `text` are all texts of the event, and `command` is that of its call, "" without
    one. If the tool has `marked` failures in the run, a text alone is none. Of a result
    that is marked as a failure, the error or the content counts, whichever says more
    than an exit status.
    """
    if not failure(event) and not is_failure_code(event.code):
        return text if reports_failure(text, command, marked=marked) else ""

    for words in (event.error, event.content):
        if output(words) and not _is_bare_status(words):
            return words
    return event.error or event.content or event.code or "error"


def reports_failure(text: str, command: str = "", *, marked: bool = False) -> bool:
    """Return whether a result says by a code, or by its text, that its call failed."""
    is_look = bool(command) and looks("", command)
    head = 1 if is_look else OUTPUT_HEAD_LINES
    if _EXIT_CODE_PATTERN.search(_ends(text, head)):
        return True
    if marked:
        return False
    if _TEXT_PATTERN.search(text):
        return True
    return bool(command) and _prints_failure(command, text)


def _prints_failure(command: str, text: str) -> bool:
    """Return whether an output of a command begins or ends as a failure does.

    >>> _prints_failure("ls srcc", "ls: cannot access 'srcc': No such file")
    True
    >>> _prints_failure("cat log.txt", "ERROR: the cart is empty")
    False
    """
    lines = text.strip().splitlines() or [""]
    if any(_is_own_error(command, line) for line in (*lines[:1], *lines[-1:])):
        return True
    if looks("", command):
        return len(lines) == 1 and _REFUSAL_PATTERN.search(text) is not None
    return bool(
        _FAILED_OUTPUT_PATTERN.search(_ends(text)) or _REFUSAL_PATTERN.search(lines[0])
    )


def _ends(text: str, head: int = OUTPUT_HEAD_LINES) -> str:
    """Return the first lines of a text, so many as `head`, and the last ones.

    What stands between may be the text of another call, as in a log that is read.
    """
    lines = text.strip().splitlines()
    if len(lines) <= head + OUTPUT_TAIL_LINES:
        return text
    return "\n".join([*lines[:head], *lines[-OUTPUT_TAIL_LINES:]])


def _is_own_error(command: str, line: str) -> bool:
    """Return whether a program of a command says in a line what is wrong."""
    match = _OWN_LINE_PATTERN.match(line)
    if match is None or not _WRONG_PATTERN.search(match["message"]):
        return False
    words = {word.rpartition("/")[2] for word in re.findall(r"[\w./+-]+", command)}
    return match["program"] in words | _SHELLS


def marks_failure(response: Mapping[str, Any]) -> bool:
    """Return whether the fields of a result say that its call failed."""
    codes = [response.get(name) for name in EXIT_CODE_FIELDS]
    if any(isinstance(code, int) and code for code in codes):
        return True
    if any(response.get(name) for name in ERROR_FIELDS):
        return True
    return response.get("success") is False


def status_failures(
    events: Sequence[Event], texts: Sequence[str], results: Sequence[int | None]
) -> Iterator[int]:
    """Yield the results whose last line is a status, such as "[1]", other than 0.

    That the tool writes a status is known from another result that ends with "[0]": a
    list of numbers may end like this, too.
    """
    statuses: dict[str, dict[int, int]] = {}
    for call, result in enumerate(results):
        if result is None:
            continue
        match = _STATUS_LINE_PATTERN.search(texts[result])
        if match is not None:
            of_tool = statuses.setdefault(events[call].tool, {})
            of_tool[result] = int(match[1])

    for of_tool in statuses.values():
        if 0 in of_tool.values():
            yield from (result for result, status in of_tool.items() if status)


def is_status(code: str) -> bool:
    """Return whether a code is an exit status or a status of HTTP."""
    return code.isdecimal() and int(code) < 600


def is_failure_code(code: str) -> bool:
    """Return whether a code is an exit status or a status of HTTP that means failure.

    >>> [is_failure_code(code) for code in ("0", "1", "200", "404", "OK")]
    [False, True, False, True, False]
    """
    return is_status(code) and (0 < int(code) < 100 or int(code) >= 400)


def status_words(event: Event) -> str:
    """Return the status that a result reports, without any other words of it.

    >>> status_words(Event("tool_response", "Exit code 127\\nsh: rg: not found"))
    'exit code 127'
    """
    code = event.code
    if not is_status(code):
        texts = f"{event.error}\n{event.content}".strip()
        match = _EXIT_CODE_PATTERN.search(texts)
        digits = [] if match is None else list(re.finditer(r"\d+", match[0]))
        if match is None or not digits:
            return ""
        # The pattern may end within the number.
        start = match.start() + digits[-1].start()
        code = re.split(r"\D", texts[start : start + 4])[0]
    if not is_status(code) or int(code) == 0:
        return ""
    return f"status {code}" if int(code) >= 400 else f"exit code {code}"


def says_more(event: Event) -> bool:
    """Return whether a result says more than a status."""
    texts = (event.error, event.content)
    return any(output(text) and not _is_bare_status(text) for text in texts)


def _is_bare_status(text: str) -> bool:
    """Return whether a text is only the number or the name of a status, or both.

    >>> [_is_bare_status(text) for text in ("exit 1", "400 Bad Request", "429: slow")]
    [True, True, False]
    >>> _is_bare_status("Fehler 12")
    True
    """
    if _WORD_AND_NUMBER_PATTERN.fullmatch(text):
        return True
    words = _STATUS_WORD_PATTERN.sub(" ", text.lower())
    bare = " ".join(words.split())
    return not bare or bare in (*SERVER_ERROR_NAMES, *CLIENT_ERROR_NAMES)
