"""Stack traces: the frames of an error, in the notations of languages and browsers.

A trace is read line by line. A line that a row of `FRAME_NOTATIONS` matches is a frame;
what belongs to a trace but says nothing about the error is left out; the other lines
between two frames are a message. A frame has a file or module and a function: no line
numbers, addresses, arguments, or names that compilers and proxies make. The frames of
libraries, by `LIBRARY_PLACES`, are left out.
"""

import re
from dataclasses import dataclass

from heedful.lessons.words import compiled

# A longer trace is read at its ends: the error is named there, and the calls of a deep
# recursion stand between them.
MAX_TRACE_CHARS = 64_000
MAX_FRAME_CHARS = 1_000  # a longer line is no frame

# The notations of frames, each of one whole line without its indent. The groups: `file`
# is a file or a module, `function` may be missing, and `message` is what else the line
# says.
FRAME_NOTATIONS = {
    "Python": r'File "(?P<file>[^"]+)", line \d+(?:, in (?P<function>.+))?',
    # Chrome, Edge, Node and Deno. Node writes the fields of an error below, in braces.
    "V8": r"at (?P<function>[^()]+) \((?P<file>[^()]*?)(?::\d+:\d+)?\)(?: \{)?",
    "V8 without a function": r"at (?:async )?(?P<file>\S+?):\d+:\d+(?: \{)?",
    "Firefox": r"(?P<function>[^@]*)@(?=\S*/)(?P<file>\S*?):\d+:\d+",
    "Safari": r"(?P<function>[^@]*)@?(?P<file>\[native code\])",
    # .NET too, with or without the file.
    "Java": (
        r"at (?:[\w.@-]*/){0,2}(?P<file>[\w.$`+]+)\.(?P<function>\.?[\w$<>]+)"
        r"(?:\[[^\]]*\])?\([^()]*\)(?: .+)?"
    ),
    "Go": (
        r"(?:created by )?(?P<function>[^\s()]+(?:\(\*\w+\)[^\s()]*)?)(?:\(.*\))?"
        r"(?: in goroutine \d+)? (?P<file>\S+\.go):\d+(?: \+0x[\da-f]+)?"
    ),
    "Rust": (
        r"\d+: +(?:0x[\da-f]+ - )?(?:(?P<file>[\w<][^=;]*)::)?(?P<function>\w+)"
        r"(?: at \S+)?"
    ),
    "Rust's panic": r"thread .+ panicked at (?P<file>[^\s':]+):\d+:\d+:?",
    "Rust's panic until 1.72": (
        r"thread .+ panicked at '(?P<message>.*)', (?P<file>[^\s']+?):\d+:\d+"
    ),
    "Ruby": (
        r"(?:from )?(?P<file>[^\s:]+):\d+:in [`'](?P<function>[^']+)'"
        r"(?:: (?P<message>.+))?"
    ),
    "PHP": r"#\d+ (?P<file>\S.*?)(?:\(\d+\))?: (?P<function>[^()]+)\(.*\)",
}
# Where code is that is not the program's own, in the line of a frame.
LIBRARY_PLACES = {
    "modules of Python": r"[/\\](?i:python)\d[\d.]+[/\\]",
    "packages of Python": r"-packages[/\\]",
    "frozen modules of Python": r'"<frozen ',
    "modules of Node": r"(?<![\w/])node:",
    "modules of old Node": r"\(internal/",
    "packages of Node": r"\bnode_modules[/\\]",
    "modules of Deno": r"(?<![\w/])ext:",
    "built into V8": r" \(<anonymous>\)",
    "built into old V8": r" \(native\)",
    "promises of V8": r" \(index \d",
    "built into Safari": r"\[native code\]",
    "Java": r"\bjavax?\.",
    "Jakarta": r"\bjakarta\.",
    "the JDK": r"\bjdk\.",
    "the JDK of Sun": r"\bsun\.",
    "Kotlin": r"\bkotlinx?\.",
    "Scala": r"\bscala\.",
    "Clojure": r"\bclojure\.",
    "Apache": r"\borg\.apache\.",
    "JUnit": r"\borg\.junit\.",
    "Spring": r"\borg\.springframework\.",
    "System of .NET": r"\Aat System\.",
    "Microsoft": r"\Aat Microsoft\.",
    "Go": r"/local/go/src/",
    "Go of Debian": r"/go-[\d.]+/src/",
    "Go of Homebrew": r"/libexec/src/",
    "modules of Go": r"/pkg/mod/",
    "std of Rust": r"\A\d+: +(?:0x[\da-f]+ - )?<?std::",
    "core of Rust": r"\A\d+: +(?:0x[\da-f]+ - )?<?core::",
    "alloc of Rust": r"\A\d+: +(?:0x[\da-f]+ - )?<?alloc::",
    "C in a trace of Rust": r"\A\d+: +(?>(?:0x[\da-f]+ - )?)\w+(?![\w:])",
    "crates of Rust": r"/\.cargo/",
    "Ruby": r"/lib/ruby/",
    "gems of Ruby": r"/gems/",
    "packages of PHP": r"/vendor/",
    "PHP": r"\[internal function\]",
}
_LIBRARY_PATTERN = "|".join(LIBRARY_PLACES.values())

# Go and Rust write a frame in two lines: the function, then its place.
_PLACE_LINE_PATTERN = r"\n\s+(?=(?:at )?\S+\.(?:go|rs):\d)"
# What Python draws before the errors of a group.
_MARGIN_CHARS = "| "
# Before the stack of another goroutine, in which the error did not happen.
_GOROUTINE_HEADING = "\n\ngoroutine "
# Lines of a trace that say nothing about the error: headings, advice, and what a shell
# adds.
_REMARK_PATTERN = (
    r"goroutine \d+ .*|(?i:stack (?:back)?trace:)|note: .*|exit status \d+"
)
# A source line below a frame of Python, or above a mark. That of a failed assertion
# stays, because it says what was expected.
_SOURCE_LINE_PATTERN = r"[ \t|]{4,}(?!assert\b)"
_MARKED_LINE_PATTERN = (
    r"(?m)(?:\n(?!\s*assert\b)[^\n]*)?\n[ \t]*+(?=~*\^)[~^]++[ \t]*+$"
)
# Names of C# for a part of a function: "<Run>b__0_1", "<Run>d__3.MoveNext".
_WRAPPED_NAME_PATTERN = r"(?:\.<>c\w*)?\.<(\w+)>[a-z]__\w+(?:\.MoveNext)?"
# Proxies, lambdas and counters of Java ("lambda$main$0"), closures and hashes of Rust,
# and closures of Go.
_GENERATED_NAME_PATTERN = (
    r"\$\$[^.(\s]*|(?<=\w)\$\d+|::\{\{closure\}\}|::h[\da-f]{16}\b"
    r"|\.func\d[\d.]*"
)
# A function without a name of its own.
_ANONYMOUS_PATTERN = r"<.*>|.*\.<anonymous>|.*/<|(?:module|global) code"
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
    # A panic of old Rust is one line; everything else with a frame has several.
    if "\n" not in text and not text.startswith("thread '"):
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
            if not compiled(_LIBRARY_PATTERN).search(line):
                frames.append(_frame(match))
            # Some languages write the message into the line of the frame.
            line = match.groupdict().get("message") or ""
        if line and not compiled(_REMARK_PATTERN).fullmatch(line):
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
    if len(text) > MAX_TRACE_CHARS:
        half = MAX_TRACE_CHARS // 2
        text = f"{text[:half]}\n{text[-half:]}"
    # Keep the text before the first heading, and the first goroutine: it failed.
    text = _GOROUTINE_HEADING.join(text.split(_GOROUTINE_HEADING, 2)[:2])
    text = compiled(_PLACE_LINE_PATTERN).sub(" ", text)
    text = compiled(_MARKED_LINE_PATTERN).sub("", text)
    text = compiled(_WRAPPED_NAME_PATTERN).sub(r".\1", text)
    return compiled(_GENERATED_NAME_PATTERN).sub("", text).split("\n")


def _match_frame(line: str) -> re.Match[str] | None:
    """Return the match if a line is a frame of a stack trace in any language, or None.

    The first notation that fits the whole line counts.
    """
    if len(line) > MAX_FRAME_CHARS:  # matching would be slow
        return None
    for notation in FRAME_NOTATIONS.values():
        match = compiled(notation).fullmatch(line)
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
    if compiled(_ANONYMOUS_PATTERN).fullmatch(function):
        return Frame(file, "")
    function = compiled(_ALIAS_PATTERN).sub("", function)
    names = compiled(_FUNCTION_NAME_PATTERN).findall(function)
    if not names:
        return Frame(file, "")
    return Frame(file, names[-1])
