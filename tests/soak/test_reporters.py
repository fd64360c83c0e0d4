"""Many report, override and cancel the same loops at once: every limit holds, nothing is lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heedful.drive.report import AttemptReport, cancel, open_loop, override, report
from heedful.errors import AttemptTaken, LoopEnded, OutOfOrder, OverrideRefused
from heedful.lessons.lesson import Scope
from heedful.loop.codec import verdict_to
from heedful.loop.decide import Done, Policy
from heedful.loop.record import Evaluation, Finding
from heedful.loop.stop import MaxAttempts
from heedful.store import loops as loop_store
from heedful.store.sqlite import in_file
from heedful.store.store import Store
from tests.conftest import SOAK
from tests.postgres import drop, fresh
from tests.soak.reported import problems

pytestmark = pytest.mark.soak
STEPS = 600 * SOAK
AT_ONCE = 24
LOOPS = STEPS // 50
UNDER_WAY = 12
MOST = 3
SCOPE = Scope("acme", "race")
WRONG = Evaluation((Finding("unit", "no unit"),))
LATE = (AttemptTaken, OutOfOrder, LoopEnded)


@pytest.fixture(params=["sqlite", "postgres"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Store]]:
    """The same database twice, as two processes have it."""
    from heedful.store.postgres import in_database

    urls = fresh() if request.param == "postgres" else None
    file = str(tmp_path / "race.db")
    made = [in_database(urls.service) if urls else in_file(file) for _ in range(2)]
    yield made
    for store in made:
        asyncio.run(store.close())
    if urls:
        drop(urls)


class Crowd:
    """What many do at random, and what each of them was told."""

    def __init__(self, stores: list[Store], seed: int) -> None:
        self.stores, self.chance = stores, random.Random(seed)
        self.steps = 0
        self.acknowledged: defaultdict[str, dict[int, tuple[Any, Any]]] = defaultdict(dict)
        self.told: dict[tuple[str, int], AttemptReport] = {}
        self.given: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()

    async def all(self) -> None:
        for n in range(LOOPS + UNDER_WAY):
            await open_loop(
                self.stores[0], SCOPE, f"loop {n}", "task", policy=Policy((MaxAttempts(MOST),))
            )
        await asyncio.gather(*(self.one() for _ in range(AT_ONCE)))

    async def one(self) -> None:
        while self.steps < STEPS:
            self.steps += 1
            first = self.steps * max(0, LOOPS - UNDER_WAY) // STEPS
            id = f"loop {first + self.chance.randrange(UNDER_WAY)}"
            store = self.chance.choice(self.stores)
            kind = self.chance.random()
            if kind < 0.1:
                await self.lifts(store, id)
            elif kind < 0.102:
                await cancel(store, SCOPE, id, "ada")
                self.happened["cancelled"] += 1
            else:
                await self.reports(store, id)

    async def lifts(self, store: Store, id: str) -> None:
        try:
            decisions = self.chance.randint(1, 3)
            await override(id, "attempts", by="ada", decisions=decisions, store=store, scope=SCOPE)
        except OverrideRefused:
            self.happened["override refused"] += 1
        else:
            self.given[id] += 1

    async def reports(self, store: Store, id: str) -> None:
        number = max(1, len(self.acknowledged[id]) + self.chance.choice((0, 1, 1, 1, 2)))
        passes = self.chance.random() < 0.01
        told = AttemptReport(
            f"{number}/{self.chance.randrange(3)}", evaluation=Evaluation() if passes else WRONG
        )
        try:
            answer = await report(store, SCOPE, id, number, told)
        except LATE as error:
            self.happened[type(error).__name__] += 1
            return
        self.happened["new" if answer.new else "again"] += 1
        said = told.output, verdict_to(answer.verdict)
        self.told[id, number] = told
        assert self.acknowledged[id].setdefault(number, said) == said


async def test_no_limit_is_exceeded_and_every_acknowledged_report_is_there_once(stores):
    crowd = Crowd(stores, seed=SOAK)
    await crowd.all()
    for (id, number), told in crowd.told.items():
        again = await report(stores[1], SCOPE, id, number, told)
        assert not again.new
        assert verdict_to(again.verdict) == crowd.acknowledged[id][number][1]
    loops = await stores[0].read(SCOPE, loop_store.newest, LOOPS + UNDER_WAY)
    print(f"{crowd.steps} steps: {dict(sorted(crowd.happened.items()))}")
    wrong = [
        f"{one.id}: {what}"
        for one in loops
        for what in problems(one, crowd.acknowledged[one.id], crowd.given[one.id], MOST)
    ]
    assert not wrong, wrong
    made = sum(len(one.loop.attempts) for one in loops)
    assert made == crowd.happened["new"]
    ended = Counter(isinstance(one.verdicts[-1], Done) for one in loops if one.verdicts)
    assert any(len(one.loop.attempts) > MOST for one in loops), "no override led to an attempt"
    assert ended[True]
    assert all(crowd.happened[one.__name__] for one in LATE), crowd.happened
