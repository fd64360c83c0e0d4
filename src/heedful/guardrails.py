"""The settings of stage guardrails, under their names and older ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from heedful.errors import InvalidInput
from heedful.loop.record import LARGEST, number

OLDER: Mapping[str, str] = {
    "max_guardrail_attempts": "max_check_attempts",
    "prediction_deviation_threshold": "deviation_sigma",
    "variance_ratio_min": "spread_ratio_min",
    "variance_ratio_max": "spread_ratio_max",
    "constant_prediction_threshold": "constant_relative_std",
}
COUNTS = ("max_stage_retries", "max_check_attempts")


@dataclass(frozen=True, slots=True)
class Guardrails:
    """How often stages and checks are tried, and the thresholds of the checks of predictions.

    `max_stage_retries` are attempts after the first, `max_check_attempts` how often a check that
    raises is asked in all. `deviation_sigma` is in standard deviations of the actual values, the
    others are shares. Raises InvalidInput.
    """

    max_stage_retries: int = 2
    max_check_attempts: int = 2
    deviation_sigma: float = 10.0
    spread_ratio_min: float = 0.1
    spread_ratio_max: float = 5.0
    constant_relative_std: float = 0.01

    def __post_init__(self) -> None:
        for name, least in zip(COUNTS, (0, 1), strict=True):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InvalidInput(name, value, f"an integer of at least {least}")
        for name in self.thresholds:
            number(name, getattr(self, name), 0, LARGEST)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Guardrails:
        """From settings of any origin, such as `os.environ`; other names in it are left alone.

        Names count in upper and lower case, with and without `HEEDFUL_` before them, and so do the
        older ones: max_guardrail_attempts (max_check_attempts), PREDICTION_DEVIATION_THRESHOLD,
        VARIANCE_RATIO_MIN, VARIANCE_RATIO_MAX, CONSTANT_PREDICTION_THRESHOLD. A new name goes
        before an older one. Raises InvalidInput that says which.
        """
        known = {one.name: type(one.default) for one in fields(cls)}
        found: dict[str, Any] = {}
        for given, value in settings.items():
            plain = str(given).lower().removeprefix("heedful_")
            name = OLDER.get(plain, plain)
            if name in known and (name == plain or name not in found):
                found[name] = _read(str(given), value, known[name])
        return cls(**found)

    @property
    def thresholds(self) -> dict[str, float]:
        """Those for predictions, as `heedful.checks.numbers.predictions` takes them."""
        return {name: value for name, value in asdict(self).items() if name not in COUNTS}


def _read(name: str, value: Any, kind: type) -> Any:
    try:
        return kind(value.strip() if isinstance(value, str) else value)
    except (TypeError, ValueError) as error:
        what = "a whole number" if kind is int else "a number"
        raise InvalidInput(name, value, what) from error
