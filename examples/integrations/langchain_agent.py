"""A LangChain agent whose answers are checked; the model is LangChain's fake.

The second question gets the lesson of the first: the model is told before it answers.
"""

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from heedful import Finding
from heedful.integrations import Host
from heedful.integrations.langchain import HeedfulMiddleware


class Model(GenericFakeChatModel):
    """Prints what it is asked, and answers by the script."""

    def _generate(self, messages, *rest, **options):
        print("asked:", *(one.text for one in messages), sep="\n")
        return super()._generate(messages, *rest, **options)


def severity(answer, context):
    """Check that an answer is a severity."""
    if answer not in ("P0", "P1", "P2", "P3"):
        yield Finding(
            "severity", f"{answer!r} is no severity", fix="answer with one of P0 to P3"
        )


model = Model(messages=iter([AIMessage("very high"), AIMessage("P1"), AIMessage("P2")]))
host = Host(memory=":memory:", checks=[severity], memory_key="severity")
agent = create_agent(model, middleware=[HeedfulMiddleware(host)])

for question in ("How severe: the pump leaks", "How severe: the lamp blinks"):
    state = agent.invoke({"messages": [("user", question)]})
    print("answer:", state["messages"][-1].text)
