"""The names, positions and defaults that callers of earlier systems write."""

import inspect
from typing import Any

import pytest

import heedful_compat as compat

FLAGS = "override_fatigue=False override_max_reruns=False override_by=None"
CALLS = {
    "process_loop_completion": (
        f"loop_id reflection_status orchestrator_persona=None {FLAGS}"
    ),
    "process_loop_reflection": f"loop_id {FLAGS}",
    "make_rerun_decision": f"loop_id {FLAGS}",
    "enforce_rerun_limits": "loop_id override_max_reruns=False override_by=None",
    "detect_bias_repetition": "loop_id bias_tags threshold=None",
    "track_bias": "loop_id bias_tags",
    "calculate_fatigue_score": (
        "loop_id alignment_score drift_score previous_fatigue=None"
    ),
    "log_rerun_reasoning": (
        "loop_id rerun_trigger rerun_reason rerun_reason_detail=None "
        "overridden_by=None reflection_persona=None"
    ),
    "get_guardrails_status": "loop_id",
    "get_loop_trace": "loop_id",
    "override_guardrails": f"loop_id {FLAGS} override_reason=None",
    "persist_reflection": (
        "reflection memory_manager changed_behavior similarity_threshold=0.85"
    ),
    "retrieve_similar_reflections": (
        "error_signature memory_manager limit=5 error_type=None"
    ),
    "has_seen_error_before": "error_signature memory_manager",
    "compute_error_signature": "error_type content",
    "create_reflection_from_evaluation": (
        "critique verification_results query context iteration quality_before "
        "quality_after"
    ),
    "Reflection": (
        "error_type error_signature content context query iteration quality_delta"
    ),
    "ReflectionEngine": (
        "store='heedful.db' model=None memory_repository=None prompts=None score=None"
    ),
    "generate_reflection": "context",
    "store_reflection": "result tenant_id project_id session_id=None",
    "query_reflections": (
        "tenant_id project_id query_text=None k=5 min_importance=0.5 tags=None"
    ),
    "Event": (
        "event_id event_type timestamp content metadata=None tool_name=None error=None"
    ),
    "ErrorInfo": "error_category error_message context=None",
    "ReflectionContext": (
        "events outcome tenant_id project_id session_id=None error=None "
        "task_description=None task_goal=None related_memory_ids=None"
    ),
    "ReflectionResult": (
        "reflection_text strategy_text=None importance=0.5 confidence=0.5 "
        "tags=None error_category=None source_event_ids=None "
        "related_memory_ids=None metadata=None generated_at=None"
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_has_its_parameters_in_their_order(name):
    called: Any = getattr(compat, name)
    parameters = inspect.signature(called).parameters.values()
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    written = [
        parameter.name
        if parameter.default is parameter.empty
        else f"{parameter.name}={parameter.default!r}"
        for parameter in positional
    ]
    expected = CALLS[name].split()
    assert written[: len(expected)] == expected


def test_the_mappings_have_their_entries():
    assert compat.ReflectionEngineV2 is compat.ReflectionEngine
    assert compat.RERUN_CONFIG == {
        "alignment_threshold": 0.75,
        "drift_threshold": 0.25,
        "max_reruns": 3,
        "fatigue_threshold": 0.5,
        "bias_repetition_threshold": 3,
    }
    assert compat.FATIGUE_CONFIG == {
        "base_increment": 0.15,
        "improvement_threshold": 0.05,
        "decay_rate": 0.05,
        "critical_threshold": 0.5,
        "max_fatigue": 1.0,
    }
