"""Relevance: whether a text that an agent is shown is about a failure, and whether it
helps.

A text is about a failure if it says what an earlier failure of the same kind said (the
line that names it, as heedful reads it), if it names what the error names and the call
used, if it names the rule of the linter that complains, or if it states the contract
that the call broke. That a path is absent is about the failure of another path only if
it names no path at all.

A text helps after a failure if it holds all words of a mend. What the output of the
failure says itself does not count, for the agent has just read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from bench.quality.recordings import ABSENT_ERROR, Action, Mend
from heedful.lessons.action import QUOTED_TEXT_PATTERN
from heedful.lessons.render import FACTS_HEADING

# A shorter line, such as "exit 1", names no failure.
MIN_ERROR_CHARS = 12
MIN_NAME_CHARS = 3
# What an error names: a flag, a path, or a text in quotes.
FLAG = re.compile(r"(?<![\w-])--?[a-z][\w-]+")
PATH = re.compile(r"[\w@~.-]*/[\w@./~-]*\w|(?<!\w)\.?\w[\w-]*\.[a-z]\w{0,4}\b")
# What a file tool demands: an error that says so, and a text that states it.
CONTRACTS = tuple(
    (re.compile(error, re.IGNORECASE), re.compile(text, re.IGNORECASE))
    for error, text in (
        (r"has not been read", r"\bread\b.*\b(?:first|before|again)\b|\bnot been read"),
        (r"since (?:it was )?(?:last )?read", r"\bread\b.*\bagain\b|\bsince\b.*\bread"),
        (r"to replace not found", r"old_string|to replace"),
        (r"matches of the string", r"\bunique|replace_all"),
        (r"exactly the same", r"\bsame\b|\bequal\b|no changes?\b"),
        (r"exceeds maximum", r"too large|exceeds|\blimit\b"),
    )
)
ABSENT_TEXT = re.compile(
    r"do(?:es)? not exist|doesn't exist|no such file|absent|guess", re.IGNORECASE
)
# The name of a linter's rule at the end of its message: "is not checked (errcheck)".
RULE_NAME = re.compile(r"[(\[][a-z][\w/-]+[)\]]\Z")
# The heading of the texts of one moment, and the delimiters around each.
HEADING = FACTS_HEADING + "\n"
TAG = re.compile(r"</?\w+>")
DELIMITER = re.compile(r"^</?[\w-]+ [0-9a-f]{8}>\n?", re.MULTILINE)


def join_words(text: str) -> str:
    """Return a text with one blank between words."""
    return " ".join(text.split())


def lines_of(text: str) -> list[str]:
    """Return the lines that an agent is told, without heading and delimiters."""
    body = DELIMITER.sub("", text.removeprefix(HEADING))
    return [line for line in map(str.strip, body.splitlines()) if line]


def is_about(text: str, failure: Action, earlier: Sequence[Action]) -> bool:
    """Return True if a text is about a failure.

    `earlier` are the failures of the same kind in other sessions.
    """
    items = list(_items(text))
    if failure.path and ABSENT_ERROR.search(failure.error):
        absences = [item for item in items if ABSENT_TEXT.search(item)]
        return any(_is_about_path(item, failure) for item in absences)

    lines = set[str]()
    for action in (failure, *earlier):
        lines |= {action.error, action.error_words}
    long_lines = [line for line in lines if len(line) >= MIN_ERROR_CHARS]
    for item in map(join_words, items):
        if any(line in item for line in long_lines) or _shares_name(item, failure):
            return True
        rule = RULE_NAME.search(failure.error)
        if rule is not None and rule[0] in item:
            return True
        for error, statement in CONTRACTS:
            if error.search(failure.error) and statement.search(item):
                return True
    return False


def _items(text: str) -> Iterator[str]:
    """Yield each text between delimiters, and each line."""
    body = text.removeprefix(HEADING)
    yield from filter(str.strip, DELIMITER.split(body))
    yield from lines_of(text)


def _is_about_path(item: str, failure: Action) -> bool:
    """Return True if a text names the path of a failure or its folder, or no path.

    A path in the words of the error, such as one that the tool proposes, is none.
    """
    body = TAG.sub(" ", item)
    path = failure.path
    for name in map(failure.session.relative, PATH.findall(body)):
        is_folder = f"{path}/".startswith(f"{name}/")
        is_end = f"/{path}".endswith(f"/{name}")
        if is_folder or is_end or name.endswith(f"/{path}"):
            return True
    return not PATH.search(body.replace(TAG.sub("", failure.error), " "))


def _shares_name(text: str, failure: Action) -> bool:
    """Return True if the error, the call and the text have a name in common."""
    for name in names_of(failure.error):
        word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])", re.IGNORECASE)
        if word.search(failure.args) and word.search(text):
            return True
    return False


def names_of(error: str) -> set[str]:
    """Return what an error names: texts in quotes, flags and paths.

    The text 'pets.owner' names "pets.owner", and "owner" too.
    """
    quoted = ["".join(groups) for groups in QUOTED_TEXT_PATTERN.findall(error)]
    names = {*quoted, *(text.rpartition(".")[2] for text in quoted)}
    names |= {*FLAG.findall(error), *PATH.findall(error)}
    return {name for name in names if len(name) >= MIN_NAME_CHARS}


def helps(text: str, failure: Action, mends: Iterable[Mend]) -> bool:
    """Return True if a text holds a mend that the failure's own output does not say."""
    body = join_words(DELIMITER.sub("", text.removeprefix(HEADING)))
    output = {failure.error, failure.error_words}
    output.update(map(join_words, failure.output.splitlines()))
    for line in sorted(output, key=len, reverse=True):
        if len(line) >= MIN_ERROR_CHARS:
            body = body.replace(line, " ")
    return any(_holds(body, mend) for mend in mends)


def _holds(text: str, mend: Mend) -> bool:
    """Return True if a text holds each word of a mend as a whole."""
    patterns = [rf"(?<![\w-]){re.escape(word)}(?![\w-])" for word in mend.words]
    return all(re.search(pattern, text, re.IGNORECASE) for pattern in patterns)
