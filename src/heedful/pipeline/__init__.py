"""Durable pipelines: each stage is checked, and runs again with feedback if it fails."""

from heedful.lazy import lazy

_TABLE = {"pipeline": "Guardrails Pipeline validate", "questions": "RunAnswer answer statistics"}
_HOMES, __getattr__, __dir__ = lazy(__name__, _TABLE)

__all__ = sorted(_HOMES)  # noqa: PLE0605 - the table is the list
