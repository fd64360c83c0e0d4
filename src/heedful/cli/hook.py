"""`heedful hook`: install the hooks of a coding agent, remove them, and answer events.

`install` shows what it would write, and writes it only if the user agrees.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option, Typer, confirm

from heedful.cli.app import group
from heedful.cli.output import answer, command_line, say
from heedful.cli.resources import ask, ask_own, has_own_memory
from heedful.errors import NotFound, UsageError
from heedful.integrations import hook as process, install as plans
from heedful.integrations.agents_md import EMPTY_SECTION, section_text
from heedful.integrations.file_changes import FileChange, apply_all
from heedful.integrations.hooks import follow
from heedful.integrations.places import TARGETS, expand, find_targets, settings_file
from heedful.integrations.rules import doubt_about_rules
from heedful.lessons.holdout import SessionTally
from heedful.lessons.user_rules import StatedRule
from heedful.loop.policies import policy
from heedful.memory.memory import Memory
from heedful.redact import redact
from heedful.store import reminders
from heedful.store.projects import (
    PROJECTS_TABLE,
    SETTINGS_FILE,
    find_project,
    move_memory,
    user_folder,
)
from heedful.store.workspace import project_root


def check_names(names: Sequence[str]) -> None:
    """Check names of agents. Raises UsageError."""
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        raise UsageError(
            f"{', '.join(unknown)}: no such agent; heedful hook install --list shows "
            "them"
        )


def here() -> dict[str, str]:
    """Return the agents on this machine, and what shows each of them."""
    return dict(find_targets(project_root(Path.cwd())))


def describe_limits(names: Sequence[str]) -> Iterator[str]:
    """Yield what agents cannot do, what is not confirmed, and what is left to do."""
    for name in names:
        target = TARGETS[name]
        yield from (f"{target.title}: {line}" for line in target.cannot)
        yield from (f"{target.title}, unconfirmed: {t}" for t in target.unconfirmed)
        if target.next_step:
            yield f"next: {target.next_step}"


def describe_doubles(names: Sequence[str]) -> Iterator[str]:
    """Yield a line for each agent that also runs the hooks of another agent."""
    root = project_root(Path.cwd())
    for name in names:
        target = TARGETS[name]
        for place in target.also_reads:
            path = expand(target, place, root)
            if plans.installed(path)[0]:
                yield (
                    f"{target.title} also reads {path}, which has hooks of heedful: it "
                    "runs both"
                )


def list_agents() -> int:
    """List the agents that heedful knows: which are here, and which have its hooks."""
    signs = here()
    rows: list[dict[str, Any]] = []
    lines: list[str] = []
    for name, target in TARGETS.items():
        events = _installed_events(name)
        state = "installed" if events else "not installed"
        sign = signs.get(name, "")
        lines.append(f"{name}: {state}; {sign or 'not seen here'}")
        lines += [f"  {line}" for line in target.cannot]
        rows.append(
            {
                "agent": name,
                "title": target.title,
                "seen": sign,
                "installed": events,
                "cannot": target.cannot,
                "unconfirmed": target.unconfirmed,
                "source": target.source,
            }
        )
    return answer({"agents": rows}, lines)


def other_settings() -> dict[str, list[str]]:
    """Return the events with hooks of heedful in settings of other agents, by file."""
    events: dict[str, list[str]] = {}
    for name in TARGETS:
        if name != plans.INSTALL_AGENT:
            events |= _installed_events(name)
    return events


def _commands(name: str, user: bool) -> dict[str, str]:
    """Return the commands of an agent; none, with a message, in malformed settings."""
    try:
        return plans.target_commands(name, user)
    except UsageError as error:
        say(str(error))
        return {}


def _installed_events(name: str) -> dict[str, list[str]]:
    """Return the events of an agent with hooks of heedful, by file."""
    events: dict[str, list[str]] = {}
    root = project_root(Path.cwd())
    for user in (False, True):
        path = settings_file(TARGETS[name], root, user)
        commands = _commands(name, user)
        if path is not None and commands:
            events[str(path)] = list(commands)
    return events


def section() -> str:
    """Return the section of AGENTS.md from the memory that hooks follow here."""
    everywhere: Sequence[StatedRule] = ()
    if has_own_memory():
        everywhere = ask_own(lambda memory: memory.user_rules.in_force())
    try:
        return ask(lambda memory: section_text(memory, everywhere), as_hooks=True)
    except NotFound:
        # Nothing has been stored yet.
        return EMPTY_SECTION


hook: Typer = group()

Agents = Annotated[
    list[str] | None,
    Argument(help="The agents, claude-code by default; --list shows them."),
]
All = Annotated[bool, Option("--all", help="All agents that are on this machine.")]
User = Annotated[bool, Option("--user", help="In your own settings, for all projects.")]
Yes = Annotated[bool, Option("--yes", help="Write without a question.")]


def _is_terminal() -> bool:
    """Return True if the user can read a question and answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _write_if_agreed(changes: Sequence[FileChange], yes: bool) -> list[str]:
    """Show the changes, ask unless `yes`, and write them. Return the changed files.

    Raises UsageError if the user does not agree, or cannot be asked.
    """
    if not any(changes):
        return []

    say("".join(change.diff for change in changes))
    if not yes:
        agrees = _is_terminal() and confirm("Write this?", err=True)
        if not agrees:
            raise UsageError("nothing was written; --yes writes it without a question")

    apply_all(changes)
    return [str(change.path) for change in changes if change]


def _agents_of(agents: Sequence[str] | None, is_all: bool) -> list[str]:
    """Return the agents that a command is about. Raises UsageError."""
    if not is_all:
        targets = list(dict.fromkeys(agents or [plans.INSTALL_AGENT]))
        check_names(targets)
        return targets
    if agents:
        raise UsageError("--all and names exclude each other; give one of them")

    signs = here()
    if not signs:
        raise UsageError("no agent is seen here; heedful hook install --list shows all")
    for name, sign in signs.items():
        say(f"{name}: {sign}")
    return list(signs)


def _installable(agents: Sequence[str] | None, is_all: bool, user: bool) -> list[str]:
    """Return the agents to install; of all, those with settings here.

    Raises UsageError.
    """
    targets = _agents_of(agents, is_all)
    return [name for name in targets if not is_all or _has_settings(name, user)]


def _has_settings(name: str, user: bool) -> bool:
    """Return True if an agent has settings here, and say where if it has none."""
    if TARGETS[name].user or not user:
        return True
    say(f"{name} has no such settings; next: heedful hook install {name}")
    return False


def _plan(names: Sequence[str], user: bool) -> list[FileChange]:
    """Return the changes that install the hooks of agents. Raises UsageError.

    Agents that share a file get it once.
    """
    run = plans.command(everywhere=user)
    changes: dict[Path, FileChange] = {}
    for name in names:
        text = section() if TARGETS[name].form == "section" else ""
        for change in plans.plan_target(name, user, run=run, text=text):
            changes.setdefault(change.path, change)
    return list(changes.values())


@hook.command("install")
def install(
    agents: Agents = None,
    user: User = False,
    is_all: All = False,
    listed: Annotated[
        bool, Option("--list", help="List the agents, and what each cannot do.")
    ] = False,
    yes: Yes = False,
) -> int:
    """Write the hooks into the settings of agents, after showing what changes."""
    if listed:
        return list_agents()
    targets = _installable(agents, is_all, user)
    changes = _plan(targets, user)
    memory_lines = [] if user else _describe_memory()
    written = _write_if_agreed(changes, yes)

    lines = ["the hooks are installed already"]
    if written:
        lines = [f"wrote {', '.join(written)}"]
    lines += memory_lines
    if written:
        lines += [*describe_limits(targets), *describe_doubles(targets)]
    past_sessions = plans.past_sessions()
    if plans.INSTALL_AGENT in targets and past_sessions is not None:
        command = command_line("learn-sessions", past_sessions)
        lines.append(f"to learn from past sessions: {command}")
    return answer({"written": written}, lines)


def _describe_memory() -> list[str]:
    """Return where the memory of the hooks lies here, and what they do not follow.

    Raises UsageError if hooks could not follow the user's settings.
    """
    settings = process.read_settings(Path.cwd())
    rules, _ = follow(settings, ":memory:")
    policy(rules.policy)
    doubt = doubt_about_rules(Path.cwd())
    return [f"memory: {redact(settings['db'])}", *filter(None, [doubt])]


@hook.command("uninstall")
def uninstall(
    agents: Agents = None,
    user: User = False,
    is_all: Annotated[
        bool, Option("--all", help="All agents with hooks of heedful.")
    ] = False,
    yes: Yes = False,
) -> int:
    """Remove the hooks and restore the settings. Say how to remove what stays."""
    if is_all and agents:
        raise UsageError("--all and names exclude each other; give one of them")
    targets = list(TARGETS) if is_all else _agents_of(agents, is_all=False)

    changes: dict[Path, FileChange] = {}
    for name in targets:
        for change in plans.plan_removal(name, user):
            changes.setdefault(change.path, change)
    written = _write_if_agreed(list(changes.values()), yes)
    lines = [f"no hooks in {path}" for path in changes]
    if written:
        verbs = {
            str(path): "removed" if change.after is None else "wrote"
            for path, change in changes.items()
        }
        lines = [f"{verbs[path]} {path}" for path in written]

    stays = plans.leftovers(Path.cwd(), everywhere=user)
    lines += [f"left behind: {line}" for line in stays]
    return answer({"written": written, "left": stays}, lines)


@hook.command("move")
def move(
    old: Annotated[Path, Argument(help="The old path of the project.")],
) -> int:
    """Take over the memory of this project from its old path.

    The memory of the new path is kept beside it.
    """
    project = find_project(Path.cwd())
    aside = move_memory(old, project)
    lines = [f"memory: {project.db}"]
    if aside is not None:
        lines.append(f"the memory that was here until now is in {aside}")
    return answer({"memory": str(project.db)}, lines)


def _describe_effects(settings: Mapping[str, Any]) -> list[str]:
    """Return what hooks do with these settings: their commands and their database."""
    rules, _ = follow(settings, ":memory:")
    file = user_folder() / SETTINGS_FILE
    table = json.dumps(str(find_project(Path.cwd()).root))
    commands = "; ".join(rules.stop) or "nothing"
    return [
        f"each stop runs: {redact(commands)}",
        f"settings: {file}, those of this project in [{PROJECTS_TABLE}.{table}]",
        f"memory: {redact(settings['db'])}",
    ]


def _read_memory() -> tuple[int, SessionTally]:
    """Return how many lessons wait for a review, and what sessions were told."""

    async def look(memory: Memory) -> tuple[int, SessionTally]:
        waiting = await memory.quarantine.waiting()
        return len(waiting), await memory.store.read(memory.scope, reminders.figures)

    try:
        return ask(look, as_hooks=True)
    except NotFound:  # no hook has run here yet
        return 0, SessionTally()


@hook.command("status")
def status() -> int:
    """Show which settings have hooks, and what the hooks do here. Hooks in two settings
    answer each event twice.
    """
    events_by_file = {}
    figures = SessionTally()
    lines = []
    for is_user in (False, True):
        try:
            path = plans.settings_path(is_user)
        except UsageError as error:
            say(str(error))
            continue
        events, missing_programs = plans.installed(path)
        events_by_file[str(path)] = events
        lines.append(f"{path}: {', '.join(events) or 'no hooks'}{missing_programs}")
    for file, events in other_settings().items():
        events_by_file[file] = events
        lines.append(f"{file}: {', '.join(events)}")

    try:
        settings = process.read_settings(Path.cwd())
        lines += _describe_effects(settings)
        lines += filter(None, [doubt_about_rules(Path.cwd())])
        waiting, figures = _read_memory()
        if waiting:
            lines.append(f"lessons that wait: {waiting}; next: heedful quarantine list")
        if figures.shown:
            lines.append(f"in all: {figures.words}")
    except UsageError as error:
        say(f"the hooks do nothing: {error}")

    return answer({"settings": events_by_file, "reminders": figures}, lines)


@hook.command("run")
def run(
    event: Annotated[
        str, Argument(help="The agent's name of the event, as PreToolUse.")
    ],
    agent: Annotated[str, Option(help="The coding agent.")] = plans.INSTALL_AGENT,
    strict: Annotated[
        bool, Option("--strict", help="Print errors to standard error.")
    ] = False,
) -> None:
    """Answer the event on standard input, as `heedful-hook` does, which starts
    faster.
    """
    arguments = [event, "--agent", agent]
    if strict:
        arguments.append("--strict")
    raise Exit(process.main(arguments))
