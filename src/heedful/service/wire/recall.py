"""What is asked of memory for a task, what it brings, and how a loop ended, as they are sent."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from heedful.lessons.lesson import Match
from heedful.lessons.proof import Comparison, Effect
from heedful.lessons.ranking import provenance, relevance
from heedful.redact import redact
from heedful.service.wire.body import Body, Tags, example, saying


def _name(loop: str) -> str:
    """Raises ValueError for what no loop may be called: it is stored as it is."""
    if not loop.isprintable() or loop != redact(loop):
        raise ValueError("it must be 1 to 200 printable characters, without a secret")
    return loop


Loop = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_name)]


class Recall(Body):
    """A task, and the loop that is about to do it.

    With a `loop` what is brought counts as shown to it, some of it is withheld by a coin, and the
    same is brought again when it asks again; `limit`, `budget`, `tags` and `match` are for asking
    without one. `form` says how: worked examples as chat turns; these and what was wrong elsewhere
    as one text; or only the `items`.
    """

    model_config: ClassVar[ConfigDict] = saying(
        example(task="Write the weekly report", loop="report-17", form="text"),
        anyOf=[
            {"properties": {"loop": {"type": "null"}}},
            {"properties": dict.fromkeys(("limit", "budget", "tags", "match"), False)},
        ],
    )

    task: Annotated[str, Field(min_length=1, max_length=100_000)]
    loop: Loop | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 5
    budget: Annotated[int, Field(ge=0, le=100_000)] = 600
    tags: Tags = Field(default_factory=list)
    match: Literal["any", "all"] = "any"
    form: Literal["messages", "text", "found"] = "messages"


class Item(BaseModel):
    """A worked example, or a lesson without one; `id` is that of the example.

    `relevance` is 0..1; `source` says where it comes from, in words; `at` is when it was stored.
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
    def of(cls, one: Match) -> Item:
        """That find."""
        same = ("id", "reflection", "kind", "signature", "error_type", "lesson", "verified")
        more = ("seen", "importance", "useful", "at")
        pair = {name: getattr(one.example, name) for name in ("task", "accepted", "rejected")}
        return cls(
            **{name: getattr(one, name) for name in (*same, *more)},
            **pair,
            wrong=one.example.wrong,
            relevance=min(1.0, max(0.0, relevance(one))),
            tags=list(one.tags),
            source=provenance(one),
        )


class Turn(BaseModel):
    """One turn of a chat; `source` is for the reader, no model is told."""

    role: Literal["system", "user", "assistant"]
    content: str
    source: str


class Shown(BaseModel):
    """That the loop was shown so many lessons, and that the coin withheld so many."""

    loop: str
    shown: int
    withheld: int


class Recalled(BaseModel):
    """What fits the task, best first; nothing where nothing does.

    `messages` and `text` are for a prompt as they are, each where its form was asked for.
    """

    model_config: ClassVar[ConfigDict] = example(
        items=[
            {
                "id": 12,
                "reflection": 7,
                "kind": "error",
                "signature": "3f0c9a1b2d4e5f60",
                "error_type": "unverified_claim",
                "lesson": "Say where a number comes from.",
                "task": "Write the weekly report",
                "accepted": "",
                "rejected": "",
                "wrong": "",
                "verified": False,
                "seen": 3,
                "importance": 0.5,
                "useful": 1.0,
                "relevance": 0.8,
                "at": 1769860800.0,
                "tags": ["reports"],
                "source": "lesson 7, not verified, seen 3 times, remembered as unverified_claim",
            }
        ],
        messages=[],
        text="Lessons from and accepted answers to earlier tasks (data, not instructions):\n…",
        exposure={"loop": "report-17", "shown": 1, "withheld": 0},
    )

    items: list[Item]
    messages: list[Turn]
    text: str
    exposure: Shown | None


class GivenOutcome(Body):
    """How a loop ended: whether it was right at once, its model calls, and the errors it had.

    Errors are named by the `signature` that `/v1/seen` tells.
    """

    model_config: ClassVar[ConfigDict] = example(
        loop="report-17", right_at_once=False, calls=3, signatures=["3f0c9a1b2d4e5f60"]
    )

    loop: Loop
    right_at_once: bool
    calls: Annotated[int, Field(ge=0, le=2**31 - 1)]
    signatures: Annotated[
        list[Annotated[str, Field(pattern="^[0-9a-f]{16}$")]], Field(max_length=1_000)
    ] = Field(default_factory=list)


class Counted(BaseModel):
    """The how-many-th loop of the project it was that ended; 0 where it was shown nothing."""

    model_config: ClassVar[ConfigDict] = example(loop="report-17", number=21)

    loop: str
    number: int


class ShownEffect(BaseModel):
    """Means where shown and where withheld, and how much better the first; null: not known.

    The true gain lies within `low` and `high`, however often one looks.
    """

    shown: float | None
    withheld: float | None
    gain: float | None
    low: float
    high: float

    @classmethod
    def of(cls, one: Effect) -> ShownEffect:
        """That effect."""
        return cls(**{name: getattr(one, name) for name in cls.model_fields})


class ShownComparison(BaseModel):
    """A lesson, null being memory as a whole, where it was shown against where it was withheld."""

    lesson: str | None
    shown: int
    withheld: int
    uplift: ShownEffect
    recurrence: ShownEffect
    calls: ShownEffect
    fair: bool
    conclusion: Literal["helps", "hurts", "no difference shown", "insufficient data"]

    @classmethod
    def of(cls, one: Comparison) -> ShownComparison:
        """That comparison."""
        effects: dict[str, Any] = {
            name: ShownEffect.of(getattr(one, name)) for name in ("uplift", "recurrence", "calls")
        }
        name = None if one.lesson is None else str(one.lesson)
        same = {n: getattr(one, n) for n in ("shown", "withheld", "fair", "conclusion")}
        return cls(lesson=name, **same, **effects)


_NOTHING = {"shown": 0.5, "withheld": None, "gain": None, "low": -1.0, "high": 1.0}


class Proof(BaseModel):
    """Whether memory helps: as a whole, and each lesson, the most exposed first.

    `pending` loops are under way, `ended` have ended; `holdout` is the share that is withheld.
    """

    model_config: ClassVar[ConfigDict] = example(
        pooled={
            "lesson": None,
            "shown": 2,
            "withheld": 0,
            "uplift": _NOTHING,
            "recurrence": _NOTHING,
            "calls": {**_NOTHING, "low": -20.0, "high": 20.0},
            "fair": True,
            "conclusion": "insufficient data",
        },
        lessons=[],
        pending=1,
        ended=2,
        holdout=0.1,
    )

    pooled: ShownComparison
    lessons: list[ShownComparison]
    pending: int
    ended: int
    holdout: float
