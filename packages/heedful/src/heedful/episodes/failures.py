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

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from heedful.episodes.episode import Event, failure
from heedful.episodes.error_lines import decode, output
from heedful.episodes.looks import looks
from heedful.lessons.words import compiled
from heedful.validation import Fields

# The names of the statuses of HTTP that mean a failure, such as "not found".
STATUS_NAMES = {
    status.phrase.lower(): str(status.value) for status in HTTPStatus if status >= 400
}
# A line with an exit status: "exit code 2", "rc=1", "Process exited with code 2",
# "<returncode>1</returncode>"; or a status of HTTP, perhaps in a page.
_STATUS_PATTERN = (
    r"(?im)^\W{0,2}(?:[\w ]{1,60} )?"
    r"(?:(?:exit|return) ?(?:code|status)|exited with code"
    r"|(?-i:exit|rc|\$\?)(?= ?[:=][^\n]*\Z)|\A(?-i:exit|rc)(?= ?[:=]))"
    r"[\s:=>]{0,4}(?P<exit>-?\d{1,10})\W{0,2}(?:\([\w ]{1,40}\)|/\w+>)?\W{0,2}$"
    r"|\A(?:<[^>]{1,80}>|\s)*(HTTP\S* |[\w ]{1,40} status (?:code )?)?"
    r"(?P<status>[45]\d\d)\b"
    rf"(?(2)|:? (?:client error|server error|{'|'.join(STATUS_NAMES)}))"
)
# A text that begins with an error.
_ERROR_START_PATTERN = (
    # After marks, tags and a few words, as in "fatal: no such branch", "<error>",
    # "1 validation error:" and "Request failed with status 404", is a word for it,
    r"(?m)\A\s*(?:(?:#[^\n]*|[^\n]{0,120}:)\n)?(?:<[^>\n]{0,80}>\s*){0,3}?[^\w\n]{0,12}"
    r"(?:(?!(?:no|0|zero|without|on|of|about|if|class|def|raise|except)\b)"
    r"[\w.'()/-]{1,40} ){0,7}?"
    r"[\w.:]*(?:Exception|(?i:error|fatal|panic(?:ked)?|failed|failure|crashed|aborted|declined))(?i:s|\(s\))?"
    # but not in the name of a file or a key, as in "error.log",
    r"(?![\w-]|\.\w|['\"](?! *:)| (?:is|are) )"
    # nor in a report of no error, as in "error: null" or "Failed: 0".
    r"(?!\W{0,5}[:=]\s?(?i:null|none|false|0|\"\"|\[\]|\{\})(?![\w.]))"
    # What went wrong follows, or the text ends.
    r"(?:\W{0,3}[:>]|(?:[^\n.]|\.\w){0,160}?(?:: ?\S|!?\Z)|(?: has)? occurred\b"
    r"|(?<=Failed) to \w|(?i:[.!] +(?:please|try)\b)"
    r"|[^\n]{0,160}?(?:(?i:\berror): ?\S|[\w.](?:Error|Exception)\b))"
    # The first line is the word alone.
    r"|\A\W*(?i:error|failed|failure)\W*$"
    # A line begins a traceback, or says which program is missing.
    r"|^Traceback \(most recent call last\)"
    r"|^\W{0,2}(?:[A-Z]\w{1,5} )?[\w.]*[a-z](?:Error|Exception): \S"
    r"|^(?:[\w./-]+: )*(?:line \d+: )?(?i:command not found): \S"
    r"|^(?:[\w./-]+: )+(?:line \d+: )?\S+: (?:command )?not found$"
)
# What is absent, wrong or forbidden: in these words, and at the beginning in those.
_WRONG = (
    r"(?<![\w/.(\"'-])(?:no such|no (?:known|valid|matching|replacement)"
    r"|nothing happens|time(?:d |-)?out(?: after \d[\d.]* ?[a-z]+)?(?=\W*\Z)"
    r"|\w+[ _]exceeded|exceeds|(?:not|\w+n't) (?:been |be |an? )?(?:exist|found|match"
    r"|valid|recogni|support|allow|permit|authori|appear|install|execut|read|understand|function"
    r"|successful|authentic)\w*|unauthori[sz]ed|killed(?=\W*\Z)|syntax error|denied"
    r"|dumped|took (?:more|longer|too)|undefined"
    r"|unterminated|unrecognized|unexpected|invalid|malformed|refused|forbidden|illegal|ambiguous"
    r"|(?-i:ERR_\w+|E[A-Z]{4,12}(?=[:,]|\Z)))(?![\w/-])"
)
_WRONG_AT_FIRST = (
    r"(?:(?:[^\s:]+ ){0,3}(?:cannot|can(?:'t|not)|could ?n[o']t|unable to)|unknown"
    r"|incorrect|missing|insufficient)(?![\w/-])"
)
# A short text whose first sentence says so: "no such column: total".
_STATEMENT_PATTERN = (
    r"(?i)\A\s*(?!\[|\S*:?\d+:|(?:\w+ )?warn|[\w ]+: 0\W*\Z)"
    rf"(?:(?!I\b)(?:(?-i:[a-z./][\w./+-]*|[\w./+-]+ ): )?{_WRONG_AT_FIRST}"
    rf"|(?:[^\n.]|\.(?=\S)){{0,120}}?{_WRONG})"
)
MAX_OUTPUT_STATEMENT_CHARS = 500
MAX_LOOK_STATEMENT_CHARS = 60
# What is wrong with a program, after its name or that of a shell.
_WRONG_PATTERN = (
    rf"(?i){_WRONG}|\*\*\*|\b(?:{_WRONG_AT_FIRST}"
    r"|(?:not?|must|required|fail(?:ed|ure)?|error)\b)"
)
_SHELLS = frozenset({"bash", "sh", "zsh"})
_REFUSAL = r"\b(?:connection|permission|access|was) (?:refused|denied)\b"
# How an output of a command begins or ends that failed: an error by its type or label,
# a place in a file with a message, a count of tests, or who refused.
_FAILED_OUTPUT_PATTERN = (
    r"(?m)^[\W_]{0,12}(?:[\w.]*(?:Error|Exception)\b: "
    r"|(?i:error|fatal|failure|panic|denied|e)(?:\[\w+\])?(?:: ?\S| code | (?=[A-Z]))"
    r"|(?:FAIL|FAILED|ERROR)\b(?!\W*0\b))"
    r"|^\S+\.\w{1,5}(?::\d+(?::\d+)?|\(\d+(?:,\d+)?\)):? "
    r"(?!warning|note|info)(?:\w+: )?\S"
    r"|\(\w+(?:Error|Exception)\)$|^npm (?:ERR!|error) "
    r"|^[A-Z][\w .-]{0,40}(?<! 0) failed\b"
    r"|\b[1-9]\d* (?:failed|fail|(?:error|failure|problem)s?)\b"
    rf"|{_REFUSAL}"
)
OUTPUT_HEAD_LINES = 4
OUTPUT_TAIL_LINES = 3
# A call that was not run or not finished because a person did not want it. What begins
# with such words says nothing about the tool.
REFUSED_BY_PERSON_PATTERN = (
    r"(?is)\A.{0,200}?\b(?:"
    r"(?:reject|declin|deni|refus|cancel|abort|interrupt|stopp|not approv|not allow)"
    r"\w* by (?:the |a )?(?:human |\w+ )?(?:user|human|person|reviewer|operator)\b"
    r"|user (?:doesn't|does not|didn't|did not) (?:want|wish|allow|approve|accept)\b"
    r"|user (?:has )?(?:rejected|declined|refused|cancell?ed|aborted|interrupted)\b"
    r"|you (?:haven't|have not) granted\b)"
)
# What a text says beside the name of a status: "exit code 1", "HTTP/1.1 404",
# "Fehler 12".
_STATUS_WORD_PATTERN = (
    r"\A\W*[^\W\d_]+[ :=#]{1,2}-?\d{1,5}\W*\Z"
    r"|\b(?:http(?:/[\d.]+)?|exit(?:ed)?|with|code|status|command|process|error|failed"
    r"|returned|sqlstate|\w*\d\w*)\b|[^\w\s]"
)


def failure_text(event: Event, text: str, command: str = "", *, marked: bool) -> str:
    """Return the text of the failure that a result reports, "" if it reports none.

    `text` are all texts of the event, and `command` is that of its call, "" without
    one. If the tool has `marked` failures in the run, no text counts. For a result that
    is marked as a failure, the error counts, or else the content, if it says more than
    an exit status.
    """
    if not failure(event) and not _means_failure(event.code):
        return text if reports_failure(text, command, marked=marked) else ""

    for words in (event.error, event.content):
        if output(words) and not is_bare_status(words):
            return words
    return event.error or event.content or event.code or "error"


def reports_failure(text: str, command: str = "", *, marked: bool = False) -> bool:
    """Return whether a result says by a code, or by its text, that its call failed.

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
    return (
        isinstance(data, str) and not marked and _says_failure(data, command, is_look)
    )


def _codes_of(text: str, data: Any, head: int = OUTPUT_HEAD_LINES) -> list[str]:
    """Return the exit codes that a result gives, and a status of HTTP that is wrong."""
    matches = compiled(_STATUS_PATTERN).finditer(_ends(text, head))
    codes: list[str] = [match["exit"] or match["status"] for match in matches]
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
    if is_short and compiled(_STATEMENT_PATTERN).match(text):
        return True
    if compiled(_ERROR_START_PATTERN).search(text):
        return True
    if any(_is_complaint(line, command) for line in (lines[0], lines[-1])):
        return True

    if is_look:
        return len(lines) == 1 and compiled(_REFUSAL).search(text) is not None
    return (
        command != ""
        and compiled(_FAILED_OUTPUT_PATTERN).search(_ends(text)) is not None
    )


def _is_complaint(line: str, command: str) -> bool:
    """Return whether a program of the command says in a line what is wrong.

    It begins the line with its name, or the shell does: "ls: cannot access 'srcc'".
    """
    programs = {word.strip("()").rpartition("/")[2] for word in command.split()}
    name, _, words = line.partition(": ")
    is_own = name.rpartition("/")[2].lower() in programs | _SHELLS
    return (
        command != "" and is_own and compiled(_WRONG_PATTERN).search(words) is not None
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
    has_reason = any(map(values.get, ("message", "reason", "detail")))
    is_failed = any(state.startswith("fail") for state in states)
    results = [str(values.get(name)).lower() for name in ("success", "ok")]
    return (has_reason and is_failed) or "false" in results


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
    words = compiled(_STATUS_WORD_PATTERN).sub(" ", text.lower())
    bare = " ".join(words.split())
    return not bare or bare in STATUS_NAMES
