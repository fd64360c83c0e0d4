"""Import these from `heedful.store.runs`; this module goes when no caller is left."""

from heedful.store.runs import is_run, loop_of, report_of

__all__ = ["is_run", "loop_of", "report_of"]
