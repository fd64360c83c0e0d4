"""Functions with the names, arguments and results of earlier reflection systems."""

from heedful.compat.guardrails import GuardedLoops as GuardedLoops
from heedful.compat.guardrails import LoopGuardrails as LoopGuardrails
from heedful.compat.guardrails import calculate_fatigue_score as calculate_fatigue_score
from heedful.compat.guardrails import detect_bias_repetition as detect_bias_repetition
from heedful.compat.guardrails import enforce_rerun_limits as enforce_rerun_limits
from heedful.compat.guardrails import get_guardrails_status as get_guardrails_status
from heedful.compat.guardrails import get_loop_trace as get_loop_trace
from heedful.compat.guardrails import log_rerun_reasoning as log_rerun_reasoning
from heedful.compat.guardrails import override_guardrails as override_guardrails
from heedful.compat.guardrails import process_loop_completion as process_loop_completion
from heedful.compat.mistakes import Reflection as Reflection
from heedful.compat.mistakes import clear as clear
from heedful.compat.mistakes import compute_error_signature as compute_error_signature
from heedful.compat.mistakes import count as count
from heedful.compat.mistakes import (
    create_reflection_from_evaluation as create_reflection_from_evaluation,
)
from heedful.compat.mistakes import format_for_prompt as format_for_prompt
from heedful.compat.mistakes import has_seen_error_before as has_seen_error_before
from heedful.compat.mistakes import persist_reflection as persist_reflection
from heedful.compat.mistakes import retrieve_similar as retrieve_similar
from heedful.compat.mistakes import retrieve_similar_reflections as retrieve_similar_reflections
from heedful.compat.mistakes import store as store
from heedful.compat.refining import GuardrailCheckResult as GuardrailCheckResult
from heedful.compat.refining import StageGuardrail as StageGuardrail
from heedful.compat.refining import StageGuardrailReport as StageGuardrailReport
from heedful.compat.refining import check_convergence as check_convergence
from heedful.compat.refining import has_converged as has_converged
from heedful.compat.refining import improvement_score as improvement_score
from heedful.compat.refining import run_iteration as run_iteration
from heedful.compat.reflections import Generated as Generated
from heedful.compat.reflections import Reflections as Reflections
from heedful.compat.reflections import generate_reflection as generate_reflection
from heedful.compat.reflections import query_reflections as query_reflections
from heedful.compat.reflections import store_reflection as store_reflection
