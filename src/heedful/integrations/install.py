"""Write the hooks of heedful into the settings of coding agents, or take them out.

Hooks of others, order, indentation and unknown keys stay as they are. What is written
is planned first as changes of files, so that it can be shown, and then written at once,
with a backup beside each file. Which agent has which settings is in
`heedful.integrations.places`.
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

from heedful.errors import UsageError
from heedful.integrations.agents import AGENTS
from heedful.integrations.file_changes import (
    Backup,
    FileChange,
    backup_of,
    check_within,
    read_text,
)
from heedful.integrations.hook_text import (
    add_hooks,
    own_commands,
    own_hooks,
    parse,
    remove_hooks,
)
from heedful.integrations.marks import put_part, take_part
from heedful.integrations.places import (
    HOOK_LIMIT_SECONDS,
    STOP_HOOK_LIMIT_SECONDS,
    TARGETS,
    Target,
    settings_file,
)
from heedful.lessons.commands import quote_words
from heedful.store.projects import PROJECTS_TABLE, find_project, own_db, user_folder
from heedful.store.workspace import project_root

# The agent that is meant where none is named.
INSTALL_AGENT = "claude-code"
_TEMPLATES = Path(__file__).parent / "templates"
# What a file of its own says, in a comment.
_OWN_FILE_WORDS = "`heedful hook uninstall` removes the"


def settings_path(user: bool = False) -> Path:
    """Return the settings of Claude Code for the user, or for this project.

    Raises UsageError if those of the project are elsewhere, because of a link in it.
    """
    path = target_path(TARGETS[INSTALL_AGENT], user)
    if path is None:
        raise UsageError("this agent has no settings here")
    return path


def target_path(target: Target, user: bool) -> Path | None:
    """Return the file of settings of an agent, None if it has none there.

    Raises UsageError if that of the project is elsewhere, because of a link in it.
    """
    root = _project_root()
    path = settings_file(target, root, user)
    if path is not None and not user:
        check_within(path, root)
    return path


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
    items_by_event = own_hooks(str(path), read_text(path))
    commands = own_commands([*chain.from_iterable(items_by_event.values())])
    programs = dict.fromkeys(shlex.split(line)[0] for line in commands)
    notes = [
        f"; {program} is gone: install again"
        for program in programs
        if not shutil.which(program)
    ]
    return list(items_by_event), "".join(notes)


def command(everywhere: bool = False) -> str:
    """Return the command of the hook process, with its path if it runs `everywhere`.

    An agent may not find a program of an environment that is active here, so it gets
    the Python.
    """
    program = shutil.which("heedful-hook")
    environments = map(os.environ.get, ("VIRTUAL_ENV", "CONDA_PREFIX"))
    is_in_environment = program is not None and any(
        folder and Path(program).is_relative_to(folder) for folder in environments
    )
    if program and not is_in_environment:
        return shlex.quote(program) if everywhere else "heedful-hook"

    # With -P no file of the folder in which an agent works is taken for a module.
    return f"{shlex.quote(sys.executable)} -P -m heedful.integrations.hook"


def target_hooks(target: Target, run: str) -> dict[str, list[dict[str, Any]]]:
    """Return the hooks or groups of hooks of an agent, for each event a command."""
    items: dict[str, list[dict[str, Any]]] = {}
    for event, kind in AGENTS[target.agent].events.items():
        line = hook_line(target, run, event)
        seconds = STOP_HOOK_LIMIT_SECONDS if kind == "stop" else HOOK_LIMIT_SECONDS
        entry: dict[str, Any] = {
            name: text.replace("{command}", line) for name, text in target.entry.items()
        }
        entry[target.limit] = seconds * target.units_per_second

        item: dict[str, Any] = {}
        if kind in target.matchers:
            item["matcher"] = target.matchers[kind]
        if target.form == "groups":
            item["hooks"] = [entry]
        else:
            item |= entry
        items[event] = [item]
    return items


def hook_line(target: Target, run: str, event: str) -> str:
    """Return the command line of a hook."""
    if target.agent == INSTALL_AGENT:
        return f"{run} {event}"
    return f"{run} {event} --agent {target.agent}"


def plan_target(
    name: str, user: bool, *, run: str = "", text: str = ""
) -> list[FileChange]:
    """Return the changes that install the hooks of an agent.

    `run` is the command of the hook process, and `text` the section for an agent
    without hooks. Raises UsageError if the agent has no such settings, or
    if they are malformed.
    """
    target = TARGETS[name]
    path = target_path(target, user)
    if path is None:
        raise UsageError(f"{target.title} has no such settings; without --user")

    if target.form == "section":
        before = read_text(path)
        return [_change(path, before, put_part(before, text), user)]
    if target.form == "plugin":
        return [_plan_own_file(path, _plugin_text(target, run), user)]

    return [plan_install(path, target_hooks(target, run), target, user)]


def plan_removal(name: str, user: bool) -> list[FileChange]:
    """Return the changes that take out the hooks of an agent. Raises UsageError."""
    target = TARGETS[name]
    path = target_path(target, user)
    if path is None:
        return []

    if target.form == "section":
        before = read_text(path)
        after = None if before is None else take_part(before)
        return [_change(path, before, after, user)]
    if target.form == "plugin":
        before = read_text(path)
        after = None if _is_own(before) else before
        return [_change(path, before, after, user)]
    return [plan_uninstall(path, target, user)]


def target_commands(name: str, user: bool) -> dict[str, str]:
    """Return the command of heedful for each event in the settings of an agent.

    It is "" in a plugin, which makes its commands by itself. Raises UsageError.
    """
    target = TARGETS[name]
    path = target_path(target, user)
    if path is None or target.form == "section":
        return {}

    if target.form == "plugin":
        events = AGENTS[target.agent].events
        return dict.fromkeys(events, "") if _is_own(read_text(path)) else {}

    items = own_hooks(str(path), read_text(path))
    return {event: own_commands(group)[0] for event, group in items.items()}


def plan_install(
    path: Path,
    wanted: Mapping[str, Sequence[Any]],
    target: Target = TARGETS[INSTALL_AGENT],
    user: bool = False,
) -> FileChange:
    """Return the change that puts hooks in place of those of heedful.

    Raises UsageError.
    """
    before = read_text(path)
    present = own_hooks(str(path), before)
    if present == wanted:
        return _change(path, before, before, user)

    others = before or ""
    if present:
        others = remove_hooks(str(path), others)
    after = add_hooks(str(path), others, wanted, target.head)
    backup: Backup = "" if present or before is None else "keep"
    return FileChange(path, before, after, backup=backup, within=_top(user))


def plan_uninstall(
    path: Path, target: Target = TARGETS[INSTALL_AGENT], user: bool = False
) -> FileChange:
    """Return the change that removes the hooks of heedful. Raises UsageError.

    It restores the backup if nothing else has changed.
    """
    before = read_text(path)
    present = own_hooks(str(path), before)
    if before is None or not present:
        return _change(path, before, before, user)

    backup = read_text(backup_of(Path(os.path.realpath(path))))
    if backup is not None:
        events = AGENTS[target.agent].events
        added = {event: present[event] for event in events if event in present}
        again = add_hooks(str(path), backup, added, target.head)
        if again == before:
            return _change(path, before, backup, user, drops=True)

    # A file that held nothing else goes with the hooks.
    after = remove_hooks(str(path), before)
    if backup is None and parse(str(path), after) in ({}, dict(target.head)):
        return _change(path, before, None, user)
    return _change(path, before, after, user, drops=True)


def _change(
    path: Path,
    before: str | None,
    after: str | None,
    user: bool,
    *,
    drops: bool = False,
) -> FileChange:
    """Return a change of settings, which drops the backup if it `drops`."""
    backup: Backup = "drop" if drops else ""
    return FileChange(path, before, after, backup=backup, within=_top(user))


def _top(user: bool) -> Path:
    """Return the folder that stays, however empty it is."""
    return Path.home() if user else _project_root()


def _plugin_text(target: Target, run: str) -> str:
    """Return the plugin of an agent that runs TypeScript."""
    template = Template((_TEMPLATES / "plugin.ts").read_text("utf-8"))
    milliseconds = HOOK_LIMIT_SECONDS * 1_000
    return template.substitute(
        command=json.dumps(run),
        agent=json.dumps(target.agent),
        milliseconds=milliseconds,
    )


def _plan_own_file(path: Path, text: str, user: bool) -> FileChange:
    """Return the change that writes a file of heedful; no file of others is replaced.

    Raises UsageError.
    """
    before = read_text(path)
    if before is not None and before != text and not _is_own(before):
        raise UsageError(
            f"{path} is not from heedful; move it away, then run the command again"
        )
    return FileChange(path, before, text, within=_top(user))


def _is_own(text: str | None) -> bool:
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
