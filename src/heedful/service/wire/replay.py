"""What other policies would have done with recorded loops, as it is sent."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from heedful.loop.replay import Figures
from heedful.service.wire.body import Body, Name, example
from heedful.service.wire.loops import Usage, Written
from heedful.store.history import document

ROW: dict[str, Any] = {
    "policy": "default",
    "loops": 120,
    "attempts": 214,
    "usage": {"calls": 214},
    "solved": 97,
    "solvable": 101,
    "lost": 4,
    "quality": 0.83,
    "oracle": 171,
    "regret": 43,
    "beyond": 0,
}


class Replay(Body):
    """Which policies, written as for a loop, are to be tried on which loops: on the newest.

    Or on the `loops` named; at most `limit`, those that have an attempt.
    """

    model_config: ClassVar[ConfigDict] = example(
        policies=["default", "default, attempts.limit=2"], limit=500
    )

    policies: Annotated[list[Written], Field(min_length=1, max_length=20)]
    loops: Annotated[list[Name], Field(max_length=1_000)] | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1_000


class Row(BaseModel):
    """What a policy would have cost and lost.

    `solved` of the `solvable` loops keep an attempt of quality 1, the others are `lost`; `quality`
    is the mean of what is kept (0..1). `regret` are the attempts beyond those of one who knows the
    first right one, of which there are `oracle`. Of `beyond` loops the record cannot tell.
    """

    model_config: ClassVar[ConfigDict] = example(**ROW)

    policy: str
    loops: int
    attempts: int
    usage: Usage
    solved: int
    solvable: int
    lost: int
    quality: float
    oracle: int
    regret: int
    beyond: int

    @classmethod
    def of(cls, one: Figures, policy: str = "") -> Row:
        """Those figures; `policy` names them where their own name is empty."""
        plain = document(one)
        return cls(**{**plain, "policy": plain["policy"] or policy})


class Replayed(BaseModel):
    """What the record holds, and what each policy would have made of it, in their order."""

    model_config: ClassVar[ConfigDict] = example(
        recorded={**ROW, "policy": "as recorded"}, policies=[ROW]
    )

    recorded: Row
    policies: list[Row]
