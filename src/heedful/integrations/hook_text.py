"""The hooks of heedful in a JSON text of settings, among hooks of others.

An event has a list of hooks, or of groups with a list `hooks`. The events are members
of the object `hooks`. The text is written anew, with its indentation and line ends; one
with comments, which would be lost, is refused.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from heedful.errors import LineError

_EVENTS_NAME = "hooks"
_BYTE_ORDER_MARK = "\ufeff"
# It is in each hook of heedful.
_OWN_WORD = "heedful"
# What follows the command, so that its exit code is 0.
_GUARD = r"( \|\| true|; exit 0)?$"
# The command of a hook of heedful: "/bin/heedful-hook Stop --strict" or
# "python -m heedful.integrations.hook Stop || true".
HOOK_COMMAND_PATTERN = re.compile(
    rf"""^(\S*[/\\]|'.*[/\\])?heedful-hook(\.exe)?'? \w+( --.*)?{_GUARD}"""
    rf"""|^\S.* -m heedful\.integrations\.hook \w+( --.*)?{_GUARD}""",
    re.IGNORECASE,
)


def parse(path: str, text: str) -> dict[str, Any]:
    """Return the object in a JSON text of settings. Raises LineError."""
    try:
        settings = json.loads(text.removeprefix(_BYTE_ORDER_MARK))
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise _fault(path, f"it is not JSON: {error}", line) from error
    if not isinstance(settings, dict):
        raise _fault(path, "it must be one object")
    return settings


def _fault(path: str, problem: str, line: int = 1) -> LineError:
    """Return the error about settings to which no hooks can be added."""
    cure = "nothing was changed: correct the file, then run the command again"
    return LineError(path, line, f"{problem}; {cure}")


def own_hooks(path: str, text: str | None) -> dict[str, list[Any]]:
    """Return the groups or hooks with hooks of heedful, by event. Raises LineError."""
    # Malformed settings of others are no reason to stop.
    if not text or _OWN_WORD not in text:
        return {}

    events = parse(path, text).get(_EVENTS_NAME)
    items_by_event: dict[str, list[Any]] = {}
    for event, items in events.items() if isinstance(events, dict) else ():
        own_items = [item for item in items if own_commands([item])]
        if own_items:
            items_by_event[event] = own_items
    return items_by_event


def own_commands(items: Sequence[Any]) -> list[str]:
    """Return the commands of the hooks of heedful in groups or hooks of an event."""
    commands: list[str] = []
    for item in items:
        entries = item.get("hooks", [item]) if isinstance(item, dict) else ()
        for entry in entries:
            values = entry.values() if isinstance(entry, dict) else ()
            commands += [value for value in values if _is_own(value)]
    return commands


def add_hooks(
    path: str,
    text: str,
    wanted: Mapping[str, Sequence[Any]],
    head: Mapping[str, Any] | None = None,
) -> str:
    """Return the text with groups or hooks at the end of those of each event.

    `head` are the members that an empty text begins with. Raises LineError if the hooks
    have another form.
    """
    settings = parse(path, text) if text.strip() else dict(head or {})
    events = settings.setdefault(_EVENTS_NAME, {})
    for event, items in wanted.items():
        present = events.get(event, []) if isinstance(events, dict) else None
        if not isinstance(present, list):
            raise _fault(path, "hooks must be an object of lists")
        events[event] = [*present, *items]
    return _written(settings, text)


def remove_hooks(path: str, text: str) -> str:
    """Remove the hooks of heedful, and what is empty without them. Raises LineError."""
    settings = parse(path, text)
    events = settings[_EVENTS_NAME]
    for event, own_items in own_hooks(path, text).items():
        others = [item for item in events[event] if item not in own_items]
        for group in own_items:
            entries = group.get("hooks", [])
            other_entries = [entry for entry in entries if not own_commands([entry])]
            if other_entries:
                others.append({**group, "hooks": other_entries})
        events[event] = others
        if not others:
            del events[event]
    if not events:
        del settings[_EVENTS_NAME]
    return _written(settings, text)


def _is_own(value: Any) -> bool:
    return isinstance(value, str) and bool(HOOK_COMMAND_PATTERN.search(value))


def _written(settings: Mapping[str, Any], text: str) -> str:
    """Return settings as JSON, with the indentation and the line ends of a text."""
    match = re.search(r"^[ \t]+(?=\")", text, re.MULTILINE)
    indent = match[0] if match else "  "
    line_end = "\r\n" if "\r\n" in text else "\n"
    document = json.dumps(settings, indent=indent, ensure_ascii=False)
    mark = _BYTE_ORDER_MARK if text.startswith(_BYTE_ORDER_MARK) else ""
    return mark + f"{document}\n".replace("\n", line_end)
