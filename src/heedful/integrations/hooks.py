"""What heedful answers to the hooks of coding agents: an event as JSON data, and its
answer.

`AGENTS` is the table of the agents: their names of events and fields, and the forms of
answers. A hook that has nothing to say answers nothing. Advice is context; an action is
denied only if the settings ask for it. Learning takes too long for a hook: `Reply.work`
says what is to be done later.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from heedful.errors import InvalidInput, UnknownName
from heedful.integrations.host import MAX_MOMENT_CHARS, Advice, Host, HostRun
from heedful.lessons.action import action
from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from heedful.redact import redact
from heedful.sanitize import cut_middle, sanitize
from heedful.traces.episode import Event, Limits, json_data
from heedful.validation import check_options

if TYPE_CHECKING:  # a hook process imports only what its event needs
    from heedful.drive.report import ReportedLoop
    from heedful.loop.record import Finding

Answer = Mapping[str, Any]
Form = Callable[
    [str, str], Answer
]  # makes an answer from the name of the event and a text
Kind = Literal["start", "prompt", "before", "after", "failed", "stop", "end"]
Work = Literal["", "study", "end"]
# Claude Code cuts what a hook adds after 10,000 characters.
MAX_HOOK_CONTEXT_CHARS = 9_900
# Characters of a command's output in the reason of a block; of its output, the last
# bytes are read.
MAX_BLOCK_OUTPUT_CHARS = 4_000
MAX_OUTPUT_TAIL_BYTES = 1 << 20
MAX_OUTPUT_LINES = 40  # error lines of a command's output
MAX_HOOK_TEXT_CHARS = 4 * Limits().content  # characters of a text that are cleaned
_JSON_TEXT_FIELDS = frozenset(
    {"tool_input", "tool_response", "tool_output"}
)  # may be JSON as text
# Prompts that no user wrote: wake-ups, notifications and messages of other agents.
MACHINE_PROMPT_SOURCES = frozenset(
    {"system", "loop_wakeup", "schedule_wakeup", "poll_event"}
)
# Work in the background that goes on for a whole session, such as a server.
LASTING_WORK_TYPES = frozenset({"shell", "monitor"})
# An exit code in the text of a result, of agents that report failures in no other way.
_EXIT_CODE_PATTERN = re.compile(
    r"^\W{0,4}(?:process )?exit(?:ed)?(?: with)?(?: code)?:? *(\d+)",
    re.IGNORECASE | re.MULTILINE,
)
_EXIT_CODE_FIELDS = ("exit_code", "exitCode", "returncode")
_RESPONSE_TEXT_FIELDS = (
    "stdout",
    "stderr",
    "output",
    "llmContent",
    "content",
    "text",
    "result",
)


def _nested(name: str, **more: str) -> Form:
    return lambda event, text: {
        "hookSpecificOutput": {"hookEventName": event, **more, name: text}
    }


def _named(name: str, **more: str) -> Form:
    return lambda event, text: {**more, name: text}


@dataclass(frozen=True, kw_only=True)
class Agent:
    """How a coding agent names its events and fields, and what its hooks can answer.

    `events` maps its events to ours. `fields` has its names of the fields that are not
    named as in Claude Code. `takes` are our events whose answer may add context.
    `context`, `deny` and `block` make an answer from the name of the event and a text.
    """

    events: Mapping[str, Kind]
    takes: frozenset[str]
    fields: Mapping[str, str] = field(default_factory=dict)
    context: Form = _nested("additionalContext")
    deny: Form = _nested("permissionDecisionReason", permissionDecision="deny")
    block: Form = _named("reason", decision="block")

    def event_of(self, kind: Kind) -> str:
        """Return its name of one of our events, "" if it has none."""
        return next((name for name, own in self.events.items() if own == kind), "")


def _events(names: str) -> Mapping[str, Kind]:
    """Return an agent's events, which are named in the order of ours; - is an event it
    lacks.
    """
    named = zip(names.split(), get_args(Kind), strict=True)
    return {name: kind for name, kind in named if name != "-"}


_CALL_EVENTS = "PreToolUse PostToolUse PostToolUseFailure"
_CLAUDE_EVENTS = _events(
    f"SessionStart UserPromptSubmit {_CALL_EVENTS} Stop SessionEnd"
)
_CODEX_EVENTS = _events(
    "SessionStart UserPromptSubmit PreToolUse PostToolUse - Stop SessionEnd"
)
_GEMINI_EVENTS = _events(
    "SessionStart BeforeAgent BeforeTool AfterTool - AfterAgent SessionEnd"
)
_CALL_EVENTS = _CALL_EVENTS.replace("P", "p")
_CURSOR_EVENTS = _events(
    f"sessionStart beforeSubmitPrompt {_CALL_EVENTS} stop sessionEnd"
)
_DENIAL_ANSWER = _named("reason", decision="deny")
_CURSOR_FIELDS = {"session_id": "conversation_id", "prompt_id": "generation_id"}
_CURSOR_FIELDS |= {"tool_response": "tool_output", "error": "error_message"}
_CONTEXT_MOMENTS = frozenset({"start", "prompt", "before", "after", "failed"})
AGENTS: dict[str, Agent] = {
    "claude-code": Agent(events=_CLAUDE_EVENTS, takes=_CONTEXT_MOMENTS),
    "codex": Agent(
        events=_CODEX_EVENTS, takes=_CONTEXT_MOMENTS, fields={"prompt_id": "turn_id"}
    ),
    "cursor": Agent(
        events=_CURSOR_EVENTS,
        takes=frozenset({"start", "after"}),
        fields=_CURSOR_FIELDS,
        context=_named("additional_context"),
        deny=_named("agent_message", permission="deny"),
        block=_named("followup_message"),
    ),
    "gemini-cli": Agent(
        events=_GEMINI_EVENTS,
        takes=frozenset({"start", "prompt", "after"}),
        deny=_DENIAL_ANSWER,
        block=_DENIAL_ANSWER,
    ),
    # A plugin of a few lines calls the hook process and places its answers.
    "opencode": Agent(events=_CLAUDE_EVENTS, takes=frozenset({"prompt", "after"})),
}


@dataclass(frozen=True, kw_only=True)
class HookSettings:
    """The table `[hook]` of the settings.

    `stop` are commands that must exit with 0 before a turn ends; each takes at most
    `seconds`. The turn goes on as long as `policy` allows. With `deny`, an action that
    failed before is denied once a turn, with the advice as the reason.
    """

    stop: tuple[str, ...] = ()
    deny: bool = False
    seconds: float = 300.0
    policy: str = "default"

    def __post_init__(self) -> None:
        if isinstance(self.stop, str) or not all(
            isinstance(one, str) for one in self.stop
        ):
            raise InvalidInput(
                "hook.stop", self.stop, 'a list of commands, as ["make test"]'
            )
        object.__setattr__(self, "stop", tuple(self.stop))
        if type(self.deny) is not bool:
            raise InvalidInput("hook.deny", self.deny, "true or false")
        if not isinstance(self.seconds, int | float) or not 0 < self.seconds <= 3_600:
            raise InvalidInput("hook.seconds", self.seconds, "above 0 and up to 3600")


def follow(
    found: Mapping[str, Any], db: str, strict: bool = False
) -> tuple[HookSettings, Host]:
    """Return the rules and the host that the settings of hooks state. Raises
    UsageError.
    """
    check_options("[hook]", found["hook"], list(HookSettings.__dataclass_fields__))
    stated = {name: found[name] for name in ("holdout", "trust")}
    # Words only: to load an embedder takes longer than a hook may.
    memory = Memory(db, Scope(found["tenant"], found["project"]), **stated)
    return HookSettings(**found["hook"]), Host(memory=memory, strict=strict)


@dataclass(frozen=True)
class Reply:
    """The `answer` to print, None for nothing, and the `work` that remains for the
    session.
    """

    answer: Answer | None = None
    work: Work = ""
    session: str = ""


async def _checked(line: str, folder: str, seconds: float) -> Finding | None:
    """Run a command of the project; another exit code than 0 is an error.

    Its evidence is what the command printed: of a long output, its error lines and its
    end.
    """
    from heedful.loop.record import Finding
    from heedful.traces.error_lines import error_lines

    code, text = await run_command(line, folder, seconds)
    if code == 0:
        return None
    if len(text := text.strip()) > MAX_BLOCK_OUTPUT_CHARS:
        lines = [
            line[:300]
            for line in error_lines(text.splitlines(), others=False)[:MAX_OUTPUT_LINES]
        ]
        head = "\n".join(lines)[: MAX_BLOCK_OUTPUT_CHARS // 2]
        text = f"{head}\n[…]\n{text[-(MAX_BLOCK_OUTPUT_CHARS - len(head)) :]}"
    ended = f"exited with {code}" if code is not None else f"took over {seconds:g} s"
    ended += "" if text else " and printed nothing"
    said = sanitize(redact(text))
    key = f"{line[:200]}: {_digest(said)[:16]}"
    return Finding(line[:200], redact(f"`{line}` {ended}"), key=key, evidence=said)


async def run_command(line: str, folder: str, seconds: float) -> tuple[int | None, str]:
    """Run a shell command; return its exit code and the end of what it printed.

    After `seconds` heedful kills it and all its processes, and returns no code.
    """
    import asyncio
    import subprocess
    import tempfile

    with tempfile.TemporaryFile() as printed:
        streams: Any = {
            "stdin": subprocess.DEVNULL,
            "stdout": printed,
            "stderr": printed,
        }
        # Made without a pause: what cancels the hook would leave a command behind.
        start = partial(
            subprocess.Popen, shell=True, cwd=folder, start_new_session=True
        )
        process = start(line, **streams)
        try:
            code = await asyncio.to_thread(process.wait, seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:  # time is up, or the hook was cancelled
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        size = printed.seek(0, os.SEEK_END)
        printed.seek(max(0, size - MAX_OUTPUT_TAIL_BYTES))
        return code, printed.read().decode("utf-8", "replace")


async def reply(
    name: str,
    data: Mapping[str, Any],
    host: Host,
    *,
    agent: str = "claude-code",
    settings: HookSettings = HookSettings(),
) -> Reply:
    """Return the reply to an event of a coding agent; `data` is the event as JSON data.

    If heedful fails or takes too long, the reply is empty. Raises UnknownName and
    InvalidInput for what is no event of the agent.
    """
    if agent not in AGENTS:
        raise UnknownName("coding agent", agent, list(AGENTS))
    known = AGENTS[agent]
    if name not in known.events:
        raise UnknownName(f"event of {agent}", name, list(known.events))
    data = {key: _cut(value, key in _JSON_TEXT_FIELDS) for key, value in data.items()}
    session = data.get(known.fields.get("session_id", "session_id"))
    if not isinstance(session, str) or not session:
        raise InvalidInput("session_id", session, "the id of the session")
    at = _Moment(
        name=name,
        agent=known,
        data=data,
        run=host.run(_short(session)),
        settings=settings,
    )
    kind = known.events[name]
    at.run.room = (
        MAX_MOMENT_CHARS
        if kind in known.takes or (kind == "before" and settings.deny)
        else 0
    )
    if kind == "stop":  # the commands of the project take their time
        return await _stop(at)
    if kind == "end":
        return Reply(None, "end", at.run.id)
    answer = {"start": _start, "prompt": _prompt, "before": _before}.get(kind, _after)
    return await host.guarded(f"answer {name}", answer(at), Reply())


async def work(host: Host, session: str, what: Work) -> None:
    """Do the work that a reply left: learn from the session, and at its end forget its
    events.
    """
    run = host.run(session)
    if what == "end":
        await run.learn(ends="partial")
    else:
        await run.study()
        await host.sweep()


def _cut(value: Any, encoded: bool = False) -> Any:
    """Cut each long text in its middle before it is cleaned; first read one that is
    JSON.
    """
    if isinstance(value, str) and len(value) > MAX_HOOK_TEXT_CHARS:
        data = json_data(value) if encoded else value
        return (
            cut_middle(value, MAX_HOOK_TEXT_CHARS)
            if isinstance(data, str)
            else _cut(data)
        )
    if isinstance(value, Mapping):
        return {key: _cut(one) for key, one in value.items()}
    return [_cut(one) for one in value] if isinstance(value, list) else value


def _short(name: str) -> str:
    return name if len(name) <= 80 and name.isprintable() else _digest(name)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, kw_only=True)
class _Moment:
    """An event of a run, with the fields of its data."""

    name: str
    agent: Agent
    data: Mapping[str, Any]
    run: HostRun
    settings: HookSettings

    def get(self, field: str) -> Any:
        return self.data.get(self.agent.fields.get(field, field))

    def text(self, field: str) -> str:
        value = self.get(field)
        return value if isinstance(value, str) else ""

    @property
    def tool(self) -> str:
        """The name of the tool; a tool of an MCP server is always named as one."""
        name = self.text("tool_name")
        server = self.get("mcp_server") or self.get("mcp_context")
        if isinstance(server, Mapping) and not name.startswith("mcp__"):
            return f"mcp__{server.get('name') or server.get('server_name')}__{name}"
        return re.sub(r"\AMCP: *", "mcp__", name)

    @property
    def arguments(self) -> Mapping[str, Any]:
        value = json_data(self.get("tool_input"))
        return value if isinstance(value, Mapping) else {"input": value}

    @property
    def call(self) -> tuple[str, str]:
        """The id of the call, and the id of the subagent that makes it."""
        return self.text("tool_use_id"), self.text("agent_id")

    @property
    def folder(self) -> str:
        named = os.environ.get("CLAUDE_PROJECT_DIR") or self.text("cwd")
        return named if named and Path(named).is_dir() else str(Path.cwd())

    def advise(self, advice: Advice, work: Work = "") -> Reply:
        answer = None
        if advice and self.agent.events[self.name] in self.agent.takes:
            answer = self.agent.context(
                self.name, cut_middle(advice.text, MAX_HOOK_CONTEXT_CHARS)
            )
        return Reply(answer, work, self.run.id)


async def _start(at: _Moment) -> Reply:
    made = at.advise(await at.run.opening())
    host = at.run.host
    if at.agent is not AGENTS["claude-code"] or host.known is None:
        return made
    waits = len(
        await host.guarded("count what waits", host.known.quarantine.waiting(), [])
    )
    note = (
        f"heedful: lessons that wait for your ruling: {waits}; heedful quarantine list"
    )
    answer = {**(made.answer or {}), "systemMessage": note} if waits else made.answer
    return Reply(answer, made.work, made.session)


async def _prompt(at: _Moment) -> Reply:
    prompt = at.text("prompt")
    if not prompt.strip() or at.text("source") in MACHINE_PROMPT_SOURCES:
        return Reply()  # words of the user are trusted, those of a machine are not
    return at.advise(await at.run.recall(prompt, at.text("prompt_id")))


async def _before(at: _Moment) -> Reply:
    advice = await at.run.before(at.tool, at.arguments, *at.call)
    if advice and at.settings.deny:
        asked = action(at.tool, at.arguments).whole
        since = list[str]()
        for one in await at.run.events():
            if one["type"] == "user_message":
                since = []
            elif one["type"] == "tool_call" and (one["tool"], one["call"]) != (
                at.tool,
                at.call[0],
            ):
                since.append(action(one["tool"], one["arguments"] or {}).whole)
        if asked not in since:
            return Reply(
                at.agent.deny(at.name, cut_middle(advice.text, MAX_HOOK_CONTEXT_CHARS)),
                "",
                at.run.id,
            )
    return at.advise(advice)


async def _after(at: _Moment) -> Reply:
    """Keep the result of a call, and say what mended it before if it failed."""
    response = json_data(at.get("tool_response"))
    (call, agent) = at.call
    failed = at.agent.events[at.name] == "failed"
    stopped = response.get("interrupted") if isinstance(response, Mapping) else None
    if stopped is True or at.get("is_interrupt") is True:
        return Reply()  # the user stopped the call; it did not fail
    known, failed_last = await at.run.course(at.tool, at.arguments, call)
    if not known:  # no hook ran before the call
        await at.run.learn(
            Event(
                "tool_call",
                "",
                agent=agent,
                tool=at.tool,
                arguments=at.arguments,
                call=call,
            )
        )
    if error := (at.text("error") or "error") if failed else _error(response):
        return at.advise(await at.run.seen(at.tool, error, *at.call), "study")
    await at.run.learn(
        Event("tool_response", _words(response), agent=agent, tool=at.tool, call=call)
    )
    return Reply(None, "study" if failed_last else "", at.run.id)


def _error(response: Any) -> str:
    """Return the text of a result that reports a failure, else ""."""
    text = _words(response)
    if isinstance(response, Mapping):
        code = next(
            (
                response[one]
                for one in _EXIT_CODE_FIELDS
                if isinstance(response.get(one), int)
            ),
            0,
        )
        failed = (
            response.get("is_error") or response.get("isError") or response.get("error")
        )
        if failed or code or response.get("success") is False:
            return text or (
                failed if isinstance(failed, str) else json.dumps(failed or response)
            )
    found = _EXIT_CODE_PATTERN.search(text[:400])
    return text if found and int(found[1]) else ""


def _words(response: Any) -> str:
    """Return the text of a result."""
    if isinstance(response, Mapping):
        response = [response.get(one) or "" for one in _RESPONSE_TEXT_FIELDS]
    if isinstance(response, list):
        return "\n".join(filter(None, map(_words, response)))
    return "" if response is None else str(response)


async def _stop(at: _Moment) -> Reply:
    """Run the commands that the project wants before a turn ends, and decide as for any
    loop.
    """
    if at.call[1]:
        return Reply()  # a subagent's end is not the end of the turn
    listed = at.get("background_tasks")
    running = (
        [one for one in listed if isinstance(one, Mapping)]
        if type(listed) is list
        else []
    )
    busy = any(one.get("type") not in LASTING_WORK_TYPES for one in running)
    failed, answer = (
        await _judge(at) if at.settings.stop and not busy else (False, None)
    )
    learns = failed or not at.agent.event_of("end")
    return Reply(answer, "study" if learns else "", at.run.id)


async def _judge(at: _Moment) -> tuple[bool, Answer | None]:
    """Return whether a command failed, and the answer that lets the agent go on, if
    any.

    If the loop of the turn cannot be opened, the commands alone decide, once a turn.
    """
    from heedful.loop.decide import Again
    from heedful.loop.record import Evaluation

    host = at.run.host
    active = at.get("stop_hook_active") is True
    loop = await host.guarded("open the loop of a turn", _turn(at), otherwise=None)
    if loop.ended if loop else active:
        return False, None
    seconds = at.settings.seconds
    stop = dict.fromkeys(at.settings.stop)
    ran = {line: await _checked(line, at.folder, seconds) for line in stop}
    errors = [found for found in ran.values() if found]
    goes_on = True
    if loop:
        judged = Evaluation(tuple(errors), met=1 - len(errors) / len(ran))
        state = await _state(at.folder)
        which = (
            f"state {state[:16]}" if state else f"attempt {len(loop.loop.attempts) + 1}"
        )
        report = loop.report(
            f"the files of {at.folder} ({which})", digest=state, evaluation=judged
        )
        verdict = await host.guarded("decide on a turn", report, otherwise=None)
        await at.run.learn(*_ran(ran, f"{loop.loop.id}/{len(loop.loop.attempts)}"))
        goes_on = verdict is None or isinstance(verdict, Again)
    if active or not errors or not goes_on:
        return bool(errors), None
    reason = "\n\n".join(
        f"{one.message}:\n{one.evidence}".rstrip(":\n") for one in errors
    )
    return True, at.agent.block(at.name, cut_middle(reason, MAX_HOOK_CONTEXT_CHARS))


async def _turn(at: _Moment) -> ReportedLoop:
    """Open the loop of a turn; without an id of the prompt, its number and its text
    name it.
    """
    from heedful.drive.report import open_loop

    host = at.run.host
    said = [one for one in await at.run.events() if one["type"] == "user_message"]
    task = said[-1]["content"] if said else at.text("prompt")
    turn = _short(at.text("prompt_id") or f"turn-{len(said)}-{_digest(task)[:8]}")
    where: Any = {"store": host.store, "scope": host.own_scope}
    return await open_loop(
        f"{at.run.id}/{turn}", task, policy=at.settings.policy, **where
    )


def _ran(ran: Mapping[str, Finding | None], attempt: str) -> list[Event]:
    """Return the commands of a stop as calls and results, from which a session
    learns.
    """
    events = []
    for number, (line, bad) in enumerate(ran.items()):
        call = f"{attempt}/{number}"
        said = (bad.evidence or bad.message) if bad else ""
        events.append(
            Event("tool_call", tool="stop", arguments={"command": line}, call=call)
        )
        events.append(
            Event("tool_response", said, tool="stop", call=call, error=said[:300])
        )
    return events


async def _state(folder: str) -> str:
    """Return a digest of the files of a git repository that are changed, "" outside of
    one.
    """
    line = "git rev-parse HEAD && git ls-files -mdo --exclude-standard -z"
    code, text = await run_command(line, folder, seconds=10.0)
    if code != 0:
        return ""
    parts = [text]
    for name in text.partition("\n")[2].split("\0"):
        with suppress(OSError, ValueError):
            made = (Path(folder) / name).stat()
            parts.append(f"{name} {made.st_mtime_ns} {made.st_size}")
    return _digest("\0".join(parts))
