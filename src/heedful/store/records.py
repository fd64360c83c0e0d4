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
    """What the loop of a stage says of it: its name and settings, and those of its pipeline's run.

    `checks` are the names under which its checks report. `model` writes its output; "" where a
    function does.
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

    `context` is what its checks find as `Context.data` where its driver gives nothing else. `kind`
    says whether it is a loop of its own, the run of a pipeline, or one of the run's stages.
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

    `values` are the candidates of its attempts, in order; `decisions` all of them, oldest first;
    `journal` holds the finished steps of the attempt that is not recorded yet, by key. `epoch`
    fences: it grows with every process that takes the loop over. Times are seconds since 1970.
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
        """All verdicts, oldest first."""
        return tuple(decision.verdict for decision in self.decisions)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """What one transaction adds to a loop.

    `head` is given for a loop that may not be stored yet. A `verdict` that lifts rules consumes
    their overrides; `standing` is how worn the loop was then, `decided` when that was
    (seconds since 1970; 0: just now). `seen` is the `updated` of the loop that it rests on, where
    nobody drives it. `reflections`, `exposures` and `outcome`
    belong to memory, which keeps `most` lessons (0: all).
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

    `at` is the time of the decision, in seconds since 1970. A journal that keeps nothing has no
    plain data.
    """

    at: float
    attempt: Mapping[str, Any] | None = None
    decision: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LoopState:
    """What a decision rests on that is made without driving the loop, read as one state.

    `driver` is who drives it just now, "" for nobody. `echoes` counts finding keys in other loops
    of the scope where a rule of its policy counts them, `exposures` are what it was shown.
    """

    stored: StoredLoop
    driver: str = ""
    echoes: Mapping[str, int] = field(default_factory=dict)
    exposures: tuple[Exposure, ...] = ()


EpisodeState = Literal["waiting", "reflected", "failed"]


@dataclass(frozen=True, slots=True)
class StoredEpisode:
    """An episode as a store keeps it: `record` is its plain data, `error` why reflecting failed.

    `tries` counts how often it was; `at` is when it was first read, in seconds since 1970.
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
