"""Import these from `heedful.store.runs`; this module goes when no caller is left."""

from heedful.store.runs import AttemptReport, Report, StageReport

__all__ = ["AttemptReport", "Report", "StageReport"]
