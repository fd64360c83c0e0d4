"""The names and shapes that callers of earlier reflection systems know, over the same core."""

from errata.compat.generated import (
    Generated,
    Reflections,
    generate_reflection,
    query_reflections,
    store_reflection,
)
from errata.compat.remembering import (
    Reflection,
    compute_error_signature,
    create_reflection_from_evaluation,
    has_seen_error_before,
    persist_reflection,
    retrieve_similar_reflections,
)

__all__ = [
    "Generated",
    "Reflection",
    "Reflections",
    "compute_error_signature",
    "create_reflection_from_evaluation",
    "generate_reflection",
    "has_seen_error_before",
    "persist_reflection",
    "query_reflections",
    "retrieve_similar_reflections",
    "store_reflection",
]
