"""Bodies of HTTP requests and answers that are not records of the library.

All other bodies are records of the library. Where HTTP needs limits on their values, a
`Shape` adds them.
"""

from collections.abc import Collection
from dataclasses import dataclass, fields
from itertools import chain
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from heedful.episodes.episode import Ended
from heedful.errors import UnknownName
from heedful.lessons import lesson as lessons, proof, quarantine, scope as scopes
from heedful.lessons.call_marks import ActionHistory, KnownFailure
from heedful.lessons.holdout import MemoryVerdict, SessionTally
from heedful.lessons.lesson_check import LessonCheck
from heedful.lessons.origin import KEY_SOURCE_PREFIX
from heedful.lessons.proof_words import ProofWords
from heedful.lessons.telling import Tell
from heedful.loop import record
from heedful.loop.ladder import MAX_RUNGS, LadderFigures
from heedful.memory.trial import MAX_LOOP_TEXTS
from heedful.models.contract import Message
from heedful.redact import redact
from heedful.store.episodes import StoredEpisode
from heedful.store.keys import Key, Permission
from heedful.validation import (
    MAX_INTEGER,
    MAX_NAME_CHARS,
    MAX_SCORE,
    MAX_STORED_TEXT_CHARS,
    Document,
)
from heedful.wire import CommandText, Page, Shape

MAX_JSON_DEPTH = 101  # levels of a body; redaction recurses once for each level
TOO_DEEP = f"it is nested more than {MAX_JSON_DEPTH} levels deep"


def _without_null_character(text: str) -> str:
    """Return a text unchanged. Raises ValueError if it has a null character."""
    # PostgreSQL cannot store it.
    if "\0" in text:
        raise ValueError("it contains a null character")
    return text


def _refuse_boolean(value: Any) -> Any:
    """Return a value unchanged. Raises ValueError for true and false."""
    # pydantic would read them as the counts 1 and 0. As a score they are welcome.
    if isinstance(value, bool):
        raise ValueError("it must be a number, not true or false")
    return value


def inside(value: Any) -> Collection[Any]:
    """Return the values in a JSON list or object; for other data, none."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, list):
        return value
    return ()


def not_too_deep(value: Any) -> Any:
    """Return the JSON data of a body unchanged.

    Raises ValueError if it is nested more than `MAX_JSON_DEPTH` levels deep.
    """
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        # The next level is the lists and objects that those of this level contain.
        children = chain.from_iterable(map(inside, level))
        level = [child for child in children if type(child) in (dict, list)]
        if not level:
            return value

    raise ValueError(TOO_DEEP)


def _loop_name(loop: str) -> str:
    """Return the id of a new loop unchanged. Raises ValueError if it is unusable."""
    # The id is stored without redaction, so it must not contain a secret.
    if not loop.isprintable() or loop != redact(loop):
        raise ValueError("it must be 1 to 200 printable characters, without a secret")

    # A path that ends with `/explain` is another route, and clients remove `.` and `..`
    # from paths.
    if loop.endswith("/explain") or not {".", ".."}.isdisjoint(loop.split("/")):
        raise ValueError(
            "it must not end with /explain or have a part . or ..: no route reads it"
        )
    return loop


def _exact(kind: type) -> BeforeValidator:
    """Return a validator that refuses fields that the record `kind` does not have.

    Its error names the most similar field of the record.
    """
    names = [field.name for field in fields(kind)]
    field_kind = f"field of {kind.__name__.lower()}"

    def exact(value: Any) -> Any:
        """Return a value unchanged. Raises ValueError for an unknown field."""
        if isinstance(value, dict):
            for name in value.keys() - set(names):
                raise ValueError(str(UnknownName(field_kind, name, names)))
        return value

    return BeforeValidator(exact)


def _no_key(source: str) -> str:
    """Return a source unchanged. Raises ValueError if it claims to be a key."""
    # The lesson would count against the quota of that key.
    if source.startswith(KEY_SOURCE_PREFIX):
        raise ValueError(
            "source may not begin with `key:`: the service itself adds the key"
        )
    return source


# It comes last, so that the description of the API has the bounds of the number.
_NOT_BOOLEAN = BeforeValidator(_refuse_boolean)
Text = Annotated[str, AfterValidator(_without_null_character)]
Name = Annotated[Text, Field(min_length=1, max_length=200)]
Short = Annotated[Text, Field(max_length=2_000)]
Excerpt = Annotated[Text, Field(max_length=4_000)]
Long = Annotated[Text, Field(max_length=100_000)]
ErrorText = Annotated[Long, Field(min_length=1)]
Label = Annotated[Text, Field(max_length=200)]
ModelName = Annotated[
    Text, Field(max_length=MAX_NAME_CHARS, description="The model, if known.")
]
LOOP_NAME_VALIDATOR = AfterValidator(_loop_name)
LoopName = Annotated[Name, LOOP_NAME_VALIDATOR]
Tags = Annotated[tuple[Name, ...], Field(max_length=20)]
Share = Annotated[float, Field(ge=0, le=1)]
Plain = Any  # JSON data as it was read, not a copy
# A goal or a policy, as text or as JSON.
Notation = Short | dict[str, Plain]


class Body(BaseModel):
    """The body of a request. Unknown fields are refused; `tenant` must be that of the
    key.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    tenant: str | None = None


class ReasonBody(Body):
    """The reason for an action. The service records it."""

    why: Short = ""


class NewLoop(Body):
    """A loop to begin. The caller makes the attempts; checks and critics see `context`.

    Loops with the same `memory_key` share the rules that they broke, even if their
    tasks differ. A key may be the name of the function that makes the attempts. `model`
    makes the attempts, unless a report names another model. `rungs` names several
    models, cheapest first. Then `rung` in a verdict, counted from 1, says which model
    makes the next attempt.

    `policy` is a text such as `default, attempts.limit=6`, or an object. By default,
    the policy of the service applies. `goals` replace those of the policy; without any
    (`[]`), the loop passes if nothing is wrong.
    """

    task: Plain
    context: Plain = None
    goals: Annotated[tuple[Notation, ...], Field(max_length=100)] | None = None
    policy: Notation | None = None
    memory_key: Label = ""
    model: ModelName = ""
    rungs: Annotated[tuple[ModelName, ...], Field(max_length=MAX_RUNGS)] = ()


_Count = Annotated[int, Field(ge=0, le=int(MAX_SCORE)), _NOT_BOOLEAN]
_Limit = Annotated[int, Field(ge=1, le=100), _NOT_BOOLEAN]
_Score = Annotated[float, Field(ge=-MAX_SCORE, le=MAX_SCORE)]
_Amount = Annotated[float, Field(ge=0, le=MAX_SCORE)]
_Usage = Annotated[
    record.Usage,
    Shape(
        calls=_Count,
        prompt_tokens=_Count,
        completion_tokens=_Count,
        cost=_Amount,
        seconds=_Amount,
    ),
    _exact(record.Usage),
]
_Finding = Annotated[
    record.Finding,
    Shape(
        check=Name,
        message=Long,
        fix=Long,
        key=Short,
        severity=Share,
        rule=Long,
        check_id=Short,
        off_by=_Amount | None,
    ),
    _exact(record.Finding),
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
    _exact(record.Evaluation),
]


class NamedCheck(BaseModel):
    """The name of a check, with the arguments of the check as further fields."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Plain]

    name: Name


NamedChecks = Annotated[tuple[NamedCheck, ...], Field(max_length=50)]


class NewAttempt(Body):
    """A report of an attempt, with its `output` or the `digest` of its output.

    The attempt is judged by an `evaluation`, by `checks` that the service runs on the
    output, or both.
    """

    output: Plain = None
    digest: Label = ""
    evaluation: _Evaluation | None = None
    checks: NamedChecks = ()
    usage: _Usage = record.NO_USAGE
    model: ModelName = ""

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        is_judged = self.evaluation is not None or self.checks
        if self.output is None and not self.digest and not is_judged:
            raise ValueError("give the output, its digest, an evaluation or checks")
        return self


class StageOutput(Body):
    """The output of a stage, with the checks that judge it. Checks see `state` as their
    context.
    """

    stage: Name
    output: Plain
    state: Plain = None
    checks: NamedChecks


class NewOverride(Body):
    """An override of a rule, or of several with commas between them.

    It holds for `decisions` decisions, and expires at `until`, in Unix time.
    """

    rule: Name
    why: Short
    decisions: Annotated[int, Field(ge=1, le=int(MAX_SCORE)), _NOT_BOOLEAN] = 1
    until: float | None = None


class NewLoopNote(Body):
    """A note about a loop."""

    text: Annotated[Text, Field(min_length=1, max_length=MAX_STORED_TEXT_CHARS)]


class NewCorrection(Body):
    """The answer that a person accepts for a loop that did not pass."""

    accepted: Any
    why: Text = ""


class ReplayRequest(Body):
    """Policies to replay on the newest `limit` loops."""

    policies: Annotated[list[Notation], Field(min_length=1, max_length=20)]
    limit: Annotated[int, Field(ge=1, le=10_000), _NOT_BOOLEAN] = 1_000


class NewEpisode(Body):
    """A finished run of any agent, with at least one event or a fault.

    An event has a `type`, and may have the other fields of `heedful.Event`. Times are
    in seconds since 1970 or in ISO 8601. A fault has a `category`, a `message` and a
    `context`.
    """

    events: Annotated[list[Document], Field(max_length=50_000)] = []
    outcome: Ended | None = None
    task: Long | None = None
    goal: Long = ""
    fault: Document | None = None
    id: Short = ""
    session: Short = ""
    tools: Annotated[tuple[Short, ...], Field(max_length=1_000)] = ()
    omitted: _Count = 0


EpisodeRow = Annotated[StoredEpisode, Shape(omit=("record",))]


class NewExample(BaseModel):
    """A task, a rejected output, what was wrong with this output, and the accepted
    output.
    """

    model_config = ConfigDict(extra="forbid")

    task: Annotated[Excerpt, Field(min_length=1)]
    accepted: Excerpt = ""
    rejected: Excerpt = ""
    wrong: Excerpt = ""
    model: ModelName = ""


class NewLesson(Body):
    """An error that occurred, and the lesson from it.

    `source` names the origin of the text, which can be revoked later; the key is always
    a source.
    """

    error_type: Name
    text: ErrorText
    lesson: Excerpt = ""
    example: NewExample | None = None
    tags: Tags = ()
    importance: Share = 0.5
    source: Annotated[Text, Field(max_length=500), AfterValidator(_no_key)] = ""
    context: Long = ""


RememberedAnswer = Annotated[
    lessons.Remembered,
    Shape(also={"release": "release"}, release=CommandText),
]


class LessonEdit(Body):
    """Changes to a lesson.

    `pinned` protects the lesson from eviction and pruning. `retired` takes the lesson
    out of recall. `restored` brings it back, even if a proof retired it. `text`
    replaces its words: the old words stay as a version, and measurements of them no
    longer count.
    """

    pinned: bool | None = None
    retired: Literal[True] | None = None
    restored: Literal[True] | None = None
    text: Annotated[Excerpt, Field(min_length=1)] | None = None
    why: Short = ""


class Question(Body):
    """An error to look up: a message, or the whole output of a command.

    `error_type` is the type of the error, the tool that failed, or "".
    """

    error_type: Label = ""
    text: Annotated[Text, Field(min_length=1, max_length=1_000_000)]


class ActionQuestion(Body):
    """An action to look up before it runs: `arguments` are data, or the text of a
    command.
    """

    tool: Label = ""
    arguments: Document | ErrorText


ActionAnswer = Annotated[
    ActionHistory,
    Shape(
        also={"release": "release"},
        release=CommandText,
        failures=tuple[KnownFailure, ...],
        checks=tuple[LessonCheck, ...],
    ),
]


class RecallRequest(Body):
    """A task to recall examples and lessons for; with a `loop`, this records their
    exposures.

    `limit`, `budget`, `tags` and `match` are refused with a `loop`. `form` is
    `messages` (examples as chat turns), `text` (examples and lessons as one text), or
    `found` (only `items`).

    The other fields are those of a `loop` that another program decides: its memory key
    and model, the names and the `check_ids` of its checks, and what to `tell` it. If it
    does not begin now (`begins`), it is shown only what it was shown before. Unless it
    `withholds`, no lesson is held back to measure its effect.
    """

    task: ErrorText
    loop: LoopName | None = None
    limit: _Limit = 5
    budget: Annotated[int, Field(ge=0, le=100_000), _NOT_BOOLEAN] = 600
    tags: Tags = ()
    match: Literal["any", "all"] = "any"
    form: Literal["messages", "text", "found"] = "messages"
    begins: bool = True
    memory_key: Label = ""
    model: ModelName = ""
    checks: Annotated[tuple[Name, ...], Field(max_length=1_000)] = ()
    check_ids: Annotated[tuple[Short, ...], Field(max_length=1_000)] = ()
    tell: Tell = "both"
    withholds: bool = True


QueriedLesson = Annotated[
    lessons.Match,
    Shape(
        omit=("author",),
        also={name: name for name in ("verified", "relevance", "release")},
        names={"lesson_id": "reflection"},
        release=CommandText,
    ),
]


class QueryAnswer(Page[QueriedLesson]):
    """Lessons to read, on one page; `silence` says why there are none."""

    silence: CommandText


RecallItem = Annotated[
    lessons.Match,
    Shape(
        omit=("author", "run", "data"),
        also={"verified": "verified", "relevance": "relevance"},
        names={"lesson_id": "reflection"},
    ),
]


class LessonQuery(Body):
    """A search for lessons to read; without a `text`, for the most important
    lessons.
    """

    text: Long = ""
    limit: _Limit = 5
    tags: Tags = ()
    match: Literal["any", "all"] = "any"
    kind: lessons.LessonKind | Literal[""] = ""
    importance: Share = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallAnswer:
    """Items that fit a task, best first. Put `messages` or `text` into a prompt
    unchanged.

    If nothing can be put into a prompt, `silence` says why the nearest lesson is
    missing. For a loop, `briefing` says what memory showed, withheld or lacked, and
    why, and `checks` are the checks of lessons that judge its attempts.
    """

    items: list[RecallItem]
    messages: list[Message]
    text: str
    silence: CommandText
    exposure: Document | None
    briefing: Document | None
    checks: tuple[LessonCheck, ...] = ()


_Digest = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]


class NewOutcome(Body):
    """How a loop ended, with the `signatures` of its errors, as `/v1/seen` returns
    them.

    In a loop with several models, `climbed` is true if a model other than the first
    made an attempt. `cost` is the cost of the whole loop.
    """

    loop: LoopName
    right_at_once: bool
    calls: Annotated[int, Field(ge=0, le=2**31 - 1), _NOT_BOOLEAN]
    signatures: Annotated[tuple[_Digest, ...], Field(max_length=1_000)] = ()
    memory_key: Label = ""
    model: ModelName = ""
    climbed: bool | None = None
    cost: Annotated[float, Field(ge=0, le=MAX_SCORE)] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofAnswer:
    """Whether memory helps: in total (`pooled`), and for each lesson, most exposed
    first.

    With a `model`, only loops of this model count. `models` has the total for each
    model, by its name, which is "" if it is unknown. `balance` is what memory changed
    in all loops that were shown it, `forecast` what a verdict lacks, and `mean_cost`
    the mean cost of a loop with and without memory. `ladders` says what each rung
    answered and spent in the newest loops with several generators. `reminders` counts
    the reminders in sessions of coding agents, and the mistakes that came again.
    `trials` has what memories on trial prove, and the demo. `verdict` is the verdict in
    force, or "": if memory "hurts", only one loop in 40 is shown it, unless the
    `holdout` is 0.
    `sentence` says what is proven of memory as a whole, or what is missing; `words` has
    its parts.
    """

    model: str
    sentence: str
    words: ProofWords
    pooled: proof.Comparison
    balance: proof.Balance
    forecast: proof.Forecast | None
    models: dict[str, proof.Comparison]
    mean_cost: proof.MeanCost | None
    ladders: LadderFigures
    reminders: SessionTally
    trials: list[proof.TrialProof]
    lessons: list[proof.Comparison]
    pending: int
    ended: int
    verdict: MemoryVerdict
    holdout: float


class TrialOffer(Body):
    """The texts that a memory on trial, the `source`, would show a loop.

    `holdout` is the share of loops from which they are withheld, below 1. With
    `keep_texts`, the store keeps the texts without secrets; otherwise, it keeps only
    their digests.
    """

    source: Name
    loop: Name
    texts: Annotated[list[Text], Field(max_length=MAX_LOOP_TEXTS)]
    holdout: Annotated[float, Field(ge=0, lt=1)] = scopes.DEFAULT_HOLDOUT_SHARE
    keep_texts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferAnswer:
    """The texts to show to the loop: all offered texts, or none."""

    texts: list[str]


class TrialResult(Body):
    """How a loop of a trial ended: whether it `passed`, or its `score`, 0..1."""

    source: Name
    loop: Name
    passed: bool | None = None
    score: Share | None = None


QuarantineRow = Annotated[
    quarantine.QuarantinedLesson, Shape(omit=("provenance", "texts"))
]


class Revocation(Body):
    """A source to remove with everything derived from it; `dry_run` only counts the
    rows.
    """

    source: Annotated[Text, Field(min_length=1, max_length=500)]
    why: Short = ""
    dry_run: bool = False


class Forgetting(Body):
    """What to forget: one of `lesson`, `person`, `loop` and `before` (seconds since
    1970); `dry_run` only counts the rows.
    """

    lesson: Annotated[int, Field(ge=1, le=MAX_INTEGER)] | None = None
    person: Label = ""
    loop: Label = ""
    before: Annotated[float, Field(ge=0)] | None = None
    why: Short = ""
    dry_run: bool = False


KeyRow = Annotated[
    Key, Shape(may=tuple[Permission, ...], also={"shown": "key", "revoke": "revoke"})
]
