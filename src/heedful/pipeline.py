"""Host (b): a pipeline whose stages are checked, told what was wrong, and run again; durably."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, overload

from heedful.checks.evaluate import Check, Evaluate
from heedful.drive.drive import given
from heedful.drive.generate import Writer, generator
from heedful.errors import InvalidInput
from heedful.guardrails import Guardrails
from heedful.lessons.lesson import Scope
from heedful.loop import policies
from heedful.loop.decide import Policy
from heedful.loop.record import Goal
from heedful.loop.stop import MaxAttempts
from heedful.memory.memory import Memory
from heedful.models import open_model
from heedful.models.contract import Model
from heedful.redact import redacted
from heedful.reports import Exhausted, Report, file_safe
from heedful.running import Running
from heedful.stages import REPORTS, Stage, Unvalidated, Work
from heedful.store import open_store
from heedful.store.store import Store

F = TypeVar("F", bound=Work)
# Of a name, in bytes: one of a stage and one of a run are in the name of a file.
LONGEST = 100
EXHAUSTED = ("continue", "halt", "best")
UNVALIDATED = ("continue", "halt")


class Pipeline:
    """Stages in order, each checked and, where it fails, run again with what was wrong.

    `on_exhausted` says how a run goes on from a stage that never passed: "continue" with its last
    attempt, "best" with its best one, or "halt". `on_unvalidated` says it for one that a check that
    raises could not judge: "continue" or "halt". With `memory` a stage is told at once what went
    wrong in it before, and what mended it. `store` makes runs durable (None: not at all). `reports`
    is a folder for the report of each attempt and run. `progress` goes to standard error: True,
    False, or where that is a terminal. `settings` bound the attempts. Raises InvalidInput.
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
        self.name: str = _named("name of a pipeline", name)
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
        """Add a stage: a function of the state, plain or async, in the order they are added.

        What it returns is its output, which later stages find in the state under its name; one that
        returns nothing changes the state itself. A parameter `feedback` gets what was wrong with
        the attempt before, None where there is nothing to tell. Checks see the output, or the
        state, and the state as `context.data`. With a `model` the function returns the prompt, and
        what the model answers is the output. `retries` are attempts after the first, or a `policy`
        says when it ends; `timeout` is one attempt's, in seconds. An output that cannot be written
        down is an error in a durable run, unless `rerun` says that the stage is to run again when a
        run is resumed. Raises InvalidInput.
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
        """The name, where neither the state nor the folder has something else under it."""
        _named("name of a stage", name)
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
        """Run all stages over a state: a mutable mapping, or an object whose attributes can be set.

        A run of that `id` that was interrupted goes on at the first stage that has not ended, over
        a state as it was given at first; what ended is restored, not run again. Raises StageFailed,
        NotJournalable, ModelError, StoreError, LeaseLost; the run can then be resumed.
        """
        if id:
            _named("id of a run", id)
        if not self.stages:
            raise InvalidInput("stages", (), "at least one, added by @pipeline.stage")
        return await Running(self, {} if state is None else state, id).finish()


def _writer(model: Model | Writer | str) -> Writer:
    made = generator(open_model(model) if isinstance(model, str) else model)
    if not isinstance(made, Writer):
        raise InvalidInput("model", model, "a Model, a Writer or the name of a model")
    return made


def _named(what: str, name: object) -> str:
    known = isinstance(name, str) and name.strip() and name.isprintable() and "/" not in name
    if not isinstance(name, str) or not known or len(name.encode()) > LONGEST:
        allowed = f"printable text without a slash, of at most {LONGEST} bytes"
        raise InvalidInput(what, name, allowed)
    if redacted(name) != name:
        raise InvalidInput(what, name, "a name without a secret: it is stored as it is")
    return name


Choice = TypeVar("Choice", bound=str)


def _one_of(what: str, value: Choice, allowed: Sequence[str]) -> Choice:
    if value not in allowed:
        raise InvalidInput(what, value, f"one of {', '.join(allowed)}")
    return value
