"""Host (b): pipelines whose stages are checked and run again with feedback, durably."""

from heedful.pipeline.pipeline import Guardrails, Pipeline

__all__ = ["Guardrails", "Pipeline"]
