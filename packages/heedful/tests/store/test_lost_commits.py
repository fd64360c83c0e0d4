"""The answer to the commit of each write is lost; the call is made again as the error
says; then the database holds what one call writes, once.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from heedful.errors import (
    HeedfulError,
    InvalidInput,
    LeaseLost,
    NotFound,
    NotQuarantined,
    RollbackRefused,
    StoreInDoubt,
)
from heedful.integrations import call_host
from heedful.lessons.scope import Scope
from heedful.memory import dream, quarantine
from heedful.store import (
    editions,
    exposures,
    forgetting,
    keys,
    ladders,
    lessons,
    loop_notes,
)
from heedful.store.idempotency import keep_answer
from heedful.store.postgres import Database
from heedful.store.postgres_session import parse_url
from heedful.store.store import Store
from tests.postgres import Urls, drop, fresh, rows
from tests.store.lost_writes import ROWS, Call, Prepare, World
from tests.store.wire import Wire, wired

# What says after a repeat that it was done before; it is not done twice.
REFUSALS: dict[Any, tuple[type[HeedfulError], ...]] = {
    dream.undo: (RollbackRefused,),
    editions.amend: (InvalidInput,),
    exposures.restore: (NotFound,),
    lessons.edit: (InvalidInput,),
    forgetting.forget: (NotFound,),
    quarantine.settle: (NotQuarantined,),
    quarantine.undo: (NotFound,),
    keep_answer: (LeaseLost,),
}
# No public call of Python makes these alone: over HTTP they have an Idempotency-Key, a
# host only logs an error, a loop that is resumed repeats no alarms, and an
# administrator looks at the list of keys.
LOOKED_AT = {
    exposures.count_alarms,
    loop_notes.add,
    call_host._write_record,
    call_host._write_telling,
    keys.insert,
    keys.revoke,
}
# Numbers that a second write would raise, by their tables.
SUMS = {
    "hardened": "hits + false_alarms",
    "lesson": "seen",
    "loop": "unanswered",
    "override": "decisions",
    "spending": "calls",
}
# `answer` has the keys themselves.
TABLES = """
select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid
where c.relnamespace = 'heedful'::regnamespace and c.relkind = 'r'
  and a.attname = 'tenant' and c.relname <> 'answer' order by 1
"""


class CutStore(Store):
    """A store whose wire is cut at the next commits of one function.

    `cut` is "before" or "after", as the wire has it; `cuts` is how often.
    """

    def __init__(self, wire: Wire) -> None:
        address = parse_url(wire.url)
        super().__init__(address.shown, Database(address))
        self._wire = wire
        self.function: Callable[..., Any] | None = None
        self.cut = ""
        self.cuts = 0

    async def write(self, scope: Scope, work: Any, /, *args: Any, **kwargs: Any) -> Any:
        if work is self.function:
            self.function = None
            self._wire.cut = self.cut
            self._wire.cuts = self.cuts
        try:
            return await super().write(scope, work, *args, **kwargs)
        finally:
            self._wire.cut = ""


@pytest.fixture(scope="module")
def urls() -> Iterator[Urls]:
    database = fresh()
    yield database
    drop(database)


@pytest.fixture
def wire(urls: Urls) -> Iterator[Wire]:
    with wired(urls.service) as wire:
        yield wire


def tally(urls: Urls, scope: Scope) -> dict[str, tuple[int, int]]:
    """Return how many rows each table has of a tenant, and the sum of its numbers."""
    parts = []
    for table in tables(urls):
        total = f"coalesce(sum({SUMS.get(table, '0')}), 0)"
        owned = f"from {table} where tenant = '{scope.tenant}'"
        parts.append(f"select '{table}', count(*), {total} {owned}")
    sql = " union all ".join(parts)
    return {name: (count, int(sum)) for name, count, sum in rows(urls.superuser, sql)}


@cache
def tables(urls: Urls) -> list[str]:
    """Return the tables that have rows of tenants."""
    return [name for (name,) in rows(urls.superuser, TABLES)]


CASES = [
    pytest.param(function, prepare, id=f"{function.__name__}: {prepare.__name__}")
    for function, prepares in ROWS.items()
    for prepare in prepares
]


@pytest.mark.nightly
@pytest.mark.parametrize(("function", "prepare"), CASES)
@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_call_whose_commit_is_lost_is_written_once(
    urls, wire, function, prepare, cut
):
    """Nobody notices: the call itself finds out what became of its write."""
    store = CutStore(wire)
    once = await tally_of_one_call(urls, store, prepare)
    name = f"{function.__name__} {prepare.__name__} once {cut}"
    world = World(store, Scope(name))
    call = await prepare(world)

    cut_at(store, function, cut, cuts=1)
    await call()
    assert store.function is None
    await store.close()

    if function is ladders.reserve:
        # A reservation that was lost stays counted, so that no limit is exceeded.
        return
    assert tally(urls, world.scope) == once


@pytest.mark.parametrize(("function", "prepare"), CASES)
@pytest.mark.parametrize(
    "cut", [pytest.param("before", marks=pytest.mark.nightly), "after"]
)
async def test_a_call_in_doubt_is_written_once_if_made_again_as_told(
    urls, wire, function, prepare, cut
):
    """The question what became of the write is lost, too."""
    store = CutStore(wire)
    once = await tally_of_one_call(urls, store, prepare)
    world = World(store, Scope(f"{function.__name__} {prepare.__name__} twice {cut}"))
    call = await prepare(world)
    before = tally(urls, world.scope)

    cut_at(store, function, cut, cuts=2)
    with pytest.raises(StoreInDoubt) as error:
        await call()
    await make_again(call, error.value, function, tally(urls, world.scope) == before)
    await store.close()

    if function is not ladders.reserve:
        assert tally(urls, world.scope) == once


async def tally_of_one_call(
    urls: Urls, store: CutStore, prepare: Prepare
) -> dict[str, tuple[int, int]]:
    """Return what the database holds of a scope in which one call was made."""
    tenant = f"calm {next(_numbers)}"
    world = World(store, Scope(tenant))
    await (await prepare(world))()
    return tally(urls, world.scope)


_numbers = iter(range(10_000))


def cut_at(store: CutStore, function: Callable[..., Any], cut: str, cuts: int) -> None:
    """Cut the wire at the next commits of `function`."""
    store.function = function
    store.cut = cut
    store.cuts = cuts


async def make_again(
    call: Call, doubt: StoreInDoubt, function: Callable[..., Any], unwritten: bool
) -> None:
    """Do what the error says."""
    if doubt.key:
        assert f"{doubt.argument}={doubt.key!r}: it is not written twice" in str(doubt)
        await call(**{doubt.argument: doubt.key})
        return

    if doubt.counts:
        assert function in LOOKED_AT
        assert "see whether it was written" in str(doubt)
        if unwritten:
            await call()
        return

    assert "make the same call again" in str(doubt)
    with suppress(*REFUSALS.get(function, ())):
        await call()
