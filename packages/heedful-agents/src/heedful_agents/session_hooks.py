"""What heedful answers to the hooks of coding agents: JSON data in, JSON data out.

A hook that has nothing to say answers nothing. Advice is context; an action is denied
only if the settings ask for it. Learning takes too long for a hook: `Reply.work` says
what is to be done later. How each agent speaks is in `heedful_agents.agents`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from heedful.episodes.episode import Event, Limits, json_data
from heedful.episodes.error_lines import shorten_failure
from heedful.errors import StoreCorrupt, StoreNewer, StoreOlder, UnknownName
from heedful.integrations.call_host import Advice, CallHost, CallRun
from heedful.lessons.action import command_of
from heedful.lessons.render import MAX_MOMENT_CHARS
from heedful.lessons.scope import Scope
from heedful.redact import redact
from heedful.sanitize import cut_middle, redact_ends, visible
from heedful.store import episodes
from heedful.store.projects import own_db, prepare_database, project_top
from heedful.validation import (
    MAX_LOOKED_UP_CHARS,
    Fields,
    check_number,
    check_options,
    require,
)
from heedful_agents.agents import (
    Agent,
    Answer,
    Kind,
    find_agent,
    in_our_names,
    session_of,
    tool_name,
)
from heedful_agents.transcripts import FailedCall

if TYPE_CHECKING:  # only a prompt needs it
    from heedful.integrations.task_host import PromptRun

Work = Literal["", "study", "end"]
H = TypeVar("H", bound=CallHost)
# The host that an event needs, unless it is a prompt.
HOST_TYPE: type[CallHost] = CallHost
# The time of a look-up for an event; a process has half a second more for its answer.
LOOKUP_SECONDS = 2.0
# A longer text of an event is redacted and cut before anything else.
MAX_HOOK_TEXT_CHARS = 4 * Limits().content
# Fields that may be JSON as text.
_JSON_TEXT_FIELDS = frozenset({"tool_input", "tool_response"})
# Prompts that no user wrote: wake-ups, notifications and messages of other agents.
MACHINE_PROMPT_SOURCES = frozenset(
    {"system", "loop_wakeup", "schedule_wakeup", "poll_event"}
)
# Work in the background that goes on for a whole session, such as a server.
LASTING_WORK_TYPES = frozenset({"shell", "monitor"})
# The fields of a result that may have its text.
_RESPONSE_TEXT_FIELDS = (
    "stdout",
    "stderr",
    "output",
    "llmContent",
    "text_result_for_llm",
    "content",
    "text",
    "result",
)


@dataclass(frozen=True, kw_only=True)
class HookSettings:
    """The table `[hook]` of the settings.

    `stop` are commands that must exit with 0 before a turn ends; each takes at most
    `seconds`. The turn goes on as long as `policy` allows. With `deny`, a call that
    breaks a rule of the user is denied, with the rule as the reason.
    """

    stop: tuple[str, ...] = ()
    deny: bool = False
    seconds: float = 300.0
    policy: str = "default"

    def __post_init__(self) -> None:
        is_list = not isinstance(self.stop, str)
        are_lines = is_list and all(isinstance(line, str) for line in self.stop)
        allowed = 'a list of commands, as ["make test"]'
        require(are_lines, "hook.stop", self.stop, allowed)
        object.__setattr__(self, "stop", tuple(self.stop))
        require(isinstance(self.deny, bool), "hook.deny", self.deny, "true or false")
        check_number("hook.seconds", self.seconds, low=0.001, high=3_600)


def follow(
    settings: Fields,
    folder: Path,
    strict: bool = False,
    *,
    host_type: type[H],
) -> tuple[HookSettings, H]:
    """Return the rules and the host of the settings of hooks in a folder.

    Raises UsageError.
    """
    table = settings["hook"]
    check_options("[hook]", table, list(HookSettings.__dataclass_fields__))
    database = settings["db"]
    # Words only: to load an embedder takes longer than a hook may.
    memory = host_type.memory_type(
        prepare_database(database),
        Scope(settings["tenant"], settings["project"]),
        holdout=settings["holdout"],
        trust=settings["trust"],
        strict=settings["strict"],
    )
    root = str(project_top(folder))
    host = host_type(memory=memory, strict=strict, seconds=LOOKUP_SECONDS, root=root)
    # Hooks may use the user's own database for the project, too.
    user_db = str(own_db())
    if os.path.realpath(database) != os.path.realpath(user_db):
        host.everywhere = user_db
    return HookSettings(**table), host


@dataclass(frozen=True)
class Reply:
    """The `answer` to print, None for nothing, and the `work` left for the session.

    `advice` is the text of memory in the answer. A person hears the `notices` once. It
    `has_failed` if the event reports a call that failed.
    """

    answer: Answer | None = None
    work: Work = ""
    session: str = ""
    advice: str = ""
    notices: tuple[str, ...] = ()
    has_failed: bool = False


def _cut_texts(value: Any) -> Any:
    """Redact and cut each long text of a value."""
    if isinstance(value, Mapping):
        return {key: _cut_texts(content) for key, content in value.items()}
    if isinstance(value, list):
        return [_cut_texts(content) for content in value]
    is_long = isinstance(value, str) and len(value) > MAX_HOOK_TEXT_CHARS
    return redact_ends(value, MAX_HOOK_TEXT_CHARS) if is_long else value


def _cut_error(text: str) -> str:
    """Redact and cut a long error; its error lines stay."""
    if len(text) <= MAX_HOOK_TEXT_CHARS:
        return text

    return shorten_failure(redact_ends(text, MAX_LOOKED_UP_CHARS), MAX_HOOK_TEXT_CHARS)


@dataclass(frozen=True, kw_only=True)
class Moment:
    """An event of a run, with the fields of its data.

    `name` is the agent's own name of the event; fields are named as in Claude Code.
    """

    name: str
    agent: Agent
    data: Fields
    run: CallRun
    settings: HookSettings

    def get(self, field: str) -> Any:
        """Return the value of a field, or None."""
        return self.data.get(field)

    @property
    def kind(self) -> Kind:
        """The kind of the event."""
        return self.agent.events[self.name]

    def text(self, field: str) -> str:
        """Return the text of a field, "" if it has no text; it may be in parts."""
        value = self.get(field)
        if isinstance(value, list):
            texts = [part.get("text") for part in value if isinstance(part, Mapping)]
            return "\n".join(text for text in texts if isinstance(text, str))
        return value if isinstance(value, str) else ""

    @property
    def tool(self) -> str:
        """The name of the tool; a tool of an MCP server is always named as one."""
        server = self.get("mcp_server") or self.get("mcp_context")
        return tool_name(self.text("tool_name"), server)

    @property
    def arguments(self) -> Fields:
        """The arguments of the call; a value that is not an object is named "input"."""
        value = self.get("tool_input")
        return value if isinstance(value, Mapping) else {"input": value}

    @property
    def call(self) -> str:
        """The id of the call."""
        return self.text("tool_use_id")

    @property
    def subagent(self) -> str:
        """The id of the subagent that makes the call, if any."""
        return self.text("agent_id")

    @property
    def folder(self) -> str:
        """The folder of the project, or that of this process."""
        folder = os.environ.get("CLAUDE_PROJECT_DIR") or self.text("cwd")
        return folder if folder and Path(folder).is_dir() else str(Path.cwd())

    def advise(self, advice: Advice, work: Work = "") -> Reply:
        """Return the reply that shows an advice, if this event can show one."""
        if not advice or self.kind not in self.agent.takes:
            return Reply(None, work, self.run.id)
        text = cut_middle(advice.text, self.agent.max_chars)
        answer = self.agent.context(self.name, text)
        return Reply(answer, work, self.run.id, advice=text)


async def reply(
    name: str,
    data: Fields,
    host: CallHost,
    *,
    agent: str = "claude-code",
    settings: HookSettings = HookSettings(),
    failed_calls: Sequence[FailedCall] = (),
) -> Reply:
    """Return the reply to an event of a coding agent; `data` is the event as JSON data.

    A prompt needs a TaskHost. `failed_calls` are those in the agent's own file of its
    session. Those that no event reported are kept, and the reply says what helps after
    the last of them if there is nothing else to say.
    If heedful fails or takes too long, the reply is empty. Raises UnknownName and
    InvalidInput for anything that is not an event of the agent.
    """
    moment = _open_moment(name, data, host, agent=agent, settings=settings)
    last_unreported = await host.guarded(
        "keep calls that no event told",
        _keep_unreported(moment, failed_calls),
        otherwise=None,
    )
    kind = moment.kind
    # No reply explains a failure when the turn is over.
    if last_unreported is not None and kind in ("stop", "end"):
        await moment.run.keep(last_unreported.result)
    # A stop is not limited in time here: the commands of the user take theirs.
    if kind == "stop":
        return await _on_stop(moment)
    if kind == "end":
        return Reply(None, "end", moment.run.id)

    answer_event = _ANSWERS.get(kind, _after_call)
    event_reply = await host.guarded(f"answer {name}", answer_event(moment), Reply())
    if last_unreported is None:
        return event_reply
    return await host.guarded(
        "explain a call that no event told",
        _explain_unreported(moment, last_unreported, event_reply),
        event_reply,
    )


def _open_moment(
    name: str,
    data: Fields,
    host: CallHost,
    *,
    agent: str,
    settings: HookSettings,
) -> Moment:
    """Return an event with its run. Raises UnknownName and InvalidInput."""
    agent_record = find_agent(agent)
    if name not in agent_record.events:
        raise UnknownName(f"event of {agent}", name, list(agent_record.events))

    fields = dict(in_our_names(agent_record, data))
    run = host.run(session_of(fields))
    for json_field in _JSON_TEXT_FIELDS.intersection(fields):
        fields[json_field] = json_data(fields[json_field])
    texts = {field: _cut_texts(value) for field, value in fields.items()}
    error = fields.get("error")
    if isinstance(error, str):
        texts["error"] = _cut_error(error)
    kind = agent_record.events[name]
    run.room = MAX_MOMENT_CHARS if kind in agent_record.takes else 0
    return Moment(name=name, agent=agent_record, data=texts, run=run, settings=settings)


async def _keep_unreported(
    moment: Moment, failed_calls: Sequence[FailedCall]
) -> FailedCall | None:
    """Keep the failed calls that no event reported, and their results.

    The last one is returned without its result, which the reply may explain first.
    """
    run = moment.run
    memory = run.host.own_memory
    if memory is None or not failed_calls:
        return None

    answered = await memory.store.read(memory.scope, episodes.answered_calls, run.id)
    # The event of this moment reports its own call.
    reported = {moment.call, *answered}
    unreported = [failed for failed in failed_calls if failed.call.call not in reported]
    for failed in unreported:
        call = failed.call
        is_kept, _ = await run.course(call.tool, call.arguments, call.call)
        if not is_kept:
            await run.keep(call)
        if failed is not unreported[-1]:
            await run.keep(failed.result)
    return unreported[-1] if unreported else None


async def _explain_unreported(
    moment: Moment, failed: FailedCall, event_reply: Reply
) -> Reply:
    """Keep the result of a failed call; say what helps if the event has no answer."""
    result = failed.result
    work = event_reply.work or "study"
    if event_reply.answer is not None:
        await moment.run.keep(result)
        return replace(event_reply, work=work, session=moment.run.id, has_failed=True)

    advice = await moment.run.seen(
        result.tool, result.error, result.call, arguments=failed.call.arguments
    )
    return replace(moment.advise(advice, work), has_failed=True)


async def _on_start(moment: Moment) -> Reply:
    """Show what came back most often; a person hears what waits."""
    # After a resumption or a compaction, an agent does not know what it has read.
    await moment.run.keep(Event("system_event", code=moment.text("source")))
    opening = moment.advise(await moment.run.opening())
    host = moment.run.host
    if host.own_memory is None or not moment.agent.says_at_start:
        return opening

    try:
        waiting = await host.own_memory.quarantine.waiting()
    except (StoreCorrupt, StoreNewer, StoreOlder) as error:
        # The log has the reason already.
        reason = visible(redact(str(error)))
        return Reply({"systemMessage": f"heedful: its hooks do nothing: {reason}"})
    if not waiting:
        return opening
    note = f"lessons that wait for you: {len(waiting)}; next: heedful quarantine list"
    return replace(opening, notices=(note,))


async def _on_subagent(moment: Moment) -> Reply:
    """Show a subagent that begins what its session was shown at the start."""
    return moment.advise(await moment.run.opening(moment.subagent))


async def _on_prompt(moment: Moment) -> Reply:
    """Show what fits the words of the user.

    Words of a machine are only kept, as those of others: a user's are trusted.
    """
    run = cast("PromptRun", moment.run)
    prompt = moment.text("prompt")
    if not prompt.strip():
        return Reply()
    # A model writes the prompts of its subagents, perhaps in words of others.
    if moment.subagent or moment.text("source") in MACHINE_PROMPT_SOURCES:
        await run.keep(
            Event(
                "system_event",
                prompt,
                call=moment.text("prompt_id"),
                origin="outside",
            )
        )
        return Reply()

    # Not every agent has an event at the start that takes context.
    rules = await run.rules()
    advice = await run.recall(prompt, moment.text("prompt_id"))
    note = "\n".join(advice.notes)
    if note and not moment.agent.says_at_start:
        return moment.advise(advice.below(f"Tell the user: {note}\n{rules}"))
    reply = moment.advise(advice.below(rules))
    answer = {**(reply.answer or {}), "systemMessage": note} if note else reply.answer
    return replace(reply, answer=answer)


async def _before_call(moment: Moment) -> Reply:
    """Show how the action failed before; deny it if a rule of the user forbids it."""
    run = moment.run
    advice = await run.before(
        moment.tool,
        moment.arguments,
        moment.call,
        moment.subagent,
        deny=moment.settings.deny,
    )
    if advice.denies:
        text = cut_middle(advice.text, moment.agent.max_chars)
        return Reply(moment.agent.deny(moment.name, text), "", run.id)

    return moment.advise(advice)


async def _after_call(moment: Moment) -> Reply:
    """Keep the result of a call; if it failed, say what fixed that before."""
    run = moment.run
    tool = moment.tool
    call = moment.call
    agent = moment.subagent
    # Only the event after a call needs it.
    from heedful.episodes import failures

    text = _result_text(moment.get("tool_response"))
    words = text or _result_text(moment.get("error"))
    if _is_marked_as_stopped(moment) or failures.did_not_end(words):
        # The agent has read what it says.
        await run.keep(Event("system_event", words, tool=tool, origin="tool"))
        return Reply()

    is_kept, failed_before = await run.course(tool, moment.arguments, call)
    # No hook may have run before the call.
    if not is_kept:
        await run.keep(
            Event(
                "tool_call",
                agent=agent,
                tool=tool,
                arguments=moment.arguments,
                call=call,
            )
        )

    error = _error_of(moment, failures)
    if error:
        advice = await run.seen(tool, error, call, agent, arguments=moment.arguments)
        return replace(moment.advise(advice, "study"), has_failed=True)

    await run.keep(Event("tool_response", text, agent=agent, tool=tool, call=call))
    advice = Advice()
    # What could not be told before the call is told after it.
    if "before" not in moment.agent.takes:
        advice = await run.rules_about(tool, moment.arguments, call, agent)
    work: Work = "study" if failed_before else ""
    return moment.advise(advice, work)


def _is_marked_as_stopped(moment: Moment) -> bool:
    """Return True if the event says that a call was stopped, so it did not fail."""
    response = moment.get("tool_response")
    is_marked = isinstance(response, Mapping) and response.get("interrupted") is True
    return is_marked or moment.get("is_interrupt") is True


def _error_of(moment: Moment, failures: ModuleType) -> str:
    """Return what a call that has ended says of its failure; "" if it did not fail.

    `failures` knows how results report it. An agent with an event for failed calls says
    all of them so.
    """
    response = moment.get("tool_response")
    error = _result_text(moment.get("error"))
    text = _result_text(response)
    if moment.kind == "failed":
        return error or text or "error"
    is_object = isinstance(response, Mapping)
    is_marked = is_object and failures.marks_failure(response)
    has_failed = is_marked or failures.reports_failure(
        text,
        command_of(moment.arguments),
        marked=is_object or bool(moment.agent.event_of("failed")),
    )
    return text if has_failed and not error else error


def _result_text(response: Any) -> str:
    """Return the text of a result: its text fields or the texts of its parts, or JSON
    without any.
    """
    if isinstance(response, Mapping):
        texts = [_result_text(response.get(name)) for name in _RESPONSE_TEXT_FIELDS]
        return "\n".join(filter(None, texts)) or json.dumps(response, default=str)
    if isinstance(response, list):
        return "\n".join(filter(None, map(_result_text, response)))
    return "" if response is None else str(response)


# What answers an event of a kind; a call that has ended needs no other.
_ANSWERS: Mapping[Kind, Callable[[Moment], Coroutine[Any, Any, Reply]]] = {
    "start": _on_start,
    "subagent": _on_subagent,
    "prompt": _on_prompt,
    "before": _before_call,
}


async def _on_stop(moment: Moment) -> Reply:
    """Run the commands that the user wants before a turn ends, and decide.

    The turn does not end with a subagent, or with a stop while work in the background
    goes on.
    """
    if moment.subagent:
        return Reply()

    tasks = moment.get("background_tasks")
    is_busy = isinstance(tasks, list) and any(
        isinstance(task, Mapping) and task.get("type") not in LASTING_WORK_TYPES
        for task in tasks
    )

    failed = False
    reason = ""
    if moment.settings.stop and not is_busy:
        from heedful_agents import turns

        turn = turns.Turn(
            commands=moment.settings.stop,
            folder=moment.folder,
            seconds=moment.settings.seconds,
            policy=moment.settings.policy,
            prompt=moment.text("prompt"),
            prompt_id=moment.text("prompt_id"),
            went_on=moment.get("stop_hook_active") is True,
        )
        failed, reason = await turns.end_turn(moment.run, turn)

    answer = None
    if reason:
        text = cut_middle(reason, moment.agent.max_chars)
        answer = moment.agent.block(moment.name, text)
    learns = failed or not moment.agent.event_of("end")
    work: Work = "study" if learns else ""
    return Reply(answer, work, moment.run.id)
