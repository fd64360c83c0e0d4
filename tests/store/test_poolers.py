"""PgBouncer before PostgreSQL, in session mode, and the settings of a URL."""

import asyncio
import os
import re
import subprocess
import sys

from heedful.memory.memory import Memory
from heedful.store import open_store
from tests.pooler import NEEDS_POOLER, pooled
from tests.postgres import Urls, server
from tests.store.test_postgres import ONE, OTHER, add, count, opened

SETTINGS = [
    "search_path",
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
]


def database_of(urls: Urls) -> str:
    match = re.search(r"@/([^?]+)", urls.service)
    assert match is not None
    return f"/{match[1]}"


async def read_settings(url: str) -> list[str]:
    def read(db):
        calls = ", ".join(f"current_setting('{name}')" for name in SETTINGS)
        return list(db.execute(f"select {calls}").fetchone())

    async with opened(url) as database:
        settings: list[str] = await database.read(ONE, read)
    return settings


@NEEDS_POOLER
async def test_a_pooler_in_session_mode_keeps_settings_tenants_and_writers(postgres):
    direct = await read_settings(f"{postgres.service}&pool_size=1")
    with pooled(server(), "session") as url:
        through = f"{url}{database_of(postgres)}?"
        assert await read_settings(through) == direct
        async with opened(through, pool_size=5) as database:
            writes = [database.write(ONE, add) for _ in range(20)]
            others = [
                database.write(OTHER, lambda db: add(db, OTHER)) for _ in range(20)
            ]
            await asyncio.gather(*writes, *others)

            def tenants(db):
                return db.execute("select distinct tenant from tally").fetchall()

            assert await database.read(ONE, tenants) == [("one",)]
    assert count(postgres.owner) == 40


@NEEDS_POOLER
def test_commands_work_through_a_pooler_in_session_mode(postgres, tmp_path):
    """The queue of jobs is seen by a worker, whose setting is one of the session."""
    memory = Memory(open_store(postgres.service))
    asyncio.run(memory.remember("E", "no unit", lesson="Write the unit."))
    with pooled(server(), "session") as url:
        command = [sys.executable, "-m", "heedful.cli", "worker", "--once", "--db"]
        done = subprocess.run(
            [*command, url + database_of(postgres)],
            cwd=tmp_path,
            env={**os.environ, "HEEDFUL_EMBEDDER": "none"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr


# --- the settings of the server in a URL


async def test_options_of_the_url_come_after_those_of_heedful(postgres):
    options = "-c%20statement_timeout=7s%20--lock-timeout=2s"
    settings = await read_settings(f"{postgres.service}&options={options}")
    assert settings == ["heedful,public", "7s", "2s", "1min"]
