"""Which programs a shell command line runs, as far as its text shows. Pure.

`read_command` reads a line as a POSIX shell does: words, quotes, substitutions,
here-documents, redirections and operators. Every word in the place of a command is a
program, also one in a substitution or behind a pipe, and one that is given to a shell
as a text ("sh -c 'make'"). Nothing is guessed: a line that cannot be read with
certainty, such as one with its program in a variable, is not `clear`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# Words of the shell's language before a command.
_SHELL_PREFIX_WORDS = frozenset(
    "if then else elif while until do ! { time exec".split()
)
# Words and built-in commands of the shell that print no text of others.
_SILENT_WORDS = frozenset(
    "cd pushd popd export set unset true false : echo printf exit wait sleep test [ "
    "read local return for done fi }".split()
)
# Programs that run their arguments as a command: "sudo make" runs both. A word that is
# taken for a program by mistake, as "root" in "sudo -u root make", is one that nobody
# trusts.
_RUNNER_NAMES = frozenset(
    "builtin command doas env ionice ltrace nice nocorrect noglob nohup setpriv setsid "
    "stdbuf strace sudo timeout unshare watch xargs".split()
)
# Words of the shell and programs that run a text or their arguments in ways that are
# not read, or that give other commands a new meaning.
_UNREAD_NAMES = frozenset(
    "alias bind busybox chroot cmd complete coproc emulate enable eval fc flock "
    "function nsenter parallel powershell runuser screen script su systemd-run tmux "
    "trap".split()
)
# The name of a program, with its folders: "npm", "./bin/build", "g++", "~/bin/x".
_PROGRAM_PATTERN = re.compile(r"[\w.+/@~:-]+")
_WINDOWS_ENDING_PATTERN = re.compile(r"\.(?:bat|cmd|com|exe|ps1)\Z")
# A word that sets a variable: "CI=1" in "CI=1 make".
_ASSIGNMENT_PATTERN = re.compile(r"\w+\+?=")
# The options of these programs that are read: alone ("-i", "-0"), with their value
# ("-n1", "-I{}", "-oL"), and before a number ("-n 1"). Other options may take the next
# word as their value, so that the program is the one after it.
_RUNNER_OPTION_PATTERN = re.compile(r"-(?:[0Hiv]|[nPLk]?\d+[smhd]?|I\{\}|[eio][L0])")
_NUMBER_OPTION_PATTERN = re.compile(r"-[nPLk]")
_DURATION_PATTERN = re.compile(r"\d+(?:\.\d+)?[smhd]?")
# Options of "find" before a program.
_PROGRAM_OPTION_PATTERN = re.compile(r"-(?:exec|ok)(?:dir)?")
# A shell, and the option with which it runs a text as a command: "bash -lc 'make'".
# "source" and "." run a script, too.
_SHELL_NAME_PATTERN = re.compile(r"\w{0,4}sh|source|\.")
_SCRIPT_OPTION_PATTERN = re.compile(r"-[Eefiluvx]*c[Eefiluvx]*")
# The other options of a shell that are read, perhaps with "-o", which takes a name.
_SHELL_OPTION_PATTERN = re.compile(r"[+-][Eefiluvx]*o?")
# A variable, and arithmetic without commands in it: "$1", "${name:-x}", "$((1 + n))".
_VARIABLE_PATTERN = re.compile(r"\$(?:\w+|[@*#?$!-]|\{[^{}$`'\"()]*\})")
_ARITHMETIC_PATTERN = re.compile(r"\$\(\([\w\s+*/%<>=-]*\)\)")
# The delimiter of a here-document, perhaps quoted, and whether its lines have margins.
_HERE_DELIMITER_PATTERN = re.compile(r"(-?)[ \t]*(['\"]?)(\w+)\2(?=[\s;|&<>)]|\Z)")
# The beginning of an address, "https://" or "git@a.test:". A shell opens /dev/tcp as a
# connection.
ADDRESS_PATTERN = re.compile(
    r"[a-z][a-z0-9+.-]{1,20}://|/dev/(?:tcp|udp)/|\w@(?:[\w-]{1,63}\.){1,9}[a-z]+:",
    re.IGNORECASE,
)
# An option before a message, which is a text for people: "commit -am 'see https://…'".
_MESSAGE_OPTION_PATTERN = re.compile(r"-[a-z]{0,3}m|--(?:message|body|title|notes)")
# What comes between the sign of a redirection and its file: "2>& 1", ">| log".
_REDIRECTION_END_PATTERN = re.compile(r"[&|>]?[ \t]*")
_BLANKS = " \t\r"
# A line with more nested substitutions is not read.
MAX_SHELL_DEPTH = 8
_OPERATORS = ";|&\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellLine:
    """What a command line runs.

    `programs` are the names of its programs, each of them once, in their order. `words`
    is the line without texts in quotes and here-documents, and `commands` are the words
    of each simple command; a word with a blank or a substitution is "…". `clear` is
    false if there may be other programs. `address` is true if a word, or a text in
    quotes that is not a message, has the address of another computer.
    """

    programs: tuple[str, ...] = ()
    words: str = ""
    commands: tuple[tuple[str, ...], ...] = ()
    clear: bool = True
    address: bool = False


def program_name(program: str) -> str:
    """Return the name of a program without what Windows adds to it.

    >>> program_name("CURL.exe")
    'curl'
    """
    return _WINDOWS_ENDING_PATTERN.sub("", program.casefold())


def read_command(line: str) -> ShellLine:
    """Return what a command line runs, in linear time.

    >>> read_command("CI=1 bin/build && 'npm' test | tail -5").programs
    ('build', 'npm', 'tail')
    """
    reader = _Reader(line)
    try:
        reader.read_commands("")
    except _UnclearLine:
        reader.clear = False

    return ShellLine(
        programs=tuple(dict.fromkeys(reader.programs)),
        words="".join(reader.bare),
        commands=tuple(reader.commands),
        clear=reader.clear,
        address=reader.address,
    )


class _UnclearLine(Exception):
    """The line has something that cannot be read with certainty."""


@dataclass(slots=True)
class _Word:
    """A word that is being read: its `text`, and whether a part of it is replaced."""

    text: str = ""
    quoted: bool = False
    replaced: bool = False

    def __bool__(self) -> bool:
        return bool(self.text) or self.quoted or self.replaced


@dataclass(slots=True)
class _Reader:
    """Reads a line from its start; `position` is the next character.

    `delimiters` are patterns of the last lines of the here-documents whose texts follow
    the current line, each with whether its text is taken as it is. `depth` counts the
    substitutions and texts of shells that are open.
    """

    line: str
    depth: int = 0
    position: int = 0
    programs: list[str] = field(default_factory=list)
    commands: list[tuple[str, ...]] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)
    clear: bool = True
    address: bool = False
    delimiters: list[tuple[str, bool]] = field(default_factory=list)

    def read_commands(self, end: str) -> None:
        """Read commands up to the character `end`; "" is the end of the line."""
        command = _Command(self)
        while self.position < len(self.line):
            character = self.line[self.position]
            if character == end:
                command.close()
                self.position += 1
                return
            if character in _OPERATORS:
                command.close()
                self._take_operator(character)
            elif character == "(":
                command.open_group()
                self._read_group()
            elif character in "<>":
                self._read_redirection(command)
            elif character in _BLANKS:
                command.end_word()
                self._take(character)
            elif character == "#" and not command.word:
                self._skip_comment()
            else:
                self.read_part(command.word)

        if end:
            raise _UnclearLine
        command.close()

    def _take(self, text: str) -> None:
        """Go on after a text at the position, and keep it."""
        self.bare.append(text)
        self.position += len(text)

    def _take_operator(self, operator: str) -> None:
        """Read an operator; after the end of a line come its here-documents."""
        self._take(operator)
        if operator == "\n":
            for delimiter, is_raw in self.delimiters:
                self._skip_document(delimiter, is_raw)
            self.delimiters.clear()

    def _skip_comment(self) -> None:
        """Skip a comment up to the end of the line."""
        end = self.line.find("\n", self.position)
        self.position = len(self.line) if end < 0 else end

    def read_part(self, word: _Word) -> None:
        """Read the next part of a word: a character, quotes or a substitution."""
        character = self.line[self.position]
        if character == "'":
            end = self._find("'", self.position + 1)
            self._add_quoted(word, self.line[self.position + 1 : end])
            self.position = end + 1
        elif character == '"':
            self._read_double_quotes(word)
        elif character == "\\":
            word.text += self.line[self.position + 1 : self.position + 2].strip("\n")
            self.position += 2
        elif character in "$`":
            self._read_substitution(word)
        elif character == ")":
            raise _UnclearLine
        else:
            word.text += character
            self._take(character)

    def _find(self, text: str, start: int) -> int:
        """Return where a text begins at or after `start`."""
        index = self.line.find(text, start)
        if index < 0:
            raise _UnclearLine
        return index

    def _add_quoted(self, word: _Word, text: str) -> None:
        """Add a text in quotes to a word."""
        word.text += text
        word.quoted = True
        self.bare.append(" _ ")

    def _read_double_quotes(self, word: _Word) -> None:
        """Read a text in double quotes, with the substitutions in it."""
        self.position += 1
        text = _Word()
        while self.line[self.position : self.position + 1] != '"':
            if self.position >= len(self.line):
                raise _UnclearLine
            character = self.line[self.position]
            if character == "\\":
                text.text += self.line[self.position : self.position + 2]
                self.position += 2
            elif character in "$`":
                self._read_substitution(text)
            else:
                text.text += character
                self.position += 1

        self.position += 1
        self._add_quoted(word, text.text)
        word.replaced = word.replaced or text.replaced

    def _read_substitution(self, word: _Word) -> None:
        """Read what the shell replaces: a variable, arithmetic or a command."""
        word.replaced = True
        if self.line[self.position] == "`":
            end = self._find("`", self.position + 1)
            self.read_inner(self.line[self.position + 1 : end])
            self.position = end + 1
            return

        arithmetic = _ARITHMETIC_PATTERN.match(self.line, self.position)
        variable = _VARIABLE_PATTERN.match(self.line, self.position)
        if arithmetic or variable:
            match = arithmetic or variable
            assert match is not None
            self.position = match.end()
        elif self.line.startswith("$(", self.position):
            self.position += 2
            self._read_nested()
        elif self.line.startswith(("$'", "${", '$"'), self.position):
            raise _UnclearLine
        else:
            word.text += "$"
            self.position += 1

    def _read_group(self) -> None:
        """Read the commands of a group in parentheses."""
        if self.depth == MAX_SHELL_DEPTH:
            raise _UnclearLine

        self._take("(")
        self.depth += 1
        self.read_commands(")")
        self.depth -= 1

    def _read_nested(self) -> None:
        """Read the commands of a substitution up to its end."""
        if self.depth == MAX_SHELL_DEPTH:
            raise _UnclearLine

        self.bare.append("\n")
        outer_delimiters = self.delimiters
        self.delimiters = []
        self.depth += 1
        self.read_commands(")")
        self.depth -= 1
        if self.delimiters:
            raise _UnclearLine
        self.delimiters = outer_delimiters

    def read_inner(self, line: str) -> None:
        """Read a command that is a text in this one."""
        if self.depth == MAX_SHELL_DEPTH:
            raise _UnclearLine

        inner = _Reader(line, self.depth + 1)
        try:
            inner.read_commands("")
        finally:
            self.programs += inner.programs
            self.commands += inner.commands
            self.bare += ["\n", *inner.bare]
            self.address = self.address or inner.address

    def _read_redirection(self, command: _Command) -> None:
        """Read a redirection with its file, a here-document or a process."""
        sign = self.line[self.position]
        if self.line.startswith(("<(", ">("), self.position):
            self.position += 2
            self._read_nested()
            command.word.replaced = True
            return

        # The number of a file, as in "2>", is not a word.
        if command.word.text.isdigit() and not command.word.quoted:
            command.word = _Word()
        command.end_word()

        is_document = self.line.startswith("<<", self.position)
        is_text = self.line.startswith("<<<", self.position)
        while self.line[self.position : self.position + 1] == sign:
            self.position += 1
        if is_document and not is_text:
            self._read_delimiter()
        else:
            self._read_file(is_input=sign == "<")

    def _read_delimiter(self) -> None:
        """Read the delimiter of a here-document; its text follows the line."""
        match = _HERE_DELIMITER_PATTERN.match(self.line, self.position)
        if match is None:
            raise _UnclearLine
        margin = "\t*" if match[1] else ""
        delimiter = rf"(?m)^{margin}{match[3]}$"
        self.delimiters.append((delimiter, bool(match[2])))
        self.position = match.end()

    def _skip_document(self, delimiter: str, is_raw: bool) -> None:
        """Skip the text of a here-document, which may hold no command."""
        end = re.compile(delimiter).search(self.line, self.position)
        if end is None:
            raise _UnclearLine

        text = self.line[self.position : end.start()]
        if not is_raw and ("$(" in text or "`" in text):
            raise _UnclearLine
        self.position = end.end()

    def _read_file(self, is_input: bool) -> None:
        """Read what a redirection names: a file, or the number of one."""
        match = _REDIRECTION_END_PATTERN.match(self.line, self.position)
        assert match is not None
        self.position = match.end()
        file = _Word()
        while self.position < len(self.line):
            character = self.line[self.position]
            if character in f"{_BLANKS}{_OPERATORS}<>()":
                break
            self.read_part(file)

        # A variable may name a connection.
        if not file or (is_input and file.replaced):
            raise _UnclearLine
        if ADDRESS_PATTERN.search(file.text):
            self.address = True


class _Command:
    """The words of one simple command; the first is its program."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader
        self.word = _Word()
        self._start()

    def _start(self) -> None:
        """Begin a new command."""
        self._program = ""
        self._words: list[str] = []
        self._is_data = False
        self._runs_text = False
        self._has_script = False
        self._option = ""  # the word before, if it is an option

    def close(self) -> None:
        """End the command; a shell that is given no script reads one from elsewhere."""
        self.end_word()
        lacks_script = self._is_shell() and not self._has_script
        if self._words:
            self._reader.commands.append(tuple(self._words))
        if lacks_script or self._runs_text:
            raise _UnclearLine
        self._start()

    def open_group(self) -> None:
        """Begin a group in parentheses, which takes the place of a command."""
        if self.word or self._program or self._is_data:
            raise _UnclearLine

    def end_word(self) -> None:
        """Take the word that was read as a part of the command."""
        word = self.word
        if not word:
            return

        self.word = _Word()
        if self._words or not _ASSIGNMENT_PATTERN.match(word.text):
            is_plain = not word.replaced and len(word.text.split()) == 1
            self._words.append(word.text if is_plain else "…")
        if ADDRESS_PATTERN.search(word.text) and not self._is_message(word):
            self._reader.address = True
        if self._program:
            self._take_argument(word)
        elif not (self._is_data or _ASSIGNMENT_PATTERN.match(word.text)):
            self._take_program(word)

        self._option = ""
        if word.text.startswith(("-", "+")):
            self._option = word.text

    def _is_message(self, word: _Word) -> bool:
        """Return True if a word is a text for people, which may mention an address."""
        if self._is_data and not ADDRESS_PATTERN.match(word.text):
            return word.quoted
        option = self._option or word.text.partition("=")[0]
        return word.quoted and bool(_MESSAGE_OPTION_PATTERN.fullmatch(option))

    def _take_program(self, word: _Word) -> None:
        """Take a word as the program, unless it belongs to the shell's language."""
        if not word.quoted and word.text in _SHELL_PREFIX_WORDS:
            return
        if not word.quoted and word.text in _SILENT_WORDS:
            self._is_data = True
            return
        if word.replaced or not _PROGRAM_PATTERN.fullmatch(word.text):
            raise _UnclearLine

        self._program = word.text.rstrip("/").rpartition("/")[2] or word.text
        # Behind a word of the shell's language, an option is no program.
        is_option = self._program.startswith("-")
        if is_option or program_name(self._program) in _UNREAD_NAMES:
            raise _UnclearLine
        self._reader.programs.append(self._program)

    def _take_argument(self, word: _Word) -> None:
        """Take an argument; the text that a shell is given to run is read, too."""
        if _PROGRAM_OPTION_PATTERN.fullmatch(self._option):
            self._take_program(word)
        elif self._program in _RUNNER_NAMES:
            self._take_argument_of_runner(word)
        elif self._runs_text:
            if word.replaced or word.text.startswith(("-", "+")):
                raise _UnclearLine
            self._runs_text = False
            self._has_script = True
            self._reader.read_inner(word.text)
        elif self._is_shell() and not self._has_script:
            self._take_argument_of_shell(word)

    def _take_argument_of_runner(self, word: _Word) -> None:
        """Take an option, its value, a variable, or the program that is run."""
        is_number = _DURATION_PATTERN.fullmatch(word.text) is not None
        if _NUMBER_OPTION_PATTERN.fullmatch(self._option) and not is_number:
            raise _UnclearLine
        if is_number or _ASSIGNMENT_PATTERN.match(word.text):
            return

        if not word.text.startswith("-"):
            self._take_program(word)
        elif not (
            _RUNNER_OPTION_PATTERN.fullmatch(word.text)
            or _NUMBER_OPTION_PATTERN.fullmatch(word.text)
        ):
            raise _UnclearLine

    def _take_argument_of_shell(self, word: _Word) -> None:
        """Take an option, its value, or the name of a script."""
        if self._option.endswith("o"):
            return
        if _SCRIPT_OPTION_PATTERN.fullmatch(word.text):
            self._runs_text = True
        elif not word.text.startswith(("-", "+", "/dev/", "/proc/")):
            self._has_script = True
        elif not _SHELL_OPTION_PATTERN.fullmatch(word.text):
            raise _UnclearLine

    def _is_shell(self) -> bool:
        """Return True if the program is a shell."""
        return _SHELL_NAME_PATTERN.fullmatch(self._program) is not None
