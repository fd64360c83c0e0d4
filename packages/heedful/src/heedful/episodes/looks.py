"""Calls that only look: they read, list, search, or ask for a status. Pure.

A look changes nothing, so it puts no other call right, and what it prints are texts of
others, so these say nothing about the look itself.
"""

import re

from heedful.knowledge import KnowledgeTable
from heedful.lessons.words import compiled

LOOKS = KnowledgeTable("episodes/looks")
# A command may first go to a folder.
_FOLDER_PATTERN = r"\A\s*(?:(?:cd|echo) [^;&|]*[;&]+[\s\\]*)*"
# Before the word of a command: a text that goes to a file is written, not looked at. A
# program with subcommands has three letters or more, and git may have options first.
_BEFORE_COMMAND = (
    r"\A(?!(?:cat|echo)\b[^|]*?(?<![\d&])>>? ?(?!/dev/)[\w./~$])"
    r"(?:(?!mkdir)\S{3,} (?:(?<=git )-\S+ \S+ )?)?"
)
_COMMAND_END = r"(?![\w./])"
# A check is named among so many words of a line: "uv run python -m pytest".
MAX_NAME_WORDS = 5


def words_of_tool(tool: str) -> str:
    """Return the words of a tool's name, with blanks between: "files read lines"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[_.\-]+", " ", tool).lower()


def looks(tool: str, command: str) -> bool:
    """Return whether a call only looks, by the name of its tool or by its command."""
    if _is_named(tool, "note"):
        return True
    if _is_named(tool, "change"):
        return False
    line = compiled(_FOLDER_PATTERN).sub("", command.lower())
    if LOOKS.pattern("query", r"\A\s*", _COMMAND_END).match(line):
        return True
    return _is_named(tool, "look", "look_tool") or _is_command(
        line, "look", "look_command"
    )


def checks(command: str) -> bool:
    """Return whether a command runs tests, a linter or a compiler on the work."""
    words = " ".join(command.lower().split()[:MAX_NAME_WORDS])
    return LOOKS.pattern("check", r"(?<!\S)", _COMMAND_END).search(words) is not None


def changes(tool: str, command: str) -> bool:
    """Return whether a call edits, moves or removes what it names."""
    return _is_named(tool, "change") or _is_command(command.lower().lstrip(), "change")


def _is_named(tool: str, *groups: str) -> bool:
    """Return whether the name of a tool has a word of one of the groups."""
    words = words_of_tool(tool)
    return any(LOOKS.pattern(group, r"\b", r"\b").search(words) for group in groups)


def _is_command(line: str, *groups: str) -> bool:
    """Return whether a program, or its subcommand, is a word of one of the groups."""
    return any(
        LOOKS.pattern(group, _BEFORE_COMMAND, _COMMAND_END).match(line)
        for group in groups
    )
