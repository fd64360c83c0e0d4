"""The settings of loop guardrails under the names that callers of earlier systems know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from heedful.errors import InvalidInput
from heedful.loop.decide import Policy
from heedful.loop.measure import LARGEST, number
from heedful.loop.record import Goal, Improvement
from heedful.loop.stop import Echo, Fatigue, MaxAttempts

ALIGNMENT, DRIFT = "alignment", "drift"
RANGES: Mapping[str, tuple[float, float]] = {
    "alignment_threshold": (0, 1),
    "drift_threshold": (0, 1),
    "max_reruns": (0, LARGEST),
    "fatigue_threshold": (0.001, 1),
    "bias_repetition_threshold": (1, LARGEST),
    "base_increment": (0.001, 1),
    "improvement_threshold": (0.001, 1),
    "decay_rate": (0, 1),
    "critical_threshold": (0.001, 1),
}


@dataclass(frozen=True, slots=True)
class LoopGuardrails:
    """When a loop runs again, and when it must end.

    Alignment is at least `alignment_threshold` and drift at most `drift_threshold` where a loop is
    fine. It ends after `max_reruns` reruns, at the lower of `fatigue_threshold` and
    `critical_threshold`, or where a bias tag comes for the `bias_repetition_threshold`th time.
    Fatigue grows by `base_increment`, to `max_fatigue` at most, for a rerun in which neither score
    is better by `improvement_threshold` than before, and shrinks by `decay_rate` for another.
    `reflection_persona` is who reflects. Raises InvalidInput.
    """

    alignment_threshold: float = 0.75
    drift_threshold: float = 0.25
    max_reruns: int = 3
    fatigue_threshold: float = 0.5
    bias_repetition_threshold: int = 3
    base_increment: float = 0.15
    improvement_threshold: float = 0.05
    decay_rate: float = 0.05
    critical_threshold: float = 0.5
    max_fatigue: float = 1.0
    reflection_persona: str = "SAGE"

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if high == LARGEST and (not isinstance(value, int) or isinstance(value, bool)):
                raise InvalidInput(name, value, f"an integer of at least {low:g}")
            number(name, value, low, high)
        limit = min(self.fatigue_threshold, self.critical_threshold)
        number("max_fatigue", self.max_fatigue, limit, 1)
        if not isinstance(self.reflection_persona, str) or not self.reflection_persona.strip():
            raise InvalidInput("reflection_persona", self.reflection_persona, "a name")

    @property
    def policy(self) -> Policy:
        """The policy that they come to; by default the preset `orchestrator`."""
        limit = min(self.fatigue_threshold, self.critical_threshold)
        tired = Fatigue(limit, self.base_increment, self.decay_rate, self.max_fatigue)
        echo = Echo(self.bias_repetition_threshold, across="scope")
        return Policy(
            (MaxAttempts(self.max_reruns + 1), tired, echo),
            Improvement(self.improvement_threshold, "previous"),
            name="orchestrator",
            goals=(
                Goal(ALIGNMENT, self.alignment_threshold),
                Goal(DRIFT, self.drift_threshold, "at_most"),
            ),
        )

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> LoopGuardrails:
        """From settings of any origin, such as `os.environ`; other names in it are left alone.

        Names count in upper and lower case, with and without `HEEDFUL_` before them, which goes
        before the same without. Raises InvalidInput that says which.
        """
        found: dict[str, Any] = {}
        given = {str(name).lower(): (name, value) for name, value in settings.items()}
        for one in fields(cls):
            told = given.get(f"heedful_{one.name}", given.get(one.name))
            if told is not None:
                found[one.name] = _read(str(told[0]), told[1], type(one.default))
        return cls(**found)


def _read(name: str, value: Any, kind: type) -> Any:
    try:
        return kind(value.strip() if isinstance(value, str) else value)
    except (TypeError, ValueError) as error:
        what = "a whole number" if kind is int else "a number"
        raise InvalidInput(name, value, what) from error
