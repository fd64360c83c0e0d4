"""Stages of a pipeline, and how to undo, store and restore their changes to the
state.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, Literal

from heedful.checks import tables
from heedful.checks.evaluate import Check, Context, Evaluate, blocking, call, context
from heedful.checks.numbers import Column, short
from heedful.drive.generate import Writer
from heedful.errors import InvalidInput, NotJournalable, PackageMissing, StageFailed
from heedful.lessons.ranking import as_text
from heedful.loop.decide import Policy
from heedful.loop.record import Goal
from heedful.loop.runs import Exhausted
from heedful.loop.stop import check_names

REPORTS_STATE_FIELD = (
    "guardrail_reports"  # the field of the state that holds reports and feedback
)
UNSTORABLE_STATE_MESSAGE = (
    "stage {!r}: {} is a {}, which cannot be stored; to resume a run after it, save "
    "the data to a "
    "file and return the path, or declare the stage with rerun=True (it runs again)"
)
# rows and columns of a data frame that a report shows
MAX_FRAME_ROWS = 5
MAX_FRAME_COLUMNS = 20
# a larger frame is described without its columns, in time for the next attempt
MAX_FRAME_CELLS = 1_000_000
Work = Callable[..., Any]
Unvalidated = Literal["continue", "halt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stage: a function that changes the state or, with a `writer`, returns a
    prompt.
    """

    name: str
    function: Work
    policy: Policy
    checks: Sequence[Check] = ()
    goals: Sequence[Goal] = ()
    evaluate: Evaluate | None = None
    writer: Writer | None = None
    on_exhausted: Exhausted = "continue"
    on_unvalidated: Unvalidated = "continue"
    timeout: float | None = None
    rerun: bool = False
    memory_key: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which its checks report."""
        return check_names(
            self.checks if self.evaluate is None else (*self.checks, self.evaluate)
        )


@dataclass(frozen=True, slots=True)
class StateChange:
    """The effect of a stage on the state: the fields it `changed`, and those it removed
    (`gone`).

    The output of the stage is the field with the name of the stage.
    """

    changed: Mapping[str, Any] = field(default_factory=dict)
    gone: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return the effect as JSON data. JSON has no NaN, so a value with NaN becomes
        text.
        """
        texts = {name: written(value) for name, value in self.changed.items()}
        odd = {name: text for name, text in texts.items() if text and "NaN" in text}
        changed = {
            name: value for name, value in self.changed.items() if name not in odd
        }
        more = {"text": odd, "gone": list(self.gone)}
        return {
            "changed": changed,
            **{name: value for name, value in more.items() if value},
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> StateChange:
        """Return the effect from JSON data that the method `plain` returned."""
        odd = {name: json.loads(text) for name, text in plain.get("text", {}).items()}
        return cls(plain["changed"] | odd, tuple(plain.get("gone", ())))


class StateBefore:
    """The state before a stage, to find the changes of an attempt and to undo them.

    Values that JSON can represent are copied, and so are data frames; others are not
    copied.
    """

    def __init__(self, state: Any) -> None:
        self._fields = {
            name: (value, _copy(value)) for name, value in fields_of(state).items()
        }

    def restore(self, state: Any) -> None:
        """Restore the state, with copies of the JSON data and data frames that
        changed.
        """
        now = fields_of(state)
        for name in now.keys() - self._fields.keys():
            drop(state, name)
        for name, (value, kept) in self._fields.items():
            if now.get(name, self) is not value or not _equal(kept, value):
                put(state, name, _copy(kept))

    def effect(self, state: Any, output: str = "") -> StateChange:
        """Return how `state` differs from before; the field `output` always counts as
        changed.
        """
        now = fields_of(state)
        known = self._fields
        same = {
            n
            for n in now.keys() & known.keys() - {output}
            if _equal(known[n][1], now[n])
        }
        changed = {
            name: _copy(value) for name, value in now.items() if name not in same
        }
        return StateChange(changed, tuple(sorted(known.keys() - now.keys())))


def _copy(value: Any) -> Any:
    """Return a copy of JSON data and of a data frame, and any other value itself."""
    return deepcopy(value) if _is_frame(value) or written(value) is not None else value


def _is_frame(value: Any) -> bool:
    """Return True for a data frame of pandas or polars, and for a table of pyarrow."""
    return all(hasattr(type(value), name) for name in ("equals", "columns"))


def _equal(one: Any, other: Any) -> bool:
    """Return True for the same object, equal data frames and equal JSON data."""
    if type(one) is not type(other) or one is other:
        return one is other
    if _is_frame(one):
        return bool(one.equals(other))
    text = written(one)
    return text is not None and text == written(other)


def described(value: Any) -> str:
    """Describe a data frame or an array: its shape, columns and first rows; "" for
    others.
    """
    shape = getattr(value, "shape", ())
    columns = dict[str, Column]()
    if not (shape and hasattr(value, "__array__")):
        return ""
    with suppress(PackageMissing, tables.TableError):
        table = tables.open_table(value if prod(shape) < MAX_FRAME_CELLS else None)
        columns = {name: Column(name=name) for name in table.columns}
        for batch in table.batches(table.columns):
            for column, cells in zip(columns.values(), batch, strict=True):
                column.add(*tables.to_numbers(cells))
    known = [column for column in columns.values() if column.n][:MAX_FRAME_COLUMNS]
    ranges = [
        f"{c.name}: {short(c.least)} to {short(c.most)}, mean {short(c.mean)}"
        for c in known
    ]
    sizes = " × ".join(map(str, shape))
    head = value[:MAX_FRAME_ROWS]
    return "\n".join([f", {sizes}", *ranges, f"first rows:\n{head}"])


def written(value: Any) -> str | None:
    """Return `value` as JSON that represents it exactly (NaN included), or None if JSON
    cannot.
    """
    with suppress(TypeError, ValueError, RecursionError):
        text = json.dumps(value)
        again = json.loads(text)
        if again == value or repr(again) == repr(value):  # NaN does not equal itself
            return text
    return None


def fields_of(state: Any) -> dict[str, Any]:
    """Return the fields of a state by name, without heedful's reports. Raises
    InvalidInput.
    """
    named = [kind.__dict__.get("__slots__", ()) for kind in type(state).__mro__]
    every = [
        name
        for names in named
        for name in ([names] if isinstance(names, str) else names)
    ]
    slots = [name for name in every if not name.startswith("__")]
    if isinstance(state, Mapping):
        settable = isinstance(state, MutableMapping)
        held = dict(state)
    else:
        settable = bool(slots) or hasattr(state, "__dict__")
        held = {name: getattr(state, name) for name in slots if hasattr(state, name)}
        # pydantic stores undeclared fields separately.
        for more in ("__dict__", "__pydantic_extra__"):
            held |= getattr(state, more, None) or {}
    if not settable or not all(isinstance(name, str) for name in held):
        allowed = (
            "a mutable mapping with names as keys, or an object whose attributes can "
            "be set"
        )
        raise InvalidInput("state", state, allowed)
    return {name: value for name, value in held.items() if name != REPORTS_STATE_FIELD}


def put(state: Any, name: str, value: Any) -> None:
    """Set the field `name`. Raises InvalidInput if the state does not allow it."""
    if isinstance(state, MutableMapping):
        state[name] = value
        return
    try:
        setattr(state, name, value)
    except (AttributeError, ValueError, TypeError) as error:
        allowed = f"one that lets {name!r} be set ({error})"
        raise InvalidInput("state", type(state).__name__, allowed) from error


def drop(state: Any, name: str) -> None:
    """Remove the field `name` if the state has it."""
    if isinstance(state, MutableMapping):
        state.pop(name, None)
    elif hasattr(state, name):
        delattr(state, name)


def reports_of(state: Any) -> MutableMapping[str, Any]:
    """Return the dict of reports and feedback in the state; add one if it is
    missing.
    """
    held = (
        state.get(REPORTS_STATE_FIELD)
        if isinstance(state, Mapping)
        else getattr(state, REPORTS_STATE_FIELD, None)
    )
    if isinstance(held, MutableMapping):
        return held
    fresh: dict[str, Any] = {}
    with suppress(InvalidInput):
        put(state, REPORTS_STATE_FIELD, fresh)
    return fresh


class StageState:
    """A stage with its state: generates candidates for the loop of the stage, and
    undoes attempts.

    `run` is the id of a durable run, else "". `made` has the candidates of an earlier
    process.
    """

    def __init__(
        self, stage: Stage, state: Any, run: str, made: Sequence[Any] = ()
    ) -> None:
        self.stage: Stage = stage
        self.state: Any = state
        self.made: tuple[Any, ...] = tuple(made)
        self.is_async: bool = not blocking(stage.function)
        self.run: str = run
        self._before = StateBefore(state)
        self._effects: dict[int, StateChange] = {}
        self._latest = 0  # the number of the attempt whose effect the state holds
        self.over = (
            False  # True to ignore the output of attempts that are still running
        )
        self.unstored: str = ""  # says what the latest attempt made that is not stored
        self._takes_feedback = _takes_feedback(stage.function)

    def __call__(self, task: Any, hint: str) -> Any:
        """Call the function on the state before the stage; return the effect as JSON
        data.
        """
        at = context()
        self.undo()
        said = at.hint or (as_text((), at.seed, at.advice) if at.advice else "")
        tell(self.state, self.stage.name, said)
        named = {"feedback": said or None} if self._takes_feedback else {}
        value = self.stage.function(self.state, **named)
        return (
            self._awaited(value, at)
            if hasattr(value, "__await__")
            else self._done(value, at)
        )

    async def _awaited(self, value: Any, at: Context) -> dict[str, Any]:
        return self._done(await value, at)

    def _done(self, output: Any, at: Context) -> dict[str, Any]:
        """Return the effect as JSON data, without values that JSON cannot represent."""
        if (
            self.over
        ):  # a thread that timed out cannot be stopped; its output is ignored
            return {}
        returned = output is not None and output is not self.state
        if returned:
            put(self.state, self.stage.name, output)
        effect = self._before.effect(self.state, self.stage.name if returned else "")
        self._effects[at.attempt] = effect
        self._latest = at.attempt
        changed = effect.changed.items()
        unfit = {name: value for name, value in changed if written(value) is None}
        loose = {name: self._described(name, unfit[name], at.attempt) for name in unfit}
        kept = {name: value for name, value in changed if name not in loose}
        # Changes inside a value that JSON cannot represent are not seen here, except in
        # a frame.
        again = {"rerun": loose} if loose or self.stage.rerun else {}
        self.unstored = (
            self._unstored(loose) if self.run and not self.stage.rerun else ""
        )
        return StateChange(kept, effect.gone).plain() | again

    def _described(self, name: str, value: Any, attempt: int) -> str:
        """Describe a value that is not stored; equal values have equal descriptions."""
        for earlier, effect in reversed(self._effects.items()):
            if _equal(effect.changed.get(name), value):
                attempt = earlier
        return f"{type(value).__name__} of attempt {attempt}{described(value)}"

    def _unstored(self, loose: Mapping[str, str]) -> str:
        """Return a text about the first value of `loose`, with its type; "" without
        values.
        """
        for name, kind in loose.items():
            own = name == self.stage.name
            what = "its output" if own else f"what it left in the state as {name!r}"
            return UNSTORABLE_STATE_MESSAGE.format(
                self.stage.name, what, kind.split()[0]
            )
        return ""

    def previous(self, at: Context) -> Any:
        """Return the output of the attempt before, None if it is not known."""
        before = self._effects.get(at.attempt - 1) or StateChange.of(at.previous)
        return before.changed.get(self.stage.name)

    async def output(self, candidate: Any, at: Context) -> Any:
        """Return the output of an attempt, or else the state after it. Raises
        StageFailed.
        """
        await self.restore(at, candidate)
        return self._effects[at.attempt].changed.get(self.stage.name, self.state)

    async def restore(self, at: Context, candidate: Any = None) -> None:
        """Restore the state as it was after an attempt. Raises StageFailed,
        NotJournalable.
        """
        if self._latest == at.attempt:
            return
        if candidate is None and at.attempt <= len(self.made):
            candidate = self.made[at.attempt - 1]
        if isinstance(candidate, str):  # what a model wrote
            self._effects[at.attempt] = StateChange({self.stage.name: candidate})
        elif at.attempt not in self._effects and "rerun" in candidate:
            if not self.stage.rerun:
                raise NotJournalable(self._unstored(candidate["rerun"]))
            failed = partial(StageFailed, self.stage.name, self.run)
            await call(failed, self, at.task, at.hint, at=at, thread=blocking(self))
            return
        elif at.attempt not in self._effects:  # another process made it
            self._effects[at.attempt] = StateChange.of(candidate)
        self.undo()
        tell(self.state, self.stage.name, at.hint)
        for name, value in self._effects[at.attempt].changed.items():
            put(self.state, name, value)
        for name in self._effects[at.attempt].gone:
            drop(self.state, name)
        self._latest = at.attempt

    def undo(self) -> None:
        """Restore the state as it was before the stage."""
        self._latest = 0
        self._before.restore(self.state)


def tell(state: Any, stage: str, feedback: str) -> None:
    """Write the feedback for a stage to the state, or remove it if it is ""."""
    reports = reports_of(state)
    if feedback:
        reports[f"{stage}_feedback"] = feedback
    else:
        reports.pop(f"{stage}_feedback", None)


def _takes_feedback(function: Work) -> bool:
    """Return True if `function`, and any function that it wraps, accepts `feedback`."""
    with suppress(
        TypeError, ValueError
    ):  # some functions written in C have no signature
        for far in (True, False):
            inspect.signature(function, follow_wrapped=far).bind(None, feedback=None)
        return True
    return False
