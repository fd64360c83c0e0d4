"""heedful inside the agents of others: the core (`Host`), and a module for each framework.

A module imports its framework and the core, nothing else, and is imported by its own name, such as
`heedful.integrations.langchain`. No framework is pinned.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the hook process decides when to import the core
    from heedful.integrations.host import Advice, Host, HostRun

__all__ = ["Advice", "Host", "HostRun"]


def __getattr__(name: str) -> Any:
    """Import a name of the core when it is first needed."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from heedful.integrations import host

    return getattr(host, name)
