"""Traces of any agent -> episodes, and what these show: `read` a file, `write` one."""

from heedful.traces.episode import Limits
from heedful.traces.messages import write
from heedful.traces.reading import FORMATS, read

__all__ = ["FORMATS", "Limits", "read", "write"]
