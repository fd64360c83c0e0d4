"""The settings of stages and of checks of predictions, under their names and older ones."""

from __future__ import annotations

from typing import Any

import pytest

from heedful.errors import InvalidInput
from heedful.pipeline import Guardrails

DEFAULTS = {
    "max_stage_retries": 2,
    "max_check_attempts": 2,
    "deviation_sigma": 10.0,
    "spread_ratio_min": 0.1,
    "spread_ratio_max": 5.0,
    "constant_relative_std": 0.01,
}
OLDER = {
    "max_guardrail_attempts": "max_check_attempts",
    "PREDICTION_DEVIATION_THRESHOLD": "deviation_sigma",
    "VARIANCE_RATIO_MIN": "spread_ratio_min",
    "VARIANCE_RATIO_MAX": "spread_ratio_max",
    "CONSTANT_PREDICTION_THRESHOLD": "constant_relative_std",
}


def test_the_defaults_are_the_documented_ones() -> None:
    assert {name: getattr(Guardrails(), name) for name in DEFAULTS} == DEFAULTS
    assert Guardrails.of({"PATH": "/bin", "OTHER": "x"}) == Guardrails()
    assert Guardrails().thresholds == {name: DEFAULTS[name] for name in list(DEFAULTS)[2:]}


@pytest.mark.parametrize("given", [*DEFAULTS, *OLDER])
@pytest.mark.parametrize("form", ["{}", "HEEDFUL_{}", "heedful_{}"])
@pytest.mark.parametrize("case", [str.lower, str.upper])
def test_every_name_and_older_name_is_read(given: str, form: str, case: Any) -> None:
    found = Guardrails.of({form.format(case(given)): " 3 "})
    name = OLDER.get(given, given)
    assert getattr(found, name) == 3
    assert type(getattr(found, name)) is type(DEFAULTS[name])


@pytest.mark.parametrize("older", OLDER)
def test_a_new_name_goes_before_an_older_one(older: str) -> None:
    for settings in ({older: "7", OLDER[older]: "3"}, {OLDER[older]: "3", older: "7"}):
        assert getattr(Guardrails.of(settings), OLDER[older]) == 3


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"max_stage_retries": "two"}, "max_stage_retries is 'two'; it must be a whole number"),
        ({"max_stage_retries": -1}, "max_stage_retries is -1; it must be an integer of at least 0"),
        ({"max_guardrail_attempts": 0}, "max_check_attempts is 0; it must be an integer of at"),
        ({"VARIANCE_RATIO_MIN": "low"}, "VARIANCE_RATIO_MIN is 'low'; it must be a number"),
        ({"deviation_sigma": "nan"}, "deviation_sigma is nan"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Guardrails.of(settings)
    assert told in str(caught.value)
