"""HTTP bodies of requests and answers, derived from the library's own records.

Only what exists in HTTP alone is declared here, such as the options of a call, and what is
flattened for callers. All else is a record of the library in a `Shape`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    model_validator,
)

from heedful.drive.report import ReportResult
from heedful.lessons.lesson import Example, Match, Remembered, State, Trust
from heedful.lessons.proof import Comparison
from heedful.lessons.ranking import provenance, relevance
from heedful.lessons.trust import QuarantinedLesson, RevocationResult
from heedful.loop import codec
from heedful.loop.decide import (
    Again,
    Decision,
    Trigger,
    Verdict,
    latest_verdict,
    reasoning,
    state_after,
)
from heedful.loop.decide import State as LoopState
from heedful.loop.explain import Line
from heedful.loop.record import LARGEST, Attempt, Evaluation, Finding, Override, Usage
from heedful.loop.replay import Figures
from heedful.loop.stop import Stop
from heedful.memory.dream import Dream
from heedful.memory.reflect import Reflected
from heedful.models.contract import Message
from heedful.redact import redact
from heedful.service.wire import Body, Long, Name, Shape, Share, Short, any_of, has
from heedful.store.keys import Key
from heedful.store.loops import explained
from heedful.store.records import EpisodeState, StoredEpisode, StoredLoop
from heedful.traces.episode import Ended, Event, Fault

DEEPEST = 100  # levels of JSON; redaction calls itself for each


def _without_null_character(text: str) -> str:
    if "\0" in text:  # PostgreSQL cannot store it
        raise ValueError("it has the character 0")
    return text


def _not_too_deep(value: Any) -> Any:
    level, depth = [value], 0
    while level := [part for each in level for part in _parts(each)]:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} levels deep")
    return value


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _loop_name(loop: str) -> str:
    if not loop.isprintable() or loop != redact(loop):  # it is stored as it is
        raise ValueError("it must be 1 to 200 printable characters, without a secret")
    return loop


Tags = Annotated[list[Name], Field(max_length=20)]
ErrorText = Annotated[str, Field(min_length=1, max_length=100_000)]
Count = Annotated[int, Field(ge=0, le=int(LARGEST))]
Amount = Annotated[float, Field(ge=0, le=LARGEST)]
Score = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Text = Annotated[Long, AfterValidator(_without_null_character)]
ShortText = Annotated[Short, AfterValidator(_without_null_character)]
Plain = Annotated[JsonValue, AfterValidator(_not_too_deep)]
Notation = ShortText | dict[str, Plain]  # a goal or a policy, as in a task file
LoopName = Annotated[Name, AfterValidator(_loop_name)]


# Loops


class NewLoop(Body):
    """A task whose attempts are made elsewhere and reported here.

    Checks and critics see `context`. `policy` is a preset with changes, such as `default,
    attempts.limit=6`, or an object. Without it the policy of the service applies. Without `goals`
    those of the policy apply.
    """

    task: Plain
    context: Plain = None
    goals: Annotated[list[Notation], Field(max_length=100)] = Field(default_factory=list)
    policy: Notation | None = None


_COSTS: dict[str, Any] = {
    **dict.fromkeys(("calls", "prompt_tokens", "completion_tokens"), Count),
    **dict.fromkeys(("cost", "seconds"), Amount),
}
GivenUsage = Annotated[Usage, Shape(**_COSTS)]
ReportedFinding = Annotated[
    Finding,
    Shape(
        check=Annotated[Name, AfterValidator(_without_null_character)],
        message=Text,
        fix=Text,
        severity=Share,
        key=ShortText,
        evidence=Text,
        span=tuple[Count, Count] | None,
    ),
]
ReportedEvaluation = Annotated[
    Evaluation,
    Shape(
        scores=dict[ShortText, Score],
        findings=Annotated[tuple[ReportedFinding, ...], Field(max_length=1_000)],
        preference=Score,
        met=Share | None,
        usage=GivenUsage,
    ),
]


class NamedCheck(BaseModel):
    """A check by its name, with its arguments."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Plain]

    name: Name


class NewAttempt(Body):
    """An attempt: its `output` or a `digest` of it, and how it was judged.

    It is judged by an `evaluation`, by `checks` that this service runs on the output, or both. An
    attempt with neither has no score, and its loop stops as unscored. At least one of the four
    fields is needed.
    """

    model_config: ClassVar[ConfigDict] = any_of(
        has("output", **{"not": {"type": "null"}}),
        has("digest", type="string", minLength=1),
        has("evaluation", type="object"),
        has("checks", type="array", minItems=1),
    )

    output: Plain = None
    digest: Annotated[str, Field(max_length=200), AfterValidator(_without_null_character)] = ""
    evaluation: ReportedEvaluation | None = None
    checks: Annotated[list[NamedCheck], Field(max_length=50)] = Field(default_factory=list)
    usage: GivenUsage = Usage()

    @model_validator(mode="after")
    def _is_not_empty(self) -> NewAttempt:
        if (self.output, self.evaluation) == (None, None) and not (self.digest or self.checks):
            raise ValueError("give the output or its digest, and an evaluation or checks")
        return self


class NewOverride(Body):
    """Let the loop go on past one rule for a number of decisions; `until` is when it expires."""

    rule: Name
    why: ShortText
    decisions: Annotated[int, Field(ge=1, le=int(LARGEST))] = 1
    until: Annotated[float | None, Field(description="Seconds since 1970.")] = None


class Cancellation(Body):
    """Why the loop should end."""

    why: ShortText = ""


class ReplayRequest(Body):
    """Policies to try on recorded loops: on the `loops` named, or on the newest ones.

    At most `limit` loops are read; those without an attempt do not count.
    """

    policies: Annotated[list[Notation], Field(min_length=1, max_length=20)]
    loops: Annotated[list[Name], Field(max_length=1_000)] | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1_000


@dataclass(frozen=True, slots=True)
class LiftedRule:
    """A rule that stopped the loop and was overridden: by whom, and by which override (from 0)."""

    rule: str
    detail: str
    by: str
    override: int


@dataclass(frozen=True, slots=True)
class LoopVerdict:
    """Whether to make another attempt: `again` with `feedback`, or `done`.

    `attempt` counts the attempts so far. `best` is the number of the best attempt, null if none was
    evaluated.
    """

    decision: Literal["again", "done"]
    attempt: int
    best: int | None
    passed: bool
    stopped_by: list[Stop]
    reasons: list[Trigger]
    feedback: str
    lifted: list[LiftedRule]
    state: LoopState

    @classmethod
    def of(cls, verdict: Verdict, attempt: int, best: int | None, **more: Any) -> Self:
        """Return the verdict after so many attempts."""
        again, done = (verdict, None) if isinstance(verdict, Again) else (None, verdict)
        return cls(
            decision="again" if again else "done",
            attempt=attempt,
            best=best,
            passed=bool(done and done.passed),
            stopped_by=list(done.stopped_by) if done else [],
            reasons=list(again.reasons) if again else [],
            feedback=again.feedback if again else "",
            lifted=[
                LiftedRule(lifted.stop.rule, lifted.stop.detail, lifted.by, lifted.override)
                for lifted in verdict.lifted
            ],
            state=state_after(verdict),
            **more,
        )

    @classmethod
    def after(cls, verdict: Verdict, stored: StoredLoop) -> Self:
        """Return the verdict together with how the loop stands."""
        return cls.of(verdict, len(stored.loop.attempts), stored.loop.best)


@dataclass(frozen=True, slots=True)
class ReportVerdict(LoopVerdict):
    """The verdict on a report; `evaluated_by` names the checks, `report` for its own."""

    evaluated_by: list[str]

    @classmethod
    def on(cls, result: ReportResult) -> Self:
        """Return the verdict on a report."""
        best, checks = result.loop.best, result.evaluated_by
        return cls.of(result.verdict, result.attempt, best, evaluated_by=checks)


@dataclass(frozen=True, slots=True)
class LoopSummary:
    """A summary of a loop; times are in seconds since 1970."""

    id: str
    state: LoopState
    stopped_by: list[str]
    attempts: int
    best: int | None
    calls: int
    tokens: int
    created: float
    updated: float

    @classmethod
    def of(cls, stored: StoredLoop, **more: Any) -> Self:
        """Return the summary of a stored loop."""
        verdict, loop = latest_verdict(stored.decisions), stored.loop
        return cls(
            id=stored.id,
            state=state_after(verdict),
            stopped_by=[stop.rule for stop in getattr(verdict, "stopped_by", ())],
            attempts=len(loop.attempts),
            best=loop.best,
            calls=loop.usage.calls,
            tokens=loop.usage.tokens,
            created=stored.created,
            updated=stored.updated,
            **more,
        )


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """An attempt as it was reported or made; `output` is null if only its digest is known."""

    number: int
    digest: str
    output: JsonValue
    evaluation: dict[str, JsonValue] | None
    usage: dict[str, JsonValue]
    repeats: int | None
    labels: dict[str, str]
    reported_as: str
    judged_by: list[str]
    vouched: bool

    @classmethod
    def of(cls, attempt: Attempt, value: Any) -> Self:
        """Return an attempt with what it produced."""
        judged = codec.to_document(attempt.evaluation) if attempt.evaluation else None
        usage = codec.to_document(attempt.usage)
        rest = attempt.repeats, dict(attempt.labels), attempt.reported_as
        return cls(
            attempt.number,
            attempt.candidate.digest,
            value,
            judged,
            usage,
            *rest,
            list(attempt.judged_by),
            attempt.vouched,
        )


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A decision, and the loop's fatigue at that time; `reason` is a code for programs."""

    attempt: int
    verdict: dict[str, JsonValue]
    reason: str
    fatigue: float
    echoes: dict[str, int]
    at: float

    @classmethod
    def of(cls, decision: Decision, reason: str) -> Self:
        """Return a decision with the code of its reason."""
        standing, verdict = decision.standing, codec.verdict_to(decision.verdict)
        worn = standing.fatigue, dict(standing.echoes)
        return cls(decision.attempt, verdict, reason, *worn, decision.at)


@dataclass(frozen=True, slots=True)
class LoopRecord(LoopSummary):
    """A loop with its attempts and decisions; `verdict` is the newest."""

    task: JsonValue
    context: JsonValue
    goals: list[dict[str, JsonValue]]
    policy: dict[str, JsonValue]
    usage: dict[str, JsonValue]
    cancelled: str
    made: list[AttemptRecord]
    decisions: list[DecisionRecord]
    overrides: list[Override]
    verdict: LoopVerdict

    @classmethod
    def whole(cls, stored: StoredLoop) -> Self:
        """Return a stored loop with its attempts and decisions."""
        loop, head, decisions = stored.loop, stored.head, stored.decisions
        why = reasoning(loop, decisions)
        return cls.of(
            stored,
            task=head.task,
            context=head.context,
            goals=list(map(dict, head.goals)),
            policy=dict(head.policy),
            usage=codec.to_document(loop.usage),
            cancelled=loop.cancelled,
            made=list(map(AttemptRecord.of, loop.attempts, stored.values)),
            decisions=[
                DecisionRecord.of(decision, one.reason)
                for decision, one in zip(decisions, why, strict=True)
            ],
            overrides=list(loop.overrides),
            verdict=LoopVerdict.after(latest_verdict(decisions), stored),
        )


@dataclass(frozen=True, slots=True)
class LoopExplanation:
    """Why the loop went on and why it stopped: as a `text`, and in its parts.

    `would_change` lists each change of one threshold or score that would have changed the end.
    """

    text: str
    lines: list[Line]
    would_change: list[str]
    otherwise: str

    @classmethod
    def of(cls, stored: StoredLoop) -> Self:
        """Return the explanation of a stored loop."""
        why = explained(stored)
        return cls(str(why), list(why.lines), list(map(str, why.would_change)), why.otherwise)


ReplayFigures = Annotated[Figures, Shape(also={"lost": "lost"})]


@dataclass(frozen=True, slots=True)
class ReplayAnswer:
    """What was recorded, and what each policy, in order, would have made of it."""

    recorded: ReplayFigures
    policies: list[ReplayFigures]


# Episodes

Time = Annotated[str, Field(max_length=100, json_schema_extra={"format": "date-time"})]
GivenEvent = Annotated[
    Event,
    Shape(
        type=Name,
        content=Long,
        arguments=dict[str, Any] | Long | None,
        error=Long,
        **dict.fromkeys(("agent", "tool", "call", "id", "code"), Short),
        at=Annotated[float, Field(ge=0, lt=253_402_300_800)] | Time | None,
        meta=dict[str, Any],
    ),
]
TaskTrust = Literal["external", "operator"]


class NewEpisode(Body):
    """A finished run of any agent: at least one event, or a fault.

    Without an `outcome`, the last event shows how it ended. Without a `task`, it is the first text
    of the user. Times of events are in seconds since 1970 or ISO 8601.
    """

    model_config: ClassVar[ConfigDict] = any_of(
        has("events", minItems=1), has("fault", type="object")
    )

    events: Annotated[list[GivenEvent], Field(max_length=50_000)] = Field(default_factory=list)
    outcome: Ended | None = None
    task: Long | None = None
    goal: Long = ""
    fault: Annotated[Fault, Shape(category=Name, message=Long, context=Long)] | None = None
    id: Short = ""
    session: Short = ""
    tools: Annotated[list[Short], Field(max_length=1_000)] = Field(default_factory=list)
    usage: GivenUsage = Usage()
    omitted: Count = 0

    def plain(self) -> dict[str, Any]:
        """Return the body as a line of an episode file."""
        plain = {name: getattr(self, name) for name in self.model_fields_set - {"tenant"}}
        events = [{**codec.to_document(event), "meta": dict(event.meta)} for event in self.events]
        plain |= {"events": events}
        if self.fault is not None:
            plain["fault"] = codec.to_document(self.fault)
        if "usage" in plain:
            plain["usage"] = codec.to_document(self.usage)
        return plain


@dataclass(frozen=True, slots=True)
class ReflectionOutcome:
    """What a run taught: the `text`, who worded it (`by`), and the rule to follow next time."""

    text: str
    by: str
    strategy: str | None
    importance: float
    quarantined: bool
    known: int
    written: list[Remembered]

    @classmethod
    def of(cls, result: Reflected) -> Self:
        """Return the outcome of a reflection."""
        rule = result.strategy.text if result.strategy else None
        words = result.text, result.by, rule, result.reflection.importance
        return cls(*words, result.quarantined, result.known, list(result.stored))


@dataclass(frozen=True, slots=True)
class EpisodeReceipt:
    """An episode that was accepted; `taught` is what it taught if the call waited for that."""

    digest: str
    state: EpisodeState
    taught: ReflectionOutcome | None = None


EpisodeRow = Annotated[StoredEpisode, Shape(omit=("record",))]


# Lessons

Kind = Literal["check", "error", "example", "reflection", "strategy"]
_Excerpt = Annotated[str, Field(max_length=4_000)]


class NewExample(BaseModel):
    """A task, the output that was rejected, what was wrong with it, and the accepted output."""

    model_config: ClassVar[ConfigDict] = {**Body.model_config}

    task: Annotated[_Excerpt, Field(min_length=1)]
    accepted: _Excerpt = ""
    rejected: _Excerpt = ""
    wrong: _Excerpt = ""


class NewLesson(Body):
    """An error that was seen, and what it teaches.

    It has an operator's trust if the key may approve. Otherwise it has a tool's trust and waits in
    quarantine. `source` names where the text came from, so that it can be revoked; the default is
    the key.
    """

    error_type: Name
    text: ErrorText
    lesson: _Excerpt = ""
    example: NewExample | None = None
    tags: Tags = Field(default_factory=list)
    importance: Share = 0.5
    source: Annotated[str, Field(max_length=500)] = ""
    context: Long = ""

    @property
    def pair(self) -> Example | None:
        """Return the example as a record of the library."""
        if self.example is None:
            return None
        return Example(**self.example.model_dump(), context=self.context)


class LessonSummary(BaseModel):
    """A summary of a lesson."""

    id: int
    kind: str
    signature: str
    error_type: str
    text: str
    tags: list[str]
    state: State
    trust: Trust
    seen: int


class LessonRow(LessonSummary):
    """A lesson. Words of a tool or a document are withheld, here and in other answers.

    `edition` is its entity tag. Times are in seconds since 1970.
    """

    pattern: str
    importance: float
    useful: float
    helped: int
    hurt: int
    source: str
    pinned: bool
    apart: bool
    first_seen: float
    last_seen: float
    last_shown: float
    meta: dict[str, Any]
    edition: str


class LessonEdit(Body):
    """Changes of a lesson, at least one; `why` goes on record.

    `pinned` protects it from eviction and pruning, `apart` keeps its pattern out of groups,
    `restored` brings back a lesson that a proof retired.
    """

    model_config: ClassVar[ConfigDict] = any_of(
        *(has(name, type="boolean") for name in ("pinned", "apart", "restored"))
    )

    pinned: bool | None = None
    apart: bool | None = None
    restored: Literal[True] | None = None
    why: Short = ""

    @model_validator(mode="after")
    def _is_not_empty(self) -> LessonEdit:
        if (self.pinned, self.apart, self.restored) == (None, None, None):
            raise ValueError("give pinned, apart or restored")
        return self


class Question(Body):
    """An error to look up."""

    error_type: Name
    text: ErrorText


class SeenAnswer(BaseModel):
    """How often the error was seen and what it taught; `why` it counts as one with others.

    `signature` is that of the error; an outcome names the error by it.
    """

    signature: str
    count: int
    lessons: list[LessonSummary]
    why: list[str]


# Recall and proof


class RecallRequest(Body):
    """A task, and the loop that is about to do it.

    With a `loop`, the answer counts as shown to it, a random part is withheld, and a repeated call
    gets the same answer. `limit`, `budget`, `tags` and `match` need a call without a loop. `form`
    is `messages` (worked examples as chat turns), `text` (one text, which also has lessons without
    an example), or `found` (only the `items`).
    """

    model_config: ClassVar[ConfigDict] = any_of(
        {"properties": {"loop": {"type": "null"}}},
        {"properties": dict.fromkeys(("limit", "budget", "tags", "match"), False)},
    )

    task: ErrorText
    loop: LoopName | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 5
    budget: Annotated[int, Field(ge=0, le=100_000)] = 600
    tags: Tags = Field(default_factory=list)
    match: Literal["any", "all"] = "any"
    form: Literal["messages", "text", "found"] = "messages"


@dataclass(frozen=True, slots=True)
class RecallItem:
    """A worked example, or a lesson without one; `id` is that of the example.

    `relevance` is 0..1; `source` describes where it comes from; `at` is when it was stored.
    """

    id: int
    reflection: int
    kind: str
    signature: str
    error_type: str
    lesson: str
    task: str
    accepted: str
    rejected: str
    wrong: str
    verified: bool
    seen: int
    importance: float
    useful: float
    relevance: float
    at: float
    tags: list[str]
    source: str

    @classmethod
    def of(cls, match: Match) -> Self:
        """Return a match of recall."""
        plain = {name: getattr(match, name, None) for name in cls.__slots__}
        pair = {name: getattr(match.example, name) for name in Example.__slots__ if name in plain}
        near = {"relevance": min(1.0, max(0.0, relevance(match))), "tags": list(match.tags)}
        return cls(**{**plain, **pair, **near, "source": provenance(match)})


@dataclass(frozen=True, slots=True)
class ExposureCount:
    """How many lessons the loop was shown, and how many were withheld at random."""

    loop: str
    shown: int
    withheld: int


@dataclass(frozen=True, slots=True)
class RecallAnswer:
    """What fits the task, best first; empty if nothing fits.

    `messages` and `text` can be put into a prompt as they are; each is filled if it was requested.
    """

    items: list[RecallItem]
    messages: list[Message]
    text: str
    exposure: ExposureCount | None


class NewOutcome(Body):
    """How a loop ended: whether it was right at once, its model calls, and its errors.

    Errors are named by the `signature` that `/v1/seen` answers.
    """

    loop: LoopName
    right_at_once: bool
    calls: Annotated[int, Field(ge=0, le=2**31 - 1)]
    signatures: Annotated[
        list[Annotated[str, Field(pattern="^[0-9a-f]{16}$")]], Field(max_length=1_000)
    ] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class OutcomeReceipt:
    """The number of this loop among the project's ended loops; 0 if it was shown nothing."""

    loop: str
    number: int


LessonName = Annotated[
    str | None, BeforeValidator(lambda name: None if name is None else str(name))
]
LessonComparison = Annotated[Comparison, Shape(lesson=LessonName)]


@dataclass(frozen=True, slots=True)
class ProofAnswer:
    """Whether memory helps: as a whole, and each lesson, the most exposed first.

    `pending` loops have not ended, `ended` loops have; `holdout` is the share that is withheld.
    """

    pooled: LessonComparison
    lessons: list[LessonComparison]
    pending: int
    ended: int
    holdout: float


# Quarantine and dreams

QuarantineRow = Annotated[QuarantinedLesson, Shape(omit=("provenance",))]


class Ruling(BaseModel):
    """A ruling: what was done, by whom and why."""

    action: str
    subject: str
    by: str
    why: str
    record: dict[str, Any]
    at: float


class Rulings(BaseModel):
    """The rulings, newest first."""

    items: list[Ruling]


@dataclass(frozen=True, slots=True)
class RulingReceipt:
    """What was done with which entry."""

    id: int
    state: State
    by: str
    why: str


class Revocation(Body):
    """A source to remove with all that derives from it; `dry_run` only counts that."""

    source: Annotated[str, Field(min_length=1, max_length=500)]
    why: Short = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationAnswer(RevocationResult):
    """What a revocation removed, or would remove: rows of each, and lessons left without any."""

    source: str
    revoked: bool


class NewDream(Body):
    """How to consolidate: "lite" looks at all lessons, "full" at those of the last 24 hours."""

    mode: Literal["lite", "full"] = "lite"
    dry_run: bool = False


DreamRecord = Annotated[
    Dream,
    Shape(omit=("found", "texts"), also={"after": "after", "nothing": "nothing"}),
]


@dataclass(frozen=True, slots=True)
class RollbackAnswer:
    """The number of lessons that are back."""

    id: int
    lessons: int


# Keys and the audit


May = Literal["read", "write", "approve", "admin"]


class NewKey(BaseModel):
    """A key to create; without `projects` it is valid for all projects of the tenant.

    `expires` is in seconds since 1970.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: Name
    tenant: Name | None = None
    projects: Annotated[list[Name], Field(max_length=100)] = []
    may: Annotated[list[May], Field(min_length=1, max_length=4)] = ["read", "write"]
    expires: float | None = None


KeyRow = Annotated[Key, Shape(may=tuple[May, ...], also={"shown": "key"})]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKey(Key):
    """A new key; `secret` is the whole key, sent once, and null if the call is repeated."""

    secret: str | None

    @classmethod
    def of(cls, key: Key, secret: str) -> Self:
        """Return a key with its secret, "" if that was sent before."""
        return cls(**asdict(key), secret=secret or None)


NewKeyAnswer = Annotated[SecretKey, Shape(may=tuple[May, ...], also={"shown": "key"})]


class AuditEntry(BaseModel):
    """What was done, and by whom; `hash` covers the entry and the hash before it."""

    n: int
    at: float
    by: str
    action: str
    subject: str
    detail: dict[str, Any]
    hash: str


# Health


@dataclass(frozen=True, slots=True)
class Health:
    """The process answers."""

    status: str = "ok"


@dataclass(frozen=True, slots=True)
class Readiness:
    """What the service needs: `ok`, or the name of the error."""

    status: Literal["ready", "unavailable"]
    store: str
    work: str
