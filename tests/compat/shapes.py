"""The shapes of loop guardrails: names, in their order, and types."""

from __future__ import annotations

import re
from typing import Any

TEXT = (str, type(None))
SCORE = (float, type(None))
MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
COMPLETED: dict[str, Any] = {
    "status": str,
    "loop_id": str,
    "reflection_result": {
        "alignment_score": SCORE,
        "drift_score": SCORE,
        "summary_valid": bool,
        "reflection_persona": str,
        "bias_echo": bool,
        "repeated_tags": list,
        "repetition_counts": dict,
        "reflection_fatigue": float,
        "agent_results": {"pessimist": {"bias_analysis": {"bias_tags_detail": list}}},
    },
    "decision_result": {
        "decision": str,
        "original_loop_id": str,
        "new_loop_id": TEXT,
        "rerun_reason": TEXT,
        "rerun_reason_detail": TEXT,
        "rerun_trigger": list,
        "rerun_number": int,
        "rerun_count": int,
        "max_reruns": int,
        "force_finalize": bool,
        "overridden": bool,
        "overridden_by": TEXT,
    },
    "orchestrator_persona": str,
    "timestamp": str,
}
STATUS: dict[str, Any] = {
    "status": str,
    "guardrails_status": {
        "loop_id": str,
        "rerun_count": int,
        "max_reruns": int,
        "rerun_limit_reached": bool,
        "bias_echo": bool,
        "reflection_fatigue": float,
        "fatigue_threshold_exceeded": bool,
        "force_finalize": bool,
        "rerun_reason": TEXT,
        "rerun_trigger": list,
        "alignment_score": SCORE,
        "drift_score": SCORE,
        "summary_valid": bool,
        "reflection_persona": TEXT,
    },
}
OVERRIDE: dict[str, Any] = {
    "status": str,
    "loop_id": str,
    "override_fatigue": bool,
    "override_max_reruns": bool,
    "overridden_by": TEXT,
    "override_reason": TEXT,
}
LIMITS: dict[str, Any] = {
    "rerun_count": int,
    "max_reruns": int,
    "limit_reached": bool,
    "force_finalize": bool,
    "overridden": bool,
    "overridden_by": TEXT,
}
REPETITION: dict[str, Any] = {
    "bias_repetition": bool,
    "repeated_tags": list,
    "repetition_counts": dict,
    "threshold": int,
    "bias_echo": bool,
    "trigger": TEXT,
    "action": TEXT,
}
FATIGUE: dict[str, Any] = {
    "reflection_fatigue": float,
    "previous_fatigue": float,
    "fatigue_increment": float,
    "fatigue_increased": bool,
    "improvement_detected": bool,
    "threshold_exceeded": bool,
    "critical_threshold": float,
    "force_finalize": bool,
}
TRACE: dict[str, Any] = {
    "loop_id": str,
    "status": str,
    "timestamp": TEXT,
    "rerun_of": TEXT,
    "rerun_depth": int,
    "rerun_count": int,
    "max_reruns": int,
    "bias_echo": bool,
    "repeated_tags": list,
    "repetition_counts": dict,
    "threshold": int,
    "trigger": TEXT,
    "action": TEXT,
    "reflection_fatigue": float,
    "previous_fatigue": float,
    "fatigue_increment": float,
    "fatigue_increased": bool,
    "improvement_detected": bool,
    "threshold_exceeded": bool,
    "rerun_reason": TEXT,
    "rerun_reason_detail": TEXT,
    "rerun_trigger": list,
    "force_finalize": bool,
    "overridden_by": TEXT,
    "orchestrator_persona": TEXT,
    "reflection_persona": TEXT,
}


def has(value: Any, shape: Any) -> None:
    """Asserts the very keys of a shape, and the type of each value."""
    assert list(value) == list(shape)
    for name, kind in shape.items():
        if isinstance(kind, dict):
            has(value[name], kind)
        else:
            assert isinstance(value[name], kind), (name, value[name])
            assert kind is not int or type(value[name]) is int, (name, value[name])
    moment = value.get("timestamp")
    assert moment is None or re.fullmatch(MOMENT, moment)
