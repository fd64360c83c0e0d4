"""HTTP bodies of requests and answers, as far as they are no records of the library.

Declared here is only what exists in HTTP alone, such as the options of a call and what is flattened
for callers. All else is a record of the library, in a `Shape` where HTTP needs bounds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from heedful.lessons import lesson as lessons
from heedful.lessons import proof, ranking, trust
from heedful.loop import codec, decide, explain, record, replay, stop
from heedful.memory import dream, reflect
from heedful.models.contract import Message
from heedful.redact import redact
from heedful.service.wire import Shape
from heedful.store.keys import Key
from heedful.store.records import EpisodeState, Head, StoredEpisode, StoredLoop
from heedful.traces.episode import Ended, Event, Fault

DEEPEST = 100  # levels of JSON; redaction calls itself for each


def _without_null_character(text: str) -> str:
    if "\0" in text:  # PostgreSQL cannot store it
        raise ValueError("it has the character 0")
    return text


def inside(value: Any) -> Collection[Any]:
    """Return the values in a list or an object, and nothing for other JSON data."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _not_too_deep(value: Any) -> Any:
    level, depth = [value], 0
    while level := [part for each in level for part in inside(each)]:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} levels deep")
    return value


def _loop_name(loop: str) -> str:
    if not loop.isprintable() or loop != redact(loop):  # it is stored as it is
        raise ValueError("it must be 1 to 200 printable characters, without a secret")
    return loop


Text = Annotated[str, AfterValidator(_without_null_character)]
Name = Annotated[Text, Field(min_length=1, max_length=200)]
Short = Annotated[Text, Field(max_length=2_000)]
Excerpt = Annotated[Text, Field(max_length=4_000)]
Long = Annotated[Text, Field(max_length=100_000)]
ErrorText = Annotated[Long, Field(min_length=1)]
LoopName = Annotated[Name, AfterValidator(_loop_name)]
Tags = Annotated[tuple[Name, ...], Field(max_length=20)]
Share = Annotated[float, Field(ge=0, le=1)]
Plain = Annotated[JsonValue, AfterValidator(_not_too_deep)]
Document = dict[str, JsonValue]
Notation = Short | dict[str, Plain]  # a goal or a policy, as in a task file


class Body(BaseModel):
    """Body of a request. Unknown fields are refused; `tenant` must be the key's own."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    tenant: str | None = None


class Answer(BaseModel):
    """An answer, which has all of its fields."""

    model_config: ClassVar[ConfigDict] = {"json_schema_serialization_defaults_required": True}

    @classmethod
    def read(cls, *records: object, **fields: Any) -> Self:
        """Return an answer with these fields, and the others from the last record that has them."""
        others = cls.model_fields.keys() - fields.keys()
        for one in records:
            fields |= {name: getattr(one, name) for name in others if hasattr(one, name)}
        return cls(**fields)


class Reason(Body):
    """Why something is done; it goes on record."""

    why: Short = ""


May = Literal["read", "write", "approve", "admin"]
Kind = Literal["check", "error", "example", "reflection", "strategy"]


# Loops


class NewLoop(Body):
    """A task whose attempts are made elsewhere; checks and critics see `context`.

    `policy` is text, such as `default, attempts.limit=6`, or an object; by default that of the
    service.
    """

    task: Plain
    context: Plain = None
    goals: Annotated[tuple[Notation, ...], Field(max_length=100)] = ()
    policy: Notation | None = None


_Count = Annotated[int, Field(ge=0, le=int(record.LARGEST))]
_Amount = Annotated[float, Field(ge=0, le=record.LARGEST)]
_Score = Annotated[float, Field(ge=-record.LARGEST, le=record.LARGEST)]
_Usage = Annotated[
    record.Usage,
    Shape(
        **dict.fromkeys(("calls", "prompt_tokens", "completion_tokens"), _Count),
        **dict.fromkeys(("cost", "seconds"), _Amount),
    ),
]
_Finding = Annotated[
    record.Finding, Shape(check=Name, message=Long, fix=Long, key=Short, severity=Share)
]
_Evaluation = Annotated[
    record.Evaluation,
    Shape(
        scores=dict[Short, _Score],
        preference=_Score,
        met=Share | None,
        findings=Annotated[tuple[_Finding, ...], Field(max_length=1_000)],
        usage=_Usage,
    ),
]


class NamedCheck(BaseModel):
    """A check by its name, with its arguments."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Plain]

    name: Name


class NewAttempt(Body):
    """An attempt: its `output` or a `digest` of it, and how it was judged; at least one of these.

    It is judged by an `evaluation`, by `checks` that this service runs on the output, or both.
    """

    output: Plain = None
    digest: Annotated[Text, Field(max_length=200)] = ""
    evaluation: _Evaluation | None = None
    checks: Annotated[tuple[NamedCheck, ...], Field(max_length=50)] = ()
    usage: _Usage = record.NOTHING

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if (self.output, self.evaluation) == (None, None) and not (self.digest or self.checks):
            raise ValueError("give the output or its digest, and an evaluation or checks")
        return self


class NewOverride(Body):
    """Let the loop go on past one rule for a number of decisions; `until` is when it expires."""

    rule: Name
    why: Short
    decisions: Annotated[int, Field(ge=1, le=int(record.LARGEST))] = 1
    until: float | None = None


class ReplayRequest(Body):
    """Policies to try on the `loops` named, or on the newest `limit` loops."""

    policies: Annotated[list[Notation], Field(min_length=1, max_length=20)]
    loops: Annotated[list[Name], Field(max_length=1_000)] | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1_000


@dataclass(frozen=True, slots=True)
class LiftedRule(stop.Stop):
    """A rule that stopped the loop and was overridden: by whom, and by which override (from 0)."""

    by: str
    override: int


class LoopVerdict(Answer):
    """Whether to make another attempt: `again` with `feedback`, or `done`.

    `attempt` counts the attempts so far, `best` is the number of the best one. `evaluated_by` names
    the checks that judged a reported attempt, `report` for its own evaluation.
    """

    decision: Literal["again", "done"]
    attempt: int
    best: int | None
    passed: bool = False
    stopped_by: list[stop.Stop] = []
    reasons: list[decide.Trigger] = []
    feedback: str = ""
    lifted: list[LiftedRule] = []
    state: decide.State
    evaluated_by: list[str] = []

    @classmethod
    def of(
        cls, verdict: decide.Verdict, loop: record.Loop, evaluated_by: Sequence[str] = ()
    ) -> Self:
        """Return the verdict on a loop."""
        plain = {**codec.verdict_to(verdict), "best": loop.best, "attempt": len(loop.attempts)}
        state, by = decide.state_after(verdict), list(evaluated_by)
        return cls(**plain, decision=plain["verdict"], state=state, evaluated_by=by)


class LoopSummary(Answer):
    """A summary of a loop; times are in seconds since 1970."""

    id: str
    state: decide.State
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
        verdict, loop = decide.latest_verdict(stored.decisions), stored.loop
        more |= {"state": decide.state_after(verdict), "attempts": len(loop.attempts)}
        more["stopped_by"] = [stop.rule for stop in getattr(verdict, "stopped_by", ())]
        return cls.read(loop.usage, loop, stored.head, stored, **more)


class AttemptRecord(Answer):
    """An attempt as it was reported or made; `output` is null if only its digest is known."""

    number: int
    digest: str
    output: JsonValue
    evaluation: Document | None
    usage: Document
    repeats: int | None
    labels: dict[str, str] = {}
    reported_as: str = ""
    judged_by: list[str] = []
    vouched: bool = True

    @classmethod
    def of(cls, attempt: record.Attempt, output: Any) -> Self:
        """Return an attempt with what it produced."""
        return cls(**codec.to_document(attempt), digest=attempt.candidate.digest, output=output)

    @property
    def attempt(self) -> record.Attempt:
        """Return the attempt."""
        text = None if self.output is None else record.Candidate.of(self.output).text
        plain = self.model_dump(exclude={"digest", "output"})
        plain["candidate"] = {"digest": self.digest, "text": text}
        return codec.from_document(record.Attempt, plain)


class DecisionRecord(Answer):
    """A decision, and the loop's fatigue at that time; `reason` is a code for programs."""

    attempt: int
    verdict: Document
    reason: str
    fatigue: float
    echoes: dict[str, int]
    at: float

    @classmethod
    def of(cls, decision: decide.Decision, reason: str) -> Self:
        """Return a decision with the code of its reason."""
        verdict = codec.verdict_to(decision.verdict)
        return cls.read(decision.standing, decision, verdict=verdict, reason=reason)

    @property
    def decision(self) -> decide.Decision:
        """Return the decision."""
        plain = {**self.verdict, "fatigue": self.fatigue, "echoes": self.echoes}
        return codec.decision_from(plain, self.attempt, self.at)


class LoopRecord(LoopSummary):
    """A loop with its attempts and decisions; `verdict` is the newest."""

    task: JsonValue
    context: JsonValue
    goals: list[Document]
    policy: Document
    usage: Document
    cancelled: str
    made: list[AttemptRecord]
    decisions: list[DecisionRecord]
    overrides: list[record.Override]
    verdict: LoopVerdict

    @classmethod
    def whole(cls, stored: StoredLoop) -> Self:
        """Return a stored loop with its attempts and decisions."""
        loop, decisions = stored.loop, stored.decisions
        reasons = [one.reason for one in decide.reasoning(loop, decisions)]
        return cls.of(
            stored,
            usage=codec.to_document(loop.usage),
            made=list(map(AttemptRecord.of, loop.attempts, stored.values)),
            decisions=list(map(DecisionRecord.of, decisions, reasons)),
            verdict=LoopVerdict.of(decide.latest_verdict(decisions), loop),
        )

    @property
    def stored(self) -> StoredLoop:
        """Return the stored loop, without its journal."""
        goals = tuple(codec.from_document(record.Goal, goal) for goal in self.goals)
        attempts, overrides = tuple(one.attempt for one in self.made), tuple(self.overrides)
        loop = record.Loop(self.id, goals, attempts, overrides, cancelled=self.cancelled)
        head = Head(self.task, self.goals, self.policy, self.context)
        outputs = tuple(one.output for one in self.made)
        decisions = tuple(one.decision for one in self.decisions)
        times = self.created, self.updated
        return StoredLoop(self.id, head, loop, outputs, decisions, {}, 0, *times)


@dataclass(frozen=True, slots=True)
class LoopExplanation:
    """Why the loop went on and why it stopped, and what `would_change` the end."""

    text: str
    lines: tuple[explain.Line, ...]
    would_change: list[str]
    otherwise: str


ReplayFigures = Annotated[replay.Figures, Shape(also={"lost": "lost"})]


class ReplayAnswer(Answer):
    """What was recorded, and what each policy, in order, would have made of it."""

    recorded: ReplayFigures
    policies: list[ReplayFigures]


# Episodes

_Time = Annotated[str, Field(max_length=100, json_schema_extra={"format": "date-time"})]
_Seconds = Annotated[float, Field(ge=0, lt=253_402_300_800)]
_Event = Annotated[Event, Shape(type=Name, at=_Seconds | _Time | None, meta=dict[str, Any])]


class NewEpisode(Body):
    """A finished run of any agent: at least one event, or a fault.

    Times of events are in seconds since 1970 or ISO 8601.
    """

    events: Annotated[tuple[_Event, ...], Field(max_length=50_000)] = ()
    outcome: Ended | None = None
    task: Long | None = None
    goal: Long = ""
    fault: Annotated[Fault, Shape(category=Name)] | None = None
    id: Short = ""
    session: Short = ""
    tools: Annotated[tuple[Short, ...], Field(max_length=1_000)] = ()
    usage: _Usage = record.NOTHING
    omitted: _Count = 0


class ReflectionOutcome(Answer):
    """What a run taught: the `text`, who worded it (`by`), and the rule to follow next time."""

    text: str
    by: str
    strategy: str | None
    importance: float
    quarantined: bool
    known: int
    written: tuple[lessons.Remembered, ...]

    @classmethod
    def of(cls, result: reflect.Reflected) -> Self:
        """Return the outcome of a reflection."""
        rule = result.strategy.text if result.strategy else None
        return cls.read(result.reflection, result, strategy=rule, written=result.stored)


@dataclass(frozen=True, slots=True)
class EpisodeReceipt:
    """An episode that was accepted; `taught` is what it taught if the call waited for that."""

    digest: str
    state: EpisodeState
    taught: ReflectionOutcome | None = None


EpisodeRow = Annotated[StoredEpisode, Shape(omit=("record",))]

# Lessons


class NewExample(BaseModel):
    """A task, the output that was rejected, what was wrong with it, and the accepted output."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    task: Annotated[Excerpt, Field(min_length=1)]
    accepted: Excerpt = ""
    rejected: Excerpt = ""
    wrong: Excerpt = ""


class NewLesson(Body):
    """An error that was seen, and what it teaches.

    `source` names where the text came from, so that it can be revoked; the default is the key.
    """

    error_type: Name
    text: ErrorText
    lesson: Excerpt = ""
    example: NewExample | None = None
    tags: Tags = ()
    importance: Share = 0.5
    source: Annotated[Text, Field(max_length=500)] = ""
    context: Long = ""


class LessonSummary(Answer):
    """A summary of a lesson."""

    id: int
    kind: str
    signature: str
    error_type: str
    text: str
    tags: list[str]
    state: lessons.State
    trust: lessons.Trust
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
    """Changes of a lesson, at least one.

    `pinned` protects it from eviction and pruning, `apart` keeps its pattern out of groups,
    `restored` brings back a lesson that a proof retired.
    """

    pinned: bool | None = None
    apart: bool | None = None
    restored: Literal[True] | None = None
    why: Short = ""

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if (self.pinned, self.apart, self.restored) == (None, None, None):
            raise ValueError("give pinned, apart or restored")
        return self


class Question(Body):
    """An error to look up."""

    error_type: Name
    text: ErrorText


class SeenAnswer(Answer):
    """How often an error was seen, what it taught, and `why` it counts as one with others."""

    signature: str
    count: int
    lessons: list[LessonSummary]
    why: list[str]


# Recall and proof


class RecallRequest(Body):
    """A task, and the `loop` that is about to do it: to it, the answer counts as shown.

    `limit`, `budget`, `tags` and `match` need a call without a loop. `form` is `messages` (worked
    examples as chat turns), `text` (with lessons without an example), or `found` (only `items`).
    """

    task: ErrorText
    loop: LoopName | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 5
    budget: Annotated[int, Field(ge=0, le=100_000)] = 600
    tags: Tags = ()
    match: Literal["any", "all"] = "any"
    form: Literal["messages", "text", "found"] = "messages"


class RecallItem(Answer):
    """A worked example, or a lesson without one; `id` is that of the example."""

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
    def of(cls, match: lessons.Match) -> Self:
        """Return a match of recall."""
        near = min(1.0, max(0.0, ranking.relevance(match)))
        return cls.read(match.example, match, relevance=near, source=ranking.provenance(match))


@dataclass(frozen=True, slots=True)
class ExposureCount:
    """How many lessons the loop was shown, and how many were withheld at random."""

    loop: str
    shown: int
    withheld: int


@dataclass(frozen=True, slots=True)
class RecallAnswer:
    """What fits the task, best first; `messages` and `text` go into a prompt as they are."""

    items: list[RecallItem]
    messages: list[Message]
    text: str
    exposure: ExposureCount | None


_Digest = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]


class NewOutcome(Body):
    """How a loop ended; its errors are named by the `signature` that `/v1/seen` answers."""

    loop: LoopName
    right_at_once: bool
    calls: Annotated[int, Field(ge=0, le=2**31 - 1)]
    signatures: Annotated[tuple[_Digest, ...], Field(max_length=1_000)] = ()


@dataclass(frozen=True, slots=True)
class ProofAnswer:
    """Whether memory helps: as a whole, and each lesson, the most exposed first."""

    pooled: proof.Comparison
    lessons: list[proof.Comparison]
    pending: int
    ended: int
    holdout: float


# Quarantine and dreams

QuarantineRow = Annotated[trust.QuarantinedLesson, Shape(omit=("provenance",))]


class Ruling(Answer):
    """A ruling: what was done, by whom and why."""

    action: str
    subject: str
    by: str
    why: str
    record: dict[str, Any]
    at: float


class Revocation(Body):
    """A source to remove with all that derives from it; `dry_run` only counts that."""

    source: Annotated[Text, Field(min_length=1, max_length=500)]
    why: Short = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationAnswer(trust.RevocationResult):
    """What a revocation removed, or would remove: rows of each, and lessons left without any."""

    source: str
    revoked: bool


class NewDream(Body):
    """How to consolidate: "lite" looks at all lessons, "full" at those of the last 24 hours."""

    mode: Literal["lite", "full"] = "lite"
    dry_run: bool = False


DreamRecord = Annotated[
    dream.Dream, Shape(omit=("found", "texts"), also={"after": "after", "nothing": "nothing"})
]


# Keys and the audit


class NewKey(Body):
    """A key to create; without `projects` it is valid for all projects of the tenant."""

    name: Name
    projects: Annotated[tuple[Name, ...], Field(max_length=100)] = ()
    may: list[May] = Field(["read", "write"], min_length=1, max_length=4)
    expires: float | None = None


KeyRow = Annotated[Key, Shape(may=tuple[May, ...], also={"shown": "key"})]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKey(Key):
    """A new key; `secret` is the whole key, sent once, and null if the call is repeated."""

    secret: str | None


NewKeyAnswer = Annotated[SecretKey, Shape(may=tuple[May, ...], also={"shown": "key"})]


class AuditEntry(Answer):
    """What was done, and by whom; `hash` covers the entry and the hash before it."""

    n: int
    at: float
    by: str
    action: str
    subject: str
    detail: dict[str, Any]
    hash: str
