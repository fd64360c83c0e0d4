"""What an evaluation by another system teaches."""

from collections.abc import Mapping
from typing import Any

import pytest

import heedful_compat as compat
from heedful.errors import InvalidInput
from tests.tables import cases

CONFLICT = {"status": "conflict", "conflict_reason": "The report says 7, the answer 9."}
UNVERIFIED = {"status": "unverified", "claim_text": "Sales doubled."}
FINE = {"status": "verified", "claim_text": "Sales rose."}


def learn_from(changes: Mapping[str, Any]) -> compat.Reflection | None:
    arguments: dict[str, Any] = {
        "critique": "Fine.",
        "verification_results": [],
        "query": "How much was sold?",
        "context": "quarterly report",
        "iteration": 2,
        "quality_before": 0.5,
        "quality_after": 0.5,
    }
    return compat.create_reflection_from_evaluation(**{**arguments, **changes})


RISEN = {"quality_before": 0.5, "quality_after": 0.75}
ALL = {
    "verification_results": [FINE, UNVERIFIED, CONFLICT],
    "critique": "It CONFLICTS.",
    **RISEN,
}
BARELY = {"quality_before": 0.7, "quality_after": 0.801}
CLAIM = "Made unverified claim about: "
ROSE = "Quality improved by "


@cases(
    ("changes", "error_type", "text"),
    {
        "a conflict": (
            ALL,
            "conflict",
            "Detected conflict: The report says 7, the answer 9.",
        ),
        "an unverified claim": (
            ALL | {"verification_results": [FINE, UNVERIFIED]},
            "unverified_claim",
            CLAIM + "Sales doubled.",
        ),
        "a critique": (
            ALL | {"verification_results": [FINE]},
            "factual_error",
            "It CONFLICTS.",
        ),
        "the least rise": (BARELY, "quality_improvement", ROSE + "0.10: Fine."),
    },
)
def test_the_first_that_applies_counts(changes, error_type, text):
    """The shape of an entry and its cuts are tested in tests/compat."""
    reflection = learn_from(changes)
    assert reflection is not None
    assert reflection.error_type == error_type
    assert reflection.content == text
    assert reflection.error_signature == compat.compute_error_signature(
        error_type, text
    )


def test_without_a_quality_before_there_is_nothing_to_learn():
    assert learn_from({"quality_before": None, "quality_after": 0.9}) is None


@cases(
    ("changes", "field"),
    {
        "one text": ({"verification_results": "conflict"}, "verification"),
        "a result without a status": (
            {"verification_results": [{"status": None}]},
            "verification[0]",
        ),
    },
)
def test_bad_input_is_named(changes, field):
    with pytest.raises(InvalidInput) as caught:
        learn_from(changes)
    assert caught.value.field == field
