"""Read the traces of any agent as episodes, and find the mistakes in them.

`scripts/stub.py` makes `__init__.pyi` from the table below.
"""

from importlib import import_module
from typing import Any

_HOMES = {name: f"{__name__}.reading" for name in ("FORMATS", "read")}
_HOMES |= {"Limits": f"{__name__}.episode", "write": f"{__name__}.messages"}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - the table is the list


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'heedful.traces' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
