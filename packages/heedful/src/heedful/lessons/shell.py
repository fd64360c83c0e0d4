"""The commands of a shell line, as `shlex` reads them. Pure.

What `shlex` cannot read is divided at blanks and operators.
"""

import shlex
from collections.abc import Iterator
from itertools import pairwise

from heedful.lessons.words import compiled

# What ends a line, and what else may stand last there: another command has failed.
MINOR_PROGRAMS = frozenset("cd done echo esac exit fi popd sleep true".split())
OPERATORS = "();<>|&\n"
# A here-document: its text is no command.
_HERE_PATTERN = r"(?sm)<<-?[ \t]*(['\"]?)(\w+)\1([^\n]*)\n.*?^[ \t]*\2$"


def program_name(program: str) -> str:
    """Return the name of a program without its folder and what Windows adds to it.

    >>> program_name("/usr/bin/CURL.exe")
    'curl'
    """
    name = program.casefold().rpartition("/")[2].rpartition("\\")[2]
    return name.removesuffix(".exe").removesuffix(".cmd").removesuffix(".bat")


def is_operator(words: list[str]) -> bool:
    """Return True for an operator among the commands of `read_commands`."""
    return not words[0].strip(OPERATORS)


def _redirects(operator: str) -> bool:
    """Return True for an operator before the name of a file."""
    return not operator.strip("<>&|") and not {"<", ">"}.isdisjoint(operator)


def _is_assignment(word: str) -> bool:
    """Return True for a variable with its value."""
    name, equals, _ = word.partition("=")
    return equals != "" and name.removesuffix("+").isidentifier()


def here_documents(line: str) -> list[str]:
    """Return the texts of the here-documents of a line."""
    return [match[0] for match in compiled(_HERE_PATTERN).finditer(line)]


def redirected_files(line: str) -> Iterator[str]:
    """Yield the files into which a line writes.

    >>> list(redirected_files("make 2>&1 > out"))
    ['out']
    """
    words = split_words(line)
    for operator, word in pairwise(words):
        if ">" in operator and not operator.strip(OPERATORS) and not word.isdecimal():
            yield word


def read_commands(line: str) -> list[list[str]]:
    """Return the words of each command of a line, with the operators between.

    An operator is a list of one text.

    >>> read_commands("cd app && npm test | tail -5")
    [['cd', 'app'], ['&&'], ['npm', 'test'], ['|'], ['tail', '-5']]
    """
    commands: list[list[str]] = [[]]
    for word in split_words(line):
        if word and not word.strip(OPERATORS):
            commands += [[word], []]
        else:
            commands[-1].append(word)
    return list(filter(None, commands))


def split_words(line: str) -> list[str]:
    """Return the words of a line and its operators, such as "&&", in their order.

    Quotes around words are removed, and so is the text of a here-document, which is the
    input of a command. A line that a shell could not read, for example with an open
    quote, is divided at blanks and operators.
    """
    line = compiled(_HERE_PATTERN).sub(r"\3", line).replace("\\\n", " ")
    lexer = shlex.shlex(line, posix=True, punctuation_chars=OPERATORS)
    lexer.whitespace = " \t\r"  # a line break is an operator: it ends a command
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:
        return compiled(r"[();<>|&\n]+|[^\s();<>|&'\"]+").findall(line)


def simple_commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each command, without assignments and redirections.

    >>> list(simple_commands("CI=1 make 2>&1 | tail -5 > out"))
    [['make'], ['tail', '-5']]
    """
    for _, words in operated_commands(line):
        yield words


def operated_commands(line: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a line: the operator before it, and its words.

    The operator before the first command is "". Variables that are set before a command
    ("CI=1 make") and redirections to and from files are left out.
    """
    operator = ""
    # `read_commands` gives operators, too, each as a list of one text.
    commands = read_commands(line)
    for words, following in zip(commands, [*commands[1:], ["\n"]], strict=False):
        if is_operator(words):
            operator = words[0]
            continue
        # In "make 2>&1", the 2 is the number of a file, and no word of the command.
        if _redirects(following[0]) and words[-1].isdecimal():
            words = words[:-1]
        # What follows a redirection is the name of a file, and no command.
        is_file = _redirects(operator)
        while words and not is_file and _is_assignment(words[0]):
            words = words[1:]
        if words and not is_file:
            yield operator, words


def programs_of(line: str) -> tuple[str, ...]:
    """Return the names of the programs of a line, each once, in their order.

    >>> programs_of("CI=1 bin/build && npm test 2>&1 | tail -5")
    ('build', 'npm', 'tail')
    """
    names = (words[0].rpartition("/")[2] for words in simple_commands(line))
    return tuple(dict.fromkeys(names))
