"""Evaluators ready to use. Each factory returns a check: `check(candidate, context)` -> findings.

Libraries that a check needs (jsonschema, pydantic, pyarrow) are imported when it is made or run.
"""

from errata.checks.claim import Claim
from errata.checks.critic import critic, critics
from errata.checks.evidence import Evidence
from errata.checks.files import results
from errata.checks.grounding import ground, grounding, ungrounded
from errata.checks.insights import insights, precision
from errata.checks.loading import known, load
from errata.checks.numbers import (
    constant,
    deviation,
    finite,
    leakage,
    predictions,
    ranges,
    rows,
    skill,
    spread,
)
from errata.checks.program import python_tests
from errata.checks.roles import BIASES, ROLES, Role
from errata.checks.schema import json_schema
from errata.checks.text import characters, contains, equals, excludes, not_empty, regex, words

__all__ = [
    "BIASES",
    "Claim",
    "Evidence",
    "ROLES",
    "Role",
    "characters",
    "constant",
    "contains",
    "critic",
    "critics",
    "deviation",
    "equals",
    "excludes",
    "finite",
    "ground",
    "grounding",
    "insights",
    "json_schema",
    "known",
    "leakage",
    "load",
    "not_empty",
    "precision",
    "predictions",
    "python_tests",
    "ranges",
    "regex",
    "results",
    "rows",
    "skill",
    "spread",
    "ungrounded",
    "words",
]
