"""What failed, and how: the names by which one failure is told from another. Pure.

A failure is what failed together with its error. What failed is a tool, or for a
command of a shell the program that it ran, whichever agent ran it. `failure_signature`
names both: the same error of another tool is another failure. The error alone, without
what failed, only finds: see `untitled_digest`.
"""

from collections.abc import Iterator, Sequence

from heedful.lessons.action import command_of
from heedful.lessons.lesson import Signature
from heedful.lessons.origin import is_shell
from heedful.lessons.shell import operated_commands, program_name
from heedful.lessons.signature import bare_digest, signature
from heedful.validation import MAX_NAME_CHARS, Fields

# Programs that run the program after their options: what fails is that one.
_WRAPPERS = frozenset("command env exec nice nohup npx sudo time timeout xargs".split())
# Programs that run the program after this word.
_RUNNERS = {
    "bundle": "exec",
    "npm": "exec",
    "pnpm": "exec",
    "poetry": "run",
    "python": "-m",
    "uv": "run",
}
# What ends a line, and what else may stand last there: another command has failed.
_MINOR_PROGRAMS = frozenset("cd done echo esac exit fi popd sleep true".split())
# Words of the shell's own language, before a command.
_SHELL_KEYWORDS = frozenset("! do elif else if then until while {".split())
_VERSION_CHARS = "0123456789."
MAX_READ_TITLES = 3  # of an error that names the program which wrote it


def failing_tool(tool: str, arguments: Fields | str, error: str = "") -> str:
    """Return the name of what failed: the program of a shell command, or else the tool.

    Of several programs, it is the one that the error names as its author, and else the
    last one that is no filter behind a pipe.

    >>> failing_tool("Bash", {"command": "cd app && sudo npm test | tail -5"})
    'npm'
    """
    command = command_of(arguments)
    runs_program = command != "" and _is_shell_call(tool, arguments)
    program = _failing_program(command, error) if runs_program else ""
    return (program or tool)[:MAX_NAME_CHARS]


def failure_signature(
    tool: str, arguments: Fields | str, error: str, output: str = ""
) -> Signature:
    """Return the signature of a failed call: of what failed, and of its error.

    Calls that fail alike have the same signature. `error` is the line that names the
    error. If the `output` of the call has the stack trace of this error, the signature
    is that of the trace.
    """
    name = failing_tool(tool, arguments, error)
    error_signature = signature(name, error)
    # A trace has several lines.
    if "\n" not in output:
        return error_signature

    output_signature = signature(name, output)
    # Only the pattern of a trace has more than the message.
    has_trace = output_signature.message != output_signature.pattern
    # The trace may be that of another error of the output.
    error_digest = bare_digest(error_signature.message)
    if has_trace and bare_digest(output_signature.message) == error_digest:
        return output_signature
    return error_signature


def _is_shell_call(tool: str, arguments: Fields | str) -> bool:
    """Return True if the command of a call is one of a shell, and not a query."""
    if isinstance(arguments, str):
        # Any tool may take a text.
        return not tool or is_shell(tool)
    return "sql" not in tool.casefold()


def _failing_program(line: str, error: str) -> str:
    """Return the program that failed in a line of commands; "" if the line has none.

    That is the one that the error names as its author, as in "npm: not found"; else the
    last one that is no filter, nor a minor one such as `cd` if there are others.
    """
    authors: set[str] = set()
    programs: list[str] = []
    for operator, words in operated_commands(line):
        chain = list(_programs_in(words))
        authors.update(chain)
        # What reads from a pipe only filters what another program says.
        is_filter = operator in ("|", "|&")
        if not is_filter:
            programs += chain[-1:]

    # An error may begin with the names of programs: "sudo: npm: command not found".
    for title in error.casefold().split(": ")[:MAX_READ_TITLES]:
        if title in authors:
            return title
    major_programs = [name for name in programs if name not in _MINOR_PROGRAMS]
    return next(reversed(major_programs or programs), "")


def _programs_in(words: Sequence[str]) -> Iterator[str]:
    """Yield the wrappers of a command, such as `sudo`, and last what they run.

    `words` are those of the command. Versions are left out of the names of runners:
    "python3.12 -m pytest" gives "python" and "pytest".
    """
    rest = list(words)
    while rest:
        name = program_name(rest[0])
        runner = name.rstrip(_VERSION_CHARS)
        following = rest[1] if len(rest) > 1 else ""
        if name not in _SHELL_KEYWORDS:
            yield runner if runner in _RUNNERS else name

        # Go to the word at which the next program begins, if there is one.
        if name in _SHELL_KEYWORDS:
            rest = rest[1:]
        elif name in _WRAPPERS:
            rest = list(_without_options(rest[1:]))
        elif _RUNNERS.get(runner) == following:
            rest = rest[2:]
        elif is_shell(name) and following.startswith("-"):
            # "bash -c" runs a line of its own.
            for _, inner in operated_commands(" ".join(rest[2:])):
                yield from _programs_in(inner)
            return
        else:
            return


def _without_options(words: Sequence[str]) -> Iterator[str]:
    """Yield the words from the first one on that is no option, figure or variable.

    With what follows a wrapper, as in "timeout -k 5 60 A=1 npm test", that is "npm".
    """
    has_begun = False
    for word in words:
        is_option = word.startswith("-") or word[:1].isdecimal() or "=" in word
        has_begun = has_begun or not is_option
        if has_begun:
            yield word
