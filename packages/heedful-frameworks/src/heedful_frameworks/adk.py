"""heedful for Google ADK: a plugin that lets agents answer until they are right.

    host = Host(checks=[…], memory_key="triage")
    App(name="desk", root_agent=agent, plugins=[HeedfulAdkPlugin(host)])

What memory shows, the last rejected answer and the feedback on it are in the requests
to the model only; a session has neither. ADK asks a model again only after a call of a
tool, so a rejected answer becomes a call of a tool of heedful, which no model sees and
no session keeps. The id of a run is `RunConfig(custom_metadata={"heedful_id": …})`: a
run with the id of an earlier one, which may have been killed, goes on with it. By
default, the id comes from the session and the invocation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.set_model_response_tool import SetModelResponseTool
from google.genai import types

from heedful.episodes.episode import json_data
from heedful.integrations.attempts import (
    ID_KEY,
    Adapter,
    Attempts,
    Role,
    place_of,
)
from heedful.integrations.host import Host
from heedful.integrations.results import RESULT_KEY
from heedful.loop.codec import verdict_answer
from heedful.loop.decide import Done
from heedful.loop.record import Usage
from heedful.models.answers import usage_of
from heedful.validation import Document


def _in_run(work: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return a callback that gets the run of its invocation; without one, do nothing.

    ADK passes an invocation as a context, whose name depends on the callback.
    """

    @wraps(work)
    async def callback(plugin: HeedfulAdkPlugin, **arguments: Any) -> Any:
        for name, value in arguments.items():
            if name.endswith("_context") and value.invocation_id in plugin.runs:
                return await work(plugin, plugin.runs[value.invocation_id], **arguments)
        return None

    return callback


class HeedfulAdkPlugin(Adapter, BasePlugin):
    """Check each answer, feed back what is wrong, and return the best in the end.

    Answers of the root agent are judged, and of agents to which it transfers; or those
    of the `agents` with these names, which you give if the root is a workflow. An agent
    that is used as a tool, also a subagent with the mode `single_turn` or `task`, is a
    tool. With `hold_back`, a call of a tool that failed
    before does not run: the model reads what happened. When the model makes the same
    call again, it runs.
    """

    framework = "Google ADK"

    def __init__(
        self, host: Host, *, hold_back: bool = False, agents: Collection[str] = ()
    ) -> None:
        Adapter.__init__(self, host, hold_back=hold_back)
        BasePlugin.__init__(self, RESULT_KEY)
        self.agents = frozenset(agents)
        # The agents that were called as tools: each runs in an invocation of its own.
        self.tool_agents: set[str] = set()

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        """Begin the run, or go on with one that waited for a tool."""
        root = invocation_context.agent
        if getattr(root, "name", "") in self.tool_agents:
            return

        invocation = invocation_context.invocation_id
        config = invocation_context.run_config
        metadata = getattr(config, "custom_metadata", None) or {}
        id = metadata.get(ID_KEY) or f"{invocation_context.session.id}-{invocation}"
        task = _text_of(invocation_context.user_content)
        is_live = invocation_context.live_request_queue is not None
        run = _InvocationRun(
            run=self.host.run(str(id), task),
            hold_back=self.hold_back,
            judges_root=isinstance(root, LlmAgent) and not is_live,
        )
        await run.begin()
        self.keep_open(invocation, run)

    @_in_run
    async def before_agent_callback(
        self, run: _InvocationRun, *, agent: Any, callback_context: Any
    ) -> None:
        """Note whether the answers of an agent are judged, and their type."""
        is_judged = run.judges_root and _is_reached_by_transfer(agent)
        if agent.name in self.agents or (is_judged and not self.agents):
            run.judged[agent.name] = getattr(agent, "output_schema", None)

    @_in_run
    async def before_model_callback(
        self, run: _InvocationRun, *, callback_context: Any, llm_request: Any
    ) -> LlmResponse | None:
        """Show the model what memory has, and the last rejected answer."""
        text = run.early_answer()
        if text:
            return LlmResponse(content=_content("assistant", text))

        contents = llm_request.contents
        is_task = [
            content.role == "user" and run.run.task in _text_of(content)
            for content in contents
        ]
        llm_request.contents = run.advised(
            contents,
            task=place_of(is_task, sought=True),
            calls=_result_calls,
            message=_content,
        )
        llm_request.tools_dict[FEEDBACK_TOOL] = FunctionTool(heedful_feedback)
        return None

    @_in_run
    async def after_model_callback(
        self, run: _InvocationRun, *, callback_context: Any, llm_response: Any
    ) -> None:
        """Judge an answer: let it call the tool of heedful, or put the best there."""
        if llm_response.partial:
            return

        run.run.spent += usage_of(llm_response.usage_metadata) or Usage(1)
        parts = (llm_response.content and llm_response.content.parts) or []
        text = _text_of(llm_response.content)
        run.hear(text)
        agent = callback_context.agent_name
        is_answer = text and not any(part.function_call for part in parts)
        # Later answers of the same invocation stay as they are.
        is_over = isinstance(run.verdict, Done) or llm_response.error_code
        if agent not in run.judged or not is_answer or is_over:
            return

        # The response is changed in place, so that other callbacks are called, too.
        output = text if run.judged[agent] is None else json_data(text)
        if await run.judge(output):
            call = types.FunctionCall(name=FEEDBACK_TOOL, args={})
            parts = [*parts, types.Part(function_call=call)]
        elif run.has_better:
            parts = [types.Part(text=run.best_text)]
        llm_response.content = types.Content(role="model", parts=parts)

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: Document, tool_context: Any
    ) -> Document | None:
        """Ask memory about a call, unless an answer is given by it."""
        if isinstance(tool, AgentTool):
            self.tool_agents.add(tool.name)

        run = self.runs.get(tool_context.invocation_id)
        if run is None or tool.name in (FEEDBACK_TOOL, SetModelResponseTool.NAME):
            return None

        held_back = await run.ask(tool.name, tool_args, tool_context.function_call_id)
        return {"error": held_back} if held_back else None

    @_in_run
    async def after_tool_callback(
        self,
        run: _InvocationRun,
        *,
        tool: BaseTool,
        tool_args: Any,
        tool_context: Any,
        result: Any,
    ) -> Document | None:
        """Keep the result of a call; judge an answer that is one."""
        if tool.name == SetModelResponseTool.NAME:
            return await run.judge_object(tool_context)

        error = _error_in(result)
        text = error or str(result)
        await run.keep(
            tool.name, text, tool_context.function_call_id, failed=bool(error)
        )
        return None

    @_in_run
    async def on_tool_error_callback(
        self,
        run: _InvocationRun,
        *,
        tool: BaseTool,
        tool_args: Any,
        tool_context: Any,
        error: Exception,
    ) -> None:
        """Keep the error of a call, and ask memory about it."""
        await run.keep(
            tool.name, str(error), tool_context.function_call_id, failed=True
        )

    @_in_run
    async def on_event_callback(
        self, run: _InvocationRun, *, invocation_context: Any, event: Event
    ) -> Event | None:
        """Keep rejected answers out of the session; add the verdict to the answer."""
        if event.partial:
            return None

        calls = [*event.get_function_calls(), *event.get_function_responses()]
        if any(call.name == FEEDBACK_TOOL for call in calls):
            # A session keeps no partial event.
            return Event(author=event.author, partial=True)

        verdict = run.done
        if verdict and event.author in run.judged and event.is_final_response():
            metadata = event.custom_metadata or {}
            event.custom_metadata = {**metadata, RESULT_KEY: verdict_answer(verdict)}
        return None

    @_in_run
    async def after_run_callback(
        self, run: _InvocationRun, *, invocation_context: Any
    ) -> None:
        """Learn from the run, which may go on if it waits for a tool."""
        del self.runs[invocation_context.invocation_id]
        await run.end()

    @_in_run
    async def on_run_error_callback(
        self, run: _InvocationRun, *, invocation_context: Any, error: Exception
    ) -> None:
        """Learn from a run that an exception has ended."""
        del self.runs[invocation_context.invocation_id]
        await run.end("error")


def heedful_feedback() -> None:
    """Say that the answer is rejected: the next request has the feedback."""


# The tool that a rejected answer calls, so that ADK asks the model again; its
# declaration is sent to no model.
FEEDBACK_TOOL = heedful_feedback.__name__


@dataclass(eq=False, kw_only=True)
class _InvocationRun(Attempts):
    """The attempts of one invocation.

    `judged` has the types of the answers of judged agents, by their names.
    """

    judges_root: bool
    judged: Document = field(default_factory=dict)

    async def judge_object(self, context: Any) -> Document | None:
        """Judge the object with which a tool of ADK answers; return what is wrong."""
        actions = context.actions
        if context.agent_name not in self.judged or actions.set_model_response is None:
            return None

        if await self.judge(actions.set_model_response):
            actions.set_model_response = None
            # The result of the call has the feedback.
            feedback = self.feedback
            self.feedback = ""
            return {"error": feedback}

        if self.has_better:
            actions.set_model_response = self.run.best
        return None


def _is_reached_by_transfer(agent: Any) -> bool:
    """Return True if only agents with a model lead to an agent, by transfers.

    A subagent with another mode than `chat` is a tool of the agent above it.
    """
    while isinstance(agent, LlmAgent) and agent.mode in (None, "chat"):
        agent = agent.parent_agent
    return agent is None


def _content(role: Role, text: str) -> types.Content:
    """Return a content of a text."""
    return types.UserContent(text) if role == "user" else types.ModelContent(text)


def _result_calls(content: types.Content) -> list[str]:
    """Return the ids of the calls whose results are in a content."""
    results = [part.function_response for part in content.parts or ()]
    return [result.id or "" for result in results if result]


def _text_of(content: types.Content | None) -> str:
    """Return the text of a content, without thoughts."""
    parts = (content and content.parts) or []
    return "".join(part.text for part in parts if part.text and not part.thought)


def _error_in(result: Any) -> str:
    """Return the error that a result tells in one of ADK's ways, or ""."""
    if not isinstance(result, dict):
        return ""
    is_error = result.get("status") == "error" or bool(result.get("isError"))
    error = result.get("error") or (is_error and result.get("error_message"))
    return str(error or (result if is_error else ""))
