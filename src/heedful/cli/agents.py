"""`heedful hook doctor`, the section of AGENTS.md, and the words about agents."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.cli.output import answer, say
from heedful.cli.resources import ask, ask_own, has_own_memory
from heedful.errors import NotFound, UsageError
from heedful.integrations import install as plans
from heedful.integrations.agents import AGENTS, Agent, Kind
from heedful.integrations.agents_md import EMPTY_SECTION, section_text
from heedful.integrations.leftovers import LOG_FILE
from heedful.integrations.places import (
    TARGETS,
    expand,
    find_targets,
    settings_file,
)
from heedful.lessons.user_rules import StatedRule
from heedful.store.workspace import project_root

# What an agent waits for the answer of a hook at most, with the start of a shell.
DOCTOR_LIMIT_SECONDS = 10
# A made-up session: the user states a rule, and a call goes against it.
_RULE = "never use npm"
_CALL: Mapping[str, Any] = {
    "tool_name": "Bash",
    "tool_use_id": "call-1",
    "tool_input": {"command": "npm ci"},
}
_TRIED_SESSION = "doctor"
_TRIED_EVENTS: Sequence[tuple[Kind, Mapping[str, Any]]] = (
    ("prompt", {"prompt": _RULE}),
    ("before", _CALL),
    ("after", {**_CALL, "tool_response": {"output": "ok", "exit_code": 0}}),
)


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


@dataclass(frozen=True, kw_only=True)
class HookTrial:
    """What the hook of an agent answered to a made-up event."""

    agent: str
    event: str
    answer: Any
    milliseconds: int
    problem: str = ""

    def __str__(self) -> str:
        reply = "nothing" if self.answer is None else json.dumps(self.answer)
        result = self.problem or f"answered {reply}"
        return f"{self.agent} {self.event}: {result} ({self.milliseconds} ms)"


def doctor() -> int:
    """Try the hooks of each installed agent with made-up events in a folder of their
    own, and show what they answered and how long it took.
    """
    trials: list[HookTrial] = []
    for name in TARGETS:
        for user in (False, True):
            commands = _commands(name, user)
            if commands:
                trials += _try_agent(name, commands)

    lines: list[str] = [str(trial) for trial in trials]
    if not trials:
        lines = ["no agent has hooks of heedful here; next: heedful hook install --all"]
    answer({"trials": trials}, lines)
    return 1 if any(trial.problem for trial in trials) else 0


def _try_agent(name: str, commands: Mapping[str, str]) -> Iterator[HookTrial]:
    """Run the hooks of an agent for a made-up session."""
    target = TARGETS[name]
    row = AGENTS[target.agent]
    folder = tempfile.mkdtemp(prefix="heedful-")
    prompt_data = {"session_id": _TRIED_SESSION, "prompt": _RULE}
    try:
        if not row.gives_typed_line:
            # This agent does not tell what was typed, so Claude Code's hook says it.
            event = AGENTS[plans.INSTALL_AGENT].event_of("prompt")
            line = plans.hook_line(
                TARGETS[plans.INSTALL_AGENT], plans.command(True), event
            )
            _try_event(name, event, line=line, data=prompt_data, folder=folder)
        for kind, content in _TRIED_EVENTS:
            event = row.event_of(kind)
            if event not in commands:
                continue
            line = commands[event]
            if not line:
                line = plans.hook_line(target, plans.command(True), event)
            data = event_of(row, event, {"session_id": _TRIED_SESSION, **content})
            yield _try_event(name, event, line=line, data=data, folder=folder)
    finally:
        _remove(folder)


def _remove(folder: str) -> None:
    """Remove a folder in which a hook has left a process that still writes.

    Raises OSError.
    """
    deadline = time.monotonic() + DOCTOR_LIMIT_SECONDS
    while True:
        try:
            return shutil.rmtree(folder)
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def event_of(row: Agent, event: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event as an agent names it."""
    fields = {row.fields.get(name, name): value for name, value in content.items()}
    return {"hook_event_name": event, **fields}


def _try_event(
    name: str, event: str, *, line: str, data: Mapping[str, Any], folder: str
) -> HookTrial:
    """Run a hook as an agent does: with a shell, in a home and a project of its own."""
    inherited = {
        variable: value
        for variable, value in os.environ.items()
        if not variable.startswith(("HEEDFUL_", "CLAUDE_", "GIT_"))
    }
    began = time.monotonic()
    problem = ""
    output = b""
    try:
        done = subprocess.run(
            line,
            shell=True,
            cwd=folder,
            env={**inherited, "HOME": folder},
            input=json.dumps({**data, "cwd": folder}).encode(),
            capture_output=True,
            check=False,
            timeout=DOCTOR_LIMIT_SECONDS,
        )
        output = done.stdout
        if done.returncode:
            problem = f"exited with {done.returncode}; it must be 0"
        elif done.stderr:
            problem = done.stderr.decode("utf-8", "replace").strip()[:200]
    except subprocess.TimeoutExpired:
        problem = f"no answer within {DOCTOR_LIMIT_SECONDS} s"

    milliseconds = round((time.monotonic() - began) * 1_000)
    reply = None
    if output.strip() and not problem:
        try:
            reply = json.loads(output)
        except ValueError:
            problem = "the answer is not JSON"
    elif not problem:
        problem = _why_silent(event, folder)
    return HookTrial(
        agent=name,
        event=event,
        answer=reply,
        milliseconds=milliseconds,
        problem=problem,
    )


def _why_silent(event: str, folder: str) -> str:
    """Return what a hook without an answer has logged in the home of its trial."""
    log = Path(folder, ".heedful", LOG_FILE)
    if not log.exists():
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    reasons = [line.partition(f" {event}: ")[2] for line in lines]
    return next(filter(None, reversed(reasons)), "")


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
