"""Google ADK for the table of hosts: a model made of its base class, and the tool
`shell`.

ADK ships no fake model.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent, RunConfig
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmResponse
from google.adk.plugins import ReflectAndRetryToolPlugin
from google.adk.runners import InMemoryRunner
from google.genai import types
from pydantic import PrivateAttr

from heedful.errors import HeedfulError
from heedful.integrations import Host, verdict_of
from heedful.integrations.attempts import ID_KEY
from heedful_frameworks.adk import HeedfulAdkPlugin
from tests.integrations.doubles import OK, Call, Driven, Results, Script, shell_of

USAGE = types.GenerateContentResponseUsageMetadata(
    prompt_token_count=10, candidates_token_count=5
)


class Scripted(BaseLlm):
    """A model that takes the turns of a script in order, and repeats the last."""

    model: str = "scripted"
    _script: Script = PrivateAttr()
    _driven: Driven = PrivateAttr()

    def __init__(self, script: Script, driven: Driven) -> None:
        super().__init__(model="scripted")
        self._script = script
        self._driven = driven

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self._driven.prompts.append("\n".join(map(text_of, llm_request.contents)))
        number = len(self._driven.prompts)
        turn = self._script[min(number, len(self._script)) - 1]
        if isinstance(turn, Exception):
            raise turn
        if isinstance(turn, Call):
            call = types.FunctionCall(
                name="shell", args={"command": turn.command}, id=f"call-{number}"
            )
            part = types.Part(function_call=call)
        else:
            part = types.Part(text=turn.text)
        parts = [part]
        if isinstance(turn, Call) and turn.text:
            parts.insert(0, types.Part(text=turn.text))
        if isinstance(turn, Call) and turn.provided:
            result = types.CodeExecutionResult(output=turn.provided)
            parts.insert(0, types.Part(code_execution_result=result))
        content = types.Content(role="model", parts=parts)
        if stream and part.text:
            yield LlmResponse(content=content, partial=True)
        yield LlmResponse(content=content, usage_metadata=USAGE)


def text_of(content: types.Content) -> str:
    """Return all texts of a content, also the result of a tool."""
    texts = []
    for part in content.parts or ():
        if part.function_response:
            texts.append(str(part.function_response.response))
        texts.append(part.text or "")
    return "\n".join(filter(None, texts))


def shell_agent(
    script: Script, driven: Driven, results: Results = OK, **options: Any
) -> LlmAgent:
    """Return an agent with the tool `shell`."""
    options.setdefault("tools", [shell_of(driven.commands, results)])
    options.setdefault("name", "desk")
    return LlmAgent(model=Scripted(script, driven), **options)


def runner_of(agent: Any, *plugins: Any) -> InMemoryRunner:
    """Return a runner; an error of a tool goes to the model."""
    all_plugins = [*plugins, ReflectAndRetryToolPlugin()]
    runner = InMemoryRunner(
        app=App(name="tests", root_agent=agent, plugins=all_plugins)
    )
    runner.auto_create_session = True
    return runner


async def run(
    runner: InMemoryRunner, task: str, session: str = "chat", id: str = "", **more: Any
) -> list[Any]:
    """Return the events of one invocation. Raises what a plugin raised as itself."""
    metadata = {ID_KEY: id} if id else None
    try:
        return [
            event
            async for event in runner.run_async(
                user_id="user",
                session_id=session,
                new_message=types.UserContent(task),
                run_config=RunConfig(custom_metadata=metadata, **more),
            )
        ]
    except RuntimeError as error:
        if isinstance(error.__cause__, HeedfulError):
            raise error.__cause__ from error
        raise


async def drive(
    host: Host,
    task: str,
    script: Script,
    *,
    id: str,
    results: Results = OK,
    hold_back: bool = False,
) -> Driven:
    driven = Driven()
    agent = shell_agent(script, driven, results)
    runner = runner_of(agent, HeedfulAdkPlugin(host, hold_back=hold_back))
    events = await run(runner, task, id=id)
    driven.answer = text_of(events[-1].content or types.Content())
    driven.verdict = verdict_of(events[-1])
    return driven
