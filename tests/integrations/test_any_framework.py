"""Frameworks without a module of their own: what their page says of tools and async."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import dspy
import pytest
from agno.agent import Agent
from agno.models.base import Model as AgnoModel
from agno.models.response import ModelResponse
from dspy.utils import DummyLM
from smolagents import ChatMessage, Model, ToolCallingAgent, tool

import heedful
from heedful import run_sync
from scripts.run_docs import blocks
from tests.hosts import patient_host
from tests.integrations.test_hosts import ERROR, memory_in, severity

PAGE = Path("docs/any-framework.md").read_text(encoding="utf-8")
COMMAND = {"command": "npm run pads"}


def shell(command: str) -> str:
    """Run a command.

    Args:
        command: the command
    """
    raise RuntimeError(ERROR)


def page_function(name: str) -> Any:
    """Return a function of a program of the page."""
    program = next(
        block.body for block in blocks(PAGE) if block.title == "any_tools.py"
    )
    tree = ast.parse(program)
    statements: list[ast.stmt] = [
        node
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.FunctionDef) and node.name == name)
    ]
    space: dict[str, Any] = {}
    exec(compile(ast.Module(statements, []), "page", "exec"), space)
    return space[name]


class Smol(Model):
    """A model of smolagents that calls the tool, and then answers."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = [("shell", COMMAND), ("final_answer", {"answer": "gave up"})]
        self.asked = ""

    def generate(self, messages: Any, *arguments: Any, **_: Any) -> ChatMessage:
        self.asked = str(messages[-1].content)
        name, options = self.calls.pop(0)
        function = {"name": name, "arguments": json.dumps(options)}
        call: Any = {"id": "1", "type": "function", "function": function}
        return ChatMessage(role="assistant", tool_calls=[call])


def ask_smolagents(watched_shell: Any) -> str:
    model = Smol()
    agent = ToolCallingAgent([tool(watched_shell)], model, verbosity_level=0)
    agent.run("build it")
    return model.asked


def ask_dspy(watched_shell: Any) -> str:
    step = {"next_thought": "", "next_tool_name": "shell", "next_tool_args": COMMAND}
    last_step = {**step, "next_tool_name": "finish", "next_tool_args": {}}
    model = DummyLM([step, last_step, {"reasoning": "", "answer": "gave up"}])
    with dspy.context(lm=model):
        react = dspy.ReAct("task -> answer", tools=[watched_shell])
        return str(react(task="build it").trajectory["observation_0"])


@pytest.mark.parametrize("ask", [ask_dspy, ask_smolagents])
def test_a_watched_tool_tells_what_is_known_of_its_error(
    ask: Any, tmp_path: Path
) -> None:
    watch: Any = page_function("watched")
    host = patient_host(memory=memory_in(tmp_path), strict=True)
    outputs = []
    for task in ("build it", "build the app"):
        run = host.run(task=task)
        outputs.append(ask(watch(run, shell)))
        run_sync(run.learn(ends="failure"))
    assert ["has not worked since" in text for text in outputs] == [False, True]


class Agno(AgnoModel):
    """A model of Agno that answers wrong, and then right."""

    answers = ("high", "P1")

    def invoke(self, messages: Any, **_: Any) -> ModelResponse:
        number = "answer with one of" in str(messages[-1].content)
        return ModelResponse(role="assistant", content=self.answers[number])

    async def ainvoke(self, messages: Any, **_: Any) -> ModelResponse:
        return self.invoke(messages)

    invoke_stream: Any = invoke
    ainvoke_stream: Any = invoke
    _parse_provider_response: Any = invoke
    _parse_provider_response_delta: Any = invoke


async def test_an_asynchronous_agent_answers_until_right(tmp_path: Path) -> None:
    agent = Agent(model=Agno(id="scripted"), telemetry=False)
    hints: list[str] = []

    @heedful.self_correcting(checks=[severity], memory=memory_in(tmp_path), store=None)
    async def grade(task: str, hint: str) -> Any:
        hints.append(hint)
        return (await agent.arun(f"{task}\n\n{hint}")).content

    assert await grade("the pump leaks") == "P1"
    assert await grade("the lamp blinks") == "P1"
    assert len(hints) == 3
