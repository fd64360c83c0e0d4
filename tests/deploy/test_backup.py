"""The commands of the page on deployment that dump and restore PostgreSQL bring
everything back.
"""

import asyncio
import os
import subprocess
from pathlib import Path

import heedful
from heedful.store import keys
from heedful.store.postgres import in_database
from heedful.store.transfer import tables
from scripts.run_docs import blocks
from tests import postgres
from tests.postgres import Urls

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "deploy.md"


async def used(urls: Urls) -> heedful.Remembered:
    """A store that loops, lessons and keys are written to, each of two tenants."""
    store = in_database(urls.service)
    answer = heedful.Remembered(0, False, seen=0)
    try:
        for tenant in ("acme", "other"):
            memory = heedful.Memory(store, heedful.Scope(tenant))
            answer = await memory.remember("unit", "the weight has no unit")
            await keys.create(store, tenant, "ann")
    finally:
        await store.close()
    return answer


def test_what_was_dumped_is_restored_and_goes_on(tmp_path):
    before = postgres.fresh()
    after = postgres.blank()
    first = asyncio.run(used(before))
    page = PAGE.read_text(encoding="utf-8")
    (commands,) = (
        database.body for database in blocks(page) if "pg_restore" in database.body
    )
    for there, here in (("db.example.com", before), ("new.example.com", after)):
        url = f"postgresql://heedful_owner@{there}/heedful"
        assert url in commands
        commands = commands.replace(url, f"'{here.owner}'")
    programs = f"{postgres.server()._server.bin_path}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["sh", "-eu", "-c", commands], cwd=tmp_path, env={"PATH": programs}, check=True
    )
    try:
        counts = [
            [
                postgres.rows(database.owner, f"select count(*) from {table.name}")
                for table in tables()
            ]
            for database in (before, after)
        ]
        assert counts[0] == counts[1]  # every row is there
        again = asyncio.run(used(after))
        assert again.id == first.id
        assert again.seen == 2
    finally:
        postgres.drop(before)
        postgres.drop(after)
