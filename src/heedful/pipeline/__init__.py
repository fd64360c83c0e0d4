"""Durable pipelines: each stage is checked, and runs again with feedback if it fails."""

from heedful.pipeline.pipeline import Guardrails, Pipeline, validate
from heedful.pipeline.questions import RunAnswer, answer, statistics

__all__ = ["Guardrails", "Pipeline", "RunAnswer", "answer", "statistics", "validate"]
