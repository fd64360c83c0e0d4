"""Loops and episodes as a store keeps them, and what one transaction adds to a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from heedful.lessons.lesson import Exposure, Outcome, Reflection
from heedful.loop.decide import Decision, Standing, Verdict
from heedful.loop.record import Attempt, Loop, Override, Usage

Kind = Literal["loop", "run", "stage"]


@dataclass(frozen=True, slots=True)
class StageHead:
    """What the loop of a stage says about the stage: its name, its settings and those of the run.

    `checks` are the names under which its checks report. `model` is the model that writes its
    output, "" if a function does.
    """

    run: str
    name: str
    pipeline: str = ""
    checks: tuple[str, ...] = ()
    on_exhausted: str = "continue"
    on_unvalidated: str = "continue"
    model: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """What is stored when a loop begins: its task, and its goals and policy as plain data.

    `context` is the `Context.data` of its checks if the driver gives no other. `kind` is the kind
    of loop: on its own, the run of a pipeline, or a stage of the run.
    """

    task: Any
    goals: Sequence[Mapping[str, Any]] = ()
    policy: Mapping[str, Any] = field(default_factory=dict)
    context: Any = None
    kind: Kind = "loop"
    stage: StageHead | None = None


@dataclass(frozen=True, slots=True)
class StoredLoop:
    """A loop as the store holds it.

    `values` are the candidates of its attempts, in order. `decisions` are all decisions, oldest
    first. `journal` maps keys to the finished steps of the attempt that is not recorded yet.
    `epoch` grows with every process that claims the loop, and keeps older ones from writing. Times
    are seconds since 1970.
    """

    id: str
    head: Head
    loop: Loop
    values: tuple[Any, ...]
    decisions: tuple[Decision, ...]
    journal: Mapping[str, Any]
    epoch: int
    created: float
    updated: float

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Return all verdicts, oldest first."""
        return tuple(decision.verdict for decision in self.decisions)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """What one transaction adds to a loop.

    Give `head` for a loop that may be new. A `verdict` that lifts rules consumes their overrides.
    `standing` is the loop's wear at the decision, `decided` its time (seconds since 1970; 0: now).
    If the loop has no driver, `seen` is the `updated` of the state that the entry was based on.
    `reflections`, `exposures` and `outcome` go to memory, which keeps `most` lessons (0: all).
    """

    id: str
    epoch: int
    head: Head | None = None
    step: tuple[str, Any] | None = None
    attempt: Attempt | None = None
    value: Any = None
    verdict: Verdict | None = None
    standing: Standing | None = None
    decided: float = 0.0
    seen: float = 0.0
    extra: Usage | None = None
    cancelled: str = ""
    override: Override | None = None
    reflections: Sequence[Reflection] = ()
    exposures: Sequence[Exposure] = ()
    outcome: Outcome | None = None
    most: int = 0


@dataclass(frozen=True, slots=True)
class Committed:
    """What a store wrote of an entry: attempt and decision as plain data, without secrets.

    `at` is the time of the decision, in seconds since 1970. A journal without a store has no plain
    data.
    """

    at: float
    attempt: Mapping[str, Any] | None = None
    decision: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LoopState:
    """One consistent state of a loop, from which a decision is made without driving the loop.

    `driver` drives it now, or is "". `echoes` counts finding keys in other loops
    of the scope if a rule of the policy needs that. `exposures` are the lessons that it was shown.
    """

    stored: StoredLoop
    driver: str = ""
    echoes: Mapping[str, int] = field(default_factory=dict)
    exposures: tuple[Exposure, ...] = ()


EpisodeState = Literal["waiting", "reflected", "failed"]


@dataclass(frozen=True, slots=True)
class StoredEpisode:
    """An episode as a store keeps it: `record` is its plain data, `error` why reflecting failed.

    `tries` counts the attempts to reflect. `at` is when it was first read, in seconds since 1970.
    """

    digest: str
    name: str
    session: str
    outcome: str
    record: Mapping[str, Any]
    state: EpisodeState = "waiting"
    tries: int = 0
    error: str = ""
    at: float = 0.0
