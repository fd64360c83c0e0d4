"""Each way in which a model fails, at each place that depends on it, on both engines.

The caller gets a typed error without the key. What was done before is stored, and
nothing of the rest. The work goes on where it stopped as soon as the model is well.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from heedful import errors
from heedful.loop.stop import Budget
from heedful.models.contract import Message
from heedful.store.store import Store
from tests.faulty_models import (
    FAULTS,
    KEY,
    PLACES,
    FaultyServer,
    LoopPlace,
    ModelFault,
    meet,
    serving,
)

MAX_ERROR_CHARS = 1_000
AMPLE = Budget(calls=100)
# To the store, a fault is a limit, an error, an answer that is refused, or a
# cancellation.
ON_SERVER = ("no answer", "401 that repeats the key", "an empty answer")
# A loop meets each fault; the other places meet these, and the rest in `make soak`.
CANCELLED = "a call that is cancelled"
EVERYWHERE = ("401 that repeats the key", "an empty answer", CANCELLED)
# A loop refuses such an answer and asks again: to it, that is no fault of the model.
ANSWERS = ("an empty answer", "a refusal")
ASKING_AGAIN = ("loop", "stage")


def is_fault(fault: str, place: str) -> bool:
    """Return whether a place can only fail by this answer."""
    return fault not in ANSWERS or place not in ASKING_AGAIN


def case(engine: str, fault: str, place: str) -> Any:
    """Return a row of the table; most of them are for `make soak`."""
    is_telling = place == "loop" or fault in EVERYWHERE
    marks = () if engine == "sqlite" and is_telling else pytest.mark.nightly
    return pytest.param(
        engine, fault, place, id=f"{engine}, {fault}, {place}", marks=marks
    )


CASES = [
    *(
        case("sqlite", fault, place)
        for fault in FAULTS
        for place in PLACES
        if is_fault(fault, place)
    ),
    *(
        case("postgres", fault, place)
        for fault in (*ON_SERVER, CANCELLED)
        for place in PLACES
        if is_fault(fault, place)
    ),
]


@pytest.fixture(scope="module")
def one_server() -> Iterator[FaultyServer]:
    with serving() as server:
        # The first call imports the library, which takes longer than a short limit.
        asyncio.run(server.model().complete([Message("user", "Hi")]))
        yield server


@pytest.fixture
def server(one_server: FaultyServer) -> FaultyServer:
    one_server.asked.clear()
    one_server.usage = None
    return one_server


@pytest.mark.parametrize(("engine", "fault", "place"), CASES, indirect=["engine"])
async def test_a_fault_is_typed_writes_no_half_and_the_work_goes_on(
    fault: str,
    place: str,
    store: Store,
    server: FaultyServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "heedful")
    failing = FAULTS[fault]
    work = PLACES[place](store, server, AMPLE)
    await work.begin()
    before = len(server.asked)

    error = await meet(server, failing, work)

    assert type(error) is failing.error
    assert len(str(error)) < MAX_ERROR_CHARS
    assert KEY not in str(error)
    assert KEY not in caplog.text
    await work.check_kept()
    asks = work.asks_malformed if failing.malformed else work.asks
    if failing.error is asyncio.CancelledError:
        asks = 1
    requests = len(server.asked) - before
    assert requests <= asks * (1 + failing.retries)
    # On a busy machine a short time is over before the first request.
    is_limited = failing.error is errors.ModelTimeout
    assert is_limited or requests == asks * (1 + failing.retries)

    await work.go(server.model())
    await work.check_done()


BILLED = {name: fault for name, fault in FAULTS.items() if fault.billed}


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        pytest.param(fault, place, id=f"{name}, {place}")
        for name, fault in BILLED.items()
        for place in ("loop", "stage", "judge")
        if is_fault(name, place)
    ],
)
async def test_a_budget_counts_the_tokens_of_answers_that_nobody_can_use(
    fault: ModelFault, place: str, store: Store, server: FaultyServer
) -> None:
    work = PLACES[place](store, server, AMPLE)
    assert isinstance(work, LoopPlace)
    await work.begin()
    server.asked.clear()
    before = 0
    if place != "stage":
        before = (await work.spent()).tokens

    await meet(server, fault, work)

    spent = await work.spent()
    assert spent.tokens - before == fault.billed * len(server.asked)


# The library warns of a usage that it cannot read, and counts nothing.
@pytest.mark.filterwarnings("ignore:Failed to extract usage")
@pytest.mark.parametrize("place", PLACES)
async def test_a_negative_usage_gives_nothing_back_to_a_budget(
    place: str, store: Store, server: FaultyServer
) -> None:
    work = PLACES[place](store, server, AMPLE)
    await work.begin()
    server.usage = {"prompt_tokens": -7, "completion_tokens": -2, "total_tokens": -9}
    await work.go(server.model())
    server.usage = None
    await work.check_done()
    if isinstance(work, LoopPlace):
        spent = await work.spent()
        assert spent.tokens >= 0
