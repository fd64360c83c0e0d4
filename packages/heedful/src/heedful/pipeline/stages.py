"""Stages of a pipeline, and how their changes to the state are undone and restored.

A stage is a function that changes a state. To repeat it, its attempts must start from
the same state: `StateBefore` copies what it can and finds what an attempt changed. The
change, a `StateChange`, is the candidate of the attempt: checks judge it, the journal
stores it as JSON, and a resumed run restores it. What JSON cannot represent, such as a
data frame, is described instead; to restore it, the stage runs again.
"""

import inspect
import json
from collections.abc import (
    AsyncIterator,
    Callable,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from os import PathLike
from typing import Any, Literal

from heedful.checks.evaluate import (
    Check,
    Context,
    Evaluate,
    Yielded,
    blocking,
    call,
    context,
    key_of,
    read_iterator,
)
from heedful.checks.output import (
    Output,
    differences,
    from_stored,
    to_stored,
    with_calls,
)
from heedful.checks.refusal import Refusing
from heedful.drive.generate import Generator, Rung, Writer, read_answers
from heedful.drive.judgement import judge_names
from heedful.drive.options import RETRY_SECONDS
from heedful.errors import (
    InvalidInput,
    NotJournalable,
    OutputChanged,
    StageFailed,
)
from heedful.faults import kind_and_size
from heedful.lessons.render import as_text
from heedful.loop.decide import Policy
from heedful.loop.record import Attempt, Candidate, Goal
from heedful.loop.runs import Exhausted
from heedful.models.contract import Answer
from heedful.redact import redact_data
from heedful.validation import Document, Fields, require

# The field of the state that has the reports and the feedback.
REPORTS_STATE_FIELD = "guardrail_reports"
UNSTORABLE_STATE_MESSAGE = (
    "stage {!r}: {} is a {}, which cannot be stored; to resume after it, return JSON "
    "or the path of a file, or use rerun=True"
)
Work = Callable[..., Any]
Unvalidated = Literal["continue", "halt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stage: a function that changes the state or, for a `writer`, gives a prompt.

    `then` are further functions or, for a `writer`, further writers: each takes over
    when a rule ends the attempts of the one before.
    """

    name: str
    function: Work
    policy: Policy
    checks: Sequence[Check] = ()
    goals: Sequence[Goal] = ()
    evaluate: Evaluate | None = None
    writer: Writer | None = None
    then: Sequence[Generator] = ()
    on_exhausted: Exhausted = "continue"
    on_unvalidated: Unvalidated = "continue"
    timeout: float | None = None
    rerun: bool = False
    memory_key: str | None = None
    refuse: Refusing = ()
    retry_on: Sequence[type[Exception]] = ()
    wait: Sequence[float] = RETRY_SECONDS
    output: Output | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which its checks report."""
        return judge_names(self.checks, self.evaluate, self.output)


@dataclass(frozen=True, slots=True)
class StateChange:
    """The effect of a stage on the state: the fields it `changed` and removed (`gone`).

    The output of the stage is the field with the name of the stage. `described` has the
    fields whose values JSON cannot represent, each with a description. It is None if
    the whole change is stored; for a stage that always runs again it may be empty.
    `type_name` is the class of a stored output, "" for text and JSON data.
    """

    changed: Fields = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    described: Mapping[str, str] | None = None
    type_name: str = ""

    @property
    def names(self) -> set[str]:
        """The names of the fields that the stage set, changed or removed."""
        return {*self.changed, *self.gone, *(self.described or ())}

    def to_data(self) -> Document:
        """Return JSON data, as it is stored.

        The described fields are under "rerun", because only another run of the stage
        restores them. JSON has no NaN and no infinity, so a value with one is stored as
        the text that Python writes and reads, under "text".
        """
        changed = {}
        texts = {}
        for name, value in self.changed.items():
            text = json_text(value) or "null"
            # A string with one of these words is stored so, too, which is harmless.
            if "NaN" in text or "Infinity" in text:
                texts[name] = text
            else:
                changed[name] = json.loads(text)

        document: Document = {"changed": changed}
        if texts:
            document["text"] = texts
        if self.gone:
            document["gone"] = list(self.gone)
        if self.described is not None:
            document["rerun"] = dict(self.described)
        if self.type_name:
            document["type"] = self.type_name

        return document

    @classmethod
    def from_data(cls, document: Fields) -> "StateChange":
        """Return the change whose method `to_data` returned the document."""
        changed = dict(document["changed"])
        for name, text in document.get("text", {}).items():
            changed[name] = json.loads(text)
        return cls(
            changed,
            tuple(document.get("gone", ())),
            described=document.get("rerun"),
            type_name=document.get("type", ""),
        )


class StateBefore:
    """The state before a stage, to find the changes of an attempt and to undo them.

    Values that JSON can represent are copied, and so are data frames; others are not
    copied.
    """

    def __init__(self, state: Any) -> None:
        self._values = fields_of(state)
        self._copies = {name: _copy_data(value) for name, value in self._values.items()}

    def restore(self, state: Any) -> None:
        """Restore the state, with copies of JSON data and data frames that changed."""
        now = fields_of(state)
        for name in now.keys() - self._values.keys():
            drop(state, name)

        for name, value in self._values.items():
            copy = self._copies[name]
            replaced = name not in now or now[name] is not value
            if replaced or not _are_equal(copy, value):
                put(state, name, _copy_data(copy))

    def change(self, state: Any, output: str = "") -> StateChange:
        """Return how `state` differs from before; the field `output` always differs."""
        now = fields_of(state)
        changed = {}
        for name, value in now.items():
            existed = name in self._copies and name != output
            if not existed or not _are_equal(self._copies[name], value):
                changed[name] = _copy_data(value)

        return StateChange(changed, tuple(sorted(self._copies.keys() - now.keys())))


def _copy_data(value: Any) -> Any:
    """Return a copy of JSON data and of a data frame, and any other value itself."""
    if _is_frame(value) or json_text(value) is not None:
        return deepcopy(value)
    return value


def _is_frame(value: Any) -> bool:
    """Return True for a data frame of pandas or polars, and for a table of pyarrow."""
    return all(hasattr(type(value), name) for name in ("equals", "columns"))


def _are_equal(first: Any, second: Any) -> bool:
    """Return True for the same object, equal data frames and equal JSON data."""
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    if _is_frame(first):
        return bool(first.equals(second))

    text = json_text(first)
    return text is not None and text == json_text(second)


def describe(value: Any) -> str:
    """Return the first rows of a data frame or an array; "" for others."""
    if not getattr(value, "shape", ()) or not hasattr(value, "__array__"):
        return ""
    return f"\nfirst rows:\n{value[:5]}"


def json_text(value: Any) -> str | None:
    """Return JSON that represents `value` exactly, NaN included; None if none does."""
    with suppress(TypeError, ValueError, RecursionError):
        text = json.dumps(value)
        restored = json.loads(text)
        # NaN differs from itself, but its text does not.
        if restored == value or repr(restored) == repr(value):
            return text

    return None


def _describe_kind(value: Any) -> str:
    """Return the type and size of a value that JSON cannot represent, and where.

    The value itself is not quoted.
    """
    kind = kind_and_size(value)
    if type(value) not in (dict, list):
        return kind
    with suppress(TypeError, ValueError, RecursionError):
        again = json.loads(json.dumps(value, default=lambda part: ""))
        return f"{kind} ({next(differences(value, again), 'no JSON')})"
    return f"{kind} with a part that is no JSON"


def fields_of(state: Any) -> Document:
    """Return the fields of a state by name, without heedful's reports.

    Raises InvalidInput.
    """
    if isinstance(state, Mapping):
        settable = isinstance(state, MutableMapping)
        values = dict(state)
    else:
        slots = _slots_of(type(state))
        settable = bool(slots) or hasattr(state, "__dict__")
        values = {name: getattr(state, name) for name in slots if hasattr(state, name)}

        # pydantic stores undeclared fields separately.
        for attribute in ("__dict__", "__pydantic_extra__"):
            values |= getattr(state, attribute, None) or {}

    has_names = all(isinstance(name, str) for name in values)
    allowed = (
        "a mutable mapping with names as keys, or an object whose attributes can be set"
    )
    require(settable and has_names, "state", state, allowed)

    values.pop(REPORTS_STATE_FIELD, None)
    return values


def digests_of(state: Any) -> dict[str, str]:
    """Return a digest of each field with JSON data or a path, by the field's name."""
    return {
        name: Candidate.of(value).digest
        for name, value in fields_of(state).items()
        if isinstance(value, PathLike) or json_text(value) is not None
    }


def _slots_of(kind: type) -> list[str]:
    """Return the names in `__slots__` of a class and of its bases."""
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        if isinstance(slots, str):  # a single slot may be written without a tuple
            slots = [slots]
        names += slots

    return [name for name in names if not name.startswith("__")]


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
    """Return the dict of reports and feedback in the state; add one if it has none."""
    if isinstance(state, Mapping):
        reports = state.get(REPORTS_STATE_FIELD)
    else:
        reports = getattr(state, REPORTS_STATE_FIELD, None)
    if isinstance(reports, MutableMapping):
        return reports

    new_reports: Document = {}
    with suppress(InvalidInput):
        put(state, REPORTS_STATE_FIELD, new_reports)
    return new_reports


def set_feedback(state: Any, stage: str, feedback: str) -> None:
    """Write the feedback for a stage to the state, or remove it if it is ""."""
    reports = reports_of(state)
    if feedback:
        reports[f"{stage}_feedback"] = feedback
    else:
        reports.pop(f"{stage}_feedback", None)


class StageState:
    """The state of a run while the attempts of one stage change it, and are undone.

    `run` is the id of a durable run, else "". Its user sets what an earlier process has
    stored: `candidates`, their `attempts`, and the `declaration` that the output had.
    `unstored` is the message about a result of the latest attempt that
    is not stored, "" if all are.
    """

    def __init__(
        self,
        stage: Stage,
        state: Any,
        run: str,
    ) -> None:
        self.stage = stage
        self.state = state
        self.run = run
        self.candidates: Sequence[Any] = ()
        self.attempts: Sequence[Attempt] = ()
        self.declaration: str = ""
        self.unstored: str = ""

        self._before = StateBefore(state)
        self._changes: dict[int, StateChange] = {}  # by the number of the attempt
        self._latest = 0  # the number of the attempt whose change the state has
        self._closed = False

    @property
    def generators(self) -> list[Generator]:
        """What makes the candidates of the stage's loop, one for each rung."""
        first = self.stage.writer or self.stage.function
        return [self._generator(work) for work in (first, *self.stage.then)]

    def _generator(self, work: Any) -> Any:
        """Return what the loop calls for a function, a writer or a `Rung` of one."""
        if isinstance(work, Rung):
            return replace(work, generate=self._generator(work.generate))
        if isinstance(work, Writer):
            return work.asking_for(self.stage.output)

        make = self._run if blocking(work) else self._run_and_await

        def generate(task: Any, hint: str) -> Any:
            """Run the function on the state, with the hint of the context."""
            return make(work)

        generate.is_async = not blocking(work)  # type: ignore[attr-defined]
        generate.label = key_of(work)  # type: ignore[attr-defined]
        return generate

    def close(self) -> None:
        """Ignore the output of attempts that are still running: threads cannot stop."""
        self._closed = True

    async def _run_and_await(self, work: Work) -> Any:
        """Run a function as `_run` does, and await its output if it is async."""
        result = self._run(work)
        return await result if hasattr(result, "__await__") else result

    def _run(self, work: Work) -> Any:
        """Call a function on the state as it was before the stage; return its answer.

        If the output of the function has to be awaited, so has the answer.
        """
        current = context()
        self.undo()

        feedback = current.hint
        if not feedback and current.advice:
            feedback = as_text((), current.seed, current.advice)
        set_feedback(self.state, self.stage.name, feedback)

        arguments = dict.fromkeys(feedback_parameter(work), feedback or None)
        output = work(self.state, **arguments)

        if hasattr(output, "__await__") or isinstance(output, AsyncIterator):
            return self._await_answer(output, current.attempt)
        return self._answer_of(output, current.attempt)

    async def _await_answer(self, output: Any, attempt: int) -> Answer:
        """Await the output of an attempt; return its answer."""
        if isinstance(output, AsyncIterator):
            output = Yielded([part async for part in output])
        else:
            output = await output
        return self._answer_of(output, attempt)

    def _answer_of(self, output: Any, attempt: int) -> Answer:
        """Return the answer of an attempt: its change, and the usage that it reports.

        `output` is what the function returned; the change includes it.
        """
        answers: list[Answer] = []
        if output is not self.state:
            # Only what the function itself yields is one text, and no iterator.
            if inspect.isgeneratorfunction(self.stage.function):
                output = read_iterator(output)
            answers = read_answers(self.stage.name, output)
        answer = answers[0] if answers else Answer(output)
        answer = with_calls(answer, self.stage.output)
        return replace(answer, text=self._note_change(answer.text, attempt))

    def _note_change(self, output: Any, attempt: int) -> Any:
        """Put the output into the state and remember how the attempt changed it.

        Returns the change as JSON data, {} if the stage is closed. A change inside a
        value that JSON cannot represent is noticed only if it is a data frame.
        """
        # A thread cannot stop: once its stage is closed, what it returns is ignored.
        if self._closed:
            return {}

        output_field = ""
        if output is not None and output is not self.state:
            output_field = self.stage.name
            put(self.state, output_field, output)

        change = self._before.change(self.state, output_field)
        self._changes[attempt] = change
        self._latest = attempt

        stored_change, described = self._split_change(change, output_field, attempt)

        self.unstored = ""
        if described and self.run and not self.stage.rerun:
            name = next(iter(described))
            kind = _describe_kind(change.changed[name])
            self.unstored = self._unstorable_message(name, kind)

        if described or self.stage.rerun:
            stored_change = replace(stored_change, described=described)
        return stored_change.to_data()

    def _split_change(
        self, change: StateChange, output_field: str, attempt: int
    ) -> tuple[StateChange, dict[str, str]]:
        """Return what is stored of a change, and describe the values that are not."""
        storable = {}
        described = {}
        type_name = ""
        for name, value in change.changed.items():
            if self.run and self.stage.output is not None and name == output_field:
                storable[name], type_name = to_stored(value, self.stage.output)
            elif json_text(value) is None:
                described[name] = self._describe(name, value, attempt)
            else:
                storable[name] = value
        return StateChange(storable, change.gone, type_name=type_name), described

    def set_output(self, attempt: int, value: Any) -> None:
        """Replace the output of an attempt by the object that was read from it."""
        change = self._changes[attempt]
        changed = {**change.changed, self.stage.name: value}
        self._changes[attempt] = replace(change, changed=changed)
        put(self.state, self.stage.name, value)

    def _as_declared(self, change: StateChange, number: int) -> StateChange:
        """Return a stored change with its output as the declared type.

        `number` is that of its attempt. Raises OutputChanged.
        """
        name = self.stage.name
        if name not in change.changed:
            return change
        try:
            value = self._restore_output(change, number)
        except OutputChanged as error:
            place = f"stage {name!r} of run {self.run!r}"
            raise OutputChanged(f"{place}: {error}") from error.__cause__
        changed = {**change.changed, name: value}
        return replace(change, changed=changed, type_name="")

    def _restore_output(self, change: StateChange, number: int) -> Any:
        """Return the output in a stored change as what it was. Raises OutputChanged."""
        data = change.changed[self.stage.name]
        output = self.stage.output
        if change.type_name:
            functions = [self.stage.function]
            return from_stored(data, change.type_name, output, functions)

        # What did not fit at the time was kept as it was.
        evaluation = self.attempts[number - 1].evaluation
        was_refused = evaluation is not None and evaluation.misfits_output
        if output is None or was_refused:
            return data
        return output.read_stored(data, self.declaration)

    def digests(self, attempt: int) -> dict[str, str]:
        """Return a digest of each field that an attempt changed, by the field's name.

        It is "" for what is removed or no JSON, and for a stage that always runs again.
        """
        change = self._changes[attempt]
        digests = dict.fromkeys(change.names, "")
        for name, value in change.changed.items():
            data = value
            if name == self.stage.name and self.stage.output is not None:
                data = self.stage.output.plain(value)
            if not self.stage.rerun and json_text(data) is not None:
                digests[name] = Candidate.of(redact_data(data)).digest
        return digests

    def _describe(self, name: str, value: Any, attempt: int) -> str:
        """Return a description of a value that is not stored.

        It has the number of the first attempt that made an equal value, so equal values
        have equal descriptions.
        """
        attempts = (
            number
            for number, change in self._changes.items()
            if _are_equal(change.changed.get(name), value)
        )
        number = next(attempts, attempt)
        return f"{_describe_kind(value)} of attempt {number}{describe(value)}"

    def _unstorable_message(self, name: str, kind: str) -> str:
        """Return the message for a field whose value, of this `kind`, is not stored."""
        place = "its output" if name == self.stage.name else f"the state's {name!r}"
        return UNSTORABLE_STATE_MESSAGE.format(self.stage.name, place, kind)

    def previous(self, at: Context) -> Any:
        """Return the output of the previous attempt, None if it is not known."""
        change = self._changes.get(at.attempt - 1) or StateChange.from_data(at.previous)
        return change.changed.get(self.stage.name)

    async def output(self, candidate: Any, at: Context) -> Any:
        """Return the output of an attempt, or else the state after it.

        Raises StageFailed.
        """
        await self.restore(at, candidate)
        return self._changes[at.attempt].changed.get(self.stage.name, self.state)

    async def restore(self, at: Context, candidate: Any = None) -> None:
        """Restore the state as it was after an attempt.

        `candidate` is that of the attempt, None if only its number is known. Raises
        StageFailed, NotJournalable, OutputChanged.
        """
        attempt = at.attempt
        if self._latest == attempt:
            return

        is_stored = candidate is None and attempt <= len(self.candidates)
        if is_stored:
            candidate = self.candidates[attempt - 1]

        if isinstance(candidate, str):  # what a model wrote
            self._changes[attempt] = StateChange({self.stage.name: candidate})
        elif attempt not in self._changes:  # another process made it
            change = StateChange.from_data(candidate)
            if change.described is not None:
                await self._repeat(at, change.described)
                return
            self._changes[attempt] = change

        if is_stored or self._changes[attempt].type_name:
            change = self._changes[attempt]
            self._changes[attempt] = self._as_declared(change, attempt)

        self.undo()
        set_feedback(self.state, self.stage.name, at.hint)
        change = self._changes[attempt]
        for name, value in change.changed.items():
            put(self.state, name, value)
        for name in change.gone:
            drop(self.state, name)

        self._latest = attempt

    async def _repeat(self, context: Context, described: Mapping[str, str]) -> None:
        """Run an attempt again, because its change is not stored.

        Raises NotJournalable unless the stage has `rerun`, and StageFailed.
        """
        if not self.stage.rerun:
            name, value = next(iter(described.items()))
            kind = value.partition("\n")[0]  # the rows are the caller's own
            raise NotJournalable(self._unstorable_message(name, kind))
        failed = partial(StageFailed, self.stage.name, self.run)
        rung = 1
        if context.attempt <= len(self.attempts):
            rung = self.attempts[context.attempt - 1].rung
        work: Any = (self.stage.function, *self.stage.then)[rung - 1]
        if isinstance(work, Rung):
            work = work.generate

        thread = blocking(work)
        make = self._run if thread else self._run_and_await
        await call(failed, make, work, at=context, thread=thread)

    def undo(self) -> None:
        """Restore the state as it was before the stage."""
        self._latest = 0
        self._before.restore(self.state)


@lru_cache(256)  # the functions of the stages of a process
def feedback_parameter(function: Work) -> tuple[str, ...]:
    """Return the name of the parameter that gets the feedback, or () if there is none.

    `function`, and any function that it wraps, accepts it. Raises InvalidInput for a
    function that cannot be called with the state, nor with state and feedback.
    """
    for names in (("feedback",), ("hint",), ()):
        try:
            for follow in (True, False):
                signature = inspect.signature(function, follow_wrapped=follow)
                signature.bind(None, **dict.fromkeys(names))
            return names
        except TypeError:
            continue
        except ValueError:  # some functions in C have no signature
            return ()

    name = getattr(function, "__name__", "function")
    allowed = "a function of the state, or of the state and `feedback`"
    raise InvalidInput("stage", f"{name}{inspect.signature(function)}", allowed)
