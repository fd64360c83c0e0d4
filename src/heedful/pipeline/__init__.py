"""Durable pipelines: each stage is checked, and runs again with feedback if it
fails.
"""

from heedful.pages.questions import RunAnswer, answer, statistics
from heedful.pipeline.pipeline import Guardrails, Pipeline, validate

__all__ = ["Guardrails", "Pipeline", "RunAnswer", "answer", "statistics", "validate"]
