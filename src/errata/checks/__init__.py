"""Evaluators ready to use. Each factory returns a check: `check(candidate, context)` -> findings.

Libraries that a check needs (jsonschema, pydantic) are imported when a check is made or run.
"""

from errata.checks.loading import known, load
from errata.checks.program import python_tests
from errata.checks.schema import json_schema
from errata.checks.text import characters, contains, equals, excludes, not_empty, regex, words

__all__ = [
    "characters",
    "contains",
    "equals",
    "excludes",
    "json_schema",
    "known",
    "load",
    "not_empty",
    "python_tests",
    "regex",
    "words",
]
