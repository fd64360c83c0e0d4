"""Actions: the command, its programs, or the path of a call. Pure."""

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import dropwhile

from heedful.lessons.origin import is_shell
from heedful.lessons.shell import program_name, simple_commands
from heedful.lessons.words import compiled
from heedful.validation import Fields

# Arguments that hold a command. The other arguments of such a call only describe it.
COMMAND_ARGUMENTS = ("command", "cmd")
PATH_ARGUMENTS = ("file_path", "path", "notebook_path")
# Arguments of an edit: the text that it writes, and what it replaces.
WRITTEN_ARGUMENTS = ("new_string", "new_str", "new_source", "content", "file_text")
REPLACED_ARGUMENTS = ("old_string", "old_str", "edits")
# Programs that run the program after their options: what fails is that one.
_WRAPPERS = frozenset("command env exec nice nohup npx sudo time timeout xargs".split())
# Programs that run the program after this word.
RUNNERS = {
    "bundle": "exec",
    "npm": "exec",
    "pnpm": "exec",
    "poetry": "run",
    "python": "-m",
    "uv": "run",
}
# A word that may stand before it: an option, a figure or a variable.
_OPTION_PATTERN = r"-|\d|.*="
# Words of the shell's own language, before a command.
_SHELL_KEYWORDS = frozenset("! do else if then while {".split())
# A text of 2 to 120 characters in quotes; each sort of quotes has a group of its own.
QUOTED_TEXT_PATTERN = re.compile(
    r"'([^'\n]{2,120})'|\"([^\"\n]{2,120})\"|`([^`\n]{2,120})`"
    # As git and other old programs quote: `word'.
    r"|`([^`'\n]{2,120})'"
)


def command_of(arguments: Fields | str) -> str:
    """Return the shell command that the arguments of a tool call have; "" without one.

    Arguments that are a text are the command. A command may also be a list of words; of
    ["bash", "-c", "make test"], the command is "make test". Beside a path, an argument
    named "command" is no shell command: it says what an editor does with the file.
    """
    if isinstance(arguments, str):
        return arguments.strip()
    if path_of(arguments):
        return ""

    commands = (arguments[name] for name in COMMAND_ARGUMENTS if arguments.get(name))
    command = next(commands, "")
    if isinstance(command, list | tuple):
        words = [str(word) for word in command]
        has_shell = len(words) == 3 and is_shell(program_name(words[0]))
        if has_shell and words[1].startswith("-"):
            return words[2].strip()
        return shlex.join(words)

    return command.strip() if isinstance(command, str) else ""


def arguments_of(arguments: Fields | str) -> Fields:
    """Return the arguments of a call as an object; a text is a command."""
    return {"command": arguments} if isinstance(arguments, str) else arguments


def path_of(arguments: Fields) -> str:
    """Return the path that a call is about; "" if it has none."""
    values = (arguments.get(name) for name in PATH_ARGUMENTS)
    return next((value for value in values if isinstance(value, str)), "")


def relative_path(path: str, folder: str) -> str:
    """Return a path relative to the folder of a repository, if it is in it."""
    path = path.rstrip("/")
    if folder and path.startswith(f"{folder}/"):
        return path[len(folder) + 1 :]
    return path.removeprefix("./")


def programs_in(words: Sequence[str]) -> Iterator[str]:
    """Yield the wrappers of a command, such as `sudo`, and last what they run.

    `words` are those of the command. Versions are left out of the names of runners:
    "python3.12 -m pytest" gives "python" and "pytest".
    """
    for name, *_ in commands_in(words):
        runner = name.rstrip("0123456789.")
        yield runner if runner in RUNNERS else name


def commands_in(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield the words of a command, and those of each command that it runs.

    Of "sudo npm ci", these are also those of "npm ci". The first word of each is the
    name of its program.
    """
    rest = list(words)
    while rest:
        name = program_name(rest[0])
        runner = name.rstrip("0123456789.")
        following = rest[1] if len(rest) > 1 else ""
        if name in _SHELL_KEYWORDS:
            rest = rest[1:]
            continue
        yield [name, *rest[1:]]

        # Go to the word at which the next program begins, if there is one.
        if name in _WRAPPERS:
            # With what follows in "timeout -k 5 60 A=1 npm test", that is "npm".
            rest = list(dropwhile(compiled(_OPTION_PATTERN).match, rest[1:]))
        elif RUNNERS.get(runner) == following:
            rest = rest[2:]
        elif is_shell(name) and following.startswith("-"):
            # "bash -c" runs a line of its own.
            for inner in simple_commands(" ".join(rest[2:])):
                yield from commands_in(inner)
            return
        else:
            return
