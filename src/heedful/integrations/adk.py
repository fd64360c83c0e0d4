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

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.set_model_response_tool import SetModelResponseTool
from google.genai import types
from pydantic import TypeAdapter, ValidationError

from heedful.integrations import RESULT_KEY
from heedful.integrations.attempts import (
    ID_KEY,
    Attempts,
    checked_host,
    keep_failure,
    keep_result,
)
from heedful.integrations.host import Host
from heedful.loop.codec import verdict_answer
from heedful.loop.decide import Done
from heedful.loop.record import Candidate
from heedful.sanitize import redact_ends

# The tool that a rejected answer calls; its declaration is sent to no model.
FEEDBACK_TOOL = "heedful_feedback"
# The author of the events that a user's messages become.
# What is kept in this process about runs that were cancelled is bounded.
MAX_INVOCATIONS = 1_000
MAX_RESULT_CHARS = 100_000


class HeedfulAdkPlugin(BasePlugin):
    """Check each answer, feed back what is wrong, and return the best in the end.

    Answers of the root agent are judged, and of agents to which it transfers; or those
    of the `agents` with these names, which you give if the root is a workflow. An agent
    that is used as a tool, also a subagent with the mode `single_turn` or `task`, is a
    tool. With `hold_back`, a call of a tool that failed
    before does not run: the model reads what happened. When the model makes the same
    call again, it runs.
    """

    def __init__(
        self, host: Host, *, hold_back: bool = False, agents: Collection[str] = ()
    ) -> None:
        super().__init__(RESULT_KEY)
        self.host = checked_host(host)
        self.hold_back = hold_back
        self.agents = frozenset(agents)
        self.runs: dict[str, _InvocationRun] = {}
        self.feedback_tool = _FeedbackTool()
        # The agents that were called as tools: each runs in an invocation of its own.
        self.tool_agents: set[str] = set()

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        """Begin the run, or go on with one that waited for a tool."""
        root = invocation_context.agent
        if getattr(root, "name", "") in self.tool_agents:
            return

        config = invocation_context.run_config
        invocation = invocation_context.invocation_id
        id = ((config and config.custom_metadata) or {}).get(ID_KEY)
        if not id:
            id = f"{invocation_context.session.id}-{invocation}"

        task = _text_of(invocation_context.user_content)
        is_live = invocation_context.live_request_queue is not None
        run = _InvocationRun(
            run=self.host.run(str(id), task),
            hold_back=self.hold_back,
            judges_root=isinstance(root, LlmAgent) and not is_live,
        )
        await run.begin()
        for oldest in list(self.runs)[: -(MAX_INVOCATIONS - 1)]:
            del self.runs[oldest]
        self.runs[invocation] = run

    async def before_agent_callback(self, *, agent: Any, callback_context: Any) -> None:
        """Note whether the answers of an agent are judged, and their type."""
        run = self.runs.get(callback_context.invocation_id)
        if run is None or not isinstance(agent, LlmAgent):
            return

        is_judged = run.judges_root and _is_reached_by_transfer(agent)
        if agent.name in self.agents or (is_judged and not self.agents):
            run.judged[agent.name] = agent.output_schema

    async def before_model_callback(
        self, *, callback_context: Any, llm_request: Any
    ) -> LlmResponse | None:
        """Show the model what memory has, and the last rejected answer."""
        run = self.runs.get(callback_context.invocation_id)
        if run is None:
            return None

        agent = callback_context.agent_name
        if agent in run.judged and run.known_answer is not None:
            text = Candidate.of(run.known_answer).text or ""
            return LlmResponse(content=_content("model", text))
        closing = run.run.repeats.closing()
        if closing:
            return LlmResponse(content=_content("model", closing))

        contents = list(llm_request.contents)
        run.lengths[agent] = len(contents)
        llm_request.contents = run.advised(contents, agent)
        llm_request.tools_dict[FEEDBACK_TOOL] = self.feedback_tool
        return None

    async def after_model_callback(
        self, *, callback_context: Any, llm_response: Any
    ) -> None:
        """Judge an answer: let it call the tool of heedful, or put the best there."""
        run = self.runs.get(callback_context.invocation_id)
        if run is None or llm_response.partial:
            return

        run.count(llm_response.usage_metadata)
        agent = callback_context.agent_name
        parts = (llm_response.content and llm_response.content.parts) or []
        text = _text_of(llm_response.content)
        run.run.repeats.hear(text)
        is_answer = text and not any(part.function_call for part in parts)
        if agent not in run.judged or not is_answer or llm_response.error_code:
            return
        # Later answers of the same invocation stay as they are.
        if isinstance(run.verdict, Done):
            return

        # The response is changed in place, so that other callbacks are called, too.
        output = _parsed(text, run.judged[agent])
        if await run.judge(output, original=parts):
            run.last_agent = agent
            run.last_length = run.lengths[agent]
            call = types.FunctionCall(name=FEEDBACK_TOOL, args={})
            parts = [*parts, types.Part(function_call=call)]
            llm_response.content = types.Content(role="model", parts=parts)
        elif isinstance(run.verdict, Done) and run.run.best is not None:
            best = Candidate.of(run.run.best).text or ""
            parts = run.best or [types.Part(text=best)]
            llm_response.content = types.Content(role="model", parts=parts)

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: Any
    ) -> dict[str, Any] | None:
        """Ask memory about a call; judge an answer that is one."""
        if isinstance(tool, AgentTool):
            self.tool_agents.add(tool.name)

        run = self.runs.get(tool_context.invocation_id)
        if run is None or tool.name == FEEDBACK_TOOL:
            return None
        if isinstance(tool, SetModelResponseTool):
            return await run.judge_object(tool_args, tool_context.agent_name)

        call = tool_context.function_call_id or ""
        held_back = await run.ask(tool.name, tool_args, call)
        if not held_back:
            return None
        run.settled.add(call)
        return {"error": held_back}

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: Any, tool_context: Any, result: Any
    ) -> None:
        """Keep the result of a call; ask memory about an error."""
        run = self.runs.get(tool_context.invocation_id)
        call = tool_context.function_call_id or ""
        is_ours = tool.name == FEEDBACK_TOOL or isinstance(tool, SetModelResponseTool)
        if run is None or is_ours or call in run.settled:
            return

        error = _error_in(result)
        if error:
            await keep_failure(run.run, tool.name, error, call)
        else:
            text = redact_ends(str(result), MAX_RESULT_CHARS)
            await keep_result(run.run, tool.name, text, call)

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: Any, tool_context: Any, error: Exception
    ) -> None:
        """Keep the error of a call, and ask memory about it."""
        run = self.runs.get(tool_context.invocation_id)
        if run is not None and isinstance(error, Exception):
            call = tool_context.function_call_id or ""
            run.settled.add(call)
            await keep_failure(run.run, tool.name, str(error), call)

    async def on_event_callback(
        self, *, invocation_context: Any, event: Event
    ) -> Event | None:
        """Keep rejected answers out of the session; add the verdict to the answer."""
        run = self.runs.get(invocation_context.invocation_id)
        if run is None or event.partial:
            return None

        tools = [call.name for call in event.get_function_calls()]
        tools += [answer.name for answer in event.get_function_responses()]
        if FEEDBACK_TOOL in tools:
            # A session keeps no partial event.
            return Event(author=event.author, partial=True)

        run.waits = bool(event.long_running_tool_ids)
        verdict = run.verdict if isinstance(run.verdict, Done) else run.run.unjudged
        verdict = run.run.repeats.stopped or verdict
        if verdict and event.author in run.judged and event.is_final_response():
            metadata = event.custom_metadata or {}
            event.custom_metadata = {**metadata, RESULT_KEY: verdict_answer(verdict)}
        return None

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        """Learn from the run, unless it waits for a tool."""
        run = self.runs.pop(invocation_context.invocation_id, None)
        if run is not None and not run.waits:
            await run.end()

    async def on_run_error_callback(
        self, *, invocation_context: Any, error: Exception
    ) -> None:
        """Learn from a run that an exception has ended."""
        run = self.runs.pop(invocation_context.invocation_id, None)
        if run is not None:
            await run.end("error")


class _FeedbackTool(BaseTool):
    """The tool that a rejected answer calls, so that ADK asks the model again."""

    def __init__(self) -> None:
        super().__init__(name=FEEDBACK_TOOL, description="Feedback on an answer.")

    async def run_async(self, *, args: Any, tool_context: Any) -> Any:
        """Return nothing: the next request has the feedback."""
        return {"status": "rejected"}


@dataclass(eq=False, kw_only=True)
class _InvocationRun(Attempts):
    """The attempts of one invocation.

    `judged` has the types of the answers of judged agents, by their names, `lengths`
    the number of contents in their last requests.
    `last_agent` gave the last rejected answer, which follows `last_length` contents.
    `settled` are the calls whose results are known. `waits` is True if the invocation
    ends with a call of a long-running tool.
    """

    judges_root: bool
    judged: dict[str, Any] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    last_agent: str = ""
    last_length: int = 0
    settled: set[str] = field(default_factory=set)
    waits: bool = False

    def count(self, usage: Any) -> None:
        """Count a call of the model."""
        completion = getattr(usage, "candidates_token_count", 0) or 0
        thoughts = getattr(usage, "thoughts_token_count", 0) or 0
        prompt = getattr(usage, "prompt_token_count", 0) or 0
        self.spend(prompt, completion + thoughts)

    async def judge_object(
        self, arguments: dict[str, Any], agent: str
    ) -> dict[str, Any] | None:
        """Judge an object that an agent with tools answers with; return what is wrong.

        An object that does not fit its type is left to ADK.
        """
        schema = self.judged.get(agent)
        if schema is None or not _fits(arguments, schema):
            return None
        if await self.judge(dict(arguments), original=dict(arguments)):
            # The result of the call has the feedback.
            feedback = self.feedback
            self.feedback = ""
            return {"error": feedback}

        best = self.best or self.run.best
        if isinstance(self.verdict, Done) and isinstance(best, dict):
            arguments.clear()
            arguments.update(best)
        return None

    def advised(
        self, contents: Sequence[types.Content], agent: str
    ) -> list[types.Content]:
        """Return the contents with what memory has, and the last rejected answer."""
        call_advice = self.call_advice()
        last = len(contents) - 1
        task = _task_place(contents, self.run.task)
        rejected = task
        if self.last_agent:
            is_same = self.last_agent == agent and self.last_length <= last + 1
            rejected = self.last_length - 1 if is_same else last

        new_contents: list[types.Content] = []
        for number, content in enumerate(contents):
            new_contents.append(content)
            texts = [
                call_advice.get(part.function_response.id or "", "")
                for part in content.parts or ()
                if part.function_response
            ]
            if number == task:
                texts.append(self.recalled)
            new_contents += [_content("user", text) for text in texts if text]
            if number == rejected and self.feedback:
                new_contents.append(_content("model", self.rejected))
                new_contents.append(_content("user", self.feedback))

        return new_contents


def _is_reached_by_transfer(agent: Any) -> bool:
    """Return True if only agents with a model lead to an agent, by transfers.

    A subagent with another mode than `chat` is a tool of the agent above it.
    """
    while isinstance(agent, LlmAgent):
        if agent.parent_agent is None:
            return True
        if agent.mode not in (None, "chat"):
            return False
        agent = agent.parent_agent
    return False


def _content(role: str, text: str) -> types.Content:
    """Return a content of a text."""
    return types.Content(role=role, parts=[types.Part(text=text)])


def _text_of(content: types.Content | None) -> str:
    """Return the text of a content, without thoughts."""
    parts = (content and content.parts) or []
    return "".join(part.text for part in parts if part.text and not part.thought)


def _task_place(contents: Sequence[types.Content], task: str) -> int:
    """Return the number of the last content with the task, that of the last of all."""
    places = [
        number
        for number, content in enumerate(contents)
        if task and content.role == "user" and task in _text_of(content)
    ]
    return places[-1] if places else len(contents) - 1


def _parsed(text: str, schema: Any) -> Any:
    """Return an answer as data if its agent answers with an object."""
    if schema is None:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _fits(arguments: dict[str, Any], schema: Any) -> bool:
    """Return False if an object does not fit the type of an agent's answers."""
    if not hasattr(schema, "model_validate"):
        return True
    try:
        TypeAdapter(schema).validate_python(arguments)
    except ValidationError:
        return False
    return True


def _error_in(result: Any) -> str:
    """Return the error that a result tells in one of ADK's ways, or ""."""
    if not isinstance(result, dict):
        return ""
    if result.get("error"):
        return str(result["error"])
    if result.get("status") == "error" or result.get("isError"):
        return str(result.get("error_message") or result.get("content") or result)
    return ""
