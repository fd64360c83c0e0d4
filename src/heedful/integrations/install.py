"""Write the hooks of heedful into the settings of a coding agent, or take them out.

Settings are changed as text: comments, order, indentation and unknown keys stay as they
are. What is written is planned first as a `FileChange`, so that it can be shown, and
then written at once, with a backup beside the file.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from heedful.errors import LineError, UsageError
from heedful.integrations.hooks import AGENTS
from heedful.store.ownership import private
from heedful.store.workspace import (
    folder_db,
    project_root,
    read_project_file,
)

# The agent whose settings are written; for others the docs have snippets.
INSTALL_AGENT = "claude-code"
# The command or the address of a hook of heedful: "/bin/heedful-hook Stop --strict",
# "python -m heedful.integrations.hook Stop" or "https://host/v1/hooks/claude-code".
# Earlier addresses end with the event.
HOOK_COMMAND_PATTERN = re.compile(
    r"""^(\S*[/\\]|'.*[/\\])?heedful-hook(\.exe)?'? \w+( --.*)?$"""
    r"""|^\S.* -m heedful\.integrations\.hook \w+( --.*)?$"""
    r"""|/v1/hooks/claude-code(/\w+)?$""",
    re.IGNORECASE,
)
PLUGIN_SUMMARY = (
    "Remembers what failed and what put it right, and says so when it matters."
)
BACKUP_SUFFIX = ".before-heedful"
# Calls that change something, and those of MCP servers: reading files needs no advice.
# The results of all tools are kept, because what works later may be from any of them.
ACTION_TOOLS_REGEX = "Bash|PowerShell|Edit|MultiEdit|Write|NotebookEdit|mcp__.*"
HOOK_MATCHERS = {"PreToolUse": ACTION_TOOLS_REGEX}
# The time limits that the agent gets; while a turn stops, commands of the project run.
HOOK_LIMIT_SECONDS = 10
STOP_HOOK_LIMIT_SECONDS = 3_600
# The environment variable with the key of the service.
SERVICE_KEY_VARIABLE = "HEEDFUL_KEY"
OWN_QUESTION = (
    "\nWhom do you trust? A lesson waits, and your agent is not told, while nobody "
    "vouches for its sources.\n"
    "Your own words, your agent's tools on this machine, and the programs that it runs "
    "here:\n"
    "  yes: what failed and was fixed today is told tomorrow. This leaves out programs "
    "that fetch\n"
    "  what others wrote (curl, gh, ssh, ...), what comes from an address, and MCP "
    "servers.\n"
    "  no: each lesson waits until you release it; names are possible later: heedful "
    "hook trust pytest,make"
)


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change of a file: its text before and after, None if there is no file."""

    path: Path
    before: str | None
    after: str | None

    def __bool__(self) -> bool:
        return self.before != self.after

    @property
    def diff(self) -> str:
        """The change as a unified difference."""
        before = (self.before or "").splitlines(keepends=True)
        after = (self.after or "").splitlines(keepends=True)
        # If the path is a link, the file behind it is written.
        name = os.path.realpath(self.path)
        lines = difflib.unified_diff(before, after, name, name)
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def apply(self) -> None:
        """Write the file in one step; a file without hooks of heedful gets a backup.

        Raises UsageError if the file cannot be written, or was changed since the plan.
        """
        # A link stays a link.
        path = Path(os.path.realpath(self.path))
        if read_text(path) != self.before:
            raise UsageError(
                f"{self.path} was changed meanwhile; run the command again"
            )

        try:
            if self.after is None:
                path.unlink()
                # The folder stays if it holds other files.
                with suppress(OSError):
                    path.parent.rmdir()
            else:
                self._write(path, self.after)
        except OSError as error:
            raise UsageError(
                f"{self.path} cannot be written ({error.strerror}); nothing was changed"
            ) from error

    def _write(self, path: Path, text: str) -> None:
        """Write a text, and keep or remove the backup. Raises OSError."""
        backup = path.with_name(path.name + BACKUP_SUFFIX)
        path.parent.mkdir(parents=True, exist_ok=True)

        # A new file has the permissions of its folder, without the right to run it.
        if self.before is None:
            mode = path.parent.stat().st_mode & 0o666
        else:
            mode = path.stat().st_mode & 0o7777
            if not mode & 0o222:
                raise PermissionError(13, "it is read-only")
            if not _has_own_hooks(self.before):
                # A link in its place would lead elsewhere.
                backup.unlink(missing_ok=True)
                shutil.copy2(path, backup)

        # The draft is on the disk before it takes the place of the file.
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(draft, "x", encoding="utf-8", newline="", opener=private) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())

            draft.chmod(mode)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

        if not _has_own_hooks(text):
            backup.unlink(missing_ok=True)


def apply_all(changes: Sequence[FileChange]) -> None:
    """Write all files, or none if one cannot be written. Raises UsageError."""
    written: list[FileChange] = []
    try:
        for change in filter(None, changes):
            change.apply()
            written.append(change)
    except UsageError:
        for change in reversed(written):
            undo = replace(change, before=change.after, after=change.before)
            undo.apply()
        raise


def settings_path(user: bool = False) -> Path:
    """Return the settings of Claude Code for the user, or for this project.

    Raises UsageError if those of the project are elsewhere, because of a link in it.
    """
    if not user:
        path = _project_root() / ".claude" / "settings.json"
        check_within(path, _project_root())
        return path

    home = os.environ.get("CLAUDE_CONFIG_DIR")
    folder = Path(home) if home else Path.home() / ".claude"
    return folder / "settings.json"


def check_within(path: Path, folder: Path) -> None:
    """Check that no link leads from a path in a folder to a place outside of it.

    Raises UsageError.
    """
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(folder.resolve()):
        raise UsageError(
            f"{path} leads to {real}, outside of {folder}; remove the link first"
        )


def past_sessions() -> Path | None:
    """Return the folder of Claude Code's sessions of this project, if any."""
    name = re.sub(r"[^A-Za-z0-9]", "-", str(_project_root()))
    folder = settings_path(user=True).parent / "projects" / name
    return folder if folder.is_dir() else None


def _project_root() -> Path:
    """Return the root of the repository of the current folder, or that folder."""
    return project_root(Path.cwd())


def installed(path: Path) -> tuple[list[str], str]:
    """Return the events with hooks of heedful, and why they must be installed again.

    The second is a text such as "; heedful-hook is gone: install again", or "".
    """
    groups_by_event = own_hooks(str(path), read_text(path))
    programs: dict[str, None] = {}
    for group in chain.from_iterable(groups_by_event.values()):
        for hook in group["hooks"]:
            line = str(hook.get("command")) if isinstance(hook, dict) else ""
            if HOOK_COMMAND_PATTERN.search(line):
                programs[shlex.split(line)[0]] = None

    notes = [
        f"; {program} is gone: install again"
        for program in programs
        if not shutil.which(program)
    ]
    if any("matcher" in group for group in groups_by_event.get("PostToolUse", ())):
        # As an earlier version wrote them: a page may be read that no hook sees.
        notes.append("; PostToolUse leaves out results of tools: install again")
    return list(groups_by_event), "".join(notes)


def command(
    everywhere: bool = False,
    name: str = "heedful-hook",
    module: str = "heedful.integrations.hook",
) -> str:
    """Return the command of the hook process, with its path if it runs `everywhere`.

    An agent may not find a program of an environment that is active here, so it gets
    the Python.
    """
    program = shutil.which(name)
    environments = map(os.environ.get, ("VIRTUAL_ENV", "CONDA_PREFIX"))
    is_in_environment = program is not None and any(
        folder and Path(program).is_relative_to(folder) for folder in environments
    )
    if program and not is_in_environment:
        return shlex.quote(program) if everywhere else name

    # With -P no file of the folder in which an agent works is taken for a module.
    return f"{shlex.quote(sys.executable)} -P -m {module}"


def hooks(run: str, url: str = "") -> dict[str, list[dict[str, Any]]]:
    """Return the hooks of Claude Code, for each event the command `run`.

    With a `url`, most are requests to this service.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for event, kind in AGENTS[INSTALL_AGENT].events.items():
        local = {"type": "command", "command": f"{run} {event}"}
        event_hooks: list[dict[str, Any]] = [local]

        if url and kind == "start":
            # Claude Code only runs commands at a start: without a database, none.
            has_database = folder_db(_project_root()).exists()
            event_hooks = [local] if has_database else []
        elif url and kind == "stop":
            # The service runs no command of the project.
            event_hooks = [_request_hook(url), local]
        elif url:
            event_hooks = [_request_hook(url)]

        if not event_hooks:
            continue

        seconds = STOP_HOOK_LIMIT_SECONDS if kind == "stop" else HOOK_LIMIT_SECONDS
        group: dict[str, object] = {}
        if event in HOOK_MATCHERS:
            group["matcher"] = HOOK_MATCHERS[event]
        group["hooks"] = [{**hook, "timeout": seconds} for hook in event_hooks]
        groups[event] = [group]

    return groups


def _request_hook(url: str) -> dict[str, Any]:
    """Return a hook that is a request to the service."""
    hook: dict[str, object] = {
        "type": "http",
        "url": f"{url.rstrip('/')}/v1/hooks/{INSTALL_AGENT}",
    }
    # A service without keys refuses an empty one.
    if os.environ.get(SERVICE_KEY_VARIABLE):
        hook["headers"] = {"Authorization": f"Bearer ${SERVICE_KEY_VARIABLE}"}
        hook["allowedEnvVars"] = [SERVICE_KEY_VARIABLE]
    return hook


def plan_install(path: Path, wanted: Mapping[str, Sequence[Any]]) -> FileChange:
    """Return the change that puts hooks in place of those of heedful.

    Raises UsageError.
    """
    before = read_text(path)
    present = own_hooks(str(path), before)
    if present == wanted:
        return FileChange(path, before, before)

    others = before or ""
    if present:
        others = _remove_own_hooks(str(path), others)
    return FileChange(path, before, _add_groups(str(path), others, wanted))


def plan_uninstall(path: Path) -> FileChange:
    """Return the change that removes the hooks of heedful. Raises UsageError.

    It restores the backup if nothing else has changed.
    """
    before = read_text(path)
    present = own_hooks(str(path), before)
    if before is None or not present:
        return FileChange(path, before, before)

    file = Path(os.path.realpath(path))
    backup = read_text(file.with_name(file.name + BACKUP_SUFFIX))
    if backup is not None and _add_groups(str(path), backup, present) == before:
        return FileChange(path, before, backup)

    # A file that held nothing else goes with the hooks.
    after = _remove_own_hooks(str(path), before)
    if backup is None and after.strip() == "{}":
        return FileChange(path, before, after=None)
    return FileChange(path, before, after)


def read_text(path: Path) -> str | None:
    """Return the text of a file with its line ends, None without a file.

    Raises UsageError.
    """
    try:
        return read_project_file(path).decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def own_hooks(path: str, text: str | None) -> dict[str, list[Any]]:
    """Return the groups with hooks of heedful, by event. Raises LineError."""
    if not text or not text.strip():
        return {}

    events = parse(path, text).get("hooks")
    groups_by_event: dict[str, list[Any]] = {}
    for event in events.children if events else ():
        groups = [group.value for group in event.children if _own_hooks(group)]
        if groups:
            groups_by_event[event.name] = groups

    return groups_by_event


def _own_hooks(group: Node) -> list[Node]:
    """Return the hooks of heedful in a group."""
    own_entries: list[Node] = []
    hooks = group.get("hooks")
    for hook in hooks.children if hooks else ():
        target = hook.get("command") or hook.get("url")
        if target and HOOK_COMMAND_PATTERN.search(str(target.value)):
            own_entries.append(hook)

    return own_entries


def _has_own_hooks(text: str) -> bool:
    """Return True if a text has hooks of heedful; a text of a plugin is not JSON."""
    with suppress(UsageError):
        return bool(own_hooks("", text))
    return False


def _add_groups(path: str, text: str, wanted: Mapping[str, Sequence[Any]]) -> str:
    """Return the text with groups of hooks, in the order of the agent's events."""
    if not text.strip():
        text = "{}\n"
    for event in AGENTS[INSTALL_AGENT].events:
        for group in wanted.get(event, ()):
            text = _add_group(path, text, event, group)
    return text


def _add_group(path: str, text: str, event: str, group: Any) -> str:
    """Return the text with one more group of hooks at the end of an event's.

    Raises LineError if the hooks have another form.
    """
    document = parse(path, text)
    events = document.get("hooks")
    if events is None:
        return _append_value(text, document, {event: [group]}, "hooks")

    groups = events.get(event)
    is_list = groups is None or groups.text.startswith("[")
    if not events.text.startswith("{") or not is_list:
        _fail(path, text, events.start, "hooks must be an object of lists")

    if groups is None:
        return _append_value(text, events, [group], event)
    return _append_value(text, groups, group)


def _append_value(text: str, parent: Node, value: Any, name: str = "") -> str:
    """Add a value at the end of an object or a list, indented as the text around it."""
    last = parent.children[-1].end if parent.children else 0
    is_on_one_line = bool(last) and "\n" not in parent.text
    # The first name that begins a line shows how far a level is indented.
    match = re.search(r"^[ \t]+(?=\")", text, re.MULTILINE)
    step = match[0] if match else "  "

    indent = None if is_on_one_line else step
    member = json.dumps(value, ensure_ascii=False, indent=indent)
    if name:
        member = f"{json.dumps(name)}: {member}"
    if is_on_one_line:
        return f"{text[:last]}, {member}{text[last:]}"

    # Each line gets the indentation of the line in which the parent begins.
    line_end = "\r\n" if "\r\n" in text else "\n"
    line = text[text.rfind("\n", 0, parent.start) + 1 :]
    outer = line[: len(line) - len(line.lstrip(" \t"))]
    member = f"\n{member}".replace("\n", f"{line_end}{outer}{step}")
    if last:
        return f"{text[:last]},{member}{text[last:]}"

    # Comments in an empty object stay before the value.
    bracket = parent.end - 1
    return f"{text[:bracket].rstrip()}{member}{line_end}{outer}{text[bracket:]}"


def _remove_own_hooks(path: str, text: str) -> str:
    """Remove the hooks of heedful, and what is empty without them.

    After each removal the text is parsed again, because the places in it have changed.
    """
    document = parse(path, text)
    events = document.get("hooks")
    for event in events.children if events else ():
        for group in event.children:
            hooks = group.get("hooks")
            for hook in _own_hooks(group):
                if events and hooks:
                    nodes = [document, events, event, group, hooks, hook]
                    return _remove_own_hooks(path, _remove_chain(text, nodes))

    return text


def _remove_chain(text: str, nodes: list[Node]) -> str:
    """Remove the last node, with those around it that hold nothing else.

    Each node is in the one before it. The `hooks` of a group are removed only with the
    group.
    """
    document, events, event, group, hooks, hook = nodes
    pairs = [(document, events), (events, event), (event, group), (hooks, hook)]
    parent, child = pairs.pop()
    while pairs and len(parent.children) == 1:
        parent, child = pairs.pop()
    return _remove_value(text, parent, child)


def _remove_value(text: str, parent: Node, child: Node) -> str:
    """Remove a value with its comma; comments around it stay."""
    siblings = parent.children
    index = siblings.index(child)
    if len(siblings) == 1:
        return text[: child.at].rstrip() + text[child.end :].lstrip()

    # The comma after the value goes, or that before the last value.
    if index + 1 < len(siblings):
        comma = child.whole.index(",", child.end)
        return text[: child.at] + text[child.end : comma] + text[comma + 1 :].lstrip()

    comma = child.whole.index(",", siblings[index - 1].end)
    return text[:comma] + text[comma + 1 : child.at].rstrip() + text[child.end :]


# A string, or what JSON lacks: comments, as editors allow them, and a mark at a file's
# beginning. A // in a string is not a comment, so strings are matched, too.
_JSON_COMMENT_PATTERN = re.compile(
    r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/|\ufeff', re.DOTALL
)
_JSON_SEPARATOR_PATTERN = re.compile(r"[\s,:]*")
_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value in a JSON text, `whole`, from `start` to `end`.

    `name` is that of a member of an object, else ""; it begins at the position `at`.
    """

    whole: str
    at: int
    start: int
    end: int
    name: str = ""

    @property
    def text(self) -> str:
        """The text of the value, with blanks for comments."""
        return self.whole[self.start : self.end]

    @property
    def children(self) -> list[Node]:
        """The members of an object, or the values of a list."""
        if self.text[0] not in "{[":
            return []

        nodes: list[Node] = []
        position = self._after(self.start + 1)
        while position < self.end - 1:
            name = ""
            start = position
            if self.text[0] == "{":
                name, start = _decode(self.whole, position)
                start = self._after(start)

            _, end = _decode(self.whole, start)
            nodes.append(
                Node(whole=self.whole, at=position, start=start, end=end, name=name)
            )
            position = self._after(end)

        return nodes

    def _after(self, position: int) -> int:
        """Return where the next value begins."""
        match = _JSON_SEPARATOR_PATTERN.match(self.whole, position)
        return match.end() if match else position

    def get(self, name: str) -> Node | None:
        """Return the value with this name."""
        return next((node for node in self.children if node.name == name), None)

    @property
    def value(self) -> Any:
        """The value as data."""
        return json.loads(self.text)


def parse(path: str, text: str) -> Node:
    """Return the object in a JSON text, which may have comments. Raises LineError."""
    json_text = _JSON_COMMENT_PATTERN.sub(_blank_comment, text)
    try:
        if not isinstance(json.loads(json_text), dict):
            _fail(path, text, position=0, problem="it must be one object")
    except (ValueError, RecursionError) as error:
        position = getattr(error, "pos", 0)
        reason = str(error)
        last_comma = json_text.rfind(",", 0, position + 1)
        if re.match(r",\s*[\]}]", json_text[last_comma:]):
            reason = "remove the comma before the closing bracket"

        _fail(path, text, position, f"it is not JSON: {reason}")

    start = len(json_text) - len(json_text.lstrip())
    return Node(whole=json_text, at=start, start=start, end=len(json_text.rstrip()))


def _blank_comment(match: re.Match[str]) -> str:
    """Replace a comment by blanks, so that positions stay; leave a string unchanged."""
    return match[1] or re.sub(r"[^\r\n]", " ", match[0])


def _fail(path: str, text: str, position: int, problem: str) -> NoReturn:
    """Raise LineError for a problem at a position of a text."""
    line = text.count("\n", 0, position) + 1
    problem = (
        f"{problem}; nothing was changed: correct the file, then run the command again"
    )
    raise LineError(path, line, problem)


def plan_plugin(
    folder: Path, wanted: Mapping[str, Any], skill: str
) -> list[FileChange]:
    """Return the changes that write a plugin of Claude Code.

    It has hooks, an MCP server and a skill.
    """
    program, *words = shlex.split(command(True, "heedful", "heedful.cli"))
    documents: dict[str, dict[str, Any]] = {
        ".claude-plugin/plugin.json": {
            "name": "heedful",
            "version": version("heedful"),
            "description": PLUGIN_SUMMARY,
            "author": {"name": "heedful"},
        },
        "hooks/hooks.json": {"description": PLUGIN_SUMMARY, "hooks": wanted},
        ".mcp.json": {
            "mcpServers": {
                "heedful": {
                    "command": program,
                    "args": [*words, "mcp", "--approved-only"],
                }
            }
        },
    }

    changes: list[FileChange] = []
    for name, document in documents.items():
        path = folder / name
        text = json.dumps(document, indent=2) + "\n"
        changes.append(FileChange(path, read_text(path), text))

    path = folder / "skills/heedful/SKILL.md"
    changes.append(FileChange(path, read_text(path), skill))
    for change in changes:
        check_within(change.path, folder)
    return changes
