"""Evaluators ready to use. Each factory returns a check: `check(candidate, context)` -> findings.

Libraries that a check needs (jsonschema, pydantic, pyarrow) are imported when it is made or run.
"""

from heedful.checks.critic import BIASES, ROLES, Role, critic, critics
from heedful.checks.grounding import (
    Claim,
    Derived,
    Evidence,
    Lexicon,
    ground,
    grounding,
    ungrounded,
)
from heedful.checks.grounding.insights import insights, precision
from heedful.checks.loading import known, load
from heedful.checks.numbers import (
    constant,
    deviation,
    finite,
    leakage,
    predictions,
    ranges,
    results,
    rows,
    skill,
    spread,
)
from heedful.checks.program import python_tests
from heedful.checks.schema import json_schema
from heedful.checks.text import characters, contains, equals, excludes, not_empty, regex, words

__all__ = [
    "BIASES",
    "Claim",
    "Derived",
    "Evidence",
    "Lexicon",
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
