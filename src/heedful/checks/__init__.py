"""Factories of checks. A check is called as `check(candidate, context)` and returns findings.

A factory returns a check. It is imported when it is first used; jsonschema, pydantic and pyarrow
are imported when a check needs them.
"""

from heedful.lazy import lazy

_TABLE = {
    "claims": "Claim Evidence Lexicon ground grounding",
    "claims.insights": "insights precision",
    "critique": "BIASES ROLES Role calibrate critic critics",
    "loading": "known load",
    "numbers": "finite predictions ranges results rows",
    "program": "python_tests",
    "schema": "json_schema",
    "text": "characters contains equals excludes not_empty regex words",
}
_HOMES, __getattr__, __dir__ = lazy(__name__, _TABLE)

__all__ = sorted(_HOMES)  # noqa: PLE0605 - the table is the list
