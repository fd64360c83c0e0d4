"""heedful inside the agents of others: the core (`Host`), and a module for each framework.

A module imports its framework and the core, nothing else, and is imported by its own name, such as
`heedful.integrations.langchain`. No framework is pinned.
"""

from heedful.integrations.host import Advice, Host, HostRun

__all__ = ["Advice", "Host", "HostRun"]
