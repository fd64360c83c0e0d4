"""Loops as they are shown: in short, whole, and explained."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, JsonValue

from heedful.loop import codec, record
from heedful.loop.decide import Decision, Done, latest_verdict, reasoning
from heedful.service.wire.body import example
from heedful.service.wire.loops import AGAIN, Decided
from heedful.store.history import State, explained, state_of
from heedful.store.records import StoredLoop

SUMMARY: dict[str, Any] = {
    "id": "report-17",
    "state": "open",
    "stopped_by": [],
    "attempts": 1,
    "best": 1,
    "calls": 1,
    "tokens": 322,
    "created": 1769860800.0,
    "updated": 1769860801.5,
}


class Summary(BaseModel):
    """A loop in short; times are in seconds since 1970."""

    model_config: ClassVar[ConfigDict] = example(**SUMMARY)

    id: str
    state: State
    stopped_by: list[str]
    attempts: int
    best: int | None
    calls: int
    tokens: int
    created: float
    updated: float

    @classmethod
    def of(cls, one: StoredLoop) -> Summary:
        """That loop."""
        last, loop = latest_verdict(one.decisions), one.loop
        return cls(
            id=one.id,
            state=state_of(one),
            stopped_by=[stop.rule for stop in last.stopped_by] if isinstance(last, Done) else [],
            attempts=len(loop.attempts),
            best=loop.best,
            calls=loop.usage.calls,
            tokens=loop.usage.tokens,
            created=one.created,
            updated=one.updated,
        )


class Summaries(BaseModel):
    """A page of loops, the newest first."""

    model_config: ClassVar[ConfigDict] = example(items=[SUMMARY], next=None)

    items: list[Summary]
    next: str | None


class ShownAttempt(BaseModel):
    """One attempt as it was reported or made: `output` is null where only its digest is known."""

    number: int
    digest: str
    output: JsonValue
    evaluation: dict[str, JsonValue] | None
    usage: dict[str, JsonValue]
    repeats: int | None
    labels: dict[str, str]


class ShownDecision(BaseModel):
    """One decision, and how worn the loop was then: `reason` is a code for programs."""

    attempt: int
    verdict: dict[str, JsonValue]
    reason: str
    fatigue: float
    echoes: dict[str, int]
    at: float


class ShownOverride(BaseModel):
    """One override, and by how many decisions it was used."""

    rule: str
    by: str
    why: str
    decisions: int
    used: int
    until: float | None


class ShownLoop(Summary):
    """A loop, whole: the newest `verdict` is told as after the report that led to it."""

    model_config: ClassVar[ConfigDict] = example(
        **SUMMARY,
        task="Write the weekly report in at most 50 words.",
        context=None,
        goals=[{"score": "alignment", "threshold": 0.75, "direction": "at_least"}],
        policy={"name": "default, attempts.limit=3", "rules": [{"rule": "attempts", "limit": 3}]},
        usage={"calls": 1, "prompt_tokens": 310, "completion_tokens": 12},
        cancelled="",
        made=[],
        decisions=[],
        overrides=[],
        verdict=AGAIN,
    )

    task: JsonValue
    context: JsonValue
    goals: list[dict[str, JsonValue]]
    policy: dict[str, JsonValue]
    usage: dict[str, JsonValue]
    cancelled: str
    made: list[ShownAttempt]
    decisions: list[ShownDecision]
    overrides: list[ShownOverride]
    verdict: Decided

    @classmethod
    def of(cls, one: StoredLoop) -> ShownLoop:
        """That loop."""
        loop, head = one.loop, one.head
        why = reasoning(loop, one.decisions)
        return cls(
            **vars(Summary.of(one)),
            task=head.task,
            context=head.context,
            goals=list(map(dict, head.goals)),
            policy=dict(head.policy),
            usage=codec.to_document(loop.usage),
            cancelled=loop.cancelled,
            made=[_attempt(*pair) for pair in zip(loop.attempts, one.values, strict=True)],
            decisions=[
                _decision(decision, told.reason)
                for decision, told in zip(one.decisions, why, strict=True)
            ],
            overrides=[ShownOverride(**codec.to_document(each)) for each in loop.overrides],
            verdict=Decided.after(latest_verdict(one.decisions), one),
        )


def _attempt(one: record.Attempt, value: Any) -> ShownAttempt:
    return ShownAttempt(
        number=one.number,
        digest=one.candidate.digest,
        output=value,
        evaluation=codec.to_document(one.evaluation) if one.evaluation else None,
        usage=codec.to_document(one.usage),
        repeats=one.repeats,
        labels=dict(one.labels),
    )


def _decision(one: Decision, reason: str) -> ShownDecision:
    return ShownDecision(
        attempt=one.attempt,
        verdict=codec.verdict_to(one.verdict),
        reason=reason,
        fatigue=one.standing.fatigue,
        echoes=dict(one.standing.echoes),
        at=one.at,
    )


class Told(BaseModel):
    """One attempt in words: what was wrong with it, and what was decided."""

    attempt: int
    wrong: list[str]
    decided: str


class Explained(BaseModel):
    """Why the loop went on and why it stopped: as a `text`, and in its parts.

    `would_change` are the changes of a threshold or a score that alone would have turned the end.
    """

    model_config: ClassVar[ConfigDict] = example(
        text="attempt 1: no source -> again",
        lines=[{"attempt": 1, "wrong": ["no source"], "decided": "again"}],
        would_change=["without the finding of sources, it would have passed"],
        otherwise="",
    )

    text: str
    lines: list[Told]
    would_change: list[str]
    otherwise: str

    @classmethod
    def of(cls, stored: StoredLoop) -> Explained:
        """Why that loop is where it is."""
        found = explained(stored)
        lines = [
            Told(attempt=one.attempt, wrong=list(one.wrong), decided=one.decided)
            for one in found.lines
        ]
        ways = list(map(str, found.would_change))
        return cls(text=str(found), lines=lines, would_change=ways, otherwise=found.otherwise)
