"""The names, arguments and results of earlier reflection systems.

Each name is imported from its module at its first use. What these modules do is done by
the core; here are only the names, the order of the arguments and the fields that
callers of earlier systems rely on.
"""

from importlib import import_module
from typing import Any

_NAMES = {
    "guardrails": """
        FATIGUE_CONFIG GuardedLoops LoopGuardrails RERUN_CONFIG calculate_fatigue_score
        detect_bias_repetition enforce_rerun_limits get_guardrails_status get_loop_trace
        log_rerun_reasoning make_rerun_decision override_guardrails
        process_loop_completion process_loop_reflection track_bias
    """,
    "corrections": """
        Reflection compute_error_signature create_reflection_from_evaluation
        has_seen_error_before persist_reflection retrieve_similar_reflections
    """,
    "mistakes": """
        clear count format_for_prompt retrieve_similar store
    """,
    "refining": """
        GuardrailCheckResult StageGuardrail StageGuardrailReport check_convergence
        has_converged improvement_score run_iteration
    """,
    "reflections": """
        ErrorCategory ErrorInfo Event EventType OutcomeType ReflectionContext
        ReflectionEngine ReflectionEngineV2 ReflectionResult Reflector
        generate_reflection query_reflections store_reflection
    """,
}
_HOMES = {
    name: f"heedful_compat.{module}"
    for module, names in _NAMES.items()
    for name in names.split()
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - the table is the list


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'heedful_compat' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
