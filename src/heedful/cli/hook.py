"""`heedful hook`: install the hooks of a coding agent, remove them, and answer an
event.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from getpass import getuser
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option, Typer, confirm, prompt

from heedful.cli.app import group
from heedful.cli.output import answer, page, say
from heedful.cli.resources import ask
from heedful.errors import NotFound, UsageError
from heedful.integrations import hook as process
from heedful.integrations import install as plans
from heedful.integrations.hooks import follow
from heedful.lessons.lesson import Trust
from heedful.lessons.trust import check_statement
from heedful.loop.policies import policy
from heedful.memory.memory import Memory
from heedful.redact import redact

hook: Typer = group()
# The tools of Claude Code that work on this machine; all other names are programs.
LOCAL_AGENT_TOOLS = (
    "Bash Edit Glob Grep LS MultiEdit NotebookEdit PowerShell Read Task Write".split()
)
Agent = Annotated[
    str, Argument(help="The agent; for others than claude-code see the docs.")
]
User = Annotated[bool, Option("--user", help="In your own settings, for all projects.")]
Yes = Annotated[bool, Option("--yes", help="Write without a question.")]


def _write(changes: Sequence[plans.FileChange], yes: bool) -> list[str]:
    """Show what changes, write it if the user agrees, and return the names of the
    files.
    """
    if not any(changes):
        return []
    say("".join(change.diff for change in changes))
    if not (yes or (_is_terminal() and confirm("Write this?", err=True))):
        raise UsageError("nothing was written; --yes writes it without a question")
    plans.apply_all(changes)
    return [str(change.path) for change in changes if change]


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


@hook.command("install")
def install(
    agent: Agent = plans.INSTALL_AGENT,
    user: User = False,
    http: Annotated[
        str, Option(help="The address of heedful serve, instead of commands.")
    ] = "",
    plugin: Annotated[
        Path | None, Option(help="Write a plugin into this folder instead.")
    ] = None,
    trust: Annotated[
        str, Option(help="Whose output is trusted: pytest,make,Read or all")
    ] = "",
    yes: Yes = False,
) -> int:
    """Write the hooks into the settings of this project, after showing what changes.

    On a terminal it asks once whom you trust, and whether to learn from past sessions.
    """
    if agent != plans.INSTALL_AGENT:
        raise UsageError(
            f"heedful writes no settings of {agent}; docs/coding-agents.md shows them"
        )
    everywhere = user or plugin is not None
    files = {} if everywhere else _checked_settings()["ignored"]
    events = plans.hooks(plans.command(everywhere), http)
    if plugin is None:
        changes = [plans.plan_install(plans.settings_path(user), events)]
    else:
        changes = plans.plan_plugin(plugin, events, page("skill") + "\n")
    written = _write(changes, yes)
    process.approve("files", files)

    asks = _is_terminal() and not yes
    if asks and not trust and not _is_trust_stated(everywhere):
        say(plans.TRUST_QUESTION)
        trust = prompt("Trusted programs", default="none", err=True)
    if trust:
        _state_trust(trust.replace(",", " ").split(), everywhere)

    lines = ["the hooks are installed already"]
    if written:
        lines = [f"wrote {', '.join(written)}"]
    if trust:
        lines.append(f"trusted: {trust}")
    past = plans.past_sessions()
    if past and asks and written:
        _offer_to_learn(past)
    elif past and not asks:
        lines.append(f"to learn from past sessions: heedful learn-sessions {past}")
    return answer({"written": written}, lines)


def _offer_to_learn(past: Path) -> None:
    if confirm(f"Learn from your past sessions in {past}?", err=True):
        from heedful.cli.sessions import learn_sessions

        learn_sessions([past])


def _is_trust_stated(everywhere: bool) -> bool:
    """Return True if the user has said before whom to trust."""
    if everywhere:
        return bool(process.approvals()["trust"])
    return bool(_stated_trust())


def _stated_trust() -> Mapping[str, Trust]:
    try:
        return ask(lambda memory: memory.stated_trust())
    except NotFound:  # there is no database yet
        return {}


def _state_trust(names: Sequence[str], everywhere: bool) -> None:
    """Record that the user's words and the output of programs are trusted, or that none
    is.
    """
    sources: dict[str, Trust] = dict.fromkeys(map(_source, names), "measured")
    sources["user"] = "operator"
    if list(names) == ["none"]:
        sources = {"tool": "tool"}
    for source, trust in sources.items():
        check_statement(source, trust)

    async def record(memory: Memory) -> None:
        for source, trust in sources.items():
            await memory.set_trust(
                source,
                trust,
                by=getuser(),
                why="answered heedful hook install",
                waiting=True,
            )

    if everywhere:
        process.approve("trust", sources)
    else:
        ask(record, new=True)


def _source(name: str) -> str:
    """Return the source that a name means: a source as it is, a tool of the agent, a
    program.
    """
    if name in ("tool", "user") or name.startswith(("tool:", "program:")):
        return name
    if name == "all":
        return "tool"
    kind = "tool" if name in LOCAL_AGENT_TOOLS else "program"
    return f"{kind}:{name}"


@hook.command("uninstall")
def uninstall(
    agent: Agent = plans.INSTALL_AGENT, user: User = False, yes: Yes = False
) -> int:
    """Remove the hooks from the settings, which are then as they were before."""
    path = plans.settings_path(user)
    written = _write([plans.plan_uninstall(path)], yes)
    words = f"wrote {path}" if written else f"no hooks in {path}"
    return answer({"written": written}, words)


@hook.command("approve")
def approve() -> int:
    """Let hooks follow the settings files and use the databases of this project as they
    are now.
    """
    settings = _checked_settings()
    files = settings["ignored"]
    process.approve("files", files)
    lines = ["there is nothing to approve"]
    if files:
        lines = [*files, *_effects(settings)]
    return answer({"approved": list(files)}, lines)


def _checked_settings() -> dict[str, Any]:
    """Return the settings of this project with what waits for approval. Raises
    UsageError.
    """
    settings = process.read_settings(Path.cwd(), every=True)
    rules, _ = follow(settings, ":memory:")
    policy(rules.policy)
    return settings


def _effects(settings: Mapping[str, Any]) -> Iterable[str]:
    """Return what hooks do with settings: the commands that they run, the database, the
    trust.
    """
    rules, _ = follow(settings, ":memory:")
    commands = "; ".join(rules.stop)
    stated = dict(settings["trust"]) | dict(_stated_trust())
    trust = ", ".join(
        f"{source} is {level}" for source, level in sorted(stated.items())
    )
    return [
        f"each stop runs: {redact(commands or 'nothing')}",
        f"database: {redact(settings['db'])}",
        f"trust: {redact(trust or 'none')}",
    ]


@hook.command("status")
def status() -> int:
    """Show which settings have hooks (two answer each event twice), and what the hooks
    do here.
    """
    events_by_file = {}
    lines = []
    for path in (plans.settings_path(False), plans.settings_path(True)):
        events, missing_programs = plans.installed(path)
        events_by_file[str(path)] = events
        lines.append(f"{path}: {', '.join(events) or 'no hooks'}{missing_programs}")
    try:
        settings = process.read_settings(Path.cwd())
        for file in settings["ignored"]:
            say(f"{file} is ignored: read it, then run heedful hook approve")
        lines += _effects(settings)
    except UsageError as error:
        say(f"the hooks do nothing: {error}")
    return answer(events_by_file, lines)


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
