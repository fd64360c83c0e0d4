"""The pages: server time of each, with few, some and many loops and lessons, on both
engines.

Pages are asked in this process, as `heedful ui` serves them, so the figures are server
time alone. The machine may do other work, which slows all pages alike: so each page is
also compared with Home, which is asked before each of its requests.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from statistics import median, quantiles

import httpx
from rich.console import Console
from rich.table import Table

from bench.rows import Figure
from heedful.lessons.lesson import Scope
from heedful.store import lessons
from heedful.store.connection import Db, token
from heedful.store.postgres import in_database
from heedful.store.sqlite import in_file
from heedful.store.store import Store
from heedful_server.app import application
from heedful_server.cli.service import rest_garbage_collection
from heedful_server.setup import Setup
from heedful_server.web.site_map import add_pages

SIZES = (45, 2_000, 100_000)  # loops, and as many lessons
ATTEMPTS = 10_000  # of the long loop
TIMES = 20  # requests for each page, after those that warm up
WARM_TIMES = 2
MOST = 200.0  # milliseconds, 95 of 100 requests
AT = "heedful_template"
PAGES = (
    "",
    "/loops",
    "/loops?state=passed",
    "/loops?key=triage&check=severity",
    "/loops?check=severity",
    "/loops?text=nothing+like+it",
    "/loops?text=login+hangs",
    "/loops?text=P1",
    "/loops/long",
    "/loops/long?from=5000",
    "/loops/loop%2044",
    "/lessons",
    "/lessons?text=login+hangs",
    "/lessons?task=login+hangs",
    "/lessons/{lesson}",
    "/inbox",
    "/inbox/{waiting}",
    "/proof",
    "/work",
)
FINDING = (
    '{"check":"severity","message":"no severity","fix":"answer with '
    'P0","key":"severity"}'
)
RECORD = (
    '{"number":%s,"candidate":{"digest":"d%s"},"evaluation":{"findings":[%s],"scores":{}},'
    '"usage":{"calls":1,"prompt_tokens":900,"completion_tokens":80,"cost":0.002},"repeats":null,"judged_by":["severity"]}'
)
AGAIN = '{"verdict":"again","reasons":[],"feedback":"answer with P0","lifted":[]}'
PASSED = '{"verdict":"done","best":1,"passed":true,"stopped_by":[],"lifted":[]}'
STOPPED = (
    '{"verdict":"done","best":1,"passed":false,"lifted":[],'
    '"stopped_by":[{"rule":"attempts","figures":{"count":2,"limit":2}}]}'
)
POLICY = '{"rules":[{"rule":"attempts","limit":20000}]}'
NUMBERS = (
    "with recursive x (i) as (select {first} union all select i + 1 from x "
    "where i < {most}) "
)
EXAMPLE = '{"task":"login hangs","accepted":"P1"}'
SCOPE = token(Scope())
NOW = "1795000000.0"
# A superuser's statements on PostgreSQL: triggers would update one row for each lesson.
QUICK = (
    "set search_path = heedful, public; set statement_timeout = 0; set heedful.tenant "
    "= 'default'; "
    "set session_replication_role = replica; "
)
COUNTED = """
insert into corpus (scope, tenant, example, texts, length)
select scope, 'default', max(id), count(*), sum(length(words))
from example where indexed group by scope
"""
# The words of a lesson; twelve of them make many lessons alike, as they are.
WORDS = "'word' || i % 997 || ' login hangs case' || i % 12"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCost:
    """What a page took, in milliseconds, and its `p50` as a multiple of Home's.

    `cpu` is that of this process, so without PostgreSQL's.
    """

    p50: float
    p95: float
    cpu: float
    ratio: float

    def figures(self, page: str) -> Iterable[Figure]:
        """Return the figures of a page."""
        yield Figure(name=f"{page}, p50", value=self.p50, unit="ms")
        yield Figure(name=f"{page}, p95", value=self.p95, unit="ms", most=MOST)
        yield Figure(name=f"{page}, CPU", value=self.cpu, unit="ms")
        yield Figure(name=f"{page} ÷ Home", value=self.ratio, unit="×")


def loop_statements(first: int, last: int) -> list[str]:
    """Return the SQL that stores loops with these numbers, of one attempt each.

    They become the newest loops. It is the same for both engines.
    """
    passed = RECORD % ("1", "1", "")
    wrong = RECORD % ("1", "1", FINDING)
    created = f"{NOW} - ({last} - i) * 25"
    loops = f"""
        {NUMBERS.format(first=first, most=last)}
        insert into loop (tenant, project, id, memory_key, task, goals, policy, state,
            created, updated)
        select 'default', 'default', 'loop ' || i, 'triage',
            '"Bug ' || i || ': login hangs"', '[]', '{POLICY}',
            case when i % 50 = 0 then 'stopped' else 'passed' end,
            {created}, {created}
        from x
    """
    attempts = f"""
        insert into attempt (loop, number, record, text, value, created)
        select n, 1, case when n % 7 = 0 then '{wrong}' else '{passed}' end, '', '"P1"',
            created
        from loop where id like 'loop %' and n > (
            select coalesce(max(loop), 0) from attempt)
    """
    decisions = f"""
        insert into decision (loop, seq, attempt, record, created)
        select n, 1, 1,
            case when state = 'stopped' then '{STOPPED}' else '{PASSED}' end, created
        from loop where id like 'loop %' and n > (
            select coalesce(max(loop), 0) from decision)
    """
    return [loops, attempts, decisions]


def fill_statements(size: int) -> list[str]:
    """Return the SQL that fills an empty database with so many loops and lessons.

    It is the same for both engines.
    """
    wrong_of_number = RECORD % ("' || i || '", "' || i || '", FINDING)
    long_loop = f"""
        insert into loop (tenant, project, id, task, goals, policy, state, created,
            updated)
        values ('default', 'default', 'long', '"a long one"', '[]', '{POLICY}', 'open',
            {NOW}, {NOW})
    """
    long_attempts = f"""
        {NUMBERS.format(first=1, most=ATTEMPTS)}
        insert into attempt (loop, number, record, text, value, created)
        select (select n from loop where id = 'long'), i, '{wrong_of_number}', '',
            '"answer ' || i || '"', {NOW}
        from x
    """
    long_decisions = f"""
        {NUMBERS.format(first=1, most=ATTEMPTS)}
        insert into decision (loop, seq, attempt, record, created)
        select (select n from loop where id = 'long'), i, i, '{AGAIN}', {NOW}
        from x
    """
    lessons = f"""
        {NUMBERS.format(first=1, most=size)}
        insert into lesson (tenant, project, kind, signature, pattern, words,
            error_type, text, state, trust, first_seen, last_seen)
        select 'default', 'default', 'error', 'signature ' || i, 'pattern ' || i,
            {WORDS}, 'type ' || i % 20, 'lesson ' || i,
            case when i % 100 = 0 then 'quarantined' else 'verified' end,
            case when i % 100 = 0 then 'outside' else 'user' end, {NOW}, {NOW}
        from x
    """
    examples = f"""
        insert into example (lesson_id, scope, task, record, digest, state, trust,
            lesson, words, indexed, at)
        select id, '{SCOPE}', pattern, '{EXAMPLE}', signature, state, trust, text,
            words, state = 'verified', first_seen
        from lesson
    """
    return [
        *loop_statements(1, size),
        long_loop,
        long_attempts,
        long_decisions,
        lessons,
        examples,
        "analyze",
    ]


def figures(folder: str) -> Iterable[Figure]:
    """Fill databases of each engine, and ask for every page."""
    from tests.postgres import alone  # a server comes with what develops heedful

    for size in SIZES:
        yield from asyncio.run(_measure_sqlite(f"{folder}/pages-{size}.db", size))
    for size in SIZES:
        with alone() as server:
            for statement in fill_statements(size):
                server.run(f"{QUICK}{statement}", AT)
            server.run(f"{QUICK}{COUNTED}", AT)
            store = in_database(server.url(AT, "heedful"))
            yield from asyncio.run(_measure("PostgreSQL", store, size))


async def _measure_sqlite(path: str, size: int) -> list[Figure]:
    store = in_file(path)
    await store.read(Scope(), lessons.count)  # it makes the tables
    with closing(sqlite3.connect(path)) as db, db:
        for statement in fill_statements(size):
            db.execute(statement)
    return await _measure("SQLite", store, size)


def _ids(db: Db, scope: Scope) -> dict[str, int]:
    """Return a lesson that is in use, and a text that waits for a review."""
    (lesson,) = db.execute(
        "select max(id) as id from lesson where state = 'verified'"
    ).fetchall()
    (waiting,) = db.execute(
        "select max(id) as id from example where state = 'quarantined'"
    ).fetchall()
    return {"lesson": lesson["id"], "waiting": waiting["id"] or lesson["id"]}


@asynccontextmanager
async def open_pages(store: Store) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a browser that may see all pages of a store."""
    app = application(Setup(store=store, open=True))
    site = add_pages(app)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", follow_redirects=True
    ) as client:
        await client.get(
            f"/ui/open?token={site.sessions.invite()}", follow_redirects=False
        )
        rest_garbage_collection()
        yield client


async def _measure(engine: str, store: Store, size: int) -> list[Figure]:
    title = f"{engine}, {size:,} loops"
    results = list[Figure]()
    async with open_pages(store) as client:
        ids = await store.read(Scope(), _ids)
        table = Table("page", "p50", "p95", "CPU", "÷ Home", title=f"{title}, in ms")
        for page in PAGES:
            cost = await _measure_page(client, page.format_map(ids))
            table.add_row(
                f"/ui{page}",
                f"{cost.p50:.0f}",
                f"{cost.p95:.0f}",
                f"{cost.cpu:.0f}",
                f"{cost.ratio:.2f}",
            )
            results += cost.figures(f"{title}, /ui{page}")
    Console(stderr=True).print(table)
    await store.close()
    return results


async def _measure_page(client: httpx.AsyncClient, page: str) -> PageCost:
    """Ask for a page some times, each time after Home; the first ones warm up."""
    times = list[float]()
    home_times = list[float]()
    cpu_times = list[float]()
    for _ in range(WARM_TIMES + TIMES):
        home_times.append((await ask_page(client, ""))[0])
        milliseconds, cpu = await ask_page(client, page)
        times.append(milliseconds)
        cpu_times.append(cpu)

    times = times[WARM_TIMES:]
    middle = median(times)
    return PageCost(
        p50=middle,
        p95=quantiles(times, n=20)[-1],
        cpu=median(cpu_times[WARM_TIMES:]),
        ratio=middle / median(home_times[WARM_TIMES:]),
    )


async def ask_page(client: httpx.AsyncClient, page: str) -> tuple[float, float]:
    """Return the milliseconds until a page has come, and those of CPU."""
    path = f"/ui{page}{'&' if '?' in page else '?'}project=default"
    began = time.perf_counter()
    cpu = time.process_time()
    answer = await client.get(path)
    cpu_seconds = time.process_time() - cpu
    seconds = time.perf_counter() - began
    if answer.status_code != 200:
        raise SystemExit(f"{path}: {answer.status_code} {answer.text[-400:]}")
    return seconds * 1e3, cpu_seconds * 1e3
