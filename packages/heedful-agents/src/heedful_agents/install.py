"""Write the hooks of heedful into the settings of coding agents, or take them out.

In settings in JSON, an event has a list of hooks, or of groups with a list `hooks`; the
events are members of the object `hooks`. Hooks of others, order, indentation and
unknown keys stay as they are. AGENTS.md gets a section between two marks. What is
written is planned first as changes of files, so that it can be shown, and then written
at once, with a backup beside each file.
"""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from string import Template
from typing import Any

from heedful.errors import LineError, UsageError
from heedful.lessons.commands import quote_words
from heedful.store.projects import (
    PROJECTS_TABLE,
    find_project,
    own_db,
    project_root,
    user_folder,
)
from heedful.validation import Document, Fields
from heedful_agents.agents import (
    AGENTS,
    DEFAULT_AGENT,
    SHELL_GUARD,
    SHELL_GUARD_AT_START,
    Agent,
)
from heedful_agents.file_changes import (
    Backup,
    FileChange,
    backup_of,
    check_within,
    read_text,
)

# The time that an agent gives to a hook; while a turn stops, commands of the project
# run.
HOOK_LIMIT_SECONDS = 3
STOP_HOOK_LIMIT_SECONDS = 3_600
_TEMPLATES = Path(__file__).parent / "templates"
_EVENTS_NAME = "hooks"
# What a file of its own says, in a comment.
_OWN_FILE_WORDS = "`heedful hook uninstall` removes the"
_BEGIN_MARK = "<!-- heedful: begin -->"
_END_MARK = "<!-- heedful: end -->"
# The command of the hook process in a file that a team commits.
TEAM_COMMAND = "heedful-hook"
# The command of a hook of heedful: "/bin/heedful-hook Stop --strict" or
# "python -m heedful_agents.hook Stop || true".
HOOK_COMMAND_PATTERN = re.compile(
    r"""(?i)^((\S*[/\\]|'.*[/\\])?heedful-hook(\.exe)?'?"""
    r"""|\S.* -m heedful_agents\.hook) """
    r"""\w+( --\S.*?)?( \|\| (true|echo '.*')|; exit 0)?$"""
)


def settings_paths(name: str, user: bool) -> list[Path]:
    """Return the files of settings of an agent, that of the team at the end.

    Raises UsageError if one of the project is elsewhere, because of a link in it.
    """
    root = project_root(Path.cwd())
    agent = AGENTS[name]
    places = [agent.user] if user else [agent.project, agent.team]
    paths = [agent.path_of(place, root) for place in places if place]
    if not user:
        for path in paths:
            check_within(path, root)
    return paths


def past_sessions() -> Path | None:
    """Return the folder of Claude Code's sessions of this project, if any."""
    place = str(project_root(Path.cwd()))
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in place)
    folder = settings_paths(DEFAULT_AGENT, user=True)[0].parent / "projects" / name
    return folder if folder.is_dir() else None


def command() -> str:
    """Return the command of the hook process, which any shell of this machine finds."""
    # With -P no file of the folder in which an agent works is taken for a module.
    return f"{shlex.quote(sys.executable)} -P -m heedful_agents.hook"


def agent_hooks(name: str, run: str) -> dict[str, list[Document]]:
    """Return the hooks or groups of hooks of an agent, for each event a command."""
    agent = AGENTS[name]
    option = "" if name == DEFAULT_AGENT else f" --agent {name}"
    items: dict[str, list[Document]] = {}
    for event, kind in agent.events.items():
        seconds = STOP_HOOK_LIMIT_SECONDS if kind == "stop" else HOOK_LIMIT_SECONDS
        line = f"{run} {event}{option}"
        says_at_start = kind == "start" and agent.says_at_start
        guard = SHELL_GUARD_AT_START if says_at_start else SHELL_GUARD
        item: dict[str, object] = {
            field: text.replace("{command}", line).replace(SHELL_GUARD, guard)
            for field, text in agent.entry.items()
        }
        item[agent.limit] = seconds * agent.units_per_second
        if agent.form == "groups":
            item = {"hooks": [item]}
        if kind in agent.matchers:
            item = {"matcher": agent.matchers[kind], **item}
        items[event] = [item]
    return items


def plan(
    name: str, user: bool, *, section: str = "", team: bool = False
) -> list[FileChange]:
    """Return the changes that install the hooks of an agent in one file.

    `section` is the text for an agent without hooks, and `team` says that the file is
    the one that a team commits, as it is if this has the hooks of a team already.
    Raises UsageError if the agent has no such settings, or if they are malformed.
    """
    paths = settings_paths(name, user)
    if not paths:
        raise UsageError(f"{AGENTS[name].title} has no such settings; without --user")

    path = paths[0]
    run = command()
    present = next(iter(installed(name, paths[-1]).values()), "")
    if team or present.startswith(f"{TEAM_COMMAND} "):
        path = paths[-1]
        run = TEAM_COMMAND
    addition = _addition(name, path, run=run, section=section, within=_top(user))
    removals = plan_removals(name, user)
    return [addition, *(change for change in removals if change.path != path)]


def _addition(
    name: str, path: Path, *, run: str, section: str, within: Path
) -> FileChange:
    """Return the change that adds the hooks of an agent to a file. Raises UsageError.

    `run` is the command of the hook process.
    """
    agent = AGENTS[name]
    before = read_text(path)
    backup: Backup = ""
    if agent.form == "section":
        after = put_section(before, section)
    elif agent.form == "plugin":
        after = _plugin_text(name, run)
        if before not in (None, after) and not _is_own_file(before):
            raise UsageError(
                f"{path} is not from heedful; move it away, then run the command again"
            )
    else:
        after = before or ""
        wanted = agent_hooks(name, run)
        present = own_hooks(path, before)
        if present != wanted:
            after = add_hooks(path, remove_hooks(path, after), wanted, agent.head)
            backup = "" if present or before is None else "keep"
    return FileChange(path, before, after, backup=backup, within=within)


def plan_removals(name: str, user: bool) -> list[FileChange]:
    """Return the changes that take the hooks of an agent out of its files.

    They restore the backup if nothing else has changed. Raises UsageError.
    """
    agent = AGENTS[name]
    return [_removal(agent, path, _top(user)) for path in settings_paths(name, user)]


def _removal(agent: Agent, path: Path, within: Path) -> FileChange:
    """Return the change that takes the hooks of an agent out of a file."""
    before = read_text(path)
    if before is None:
        return FileChange(path, None, None)

    after: str | None = before
    backup: Backup = ""
    if agent.form == "section":
        after = take_section(before)
    elif agent.form == "plugin":
        after = None if _is_own_file(before) else before
    elif own_hooks(path, before):
        backup = "drop"
        after = _without_hooks(agent, path, before)
    return FileChange(path, before, after, backup=backup, within=within)


def _without_hooks(agent: Agent, path: Path, text: str) -> str | None:
    """Return the text of settings without the hooks of heedful; None if it had no more.

    Raises UsageError.
    """
    backup = read_text(backup_of(Path(os.path.realpath(path))))
    present = own_hooks(path, text)
    if backup is not None:
        added = {event: present[event] for event in agent.events if event in present}
        if add_hooks(path, backup, added, agent.head) == text:
            return backup

    after = remove_hooks(path, text)
    held_nothing_else = backup is None and parse(path, after) in ({}, dict(agent.head))
    return None if held_nothing_else else after


def installed(name: str, path: Path) -> dict[str, str]:
    """Return the command of heedful for each event in a file of settings of an agent.

    It is "" in a plugin, which makes its commands by itself. Raises UsageError.
    """
    agent = AGENTS[name]
    text = read_text(path)
    if agent.form == "section":
        return {}
    if agent.form == "plugin":
        return dict.fromkeys(agent.events, "") if _is_own_file(text) else {}
    items = own_hooks(path, text)
    return {event: own_commands(group)[0] for event, group in items.items()}


def missing_programs(commands: Mapping[str, str]) -> list[str]:
    """Return the programs of installed commands that are no longer there."""
    programs = dict.fromkeys(shlex.split(line)[0] for line in commands.values() if line)
    return [program for program in programs if not shutil.which(program)]


def _top(user: bool) -> Path:
    """Return the folder that stays, however empty it is."""
    return Path.home() if user else project_root(Path.cwd())


def parse(path: Path, text: str) -> Document:
    """Return the object in a JSON text of settings. Raises LineError."""
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise _fault(path, f"it is not JSON: {error}", line) from error
    if not isinstance(settings, dict):
        raise _fault(path, "it must be one object")
    return settings


def _fault(path: Path, problem: str, line: int = 1) -> LineError:
    """Return the error about settings to which no hooks can be added."""
    cure = "nothing was changed: correct the file, then run the command again"
    return LineError(str(path), line, f"{problem}; {cure}")


def own_hooks(path: Path, text: str | None) -> dict[str, list[Any]]:
    """Return the groups or hooks with hooks of heedful, by event. Raises LineError."""
    # Malformed settings of others are no reason to stop.
    if not text or "heedful" not in text:
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
    groups = [item for item in items if isinstance(item, dict)]
    entries = chain.from_iterable(group.get("hooks", [group]) for group in groups)
    values = chain.from_iterable(
        entry.values() for entry in entries if isinstance(entry, dict)
    )
    return [
        value
        for value in values
        if isinstance(value, str) and HOOK_COMMAND_PATTERN.search(value)
    ]


def add_hooks(
    path: Path, text: str, wanted: Mapping[str, Sequence[Any]], head: Fields
) -> str:
    """Return the text with groups or hooks at the end of those of each event.

    `head` are the members that an empty text begins with. Raises LineError if the hooks
    have another form.
    """
    settings = parse(path, text) if text.strip() else dict(head)
    events = settings.setdefault(_EVENTS_NAME, {})
    for event, items in wanted.items():
        present = events.get(event, []) if isinstance(events, dict) else None
        if not isinstance(present, list):
            raise _fault(path, "hooks must be an object of lists")
        events[event] = [*present, *items]
    return _written(settings, text)


def remove_hooks(path: Path, text: str) -> str:
    """Remove the hooks of heedful, and what is empty without them. Raises LineError."""
    present = own_hooks(path, text)
    if not present:
        return text

    settings = parse(path, text)
    events = settings[_EVENTS_NAME]
    for event, own_items in present.items():
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


def _written(settings: Fields, text: str) -> str:
    """Return settings as JSON, with the indentation and the line ends of a text."""
    match = re.search(r"^[ \t]+(?=\")", text, re.MULTILINE)
    indent = match[0] if match else "  "
    document = json.dumps(settings, indent=indent, ensure_ascii=False)
    return f"{document}\n".replace("\n", _line_end(text))


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def put_section(text: str | None, section: str) -> str:
    """Return the text with a section, in the place of the one that it has, or below."""
    lines = [_BEGIN_MARK, *section.splitlines(), _END_MARK]
    if text is None:
        return "\n".join([*lines, ""])

    line_end = _line_end(text)
    part = line_end.join(lines)
    around = _around_section(text)
    if around is None:
        return text + 2 * line_end + part + line_end
    return around[0] + part + around[1]


def take_section(text: str) -> str | None:
    """Return the text without its section, None if nothing else was in the file."""
    around = _around_section(text)
    if around is None:
        return text

    before, after = around
    line_end = _line_end(text)
    after = after.removeprefix(line_end)
    if not before and not after:
        return None
    return before.removesuffix(2 * line_end) + after


def _around_section(text: str) -> tuple[str, str] | None:
    """Return what is before a section and after it, None if the text has none."""
    before, _, rest = text.partition(_BEGIN_MARK)
    _, mark, after = rest.partition(_END_MARK)
    return (before, after) if mark else None


def _plugin_text(name: str, run: str) -> str:
    """Return the plugin of an agent that runs TypeScript."""
    return Template((_TEMPLATES / "plugin.ts").read_text("utf-8")).substitute(
        command=json.dumps(run),
        agent=json.dumps(name),
        milliseconds=HOOK_LIMIT_SECONDS * 1_000,
    )


def _is_own_file(text: str | None) -> bool:
    """Return True if a text of a file of its own is from heedful."""
    return text is not None and _OWN_FILE_WORDS in text


def leftovers(folder: Path, everywhere: bool) -> list[str]:
    """Return a line for each thing that stays after an uninstallation in a folder.

    `everywhere` says that the hooks of all projects were removed.
    """
    places = {find_project(folder).folder: "what was learnt here"}
    if everywhere:
        places = {
            user_folder() / PROJECTS_TABLE: "what was learnt in projects",
            own_db(): "the database with what holds in all projects",
            user_folder() / "hook.log": "the log",
        }
    return [
        f"{description}; to remove it: rm -r {quote_words([str(place)])}"
        for place, description in places.items()
        if place.exists()
    ]
