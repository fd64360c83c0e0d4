"""heedful in other people's agents: the core (`Host`), and a module a framework.

A module imports its framework and the core, nothing else, and is imported by its own
name, such as `heedful_frameworks.langchain`. No framework is pinned. An adapter for
another framework drives the `Attempts` of each run.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the hook process decides when to import the core
    from heedful.integrations.attempts import Attempts
    from heedful.integrations.host import Host
    from heedful.integrations.results import verdict_of

__all__ = ["Attempts", "Host", "verdict_of"]
# The hook process decides when to import the core.
_HOMES = {
    "Attempts": "heedful.integrations.attempts",
    "Host": "heedful.integrations.host",
    "verdict_of": "heedful.integrations.results",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first needed."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
