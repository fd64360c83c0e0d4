"""The names and shapes of earlier reflection systems, over the same core."""

from heedful.compat.guardrails import (
    GuardedLoops,
    calculate_fatigue_score,
    detect_bias_repetition,
    enforce_rerun_limits,
    get_guardrails_status,
    get_loop_trace,
    log_rerun_reasoning,
    override_guardrails,
    process_loop_completion,
)
from heedful.compat.mistakes import (
    Reflection,
    clear,
    compute_error_signature,
    count,
    create_reflection_from_evaluation,
    format_for_prompt,
    has_seen_error_before,
    persist_reflection,
    retrieve_similar,
    retrieve_similar_reflections,
    store,
)
from heedful.compat.refining import (
    check_convergence,
    has_converged,
    improvement_score,
    run_iteration,
)
from heedful.compat.reflections import (
    Generated,
    Reflections,
    generate_reflection,
    query_reflections,
    store_reflection,
)
from heedful.compat.shapes import LoopGuardrails

__all__ = [
    "Generated",
    "GuardedLoops",
    "LoopGuardrails",
    "Reflection",
    "Reflections",
    "calculate_fatigue_score",
    "check_convergence",
    "clear",
    "compute_error_signature",
    "count",
    "create_reflection_from_evaluation",
    "detect_bias_repetition",
    "enforce_rerun_limits",
    "format_for_prompt",
    "generate_reflection",
    "get_guardrails_status",
    "get_loop_trace",
    "has_converged",
    "has_seen_error_before",
    "improvement_score",
    "log_rerun_reasoning",
    "override_guardrails",
    "persist_reflection",
    "process_loop_completion",
    "query_reflections",
    "retrieve_similar",
    "retrieve_similar_reflections",
    "run_iteration",
    "store",
    "store_reflection",
]
