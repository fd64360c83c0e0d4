"""The limits of a pipeline's attempts, and the thresholds for predictions."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import Any, TypeVar

from heedful import errors
from heedful.checks.numbers import PredictionLimits
from heedful.validation import Fields, check_integer, refuses_unknown_options

S = TypeVar("S")
# The name of a setting -> its older name.
OLDER_SETTING_NAMES: Mapping[str, str] = {
    "max_check_attempts": "max_guardrail_attempts",
    "deviation_sigma": "prediction_deviation_threshold",
    "spread_ratio_min": "variance_ratio_min",
    "spread_ratio_max": "variance_ratio_max",
    "constant_relative_std": "constant_prediction_threshold",
}
# The prefixes of the name of a setting; the first name that is set counts.
PREFIXES = ("heedful_", "")


def read_settings(kind: type[S], settings: Fields, older: Mapping[str, str]) -> S:
    """Return a dataclass `kind` with fields read from `settings`.

    The name of a field with the prefix `HEEDFUL_` comes first, then the name without
    the prefix, then the name in `older`; see `Guardrails.of`. Raises InvalidInput.
    """
    # Names are compared in lower case, and shown in errors as they were written.
    written_names = {str(name).lower(): name for name in settings}
    values = {}
    for field in fields(kind):  # type: ignore[arg-type]
        names = (field.name, older.get(field.name, field.name))
        spellings = [prefix + name for name, prefix in product(names, PREFIXES)]
        used_spellings = [word for word in spellings if word in written_names]
        if used_spellings:
            name = written_names[used_spellings[0]]
            number = _number_setting(str(name), settings[name], type(field.default))
            values[field.name] = number

    return kind(**values)


def _number_setting(name: str, value: Any, kind: type) -> Any:
    """Return a setting as a number of type `kind`. Raises InvalidInput."""
    if isinstance(value, str):
        value = value.strip()
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        allowed = "a whole number" if kind is int else "a number"
        raise errors.InvalidInput(name, value, allowed) from error


@refuses_unknown_options
@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrails(PredictionLimits):
    """Limits on attempts of stages and checks, and thresholds for predictions.

    `max_stage_retries` counts attempts after the first. `max_check_attempts` counts all
    calls of a check that raises. `deviation_sigma` is in standard deviations of the
    actual values; the other thresholds are ratios. Raises InvalidInput.
    """

    max_stage_retries: int = 2
    max_check_attempts: int = 2

    def __post_init__(self) -> None:
        PredictionLimits.__post_init__(self)
        check_integer("max_stage_retries", self.max_stage_retries, least=0)
        check_integer("max_check_attempts", self.max_check_attempts, least=1)

    @classmethod
    def of(cls, settings: Fields) -> "Guardrails":
        """Read settings from a mapping such as `os.environ`; ignore unknown names.

        Names may be in upper or lower case, with or without the prefix `HEEDFUL_`.
        These older names are read if the new name is absent: max_guardrail_attempts
        (for max_check_attempts), PREDICTION_DEVIATION_THRESHOLD, VARIANCE_RATIO_MIN,
        VARIANCE_RATIO_MAX and CONSTANT_PREDICTION_THRESHOLD. Raises InvalidInput with
        the name of the wrong setting.
        """
        return read_settings(cls, settings, OLDER_SETTING_NAMES)

    @property
    def thresholds(self) -> dict[str, float]:
        """The keyword arguments of `heedful.checks.numbers.predictions`."""
        return {
            threshold.name: getattr(self, threshold.name)
            for threshold in fields(PredictionLimits)
        }
