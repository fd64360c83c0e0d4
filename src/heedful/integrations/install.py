"""Write the hooks of heedful into the settings of a coding agent, and take them out again.

Settings are changed as text: comments, order, indentation and unknown keys stay as they are. What
is written is planned first as a `Change`, so that it can be shown, and then written at once, with
a backup beside the file.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from heedful.errors import LineError, UsageError
from heedful.integrations.hooks import AGENTS
from heedful.store import repository

AGENT = "claude-code"  # the agent whose settings are written; for others the docs have snippets
# By what a hook of heedful is known in settings: its command, or its address.
OWN = re.compile(r"heedful-hook|heedful\.integrations\.hook|/v1/hooks/claude-code/")
SUMMARY = "Remembers what failed and what put it right, and says so when it matters."
BACKUP = ".before-heedful"
# Calls that change something, and those of MCP servers: reading files needs no advice.
ACTIONS = "Bash|PowerShell|Edit|MultiEdit|Write|NotebookEdit|mcp__.*"
MATCHERS = {"PreToolUse": ACTIONS, "PostToolUse": ACTIONS}
# Seconds; commands of the project run while a turn stops.
TIMEOUT, STOP = 10, 3_600
KEY = "HEEDFUL_KEY"  # the variable with the key of the service


@dataclass(frozen=True, slots=True)
class Change:
    """What is to become of a file: its text now, None if there is none, and then (None: none)."""

    path: Path
    before: str | None
    after: str | None

    def __bool__(self) -> bool:
        return self.before != self.after

    @property
    def diff(self) -> str:
        """The change as a unified difference."""
        texts = ((text or "").splitlines(keepends=True) for text in (self.before, self.after))
        lines = difflib.unified_diff(*texts, str(self.path), str(self.path))
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def apply(self) -> None:
        """Write the file in one step; a file without hooks of heedful is kept as a backup.

        Raises UsageError if the file cannot be written, or was changed since the plan.
        """
        place = Path(os.path.realpath(self.path))  # a link stays a link
        if read_text(place) != self.before:
            raise UsageError(f"{self.path} was changed meanwhile; run the command again")
        backup = place.with_name(place.name + BACKUP)
        try:
            if self.after is None:
                place.unlink()
                return
            place.parent.mkdir(parents=True, exist_ok=True)
            if self.before is not None:
                if not place.stat().st_mode & 0o222:
                    raise PermissionError(13, "it is read-only")
                if not OWN.search(self.before):
                    shutil.copy2(place, backup)
            draft = place.with_name(f".{place.name}.{os.getpid()}")
            try:
                with draft.open("x", encoding="utf-8", newline="") as file:
                    file.write(self.after)
                    file.flush()
                    os.fsync(file.fileno())
                if self.before is not None:
                    shutil.copymode(place, draft)
                draft.replace(place)
            finally:
                draft.unlink(missing_ok=True)
            if not OWN.search(self.after):
                backup.unlink(missing_ok=True)
        except OSError as error:
            why = f"{self.path} cannot be written ({error.strerror}); nothing was changed"
            raise UsageError(why) from error


def settings_path(user: bool = False) -> Path:
    """Return the settings of Claude Code for the user, or for the project of this folder."""
    home = os.environ.get("CLAUDE_CONFIG_DIR")
    own = Path(home) if home else Path.home() / ".claude"
    return (own if user else _root() / ".claude") / "settings.json"


def past_sessions() -> Path | None:
    """Return the folder in which Claude Code keeps the sessions of this project, if any."""
    coded = re.sub(r"[^A-Za-z0-9]", "-", str(_root()))
    place = settings_path(user=True).parent / "projects" / coded
    return place if place.is_dir() else None


def _root() -> Path:
    return repository(Path.cwd()) or Path.cwd()


def installed(path: Path) -> list[str]:
    """Return the events for which settings have hooks of heedful. Raises LineError, UsageError."""
    text = read_text(path)
    return list(own_hooks(parse(str(path), text))) if text and text.strip() else []


def command(everywhere: bool = False) -> str:
    """Return the command of the hook process; with its whole path if it is to run `everywhere`."""
    found = shutil.which("heedful-hook")
    if found:
        return shlex.quote(found) if everywhere else "heedful-hook"
    return f"{shlex.quote(sys.executable)} -m heedful.integrations.hook"


def hooks(run: str, url: str = "") -> dict[str, list[dict[str, Any]]]:
    """Return the hooks of Claude Code: the command `run` for each event, or requests to `url`."""
    made: dict[str, list[dict[str, Any]]] = {}
    for event, kind in AGENTS[AGENT].events.items():
        hook: dict[str, Any] = {"type": "command", "command": f"{run} {event}"}
        # Claude Code runs only commands when a session starts.
        if url and kind != "start":
            hook = {"type": "http", "url": f"{url.rstrip('/')}/v1/hooks/{AGENT}/{event}"}
            hook |= {"headers": {"Authorization": f"Bearer ${KEY}"}, "allowedEnvVars": [KEY]}
        hook["timeout"] = STOP if kind == "stop" else TIMEOUT
        matcher = {"matcher": MATCHERS[event]} if event in MATCHERS else {}
        made[event] = [{**matcher, "hooks": [hook]}]
    return made


def plan_install(path: Path, wanted: Mapping[str, Sequence[Any]]) -> Change:
    """Return the change that adds the hooks to settings; they replace earlier ones of heedful.

    Raises LineError if the file is not JSON, and UsageError if it cannot be read.
    """
    before = read_text(path)
    text = before if before is not None and before.strip() else "{}\n"
    document = parse(str(path), text)
    if own_hooks(document) == wanted:
        return Change(path, before, before)
    return Change(path, before, _with(str(path), _without(str(path), text), wanted))


def plan_uninstall(path: Path) -> Change:
    """Return the change that removes the hooks; it restores the backup if nothing else changed.

    Raises LineError if the file is not JSON, and UsageError if it cannot be read.
    """
    before = read_text(path)
    if before is None or not (ours := own_hooks(parse(str(path), before))):
        return Change(path, before, before)
    place = Path(os.path.realpath(path))
    backup = read_text(place.with_name(place.name + BACKUP))
    if backup is not None and _with(str(path), backup, ours) == before:
        return Change(path, before, backup)
    after = _without(str(path), before)
    return Change(path, before, None if backup is None and after.strip() == "{}" else after)


def read_text(path: Path) -> str | None:
    """Return the text of a file with its line ends, None if there is no file. Raises UsageError."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def own_hooks(document: Node) -> dict[str, list[Any]]:
    """Return the groups of hooks of heedful in settings, by event."""
    events = document.members.get("hooks", document).members if "hooks" in document.members else {}
    found = {name: [one.value for one in node.items if _own(one)] for name, node in events.items()}
    return {name: groups for name, groups in found.items() if groups}


def _own(group: Node) -> bool:
    return bool(OWN.search(group.text))


def _with(path: str, text: str, wanted: Mapping[str, Sequence[Any]]) -> str:
    """Return the text with groups of hooks, in the order of the agent's events."""
    text = text if text.strip() else "{}\n"
    for event in AGENTS[AGENT].events:
        text = _insert(path, text, event, wanted.get(event, ()))
    return text


def _insert(path: str, text: str, event: str, groups: Sequence[Any]) -> str:
    """Add groups of hooks for an event: to its list, or with a new list, or with new `hooks`."""
    if not groups:
        return text
    document = parse(path, text)
    if (events := document.members.get("hooks")) is None:
        return _append(text, document, {event: list(groups)}, "hooks")
    if events.kind != "{":
        _fail(path, text, events.start, "hooks must be an object")
    if (listed := events.members.get(event)) is None:
        return _append(text, events, list(groups), event)
    if listed.kind != "[":
        _fail(path, text, listed.start, f"hooks.{event} must be a list")
    for group in groups:
        text = _append(text, listed, group)
        listed = parse(path, text).members["hooks"].members[event]
    return text


def _append(text: str, parent: Node, value: Any, name: str = "") -> str:
    """Add a value at the end of an object or a list, indented as the text around it."""
    end = "\r\n" if "\r\n" in text else "\n"
    outer = _indent(text, parent.start)
    children = parent.items or list(parent.members.values())
    first = children[0].start if children else 0
    inner = _indent(text, first) if children and end in text[parent.start : first] else ""
    step = inner[len(outer) :] if inner.startswith(outer) and inner != outer else _step(text)
    flat = bool(children) and end not in text[parent.start : parent.end]
    made = json.dumps(value, ensure_ascii=False, indent=None if flat else step)
    made = (f"{json.dumps(name)}: " if name else "") + made
    if flat:
        return f"{text[: children[-1].end]}, {made}{text[children[-1].end :]}"
    made = made.replace("\n", f"{end}{outer}{step}")
    if children:
        at = children[-1].end
        return f"{text[:at]},{end}{outer}{step}{made}{text[at:]}"
    at = parent.end - 1  # comments in an empty object stay before the new value
    inside = text[parent.start + 1 : at].rstrip()
    return f"{text[: parent.start + 1]}{inside}{end}{outer}{step}{made}{end}{outer}{text[at:]}"


def _without(path: str, text: str) -> str:
    """Remove the hooks of heedful, and lists and objects that are empty without them."""
    while True:
        document = parse(path, text)
        events = document.members.get("hooks")
        found = next(
            ((name, node, n) for name, node in (events.members if events else {}).items()
             for n, group in enumerate(node.items) if _own(group)), None,
        )  # fmt: skip
        if found is None or events is None:
            return text
        name, listed, number = found
        if len(listed.items) > 1:
            text = _cut(text, [one.start for one in listed.items], listed.items, number)
        elif len(events.members) > 1:
            text = _cut_member(text, events, name)
        else:
            text = _cut_member(text, document, "hooks")


def _cut_member(text: str, parent: Node, name: str) -> str:
    nodes = list(parent.members.values())
    starts = [parent.names[one] for one in parent.members]
    if len(nodes) == 1:
        inside = text[parent.start + 1 : starts[0]].rstrip()  # comments stay
        return text[: parent.start + 1] + inside + text[nodes[0].end :].lstrip()
    return _cut(text, starts, nodes, list(parent.members).index(name))


def _cut(text: str, starts: Sequence[int], nodes: Sequence[Node], at: int) -> str:
    """Remove one of several values with its comma; comments between values stay."""
    start, end = starts[at], nodes[at].end
    if at + 1 < len(nodes):
        comma = _comma(text, end)
        rest = text[comma + 1 :]
        return text[:start] + text[end:comma] + rest.lstrip(" \t\r\n")
    comma = _comma(text, nodes[at - 1].end)
    return text[:comma] + text[comma + 1 : start].rstrip() + text[end:]


def _comma(text: str, at: int) -> int:
    for token in _TOKEN.finditer(text, at):
        if token[0] == ",":
            return token.start()
    return at


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 :]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _step(text: str) -> str:
    found = re.search(r"^[ \t]+(?=\")", text, re.MULTILINE)
    return found[0] if found else "  "


# A token of JSON, or a comment as editors allow it.
_TOKEN = re.compile(
    r"""[\s\ufeff]+|//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"/]+""",
    re.DOTALL,
)


@dataclass(slots=True)
class Node:
    """A value in a JSON text: where it is, and the values in it with the places of their names."""

    kind: str
    text: str = ""
    start: int = 0
    end: int = 0
    members: dict[str, Node] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)

    @property
    def value(self) -> Any:
        """The value as data."""
        if self.kind == "{":
            return {name: node.value for name, node in self.members.items()}
        return [one.value for one in self.items] if self.kind == "[" else json.loads(self.text)


def parse(path: str, text: str) -> Node:
    """Return the object in a JSON text, which may have comments. Raises LineError."""
    at, tokens = 0, list[tuple[str, int]]()
    while at < len(text):
        if (token := _TOKEN.match(text, at)) is None:
            _fail(path, text, at, "it is not JSON")
        if not token[0].isspace() and not token[0].startswith(("//", "/*", "\ufeff")):
            tokens.append((token[0], at))
        at = token.end()
    reader = iter([*tokens, ("", len(text))])
    try:
        node = _value(path, text, next(reader), reader)
        after = next(reader)
    except RecursionError:
        _fail(path, text, 0, "it is nested too deeply")
    except StopIteration:
        _fail(path, text, len(text), "it ends too early")
    if node.kind != "{" or after[0]:
        _fail(path, text, after[1] if after[0] else 0, "it must be one object")
    return node


def _value(path: str, text: str, token: tuple[str, int], rest: Iterator[tuple[str, int]]) -> Node:
    word, start = token
    if word not in ("{", "["):
        with suppress(ValueError):
            json.loads(word)
            return Node("", word, start, start + len(word))
        _fail(path, text, start, "a value is missing or wrong")
    node, close, token = Node(word, "", start), "}" if word == "{" else "]", next(rest)
    while token[0] != close:
        if word == "{":
            name = token
            if not name[0].startswith('"') or next(rest)[0] != ":":
                _fail(path, text, name[1], "a name and a colon are missing")
            key = json.loads(name[0])
            node.names[key], node.members[key] = name[1], _value(path, text, next(rest), rest)
        else:
            node.items.append(_value(path, text, token, rest))
        token = next(rest)
        if token[0] == ",":
            token = next(rest)
            if token[0] == close:
                _fail(path, text, token[1], "there is a comma too many")
        elif token[0] != close:
            _fail(path, text, token[1], "a comma is missing")
    node.end = token[1] + 1
    node.text = text[start : node.end]
    return node


def _fail(path: str, text: str, at: int, what: str) -> NoReturn:
    advice = "correct the file, or paste what `heedful hook install --print` shows"
    raise LineError(path, text.count("\n", 0, at) + 1, f"{what}; nothing was changed: {advice}")


def plan_plugin(folder: Path, wanted: Mapping[str, Any], skill: str) -> list[Change]:
    """Return the changes that write a plugin of Claude Code: hooks, an MCP server and a skill."""
    about = {"name": "heedful", "version": version("heedful"), "description": SUMMARY}
    server = {"mcpServers": {"heedful": {"command": "heedful", "args": ["mcp"]}}}
    files = {
        ".claude-plugin/plugin.json": about,
        "hooks/hooks.json": {"description": SUMMARY, "hooks": wanted},
        ".mcp.json": server,
    }
    texts = {name: json.dumps(made, indent=2) + "\n" for name, made in files.items()}
    texts["skills/heedful/SKILL.md"] = skill
    return [Change(folder / name, read_text(folder / name), text) for name, text in texts.items()]
