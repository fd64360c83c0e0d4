"""Host (b): pipelines whose stages are checked and run again with feedback, durably."""

from heedful.pipeline.pipeline import Guardrails, Pipeline
from heedful.pipeline.questions import RunAnswer, answer, statistics

__all__ = ["Guardrails", "Pipeline", "RunAnswer", "answer", "statistics"]
