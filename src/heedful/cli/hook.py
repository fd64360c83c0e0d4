"""`heedful hook`: install the hooks of a coding agent, remove them, and answer an
event.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from getpass import getuser
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option, Typer, confirm, prompt

from heedful.cli import output
from heedful.cli import settings as config
from heedful.cli.app import group
from heedful.errors import NotFound, UsageError
from heedful.integrations import hook as process
from heedful.integrations import install as plans
from heedful.integrations.hooks import follow
from heedful.lessons.trust import check_statement
from heedful.loop.policies import policy
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
    output.say("".join(change.diff for change in changes))
    if not (yes or (_asks() and confirm("Write this?", err=True))):
        raise UsageError("nothing was written; --yes writes it without a question")
    plans.apply_all(changes)
    return [str(change.path) for change in changes if change]


def _asks() -> bool:
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
    files = {} if everywhere else _checked()["ignored"]
    wanted = plans.hooks(plans.command(everywhere), http)
    if plugin is None:
        changes = [plans.plan_install(plans.settings_path(user), wanted)]
    else:
        changes = plans.plan_plugin(plugin, wanted, output.page("skill") + "\n")
    written = _write(changes, yes)
    past = plans.past_sessions()
    asks = _asks() and not yes
    process.approve("files", files)
    if asks and not trust:
        stated: object = process.approvals()["trust"] if everywhere else {}
        with suppress(NotFound):  # there is no database yet
            stated = stated or (
                not everywhere and config.ask(lambda memory: memory.stated_trust())
            )
        if not stated:
            output.say(plans.TRUST_QUESTION)
            trust = prompt("Trusted programs", default="none", err=True)
    if trust:
        _state(trust.replace(",", " ").split(), everywhere)
    if (
        asks
        and written
        and past
        and confirm(f"Learn from your past sessions in {past}?", err=True)
    ):
        from heedful.cli.sessions import learn_sessions

        learn_sessions([past])
    said = [
        f"wrote {', '.join(written)}" if written else "the hooks are installed already"
    ]
    said += [f"trusted: {trust}"] * bool(trust)
    said += [f"to learn from past sessions: heedful learn-sessions {past}"] * bool(
        past and not asks
    )
    return output.answer({"written": written}, *said)


def _state(names: Sequence[str], everywhere: bool) -> None:
    """Record that the user's words and the output of programs are trusted, or that none
    is.
    """
    sources = dict.fromkeys(map(_source, names), "measured") | {"user": "operator"}
    sources = {"tool": "tool"} if [*names] == ["none"] else sources
    for source in sources:
        check_statement(source, sources[source])
    options: Any = {
        "by": getuser(),
        "why": "answered heedful hook install",
        "waiting": True,
    }

    async def record(memory: Any) -> None:
        for source, trust in sources.items():
            await memory.set_trust(source, trust, **options)

    if everywhere:
        process.approve("trust", sources)
    else:
        config.ask(record, new=True)


def _source(name: str) -> str:
    """Return the source that a name means: a source as it is, a tool of the agent, a
    program.
    """
    if name in ("tool", "user") or name.startswith(("tool:", "program:")):
        return name
    return (
        "tool"
        if name == "all"
        else f"{'tool' if name in LOCAL_AGENT_TOOLS else 'program'}:{name}"
    )


@hook.command("uninstall")
def uninstall(
    agent: Agent = plans.INSTALL_AGENT, user: User = False, yes: Yes = False
) -> int:
    """Remove the hooks from the settings, which are then as they were before."""
    path = plans.settings_path(user)
    written = _write([plans.plan_uninstall(path)], yes)
    return output.answer(
        {"written": written}, f"{'wrote' if written else 'no hooks in'} {path}"
    )


@hook.command("approve")
def approve() -> int:
    """Let hooks follow the settings files and use the databases of this project as they
    are now.
    """
    found = _checked()
    process.approve("files", files := found["ignored"])
    lines = [*files, *_rules(found)] if files else ["there is nothing to approve"]
    return output.answer({"approved": list(files)}, *lines)


def _checked() -> dict[str, Any]:
    """Return the settings of this project with what waits for approval. Raises
    UsageError.
    """
    found = process.read_settings(Path.cwd(), every=True)
    policy(follow(found, ":memory:")[0].policy)
    return found


def _rules(found: Mapping[str, Any]) -> list[str]:
    """Return what hooks do with settings: the commands that they run, the database, the
    trust.
    """
    runs = "; ".join(follow(found, ":memory:")[0].stop)
    stated = dict(found["trust"])
    with suppress(NotFound):  # there is no database yet
        stated |= config.ask(lambda memory: memory.stated_trust())
    trust = ", ".join(
        f"{source} is {level}" for source, level in sorted(stated.items())
    )
    told = {
        "each stop runs": runs or "nothing",
        "database": found["db"],
        "trust": trust or "none",
    }
    return [f"{what}: {redact(text)}" for what, text in told.items()]


@hook.command("status")
def status() -> int:
    """Show which settings have hooks (two answer each event twice), and what the hooks
    do here.
    """
    found = {
        str(one): plans.installed(one)
        for one in map(plans.settings_path, (False, True))
    }
    lines = [
        f"{at}: {', '.join(own) or 'no hooks'}{gone}"
        for at, (own, gone) in found.items()
    ]
    try:
        followed = process.read_settings(Path.cwd())
        for file in followed["ignored"]:
            output.say(f"{file} is ignored: read it, then run heedful hook approve")
        lines += _rules(followed)
    except UsageError as error:
        output.say(f"the hooks do nothing: {error}")
    return output.answer({at: own for at, (own, _) in found.items()}, *lines)


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
    raise Exit(
        process.main([event, "--agent", agent, *(["--strict"] if strict else [])])
    )
