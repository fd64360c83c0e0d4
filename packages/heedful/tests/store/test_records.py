"""Every field of what a loop begins with is stored and read back, on both engines.

Each field has another value than its default: a new one fails until it is stored.
"""

from dataclasses import MISSING, fields

import pytest

from heedful.loop import policies
from heedful.loop.codec import policy_to, to_document
from heedful.loop.ladder import Ladder
from heedful.loop.record import Goal
from heedful.loop.runs import StageHead
from heedful.store import loops
from heedful.store.records import Head
from tests.store.support import SCOPE

STAGE = StageHead(
    run="monday",
    name="train",
    pipeline="forecast",
    checks=("finite", "rows"),
    on_exhausted="halt",
    on_unvalidated="halt",
    model="embedded",
    output="Forecast 0f5c6a7b",
    input="93e0b1c2a4d5f607",
)
HEAD = Head(
    task="Forecast the sales of May.",
    goals=[to_document(Goal("quality", 0.75))],
    policy=policy_to(policies.default),
    context={"month": "May"},
    kind="stage",
    stage=STAGE,
    memory_key="forecast.train",
    model="embedded",
    ladder=Ladder(names=("embedded", "large")),
)


@pytest.mark.parametrize("record", [HEAD, STAGE], ids=["head", "stage"])
def test_no_field_here_has_its_default(record):
    for field in fields(record):
        if not field.compare:
            continue  # it is not stored: the same data in another form
        default = (
            field.default_factory()
            if field.default_factory is not MISSING
            else field.default
        )
        assert getattr(record, field.name) != default, field.name


@pytest.mark.both
async def test_a_loop_is_read_with_every_field_that_it_began_with(store):
    await store.write(SCOPE, loops.begin, "train of monday", HEAD)
    loop = await store.read(SCOPE, loops.read, "train of monday")
    assert loop.head == HEAD
