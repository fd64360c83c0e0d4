"""Models that fail in random ways, again and again, at each place that needs one."""

import logging
import random
from pathlib import Path

import pytest

from conftest import SOAK
from heedful.loop.stop import Budget
from heedful.models.contract import Message
from tests.faulty_models import FAULTS, KEY, PLACES, LoopPlace, meet, serving
from tests.soak.ledger import Ledger
from tests.store.support import opened

pytestmark = [pytest.mark.soak, pytest.mark.nightly, pytest.mark.both]
ROUNDS = 3 if SOAK == 1 else 5 * SOAK
MAX_FAULTS = 4  # that one piece of work meets before its model is well
CALLS = 40  # more than all of them take
# A loop and a stage take these as answers that are refused, and ask again.
ANSWERS = {"an empty answer", "a refusal"}


def _holds_key(folder: Path) -> bool:
    return any(KEY.encode() in path.read_bytes() for path in folder.glob("*.db*"))


async def test_whatever_a_model_does_the_work_ends_once_and_within_its_budget(
    engine: str, tmp_path: Path, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "heedful")
    seed = random.randrange(2**32) if SOAK > 1 else 1
    choose = random.Random(seed)
    faults = 0
    lost = 0
    exceeded = 0
    leaked = 0

    with serving() as server:
        await server.model().complete([Message("user", "Hi")])
        for number in range(ROUNDS):
            place = choose.choice(list(PLACES))
            answers = ANSWERS if place in ("loop", "stage") else set()
            kinds = sorted(FAULTS.keys() - answers)
            names = choose.choices(kinds, k=choose.randint(1, MAX_FAULTS))
            # A server has not room for the connections of so many databases.
            path = tmp_path / f"{number}.db" if engine == "sqlite" else ":memory:"
            with opened(path) as store:
                work = PLACES[place](store, server, Budget(calls=CALLS))
                await work.begin()
                for name in names:
                    error = await meet(server, FAULTS[name], work)
                    await work.check_kept()
                    leaked += KEY in str(error)
                    faults += 1
                await work.go(server.model())
                try:
                    await work.check_done()
                except AssertionError as error:
                    print(f"{place} after {names}, seed {seed}: {error}")
                    lost += 1
                if isinstance(work, LoopPlace):
                    spent = await work.spent()
                    exceeded += spent.calls > CALLS
            server.asked.clear()

    leaked += _holds_key(tmp_path) + (KEY in caplog.text)
    ledger.settle(
        what=f"{len(FAULTS)} kinds of model faults in random order, in loops, "
        "stages of pipelines, reflectors and judges; then the model is well",
        engine="PostgreSQL" if engine == "postgres" else "SQLite",
        times=faults,
        seed=seed,
        lost=lost,
        exceeded=exceeded,
        leaked=leaked,
    )
