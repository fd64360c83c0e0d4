"""Read the traces of any agent as episodes, and find the mistakes in them."""

from heedful.traces.episode import Limits
from heedful.traces.messages import write
from heedful.traces.reading import FORMATS, read

__all__ = ["FORMATS", "Limits", "read", "write"]
