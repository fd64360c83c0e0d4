"""Traces of any agent -> episodes: `read` a file, `write` one."""

from errata.traces.gather import Limits
from errata.traces.lines import write
from errata.traces.reading import FORMATS, read

__all__ = ["FORMATS", "Limits", "read", "write"]
