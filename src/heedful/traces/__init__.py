"""Traces of any agent -> episodes: `read` a file, `write` one."""

from heedful.traces.gather import Limits
from heedful.traces.lines import write
from heedful.traces.reading import FORMATS, read

__all__ = ["FORMATS", "Limits", "read", "write"]
