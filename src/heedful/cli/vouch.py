"""Whom a person trusts: the questions of `heedful hook`, and what waits without it.

The own words, tools and programs are one question. Each thing that came with a project
is a question of its own. Without a terminal nothing is asked, and nothing is trusted
that no option names.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from typer import confirm

from heedful.cli.output import counted, say
from heedful.cli.resources import ask, state_trust
from heedful.errors import NotFound, UsageError
from heedful.integrations import clone
from heedful.integrations import hook as process
from heedful.integrations import install as plans
from heedful.lessons.lesson import Trust
from heedful.lessons.trust import (
    LOCAL_TOOLS,
    OWN_TRUST,
    check_statement,
    source_trust,
)
from heedful.lessons.waiting import OWN_COMMAND, explain_wait
from heedful.memory.memory import Memory
from heedful.store.ownership import approvals
from heedful.store.ownership import approve as record_approval

# What a person calls the own words, tools and programs, and nobody at all.
OWN = "own"
NOBODY = "none"
_CLONE_CONSEQUENCES: Mapping[str, str] = {
    "server": "yes: what it answers teaches your agent at once",
    "instructions": "yes: lessons may advise what it says",
}


def is_terminal() -> bool:
    """Return True if the user can read a question and answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def names_of(trust: str, no_trust: bool) -> list[str]:
    """Return the names that the options of a command state, [] without any.

    Raises UsageError for both options.
    """
    names = trust.replace(",", " ").split()
    if names and no_trust:
        raise UsageError("--trust and --no-trust exclude each other; give one of them")
    return [NOBODY] if no_trust else names


def ask_own(everywhere: bool) -> list[str]:
    """Ask once whether the user vouches for the own words, tools and programs."""
    if is_trust_stated(everywhere):
        return []
    say(plans.OWN_QUESTION)
    return [OWN] if confirm("Trust these?", default=True, err=True) else [NOBODY]


def is_trust_stated(everywhere: bool) -> bool:
    """Return True if the user has said before whom to trust.

    The answer for all projects is in a file of heedful, that for one project in its
    database.
    """
    if everywhere:
        return bool(approvals()["trust"])
    return bool(stated_trust())


def stated_trust() -> Mapping[str, Trust]:
    """Return the trust of each source that hooks follow here."""
    try:
        return ask(lambda memory: memory.stated_trust(), approved_only=True)
    except NotFound:
        # There is no database yet.
        trust: Mapping[str, Trust] = process.read_settings(Path.cwd())["trust"]
        return trust


def state_names(names: Sequence[str], everywhere: bool) -> int:
    """Record whom the user trusts; return how many texts leave quarantine by it.

    With a name, the own words are trusted, too. The only name "none" states of each
    source that was trusted that it is not.
    """
    trust_by_source: dict[str, Trust] = {}
    if list(names) == [NOBODY]:
        trusted = approvals()["trust"] if everywhere else stated_trust()
        trust_by_source = {name: source_trust(name, {}) for name in [*trusted, "tool"]}
    else:
        for name in names:
            if name == OWN:
                trust_by_source |= OWN_TRUST
            else:
                trust_by_source[_source_of(name)] = "measured"
        trust_by_source["user"] = "operator"

    for source, trust in trust_by_source.items():
        check_statement(source, trust)

    async def state(memory: Memory) -> int:
        why = "answered heedful hook"
        return await state_trust(memory, trust_by_source, why=why, release=True)

    if everywhere:
        record_approval("trust", trust_by_source)
        return 0
    return ask(state, new=True, approved_only=True)


def _source_of(name: str) -> str:
    """Return the source that a user means: `make` is program:make, `Read` tool:Read.

    A name that is a source already stays; "all" means the tools of the agent that work
    on this machine.
    """
    if name in ("tool", "program", "user"):
        return name
    if name.startswith(("tool:", "program:", "server:", "reviewer:")):
        return name
    if name == "all":
        return "tool"

    kind = "tool" if name[:1].isupper() and name.lower() in LOCAL_TOOLS else "program"
    return f"{kind}:{name}"


def describe_names(names: Sequence[str]) -> list[str]:
    """Return the lines about the names that a user trusts."""
    if list(names) == [NOBODY]:
        return ["trusted: nobody"]
    lines = [f"trusted: {','.join(names)}"]
    if "all" in names:
        lines.append("all covers no program: name yours, as --trust pytest,make")
    return lines


def decide_clone(items: Sequence[clone.CloneItem]) -> list[str]:
    """Ask for each thing that came with the project, and record the answers.

    Returns the names of what is approved.
    """
    approved = []
    for item in items:
        if item.is_unread:
            say(f"\n{item}")
            continue
        say(f"\n{item}\n  {_CLONE_CONSEQUENCES[item.kind]}")
        if confirm("Trust this?", default=False, err=True):
            approved.append(item.name)
            record_approval("files", {item.name: item.digest})
        else:
            record_approval("refused", {item.name: item.digest})
    return approved


def open_items(folder: Path) -> list[clone.CloneItem]:
    """Return what came with the project and is not approved as it is."""
    return [item for item in clone.clone_items(folder) if not item.is_approved]


def describe_clone(items: Sequence[clone.CloneItem]) -> list[str]:
    """Return a line for each thing that is not trusted."""
    return [f"not trusted: {item}" for item in items]


def describe_waiting() -> list[str]:
    """Return what waits here because of trust, why, and the next command."""
    try:
        sources, stated = ask(_read_waiting, approved_only=True)
    except NotFound:
        sources = []
        stated = stated_trust()
    if sources:
        reason = explain_wait(sources, stated)
        verb = "waits" if len(sources) == 1 else "wait"
        subject = f"{counted(len(sources), 'lesson')} {verb}"
        return [f"{subject}: {reason}; next: {reason.command}"]
    if not set(stated.values()) & {"measured", "operator"}:
        return [f"lessons will wait: you trust nobody; next: {OWN_COMMAND}"]
    return []


async def _read_waiting(memory: Memory) -> tuple[list[str], Mapping[str, Trust]]:
    """Return the sources of each lesson in quarantine, and the stated trust."""
    entries = await memory.quarantine.waiting()
    return [entry.source for entry in entries], await memory.stated_trust()
