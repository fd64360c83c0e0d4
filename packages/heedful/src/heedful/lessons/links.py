"""What lessons are about: the tools, the files and the kinds of errors. Pure.

Links are read from the texts of lessons; nobody states them.
"""

import errno
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from mimetypes import MimeTypes
from typing import Literal, NamedTuple

from heedful.lessons.mistake import Mistake
from heedful.lessons.origin import is_shell
from heedful.lessons.shell import programs_of
from heedful.validation import Fields

LinkKind = Literal["error", "file", "tool"]
MAX_LINKED_LESSONS = 10_000  # the newest lessons of a scope that are compared
# A link that more than this share of all lessons have relates none of them, unless at
# most `MIN_COMMON_LESSONS` have it.
MAX_LINK_SHARE = 0.1
MIN_COMMON_LESSONS = 10
# The last part of a path, with an ending: "app.py" in "src/app.py:3".
_FILE_PATTERN = re.compile(
    r"(?<![~\w.@/+-])((?:[~.\w@+-]*/)*)([\w@+-][\w.@+-]*\.[A-Za-z]\w{0,7})"
    r"(:\d+)?(?![\w/(])"
)
# The name of an exception, "SSLError" in "ssl.SSLError", a code that is written as one,
# "error[E0432]", "F401:", "code E404", or one of the system: "ENOENT".
_ERROR_CODE_PATTERN = re.compile(
    r"\b(?:[A-Z]\w*(?:Error|Exception|Timeout)\b"
    r"|[A-Z]{1,5}\d{3,5}(?=[\]:])|(?<=code )[A-Z]{1,5}\d{3,5}\b"
    rf"|(?:{'|'.join(errno.errorcode.values())})\b)"
)


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """Something that a lesson is about: its kind, and its name in lower case."""

    kind: LinkKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class LessonWords(NamedTuple):
    """The words of a lesson in use: its text, and the text of its error.

    A `mistake` says by itself which calls it is about.
    """

    id: int
    text: str
    error: str = ""
    mistake: Mistake | None = None


def links_of(words: LessonWords) -> tuple[Link, ...]:
    """Return the links of a lesson: the tools, files and errors that its words name.

    They are read from its text, its error and its calls, and sorted by kind and name.

    >>> text = "When `make docs` fails in docs/conf.py: `pip install yaml`"
    >>> print(*links_of(LessonWords(1, text)), sep=", ")
    file conf.py, tool make, tool pip
    """
    calls = _calls_of(words)
    tools = {_name(tool) for tool, _ in calls if tool}
    command_words: set[str] = set()
    for command in [call for tool, call in calls if is_command(tool, call)]:
        # Code in backticks, such as `f(a, b)`, is no command. "." belongs to the shell.
        if "(" not in command:
            tools.update(_name(name) for name in programs_of(command) if name != ".")
            command_words.update(command.split())

    texts = words.text
    if words.mistake is not None:
        texts = "\n".join([words.mistake.error, *(call for _, call in calls)])
    if words.error not in texts:
        texts = f"{words.error}\n{texts}"
    # The parts of an address name nothing of this machine.
    texts = re.sub(r"\b[A-Za-z][\w+.-]{1,20}://\S+", " ", texts)
    files = {_name(name) for name in _files_in(texts, command_words)}
    errors = set(map(_name, _ERROR_CODE_PATTERN.findall(texts)))
    links = [
        *(Link("error", name) for name in errors - tools),
        *(Link("file", name) for name in files - tools),
        *(Link("tool", name) for name in tools),
    ]
    return tuple(sorted(links))


def telling_links(lessons: Collection[Sequence[Link]]) -> frozenset[Link]:
    """Return the links that say something: several lessons have them, but not most.

    A link of more than a share of `MAX_LINK_SHARE` of the lessons says nothing;
    `MIN_COMMON_LESSONS` may always have it.
    """
    counts = Counter(chain.from_iterable(lessons))
    max_count = max(MIN_COMMON_LESSONS, MAX_LINK_SHARE * len(lessons))
    return frozenset(link for link, count in counts.items() if 1 < count <= max_count)


def _calls_of(words: LessonWords) -> list[tuple[str, str]]:
    """Return the calls that a lesson is about, each as its tool and its text.

    The record of a mistake has them. Without one, they are what stands in backticks in
    the words of the lesson, and the tool is "".
    """
    if words.mistake is None:
        text = f"{words.text}\n{words.error}"
        return [("", call) for call in re.findall(r"`([^`\n]+)`", text)]
    return [(call.tool, call.whole) for call in words.mistake.calls]


def is_command(tool: str, call: str) -> bool:
    """Return True if a call is the command of a shell.

    A single word in backticks may be any name; after a shell, it is a command.
    """
    return is_shell(tool) if tool else " " in call.strip()


def _name(text: str) -> str:
    """Return a name as links have it."""
    return " ".join(text.lower().split())


@cache
def _known_endings() -> MimeTypes:
    """Return the endings of files that Python knows, the same on every machine."""
    return MimeTypes()


def _files_in(text: str, command_words: Iterable[str]) -> Iterator[str]:
    """Yield the names of the files that a text names, without their folders.

    A word with a dot may be something else, as "os.path" is. It is a file if it is in a
    folder, has the number of a line ("app:3"), is one of the `command_words`, or has an
    ending that Python knows.
    """
    words_of_commands = set(command_words)
    dotted_words = " ".join(word for word in text.split() if "." in word)
    for folder, name, line in _FILE_PATTERN.findall(dotted_words):
        is_file = folder or line or name in words_of_commands
        if is_file or _known_endings().guess_type(name.lower())[0]:
            yield name


def with_rules(lessons: Sequence[Fields]) -> list[Fields]:
    """Return lessons as data, a reflection with the rule of the same failure in one.

    The rule is the `rule` of the reflection, which the rule names as its `rule_of`.
    """
    rules = {lesson["rule_of"]: lesson for lesson in lessons}
    ids = {lesson["id"] for lesson in lessons}
    return [
        {**lesson, "rule": rules.get(lesson["id"])}
        for lesson in lessons
        if lesson["rule_of"] not in ids
    ]
