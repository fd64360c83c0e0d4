"""Loops, the attempts that are reported of them, and what is decided, as they are sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from heedful.drive.report import ReportResult
from heedful.loop import codec, record
from heedful.loop.decide import Verdict
from heedful.loop.record import LARGEST
from heedful.loop.record import Usage as Spent
from heedful.service.wire.body import Body, Name, example, given, saying
from heedful.store.history import State, state_after
from heedful.store.records import StoredLoop

DEEPEST = 100  # levels of JSON; redaction calls itself for each
Level = Literal["error", "warning", "note"]
Share = Annotated[float, Field(ge=0, le=1)]
Score = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Count = Annotated[int, Field(ge=0, le=int(LARGEST))]
Amount = Annotated[float, Field(ge=0, le=LARGEST)]


def _said(text: str) -> str:
    if "\0" in text:  # which PostgreSQL has no text for
        raise ValueError("it has the character 0")
    return text


def _plain(value: Any) -> Any:
    """JSON that is not too deep to follow."""
    level, depth = [value], 0
    while level := [one for each in level for one in _parts(each)]:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} levels deep")
    return value


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


Text = Annotated[str, Field(max_length=100_000), AfterValidator(_said)]
Short = Annotated[str, Field(max_length=2_000), AfterValidator(_said)]
Plain = Annotated[JsonValue, AfterValidator(_plain)]
Written = Short | dict[str, Plain]
Goals = Annotated[list[Written], Field(max_length=100)]


class NewLoop(Body):
    """A task that somebody else makes attempts at.

    `context` is what checks and critics are told besides it. Without a `policy` the service's own
    counts: a preset with changes, as `default, attempts.limit=6`, or an object. Without `goals`
    those of the policy count.
    """

    model_config: ClassVar[ConfigDict] = example(
        task="Write the weekly report in at most 50 words.",
        goals=["alignment >= 0.75"],
        policy="default, attempts.limit=3",
    )

    task: Plain
    context: Plain = None
    goals: Goals = Field(default_factory=list)
    policy: Written | None = None


class Usage(BaseModel):
    """What an attempt cost: model calls, tokens, money in the provider's currency, seconds."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", frozen=True
    )  # a default that needs no copying

    calls: Count = 0
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    cost: Amount = 0.0
    seconds: Amount = 0.0


class Finding(BaseModel):
    """One thing that is wrong: which check says so, what, and how to mend it.

    `key` names it across attempts, by default the check and the exact message; `severity` is 0..1.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    check: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_said)]
    message: Text
    fix: Text = ""
    level: Level = "error"
    severity: Share = 0.5
    key: Short = ""
    persistent: bool = False
    evidence: Text = ""
    span: tuple[Count, Count] | None = None


class Evaluation(BaseModel):
    """The scores and findings of one attempt; `met` is the share of what was asked that is met."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    scores: dict[Short, Score] = {}
    findings: Annotated[list[Finding], Field(max_length=1_000)] = []
    preference: Score = 0.0
    met: Share | None = None
    usage: Usage = Usage()

    def value(self) -> record.Evaluation:
        """As the library has it."""
        return record.Evaluation(
            tuple(record.Finding(**vars(one)) for one in self.findings),
            dict(self.scores),
            Spent(**vars(self.usage)),
            self.preference,
            self.met,
        )


class Check(BaseModel):
    """A check by its name, with the arguments that it takes."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="allow", json_schema_extra={"example": {"name": "words", "at_most": 50}}
    )
    __pydantic_extra__: dict[str, Plain]

    name: Name


Checks = Annotated[list[Check], Field(max_length=50)]


class Attempt(Body):
    """An attempt: its `output`, or a `digest` of it, and how it was judged.

    With an `evaluation`, or `checks` by which this service judges the output, or both. An attempt
    of which neither is told has no score, and its loop stops as unscored. At least one of the four
    is given.
    """

    model_config: ClassVar[ConfigDict] = saying(
        example(
            output="Sales rose by 4 % in May.",
            evaluation={
                "scores": {"alignment": 0.6},
                "findings": [
                    {"check": "sources", "message": "no source", "fix": "name the source"}
                ],
            },
            usage={"calls": 1, "prompt_tokens": 310, "completion_tokens": 12},
        ),
        anyOf=[
            given("output", **{"not": {"type": "null"}}),
            given("digest", type="string", minLength=1),
            given("evaluation", type="object"),
            given("checks", type="array", minItems=1),
        ],
    )

    output: Plain = None
    digest: Annotated[str, Field(max_length=200), AfterValidator(_said)] = ""
    evaluation: Evaluation | None = None
    checks: Checks = Field(default_factory=list)
    usage: Usage = Usage()

    @model_validator(mode="after")
    def _says_something(self) -> Attempt:
        if (self.output, self.evaluation) == (None, None) and not (self.digest or self.checks):
            raise ValueError("give the output or its digest, and an evaluation or checks")
        return self


class Reason(BaseModel):
    """Why another attempt is made: the check or score, in words, and a code for programs."""

    code: str
    detail: str
    reason: str


class Stop(BaseModel):
    """A rule that stopped the loop, and what it said."""

    rule: str
    detail: str


class Lifted(Stop):
    """A rule that spoke and was overridden: by whom, and by which override (from 0)."""

    by: str
    override: int


AGAIN: dict[str, Any] = {
    "decision": "again",
    "attempt": 1,
    "best": 1,
    "passed": False,
    "stopped_by": [],
    "reasons": [
        {"code": "sources", "detail": "no source", "reason": "sources_failed"},
        {
            "code": "alignment",
            "detail": "alignment 0.6 misses alignment >= 0.75",
            "reason": "alignment_threshold_not_met",
        },
    ],
    "feedback": "The last answer was not accepted:\n- sources: no source. name the source",
    "lifted": [],
    "state": "open",
}


class Decided(BaseModel):
    """Whether to make another attempt, after how many: `again` with `feedback`, or `done`.

    `best` is the number of the best attempt, null where none was judged.
    """

    model_config: ClassVar[ConfigDict] = example(**AGAIN)

    decision: Literal["again", "done"]
    attempt: int
    best: int | None
    passed: bool
    stopped_by: list[Stop]
    reasons: list[Reason]
    feedback: str
    lifted: list[Lifted]
    state: State

    @classmethod
    def of(cls, verdict: Verdict, attempt: int, best: int | None, **more: Any) -> Any:
        """That verdict after so many attempts."""
        plain = codec.verdict_to(verdict)
        told: dict[str, Any] = {"stopped_by": (), "reasons": (), "feedback": "", "passed": False}
        told |= {**plain, "decision": plain["verdict"], "best": best, "state": state_after(verdict)}
        return cls(attempt=attempt, **told, **more)

    @classmethod
    def after(cls, verdict: Verdict, stored: StoredLoop) -> Any:
        """That verdict, as the loop stands."""
        return cls.of(verdict, len(stored.loop.attempts), stored.loop.best)


class Judged(Decided):
    """What was decided on an attempt, `evaluated_by` those checks, `report` being its own."""

    model_config: ClassVar[ConfigDict] = example(**AGAIN, evaluated_by=["report"])

    evaluated_by: list[str]

    @classmethod
    def on(cls, one: ReportResult) -> Judged:
        """What came of a report."""
        made: Judged = cls.of(
            one.verdict, one.attempt, one.loop.best, evaluated_by=one.evaluated_by
        )
        return made


class NewOverride(Body):
    """Let the loop go on past one rule for a number of decisions; `until` is when it expires."""

    model_config: ClassVar[ConfigDict] = example(
        rule="attempts", why="The customer waits; one more.", decisions=1
    )

    rule: Annotated[str, Field(min_length=1, max_length=200)]
    why: Short
    decisions: Annotated[int, Field(ge=1, le=int(LARGEST))] = 1
    until: Annotated[float | None, Field(description="Seconds since 1970.")] = None


class Cancel(Body):
    """Why the loop is to end."""

    model_config: ClassVar[ConfigDict] = example(why="The customer has left.")

    why: Short = ""
