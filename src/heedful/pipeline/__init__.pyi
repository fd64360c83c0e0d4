# Made by scripts/stub.py from the table in __init__.py.
from heedful.pipeline.pipeline import Guardrails, Pipeline, validate
from heedful.pipeline.questions import RunAnswer, answer, statistics
__all__ = ['Guardrails', 'Pipeline', 'RunAnswer', 'answer', 'statistics', 'validate']
