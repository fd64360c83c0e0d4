"""Before the action: what a call has in common with calls that failed. Pure.

A call is marked as a whole, by the path that it is about, and by the names in its
arguments. A failure marks the call, each name that the error quotes, and the path if
the error says that there is none. A success ends the mark of a call; a name or a path
that ever worked is not marked. The contracts of tools are marks, too.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from heedful.lessons.action import (
    REPLACED_ARGUMENTS,
    arguments_of,
    command_of,
    path_of,
    relative_path,
)
from heedful.lessons.commands import release_command
from heedful.lessons.contracts import ABSENT_CONTRACT, CONTRACTS, Contract
from heedful.lessons.lesson_check import LessonCheck
from heedful.lessons.origin import Origin, origin_of, sources_of
from heedful.lessons.scope import MAX_READ_CHARS, State, digest_of
from heedful.lessons.shell import program_name, simple_commands
from heedful.lessons.user_rules import StatedRule
from heedful.redact import redact_start

# The kinds of marks; what says most comes first.
MarkKind = Literal["contract", "path", "name", "call", "command"]
# One indexed read finds all marks of a call.
MAX_CALL_MARKS = 60
# A session has read so many files that one it has not read was not read before it was
# resumed, either.
MIN_KNOWN_READS = 5
# The codes of system events after which an agent does not know what it has read.
FORGETTING_CODES = frozenset({"resume", "clear", "compact", "compact_boundary"})
# A call with one of these searches in its path and reads no file.
SEARCH_ARGUMENTS = ("pattern", "query", "regex", "glob")
# What an error quotes: a text in quotes, a path or an option.
_ERROR_NAME_PATTERN = re.compile(
    r"[`'\"“‘]([^`'\"“”‘’\s]{2,120})[`'\"”’]|((?:[\w.@~-]*/)+[\w.@-]+)"
    r"|(?<![\w-])(--?[A-Za-z][\w-]+)"
)
# What is shown of the output of a command.
_FILTER_PATTERN = re.compile(r"\s*\d?>&\d|\s*\|\s*(?:head|tail)[^|&;]*$")


@dataclass(frozen=True, slots=True)
class Mark:
    """What a call has in common with another: the `kind`, a `name`, and a `tool`.

    The tool of a name in a command is the program whose argument it is; a command and a
    path have none.
    """

    kind: MarkKind
    name: str
    tool: str = ""

    @property
    def digest(self) -> str:
        """The digest by which it is found again."""
        return digest_of("mark", "\0".join((self.kind, self.tool, self.name)))


@dataclass(frozen=True, slots=True)
class FileReading:
    """The files that a session has `read` since it began, or lost its context."""

    read: frozenset[str] = frozenset()

    def after(self, arguments: Mapping[str, Any], folder: str) -> "FileReading":
        """Return what is read after a call that worked."""
        path = touched_path(arguments, folder)
        return FileReading(self.read | {path}) if path else self

    def has_unread(self, arguments: Mapping[str, Any], folder: str) -> bool:
        """Return True if a call is about a file that was surely not read."""
        path = touched_path(arguments, folder)
        is_known = len(self.read) >= MIN_KNOWN_READS
        return path != "" and path not in self.read and is_known


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a finished run: the `marks` of its call, and those that `failed`.

    `failed` pairs each of those with its error line. `errors` name the errors, none if
    the call worked. `lesson` is the id of the lesson about the failure, 0 if there is
    none. `at` is the time of its result in seconds since 1970, 0 if unknown. A failure
    cost so many `calls`: itself, and those until a like call passed. `contract` is the
    name of the contract that it broke, if any. The errors have the `origin` of what the
    call reads.
    """

    marks: tuple[Mark, ...]
    errors: tuple[str, ...] = ()
    _: KW_ONLY
    failed: tuple[tuple[Mark, str], ...] = ()
    path: str = ""
    lesson: int = 0
    at: float = 0.0
    calls: int = 1
    contract: str = ""
    origin: Origin = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFailure:
    """A known failure of earlier calls that share a mark with the call.

    The mark has a `kind`, a `name`, a `tool` and a `digest`. Calls with this mark
    failed in `runs` runs, last at the time `failed`, in seconds since 1970. `error` is
    the last error, `words` are those of a person or a model about it, and `fix` is what
    fixed it, each "" if unknown. `lesson` is the id of the lesson, 0 without one, with
    its `trust` and its `lesson_state`. `text` says all this in words.
    """

    kind: MarkKind
    name: str = ""
    tool: str = ""
    digest: str = ""
    error: str = ""
    words: str = ""
    fix: str = ""
    runs: int = 1
    failed: float = 0.0
    lesson: int = 0
    trust: Origin = "local"
    lesson_state: State = "unverified"
    text: str = ""

    @property
    def mark(self) -> Mark:
        """What the calls have in common."""
        return Mark(self.kind, self.name, self.tool)


@dataclass(frozen=True, slots=True)
class ActionHistory:
    """The result of `Memory.before`; true if something speaks against the action.

    `failures` are the known failures. `marks` are the digests of the marks that they,
    and others with the same errors, have in common with the action. `waiting` are the
    ids of lessons about the action that wait in quarantine; their texts are not shown.
    `checks` are the checks of lessons that find something in the action, and `rules`
    the rules of the user that name it.
    """

    failures: tuple[KnownFailure, ...] = ()
    waiting: tuple[int, ...] = ()
    checks: tuple[LessonCheck, ...] = ()
    rules: tuple[StatedRule, ...] = ()
    marks: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.failures or self.checks or self.rules)

    @property
    def warnings(self) -> Mapping[int, str]:
        """What to say before the action, by the ids of lessons, 0 without one."""
        texts = {check.lesson: f"{check.about}: {check.text}" for check in self.checks}
        for failure in self.failures:
            before = texts.get(failure.lesson)
            texts[failure.lesson] = "\n".join(filter(None, [before, failure.text]))
        return texts

    @property
    def release(self) -> str:
        """The command that releases the lessons that wait, or ""."""
        return release_command(self.waiting)


def touched_path(arguments: Mapping[str, Any], folder: str = "") -> str:
    """Return the path of a file that a call reads or writes; "" if there is none."""
    if any(name in arguments for name in SEARCH_ARGUMENTS):
        return ""
    return relative_path(path_of(arguments), folder)


def marks_of(
    tool: str, arguments: Mapping[str, Any] | str, folder: str = ""
) -> tuple[Mark, ...]:
    """Return the marks that a call may have, at most `MAX_CALL_MARKS`, the whole first.

    Paths below the `folder` of the repository are relative to it.

    >>> [mark.name for mark in marks_of("Bash", {"command": "npm ci --frozen"})]
    ['npm ci --frozen', 'npm', 'ci', '--frozen']
    """
    fields = arguments_of(arguments)
    marks = dict.fromkeys([whole_call(tool, fields, folder)])
    path = relative_path(path_of(fields), folder)
    if path:
        marks[Mark("path", path)] = None
    for place, text in _texts_of(tool, fields, folder):
        for name in _names_in(text):
            marks[Mark("name", name, place)] = None
    return tuple(marks)[:MAX_CALL_MARKS]


def whole_call(tool: str, arguments: Mapping[str, Any] | str, folder: str = "") -> Mark:
    """Return the mark of a call as a whole: the tool with the same arguments.

    A command is the same whichever tool runs it and whatever is shown of its output.
    """
    command = command_of(arguments)
    if command:
        text = _FILTER_PATTERN.sub("", _plain_text(command, folder))
        if is_shell(tool, arguments):
            return Mark("command", text.strip())
        return Mark("call", text.strip(), tool)
    text = json.dumps(arguments, sort_keys=True, ensure_ascii=False, default=repr)
    return Mark("call", _plain_text(text, folder), tool)


def call_origin(
    tool: str,
    arguments: Mapping[str, Any] | str,
    stated: Set[str] = frozenset(),
) -> Origin:
    """Return the origin of what a call reads; `stated` are names that people stated."""
    # Who asks about a command alone names no tool.
    return origin_of(sources_of(tool or "shell", command_of(arguments)), stated)


def is_shell(tool: str, arguments: Mapping[str, Any] | str) -> bool:
    """Return True if a call runs a command of a shell, and not a query."""
    return command_of(arguments) != "" and "sql" not in tool.casefold()


def _plain_text(text: str, folder: str) -> str:
    """Return a text without secrets; its paths are relative to the folder."""
    if folder:
        text = text.replace(f"{folder}/", "")
    return redact_start(text, MAX_READ_CHARS)


def _texts_of(
    tool: str, arguments: Mapping[str, Any], folder: str
) -> Iterator[tuple[str, str]]:
    """Yield the texts in which names stand, each with the program or the tool."""
    if is_shell(tool, arguments):
        line = _plain_text(command_of(arguments), folder)
        for words in simple_commands(line):
            # In "find -exec a \; -exec b", the second option begins no command.
            if not words[0].startswith("-"):
                yield program_name(words[0]), " ".join(words)
        return
    yield tool, " ".join(arguments)
    for value in arguments.values():
        # A longer text is no argument but content. In single quotes stands a value of a
        # query, and no name in it.
        if isinstance(value, str) and len(value) < MAX_READ_CHARS // 4:
            yield tool, re.sub(r"'[^']*'", " ", _plain_text(value, folder))


def _names_in(text: str) -> Iterator[str]:
    """Yield the words of a text by which an error may name them, in lower case.

    A dotted name is named by its parts, too: “owner” in “pets.owner”.
    """
    for word in re.findall(r"[\w.@~/-]+", text.casefold()):
        name = word.rstrip(".")
        if len(name) > 1:
            yield name
        if "/" not in name:
            yield from (part for part in name.split(".") if 1 < len(part) < len(name))


def _quoted_in(error: str) -> Iterator[str]:
    """Yield what an error quotes, as `_names_in` yields it."""
    for groups in _ERROR_NAME_PATTERN.findall(error.casefold()):
        name = "".join(groups).rstrip(".,:;")
        yield name
        if "/" not in name:
            yield name.rpartition(".")[2]


def failed_marks(
    tool: str,
    arguments: Mapping[str, Any] | str,
    errors: Sequence[str],
    contract: Contract | None = None,
    folder: str = "",
) -> dict[Mark, str]:
    """Return the marks of a call that failed, each with the error line that says so.

    `contract` is the one that the call broke. A tool that is broken itself says nothing
    about the call.
    """
    if not errors or (contract is not None and contract.is_passing):
        return {}
    marks = marks_of(tool, arguments, folder)
    is_absent = contract == ABSENT_CONTRACT
    # An absent path is marked for every tool, and until any tool finds it.
    failed = {} if is_absent else {marks[0]: errors[0]}
    if contract is not None:
        failed[Mark("contract", contract.name, tool)] = errors[0]
    for error in reversed(errors):
        quoted = set(_quoted_in(_plain_text(error, folder)))
        for mark in marks:
            is_named = mark.kind == "name" and mark.name in quoted
            if is_named or (mark.kind == "path" and is_absent):
                failed[mark] = error
    return failed


def contract_marks(
    tool: str, arguments: Mapping[str, Any], reading: FileReading, folder: str = ""
) -> tuple[Mark, ...]:
    """Return the contracts of tools that a call is about to break, as it seems."""
    texts = [text for text in arguments.values() if isinstance(text, str) and text]
    # A file without a text to replace may be new.
    is_edit = any(name in arguments for name in REPLACED_ARGUMENTS)
    states = {
        "unread": is_edit and reading.has_unread(arguments, folder),
        "equal": touched_path(arguments) != "" and len(texts) > len(set(texts)),
    }
    return tuple(
        Mark("contract", contract.name, tool)
        for contract in CONTRACTS
        if states.get(contract.state)
    )
