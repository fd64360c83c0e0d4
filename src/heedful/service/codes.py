"""The status and the code by which a service reports each error, and clients recognise it.

A client rebuilds the error from the problem in the answer (RFC 9457).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from heedful import errors
from heedful.errors import HeedfulError, Refused

# Error class -> the status of HTTP, and a code of its own. A test holds it to every class there is.
TABLE: Mapping[type[HeedfulError], tuple[int, str]] = {
    errors.HeedfulError: (500, "internal_error"),
    errors.UsageError: (422, "invalid_request"),
    errors.InvalidInput: (422, "invalid_input"),
    errors.UnknownName: (422, "unknown_name"),
    errors.PackageMissing: (501, "package_missing"),
    errors.LineError: (422, "invalid_file"),
    errors.TaskFileError: (422, "invalid_task_file"),
    errors.RecordFileError: (422, "invalid_record_file"),
    errors.ExportFileError: (422, "invalid_export_file"),
    errors.TraceFileError: (422, "invalid_traces"),
    errors.OverrideRefused: (409, "override_refused"),
    errors.NotQuarantined: (409, "not_quarantined"),
    errors.RollbackRefused: (409, "rollback_refused"),
    errors.Changed: (412, "changed"),
    errors.QuotaExceeded: (409, "quota_exceeded"),
    errors.Conflict: (409, "conflict"),
    errors.AttemptTaken: (409, "attempt_conflict"),
    errors.LoopEnded: (409, "loop_ended"),
    errors.OutOfOrder: (409, "attempt_out_of_order"),
    errors.AccessDenied: (403, "access_denied"),
    errors.KeyRefused: (401, "key_refused"),
    errors.Forbidden: (403, "forbidden"),
    errors.TenantMismatch: (403, "tenant_mismatch"),
    errors.NotFound: (404, "not_found"),
    errors.NotPassed: (409, "not_passed"),
    errors.UserCodeError: (500, "user_code_failed"),
    errors.GenerateFailed: (500, "generate_failed"),
    errors.StageFailed: (500, "stage_failed"),
    errors.CheckFailed: (500, "check_failed"),
    errors.NotJournalable: (422, "not_journalable"),
    errors.StoreError: (500, "store_error"),
    errors.StoreUnavailable: (503, "store_unavailable"),
    errors.StoreCorrupt: (500, "store_corrupt"),
    errors.StoreNewer: (500, "store_newer"),
    errors.StoreOlder: (503, "store_older"),
    errors.StoreInDoubt: (503, "store_in_doubt"),
    errors.RoleRefused: (500, "role_refused"),
    errors.LeaseLost: (409, "at_work"),
    errors.ModelError: (502, "model_error"),
    errors.ModelUnavailable: (503, "model_unavailable"),
    errors.WeightsError: (503, "weights_unavailable"),
    errors.ModelTimeout: (504, "model_timeout"),
    errors.MalformedAnswer: (502, "malformed_answer"),
    errors.PromptTooLong: (422, "prompt_too_long"),
    errors.RemoteError: (502, "remote_error"),
    errors.Unreachable: (502, "unreachable"),
    errors.Refused: (502, "refused"),
}


KINDS = {code: kind for kind, (_, code) in TABLE.items()}
# The characters kept of an answer that is not a problem, as from a proxy.
TOLD = 300


def refused(status: int, headers: Mapping[str, str], text: str) -> HeedfulError:
    """Return the error in an answer with this status, with the attributes that the service sent."""
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
