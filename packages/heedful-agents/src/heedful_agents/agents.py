"""Coding agents: how each speaks to its hooks, its settings, and what it cannot do.

Agents speak the language of Claude Code: `hook_event_name`, `tool_name` and
`tool_input` come in, `hookSpecificOutput` goes out. `AGENTS` has one record an agent,
with its source and with what is different. A fact that no source confirms is
`unconfirmed`.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from heedful.errors import InvalidInput, UnknownName
from heedful.validation import Fields, storable_id

Answer = Mapping[str, Any]
# Those of an event or of settings, by name: JSON data.
# Makes an answer from the name of the event and a text.
Form = Callable[[str, str], Answer]
Kind = Literal[
    "start", "subagent", "prompt", "before", "after", "failed", "stop", "end"
]
# What settings look like: JSON with groups of hooks or with hooks, a plugin, or a
# section of a text.
SettingsForm = Literal["groups", "entries", "plugin", "section"]
# Claude Code cuts what a hook adds after 10,000 characters.
MAX_HOOK_CONTEXT_CHARS = 9_900
# Calls that change or start something, and those of MCP servers: reading files needs
# no advice. The results of all tools are kept, because what works later may be from any
# of them.
ACTION_TOOLS_REGEX = "Bash|PowerShell|.*Edit|Write|Agent|Task|Skill|mcp__.*"
# Whatever becomes of the hook, its exit code is 0: 2 blocks the action in most agents,
# and any other denies it in some.
SHELL_GUARD = " || true"
# At a start, the user reads why the hooks do nothing, for example after their Python
# was removed.
SHELL_GUARD_AT_START = (
    """ || echo '{"systemMessage": "heedful: its hooks cannot start, so they do """
    """nothing; install heedful again, then run: heedful hook install"}'"""
)
_SHELL_COMMAND = f"{{command}}{SHELL_GUARD}"
NO_CONTEXT_BEFORE = "no advice before a call, except with deny: it takes none there"
NO_FAILURE_EVENT = (
    "a failed call has no event of its own: only a failure that the result itself "
    "reports is learnt"
)
NO_PROMPT_CONTEXT = "no advice with a prompt: it takes none there"
NO_STOP = "cannot hold up the end of a turn"


def _nested(name: str, **more: str) -> Form:
    """Return the form of an answer with the text as `name` in `hookSpecificOutput`."""

    def answer(event: str, text: str) -> Answer:
        return {"hookSpecificOutput": {"hookEventName": event, **more, name: text}}

    return answer


def _named(name: str, **more: Any) -> Form:
    """Return the form of an answer with the text as `name`, and other fields."""
    return lambda event, text: {**more, name: text}


def _both(name: str, **more: str) -> Form:
    """Return the form of an answer with the text in both places.

    Each of the agents that share a file of settings reads one of them.
    """

    def answer(event: str, text: str) -> Answer:
        return {
            **_named(name, **more)(event, text),
            **_nested(name, **more)(event, text),
        }

    return answer


@dataclass(frozen=True, kw_only=True)
class Agent:
    """How a coding agent speaks to its hooks, and where it has its settings.

    `events` maps its events to ours, none without hooks. `fields` has its names of the
    fields that are not named as in Claude Code, and `other_names` those of some of its
    versions. `takes` are our events whose answer may add context. `context`, `deny` and
    `block` make an answer from the name of the event and a text.
    `project` and `user` are its files of settings, "" if it has none there; `team` is
    the file of the project that teams commit, if `project` is for the user alone.
    Folders in `marks` and programs in `programs` show that it is on this machine.
    """

    title: str
    source: str
    events: Mapping[str, Kind] = field(default_factory=dict)
    takes: frozenset[str] = frozenset()
    # A text that one event cannot show, and the event that shows it later.
    later: Mapping[Kind, Kind] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    other_names: Mapping[str, str] = field(default_factory=dict)
    context: Form = _nested("additionalContext")
    # The characters of a context, a denial or a block.
    max_chars: int = MAX_HOOK_CONTEXT_CHARS
    deny: Form = _nested("permissionDecisionReason", permissionDecision="deny")
    block: Form = _named("reason", decision="block")
    # Its file of the session tells of failed calls that fire no event.
    has_transcript: bool = False
    # A person sees the `systemMessage` of a start and a prompt, the model does not.
    # No agent shows one at the end of a session.
    says_at_start: bool = False
    # The events at which the user hears that a hook did nothing, and what waits.
    notice_events: tuple[str, ...] = ()

    form: SettingsForm = "groups"
    project: str = ""
    team: str = ""
    user: str = ""
    # The environment variable with the folder of the user, and the usual folder.
    home: tuple[str, str] = ("", "")
    marks: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    # The members that a new file begins with.
    head: Fields = field(default_factory=dict)
    # A hook, with the places of its command; the name and the unit of its time limit.
    entry: Mapping[str, str] = field(
        default_factory=lambda: {"type": "command", "command": _SHELL_COMMAND}
    )
    limit: str = "timeout"
    units_per_second: int = 1
    matchers: Mapping[Kind, str] = field(default_factory=dict)
    # Settings of other agents that it reads, too: hooks there run twice.
    also_reads: tuple[str, ...] = ()
    cannot: tuple[str, ...] = ()
    unconfirmed: tuple[str, ...] = ()
    next_step: str = ""

    def event_of(self, kind: Kind) -> str:
        """Return the agent's name for an event of this kind, "" if it has none."""
        return next((name for name, other in self.events.items() if other == kind), "")

    def sign_in(self, project: Path) -> str:
        """Return what shows that the agent is on this machine, "" if nothing does."""
        for mark in self.marks:
            folder = self.path_of(mark, project)
            if folder.is_dir():
                return f"the folder {folder}"
        import shutil  # slow to import, and no hook looks for agents

        programs = filter(None, map(shutil.which, self.programs))
        return next((f"the program {path}" for path in programs), "")

    def path_of(self, place: str, project: Path) -> Path:
        """Return the path of a place: in the home of the user if it begins with ~."""
        variable, usual = self.home
        folder = os.environ.get(variable) if variable else None
        if folder and place.startswith(usual):
            return Path(folder + place.removeprefix(usual))
        if place.startswith("~"):
            return Path.home() / place.removeprefix("~/")
        return project / place


_SHARED_EVENTS: Mapping[str, Kind] = {
    "SessionStart": "start",
    "UserPromptSubmit": "prompt",
    "PreToolUse": "before",
    "PostToolUse": "after",
    "PostToolUseFailure": "failed",
    "Stop": "stop",
    "SessionEnd": "end",
}
_EVENTS_WITHOUT_FAILURE: Mapping[str, Kind] = {
    name: kind for name, kind in _SHARED_EVENTS.items() if kind != "failed"
}
# Some agents say when a subagent begins, which knows nothing of what others were told.
_SUBAGENT_EVENT: Mapping[str, Kind] = {"SubagentStart": "subagent"}
_CONTEXT_MOMENTS = frozenset[Kind](get_args(Kind)) - {"stop", "end"}
# The agent that is meant where none is named.
DEFAULT_AGENT = "claude-code"
AGENTS: Mapping[str, Agent] = {
    "claude-code": Agent(
        title="Claude Code",
        source="https://code.claude.com/docs/en/hooks",
        events={**_SHARED_EVENTS, **_SUBAGENT_EVENT},
        takes=_CONTEXT_MOMENTS,
        has_transcript=True,
        says_at_start=True,
        notice_events=("SessionStart", "Stop"),
        project=".claude/settings.local.json",
        team=".claude/settings.json",
        user="~/.claude/settings.json",
        home=("CLAUDE_CONFIG_DIR", "~/.claude"),
        marks=(".claude", "~/.claude"),
        programs=("claude",),
        matchers={"before": ACTION_TOOLS_REGEX},
        cannot=("some of its versions fire no event for a failed Edit, Read or Grep",),
    ),
    # VS Code, Copilot CLI and JetBrains read the same files; some versions write the
    # names of fields in camel case.
    "copilot": Agent(
        title="Copilot in VS Code and its command line",
        source="https://docs.github.com/en/copilot/reference/hooks-reference",
        events=_SHARED_EVENTS,
        takes=frozenset({"start", "before", "after", "failed"}),
        other_names={
            "session_id": "sessionId",
            "tool_response": "tool_result",
            "tool_use_id": "toolUseId",
        },
        context=_both("additionalContext"),
        # Contexts of all hooks are cut after 10 KB.
        max_chars=5_000,
        deny=_both("permissionDecisionReason", permissionDecision="deny"),
        block=_both("reason", decision="block"),
        form="entries",
        project=".github/hooks/heedful.json",
        user="~/.copilot/hooks/heedful.json",
        home=("COPILOT_HOME", "~/.copilot"),
        marks=(".vscode", "~/.vscode", "~/.vscode-server", "~/.copilot"),
        programs=("code", "copilot"),
        head={"version": 1},
        entry={
            "type": "command",
            "bash": _SHELL_COMMAND,
            "powershell": "{command}; exit 0",
        },
        limit="timeoutSec",
        also_reads=(
            ".claude/settings.local.json",
            ".claude/settings.json",
            "~/.claude/settings.json",
        ),
        cannot=(
            NO_PROMPT_CONTEXT,
            "VS Code says neither that a call failed nor that a session ended",
            "in the command line, an error of a hook before a call denies the call",
        ),
        unconfirmed=(
            "that VS Code ignores unknown events in the file",
            "that the command line takes context before a call",
            "that it takes context after a failed call from a hook that exits with 0",
        ),
    ),
    # Its `prompt` may be what a tool or a machine wrote.
    "qwen-code": Agent(
        title="Qwen Code",
        source="https://qwenlm.github.io/qwen-code-docs/en/users/features/hooks/",
        events=_SHARED_EVENTS,
        takes=_CONTEXT_MOMENTS,
        fields={"prompt": "submitted_prompt"},
        says_at_start=True,
        project=".qwen/settings.json",
        user="~/.qwen/settings.json",
        marks=(".qwen", "~/.qwen"),
        programs=("qwen",),
        # 1000 or more are milliseconds, and earlier versions know no other unit.
        units_per_second=1_000,
        matchers={"before": "run_shell_command|write_file|edit|mcp__.*"},
        cannot=(
            "if its events have no submitted_prompt, heedful learns no rules of yours",
        ),
    ),
    "codex": Agent(
        title="Codex",
        source="https://developers.openai.com/codex/hooks",
        events={**_EVENTS_WITHOUT_FAILURE, **_SUBAGENT_EVENT},
        takes=_CONTEXT_MOMENTS,
        fields={"prompt_id": "turn_id"},
        says_at_start=True,
        project=".codex/hooks.json",
        user="~/.codex/hooks.json",
        home=("CODEX_HOME", "~/.codex"),
        marks=(".codex", "~/.codex"),
        programs=("codex",),
        cannot=(NO_FAILURE_EVENT,),
        unconfirmed=("SessionEnd: the published schemas have no such event",),
        next_step="confirm each hook with /hooks in Codex",
    ),
    "cursor": Agent(
        title="Cursor",
        source="https://cursor.com/docs/agent/hooks",
        events={
            "sessionStart": "start",
            "beforeSubmitPrompt": "prompt",
            "preToolUse": "before",
            "postToolUse": "after",
            "postToolUseFailure": "failed",
            "stop": "stop",
            "sessionEnd": "end",
        },
        takes=frozenset({"start", "after", "failed"}),
        later={"failed": "after"},
        fields={
            "session_id": "conversation_id",
            "prompt_id": "generation_id",
            "tool_response": "tool_output",
            "error": "error_message",
        },
        context=_named("additional_context"),
        deny=_named("agent_message", permission="deny"),
        block=_named("followup_message"),
        form="entries",
        project=".cursor/hooks.json",
        user="~/.cursor/hooks.json",
        marks=(".cursor", "~/.cursor"),
        programs=("cursor", "cursor-agent"),
        head={"version": 1},
        entry={"command": _SHELL_COMMAND},
        cannot=(
            NO_PROMPT_CONTEXT,
            NO_CONTEXT_BEFORE,
            "advice after a failed call comes with the result of its next call",
            "the field loop_limit of a hook limits how often a turn continues",
        ),
        unconfirmed=("the fields before and after a call: the page was not at hand",),
    ),
    "gemini-cli": Agent(
        title="Gemini CLI",
        source="https://github.com/google-gemini/gemini-cli/blob/main/docs/hooks/"
        "reference.md",
        events={
            "SessionStart": "start",
            "BeforeAgent": "prompt",
            "BeforeTool": "before",
            "AfterTool": "after",
            "AfterAgent": "stop",
            "SessionEnd": "end",
        },
        takes=frozenset({"start", "prompt", "before", "after"}),
        later={"before": "after"},
        says_at_start=True,
        deny=_named("reason", decision="deny"),
        block=_named("reason", decision="deny"),
        project=".gemini/settings.json",
        user="~/.gemini/settings.json",
        marks=(".gemini", "~/.gemini"),
        programs=("gemini",),
        units_per_second=1_000,
        matchers={"before": "run_shell_command|write_file|replace|mcp_.*"},
        cannot=("advice before a call comes with its result", NO_FAILURE_EVENT),
        unconfirmed=(
            "that versions before 0.61 keep results of tools when a hook adds text",
        ),
    ),
    # A plugin of a few lines calls the hook process and places its answers.
    "opencode": Agent(
        title="opencode",
        source="https://opencode.ai/docs/plugins/",
        events=_EVENTS_WITHOUT_FAILURE,
        takes=frozenset({"prompt", "after"}),
        form="plugin",
        project=".opencode/plugins/heedful.ts",
        user="~/.config/opencode/plugins/heedful.ts",
        home=("XDG_CONFIG_HOME", "~/.config"),
        marks=(".opencode", "~/.config/opencode"),
        programs=("opencode",),
        cannot=(
            NO_CONTEXT_BEFORE,
            NO_STOP,
            "heedful learns only from calls that fail, and work when they are repeated",
            "heedful's plugin gives up after 3 s, and never fails",
        ),
        unconfirmed=("opencode 2: this is a plugin of version 1",),
    ),
    "agents-md": Agent(
        title="other agents (Zed, Aider, Cline, …)",
        source="https://agents.md/",
        form="section",
        project="AGENTS.md",
        programs=("zed", "aider"),
        cannot=(
            "these agents run no hook and know only what AGENTS.md says",
            "heedful learns nothing from their sessions",
        ),
        next_step="`heedful hook install agents-md` updates the section; with Aider, "
        "add `read: AGENTS.md` to .aider.conf.yml",
    ),
}


def find_agent(name: str) -> Agent:
    """Return the coding agent with this name. Raises UnknownName."""
    if name not in AGENTS:
        raise UnknownName("coding agent", name, list(AGENTS))

    return AGENTS[name]


def in_our_names(agent: Agent, data: Fields) -> Fields:
    """Return an event with the fields named as in Claude Code, beside its own names."""
    event = dict(data)
    for ours, theirs in agent.fields.items():
        event.pop(ours, None)
        if theirs in data:
            event[ours] = data[theirs]
    for ours, theirs in agent.other_names.items():
        if ours not in event and theirs in data:
            event[ours] = data[theirs]
    return event


def tool_name(name: str, server: object) -> str:
    """Return the name of a tool as Claude Code writes it, `mcp__SERVER__TOOL`.

    `server` is what the agent says of its MCP server, if it is a tool of one. Cursor
    names none, and writes "MCP:" before the tool.
    """
    if isinstance(server, Mapping):
        server_name = server.get("name") or server.get("server_name")
        prefix = f"mcp__{server_name}__"
        return name if name.startswith(prefix) else prefix + name
    if not name.startswith("MCP:"):
        # Gemini CLI writes "mcp_SERVER_TOOL".
        return re.sub(r"\Amcp_([^_\s]+)_(?=\S)", r"mcp__\1__", name)
    # Who names the tool could name a server in it.
    own_name = re.sub("_{2,}", "_", name.removeprefix("MCP:").lstrip(" "))
    return f"mcp__{own_name}"


def session_of(data: Fields) -> str:
    """Return the id under which the session of an event is stored.

    The event is one `in_our_names`. Raises InvalidInput if it has no id.
    """
    session = data.get("session_id")
    if not isinstance(session, str) or not session:
        raise InvalidInput("session_id", session, "the id of the session")

    return storable_id(session)
