"""Bodies of HTTP requests and answers that are not records of the library.

All other bodies are records of the library. Where HTTP needs limits on their values, a `Shape` adds
them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from heedful.lessons import lesson as lessons
from heedful.lessons import proof, trust
from heedful.lessons.action import ActionHistory
from heedful.loop import codec, decide, explain, record, replay, stop
from heedful.memory import dream, reflect
from heedful.memory.draft import Claim
from heedful.models.contract import Message
from heedful.redact import redact
from heedful.service.wire import Shape
from heedful.store.keys import Key
from heedful.store.records import EpisodeState, StoredEpisode, StoredLoop
from heedful.traces.episode import Ended, Event, Fault

DEEPEST = 100  # levels of JSON; redaction recurses once for each level


def _without_null_character(text: str) -> str:
    if "\0" in text:  # PostgreSQL cannot store it
        raise ValueError("it contains a null character")
    return text


def inside(value: Any) -> Collection[Any]:
    """Return the values in a JSON list or object; for other data, an empty collection."""
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
MemoryKey = Annotated[Text, Field(max_length=200)]
LoopName = Annotated[Name, AfterValidator(_loop_name)]
Tags = Annotated[tuple[Name, ...], Field(max_length=20)]
Share = Annotated[float, Field(ge=0, le=1)]
Plain = Annotated[JsonValue, AfterValidator(_not_too_deep)]
Document = dict[str, JsonValue]
Notation = Short | dict[str, Plain]  # a goal or a policy, as text or as JSON


class Body(BaseModel):
    """The body of a request. Unknown fields are refused; `tenant` must be that of the key."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    tenant: str | None = None


class Answer(BaseModel):
    """The body of an answer, which always contains all fields."""

    model_config: ClassVar[ConfigDict] = {"json_schema_serialization_defaults_required": True}

    @classmethod
    def read(cls, *records: object, **fields: Any) -> Self:
        """Return an answer; fields that are not in `fields` are copied from the `records`."""
        others = cls.model_fields.keys() - fields.keys()
        for one in records:
            fields |= {name: getattr(one, name) for name in others if hasattr(one, name)}
        return cls(**fields)


class Reason(Body):
    """The reason for an action. The service records it."""

    why: Short = ""


May = Literal["read", "recall", "write", "approve", "admin"]
Kind = Literal["check", "error", "example", "reflection", "strategy"]


# Loops


class NewLoop(Body):
    """A loop to begin. The caller makes the attempts; checks and critics see `context`.

    Loops with the same `memory_key`, such as the name of what makes the attempts, tell each other
    the rules that they broke, whatever their tasks.

    `policy` is a text such as `default, attempts.limit=6`, or an object. By default, the policy of
    the service applies.
    """

    task: Plain
    context: Plain = None
    goals: Annotated[tuple[Notation, ...], Field(max_length=100)] = ()
    policy: Notation | None = None
    memory_key: MemoryKey = ""


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
    """The name of a check, with the arguments of the check as further fields."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Plain]

    name: Name


class NewAttempt(Body):
    """A report of an attempt, with its `output` or the `digest` of its output.

    The attempt is judged by an `evaluation`, by `checks` that the service runs on the output, or
    both.
    """

    output: Plain = None
    digest: Annotated[Text, Field(max_length=200)] = ""
    evaluation: _Evaluation | None = None
    checks: Annotated[tuple[NamedCheck, ...], Field(max_length=50)] = ()
    usage: _Usage = record.NOTHING

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if (self.output, self.evaluation) == (None, None) and not (self.digest or self.checks):
            raise ValueError("give the output, its digest, an evaluation or checks")
        return self


class StageOutput(Body):
    """The output of a stage, with the checks that judge it. Checks see `state` as their context."""

    stage: Name
    output: Plain
    state: Plain = None
    checks: Annotated[tuple[NamedCheck, ...], Field(max_length=50)]


class NewOverride(Body):
    """An override of one rule for `decisions` decisions; it expires at `until`, in Unix time."""

    rule: Name
    why: Short
    decisions: Annotated[int, Field(ge=1, le=int(record.LARGEST))] = 1
    until: float | None = None


class ReplayRequest(Body):
    """Policies to replay on the newest `limit` loops."""

    policies: Annotated[list[Notation], Field(min_length=1, max_length=20)]
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1_000


@dataclass(frozen=True, slots=True)
class LiftedRule(stop.Stop):
    """A rule that an override suspended; `override` is an index in the loop's list of overrides."""

    by: str
    override: int


class LoopVerdict(Answer):
    """The verdict on a loop: make another attempt (`again`, with `feedback`) or stop (`done`).

    `attempt` is the number of attempts so far, `best` is the number of the best attempt.
    `evaluated_by` names the checks that judged the attempt, and `report` if the report contained an
    evaluation.
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
    """An attempt of a loop; `output` is null if only its digest is stored."""

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
        """Return an attempt with its output."""
        return cls(**codec.to_document(attempt), digest=attempt.candidate.digest, output=output)


class DecisionRecord(Answer):
    """A decision on a loop, the fatigue of the loop at that time, and the code of the reason."""

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


class LoopRecord(LoopSummary):
    """A loop with its attempts (`made`), its decisions, and its latest verdict."""

    task: JsonValue
    context: JsonValue
    memory_key: str
    goals: list[Document]
    policy: Document
    usage: Document
    cancelled: str
    made: list[AttemptRecord]
    decisions: list[DecisionRecord]
    overrides: list[record.Override]
    briefing: Document | None
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
            briefing=stored.briefing and stored.briefing.plain(),
            verdict=LoopVerdict.of(decide.latest_verdict(decisions), loop),
        )


@dataclass(frozen=True, slots=True)
class LoopExplanation:
    """Why a loop continued and stopped; `would_change` lists what would alter the verdict.

    If nothing would alter it, `otherwise` says why.
    """

    text: str
    lines: tuple[explain.Line, ...]
    would_change: list[str]
    otherwise: str


ReplayFigures = Annotated[replay.Figures, Shape(also={"lost": "lost"})]


class ReplayAnswer(Answer):
    """The figures of the recorded loops, and the figures of each policy on the same loops."""

    recorded: ReplayFigures
    policies: list[ReplayFigures]


# Episodes

_Time = Annotated[str, Field(max_length=100, json_schema_extra={"format": "date-time"})]
_Seconds = Annotated[float, Field(ge=0, lt=253_402_300_800)]
_Event = Annotated[Event, Shape(type=Name, at=_Seconds | _Time | None, meta=dict[str, Any])]


class NewEpisode(Body):
    """A finished run of any agent, with at least one event or a fault.

    Times of events are in seconds since 1970 or in ISO 8601.
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


RememberedAnswer = Annotated[lessons.Remembered, Shape(also={"release": "release"})]


class ReflectionOutcome(Answer):
    """The lesson from a run: its text, its author (`by`), and the strategy for the next run.

    `importance` and `confidence` are the author's own; `heedful_importance`, which decides in
    recall, is heedful's. `dropped` are texts of a model with their `unsupported` words, which the
    events do not contain. `known` is how often the failure was seen before. `written` names the
    stored lessons. If one waits in quarantine, `release` is the command that releases it.
    """

    text: str
    by: str
    strategy: str | None
    importance: float
    heedful_importance: float
    confidence: float
    dropped: tuple[Claim, ...]
    state: lessons.State
    trust: lessons.Trust
    release: str
    known: int
    written: tuple[RememberedAnswer, ...]

    @classmethod
    def of(cls, result: reflect.Reflected) -> Self:
        """Return the outcome of a reflection."""
        rule = result.strategy.text if result.strategy else None
        own = result.reflection.importance
        return cls.read(result, strategy=rule, written=result.stored, heedful_importance=own)


@dataclass(frozen=True, slots=True)
class EpisodeReceipt:
    """An accepted episode; `taught` is the lesson from it, if the call waited for a lesson."""

    digest: str
    state: EpisodeState
    taught: ReflectionOutcome | None = None


EpisodeRow = Annotated[StoredEpisode, Shape(omit=("record",))]

# Lessons


class NewExample(BaseModel):
    """A task, a rejected output, what was wrong with this output, and the accepted output."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    task: Annotated[Excerpt, Field(min_length=1)]
    accepted: Excerpt = ""
    rejected: Excerpt = ""
    wrong: Excerpt = ""


class NewLesson(Body):
    """An error that occurred, and the lesson from it.

    `source` names the origin of the text, which can be revoked later. The default is the key.
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
    """A lesson, without text from tools and documents. Times are in seconds since 1970.

    `edition` is the entity tag of the lesson.
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
    """Changes to a lesson; at least one is needed.

    `pinned` protects the lesson from eviction and pruning. `apart` keeps its error pattern from
    being grouped with similar patterns.
    `restored` restores a lesson that a proof retired.
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
    """An error to look up: a message, or all that a command wrote.

    `error_type` is the type of the error, the tool that failed, or "".
    """

    error_type: Annotated[Text, Field(max_length=200)] = ""
    text: Annotated[Text, Field(min_length=1, max_length=1_000_000)]


class ActionQuestion(Body):
    """An action to look up before it runs: `arguments` are data, or the text of a command."""

    tool: Annotated[Text, Field(max_length=200)] = ""
    arguments: dict[str, Any] | ErrorText


ActionAnswer = Annotated[ActionHistory, Shape(also={"release": "release"})]


class SeenLesson(LessonSummary):
    """A summary of a lesson; `entry` is the id of its text in quarantine, or 0."""

    entry: int


class SeenAnswer(Answer):
    """How often an error was seen, its lessons, and `why` similar errors were counted too.

    Of a text with several lines, `lines` are the errors that are known. `release` is the command
    that releases the lessons that wait in quarantine.
    """

    signature: str
    count: int
    lessons: list[SeenLesson]
    why: list[str]
    lines: list[str]
    release: str


# Recall and proof


class RecallRequest(Body):
    """A task to recall examples and lessons for; with a `loop`, this records their exposures.

    `limit`, `budget`, `tags` and `match` are refused with a `loop`. `form` is `messages` (examples
    as chat turns), `text` (examples and lessons as one text), or `found` (only `items`).
    """

    task: ErrorText
    loop: LoopName | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 5
    budget: Annotated[int, Field(ge=0, le=100_000)] = 600
    tags: Tags = ()
    match: Literal["any", "all"] = "any"
    form: Literal["messages", "text", "found"] = "messages"


QueriedLesson = Annotated[
    lessons.Match, Shape(also={name: name for name in ("verified", "relevance", "release")})
]
RecallItem = Annotated[
    lessons.Match, Shape(omit=("meta",), also={"verified": "verified", "relevance": "relevance"})
]


class LessonQuery(Body):
    """A search for lessons to read; without a `text`, for the most important lessons."""

    text: Long = ""
    limit: Annotated[int, Field(ge=1, le=100)] = 5
    tags: Tags = ()
    match: Literal["any", "all"] = "any"
    kind: Kind | Literal[""] = ""
    importance: Share = 0.0


@dataclass(frozen=True, slots=True)
class ExposureCount:
    """The number of lessons shown to a loop, and the number withheld from it at random."""

    loop: str
    shown: int
    withheld: int


@dataclass(frozen=True, slots=True)
class RecallAnswer:
    """Items that fit a task, best first. Put `messages` or `text` into a prompt unchanged.

    For a loop, `briefing` says what memory told it, what it withheld or missed, and why.
    """

    items: list[RecallItem]
    messages: list[Message]
    text: str
    exposure: ExposureCount | None
    briefing: Document | None


_Digest = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]


class NewOutcome(Body):
    """How a loop ended, with the `signatures` of its errors, as `/v1/seen` returns them."""

    loop: LoopName
    right_at_once: bool
    calls: Annotated[int, Field(ge=0, le=2**31 - 1)]
    signatures: Annotated[tuple[_Digest, ...], Field(max_length=1_000)] = ()
    memory_key: MemoryKey = ""


@dataclass(frozen=True, slots=True)
class ProofAnswer:
    """Whether memory helps: in total (`pooled`), and for each lesson, most exposed first."""

    pooled: proof.Comparison
    lessons: list[proof.Comparison]
    pending: int
    ended: int
    holdout: float


# Quarantine and dreams

QuarantineRow = Annotated[trust.QuarantinedLesson, Shape(omit=("provenance",))]


class Revocation(Body):
    """A source to remove with everything derived from it; `dry_run` only counts the rows."""

    source: Annotated[Text, Field(min_length=1, max_length=500)]
    why: Short = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationAnswer(trust.RevocationResult):
    """The numbers of rows that a revocation removed, or would remove with `dry_run`."""

    source: str
    revoked: bool


class NewDream(Body):
    """A consolidation: "lite" compares all lessons, "full" only with those of the last 24 hours."""

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
    """A new key; `secret` is the whole key, or null if the call is repeated."""

    secret: str | None


NewKeyAnswer = Annotated[SecretKey, Shape(may=tuple[May, ...], also={"shown": "key"})]


class AuditEntry(Answer):
    """An action and its author; `hash` covers the entry and the hash of the previous entry."""

    n: int
    at: float
    by: str
    action: str
    subject: str
    detail: dict[str, Any]
    hash: str
