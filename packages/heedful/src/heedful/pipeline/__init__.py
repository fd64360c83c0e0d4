"""Durable pipelines: each stage is checked, and runs again with feedback if it
fails.
"""

from heedful.pages.questions import answer
from heedful.pipeline.pipeline import Pipeline, validate
from heedful.pipeline.thresholds import Guardrails

__all__ = ["Guardrails", "Pipeline", "answer", "validate"]
