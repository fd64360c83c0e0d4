"""A measured figure and its target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What was measured, in which unit, and the most it should be (None: only
    reported).
    """

    name: str
    value: float
    unit: str
    most: float | None = None
    least: float | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None without a target."""
        if self.most is None and self.least is None:
            return None
        return (self.most is None or self.value <= self.most) and (
            self.least is None or self.value >= self.least
        )
