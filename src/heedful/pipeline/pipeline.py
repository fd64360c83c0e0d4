"""Declare a pipeline: its stages, their checks, and how the run goes on when a stage fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar, overload

from heedful.checks.evaluate import Check, Evaluate
from heedful.drive.drive import given
from heedful.drive.generate import Writer, generator
from heedful.errors import InvalidInput
from heedful.lessons.lesson import Scope
from heedful.loop import policies
from heedful.loop.decide import Policy
from heedful.loop.record import LARGEST, Goal, check_number
from heedful.loop.stop import MaxAttempts
from heedful.memory.memory import Memory
from heedful.models import open_model
from heedful.models.contract import Model
from heedful.pipeline.runner import PipelineRun
from heedful.pipeline.stages import REPORTS, Stage, Unvalidated, Work
from heedful.redact import redact
from heedful.store import open_store
from heedful.store.runs import Exhausted, Report, file_safe
from heedful.store.store import Store

F = TypeVar("F", bound=Work)
# Bytes of a name: the name of a file contains that of a stage and that of a run.
LONGEST = 100
EXHAUSTED = ("continue", "halt", "best")
UNVALIDATED = ("continue", "halt")

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
    """Limits on the attempts of stages and checks, and thresholds for checks of predictions.

    `max_stage_retries` counts attempts after the first, `max_check_attempts` all calls of a check
    that raises. `deviation_sigma` is in standard deviations of the actual values; the other
    thresholds are ratios. Raises InvalidInput.
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
            check_number(name, getattr(self, name), 0, LARGEST)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Guardrails:
        """Read settings from a mapping such as `os.environ`, and ignore its other names.

        Names may be in upper or lower case, with or without the prefix `HEEDFUL_`. Older names
        work too: max_guardrail_attempts (max_check_attempts), PREDICTION_DEVIATION_THRESHOLD,
        VARIANCE_RATIO_MIN, VARIANCE_RATIO_MAX, CONSTANT_PREDICTION_THRESHOLD. A new name takes
        precedence over its older one. Raises InvalidInput with the name of the wrong setting.
        """
        known = {one.name: type(one.default) for one in fields(cls)}
        found: dict[str, Any] = {}
        for setting, value in settings.items():
            plain = str(setting).lower().removeprefix("heedful_")
            name = OLDER.get(plain, plain)
            if name in known and (name == plain or name not in found):
                found[name] = _parse(str(setting), value, known[name])
        return cls(**found)

    @property
    def thresholds(self) -> dict[str, float]:
        """The keyword arguments of `heedful.checks.numbers.predictions`."""
        return {name: value for name, value in asdict(self).items() if name not in COUNTS}


def _parse(name: str, value: Any, kind: type) -> Any:
    try:
        return kind(value.strip() if isinstance(value, str) else value)
    except (TypeError, ValueError) as error:
        what = "a whole number" if kind is int else "a number"
        raise InvalidInput(name, value, what) from error


class Pipeline:
    """Stages in order; a stage that fails its checks runs again with feedback.

    `on_exhausted` says how a run goes on after a stage that never passed: "continue" with its last
    attempt, "best" with its best attempt, or "halt". `on_unvalidated` does the same for a stage
    that could not be judged because a check raised: "continue" or "halt". With `memory` the first
    attempt of a stage gets the lessons of earlier runs. `store` makes runs durable; None keeps
    nothing. `reports` is a folder for the report of each attempt and run. `progress` writes to
    standard error; None writes only to a terminal. `settings` limit the attempts. Raises
    InvalidInput.
    """

    def __init__(
        self,
        name: str,
        *,
        on_exhausted: Exhausted = "continue",
        on_unvalidated: Unvalidated = "continue",
        memory: Memory | Store | str | None = None,
        store: Store | str | None = "heedful.db",
        scope: Scope | None = None,
        reports: str | Path | None = None,
        progress: bool | None = None,
        settings: Guardrails | None = None,
    ) -> None:
        self.name: str = _check_name("name of a pipeline", name)
        self.on_exhausted: Exhausted = _one_of("on_exhausted", on_exhausted, EXHAUSTED)
        self.on_unvalidated: Unvalidated = _one_of("on_unvalidated", on_unvalidated, UNVALIDATED)
        self.memory: Memory | None = memory if memory is None else Memory.of(memory, scope)
        self.scope: Scope = scope or (self.memory.scope if self.memory else Scope())
        self.store: Store | None = open_store(store) if isinstance(store, str) else store
        self.reports: Path | None = Path(reports) if reports is not None else None
        self.progress: bool | None = progress
        self.settings: Guardrails = settings or Guardrails()
        self.stages: tuple[Stage, ...] = ()

    @overload
    def stage(self, function: F, /) -> F: ...
    @overload
    def stage(
        self,
        function: None = None,
        /,
        *,
        name: str = ...,
        checks: Sequence[Check] = ...,
        evaluate: Evaluate | None = ...,
        goals: Sequence[Goal] = ...,
        retries: int | None = ...,
        policy: Policy | None = ...,
        model: Model | Writer | str | None = ...,
        on_exhausted: Exhausted | None = ...,
        on_unvalidated: Unvalidated | None = ...,
        timeout: float | None = ...,
        rerun: bool = ...,
    ) -> Callable[[F], F]: ...
    def stage(
        self,
        function: Work | None = None,
        /,
        *,
        name: str = "",
        checks: Sequence[Check] = (),
        evaluate: Evaluate | None = None,
        goals: Sequence[Goal] = (),
        retries: int | None = None,
        policy: Policy | None = None,
        model: Model | Writer | str | None = None,
        on_exhausted: Exhausted | None = None,
        on_unvalidated: Unvalidated | None = None,
        timeout: float | None = None,
        rerun: bool = False,
    ) -> Any:
        """Add a stage: a plain or async function of the state. Stages run in the order added.

        The returned value is the output of the stage; later stages find it in the state under the
        name of the stage. A function that returns nothing changes the state itself. A parameter
        `feedback` gets what was wrong with the attempt before, or None. Checks see the output (or
        the state, without one), and the state as `context.data`. With a `model` the function
        returns the prompt, and the answer of the model is the output. `retries` counts attempts
        after the first; a `policy` decides instead when the stage ends. `timeout` is that of one
        attempt, in seconds. In a durable run an output that JSON cannot carry is an error, unless
        `rerun` allows the stage to run again when a run is resumed. Raises InvalidInput.
        """
        ends = policy or self._retrying(retries)
        given("", checks, goals, ends, None, timeout)
        if policy is not None and retries is not None:
            raise InvalidInput("retries", retries, "left out beside a policy, which says it all")
        exhausted = _one_of("on_exhausted", on_exhausted or self.on_exhausted, EXHAUSTED)
        unjudged = _one_of("on_unvalidated", on_unvalidated or self.on_unvalidated, UNVALIDATED)
        writer = None if model is None else _writer(model)
        all_checks, all_goals = tuple(checks), tuple(goals) or ends.goals

        def add(function: Work) -> Work:
            called = self._free(name or getattr(function, "__name__", ""))
            judged = Stage(called, function, ends, all_checks, all_goals, evaluate, writer)
            how = replace(judged, on_exhausted=exhausted, on_unvalidated=unjudged)
            self.stages = (*self.stages, replace(how, timeout=timeout, rerun=rerun))
            return function

        return add if function is None else add(function)

    def _free(self, name: str) -> str:
        """Return the name. Raises InvalidInput if the state or the reports use it already."""
        _check_name("name of a stage", name)
        others = [stage.name for stage in self.stages]
        keys = {REPORTS, "degraded", *others, *(f"{other}_feedback" for other in others)}
        files = {file_safe(other) for other in others}
        if name in keys or f"{name}_feedback" in others or file_safe(name) in files:
            raise InvalidInput("name of a stage", name, "one that is not taken")
        return name

    def _retrying(self, retries: int | None) -> Policy:
        more = self.settings.max_stage_retries if retries is None else retries
        if not isinstance(more, int) or isinstance(more, bool) or more < 0:
            raise InvalidInput("retries", more, "an integer of at least 0")
        return replace(policies.stage, rules=(MaxAttempts(more + 1),))

    async def run(self, state: Any = None, *, id: str = "") -> Report:
        """Run all stages over a state: a mutable mapping, or an object with settable attributes.

        An interrupted run of that `id` continues at the first stage that has not ended; pass the
        state that the run began with. Stages that ended are restored, not run again. Raises
        StageFailed, NotJournalable, ModelError, StoreError, LeaseLost; the run can be resumed.
        """
        if id:
            _check_name("id of a run", id)
        if not self.stages:
            raise InvalidInput("stages", (), "at least one, added by @pipeline.stage")
        return await PipelineRun(self, {} if state is None else state, id).finish()


def _writer(model: Model | Writer | str) -> Writer:
    made = generator(open_model(model) if isinstance(model, str) else model)
    if not isinstance(made, Writer):
        raise InvalidInput("model", model, "a Model, a Writer or the name of a model")
    return made


def _check_name(what: str, name: object) -> str:
    known = isinstance(name, str) and name.strip() and name.isprintable() and "/" not in name
    if not isinstance(name, str) or not known or len(name.encode()) > LONGEST:
        allowed = f"printable text without a slash, of at most {LONGEST} bytes"
        raise InvalidInput(what, name, allowed)
    if redact(name) != name:
        raise InvalidInput(what, name, "a name without a secret: it is stored as it is")
    return name


Choice = TypeVar("Choice", bound=str)


def _one_of(what: str, value: Choice, allowed: Sequence[str]) -> Choice:
    if value not in allowed:
        raise InvalidInput(what, value, f"one of {', '.join(allowed)}")
    return value
