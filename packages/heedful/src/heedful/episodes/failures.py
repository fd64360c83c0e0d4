"""Failures: which results of calls say that the call failed. Pure.

What a program marks is believed before what it writes, because the same words are an
error in one output and data in another. "exit code 1" is a failure whatever stands
above it; "error: no such branch" is one if the result is not marked, but the same line
in the middle of a log that `cat` prints is not.

A result fails by the first of these that says anything: the mark of its format, an exit
status at its beginning or its end, a field of its data, and then its text. A text alone
counts only if the tool marks no failure in the run: it begins with an error, or it is a
statement of what is absent, wrong or forbidden, or it is the output of a command that
begins or ends as programs report one. A command that looks prints texts of others, so
only what the program itself says counts there. A call that a person did not let run is
no failure.
"""

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from heedful.episodes.episode import Event, failure
from heedful.episodes.error_lines import REASON_NAMES, decode, output
from heedful.episodes.looks import looks
from heedful.knowledge import KnowledgeTable
from heedful.lessons.shell import MINOR_PROGRAMS, operated_commands, program_name
from heedful.lessons.words import compiled
from heedful.validation import Fields

FAILURES = KnowledgeTable("episodes/failures")
# The names of the statuses of HTTP that mean a failure, such as "not found".
STATUS_NAMES = {
    status.phrase.lower(): str(status.value) for status in HTTPStatus if status >= 400
}
# What surrounds the words of an exit status in its line: "Process exited with code 2",
# "<returncode>1</returncode>", "Exit code: 2 (interrupted)".
_BEFORE_STATUS = r"(?m)^\W{0,2}(?:[\w ]{1,60} )?"
_STATUS = r"[\s:=>]{0,4}(?P<code>-?\d{1,10})\W{0,2}(?:\([\w ]{1,40}\)|/\w+>)?\W{0,2}$"
_SHORT_STATUS = r" ?[:=] ?(?P<code>\d{1,3})$"
# A status of HTTP: its header, or a page or a text that begins with it.
_HTTP_STATUS_PATTERN = (
    r"\A(?:<[^>]{1,80}>|\s)*(?P<label>HTTP\S* |[\w ]{1,40} status (?:code )?)?"
    r"(?P<code>[45]\d\d)\b:? ?(?P<name>[^\n<]*)"
)
# The heading of an output: the next line says what went wrong.
_HEADING_PATTERN = r"\A\s*(?:#[^\n]*|[^\n]{0,120}:)\n"
# What surrounds an error word in the first sentence: tags and at most seven words
# before it, no name of a file or a key, and what went wrong or the end after it.
_BEFORE_ERROR_WORD = (
    r"\A\s*(?:<[^>\n]{0,80}>\s*){0,3}[^\w\n]{0,12}"
    r"(?:[A-Za-z][\w./-]{0,39}: )?(?P<before>(?:[\w.'()/-]{1,40} ){0,7}?)[\w.:]*"
)
_AFTER_ERROR_WORD = (
    r"(?i:s|\(s\))?(?![\w-]|\.\w|::|['\"](?! *:)| (?:is|are) )(?P<after>[^\n]{0,160})"
)
# The sentence goes on with a reason, or it is all that the line says.
_REASON_PATTERN = (
    r"\A(?:\W{0,3}[:>]|.*: ?\S|[.!] +\w|(?:[^.]|\.\w)*!?\Z| (?:has )?occurred\b)"
)
# A short text whose first sentence says what is wrong: "no such column: total".
_NO_STATEMENT = r"\A\s*(?!\[|\S*:?\d+:|(?i:(?:\w+ )?warn)|[\w ]+: 0\W*\Z)"
_BEFORE_WRONG_FIRST = rf"{_NO_STATEMENT}(?:[\w./+-]+ ?: )?"
_BEFORE_UNABLE = rf"{_BEFORE_WRONG_FIRST}(?!I\b)(?:[^\s:]+ ){{0,3}}"
_BEFORE_WRONG = rf"{_NO_STATEMENT}(?:[^\n.]|\.(?=\S)){{0,120}}?(?<![\w/.(\"'-])"
_BEFORE: Mapping[str, str] = {
    "wrong_first": _BEFORE_WRONG_FIRST,
    "unable": _BEFORE_UNABLE,
    "wrong": _BEFORE_WRONG,
}
# The first line of a longer text says so in these words.
FIRST_LINE_GROUPS = ("wrong_first", "unable")
_WORD_END = r"(?![\w/-])"
MAX_OUTPUT_STATEMENT_CHARS = 500
MAX_LOOK_STATEMENT_CHARS = 60
_SHELLS = frozenset({"bash", "sh", "zsh"})
OUTPUT_HEAD_LINES = 4
OUTPUT_TAIL_LINES = 3
# Of a result that a person refused, the beginning says so.
MAX_REFUSAL_CHARS = 240
# The statuses of a program that a signal ended, SIGINT or SIGTERM, and the one that an
# agent gives to a command that runs on.
UNFINISHED_CODES = frozenset({"130", "143", "-1"})
# A word with a number: "Fehler 12".
_NUMBERED_WORD_PATTERN = r"\A\W*[^\W\d_]+[ :=#]{1,2}-?\d{1,5}\W*\Z"
_HTTP_ERRORS = ("client error", "server error")


def failure_text(event: Event, text: str, command: str, *, marked: bool) -> str:
    """Return the text of the failure that a result reports, "" if it reports none.

    `text` are all texts of the event, and `command` is that of its call, "" without
    one. If the tool has `marked` failures in the run, no text counts. For a result that
    is marked as a failure, the error counts, or else the content, if it says more than
    an exit status.
    """
    if failure(event) or _means_failure(event.code):
        for words in (event.error, event.content):
            if not is_bare_status(words):
                return words
        return event.error or event.content or event.code or "error"
    # A status decides for the program that set it.
    is_marked = marked or is_status(event.code)
    return text if reports_failure(text, command, marked=is_marked) else ""


def hides_status(command: str) -> bool:
    """Return whether the status of a command says nothing of a program in it.

    That program writes into a pipe, or another one runs after it in any case.

    >>> [hides_status(line) for line in ("make | tail", "make; ls", "cd a && make")]
    [True, True, False]
    """
    has_program = False
    for operator, words in operated_commands(command):
        if has_program and operator.strip("()") not in ("", "&&"):
            return True
        has_program = has_program or program_name(words[0]) not in MINOR_PROGRAMS
    return False


def did_not_end(text: str, code: str = "") -> bool:
    """Return whether a call was not run, or did not run to its end.

    A person refused or interrupted it, it took too long, or it goes on. Such a call
    neither failed nor worked. `text` is that of its result, and `code` its status.

    >>> [did_not_end(text) for text in ("^C", "Command timed out after 2m", "timeout")]
    [True, True, False]
    """
    if not UNFINISHED_CODES.isdisjoint((code, *_codes_of(text, None))):
        return True
    beginning = " ".join(text[:MAX_REFUSAL_CHARS].split())
    by_user = FAILURES.pattern("refused", r"\b", r" by (?:the )?user\b")
    user_did = FAILURES.pattern("refused", r"(?i:\buser (?:has )?)")
    if by_user.search(beginning) or user_did.search(beginning):
        return True
    lines = output(text).splitlines() or [""]
    return any(
        FAILURES.find("unfinished", line.strip()) for line in (lines[0], lines[-1])
    )


def reports_failure(text: str, command: str = "", *, marked: bool = False) -> bool:
    """Return whether a result says by a code, or by its text, that its call failed.

    If its tool has `marked` the failures of the run, or gives a status for this result,
    the text counts only for a program whose status the `command` hides.

    >>> reports_failure("ls: cannot access 'srcc': No such file", "ls srcc")
    True
    >>> reports_failure("<returncode>0</returncode>\\nfatal: 3 times", "./count")
    False
    """
    data = _data_of(text)
    is_look = bool(command) and looks("", command)
    head_lines = 1 if is_look else OUTPUT_HEAD_LINES
    codes = _codes_of(text, data, head_lines)
    if codes:
        return any(map(_is_error, codes))
    if isinstance(data, Mapping):
        return marks_failure(data)
    if not isinstance(data, str):
        return False
    if marked and not hides_status(command):
        # A status decides for the program that set it.
        return False
    if marked and is_look:
        # What it shows may have errors, but a program does not show its own name.
        return _complains(data, command)
    return _says_failure(data, command, is_look)


def _codes_of(text: str, data: Any, head: int = OUTPUT_HEAD_LINES) -> list[str]:
    """Return the exit codes that a result gives, and a status of HTTP that is wrong."""
    matches = FAILURES.pattern("status", _BEFORE_STATUS, _STATUS).finditer(
        _ends(text, head)
    )
    codes: list[str] = [match["code"] for match in matches]
    lines = text.strip().splitlines() or [""]
    for line in (lines[0], lines[-1]):
        short = FAILURES.pattern("short_status", r"\A", _SHORT_STATUS).search(line)
        if short:
            codes.append(short["code"])
    response = compiled(_HTTP_STATUS_PATTERN).match(text)
    if response:
        name = response["name"].lower()
        if response["label"] or name.startswith((*STATUS_NAMES, *_HTTP_ERRORS)):
            codes.append(response["code"])
    if isinstance(data, Mapping):
        codes += _codes_in(data)
    return codes


def _codes_in(data: Fields) -> list[str]:
    """Return the exit codes in the fields of a result or a part, and a wrong status."""
    codes: list[str] = []
    for part in (data, *data.values()):
        fields = part if isinstance(part, Mapping) else {}
        for name, code in fields.items():
            if _plain_name(name) in ("exitcode", "returncode") and type(code) is int:
                codes.append(str(code))
    return codes + [
        str(status)
        for name, status in data.items()
        if _plain_name(name).startswith("status")
        and str(status) in STATUS_NAMES.values()
    ]


def _plain_name(name: Any) -> str:
    """Return the name of a field as one word: "exitcode" of `exitCode`.

    Data of Python may have numbers for names.
    """
    return str(name).replace("_", "").lower()


def _is_error(code: str) -> bool:
    """Return whether an exit code or a status of HTTP that is an error is not 0."""
    return code.strip("-0") != ""


def _data_of(text: str) -> Any:
    """Return the data that a text is, without fields or lists around one value."""
    data, end = decode(text.strip())
    if end < len(text.strip()):
        data = text
    while isinstance(data, list | Mapping) and len(data) == 1:
        if isinstance(data, Mapping) and marks_failure(data):
            break
        (data,) = data.values() if isinstance(data, Mapping) else data
    return data


def _says_failure(text: str, command: str, is_look: bool) -> bool:
    """Return whether a text without any mark of a failure says that a call failed.

    A text that begins by repeating the command is what the command was to print.
    """
    lines = text.strip().splitlines() or [""]
    if " " in lines[0] and lines[0] in command:
        return False

    most_chars = MAX_LOOK_STATEMENT_CHARS if is_look else MAX_OUTPUT_STATEMENT_CHARS
    is_short = len(text) <= most_chars and len(lines) <= OUTPUT_TAIL_LINES
    if is_short and _states_what_is_wrong(text):
        return True
    # Of a longer text, the first line may say so.
    if not is_look and _states_what_is_wrong(lines[0], FIRST_LINE_GROUPS):
        return True
    if _opens_with_error(text, is_look):
        return True
    if _complains(text, command):
        return True

    if is_look:
        return len(lines) == 1 and FAILURES.pattern("refusal").search(text) is not None
    if FAILURES.pattern("trace", "(?m)").search(text):
        return True
    return (
        command != ""
        and FAILURES.pattern("failed_line", "(?m)").search(_ends(text)) is not None
    )


def _states_what_is_wrong(text: str, groups: Iterable[str] = _BEFORE) -> bool:
    """Return whether the first sentence of a text says what is wrong.

    The words are those of the `groups` of the table.
    """
    return any(
        FAILURES.pattern(group, _BEFORE[group], _WORD_END).match(text)
        for group in groups
    )


def _opens_with_error(text: str, is_look: bool) -> bool:
    """Return whether the first sentence of a text reports an error.

    It may stand below a heading. What a command that looks prints begins with it.
    """
    heading = compiled(_HEADING_PATTERN).match(text)
    starts = [text, text[heading.end() :]] if heading else [text]
    pattern = FAILURES.pattern("error_word", _BEFORE_ERROR_WORD, _AFTER_ERROR_WORD)
    errors = list(filter(None, map(pattern.match, starts)))
    if is_look:
        errors = [error for error in errors if not error["before"]]
    return any(map(_is_report, errors))


def _is_report(error: re.Match[str]) -> bool:
    """Return whether an error word, with what surrounds it, reports an error."""
    if not FAILURES.words("no_error").isdisjoint(error["before"].lower().split()):
        return False
    after = error["after"]
    if FAILURES.pattern("nothing", r"\A\W{0,5}[:=]\W{0,2}", r"(?![\w.])").match(after):
        return False
    return compiled(_REASON_PATTERN).match(after) is not None


def _complains(text: str, command: str) -> bool:
    """Return whether the first or the last line is a complaint of the command."""
    lines = text.strip().splitlines() or [""]
    return any(_is_complaint(line, command) for line in (lines[0], lines[-1]))


def _is_complaint(line: str, command: str) -> bool:
    """Return whether a program of the command says in a line what is wrong.

    It begins the line with its name, or the shell does: "ls: cannot access 'srcc'".
    """
    programs = {word.strip("()").rpartition("/")[2] for word in command.split()}
    name, _, words = line.partition(": ")
    is_own = name.rpartition("/")[2].lower() in programs | _SHELLS
    if not command or not is_own:
        return False
    return any(
        FAILURES.pattern(group, r"(?<![\w/-])", _WORD_END).search(words)
        for group in (*_BEFORE, "complaint")
    )


def _ends(text: str, head: int = OUTPUT_HEAD_LINES) -> str:
    """Return the first lines of a text, so many as `head`, and the last ones.

    What stands between may be the text of another call, as in a log that is read.
    """
    lines = text.strip().splitlines()
    if len(lines) <= head + OUTPUT_TAIL_LINES:
        return text
    return "\n".join([*lines[:head], *lines[-OUTPUT_TAIL_LINES:]])


def marks_failure(fields: Fields) -> bool:
    """Return whether the fields of a result say that its call failed.

    A state of failure counts with a reason; without one, it may be that of another
    call.
    """
    values = {_plain_name(name): value for name, value in fields.items()}
    errors = [values[name] for name in values if name.removeprefix("is")[:3] == "err"]
    if any(map(_is_error, _codes_in(fields))) or any(errors):
        return True
    states = [str(values[name]).lower() for name in values if name.endswith("status")]
    if "error" in (*states, values.get("type")):
        return True
    has_reason = any(map(values.get, REASON_NAMES))
    is_failed = any(state.startswith("fail") for state in states)
    results = [str(values.get(name)).lower() for name in ("success", "ok")]
    return (has_reason and is_failed) or "false" in results


def marks_success(fields: Fields) -> bool:
    """Return whether a field of a result says that its call worked.

    >>> marks_success({"is_error": False}), marks_success({"exit_code": 1})
    (True, False)
    """
    codes = _codes_in(fields)
    if codes:
        return not any(map(_is_error, codes))
    return False in (fields.get("is_error"), fields.get("isError"))


def is_status(code: str) -> bool:
    """Return whether a code is an exit status or a status of HTTP."""
    return code.isdecimal() and int(code) < 600


def _means_failure(code: str) -> bool:
    """Return whether a code is an exit status or a status of HTTP that means failure.

    >>> [_means_failure(code) for code in ("0", "1", "200", "404", "OK")]
    [False, True, False, True, False]
    """
    return is_status(code) and (0 < int(code) < 100 or int(code) >= 400)


def status_words(event: Event) -> str:
    """Return the status that a result reports, without any other words of it.

    >>> status_words(Event("tool_response", "Exit code 127\\nsh: rg: not found"))
    'exit code 127'
    """
    text = f"{event.error}\n{event.content}".strip()
    codes = [event.code, *_codes_of(text, _data_of(text))]
    code = next((code for code in codes if is_status(code) and _is_error(code)), "")
    if not code:
        return ""
    return f"status {code}" if int(code) >= 400 else f"exit code {code}"


def is_bare_status(text: str) -> bool:
    """Return whether a text is only the number or the name of a status, or both.

    >>> texts = ("exit 1", "400 Bad Request", "429: slow", "Fehler 12")
    >>> [is_bare_status(text) for text in texts]
    [True, True, False, True]
    """
    if compiled(_NUMBERED_WORD_PATTERN).match(text):
        return True
    words = FAILURES.pattern("status_word", r"\b", r"\b").sub(" ", output(text))
    bare = " ".join(compiled(r"\w*\d\w*|[^\w\s]").sub(" ", words).split())
    return not bare or bare.lower() in STATUS_NAMES
