"""Read the traces of any agent as episodes, and find the mistakes in them."""

from heedful.lazy import lazy

_TABLE = {"episode": "Limits", "messages": "write", "reading": "FORMATS read"}
_HOMES, __getattr__, __dir__ = lazy(__name__, _TABLE)

__all__ = sorted(_HOMES)  # noqa: PLE0605 - the table is the list
