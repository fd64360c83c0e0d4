"""`heedful hook`: install the hooks of a coding agent, remove them, and answer events.

`install` shows what it would write, and writes it only if the user agrees. What comes
with a project - commands, statements of trust, databases, MCP servers, instructions -
is shown and asked for by `install` and `approve`, on a terminal only: hooks follow it
only as it was shown. Nobody is trusted unless the user has said so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option, Typer, confirm

from heedful.cli import share as team_rules
from heedful.cli import vouch
from heedful.cli.agents import (
    check_names,
    describe_doubles,
    describe_limits,
    doctor,
    here,
    list_agents,
    other_settings,
    section,
    write_all,
)
from heedful.cli.app import group
from heedful.cli.output import answer, counted, say
from heedful.cli.resources import ask
from heedful.errors import NotFound, UsageError
from heedful.integrations import clone
from heedful.integrations import hook as process
from heedful.integrations import install as plans
from heedful.integrations.clone import SHOWN_DIGEST_CHARS
from heedful.integrations.file_changes import FileChange
from heedful.integrations.hooks import follow
from heedful.integrations.leftovers import leftovers
from heedful.integrations.places import TARGETS
from heedful.integrations.rules import RULES_PART
from heedful.lessons.waiting import OWN_COMMAND
from heedful.loop.policies import policy
from heedful.memory.memory import Memory
from heedful.redact import redact
from heedful.sanitize import visible
from heedful.store import reminders
from heedful.store.ownership import (
    HAS_JOURNAL,
    IS_AMONG_FILES,
    IS_NO_FILE,
    IS_TRACKED,
    adopt,
)
from heedful.store.ownership import approve as approve_all
from heedful.store.workspace import find_repository

hook: Typer = group()

# A longer command is shown with its length, so that nobody takes a part for all of it.
MAX_SHOWN_COMMAND_CHARS = 200
# What to do about a database that hooks cannot follow, by the reason.
WAYS_OUT: Mapping[str, str] = {
    IS_TRACKED: "to end that: git rm --cached it",
    IS_AMONG_FILES: "state a place outside of the repository, or bring its lessons to "
    "the memory of hooks with heedful export and import",
    IS_NO_FILE: "remove it",
    HAS_JOURNAL: "remove the -journal, unless a program of yours was ended as it wrote",
}
Agents = Annotated[
    list[str] | None,
    Argument(help="The agents, claude-code by default; --list shows them."),
]
All = Annotated[bool, Option("--all", help="All agents that are on this machine.")]
User = Annotated[bool, Option("--user", help="In your own settings, for all projects.")]
Yes = Annotated[bool, Option("--yes", help="Write without a question.")]


def _write_if_agreed(changes: Sequence[FileChange], yes: bool) -> list[str]:
    """Show the changes, ask unless `yes`, and write them. Return the changed files.

    Raises UsageError if the user does not agree, or cannot be asked.
    """
    if not any(changes):
        return []

    say("".join(change.diff for change in changes))
    if not yes:
        agrees = vouch.is_terminal() and confirm("Write this?", err=True)
        if not agrees:
            raise UsageError("nothing was written; --yes writes it without a question")

    write_all(changes)
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
    target = TARGETS[name]
    if target.user if user else target.project:
        return True
    option = " --user" if not user else ""
    say(f"{name} has no such settings; next: heedful hook install {name}{option}")
    return False


def _plan(names: Sequence[str], user: bool, http: str) -> list[FileChange]:
    """Return the changes that install the hooks of agents. Raises UsageError.

    Agents that share a file get it once.
    """
    if http and list(names) != [plans.INSTALL_AGENT]:
        raise UsageError(f"--http is for {plans.INSTALL_AGENT} only")

    run = plans.command(everywhere=user)
    changes: dict[Path, FileChange] = {}
    for name in names:
        text = section() if TARGETS[name].form == "section" else ""
        for change in plans.plan_target(name, user, run=run, url=http, text=text):
            changes.setdefault(change.path, change)
    return list(changes.values())


def _preview(changes: Sequence[FileChange]) -> int:
    """Show what changes would write."""
    say("".join(change.diff for change in changes))
    would_write = [str(change.path) for change in changes if change]
    lines = [f"would write {path}" for path in would_write]
    return answer({"would_write": would_write}, lines or ["nothing would change"])


@dataclass(frozen=True, kw_only=True)
class _Brought:
    """What a project brings that hooks do not follow, unless a person says so."""

    ignored: Sequence[process.Ignored] = ()
    items: Sequence[clone.CloneItem] = ()


def _what_the_project_brings() -> _Brought:
    """Return what the project brings that nobody has refused. Raises UsageError."""
    ignored = _checked_settings()["ignored"]
    items = vouch.open_items(Path.cwd())
    return _Brought(
        ignored=[item for item in ignored if not item.is_refused],
        items=[item for item in items if not item.is_refused],
    )


@hook.command("install")
def install(
    agents: Agents = None,
    user: User = False,
    is_all: All = False,
    listed: Annotated[
        bool, Option("--list", help="List the agents, and what each cannot do.")
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show what would be written.")
    ] = False,
    http: Annotated[
        str, Option(help="The address of heedful serve, instead of commands.")
    ] = "",
    trust: Annotated[
        str,
        Option(help="Whom to trust: own (your words, tools, programs), or names."),
    ] = "",
    no_trust: Annotated[
        bool, Option("--no-trust", help="Trust nobody, and do not ask.")
    ] = False,
    yes: Yes = False,
) -> int:
    """Write the hooks into the settings of agents, after showing what changes.

    On a terminal it asks once whom you trust: your own words, tools and programs by one
    question, and each thing that came with the project by its own; then whether to
    learn from past sessions. --yes agrees to none of these.
    """
    if listed:
        return list_agents()
    targets = _installable(agents, is_all, user)
    names = vouch.names_of(trust, no_trust)
    brought = _Brought()
    if not user:
        brought = _what_the_project_brings()

    changes = _plan(targets, user, http)
    if dry_run:
        return _preview(changes)
    written = _write_if_agreed(changes, yes)

    may_ask = vouch.is_terminal() and not yes
    if may_ask and not names:
        names = vouch.ask_own(user)
    if may_ask:
        _decide_all(brought.ignored)
        vouch.decide_clone(brought.items)
    else:
        _leave(brought.ignored, brought.items)
    if names:
        vouch.state_names(names, user)

    lines = _describe_install(written, names, user)
    if written:
        lines += [*describe_limits(targets), *describe_doubles(targets)]
    if plans.INSTALL_AGENT in targets:
        lines += _offer_to_learn(may_ask, bool(written))
    return answer({"written": written}, lines)


def _describe_install(
    written: Sequence[str], names: Sequence[str], everywhere: bool
) -> list[str]:
    """Return what was written, who is trusted, and what waits and why."""
    lines = ["the hooks are installed already"]
    if written:
        lines = [f"wrote {', '.join(written)}"]
    if names:
        lines += vouch.describe_names(names)

    if not everywhere:
        return lines + vouch.describe_waiting()
    if not vouch.is_trust_stated(everywhere):
        lines.append(f"lessons will wait: you trust nobody; next: {OWN_COMMAND} --user")
    return lines


def _leave(
    ignored: Sequence[process.Ignored], items: Sequence[clone.CloneItem]
) -> None:
    """Say what hooks go on to ignore, because nobody could be asked."""
    if ignored:
        _show_all(ignored)
        say("hooks ignore what is above until you run: heedful hook approve")
    if items:
        say("\n".join(vouch.describe_clone(items)))
        say("to look at each and decide: heedful hook approve")


def _offer_to_learn(may_ask: bool, is_new: bool) -> list[str]:
    """Ask whether to learn from past sessions of the project, if any, and do it.

    If nobody can be asked, return the command that does it.
    """
    past_sessions = plans.past_sessions()
    if past_sessions is None:
        return []
    if not may_ask:
        return [f"to learn from past sessions: heedful learn-sessions {past_sessions}"]
    if is_new and confirm(
        f"Learn from your past sessions in {past_sessions}?", err=True
    ):
        from heedful.cli.sessions import learn_from

        learn_from([past_sessions], approved_only=True)
    return []


@hook.command("uninstall")
def uninstall(
    agents: Agents = None,
    user: User = False,
    is_all: Annotated[
        bool, Option("--all", help="All agents with hooks of heedful.")
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show what would be written.")
    ] = False,
    yes: Yes = False,
) -> int:
    """Remove the hooks from the settings, which are then as they were before; say what
    stays, and how to remove it.
    """
    if is_all and agents:
        raise UsageError("--all and names exclude each other; give one of them")
    targets = list(TARGETS) if is_all else _agents_of(agents, is_all=False)

    changes: dict[Path, FileChange] = {}
    for name in targets:
        for change in plans.plan_removal(name, user):
            changes.setdefault(change.path, change)
    if dry_run:
        return _preview(list(changes.values()))

    written = _write_if_agreed(list(changes.values()), yes)
    lines = [f"no hooks in {path}" for path in changes]
    if written:
        verbs = {
            str(path): "removed" if change.after is None else "wrote"
            for path, change in changes.items()
        }
        lines = [f"{verbs[path]} {path}" for path in written]

    stays = leftovers(Path.cwd(), everywhere=user)
    lines += [f"left behind: {line}" for line in stays]
    return answer({"written": written, "left": stays}, lines)


@hook.command("trust")
def trust_sources(
    names: Annotated[
        list[str] | None,
        Argument(help="own, none, pytest, Read, server:docs; own by default."),
    ] = None,
    user: User = False,
) -> int:
    """Say whom you trust. What waits only because of them is released.

    own means your words, your agent's tools on this machine, and the programs that it
    runs here, but none that fetches what others wrote, such as curl, gh and ssh.
    """
    words = vouch.names_of(",".join(names or [vouch.OWN]), no_trust=False)
    released = vouch.state_names(words, everywhere=user)
    lines = vouch.describe_names(words)
    if released:
        lines.append(f"released: {counted(released, 'text')}")
    if not user:
        lines += vouch.describe_waiting()
    return answer({"trusted": words, "released": released}, lines)


@hook.command("approve")
def approve() -> int:
    """Show what came with this project, and ask for each whether hooks may follow it:
    commands, trust, databases, MCP servers, instructions. It asks on a terminal only.
    """
    ignored: Sequence[process.Ignored] = _checked_settings()["ignored"]
    restored = team_rules.restore(Path.cwd())
    items = vouch.open_items(Path.cwd())
    if not ignored and not items:
        return answer({"approved": []}, "there is nothing to approve", restored)
    if not vouch.is_terminal():
        _show_all(ignored)
        say("\n".join(vouch.describe_clone(items)))
        raise UsageError(
            "nothing was approved: only a person at a terminal can approve what is "
            "above; run heedful hook approve there"
        )

    approved = [*_decide_all(ignored), *vouch.decide_clone(items)]
    # What is shown now is what hooks follow from now on.
    settings = process.read_settings(Path.cwd())
    return answer({"approved": approved}, [*approved, *_describe_effects(settings)])


def _show_all(ignored: Sequence[process.Ignored]) -> None:
    """Show all that hooks ignore."""
    for item in ignored:
        _show(item)


def _show(item: process.Ignored) -> None:
    """Show why something is ignored and, whole and visibly, what it asks for."""
    say(f"\n{item}")
    if item.part == RULES_PART:
        lines = team_rules.describe(item)
    else:
        lines = _describe_part(item.values)
    for line in lines:
        say(f"  {line}")
    if item.values:
        say(f"  digest {item.digest[:SHOWN_DIGEST_CHARS]}")


def _describe_part(values: Mapping[str, Any]) -> list[str]:
    """Return a part of a settings file in words; nothing in it is left out."""
    lines: list[str] = []
    table = dict(values.get("hook", {}))
    for number, command in enumerate(table.pop("stop", ()), 1):
        size = (
            f" ({len(command)} characters)"
            if len(command) > MAX_SHOWN_COMMAND_CHARS
            else ""
        )
        lines.append(f"command {number} at each stop{size}: {visible(command)}")

    settings = {f"hook.{name}": value for name, value in table.items()}
    settings |= {name: value for name, value in values.items() if name != "hook"}
    for name, value in settings.items():
        lines.append(visible(f"{name} = {json.dumps(value, default=str)}"))
    return lines


def _decide_all(ignored: Sequence[process.Ignored]) -> list[str]:
    """Show what hooks ignore, ask for each, and record the answers.

    Returns the names of what is approved. The approval is for what was shown, even if
    the files have changed since. What was shown and not approved is not reported again.
    """
    approved: list[str] = []
    for item in ignored:
        _show(item)
        if _decide(item):
            approved.append(item.name)
        else:
            approve_all("refused", {item.name: item.digest})

    return approved


def _decide(item: process.Ignored) -> bool:
    """Ask whether hooks may follow something; return True if they do from now on."""
    if not item.part:
        return _decide_database(item)
    if item.part == RULES_PART:
        return team_rules.follow(item)
    if not confirm("May hooks follow this?", default=False, err=True):
        return False

    approve_all("files", {item.name: item.digest})
    return True


def _decide_database(item: process.Ignored) -> bool:
    """Ask whether hooks may follow a database; return True if they do from now on."""
    path = Path(item.path)
    if item.reason in WAYS_OUT or not path.exists():
        say(f"  hooks cannot follow it; {WAYS_OUT.get(item.reason, 'remove it')}")
        return False

    repository = find_repository(Path.cwd())
    target = path
    question = "May hooks tell its lessons to your agents, and write into it?"
    if repository is not None and path.parent == repository.root:
        target = repository.db
        question += " It is moved to the folder of git"
        if target.exists():
            question += ", in the place of what hooks stored until now, which is kept"
        question += "."

    if not confirm(question, default=False, err=True):
        return False
    for line in adopt(path, target):
        say(f"  {line}")
    return True


def _checked_settings() -> dict[str, Any]:
    """Return the settings of this project, with those that wait for approval.

    Raises UsageError if hooks could not follow them.
    """
    settings = process.read_settings(Path.cwd(), every=True)
    rules, _ = follow(settings, ":memory:")
    policy(rules.policy)
    return settings


def _describe_effects(settings: Mapping[str, Any]) -> list[str]:
    """Return what hooks do with these settings: their commands, database and trust."""
    rules, _ = follow(settings, ":memory:")
    commands = "; ".join(rules.stop) or "nothing"

    trust_by_source = {**settings["trust"], **vouch.stated_trust()}
    statements = [
        f"{source} is {trust}" for source, trust in sorted(trust_by_source.items())
    ]
    trust_words = ", ".join(statements) or "none"
    return [
        f"each stop runs: {redact(commands)}",
        f"database: {redact(settings['db'])}",
        f"trust: {redact(trust_words)}",
    ]


def _describe_reminders() -> list[str]:
    """Return in a line what the reminders of all sessions did; [] if none has ended."""

    async def look(memory: Memory) -> str:
        figures = await memory.store.read(memory.scope, reminders.figures)
        return str(figures.total)

    try:
        total = ask(look, approved_only=True)
    except NotFound:  # no hook has run here yet
        return []
    return [f"in all: {total}"] if total else []


@hook.command("status")
def status() -> int:
    """Show which settings have hooks (two answer each event twice), and what the hooks
    do here.
    """
    events_by_file = {}
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
        for item in settings["ignored"]:
            say(f"{item}; heedful hook approve shows it and asks")
        lines += _describe_effects(settings)
        lines += vouch.describe_clone(vouch.open_items(Path.cwd()))
        lines += vouch.describe_waiting()
        lines += _describe_reminders()
    except UsageError as error:
        say(f"the hooks do nothing: {error}")

    return answer(events_by_file, lines)


hook.command("doctor")(doctor)


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
