"""Write the hooks of heedful into the settings of a coding agent, and take them out
again.

Settings are changed as text: comments, order, indentation and unknown keys stay as they
are. What is written is planned first as a `FileChange`, so that it can be shown, and then
written at once, with a backup beside the file.
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
from pathlib import Path
from typing import Any, NoReturn

from heedful.errors import LineError, UsageError
from heedful.integrations.hook import private
from heedful.integrations.hooks import AGENTS
from heedful.store import DEFAULT_DATABASE_FILE, repository

# the agent whose settings are written; for others the docs have snippets
INSTALL_AGENT = "claude-code"
# The command or the address of a hook of heedful; earlier addresses end with the event.
HOOK_COMMAND_PATTERN = re.compile(
    r"""^(\S*[/\\]|'.*[/\\])?heedful-hook(\.exe)?'? \w+( --.*)?$"""
    r"""|^\S.* -m heedful\.integrations\.hook \w+( --.*)?$|/v1/hooks/claude-code(/\w+)?$""",
    re.IGNORECASE,
)
PLUGIN_SUMMARY = (
    "Remembers what failed and what put it right, and says so when it matters."
)
BACKUP_SUFFIX = ".before-heedful"
# Calls that change something, and those of MCP servers: reading files needs no advice.
ACTION_TOOLS_REGEX = "Bash|PowerShell|Edit|MultiEdit|Write|NotebookEdit|mcp__.*"
HOOK_MATCHERS = {"PreToolUse": ACTION_TOOLS_REGEX, "PostToolUse": ACTION_TOOLS_REGEX}
# Seconds; commands of the project run while a turn stops.
HOOK_LIMIT_SECONDS = 10
STOP_HOOK_LIMIT_SECONDS = 3_600
SERVICE_KEY_VARIABLE = "HEEDFUL_KEY"  # the variable with the key of the service
TRUST_QUESTION = """
Which programs do you trust? What a trusted program prints teaches your agent at once. What others
print waits until you release it: heedful quarantine list. The web and MCP servers always wait.
Answer with names (pytest,make) or all; Enter means none. With a name, your own words to the agent
are trusted, too. Add names later: heedful hook install --trust NAMES (and --user, if used now)."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """What is to become of a file: its text now, None if there is none, and then (None:
    none).
    """

    path: Path
    before: str | None
    after: str | None

    def __bool__(self) -> bool:
        return self.before != self.after

    @property
    def diff(self) -> str:
        """The change as a unified difference."""
        old, new = (
            (text or "").splitlines(keepends=True) for text in (self.before, self.after)
        )
        name = os.path.realpath(
            self.path
        )  # the file that is written, if the path is a link
        lines = difflib.unified_diff(old, new, name, name)
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def apply(self) -> None:
        """Write the file in one step; a file without hooks of heedful is kept as a
        backup.

        Raises UsageError if the file cannot be written, or was changed since the plan.
        """
        place = Path(os.path.realpath(self.path))  # a link stays a link
        if read_text(place) != self.before:
            raise UsageError(
                f"{self.path} was changed meanwhile; run the command again"
            )
        backup = place.with_name(place.name + BACKUP_SUFFIX)
        try:
            if self.after is None:
                place.unlink()
                with suppress(OSError):  # it holds other files
                    place.parent.rmdir()
                return
            place.parent.mkdir(parents=True, exist_ok=True)
            if self.before is not None:
                if not place.stat().st_mode & 0o222:
                    raise PermissionError(13, "it is read-only")
                if not _has_own(self.before):
                    shutil.copy2(place, backup)
            draft = place.with_name(f".{place.name}.{os.getpid()}")
            try:
                with open(
                    draft, "x", encoding="utf-8", newline="", opener=private
                ) as file:
                    file.write(self.after)
                    file.flush()
                    os.fsync(file.fileno())
                like, mode = (
                    (place.parent, 0o666) if self.before is None else (place, 0o7777)
                )
                draft.chmod(like.stat().st_mode & mode)
                draft.replace(place)
            finally:
                draft.unlink(missing_ok=True)
            if not _has_own(self.after):
                backup.unlink(missing_ok=True)
        except OSError as error:
            why = (
                f"{self.path} cannot be written ({error.strerror}); nothing was changed"
            )
            raise UsageError(why) from error


def apply_all(changes: Sequence[FileChange]) -> None:
    """Write all files, or none if one cannot be written. Raises UsageError."""
    done = list[FileChange]()
    try:
        for change in filter(None, changes):
            change.apply()
            done.append(change)
    except UsageError:
        for change in reversed(done):
            replace(change, before=change.after, after=change.before).apply()
        raise


def settings_path(user: bool = False) -> Path:
    """Return the settings of Claude Code for the user, or for the project of this
    folder.
    """
    home = os.environ.get("CLAUDE_CONFIG_DIR")
    own = Path(home) if home else Path.home() / ".claude"
    return (own if user else _root() / ".claude") / "settings.json"


def past_sessions() -> Path | None:
    """Return the folder in which Claude Code keeps the sessions of this project, if
    any.
    """
    coded = re.sub(r"[^A-Za-z0-9]", "-", str(_root()))
    place = settings_path(user=True).parent / "projects" / coded
    return place if place.is_dir() else None


def _root() -> Path:
    return repository(Path.cwd()) or Path.cwd()


def installed(path: Path) -> tuple[list[str], str]:
    """Return the events for which settings have hooks of heedful, and which programs
    are gone.
    """
    found = own_hooks(str(path), read_text(path))
    listed = [
        hook for groups in found.values() for group in groups for hook in group["hooks"]
    ]
    called = [str(one.get("command")) for one in listed if isinstance(one, dict)]
    programs = dict.fromkeys(
        shlex.split(one)[0] for one in called if HOOK_COMMAND_PATTERN.search(one)
    )
    gone = [
        f"; {one} is gone: install again" for one in programs if not shutil.which(one)
    ]
    return list(found), "".join(gone)


def command(
    everywhere: bool = False,
    name: str = "heedful-hook",
    module: str = "heedful.integrations.hook",
) -> str:
    """Return the command of the hook process; with its whole path if it is to run
    `everywhere`.

    An agent may not find a program of an environment that is active here, so it gets
    the Python.
    """
    found = shutil.which(name)
    active = map(os.environ.get, ("VIRTUAL_ENV", "CONDA_PREFIX"))
    if found and not any(one and Path(found).is_relative_to(one) for one in active):
        return shlex.quote(found) if everywhere else name
    # With -P no file of the folder in which an agent works is taken for a module.
    return f"{shlex.quote(sys.executable)} -P -m {module}"


def hooks(run: str, url: str = "") -> dict[str, list[dict[str, Any]]]:
    """Return the hooks of Claude Code: the command `run` for each event, or requests to
    `url`.
    """
    made: dict[str, list[dict[str, Any]]] = {}
    ask: dict[str, Any] = {
        "type": "http",
        "url": f"{url.rstrip('/')}/v1/hooks/{INSTALL_AGENT}",
    }
    if os.environ.get(
        SERVICE_KEY_VARIABLE
    ):  # a service without keys refuses an empty one
        ask |= {
            "headers": {"Authorization": f"Bearer ${SERVICE_KEY_VARIABLE}"},
            "allowedEnvVars": [SERVICE_KEY_VARIABLE],
        }
    for event, kind in AGENTS[INSTALL_AGENT].events.items():
        local = {"type": "command", "command": f"{run} {event}"}
        # The service runs no command of the project. Claude Code only runs commands at
        # a start.
        mixed = {
            "stop": [ask, local],
            "start": [local] * (_root() / DEFAULT_DATABASE_FILE).exists(),
        }
        used = mixed.get(kind, [ask]) if url else [local]
        limit = {
            "timeout": STOP_HOOK_LIMIT_SECONDS if kind == "stop" else HOOK_LIMIT_SECONDS
        }
        matcher = {"matcher": HOOK_MATCHERS[event]} if event in HOOK_MATCHERS else {}
        if used:
            made[event] = [{**matcher, "hooks": [{**one, **limit} for one in used]}]
    return made


def plan_install(path: Path, wanted: Mapping[str, Sequence[Any]]) -> FileChange:
    """Return the change that puts hooks in place of those of heedful. Raises
    UsageError.
    """
    before = read_text(path)
    if (ours := own_hooks(str(path), before)) == wanted:
        return FileChange(path, before, before)
    rest = _without(str(path), before) if ours and before else before or ""
    return FileChange(path, before, _with(str(path), rest, wanted))


def plan_uninstall(path: Path) -> FileChange:
    """Return the change that removes the hooks, back to the backup if all else is as it
    was.
    """
    before = read_text(path)
    if before is None or not (ours := own_hooks(str(path), before)):
        return FileChange(path, before, before)
    place = Path(os.path.realpath(path))
    backup = read_text(place.with_name(place.name + BACKUP_SUFFIX))
    if backup is not None and _with(str(path), backup, ours) == before:
        return FileChange(path, before, backup)
    after = _without(str(path), before)
    return FileChange(
        path, before, None if backup is None and after.strip() == "{}" else after
    )


def read_text(path: Path) -> str | None:
    """Return the text of a file with its line ends, None if there is no file. Raises
    UsageError.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def own_hooks(path: str, text: str | None) -> dict[str, list[Any]]:
    """Return the groups with hooks of heedful in settings, by event. Raises
    LineError.
    """
    events = parse(path, text).get("hooks") if text and text.strip() else None
    ours = {
        event.name: [group.value for group in event.children if _own(group)]
        for event in (events.children if events else ())
    }
    return {name: groups for name, groups in ours.items() if groups}


def _own(group: Node) -> list[Node]:
    """Return the hooks of heedful in a group."""
    hooks: list[Node] = getattr(group.get("hooks"), "children", [])
    called = [(one, one.get("command") or one.get("url")) for one in hooks]
    return [
        one
        for one, name in called
        if name and HOOK_COMMAND_PATTERN.search(str(name.value))
    ]


def _has_own(text: str) -> bool:
    with suppress(UsageError):  # a text of a plugin is no JSON
        return bool(own_hooks("", text))
    return False


def _with(path: str, text: str, wanted: Mapping[str, Sequence[Any]]) -> str:
    """Return the text with groups of hooks, in the order of the agent's events."""
    text = text if text.strip() else "{}\n"
    for event in AGENTS[INSTALL_AGENT].events:
        for group in wanted.get(event, ()):
            document = parse(path, text)
            events = document.get("hooks")
            listed = events and events.get(event)
            if events is None:
                text = _append(text, document, {event: [group]}, "hooks")
            elif not events.text.startswith("{") or (
                listed and not listed.text.startswith("[")
            ):
                _fail(path, text, events.start, "hooks must be an object of lists")
            elif listed is None:
                text = _append(text, events, [group], event)
            else:
                text = _append(text, listed, group)
    return text


def _append(text: str, parent: Node, value: Any, name: str = "") -> str:
    """Add a value at the end of an object or a list, indented as the text around it."""
    end = "\r\n" if "\r\n" in text else "\n"
    last = parent.children[-1].end if parent.children else 0
    flat = bool(last) and "\n" not in parent.text
    found = re.search(r"^[ \t]+(?=\")", text, re.MULTILINE)
    step = found[0] if found else "  "
    line = text[text.rfind("\n", 0, parent.start) + 1 :]
    outer = line[: len(line) - len(line.lstrip(" \t"))]
    made = (f"{json.dumps(name)}: " if name else "") + json.dumps(
        value, ensure_ascii=False, indent=None if flat else step
    )
    if flat:
        return f"{text[:last]}, {made}{text[last:]}"
    made = f"{end}{outer}{step}" + made.replace("\n", f"{end}{outer}{step}")
    if last:
        return f"{text[:last]},{made}{text[last:]}"
    before = text[
        : parent.end - 1
    ].rstrip()  # comments in an empty object stay before the value
    return f"{before}{made}{end}{outer}{text[parent.end - 1 :]}"


def _without(path: str, text: str) -> str:
    """Remove the hooks of heedful, and the lists and objects that are empty without
    them.
    """
    document = parse(path, text)
    events = document.get("hooks")
    for event in events.children if events else ():
        for group in event.children:
            listed = group.get("hooks")
            for hook in _own(group):
                if events and listed:
                    above = [
                        (document, events),
                        (events, event),
                        (event, group),
                        (listed, hook),
                    ]
                    parent, child = above.pop()
                    while above and len(parent.children) == 1:
                        parent, child = above.pop()
                    return _without(path, _cut(text, parent, child))
    return text


def _cut(text: str, parent: Node, child: Node) -> str:
    """Remove a value with its comma; comments around it stay."""
    nodes = parent.children
    at = nodes.index(child)
    if len(nodes) == 1:
        return text[: child.at].rstrip() + text[child.end :].lstrip()
    comma = child.whole.index(
        ",", child.end if at + 1 < len(nodes) else nodes[at - 1].end
    )
    if at + 1 < len(nodes):
        return text[: child.at] + text[child.end : comma] + text[comma + 1 :].lstrip()
    return text[:comma] + text[comma + 1 : child.at].rstrip() + text[child.end :]


# What JSON has not: comments, as editors allow them, and the mark at the beginning of a
# file.
_JSON_COMMENT_PATTERN = re.compile(
    r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/|\ufeff', re.DOTALL
)
_JSON_SEPARATOR_PATTERN = re.compile(r"[\s,:]*")
_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value from `start` to `end` of a JSON text, with its name, which begins `at`,
    if any.
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
        made = list[Node]()
        at = self.start + 1
        while self.text[0] in "{[" and (at := self._after(at)) < self.end - 1:
            name, start = _decode(self.whole, at) if self.text[0] == "{" else ("", at)
            start = self._after(start)
            made.append(
                Node(
                    whole=self.whole,
                    at=at,
                    start=start,
                    end=_decode(self.whole, start)[1],
                    name=name,
                )
            )
            at = made[-1].end
        return made

    def _after(self, at: int) -> int:
        found = _JSON_SEPARATOR_PATTERN.match(self.whole, at)
        return found.end() if found else at

    def get(self, name: str) -> Node | None:
        """Return the value with this name."""
        return next((one for one in self.children if one.name == name), None)

    @property
    def value(self) -> Any:
        """The value as data."""
        return json.loads(self.text)


def parse(path: str, text: str) -> Node:
    """Return the object in a JSON text, which may have comments. Raises LineError."""
    plain = _JSON_COMMENT_PATTERN.sub(
        lambda found: found[1] or re.sub(r"[^\r\n]", " ", found[0]), text
    )
    try:
        if not isinstance(json.loads(plain), dict):
            _fail(path, text, at=0, what="it must be one object")
    except (ValueError, RecursionError) as error:
        at = getattr(error, "pos", 0)
        comma = re.match(r",\s*[\]}]", plain[plain.rfind(",", 0, at + 1) :])
        why = "remove the comma before the closing bracket" if comma else error
        _fail(path, text, at, f"it is not JSON: {why}")
    start = len(plain) - len(plain.lstrip())
    return Node(whole=plain, at=start, start=start, end=len(plain.rstrip()))


def _fail(path: str, text: str, at: int, what: str) -> NoReturn:
    what = f"{what}; nothing was changed: correct the file, then run the command again"
    raise LineError(path, text.count("\n", 0, at) + 1, what)


def plan_plugin(
    folder: Path, wanted: Mapping[str, Any], skill: str
) -> list[FileChange]:
    """Return the changes that write a plugin of Claude Code: hooks, an MCP server and a
    skill.
    """
    program, *words = shlex.split(command(True, "heedful", "heedful.cli"))
    about = {
        "name": "heedful",
        "version": version("heedful"),
        "description": PLUGIN_SUMMARY,
    }
    files: dict[str, dict[str, Any]] = {
        ".claude-plugin/plugin.json": {**about, "author": {"name": "heedful"}},
        "hooks/hooks.json": {"description": PLUGIN_SUMMARY, "hooks": wanted},
        ".mcp.json": {
            "mcpServers": {"heedful": {"command": program, "args": [*words, "mcp"]}}
        },
    }
    texts = {name: json.dumps(made, indent=2) + "\n" for name, made in files.items()}
    texts["skills/heedful/SKILL.md"] = skill
    return [
        FileChange(folder / name, read_text(folder / name), text)
        for name, text in texts.items()
    ]
