"""Evaluators ready to use. Each factory returns a check: `check(candidate, context)` -> findings.

Libraries that a check needs (jsonschema, pydantic) are imported when a check is made or run.
"""

from errata.checks.critic import critic, critics
from errata.checks.loading import known, load
from errata.checks.program import python_tests
from errata.checks.roles import BIASES, ROLES, Role
from errata.checks.schema import json_schema
from errata.checks.text import characters, contains, equals, excludes, not_empty, regex, words

__all__ = [
    "BIASES",
    "ROLES",
    "Role",
    "characters",
    "contains",
    "critic",
    "critics",
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
