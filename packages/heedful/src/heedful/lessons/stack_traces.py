"""Stack traces: the frames of an error, in the notations of languages and browsers.

A trace is read line by line. A line that a notation of the table matches is a frame;
what belongs to a trace but says nothing about the error is left out; the other lines
between two frames are a message. A frame has a file or module and a function: no line
numbers, addresses, arguments, or names that compilers and proxies make. The frames of
libraries are left out.
"""

import re
from dataclasses import dataclass

from heedful.knowledge import KnowledgeTable
from heedful.lessons.words import compiled, without_middle

# A longer trace is read at its ends: the error is named there, and the calls of a deep
# recursion stand between them.
MAX_TRACE_CHARS = 64_000
MAX_FRAME_CHARS = 1_000  # a longer line is no frame

_STACK_TRACES = KnowledgeTable("lessons/stack_traces")

# Go and Rust write a frame in two lines: the function, then its place.
_PLACE_LINE_PATTERN = r"\n\s+(?=(?:at )?\S+\.(?:go|rs):\d)"
# What Python draws before the errors of a group.
_MARGIN_CHARS = "| "
# Before the stack of another goroutine, in which the error did not happen.
_GOROUTINE_HEADING = "\n\ngoroutine "
# A source line below a frame of Python, or above a mark. That of a failed assertion
# stays, because it says what was expected.
_SOURCE_LINE_PATTERN = r"[ \t|]{4,}(?!assert\b)"
_MARKED_LINE_PATTERN = (
    r"(?m)(?:\n(?!\s*assert\b)[^\n]*)?\n[ \t]*+(?=~*\^)[~^]++[ \t]*+$"
)
# Names of C# for a part of a function: "<Run>b__0_1", "<Run>d__3.MoveNext".
_WRAPPED_NAME_PATTERN = r"(?:\.<>c\w*)?\.<(\w+)>[a-z]__\w+(?:\.MoveNext)?"
# Another name of a method: "Cart.add [as put]".
_ALIAS_PATTERN = r" \[as .*"
# The name of a function is its last word: "async f", "Cart.f", "block in Cart#f".
_FUNCTION_NAME_PATTERN = r"[\w$?!]+"


@dataclass(frozen=True, slots=True)
class Frame:
    """A call on the stack: its file or module, and its function, "" without a name."""

    file: str
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StackTrace:
    """The frames of the program's own code, and the messages, in order.

    An error and its causes are one trace. `ends_with_error` says that the last message
    is that of the error itself, as in Python; else the first one is.
    """

    frames: tuple[Frame, ...]
    messages: tuple[str, ...]
    ends_with_error: bool


def read_trace(text: str) -> StackTrace | None:
    """Return the stack trace in a text, or None if no line of it is a frame.

    The frames are those of the program's own code, without libraries. The messages are
    the other lines between frames, without source lines and headings.

    >>> trace = read_trace("TypeError: no\\n    at total (/srv/app/cart.js:3:5)")
    >>> trace.frames, trace.messages
    ((Frame(file='/srv/app/cart.js', function='total'),), ('TypeError: no',))
    """
    if "\n" not in text:
        return None

    frames: list[Frame] = []
    # The lines of each message; a new one begins with each frame.
    messages: list[list[str]] = [[]]
    is_below_frame = False
    for line in _lines(text):
        if is_below_frame and compiled(_SOURCE_LINE_PATTERN).match(line):
            continue

        line = line.strip().lstrip(_MARGIN_CHARS)
        # Only Python prints the source of a frame below it.
        is_below_frame = line.startswith('File "')
        match = _match_frame(line)
        if match is not None:
            messages.append([])
            if not _STACK_TRACES.pattern("library").search(line):
                frames.append(_frame(match))
            # Some languages write the message into the line of the frame.
            line = match.groupdict().get("message") or ""
        if line and not _STACK_TRACES.pattern("remark").search(line):
            messages[-1].append(line)

    if len(messages) == 1:  # each frame has added one
        return None
    return StackTrace(
        frames=tuple(frames),
        messages=tuple("\n".join(lines) for lines in messages if lines),
        ends_with_error="Traceback (" in text,
    )


def _lines(text: str) -> list[str]:
    """Return the lines of a stack trace, prepared so that each frame is one line.

    Left out are the middle of a long text, the stacks of further goroutines of Go,
    lines that mark a place in the source, and what compilers add to names.
    """
    text = without_middle(text, MAX_TRACE_CHARS)
    # Keep the text before the first heading, and the first goroutine: it failed.
    text = _GOROUTINE_HEADING.join(text.split(_GOROUTINE_HEADING, 2)[:2])
    text = compiled(_PLACE_LINE_PATTERN).sub(" ", text)
    text = compiled(_MARKED_LINE_PATTERN).sub("", text)
    text = compiled(_WRAPPED_NAME_PATTERN).sub(r".\1", text)
    return _STACK_TRACES.pattern("generated").sub("", text).split("\n")


def _match_frame(line: str) -> re.Match[str] | None:
    """Return the match if a line is a frame of a stack trace in any language, or None.

    The first notation that fits the whole line counts.
    """
    if len(line) > MAX_FRAME_CHARS:  # matching would be slow
        return None
    for notation in _STACK_TRACES.rows("frame"):
        match = compiled(notation.pattern).fullmatch(line)
        if match is not None:
            return match
    return None


def _frame(match: re.Match[str]) -> Frame:
    """Return the frame of a stack trace that a notation matched.

    Its function is the last name of what the line says, without class or "async"; ""
    if the function is anonymous.
    """
    groups = match.groupdict()
    file = groups["file"] or ""
    function = groups.get("function") or ""
    if _STACK_TRACES.pattern("anonymous").search(function):
        return Frame(file, "")
    function = compiled(_ALIAS_PATTERN).sub("", function)
    names = compiled(_FUNCTION_NAME_PATTERN).findall(function)
    if not names:
        return Frame(file, "")
    return Frame(file, names[-1])
