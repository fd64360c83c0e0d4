"""`heedful hook`: install the hooks of a coding agent, remove them, and answer events.

`install` shows what it would write, and writes it only if the user agrees.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option, Typer

from heedful.cli.app import group
from heedful.cli.printing import agrees, answer, command_line, say
from heedful.cli.resources import ask
from heedful.cli.settings import settings_of_hooks
from heedful.errors import NotFound, StoreError, UsageError
from heedful.integrations.call_host import CallHost
from heedful.lessons.holdout import SessionTally
from heedful.lessons.user_rules import StatedRule
from heedful.loop.policies import policy
from heedful.memory.memory import Memory
from heedful.memory.session_brief import EMPTY_SECTION, section_text
from heedful.redact import redact
from heedful.sanitize import clean
from heedful.store import reminders
from heedful.store.projects import (
    PROJECTS_TABLE,
    SETTINGS_FILE,
    find_project,
    move_memory,
    project_root,
    user_folder,
)
from heedful.validation import MAX_SHOWN_TEXT_CHARS, Document, Fields
from heedful_agents import hook as process, install as plans
from heedful_agents.accepted_rules import doubt_about_rules
from heedful_agents.agents import AGENTS, DEFAULT_AGENT, find_agent
from heedful_agents.cli.rules import proposals, rules_everywhere
from heedful_agents.file_changes import FileChange, apply_all, read_text
from heedful_agents.session_hooks import HookSettings, follow


def signs_of_agents() -> dict[str, str]:
    """Return the agents on this machine, and what shows each of them."""
    root = project_root(Path.cwd())
    signs = {name: agent.sign_in(root) for name, agent in AGENTS.items()}
    return {name: sign for name, sign in signs.items() if sign}


def describe_limits(names: Sequence[str]) -> Iterator[str]:
    """Yield what agents cannot do, what is not confirmed, and what is left to do."""
    root = project_root(Path.cwd())
    for name in names:
        agent = AGENTS[name]
        yield from (f"{agent.title}: {line}" for line in agent.cannot)
        yield from (f"{agent.title}, unconfirmed: {t}" for t in agent.unconfirmed)
        if agent.next_step:
            yield f"next: {agent.next_step}"
        for place in agent.also_reads:
            path = agent.path_of(place, root)
            if plans.own_hooks(path, read_text(path)):
                yield (
                    f"{agent.title} also reads {path}, which has hooks of heedful: it "
                    "runs both"
                )


def list_agents() -> int:
    """List the agents that heedful knows: which are here, and which have its hooks."""
    signs = signs_of_agents()
    rows: list[Document] = []
    lines: list[str] = []
    for name, agent in AGENTS.items():
        events = {
            file: list(commands)
            for file, commands in _commands_by_file(name).items()
            if commands
        }
        state = "installed" if events else "not installed"
        lines.append(f"{name}: {state}; {signs.get(name, 'not seen here')}")
        lines += [f"  {line}" for line in agent.cannot]
        rows.append(
            {
                "agent": name,
                "title": agent.title,
                "seen": signs.get(name, ""),
                "installed": events,
                "cannot": agent.cannot,
                "unconfirmed": agent.unconfirmed,
                "source": agent.source,
            }
        )
    return answer({"agents": rows}, lines)


def _commands_by_file(name: str) -> dict[str, dict[str, str]]:
    """Return the commands of heedful by event in each file of settings of an agent.

    Malformed settings have none, with a message.
    """
    commands: dict[str, dict[str, str]] = {}
    for user in (False, True):
        try:
            for path in plans.settings_paths(name, user):
                commands[str(path)] = plans.installed(name, path)
        except UsageError as error:
            say(str(error))
    return commands


def section() -> str:
    """Return the section of AGENTS.md from the memory that hooks follow here."""
    own_rules = [rule for rule in rules_everywhere() if rule.in_force]
    try:
        return ask(lambda memory: section_text(memory, own_rules), settings_of_hooks())
    except NotFound:
        # Nothing has been stored yet.
        return EMPTY_SECTION


hook: Typer = group()

Agents = Annotated[
    list[str] | None,
    Argument(help="The agents, by default those seen here, or claude-code."),
]
All = Annotated[bool, Option("--all", help="All agents that are on this machine.")]
User = Annotated[bool, Option("--user", help="In your own settings, for all projects.")]
Yes = Annotated[bool, Option("--yes", help="Write without a question.")]


def _write_if_agreed(changes: Sequence[FileChange], yes: bool) -> list[str]:
    """Show the changes and ask, unless `yes`, and write them. Return the changed files.

    Raises UsageError if the user does not agree, or cannot be asked.
    """
    if not any(changes):
        return []

    if not yes:
        say("".join(change.diff for change in changes))
        if not agrees("Write this?"):
            raise UsageError("nothing was written; --yes writes it without a question")

    apply_all(changes)
    return [str(change.path) for change in changes if change]


def _agents_of(agents: Sequence[str] | None, is_all: bool) -> list[str]:
    """Return the agents that a command is about. Raises UsageError.

    By default, these are the agents that are seen here. Left out is one that runs no
    hooks, or that reads the settings of another.
    """
    if agents and is_all:
        raise UsageError("--all and names exclude each other; give one of them")
    if agents:
        for name in agents:
            find_agent(name)
        return list(dict.fromkeys(agents))

    signs = signs_of_agents()
    if is_all and not signs:
        raise UsageError("no agent is seen here; heedful hook install --list shows all")
    names = [
        name
        for name in signs
        if is_all or (AGENTS[name].events and not AGENTS[name].also_reads)
    ]
    for name in names:
        say(f"{name}: {signs[name]}")
    return names or [DEFAULT_AGENT]


def _plan(names: Sequence[str], user: bool, team: bool) -> list[FileChange]:
    """Return the changes that install the hooks of agents. Raises UsageError."""
    changes = []
    for name in names:
        text = section() if AGENTS[name].form == "section" else ""
        changes += plans.plan(name, user, section=text, team=team)
    # Agents may share a file, such as AGENTS.md.
    return list(dict.fromkeys(changes))


@hook.command("install")
def install(
    agents: Agents = None,
    user: User = False,
    team: Annotated[
        bool, Option("--team", help="In files that a team commits, without a path.")
    ] = False,
    is_all: All = False,
    listed: Annotated[
        bool, Option("--list", help="List the agents, and what each cannot do.")
    ] = False,
    yes: Yes = False,
) -> int:
    """Write the hooks into the settings of agents, after showing what changes."""
    if listed:
        return list_agents()
    targets = _agents_of(agents, is_all)
    if is_all and user:
        targets = [name for name in targets if AGENTS[name].user]
    changes = _plan(targets, user, team)
    memory_lines = [] if user else _describe_memory()
    written = _write_if_agreed(changes, yes)

    titles = [AGENTS[name].title for name in targets if "before" in AGENTS[name].takes]
    before_calls = (
        f", or, in {', '.join(titles)}, precedes a call that failed, a command in two "
        "sessions"
    )
    lines = ["the hooks are installed already", *memory_lines]
    if written:
        lines = [
            *(f"wrote {path}" for path in written),
            *memory_lines,
            (
                "heedful reads tool calls from the next session; its first word "
                f"follows an error with a known fix{before_calls if titles else ''}"
            ),
            "rules that you say in a prompt hold at once: “we use pnpm, never npm”",
            *describe_limits(targets),
        ]
    if not user and any(plans.command() in change.diff for change in changes):
        lines.append(
            "the hooks name a program of this machine: keep it out of git, or write "
            "hooks that a team can commit with --team"
        )
    past_sessions = plans.past_sessions()
    if DEFAULT_AGENT in targets and past_sessions is not None:
        command = command_line("learn-sessions", past_sessions)
        lines.append(f"to learn from past sessions: {command}")
    return answer({"written": written}, lines)


def _describe_memory() -> list[str]:
    """Return where the memory of the hooks lies here, and what they do not follow.

    Raises UsageError if hooks could not follow the user's settings.
    """
    settings = process.read_settings(Path.cwd())
    policy(_hook_settings(settings).policy)
    lines = [f"memory: {redact(settings['db'])}"]
    if not settings.get("strict"):
        lines.append(
            "a fix is told as the agent made it, also after it read a web page; with "
            f"strict = true in {user_folder() / SETTINGS_FILE} such a fix waits for you"
        )
    doubt = doubt_about_rules(Path.cwd())
    if doubt:
        lines.append(doubt)
    return lines


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
    targets = list(AGENTS) if is_all and not agents else _agents_of(agents, is_all)

    removals = chain.from_iterable(plans.plan_removals(name, user) for name in targets)
    # Agents may share a file, such as AGENTS.md.
    changes = list(dict.fromkeys(removals))
    written = _write_if_agreed(changes, yes)
    lines = [f"no hooks in {change.path}" for change in changes]
    if written:
        lines = [
            f"{'removed' if change.after is None else 'wrote'} {change.path}"
            for change in changes
            if change
        ]

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


def _describe_effects(settings: Fields) -> list[str]:
    """Return what hooks do with these settings: their commands and their database."""
    table = json.dumps(str(find_project(Path.cwd()).root))
    commands = "; ".join(_hook_settings(settings).stop) or "nothing"
    return [
        f"each stop runs: {redact(commands)}",
        (
            f"settings: {user_folder() / SETTINGS_FILE}, those of this project in "
            f"[{PROJECTS_TABLE}.{table}]"
        ),
        f"memory: {redact(settings['db'])}",
    ]


def _hook_settings(settings: Fields) -> HookSettings:
    """Return the table `[hook]`. Raises UsageError if hooks could not follow it."""
    without_database = {**settings, "db": ":memory:"}
    hook_settings, _ = follow(without_database, Path.cwd(), host_type=CallHost)
    return hook_settings


@dataclass(frozen=True, kw_only=True)
class HookFigures:
    """What hooks did here: lessons that wait, what sessions were told, the rules."""

    waiting: int = 0
    told: SessionTally = SessionTally()
    rules: Sequence[StatedRule] = ()

    @property
    def lines(self) -> list[str]:
        """The figures for a person, with what to do next."""
        lines = []
        if self.waiting:
            next_step = "next: heedful quarantine list"
            lines.append(f"lessons that wait: {self.waiting}; {next_step}")
        lines += filter(None, [self.told.words])
        lines += [
            f"rule {rule.id}, “{clean(rule.text, MAX_SHOWN_TEXT_CHARS)}”: "
            f"{rule.ledger.words}"
            for rule in self.rules
        ]
        return lines + proposals(self.rules)


def _read_figures() -> HookFigures:
    """Return what the hooks did in this project."""
    own_rules = [rule for rule in rules_everywhere() if rule.in_force]

    async def look(memory: Memory) -> HookFigures:
        waiting = await memory.quarantine.waiting()
        rules = [*await memory.user_rules.in_force(), *own_rules]
        return HookFigures(
            waiting=len(waiting),
            told=await memory.store.read(memory.scope, reminders.figures),
            rules=await memory.user_rules.with_ledgers(rules),
        )

    try:
        return ask(look, settings_of_hooks())
    except NotFound:  # no hook has run here yet
        return HookFigures()


@hook.command("status")
def status() -> int:
    """Show which settings have hooks, and what the hooks do here. Hooks in two settings
    answer each event twice.
    """
    events_by_file = {}
    figures = HookFigures()
    lines = []
    for name in AGENTS:
        for file, commands in _commands_by_file(name).items():
            if not commands and name != DEFAULT_AGENT:
                continue
            events_by_file[file] = list(commands)
            lines.append(f"{file}: {', '.join(commands) or 'no hooks'}")
            lines += [
                f"{program} is gone: install again"
                for program in plans.missing_programs(commands)
            ]

    try:
        settings = process.read_settings(Path.cwd())
        lines += _describe_effects(settings)
        lines += filter(None, [doubt_about_rules(Path.cwd())])
        figures = _read_figures()
        lines += figures.lines
    except (UsageError, StoreError) as error:
        say(f"the hooks do nothing: {error}")

    document = {
        "settings": events_by_file,
        "reminders": figures.told,
        "rules": figures.rules,
    }
    return answer(document, lines)


@hook.command("run")
def run(
    event: Annotated[
        str, Argument(help="The agent's name of the event, as PreToolUse.")
    ],
    agent: Annotated[str, Option(help="The coding agent.")] = DEFAULT_AGENT,
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
