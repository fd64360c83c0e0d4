"""Calls that only look: they read, list, search, or ask for a status. Pure.

A look changes nothing, so it puts no other call right, and what it prints are texts of
others, so these say nothing about the look itself.
"""

import re

from heedful.lessons.words import compiled

# The first words of the name of a tool that looks.
_LOOK_TOOL_PATTERN = (
    r"(?:get|read|list|show|cat|head|tail|view|find|search|grep|glob|describe|status"
    r"|stat|inspect|fetch|lookup|explain|debug|help)\b"
)
# A tool with which an agent keeps notes for itself, such as a to-do list.
_NOTE_TOOL_PATTERN = (
    r"(?:todo|think|plan|update plan|task (?:create|update|list|get))\b"
)
# The first words of the name of a tool that changes something.
_CHANGE_TOOL_PATTERN = (
    r"(?:\w+ )?(?:edit|write|patch|replace|insert|delete|remove|rm|mv|cp|mkdir|touch"
    r"|chmod|git|multi ?edit|apply|sed(?! -n)|create|update)\b"
)
# A command that looks, perhaps after it went to a folder.
_LOOK_COMMAND_PATTERN = (
    r"(?:(?:cd|export|set|echo) [^;&|]*(?:&&|;) *)*"
    # A text that goes to a file is written, not looked at.
    r"(?!(?:cat|echo)\b[^|]*?(?<![\d&])>>? ?(?!/dev/)[\w./~$])"
    r"(?:ls|tree|cat|head|tail|less|grep|egrep|rg|ag|find|stat|file|which|echo|pwd|wc"
    r"|sort|cut|awk|jq|diff|select|show|desc|describe|explain|debug|sed -n|gh"
    r"|(?:docker|kubectl) (?:ps|get|logs|describe|inspect)|journalctl"
    r"|git (?:-\S+ \S+ )?(?:status|log|diff|show|blame|grep|branch$))\b"
    r"|\S+ -{1,2}(?:v|version|h|help)\b"
)


def words_of_tool(tool: str) -> list[str]:
    """Return the words of a tool's name: "files", "read" and "lines"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[_.\-]+", " ", tool).lower().split()


def begins_with(pattern: re.Pattern[str], tool: str) -> bool:
    """Return whether the name of a tool, from any of its words on, has a shape."""
    words = words_of_tool(tool)
    ends = (" ".join(words[start:]) for start in range(len(words)))
    return any(pattern.match(end) for end in ends)


def looks(tool: str, command: str) -> bool:
    """Return whether a call only looks, by the name of its tool or by its command."""
    if begins_with(compiled(_NOTE_TOOL_PATTERN), tool):
        return True
    if changes(tool, ""):
        return False
    has_command = (
        compiled(_LOOK_COMMAND_PATTERN).match(command.lower().lstrip()) is not None
    )
    return has_command or begins_with(compiled(_LOOK_TOOL_PATTERN), tool)


def changes(tool: str, command: str) -> bool:
    """Return whether a call edits, moves or removes what it names."""
    has_command = (
        compiled(_CHANGE_TOOL_PATTERN).match(command.lower().lstrip()) is not None
    )
    return has_command or begins_with(compiled(_CHANGE_TOOL_PATTERN), tool)
