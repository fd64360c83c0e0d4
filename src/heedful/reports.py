"""Import these from `heedful.store.runs`; this module goes when no caller is left."""

from heedful.store.runs import Report, StageAttempt, StageReport

__all__ = ["StageAttempt", "Report", "StageReport"]
