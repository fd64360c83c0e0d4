"""What heedful answers to the hooks of coding agents, prompts among them, and learns.

A hook that has nothing to say answers nothing. Advice is context; an action is denied
only if the settings ask for it. Learning takes too long for a hook: `Reply.work` says
what is to be done later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from heedful.episodes.episode import Event
from heedful.integrations.task_host import PromptRun, TaskHost
from heedful_agents.call_hooks import (
    HookSettings,
    Moment,
    Reply,
    answer_call,
    answer_moment,
    follow,
    open_moment,
)
from heedful_agents.transcripts import FailedCall

# What a process of hooks makes of the settings; `hook` asks the module for both.
__all__ = ["HOST_TYPE", "HookSettings", "Reply", "follow", "reply"]
HOST_TYPE = TaskHost
# Prompts that no user wrote: wake-ups, notifications and messages of other agents.
MACHINE_PROMPT_SOURCES = frozenset(
    {"system", "loop_wakeup", "schedule_wakeup", "poll_event"}
)


async def reply(
    name: str,
    data: Mapping[str, Any],
    host: TaskHost,
    *,
    agent: str = "claude-code",
    settings: HookSettings = HookSettings(),
    failed_calls: Sequence[FailedCall] = (),
) -> Reply:
    """Return the reply to an event of a coding agent; `data` is the event as JSON data.

    `failed_calls` are calls with their results, of which perhaps no event told. They
    are kept, and what helps after the last one is said if nothing else is.
    If heedful fails or takes too long, the reply is empty. Raises UnknownName and
    InvalidInput for anything that is not an event of the agent.
    """
    moment = open_moment(name, data, host.run, agent=agent, settings=settings)
    answer = _on_prompt if moment.kind == "prompt" else answer_call
    return await answer_moment(moment, answer, failed_calls)


async def _on_prompt(moment: Moment[PromptRun]) -> Reply:
    """Show what fits the words of the user.

    Words of a machine are only kept, as those of others: a user's are trusted.
    """

    prompt = moment.text("prompt")
    if not prompt.strip():
        return Reply()
    # A model writes the prompts of its subagents, perhaps in words of others.
    if moment.subagent or moment.text("source") in MACHINE_PROMPT_SOURCES:
        await moment.run.keep(
            Event(
                "system_event",
                prompt,
                call=moment.text("prompt_id"),
                origin="outside",
            )
        )
        return Reply()

    # Not every agent has an event at the start that takes context.
    rules = await moment.run.rules()
    advice = await moment.run.recall(prompt, moment.text("prompt_id"))
    note = "\n".join(advice.notes)
    if note and not moment.agent.says_at_start:
        return moment.advise(advice.below(f"Tell the user: {note}\n{rules}"))
    reply = moment.advise(advice.below(rules))
    answer = {**(reply.answer or {}), "systemMessage": note} if note else reply.answer
    return replace(reply, answer=answer)
