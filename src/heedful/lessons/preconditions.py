"""Preconditions: what a call of an agent takes for granted. Pure.

A call may fail because something that it takes for granted is not so: a path does not
exist, a file was not read, a program knows no such option. `preconditions_of` returns
what a call takes for granted, each by a template that knows no repository and no data.
`blames` says whether an error blames one of them. What became of the calls with a
precondition, and whether that is told, is the matter of `lessons/reliability.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from heedful.lessons.action import (
    COMMAND_ARGUMENTS,
    PATH_ARGUMENTS,
    QUOTED_TEXT_PATTERN,
    command_of,
    path_of,
    relative_path,
)
from heedful.lessons.scope import digest_of
from heedful.lessons.shell import simple_commands
from heedful.redact import redact, redact_start

Template = Literal[
    "path",
    "folder",
    "whole file",
    "unread file",
    "no change",
    "word",
    "shape",
    "options",
    "command",
    "argument",
    "table",
    "column",
]
# These are about the state of a session, so they have no history of their own.
STATE_TEMPLATES = frozenset({"unread file", "no change"})
# A call has at most this many preconditions: one indexed read finds all of them.
MAX_PRECONDITIONS = 40
# A session has read so many files that one it has not read was not read before it was
# resumed, either.
MIN_KNOWN_READS = 5
MAX_READ_COMMAND_CHARS = 3_000
MAX_SHORT_ARGUMENT_CHARS = 60
MAX_WHOLE_COMMAND_CHARS = 300
# A query, and a name after a word that a table follows.
_QUERY_PATTERN = re.compile(
    r"\W*(?:select|show|desc|describe|with|insert|update|delete|create|alter|use)\b",
    re.IGNORECASE,
)
_TABLE_PATTERN = re.compile(
    r"\b(?:from|join|into|update|table|desc|describe)\s+[`\"\[]?([\w.<>]+)",
    re.IGNORECASE,
)
_QUERY_TEXT_PATTERN = re.compile(r"'[^']*'|\"[^\"]*\"")
_QUERY_WORD_PATTERN = re.compile(r"[A-Za-z_<][\w.>]*")
# "-count=1", "--tags=e2e": an option with its value.
_VALUED_OPTION_PATTERN = re.compile(r"--?[A-Za-z][\w-]*=\S+")
_PIPE_END_PATTERN = re.compile(r"\s*\d?>&\d|\s*\|\s*(?:head|tail)[^|&;]*$")
# What an error says that blames a path.
_ABSENT_PATTERN = re.compile(
    r"\b(?:do|does)(?: not|n't) exist\b|\bno such (?:file|directory|path)\b"
    r"|\b(?:can(?:not|'t)|could not|unable to) (?:find|open|access)\b|\bnot found\b",
    re.IGNORECASE,
)
_SIZE_PATTERN = re.compile(r"\bexceed|\btoo (?:large|long|big|many)\b", re.IGNORECASE)
_UNREAD_PATTERN = re.compile(
    r"\b(?:not|n't) (?:yet )?been read\b|\bread (?:it|the file) (?:first|before)\b",
    re.IGNORECASE,
)
_SAME_PATTERN = re.compile(r"\bsame\b|\bidentical\b|\bno changes?\b", re.IGNORECASE)
_NO_COLUMN_PATTERN = re.compile(r"\bcolumn\b|\bfield\b", re.IGNORECASE)
# The work itself says no: a numbered place of a file, or a test that failed.
_OWN_WORK_PATTERN = re.compile(r"^\S*\.\w+[:(]\d+|\bFAIL(?:ED|URE)?\b|^\W*not ok\b")


# What an error line must say to blame a template, and the templates that it must name.
_ERROR_PATTERNS: Mapping[Template, re.Pattern[str]] = {
    "path": _ABSENT_PATTERN,
    "folder": _ABSENT_PATTERN,
    "shape": _ABSENT_PATTERN,
    "whole file": _SIZE_PATTERN,
    "unread file": _UNREAD_PATTERN,
    "no change": _SAME_PATTERN,
    "column": _NO_COLUMN_PATTERN,
}
_NAMED_TEMPLATES = frozenset({"word", "argument", "table", "column"})
_PLACE_TEMPLATES = frozenset({"path", "folder", "shape"})


# What each template is about, by its words in order: a, b and c.
_DESCRIPTIONS: Mapping[Template, str] = {
    "path": "the path `{a}`",
    "folder": "the folder `{a}`",
    "whole file": "{b} of all of `{a}`",
    "unread file": "{a} of a file that this session has not read",
    "no change": "{a} with two equal texts",
    "word": "`{a}` with `{b}`",
    "shape": "`{a}` with `{b}`",
    "options": "`{a}` with `{b}` and {options}",
    "command": "the command `{a}`",
    "argument": "{b} with {c} `{a}`",
    "table": "a query of `{a}`",
    "column": "a query of `{a}` in `{c}`",
}


@dataclass(frozen=True, slots=True)
class Precondition:
    """Something that a call takes for granted: a `template`, and `words` that fill it.

    The first of the words is what it is about.
    """

    template: Template
    words: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The digest by which it is found again."""
        return digest_of("precondition", "\0".join((self.template, *self.words)))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known of the session at the time of a call.

    `folder` is the root of its repository. The session has read `reads` files since it
    began, was resumed or lost its context, and `has_read` is whether the file of the
    call is among them.
    """

    folder: str = ""
    _: KW_ONLY
    has_read: bool = True
    reads: int = 0

    def relative(self, path: str) -> str:
        """Return a path relative to the repository, if it is in it."""
        return relative_path(path, self.folder)


def describe(precondition: Precondition) -> str:
    """Return the words for a precondition before "failed" or "never worked".

    >>> describe(Precondition("word", ("--frozen", "npm install")))
    '`--frozen` with `npm install`'
    """
    words = dict(zip("abc", precondition.words, strict=False))
    options = " ".join(precondition.words[2:]) or "no other option"
    return _DESCRIPTIONS[precondition.template].format(**words, options=options)


def preconditions_of(
    tool: str, arguments: Mapping[str, Any], surroundings: Surroundings
) -> tuple[Precondition, ...]:
    """Return what a call takes for granted, at most `MAX_PRECONDITIONS` of them."""
    preconditions: dict[Precondition, None] = {}
    for template, *words in _list_words(tool, arguments, surroundings):
        preconditions[Precondition(template, tuple(words))] = None
        if len(preconditions) == MAX_PRECONDITIONS:
            break
    return tuple(preconditions)


def _list_words(
    tool: str, arguments: Mapping[str, Any], surroundings: Surroundings
) -> Iterator[tuple[Any, ...]]:
    command = redact_start(command_of(arguments), MAX_READ_COMMAND_CHARS)
    path = path_of(arguments)
    if path:
        yield from _of_path(tool, path, arguments, surroundings)
    if command and _QUERY_PATTERN.match(command):
        yield from _of_query(tool, command)
    elif command:
        yield from _of_command(command, surroundings)

    for name, value in arguments.items():
        is_short = isinstance(value, str) and 0 < len(value) <= MAX_SHORT_ARGUMENT_CHARS
        # A text of several lines is no value that another call has, too.
        if (
            is_short
            and "\n" not in value
            and name not in (*PATH_ARGUMENTS, *COMMAND_ARGUMENTS)
        ):
            yield "argument", redact(value), tool, name


def _of_path(
    tool: str, path: str, arguments: Mapping[str, Any], surroundings: Surroundings
) -> Iterator[tuple[Any, ...]]:
    """Yield that a path and its folders exist, and what the arguments beside it do."""
    relative = surroundings.relative(path)
    yield "path", relative
    parts = relative.split("/")
    first = 4 if relative.startswith("/") else 2
    for count in range(first, len(parts)):
        yield "folder", "/".join(parts[:count])

    others = sorted(name for name in arguments if name not in PATH_ARGUMENTS)
    texts = [arguments[name] for name in others]
    yield "whole file", relative, tool, *others
    if not surroundings.has_read:
        is_resumed = surroundings.reads < MIN_KNOWN_READS
        yield "unread file", tool, "resumed" if is_resumed else ""
    long_texts = [text for text in texts if isinstance(text, str) and text]
    if len(long_texts) > len(set(long_texts)):
        yield "no change", tool


def whole_command(command: str, folder: str = "") -> Precondition:
    """Return that a command works as it is; paths are relative to the `folder`."""
    text = redact_start(command, MAX_READ_COMMAND_CHARS)
    if folder:
        text = text.replace(f"{folder}/", "")
    text = _PIPE_END_PATTERN.sub("", text).strip()
    text = re.sub(r"\d{3,}", "#", text)
    return Precondition("command", (text[:MAX_WHOLE_COMMAND_CHARS],))


def _of_command(command: str, surroundings: Surroundings) -> Iterator[tuple[Any, ...]]:
    """Yield that the programs of a command know its words, and that its paths exist."""
    text = command
    if surroundings.folder:
        text = text.replace(f"{surroundings.folder}/", "")
    yield "command", *whole_command(command, surroundings.folder).words

    for words in _simple_commands(text):
        head = _head_of(words)
        program = _program_of(words)
        subcommand = _first_argument(words)
        options = _options_of(words)
        for word in words[1:]:
            if len(word) <= 2 or word == "…":
                continue
            name = surroundings.relative(word).partition("=")[0]
            yield "word", name, program if word == subcommand else head
            if "/" not in word:
                continue
            if re.search(r"\d", word):
                names = sorted(
                    option.partition("=")[0] for option in words if option[:1] == "-"
                )
                yield "shape", re.sub(r"\d+", "#", word), head, *names
            if word[:1] != "-":
                path = re.sub(r"/?(\.\.\.)?$", "", surroundings.relative(word))
                yield "options", path, head, *options


def _program_of(words: Sequence[str]) -> str:
    """Return the name of the program of a command, without its folder."""
    return words[0].rpartition("/")[2]


def _first_argument(words: Sequence[str]) -> str:
    """Return the first argument of a command that is not an option, or ""."""
    return next((word for word in words[1:] if word[:1] != "-"), "")


def _head_of(words: Sequence[str]) -> str:
    """Return the program of a command, with its sub-command if that is a plain word."""
    head = _program_of(words)
    first = _first_argument(words)
    return f"{head} {first}" if re.fullmatch(r"[a-z][\w:-]*", first) else head


def _simple_commands(text: str) -> Sequence[Sequence[str]]:
    """Return the words of each command."""
    return list(simple_commands(text))


def _options_of(words: Sequence[str]) -> Sequence[str]:
    """Return the options that have a value, as "--tags=e2e", in order."""
    return sorted({word for word in words if _VALUED_OPTION_PATTERN.fullmatch(word)})


def _of_query(tool: str, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield that tables exist, and that they have the columns of a query."""
    text = _QUERY_TEXT_PATTERN.sub(" ", query)
    tables = sorted({name.lower() for name in _TABLE_PATTERN.findall(text)})
    for table in tables:
        yield "table", table, tool
    words = {word.lower() for word in _QUERY_WORD_PATTERN.findall(text)}
    words |= {word.rpartition(".")[2] for word in words}
    for word in sorted(words):
        for table in tables:
            if word != table:
                yield "column", word, tool, table


def blames(precondition: Precondition, error: str) -> bool:
    """Return whether an error line blames a precondition of the call that failed."""
    template = precondition.template
    name = precondition.words[0]
    pattern = _ERROR_PATTERNS.get(template)
    if pattern is not None and not pattern.search(error):
        return False
    if template in _NAMED_TEMPLATES:
        return _names(error, name)
    # A test or a linter that says no is the work itself.
    if template in ("options", "command") and _OWN_WORK_PATTERN.search(error):
        return False
    if template == "options":
        return name.rpartition("/")[2].lower() in error.lower()
    return True


def find_blamed(
    preconditions: Iterable[Precondition], errors: Sequence[str]
) -> Mapping[Precondition, str]:
    """Return those of the preconditions that the error lines blame, each with its line.

    If a line names the place that is absent, it blames no other place.
    """
    blamed: dict[Precondition, str] = {}
    for precondition in preconditions:
        for error in errors:
            if blames(precondition, error):
                blamed[precondition] = error
                break

    in_error = [need for need in blamed if _names_place(errors, need.words[0])]
    is_place_named = any("/" in need.words[0] for need in in_error)
    for need in list(blamed):
        if (
            is_place_named
            and need.template in _PLACE_TEMPLATES
            and need not in in_error
        ):
            del blamed[need]
    return blamed


def _names_place(errors: Sequence[str], place: str) -> bool:
    """Return whether an error line has a path, whose numbers are masked as "#"."""
    pattern = re.escape(place).replace(r"\#", r"\w+")
    return any(re.search(rf"{pattern}(?![\w/-])", error) for error in errors)


def _names(error: str, name: str) -> bool:
    """Return whether an error names a word: the first that it quotes, or any word.

    A dotted name is named by its last part, too, and an option without its dashes.
    """
    quoted = QUOTED_TEXT_PATTERN.search(error)
    if quoted is not None:
        first = quoted[quoted.lastindex or 0].lower()
        names = {first, first.rpartition(".")[2]}
        return not names.isdisjoint({name.lower(), name.lower().lstrip("-")})

    pattern = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
    return re.search(pattern, error, re.IGNORECASE) is not None
