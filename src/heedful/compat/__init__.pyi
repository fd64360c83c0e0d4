# Made by scripts/stub.py from the table in __init__.py.
from heedful.compat.guardrails import (FATIGUE_CONFIG, GuardedLoops, LoopGuardrails, RERUN_CONFIG,
    calculate_fatigue_score, detect_bias_repetition, enforce_rerun_limits, get_guardrails_status,
    get_loop_trace, log_rerun_reasoning, make_rerun_decision, override_guardrails,
    process_loop_completion, process_loop_reflection, track_bias)
from heedful.compat.mistakes import (Reflection, clear, compute_error_signature, count,
    create_reflection_from_evaluation, format_for_prompt, has_seen_error_before, persist_reflection,
    retrieve_similar, retrieve_similar_reflections, store)
from heedful.compat.refining import (GuardrailCheckResult, StageGuardrail, StageGuardrailReport,
    check_convergence, has_converged, improvement_score, run_iteration)
from heedful.compat.reflections import (ErrorCategory, ErrorInfo, Event, EventType, OutcomeType,
    ReflectionContext, ReflectionEngine, ReflectionEngineV2, ReflectionResult, Reflections,
    Reflector, generate_reflection, query_reflections, store_reflection)
__all__ = ["ErrorCategory", "ErrorInfo", "Event", "EventType", "FATIGUE_CONFIG", "GuardedLoops",
    "GuardrailCheckResult", "LoopGuardrails", "OutcomeType", "RERUN_CONFIG", "Reflection",
    "ReflectionContext", "ReflectionEngine", "ReflectionEngineV2", "ReflectionResult",
    "Reflections", "Reflector", "StageGuardrail", "StageGuardrailReport", "calculate_fatigue_score",
    "check_convergence", "clear", "compute_error_signature", "count",
    "create_reflection_from_evaluation", "detect_bias_repetition", "enforce_rerun_limits",
    "format_for_prompt", "generate_reflection", "get_guardrails_status", "get_loop_trace",
    "has_converged", "has_seen_error_before", "improvement_score", "log_rerun_reasoning",
    "make_rerun_decision", "override_guardrails", "persist_reflection", "process_loop_completion",
    "process_loop_reflection", "query_reflections", "retrieve_similar",
    "retrieve_similar_reflections", "run_iteration", "store", "store_reflection", "track_bias"]
