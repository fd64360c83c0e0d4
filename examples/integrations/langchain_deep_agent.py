"""A deep agent that is told, when it calls a tool, how this call failed in an earlier
run.
"""

from deepagents import create_deep_agent
from langchain.agents.middleware import ToolErrorMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from heedful import Memory
from heedful.integrations import Host
from heedful.integrations.langchain import HeedfulMiddleware


class Model(GenericFakeChatModel):
    """LangChain's fake, with tools; prints the last message of each request."""

    def bind_tools(self, tools, **options):
        return self

    def _generate(self, messages, *rest, **options):
        print("last message:", messages[-1].text)
        return super()._generate(messages, *rest, **options)


def build(command: str) -> str:
    """Build the application."""
    raise RuntimeError('Error: Cannot find module "pads"')


call = AIMessage(
    "", tool_calls=[{"name": "build", "args": {"command": "npm run pads"}, "id": "1"}]
)
memory = Memory(":memory:")
middleware = [
    HeedfulMiddleware(Host(memory=memory)),
    ToolErrorMiddleware(lambda error, _: str(error)),
]
for number in (1, 2):
    model = Model(messages=iter([call, AIMessage("I could not build it.")]))
    agent = create_deep_agent(model, tools=[build], middleware=middleware)
    agent.invoke({"messages": [("user", f"Build the application, release {number}")]})
