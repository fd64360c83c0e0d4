"""What a service refuses -> the error that it had, rebuilt from its problem (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from heedful.codes import TABLE
from heedful.errors import HeedfulError, Refused

KINDS = {code: kind for kind, (_, code) in TABLE.items()}

# Of an answer that is no problem, as proxies give them, so many characters are told.
TOLD = 300


def refused(status: int, headers: Mapping[str, str], text: str) -> HeedfulError:
    """The error of an answer of that status; its attributes are those that the service told."""
    problem = _problem(headers.get("content-type", ""), text)
    code, told = str(problem.get("code", "")), problem.get("detail") or problem.get("title")
    kind = KINDS.get(code)
    if kind is None:
        return Refused(status, code, str(told or text[:TOLD]))
    error = kind.__new__(kind)
    HeedfulError.__init__(error, str(told or code))
    vars(error).update({**problem, "status": status})
    return error


def _problem(kind: str, text: str) -> Mapping[str, Any]:
    if kind.partition(";")[0].strip() not in ("application/problem+json", "application/json"):
        return {}
    try:
        plain = json.loads(text)
    except ValueError:
        return {}
    return plain if isinstance(plain, dict) else {}
