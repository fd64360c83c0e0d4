"""Read the traces of any agent as episodes, and find the mistakes in them.

A name is imported when it is first used: a hook process needs the records of events,
and not what reads files.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # as `__getattr__` imports them
    from heedful.episodes.episode import Limits
    from heedful.episodes.readers.base import Reader
    from heedful.episodes.readers.heedful import write
    from heedful.episodes.reading import read

    FORMATS: dict[str, type[Reader]]

__all__ = ["FORMATS", "Limits", "read", "write"]
_HOMES = {
    "Limits": "episode",
    "write": "readers.heedful",
    "FORMATS": "reading",
    "read": "reading",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_HOMES[name]}")
    # Other packages add formats, so they are looked for when somebody asks.
    value = module.formats() if name == "FORMATS" else getattr(module, name)
    globals()[name] = value
    return value
