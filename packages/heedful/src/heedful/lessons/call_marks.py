"""Marks: what a call has in common with calls that failed. Pure.

A call has a mark for the whole of it, one for the path that it is about, and one for
each name in its arguments. A failure is recorded under the mark of the whole call, of
each name that the error says, and of the path if the error says that it is absent. It
counts until a call with that mark passes; a name or a path that has ever passed counts
no more. A contract that a call breaks is a mark, too.

A name is a whole word of the call and of its error. In the error it stands in quotes,
is a path or an option, or is what was not found. If the error of a query says a table
or its alias, too, the name is that of the column with its table: "pets.owner".
"""

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import KW_ONLY
from typing import Literal

from heedful.knowledge import KnowledgeTable
from heedful.lessons.action import (
    REPLACED_ARGUMENTS,
    RUNNERS,
    arguments_of,
    command_of,
    path_of,
    programs_in,
    relative_path,
)
from heedful.lessons.commands import release_command
from heedful.lessons.contracts import ABSENT_CONTRACT, CONTRACTS, Contract
from heedful.lessons.lesson_check import LessonCheck
from heedful.lessons.origin import Origin, origin_of, sources_of
from heedful.lessons.scope import MAX_READ_CHARS, digest_of
from heedful.lessons.shell import simple_commands
from heedful.lessons.user_rules import StatedRule
from heedful.lessons.words import compiled
from heedful.redact import redact_start
from heedful.validation import Fields, typed_frozen

# The kinds of marks; what says most comes first.
MarkKind = Literal["contract", "path", "name", "call", "command"]
# One indexed read finds all marks of a call.
MAX_CALL_MARKS = 60
# Once a session has read this many files, their list is taken as complete: another file
# was not read, not even before the session was resumed.
MIN_KNOWN_READS = 5
# The codes of system events after which an agent does not know what it has read.
FORGETTING_CODES = frozenset({"resume", "clear", "compact", "compact_boundary"})
# A call with one of these searches in its path and reads no file.
SEARCH_ARGUMENTS = ("pattern", "query")
# A word of a call or of an error, between blanks, quotes and punctuation. A word with
# "*", "?", "$", brackets or braces is a pattern, and no name.
_WORD_PATTERN = (
    r"(?<![^\s\"'`“”‘’,;()=|&<>])"
    r"[^\s\"'`“”‘’,;()=|&<>*?$\[\]{}]+[^\s\"'`“”‘’,;()=|&<>*?$\[\]{}.:]"
    r"(?=[.:]*(?![^\s\"'`“”‘’,;()=|&<>]))"
)
# What errors name.
_ERROR_NAMES = KnowledgeTable("lessons/error_names")
# The first word of a query.
_QUERY_PATTERN = r"(?m)(?:^|[;\"'(])\s*(?:select|insert|update|delete|desc(?:ribe)?)\s"
# A table of a query, without its schema, and the word after it: its alias, or another.
_TABLE_PATTERN = (
    r"\b(?:from|join|into|update|desc(?:ribe)?)\s+"
    r"(?:[\w\"`-]+\.)*[\"`]?(\w+)\b[\"`]?(?:(?=\s+(?:as\s+)?[\"`]?(\w+)))?"
)
# The part of a dotted name before the last dot, such as an alias, and the last part.
_QUERY_NAME_PATTERN = r"(?:(\w+)[\"`]?\.[\"`]?)*(?!\d)(\w\w+)"
# What is shown of the output of a command.
FILTER_PATTERN = r"\s*\d?>&\d|\s*\|\s*(?:head|tail)[^|&;]*$"


@typed_frozen(slots=True)
class Mark:
    """What a call has in common with other calls.

    `name` is the text that they share: a path, a name, a contract or the whole call.
    `tool` is the tool, or the program of a shell whose argument the name is; it is ""
    for a command and a path, which any tool may use.
    """

    kind: MarkKind
    name: str
    tool: str = ""

    @property
    def digest(self) -> str:
        """The digest under which a store keeps the mark."""
        return digest_of("mark", "\0".join((self.kind, self.tool, self.name)))


@typed_frozen(slots=True)
class Step:
    """A step of a finished run: the `marks` of its call, and how the call ended.

    `errors` are the lines that name its errors, empty if the call passed, and `digests`
    those of their signatures. `failed` are the marks that these errors are about, each
    with its error line. `lesson` is the id of the lesson about the failure, 0 if there
    is none. `at` is the time of the result in seconds since 1970, 0 if unknown, and
    `id` that of the call if no other run has it. `calls` is what the failure cost: the
    call, and those after it until a like call passed. `origin` is that of what the call
    reads, and so of its errors.
    """

    marks: tuple[Mark, ...]
    errors: tuple[str, ...] = ()
    _: KW_ONLY
    digests: tuple[str, ...] = ()
    failed: tuple[tuple[Mark, str], ...] = ()
    path: str = ""
    lesson: int = 0
    at: float = 0.0
    id: str = ""
    calls: int = 1
    origin: Origin = "local"


@typed_frozen(slots=True, kw_only=True)
class KnownFailure:
    """A failure of earlier calls with the same path, name or command.

    `kind`, `name`, `tool` and `digest` describe the path, name or command; `name` is ""
    for a whole call. The calls failed in `runs` runs, last at the time `failed`, in
    seconds since 1970. `error` is the last error, `words` is what a person or a model
    said about it, and `fix` is what fixed it; each is "" if unknown or held back.
    `lesson` is the id of the lesson about it, 0 if there is none. `text` says all this
    in words.
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
    text: str = ""

    @property
    def mark(self) -> Mark:
        """What the calls have in common."""
        return Mark(self.kind, self.name, self.tool)


@typed_frozen(slots=True)
class ActionHistory:
    """The result of `Memory.before`; true if something speaks against the action.

    `failures` are the known failures. `waiting` are the ids of the quarantine entries
    with lessons about the action; their texts are not shown. `checks` are the checks of
    lessons that refuse the action, and `rules` are the rules of the user that name it.
    `silence` says why no failure and no check is told, "" if one is.
    """

    failures: tuple[KnownFailure, ...] = ()
    waiting: tuple[int, ...] = ()
    checks: tuple[LessonCheck, ...] = ()
    rules: tuple[StatedRule, ...] = ()
    silence: str = ""

    def __bool__(self) -> bool:
        return bool(self.failures or self.checks or self.rules)

    @property
    def release(self) -> str:
        """The command that releases the entries in `waiting`; "" if there are none."""
        return release_command(self.waiting)


def met_call_mark(digest: str) -> str:
    """Return the mark of a reader whose own call with a mark failed."""
    return f"met {digest}"


def told_call_mark(digest: str) -> str:
    """Return the mark of a reader who was told about calls with a mark."""
    return f"told {digest}"


def touched_path(arguments: Fields, folder: str = "") -> str:
    """Return the path of the file that a call reads or writes; "" if there is none.

    A path below `folder`, the root of the repository, is relative to it. A search has
    no such file.
    """
    if any(name in arguments for name in SEARCH_ARGUMENTS):
        return ""
    return relative_path(path_of(arguments), folder)


def marks_of(tool: str, arguments: Fields | str, folder: str = "") -> tuple[Mark, ...]:
    """Return what a call may have in common with others, at most `MAX_CALL_MARKS`.

    First is the mark of the whole call, then that of its path and those of the names
    in its arguments; those of the columns of a query are last. Paths below `folder`,
    the root of the repository, are relative to it.

    >>> [mark.name for mark in marks_of("Bash", {"command": "npm ci --frozen"})]
    ['npm ci --frozen', 'npm', 'ci', '--frozen']
    """
    fields = arguments_of(arguments)
    # A dictionary, so that each mark is there once, in order.
    marks = dict.fromkeys([whole_call(tool, fields, folder)])
    path = relative_path(path_of(fields), folder)
    if path:
        marks[Mark("path", path)] = None
    for program, text in _texts_of(tool, fields, folder):
        for name in _names_in(text):
            marks[Mark("name", name, program)] = None
    return tuple(marks)[:MAX_CALL_MARKS]


def whole_call(tool: str, arguments: Fields | str, folder: str = "") -> Mark:
    """Return the mark of a call as a whole: its tool with all its arguments.

    Calls with the same mark are the same call. A command of a shell is so whichever
    tool runs it and whatever part of its output is shown, as by `| head`. Paths below
    `folder` are relative to it.
    """
    command = command_of(arguments)
    if command:
        text = without_filter(_plain_text(command, folder))
        if is_shell(tool, arguments):
            return Mark("command", text.strip())
        # A query is in the language of its tool.
        return Mark("call", text.strip(), tool)
    text = json.dumps(arguments, sort_keys=True, ensure_ascii=False, default=repr)
    return Mark("call", _plain_text(text, folder), tool)


def without_filter(command: str) -> str:
    """Return a command without what shows a part of its output only."""
    return compiled(FILTER_PATTERN).sub("", command)


def call_origin(
    tool: str,
    arguments: Fields | str,
    stated: Set[str] = frozenset(),
) -> Origin:
    """Return how far what a call reads is trusted, such as "outside" for the web.

    Without a `tool`, the arguments are a command. `stated` are the names of sources
    that people declared to be their own.
    """
    return origin_of(sources_of(tool or "shell", command_of(arguments)), stated)


def is_shell(tool: str, arguments: Fields | str) -> bool:
    """Return True if a call runs a command of a shell, and not a query."""
    return command_of(arguments) != "" and "sql" not in tool.casefold()


def _plain_text(text: str, folder: str) -> str:
    """Return a text without secrets; its paths are relative to the folder."""
    if folder:
        text = text.replace(f"{folder}/", "")
    return redact_start(text, MAX_READ_CHARS)


def _texts_of(tool: str, arguments: Fields, folder: str) -> Iterator[tuple[str, str]]:
    """Yield pairs: a program or a tool, and a text of its arguments with names.

    For a line of a shell, a pair is a program and a word of its command. A program
    belongs to itself, as both do in "timeout 9 npm ci". What a runner starts belongs to
    the runner, as "pytest" in "python -m pytest": another one may have it. For any
    other call, a pair is the tool and a text of its arguments. Texts have no secrets.
    """
    if is_shell(tool, arguments):
        line = _plain_text(command_of(arguments), folder)
        for words in simple_commands(line):
            programs = list(programs_in(words))
            # In "find -exec a \; -exec b", the second option begins no command.
            if words[0].startswith("-") or not programs:
                continue
            runner = next((name for name in programs[:-1] if name in RUNNERS), "")
            for word in words:
                if word == programs[-1]:
                    yield runner or word, word
                elif word in programs:
                    yield word, word
                else:
                    yield programs[-1], word
        return
    yield tool, " ".join(arguments)
    for value in arguments.values():
        # A longer text is content, such as that of a file. A text in single quotes is a
        # value of a query and no name.
        if isinstance(value, str) and len(value) < MAX_READ_CHARS // 4:
            yield tool, compiled(r"'[^']*'").sub(" ", _plain_text(value, folder))


def _names_in(text: str) -> list[str]:
    """Return the words of a text that an error may name, in lower case.

    For a query, these are first its words, of “p.owner” the last part, and then its
    columns with their tables.

    >>> _names_in("select p.owner from pets p")
    ['select', 'owner', 'from', 'pets', 'pets.select', 'pets.owner', 'pets.from', ...]
    """
    tables = _tables_in(text)
    text = text.casefold()
    if not tables:
        return compiled(_WORD_PATTERN).findall(text)
    parts = compiled(_QUERY_NAME_PATTERN).findall(text)
    names = [name for _, name in parts]
    return names + [
        f"{tables[alias]}.{name}" for alias, name in parts if alias in tables
    ]


def _tables_in(text: str) -> dict[str, str]:
    """Map the tables of a query and their aliases to the tables, in lower case.

    "" is the first table: a word without an alias is taken for one of its columns. The
    result is empty if the text is no query.
    """
    tables: dict[str, str] = {}
    text = text.casefold()
    if compiled(_QUERY_PATTERN).search(text):
        # What stands before a dot; the word after a table need not be its alias.
        owners = {owner for owner, _ in compiled(_QUERY_NAME_PATTERN).findall(text)}
        for table, alias in compiled(_TABLE_PATTERN).findall(text):
            tables = dict.fromkeys(["", table, *owners & {alias}], table) | tables
    return tables


def _error_names(error: str, tables: Mapping[str, str]) -> Set[str]:
    """Return the names that an error says, in lower case.

    `tables` are those of the query that failed. If the error says one of them or its
    alias, its other names are columns of this table, such as "pets.owner".
    """
    text = error.casefold()
    names = set(map("".join, _ERROR_NAMES.pattern("name").findall(text)))
    if not tables:
        return names
    parts = {name.rpartition(".")[2] for name in names}
    columns = set[str]()
    for alias in tables.keys() & compiled(r"\w+").findall(text):
        columns |= {f"{tables[alias]}.{name}" for name in parts - tables.keys()}
    return columns or names | parts


def quoted_names(tool: str, arguments: Fields | str, errors: Sequence[str]) -> set[str]:
    """Return the names in the arguments of a call that its errors say."""
    marks = failed_marks(tool, arguments, errors)
    return {mark.name for mark in marks if mark.kind == "name"}


def failed_marks(
    tool: str,
    arguments: Fields | str,
    errors: Sequence[str],
    contract: Contract | None = None,
    folder: str = "",
) -> dict[Mark, str]:
    """Return the marks that the errors of a call are about, each with its error line.

    A mark is what the call has in common with others, such as a path or a name. These
    calls may fail, too. `contract` is the demand of the tool that the call broke, None
    if none is known. The result is empty if this contract says that the tool itself is
    in trouble (`is_passing`). Paths below `folder` are relative to it.
    """
    if not errors or (contract is not None and contract.is_passing):
        return {}
    marks = marks_of(tool, arguments, folder)
    is_absent = contract == ABSENT_CONTRACT
    # The call as a whole is not marked if it broke a demand: it works once that is met.
    failed_mark = marks[0]
    if contract is not None:
        failed_mark = Mark("contract", contract.name, tool)
    failed = {failed_mark: errors[0]}
    tables = _tables_in("\n".join(map(str, arguments_of(arguments).values())))
    # From the last to the first error: a mark keeps the first that is about it.
    for error in reversed(errors):
        names = _error_names(_plain_text(error, folder), tables)
        for mark in marks:
            is_named = mark.kind == "name" and mark.name in names
            if is_named or (mark.kind == "path" and is_absent):
                failed[mark] = error
    return failed


def has_unread(arguments: Fields, read: Set[str], folder: str = "") -> bool:
    """Return True if a call is about a file that a session has surely not read.

    `read` are the paths of the files that it is known to have read since it began or
    last lost its context. With fewer than `MIN_KNOWN_READS` of them, it may have read
    others that nobody recorded, so False is returned.
    """
    path = touched_path(arguments, folder)
    return path not in {"", *read} and len(read) >= MIN_KNOWN_READS


def contract_marks(tool: str, arguments: Fields, *, unread: bool) -> tuple[Mark, ...]:
    """Return a mark for each contract that a call seems to break before it runs.

    A contract is a demand of a tool, such as that a file is read before it is edited.
    `unread` is true if the call is about a file that the session has not read before.
    """
    texts = [text for text in arguments.values() if isinstance(text, str) and text]
    # A file without a text to replace may be new.
    is_edit = any(name in arguments for name in REPLACED_ARGUMENTS)
    # A call breaks a contract in one of these states. "equal": two texts are the same.
    states = {
        "unread": is_edit and unread,
        "equal": touched_path(arguments) != "" and len(texts) > len(set(texts)),
    }
    return tuple(
        Mark("contract", contract.name, tool)
        for contract in CONTRACTS
        if states.get(contract.state)
    )
