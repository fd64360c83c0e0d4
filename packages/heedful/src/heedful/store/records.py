"""The records of a store: loops, and the entries added to loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from heedful.loop import codec
from heedful.loop.decide import (
    Again,
    Decision,
    Done,
    Policy,
    Standing,
    Verdict,
    latest_verdict,
    state_after,
)
from heedful.loop.ladder import Climb, Ladder
from heedful.loop.record import DOUBT_STATES, Attempt, Loop, Override, Usage
from heedful.loop.runs import RaisedError, StageHead, StageReport, report_stage
from heedful.store.head import Head as Head  # noqa: PLC0414 - it is a record, too
from heedful.validation import Document, Fields, typed_frozen

if TYPE_CHECKING:  # a process that only reads loops needs no lessons
    from heedful.lessons.briefing import Briefing
    from heedful.lessons.lesson import Lesson, Outcome
    from heedful.lessons.lesson_check import Alarm, LessonCheck
    from heedful.loop.explain import Explanation

# The values of columns by their names, and a named statement with its values.
Statement = tuple[str, Fields]
# The key of the journal under which it says why the current attempt failed.
FAILURE_STEP = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLoop:
    """A loop as a store holds it.

    `values` are the candidates of the attempts, in order. `decisions` are all
    decisions, oldest first. `journal` maps keys to the results of finished steps of the
    current attempt. Each process that claims the loop increases `epoch`; a process with
    a lower epoch can no longer write. Times are seconds since 1970. `briefing` is what
    a memory showed the loop, None if no memory was asked. `row` is the number of its
    row in this store, `size` the number of characters of the JSON that was read.
    """

    id: str
    head: Head
    loop: Loop
    values: tuple[Any, ...]
    decisions: tuple[Decision, ...]
    journal: Fields
    epoch: int
    created: float
    updated: float
    briefing: Briefing | None = None
    row: int = field(default=0, compare=False, repr=False)
    size: int = field(default=0, compare=False, repr=False)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts of all decisions, oldest first."""
        return tuple(decision.verdict for decision in self.decisions)

    @property
    def verdict(self) -> Verdict:
        """The newest verdict; before the first attempt, that its first rung begins."""
        if not self.decisions:
            return Again(rung=self.loop.rung)
        return latest_verdict(self.decisions)

    @property
    def is_run(self) -> bool:
        """True if the loop is a run of a pipeline."""
        return self.head.kind == "run"

    @property
    def ended(self) -> bool:
        """True if the last decision ended the loop."""
        return isinstance(self.verdict, Done)

    def explain(self) -> Explanation:
        """Explain why the loop continued or stopped after each of its attempts.

        The explanation uses the decisions made at the time; nothing is decided again.
        """
        from heedful.loop import explain  # most loops are never explained

        policy = codec.policy_from(self.head.policy)
        explanation = explain.explain_recorded(self.loop, policy, self.decisions)
        return replace(explanation, failure=self.failure)

    @property
    def last_failure(self) -> RaisedError | None:
        """How the current attempt, or the run, failed the last time; None if it has not
        failed.
        """
        document = self.journal.get(FAILURE_STEP)
        return None if document is None else codec.from_document(RaisedError, document)

    @property
    def failure(self) -> str:
        """What failed, and how, in words; "" if nothing has failed."""
        failure = self.last_failure
        if failure is None:
            return ""
        part = f"Attempt {len(self.loop.attempts) + 1}"
        if failure.stage:
            part = f"Stage {failure.stage}"
        return f"{part} failed: {failure.error}"

    @property
    def awaits_judgement(self) -> bool:
        """True if the current attempt has an answer that is not judged yet."""
        return bool(self.journal.keys() - {FAILURE_STEP})

    @property
    def shown_state(self) -> str:
        """Its state as pages and the terminal show it.

        An open loop or run is shown as "failed" if an exception left it open. A loop
        that passed is shown as "unchecked" if no check judged it, and as
        "not_validated" if a check raised an error instead of judging. A run of a
        pipeline stays "passed", as each of its stages is a loop that is judged.
        """
        state = state_after(self.verdict)
        if state == "open" and self.last_failure is not None:
            return "failed"
        if state != "passed" or self.is_run:
            return state
        return self.loop.attempts[-1].doubt_state or state

    @property
    def doubt(self) -> str:
        """Why it is unchecked or not validated although it passed; else ""."""
        if self.shown_state not in DOUBT_STATES:
            return ""
        return self.loop.attempts[-1].doubt

    def summary(self) -> Document:
        """Return how the loop stands and what it used, as JSON data.

        `rung` is the name of the rung that answered, that is of one model of a ladder
        from cheaper to dearer ones: "" without a ladder, and if the loop has not
        passed. Times are in seconds since 1970.
        """
        loop = self.loop
        verdict = self.verdict
        stops = verdict.stopped_by if isinstance(verdict, Done) else ()
        rung = ""
        if loop.ladder is not None and state_after(verdict) == "passed":
            rung = loop.ladder.name(loop.rung)
        return {
            "id": loop.id,
            "state": state_after(verdict),
            "stopped_by": [stop.rule for stop in stops],
            "attempts": len(loop.attempts),
            "best": loop.best,
            "calls": loop.usage.calls,
            "tokens": loop.usage.tokens,
            "cost": loop.usage.cost,
            "rung": rung,
            "created": self.created,
            "updated": self.updated,
        }

    def stage_report(self, run: str) -> StageReport:
        """Return the report of this loop as a part of `run`, the id of a run.

        The loop is a stage of a pipeline, or a task of a list of tasks. A task has no
        record of its stage: its name is the rest of its id, behind that of the run.
        """
        stage = self.head.stage
        is_task = stage is None
        if stage is None:
            stage = StageHead(run=run, name=self.id.removeprefix(f"{run}/"))
        return report_stage(
            stage,
            self.loop,
            self.decisions,
            self.briefing,
            task=self.head.task,
            is_task=is_task,
        )


@typed_frozen(slots=True, kw_only=True)
class EntryColumns:
    """What an entry writes, as columns without secrets.

    The `attempt` is empty if the entry has none; `changes` are those of the loop,
    besides its state. The `statements`, by name and with their values, follow the
    attempt. `lifted` are the overrides that the verdict uses up, by their position.
    """

    attempt: Fields
    changes: Mapping[str, str]
    statements: Sequence[Statement]
    lifted: Sequence[int]


@dataclass(slots=True, kw_only=True)
class JournalEntry:
    """The data that one transaction adds to a loop.

    It is not frozen: its writer signs it, and a frozen copy takes a twentieth of an
    attempt.

    Set `head` for a loop that may be new. The `failure` says why the current attempt
    has none: it is kept until the attempt is recorded or the loop is resumed. A
    `verdict` that continues only because of overrides uses up one decision of each of
    them. `standing` says how close the loop was to its limits at the decision.
    `decided` is the time of the decision in seconds since 1970, 0 for now. For a loop
    without a driver, `seen` is the loop as it was read. A `ladder` replaces that of the
    loop, `climb` is how it ended, and `spending` is what an attempt of the rung with
    this name has used, if its first call was reserved. With `goes_on`, the next call
    follows at once and counts now: its process may not survive it. The `columns` of a
    large entry were made before the transaction to keep it short. The `answer` is what
    the caller of an override gets.
    """

    id: str
    epoch: int
    head: Head | None = None
    step: tuple[str, Any] | None = None
    failure: RaisedError | None = None
    attempt: Attempt | None = None
    value: Any = None
    verdict: Verdict | None = None
    standing: Standing | None = None
    decided: float = 0.0
    seen: StoredLoop | None = None
    extra: Usage | None = None
    cancelled: str = ""
    ladder: Ladder | None = None
    climb: Climb | None = None
    spending: tuple[str, Usage, float] | None = None
    overrides: tuple[Override, ...] = ()
    goes_on: bool = False
    columns: EntryColumns | None = None
    answer: Verdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEntry:
    """What memory writes in the transaction of a journal entry.

    The `briefing` and its exposures are written once for each loop. `lessons`,
    `outcome`, `most` and `quota` are as in `exposures.remember`, but lessons beyond the
    quota are left out. `alarms` are what the checks of lessons found in the attempt.
    """

    briefing: Briefing | None = None
    lessons: Sequence[Lesson] = ()
    outcome: Outcome | None = None
    alarms: tuple[Alarm, ...] = ()
    most: int = 0
    quota: int | None = None

    @property
    def teaches(self) -> bool:
        """True if it changes lessons, or what is known of them."""
        exposes = self.briefing is not None and bool(self.briefing.exposures)
        return bool(self.lessons or self.outcome or self.alarms or exposes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopState:
    """The state of a loop, for a decision by a process that does not drive the loop.

    `policy` is that of the loop, without rules that are user code. `driver` is the
    process that drives the loop now, or "". `checks` are those of lessons that judge
    loops of its memory key. `echoes` counts finding keys in other loops of the scope if
    a rule of the policy needs this.
    """

    stored: StoredLoop
    policy: Policy
    driver: str = ""
    checks: tuple[LessonCheck, ...] = ()
    echoes: Mapping[str, int] = field(default_factory=dict)
