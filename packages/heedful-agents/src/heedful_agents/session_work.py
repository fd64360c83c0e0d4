"""What a hook leaves to a process that nobody waits for: learn from a session."""

from heedful.integrations.host import Host
from heedful_agents.session_hooks import Work, follow

# What a process of this work needs; to follow the settings, too.
__all__ = ["Host", "follow", "work"]


async def work(host: Host, session: str, what: Work) -> None:
    """Do the work that a reply left: learn, and at the end forget the events."""
    run = host.run(session)
    if what == "end":
        await run.learn(ends="partial")
    else:
        await run.study()
        await host.sweep()
