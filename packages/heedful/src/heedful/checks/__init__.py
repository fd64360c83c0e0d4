"""Factories of checks. A check is called as `check(candidate, context)` and returns
findings.

A factory returns a check. It is imported when it is first used; jsonschema, pydantic
and pyarrow are imported when a check needs them. `scripts/stub.py` makes `__init__.pyi`
from the table below.
"""

from importlib import import_module
from typing import Any

from heedful.errors import MissingAttribute

_NAMES = {
    "claims": "ground grounding",
    "claims.evidence": "Evidence Lexicon",
    "claims.insights": "insights precision",
    "claims.sentence": "Claim",
    "critique": "BIASES ROLES Role calibrate critic critics",
    "json_schemas": "json_schema",
    "loading": "known load",
    "numbers": "finite predictions ranges results rows",
    "program": "python_tests",
    "text": "characters contains equals excludes not_empty regex words",
}
_HOMES = {
    name: f"{__name__}.{home}"
    for home, names in _NAMES.items()
    for name in names.split()
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - the table is the list


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise MissingAttribute(__name__, name, __all__)
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value
