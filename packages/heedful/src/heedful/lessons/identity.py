"""What failed, and how: the names by which one failure is told from another. Pure.

A failure is what failed together with its error. What failed is a tool, or for a
command of a shell the program that it ran, whichever agent ran it. `failure_signature`
names both: the same error of another tool is another failure. The error alone, without
what failed, only finds: see `untitled_digest`.
"""

from heedful.lessons.action import command_of, programs_in
from heedful.lessons.lesson import Signature
from heedful.lessons.origin import is_shell
from heedful.lessons.shell import MINOR_PROGRAMS, operated_commands
from heedful.lessons.signature import bare_digest, signature
from heedful.validation import MAX_NAME_CHARS, Fields

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
    # What `pip3` cannot do, `pip` cannot either.
    program = program.rstrip("0123456789.") or program
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
        chain = list(programs_in(words))
        authors.update(chain)
        # What reads from a pipe only filters what another program says.
        is_filter = operator in ("|", "|&")
        if not is_filter:
            programs += chain[-1:]

    # An error may begin with the names of programs: "sudo: npm: command not found".
    for title in error.casefold().split(": ")[:MAX_READ_TITLES]:
        if title in authors:
            return title
    major_programs = [name for name in programs if name not in MINOR_PROGRAMS]
    return next(reversed(major_programs or programs), "")
