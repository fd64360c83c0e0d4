"""The shapes of loop guardrails and reflections: names, in their order, and types."""

import asyncio
import re
from typing import Any

TEXT = (str, type(None))
SCORE = (float, type(None))
MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
TYPES: dict[Any, str] = {
    str: (
        "status loop_id decision original_loop_id best_loop_id reflection_id "
        "reflection_text generated_at kind source layer outcome task_description "
        "session_id content"
    ),
    TEXT: (
        "new_loop_id rerun_reason rerun_reason_detail overridden_by "
        "override_reason trigger action timestamp rerun_of orchestrator_persona "
        "reflection_persona strategy_id strategy_text error_category state "
        "trust release model_error hint"
    ),
    bool: (
        "summary_valid bias_echo bias_repetition force_finalize overridden "
        "rerun_limit_reached limit_reached override_fatigue override_max_reruns "
        "fatigue_threshold_exceeded threshold_exceeded fatigue_increased "
        "improvement_detected"
    ),
    int: "rerun_number rerun_count max_reruns rerun_depth threshold event_count",
    float: (
        "reflection_fatigue previous_fatigue fatigue_increment "
        "critical_threshold importance heedful_importance confidence"
    ),
    SCORE: "alignment_score drift_score",
    list: (
        "repeated_tags rerun_trigger bias_tags_detail tags source_event_ids "
        "related_memory_ids dropped"
    ),
    dict: "repetition_counts",
}
TYPE = {name: kind for kind, names in TYPES.items() for name in names.split()}


def run_async(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def shape(names: str, **nested: Any) -> dict[str, Any]:
    """Return the type of each name; what is nested has a shape of its own."""
    return {name: nested.get(name) or TYPE[name] for name in names.split()}


RESULT = shape(
    "alignment_score drift_score summary_valid reflection_persona bias_echo "
    "repeated_tags repetition_counts reflection_fatigue agent_results",
    agent_results={"pessimist": {"bias_analysis": {"bias_tags_detail": list}}},
)
DECISION = shape(
    "decision original_loop_id new_loop_id rerun_reason rerun_reason_detail "
    "rerun_trigger rerun_number rerun_count max_reruns force_finalize overridden "
    "overridden_by"
)
COMPLETED = shape(
    "status loop_id reflection_result decision_result orchestrator_persona timestamp",
    reflection_result=RESULT,
    decision_result=DECISION,
)
# If a rule ended the loop, the decision names its best run.
FORCED_DECISION = DECISION | shape("best_loop_id")
STANDING = shape(
    "loop_id rerun_count max_reruns rerun_limit_reached bias_echo reflection_fatigue "
    "fatigue_threshold_exceeded force_finalize rerun_reason rerun_trigger "
    "alignment_score drift_score summary_valid reflection_persona"
)
STATUS = shape("status guardrails_status", guardrails_status=STANDING)
OVERRIDE = shape(
    "status loop_id override_fatigue override_max_reruns overridden_by override_reason"
)
LIMITS = shape(
    "rerun_count max_reruns limit_reached force_finalize overridden overridden_by"
)
REPETITION = shape(
    "bias_repetition repeated_tags repetition_counts threshold bias_echo trigger action"
)
FATIGUE = shape(
    "reflection_fatigue previous_fatigue fatigue_increment fatigue_increased "
    "improvement_detected threshold_exceeded critical_threshold force_finalize"
)
TRACE = shape(
    "loop_id status timestamp rerun_of rerun_depth rerun_count max_reruns bias_echo "
    "repeated_tags repetition_counts threshold trigger action reflection_fatigue "
    "previous_fatigue fatigue_increment fatigue_increased improvement_detected "
    "threshold_exceeded rerun_reason rerun_reason_detail rerun_trigger force_finalize "
    "overridden_by orchestrator_persona reflection_persona"
)
GENERATED = shape(
    "reflection_text strategy_text importance confidence tags error_category "
    "source_event_ids related_memory_ids metadata generated_at reflection_id "
    "strategy_id state trust release heedful_importance dropped model_error hint",
    metadata=shape("outcome task_description event_count session_id"),
)
QUERIED = shape(
    "reflection_id kind content reflection_text importance heedful_importance "
    "confidence tags error_category source_event_ids related_memory_ids metadata "
    "source layer state trust release model_error generated_at",
    metadata=GENERATED["metadata"],
)


def check_shape(value: Any, shape: Any) -> None:
    """Asserts the very keys of a shape, and the type of each value."""
    assert list(value) == list(shape)
    for name, kind in shape.items():
        if isinstance(kind, dict):
            check_shape(value[name], kind)
        else:
            assert isinstance(value[name], kind), (name, value[name])
            assert kind is not int or type(value[name]) is int, (name, value[name])
    moment = value.get("timestamp", value.get("generated_at"))
    assert moment is None or re.fullmatch(MOMENT, moment)


# Reports of the documented cases.
POOR: dict[str, Any] = {"alignment_score": 0.72, "drift_score": 0.28}
GOOD: dict[str, Any] = {"alignment_score": 0.75, "drift_score": 0.25}
TAG = {"tag": "overconfidence", "severity": 0.6}
FIRST: dict[str, Any] = {
    "task": "Sum up",
    "summary": "All is well.",
    "bias_tags": [TAG],
    **POOR,
}
