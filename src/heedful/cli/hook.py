"""`heedful hook`: install the hooks of a coding agent, remove them, and answer events.

`install` shows what it would write, and writes it only if the user agrees. What comes
with a project - commands, statements of trust, databases - is shown and asked for by
`install` and `approve`, on a terminal only: hooks follow it only as it was shown.
What a program prints is trusted only if the user has said so.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option, Typer, confirm, prompt

from heedful.cli import share as team_rules
from heedful.cli.app import group
from heedful.cli.output import answer, page, say
from heedful.cli.resources import ask, state_trust
from heedful.errors import NotFound, UsageError
from heedful.integrations import hook as process
from heedful.integrations import install as plans
from heedful.integrations.hooks import follow
from heedful.integrations.rules import RULES_PART
from heedful.lessons.lesson import Trust
from heedful.lessons.trust import LOCAL_TOOLS, check_statement
from heedful.loop.policies import policy
from heedful.memory.memory import Memory
from heedful.redact import redact
from heedful.sanitize import visible
from heedful.store.ownership import (
    HAS_JOURNAL,
    IS_AMONG_FILES,
    IS_NO_FILE,
    IS_TRACKED,
    adopt,
    approvals,
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

    On a terminal it asks whether hooks may follow what the project brings, once whom
    you trust, and whether to learn from past sessions. --yes agrees to none of these.
    """
    if agent != plans.INSTALL_AGENT:
        raise UsageError(
            f"heedful writes no settings of {agent}; docs/coding-agents.md shows them"
        )

    # The user's own settings and a plugin are for all projects.
    everywhere = user or plugin is not None
    ignored: Sequence[process.Ignored] = ()
    if not everywhere:
        items = _checked_settings()["ignored"]
        ignored = [item for item in items if not item.is_refused]

    events = plans.hooks(plans.command(everywhere), http)
    if plugin is None:
        changes = [plans.plan_install(plans.settings_path(user), events)]
    else:
        changes = plans.plan_plugin(plugin, events, page("skill") + "\n")
    written = _write_if_agreed(changes, yes)

    may_ask = _is_terminal() and not yes
    if may_ask:
        _decide_all(ignored)
    else:
        _leave(ignored)

    if may_ask and not trust and not _is_trust_stated(everywhere):
        say(plans.TRUST_QUESTION)
        trust = prompt("Trusted programs", default="none", err=True)
    if trust:
        _state_trust(trust.replace(",", " ").split(), everywhere)

    lines = ["the hooks are installed already"]
    if written:
        lines = [f"wrote {', '.join(written)}"]
    if trust:
        lines += _describe_answer(trust)

    past_sessions = plans.past_sessions()
    if past_sessions:
        lines += _offer_to_learn(past_sessions, may_ask, bool(written))
    return answer({"written": written}, lines)


def _leave(ignored: Sequence[process.Ignored]) -> None:
    """Say what hooks go on to ignore, because nobody could be asked."""
    if ignored:
        _show_all(ignored)
        say("hooks ignore what is above until you run: heedful hook approve")


def _offer_to_learn(past_sessions: Path, may_ask: bool, is_new: bool) -> list[str]:
    """Ask whether to learn from the past sessions in a folder, and do it.

    If nobody can be asked, return the command that does it.
    """
    if not may_ask:
        return [f"to learn from past sessions: heedful learn-sessions {past_sessions}"]
    if is_new and confirm(
        f"Learn from your past sessions in {past_sessions}?", err=True
    ):
        from heedful.cli.sessions import learn_from

        learn_from([past_sessions], approved_only=True)
    return []


def _is_trust_stated(everywhere: bool) -> bool:
    """Return True if the user has said before whom to trust.

    The answer for all projects is in a file of heedful, that for one project in its
    database.
    """
    if everywhere:
        return bool(approvals()["trust"])
    return bool(_stated_trust())


def _stated_trust() -> Mapping[str, Trust]:
    """Return the trust of each source in the database that hooks follow here.

    It is {} if there is no such database yet.
    """
    try:
        return ask(lambda memory: memory.stated_trust(), approved_only=True)
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
        approve_all("trust", trust_by_source)
    else:
        ask(state, new=True, approved_only=True)


def _describe_answer(trust: str) -> list[str]:
    """Return the lines about the names that a user trusts."""
    lines = [f"trusted: {trust}"]
    if trust == "all":
        lines.append("all covers no program: name yours, as --trust pytest,make")
    return lines


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
    """Show what hooks ignore in this project, and ask for each whether they may follow
    it: commands, trust, databases. It asks on a terminal only.
    """
    ignored: Sequence[process.Ignored] = _checked_settings()["ignored"]
    restored = team_rules.restore(Path.cwd())
    if not ignored:
        return answer({"approved": []}, "there is nothing to approve", restored)
    if not _is_terminal():
        _show_all(ignored)
        raise UsageError(
            "nothing was approved: only a person at a terminal can approve what is "
            "above; run heedful hook approve there"
        )

    approved = _decide_all(ignored)
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
    for is_user in (False, True):
        try:
            path = plans.settings_path(is_user)
        except UsageError as error:
            say(str(error))
            continue
        events, missing_programs = plans.installed(path)
        events_by_file[str(path)] = events
        lines.append(f"{path}: {', '.join(events) or 'no hooks'}{missing_programs}")

    try:
        settings = process.read_settings(Path.cwd())
        for item in settings["ignored"]:
            say(f"{item}; heedful hook approve shows it and asks")
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
