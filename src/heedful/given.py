"""What a host is given, looked at before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heedful.errors import InvalidInput
from heedful.evaluate import Check
from heedful.loop.decide import Policy
from heedful.loop.record import Goal, agreeing
from heedful.redact import redacted


def given(
    id: str,
    checks: Sequence[Check],
    goals: Sequence[Goal],
    policy: Policy,
    labels: Mapping[str, str] | None,
    timeout: float | None,
) -> None:
    """Raises InvalidInput that names the argument, before anything is spent."""
    if not isinstance(policy, Policy):
        raise InvalidInput("policy", policy, "a Policy, such as heedful.policies.default")
    if redacted(str(id)) != str(id):
        raise InvalidInput("id", id, "a name without a secret: it is stored as it is")
    if not isinstance(checks, Sequence) or not all(map(callable, checks)):
        raise InvalidInput("checks", checks, "a list of callables (candidate, context)")
    if not isinstance(goals, Sequence) or not all(isinstance(goal, Goal) for goal in goals):
        raise InvalidInput("goals", goals, "a list of Goal")
    agreeing(tuple(goals))
    if labels is not None and not _texts(labels):
        raise InvalidInput("labels", labels, "a mapping of names to texts")
    if timeout is not None and not 0 < timeout < float("inf"):
        raise InvalidInput("timeout", timeout, "a number of seconds above 0")


def _texts(labels: Any) -> bool:
    named = isinstance(labels, Mapping)
    return named and all(isinstance(text, str) for pair in labels.items() for text in pair)
