"""What a hook leaves to a process that nobody waits for: learn from a session."""

from heedful.integrations.host import Host
from heedful_agents.call_hooks import Work, follow

__all__ = ["HOST_TYPE", "follow", "work"]
HOST_TYPE = Host


async def work(host: Host, session: str, what: Work) -> None:
    """Do the work that a reply left: learn, and at the end forget the events."""
    run = host.run(session)
    if what == "end":
        await run.learn(ends="partial")
    else:
        await run.study()
        await host.sweep()
