"""`heedful hook`: install the hooks of a coding agent, remove them, and answer events.

`install` shows what it would write, and writes it only if the user agrees. Hooks run
commands, so they follow a settings file only after `approve`, and only as it was then.
What a program prints is trusted only if the user has said so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option, Typer, confirm, prompt

from heedful.cli.app import group
from heedful.cli.output import answer, page, say
from heedful.cli.resources import ask, state_trust
from heedful.errors import NotFound, UsageError
from heedful.integrations import hook as process
from heedful.integrations import install as plans
from heedful.integrations.hooks import follow
from heedful.lessons.lesson import Trust
from heedful.lessons.trust import LOCAL_TOOLS, check_statement
from heedful.loop.policies import policy
from heedful.memory.memory import Memory
from heedful.redact import redact

hook: Typer = group()

Agent = Annotated[
    str, Argument(help="The agent; for others than claude-code see the docs.")
]
User = Annotated[bool, Option("--user", help="In your own settings, for all projects.")]
Yes = Annotated[bool, Option("--yes", help="Write without a question.")]


def _write_if_agreed(changes: Sequence[plans.FileChange], yes: bool) -> list[str]:
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

    plans.apply_all(changes)
    return [str(change.path) for change in changes if change]


def _is_terminal() -> bool:
    """Return True if the user can read a question and answer it."""
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
        str, Option(help="Whose output is trusted: pytest,make,Read")
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

    # The user's own settings and a plugin are for all projects.
    everywhere = user or plugin is not None
    files_to_approve = {} if everywhere else _checked_settings()["ignored"]

    events = plans.hooks(plans.command(everywhere), http)
    if plugin is None:
        changes = [plans.plan_install(plans.settings_path(user), events)]
    else:
        changes = plans.plan_plugin(plugin, events, page("skill") + "\n")
    written = _write_if_agreed(changes, yes)
    process.approve("files", files_to_approve)

    may_ask = _is_terminal() and not yes
    if may_ask and not trust and not _is_trust_stated(everywhere):
        say(plans.TRUST_QUESTION)
        trust = prompt("Trusted programs", default="none", err=True)
    if trust:
        _state_trust(trust.replace(",", " ").split(), everywhere)

    lines = ["the hooks are installed already"]
    if written:
        lines = [f"wrote {', '.join(written)}"]
    if trust:
        lines.append(f"trusted: {trust}")

    past_sessions = plans.past_sessions()
    if past_sessions and not may_ask:
        lines.append(
            f"to learn from past sessions: heedful learn-sessions {past_sessions}"
        )
    elif past_sessions and written:
        _offer_to_learn(past_sessions)
    return answer({"written": written}, lines)


def _offer_to_learn(past_sessions: Path) -> None:
    """Ask whether to learn from the past sessions in a folder, and do it."""
    if confirm(f"Learn from your past sessions in {past_sessions}?", err=True):
        from heedful.cli.sessions import learn_sessions

        learn_sessions([past_sessions])


def _is_trust_stated(everywhere: bool) -> bool:
    """Return True if the user has said before whom to trust.

    The answer for all projects is in a file of heedful, that for one project in its
    database.
    """
    if everywhere:
        return bool(process.approvals()["trust"])
    return bool(_stated_trust())


def _stated_trust() -> Mapping[str, Trust]:
    """Return the trust of each source in this project; {} if it has no database yet."""
    try:
        return ask(lambda memory: memory.stated_trust())
    except NotFound:
        return {}


def _state_trust(names: Sequence[str], everywhere: bool) -> None:
    """Record that the user's words and the output of the named programs are trusted.

    If "none" is the only name, it is recorded that nothing is trusted.
    """
    trust_by_source: dict[str, Trust] = {"tool": "tool"}
    if list(names) != ["none"]:
        trust_by_source = dict.fromkeys(map(_source_of, names), "measured")
        trust_by_source["user"] = "operator"

    for source, trust in trust_by_source.items():
        check_statement(source, trust)

    async def state(memory: Memory) -> None:
        why = "answered heedful hook install"
        await state_trust(memory, trust_by_source, why=why, release=True)

    if everywhere:
        process.approve("trust", trust_by_source)
    else:
        ask(state, new=True)


def _source_of(name: str) -> str:
    """Return the source that a user means: `make` is program:make, `Read` tool:Read.

    A name that is a source already stays; "all" means the tools of the agent that work
    on this machine.
    """
    if name in ("tool", "user") or name.startswith(("tool:", "program:")):
        return name
    if name == "all":
        return "tool"

    kind = "tool" if name[:1].isupper() and name.lower() in LOCAL_TOOLS else "program"
    return f"{kind}:{name}"


@hook.command("uninstall")
def uninstall(
    agent: Agent = plans.INSTALL_AGENT, user: User = False, yes: Yes = False
) -> int:
    """Remove the hooks from the settings, which are then as they were before."""
    path = plans.settings_path(user)
    written = _write_if_agreed([plans.plan_uninstall(path)], yes)
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
        lines = [*files, *_describe_effects(settings)]
    return answer({"approved": list(files)}, lines)


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

    trust_by_source = {**settings["trust"], **_stated_trust()}
    statements = [
        f"{source} is {trust}" for source, trust in sorted(trust_by_source.items())
    ]
    trust_words = ", ".join(statements) or "none"
    return [
        f"each stop runs: {redact(commands)}",
        f"database: {redact(settings['db'])}",
        f"trust: {redact(trust_words)}",
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
        lines += _describe_effects(settings)
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
