"""Evaluators ready to use. Each factory returns a check: `check(candidate, context)` -> findings.

A name is imported when it is first used, and the libraries that a check needs (jsonschema,
pydantic, pyarrow) when the check is made or run: a loop pays only for the checks that it has.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_NAMES = {
    "claims": "Claim Evidence Lexicon ground grounding ungrounded",
    "claims.insights": "insights precision",
    "critique": "BIASES ROLES Role critic critics",
    "loading": "known load",
    "numbers": "constant deviation finite leakage predictions ranges results rows skill spread",
    "program": "python_tests",
    "schema": "json_schema",
    "text": "characters contains equals excludes not_empty regex words",
}
_HOMES = {name: f"{__name__}.{home}" for home, names in _NAMES.items() for name in names.split()}

if TYPE_CHECKING:
    from heedful.checks.claims import (
        Claim,
        Evidence,
        Lexicon,
        ground,
        grounding,
        ungrounded,
    )
    from heedful.checks.claims.insights import insights, precision
    from heedful.checks.critique import BIASES, ROLES, Role, critic, critics
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

__all__ = ["BIASES", "Claim", "Evidence", "Lexicon", "ROLES", "Role", "characters"]
__all__ += ["constant", "contains", "critic", "critics", "deviation", "equals", "excludes"]
__all__ += ["finite", "ground", "grounding", "insights", "json_schema", "known", "leakage", "load"]
__all__ += ["not_empty", "precision", "predictions", "python_tests", "ranges", "regex", "results"]
__all__ += ["rows", "skill", "spread", "ungrounded", "words"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
